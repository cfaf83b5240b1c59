/// In place of device/cuda/ptx/cluster.h. What is sent comes at once.
#pragma once

namespace forge::cuda::ptx {

struct alignas(8) Mailbox {
    int bytes;  ///< still to come in this phase; negative before they are expected
    short waiting, phase;
};

inline unsigned cluster_in_grid() { return forge_machine.cluster(); }
inline unsigned block_in_cluster() { return forge_machine.block_in_cluster(); }
inline unsigned cluster_blocks() { return forge_machine.cluster_blocks(); }
inline void cluster_arrive() { forge_machine.cluster_arrive(); }
inline void cluster_wait() { forge_machine.cluster_wait(); }

inline void mailbox_open(Mailbox* box) { *box = {0, 1, 0}; }
inline void mailbox_change(Mailbox* box, int bytes, short waiting) {
    box->bytes += bytes, box->waiting += waiting;
    if (box->bytes == 0 && box->waiting == 0) box->waiting = 1, ++box->phase;
}
inline void mailbox_expect(Mailbox* box, unsigned bytes) { mailbox_change(box, static_cast<int>(bytes), -1); }
inline void mailbox_await(Mailbox* box, unsigned parity) {
    while (box->phase % 2 == static_cast<int>(parity)) forge_machine.pause();
}
inline void send(unsigned block, const void* mine, const Mailbox* box, float x, float y) {
    float* const there = static_cast<float*>(forge_machine.memory_of(block, mine));
    there[0] = x, there[1] = y;
    mailbox_change(static_cast<Mailbox*>(forge_machine.memory_of(block, box)), -8, 0);
}

}  // namespace forge::cuda::ptx
