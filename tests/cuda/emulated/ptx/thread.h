/// In place of device/cuda/ptx/thread.h.
#pragma once

namespace forge::cuda::ptx {

inline unsigned thread_in_group() { return static_cast<unsigned>(forge_machine.thread()) % FORGE_THREADS; }
inline unsigned group_in_block() { return static_cast<unsigned>(forge_machine.thread()) / FORGE_THREADS; }
inline unsigned anew(unsigned x) { return x; }
inline void hold(float&) {}
inline void* block_memory() { return forge_machine.memory(); }

}  // namespace forge::cuda::ptx
