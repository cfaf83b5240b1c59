/// Shared memory as matrix units and bulk copies see it: what threads write there they see only after a fence
/// (fence.proxy.async) of the warp that wrote it. Who wrote what is found by comparison, whenever a warp has run for a
/// while.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/cuda/emulated/shared_memory.h"

namespace forge::emulated {

class AsyncView {
  public:
    AsyncView(SharedMemory memory, int warps);

    /// What has changed since the last call was written by this warp, or on its behalf.
    void note_writes(std::size_t warp);
    /// A lane of the warp is at a fence; it counts when all of them are.
    void fence(std::size_t warp);
    /// So many bytes from there on were written by a bulk copy.
    void written(unsigned address, std::size_t bytes);
    /// To be read only.
    [[nodiscard]] SharedMemory seen() { return {seen_.data(), seen_.size()}; }

  private:
    static constexpr std::size_t kWord = 4, kStretch = 4096;  ///< bytes that are told apart, and compared at a time
    struct Warp {
        std::vector<std::size_t> unseen;  ///< words that it wrote since its last fence
        int lanes_at_fence = 0;
    };
    void note_stretch(std::size_t begin, std::size_t end, std::vector<std::size_t>& words);

    SharedMemory memory_;
    std::vector<std::byte> known_, seen_;  ///< as of the last comparison; by matrix units and bulk copies
    std::vector<Warp> warps_;
};

}  // namespace forge::emulated
