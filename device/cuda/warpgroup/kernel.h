/// Everything an emitted CUDA kernel that holds fragments uses, of compute capability 9.0a or, with FORGE_WARPS, of 8.0
/// and later: one include, one function per tile operation. What is no matrix of 64 x 64 blocks is computed by the
/// portable library's functions, in float tiles.
#pragma once

#include "../portable/kernel.h"
#include "../ptx/overlap.h"
#include "arrivals.h"
#include "carries.h"
#include "decay_apply.h"
#include "decay_products.h"
#include "decays.h"
#include "floats.h"
#include "fragment.h"
#include "inverse.h"
#include "inverse_of_blocks.h"
#include "kept_rows.h"
#include "move.h"
#include "multiply.h"
#include "operand.h"
#include "part.h"
#include "shifted.h"
#include "sums.h"
#include "vector_scan.h"
#ifdef FORGE_GROUPS
#include "beside.h"
#include "relay.h"
#include "roles.h"
#endif
