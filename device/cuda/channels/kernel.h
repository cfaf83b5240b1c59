/// Everything an emitted channel kernel uses: programs of vector states, in which channels never meet. One pass over the
/// inputs, as fast as memory allows; segments of a sequence are joined on the way (join.h).
#pragma once

#include "../portable/math.h"
#include "join.h"
#include "move.h"
