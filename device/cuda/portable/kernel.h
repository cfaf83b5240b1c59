/// Everything an emitted CUDA kernel of the portable path (compute capability 8.0 and up) uses: one include, one
/// function per tile operation, named as on the CPU.
///
/// Tiles are float, row-major, 16-byte aligned, in shared memory, with a row stride that is a multiple of kWidth.
/// Columns beyond a tile's width are padding: any function may write there, and none lets what it finds there reach a
/// valid result. Sizes are template parameters. No header of the standard library, so that NVRTC compiles this in a
/// fraction of a second.
#pragma once

#include "call.h"
#include "decay.h"
#include "inverse.h"
#include "io.h"
#include "math.h"
#include "matmul.h"
#include "rows.h"
#include "scan.h"
#include "thread.h"
#include "vec.h"
