/// How long the text of a kernel is. A multiprocessor keeps 128 KB of instructions; a kernel of single chunks goes
/// through its own once per task, so that one with more waits for nearly all of them, each time.
#pragma once

#include <cstdint>

#include "tile/lower.h"

namespace forge::tile {

/// What a multiprocessor keeps of a kernel. Measured on an H200: with 124 KB a tenth of the time is waited for
/// instructions, with 129 KB a third, with 149 a half and with 172 KB 0.6.
inline constexpr std::int64_t kKeptText = 120 * 1024;

/// Bytes, about: for one warp group and matrices in fragments.
std::int64_t text_bytes(const TileKernel& kernel);

}  // namespace forge::tile
