/// What every emitted channel kernel uses: programs of vector states, in which channels hardly ever meet. One pass over
/// the inputs, as fast as memory allows; tiles of a sequence are joined on the way, as clusters.h or look_back.h says,
/// either of which a kernel includes beside this.
#pragma once

#include "../portable/math.h"
#include "map.h"
#include "move.h"

namespace forge::cuda {

template <class SHARED, int BYTES>
FORGE_DEVICE SHARED& shared_memory() {
    static_assert(sizeof(SHARED) <= BYTES, "the launch reserves too little");
    static_assert(sizeof(SHARED::places) % 16 == 0, "what lies behind the places is loaded in fours");
    return *static_cast<SHARED*>(ptx::block_memory());
}

}  // namespace forge::cuda
