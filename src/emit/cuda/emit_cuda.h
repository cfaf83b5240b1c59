/// CUDA C++ for the portable path: one source file per plan, one __global__ function per kernel, the same text as the
/// CPU's but for what a block of threads needs. A kernel is launched with one block of threads per task, with a
/// forge::cuda::Call by value and `shared_bytes` of dynamic shared memory.
#pragma once

#include "emit/kernel.h"

namespace forge::emit {

std::string emit_cuda(const plan::Plan& plan);

/// Dynamic shared memory of a kernel.
std::size_t shared_bytes(const plan::Kernel& kernel);

}  // namespace forge::emit
