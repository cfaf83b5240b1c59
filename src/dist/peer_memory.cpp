#include "dist/peer_memory.h"

namespace forge::dist::detail {

using runtime::CudaDriver;
using runtime::CudaPointer;
using runtime::CudaScope;

PeerMemory::Block::Block(const runtime::CudaDevice& device, std::size_t bytes) : of(device) {
    const CudaDriver& cuda = CudaDriver::get();
    const CudaScope scope(of);
    cuda.check(cuda.allocate(&address, bytes), "allocating memory that ranks share");
    cuda.check(cuda.fill_bytes(address, 0, bytes, nullptr), "clearing memory that ranks share");
    cuda.check(cuda.stream_synchronize(nullptr), "clearing memory that ranks share");
}

PeerMemory::Block::~Block() {
    if (!address) return;
    const CudaScope scope(of);
    CudaDriver::get().release(address);
}

PeerMemory::~PeerMemory() {
    if (imported_.empty()) return;
    const CudaScope scope(device_);
    for (const CudaPointer address : imported_) PeerDriver::get().close_memory(address);
}

CudaPointer PeerMemory::open(const GpuOffer& theirs, std::uint64_t block, const MemoryHandle& handle) {
    const PeerDriver& cuda = PeerDriver::get();
    constexpr int kEnabledBefore = 704;  // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
    constexpr unsigned kEnableAccess = 1;
    if (theirs.process != ranks_[static_cast<std::size_t>(rank_)].process) {
        CudaPointer address = 0;
        if (cuda.import_memory(&address, handle, kEnableAccess) != 0) return 0;
        imported_.push_back(address);
        return address;
    }
    if (theirs.device != device_.index) {
        int can = 0;
        if (cuda.can_access(&can, device_.index, static_cast<int>(theirs.device)) != 0 || !can) return 0;
        const int enabled = cuda.enable_access(reinterpret_cast<runtime::CudaContext>(theirs.context),
                                               0);  // NOLINT: a handle of this process
        if (enabled != 0 && enabled != kEnabledBefore) return 0;
    }
    blocks_.push_back(*reinterpret_cast<const std::shared_ptr<Block>*>(block));  // NOLINT: an address of this process
    return blocks_.back()->address;
}

bool PeerMemory::share(std::size_t bytes, const Bootstrap& mail) {
    // A handle is of a whole allocation, which must not begin before this.
    constexpr std::size_t kGrain = std::size_t{2} << 20U;
    const CudaScope scope(device_);
    struct Offer {
        std::uint64_t block = 0, there = 0;
    } mine;
    std::shared_ptr<Block> block;
    MemoryHandle handle{};
    try {
        block = std::make_shared<Block>(device_, (bytes + kGrain - 1) / kGrain * kGrain);
        mine = {reinterpret_cast<std::uintptr_t>(&block), 1};
    } catch (const RuntimeError&) {
        mine.there = 0;  // the others are told
    }
    // Where memory cannot be exported, ranks of other processes cannot import it, and say so.
    if (block) static_cast<void>(PeerDriver::get().export_memory(&handle, block->address));
    const auto size = static_cast<std::size_t>(mail.size), self = static_cast<std::size_t>(rank_);
    std::vector<Offer> offers(size);
    std::vector<MemoryHandle> handles(size);
    mail.allgather(&mine, offers.data(), sizeof mine);
    mail.allgather(&handle, handles.data(), sizeof handle);
    std::uint64_t reached = 1;
    bases_.assign(size, 0);
    for (std::size_t r = 0; r < size; ++r) {
        if (r == self) bases_[r] = block ? block->address : 0;
        else if (offers[r].there) bases_[r] = open(ranks_[r], offers[r].block, handles[r]);
        if (!bases_[r]) reached = 0;
    }
    if (block) blocks_.push_back(block);
    std::vector<std::uint64_t> all(size);
    mail.allgather(&reached, all.data(), sizeof reached);  // and all have what they need of this rank's `block`
    for (const std::uint64_t one : all) reached = reached && one ? 1 : 0;
    return reached != 0;
}

}  // namespace forge::dist::detail
