/// CUDA C++ for the portable path: one source file per plan, one __global__ function per kernel, the same text as the
/// CPU's but for what a block of threads needs. A kernel is launched with a forge::cuda::Call by value, as
/// `launch_of` (launch.h) says.
#pragma once

#include "emit/source.h"

namespace forge::emit {

std::string emit_cuda(const plan::Plan& plan);
/// The same, before it is text: kernels as statements, synchronised and, in debug builds, verified (kernel/hazards).
Source cuda_source(const plan::Plan& plan);

}  // namespace forge::emit
