/// Memory of the GPUs of all ranks of a machine, each of which the others can write into: of one process by its
/// addresses, of others by handles that the driver exports.
#pragma once

#include <memory>
#include <vector>

#include "dist/peer_driver.h"
#include "forge/dist.h"

namespace forge::dist::detail {

/// What of a rank's GPU the others must know.
struct GpuOffer {
    std::uint64_t process = 0, gpu = 0, context = 0;
    std::int64_t device = -1;
};

class PeerMemory {
  public:
    PeerMemory(const runtime::CudaDevice& device, std::vector<GpuOffer> ranks, int rank)
        : device_(device), ranks_(std::move(ranks)), rank_(rank) {}
    ~PeerMemory();
    PeerMemory(PeerMemory&&) = default;
    PeerMemory(const PeerMemory&) = delete;
    PeerMemory& operator=(const PeerMemory&) = delete;
    PeerMemory& operator=(PeerMemory&&) = delete;

    /// Collective: zeroed memory of so many bytes on every rank. False on all ranks if some cannot reach others'.
    bool share(std::size_t bytes, const Bootstrap& mail);
    [[nodiscard]] char* at(int rank) const {
        return reinterpret_cast<char*>(bases_[static_cast<std::size_t>(rank)]);  // NOLINT: the driver's are numbers
    }

  private:
    struct Block {
        Block(const runtime::CudaDevice& device, std::size_t bytes);
        ~Block();
        Block(const Block&) = delete;
        Block& operator=(const Block&) = delete;
        const runtime::CudaDevice& of;
        runtime::CudaPointer address = 0;
    };
    [[nodiscard]] runtime::CudaPointer open(const GpuOffer& theirs, std::uint64_t block, const MemoryHandle& handle);

    const runtime::CudaDevice& device_;
    std::vector<GpuOffer> ranks_;
    int rank_;
    std::vector<runtime::CudaPointer> bases_, imported_;
    std::vector<std::shared_ptr<Block>> blocks_;  ///< of this process: the last rank that uses one frees it
};

}  // namespace forge::dist::detail
