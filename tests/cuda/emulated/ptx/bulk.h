/// In place of device/cuda/ptx/bulk.h.
#pragma once

namespace forge::cuda::ptx {

inline void barrier_expect(unsigned barrier, unsigned bytes) { forge_hardware->barrier_expect(barrier, bytes); }
inline void bulk_load(unsigned shared, const void* global, unsigned bytes, unsigned barrier) {
    forge_hardware->bulk_load(shared, global, bytes, barrier);
}
inline void bulk_store(void* global, unsigned shared, unsigned bytes) {
    forge_hardware->bulk_store(global, shared, bytes);
}
inline void tensor_load(unsigned shared, const void* map, int c, int r, int p, int q, unsigned barrier) {
    forge_hardware->tensor_load(shared, {map, {c, r, p, q}}, barrier);
}
inline void tensor_store(const void* map, int c, int r, int p, int q, unsigned shared) {
    forge_hardware->tensor_store({map, {c, r, p, q}}, shared);
}
inline void bulk_commit() { forge_hardware->bulk_commit(); }
template <int PENDING>
void bulk_wait_read() {
    forge_hardware->bulk_wait(PENDING);
}

}  // namespace forge::cuda::ptx
