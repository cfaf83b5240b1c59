/// Kernels of one stream that overlap: the next one may start while this one ends. One function per instruction.
#pragma once

namespace forge::cuda::ptx {

/// Once all blocks have said so or ended, the next kernel's blocks may start where there is room.
__device__ __forceinline__ void let_next_kernel_start() { asm volatile("griddepcontrol.launch_dependents;"); }

/// Until the kernel before has ended, and its results can be read.
__device__ __forceinline__ void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace forge::cuda::ptx
