/// Which tiles lie in global memory where shared memory is too small for all: those that are read least.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "ir/function.h"

namespace forge::tile {

/// A value's tile, or the memory that its device function has for itself.
struct BufferName {
    ir::ValueId value = ir::kNoValue;
    bool work = false;
    auto operator<=>(const BufferName&) const = default;
};

struct Buffer {
    BufferName name;
    std::int64_t floats = 0;
    double reads = 0;  ///< of each number, per chunk, about
};

/// A buffer begins or ends to be used; neither depends on where it lies.
struct BufferUse {
    BufferName name;
    std::int64_t floats = 0;
    bool begins = false;
};

/// Where buffers lie: those in global memory have the offsets that follow shared memory's.
struct Arenas {
    std::map<BufferName, std::int64_t> offsets;
    std::int64_t shared_floats = 0, far_floats = 0;
};

/// Where memory is short, buffers are packed by their lives; else they are handed out in order, as in `Arena`.
Arenas placed(const std::vector<BufferUse>& uses, const std::set<BufferName>& far, bool short_of_memory);

/// Of shared memory that is short, what all buffers but those in global memory take.
std::function<std::int64_t(const std::set<BufferName>&)> shared_floats_of(const std::vector<BufferUse>& uses);

/// How often evaluating v reads each number of an operand, about: products read theirs once per block of results.
double reads_of(const ir::Function& fn, ir::ValueId v, ir::ValueId operand);

/// `shared_floats(far)`: how much shared memory the rest then takes. The least read go first; what turns out to fit
/// after all comes back.
std::set<BufferName> far_buffers(std::vector<Buffer> buffers, std::int64_t most,
                                 const std::function<std::int64_t(const std::set<BufferName>&)>& shared_floats);

}  // namespace forge::tile
