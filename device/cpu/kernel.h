/// Everything an emitted CPU kernel uses: one include, one function per tile operation.
///
/// Tiles are float, row-major, 64-byte aligned, with a row stride that is a multiple of kWidth.
/// Columns beyond a tile's width are padding: any function may write there, and none lets what it
/// finds there reach a valid result. Sizes are template parameters. Nothing here allocates, throws,
/// keeps state or starts threads.
#pragma once

#include "decay.h"
#include "inverse.h"
#include "io.h"
#include "math.h"
#include "matmul.h"
#include "rows.h"
#include "scan.h"
#include "stream.h"
#include "transpose.h"
#include "vec.h"
