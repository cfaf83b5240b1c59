/// In place of device/cuda/ptx/barrier.h.
#pragma once

namespace forge::cuda::ptx {

inline void barrier_begin(unsigned shared, unsigned arrivals) { forge_hardware->barrier_begin(shared, arrivals); }
inline void barriers_begun() { forge_hardware->barriers_begun(); }
inline void barrier_arrive(unsigned shared) { forge_hardware->barrier_arrive(shared); }
inline bool barrier_passed(unsigned shared, unsigned parity) {
    forge_hardware->barrier_wait(shared, parity);
    return true;
}
inline void barrier_sync(unsigned number, unsigned threads) { forge_hardware->sync(number, threads); }

template <int COUNT>
void fewer_registers() {
    forge_hardware->set_registers(COUNT);
}
template <int COUNT>
void more_registers() {
    forge_hardware->set_registers(COUNT);
}

}  // namespace forge::cuda::ptx
