// Memory that ranks share. A rank's memory is a file without a name (memfd); other processes of the machine open it
// under /proc, so that nothing is left behind by processes that die, and no limit of /dev/shm applies. Threads of a
// process use its addresses.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>

#include "dist/space.h"
#include "support/random.h"

namespace forge::dist::detail {
namespace {

/// What a rank tells of its memory.
struct Offer {
    std::uint64_t process = 0, token = 0, address = 0;
    std::int64_t pid = 0, file = -1;
};

using Memory = std::shared_ptr<std::byte>;

Memory map_memory(int file, std::size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return nullptr;  // NOLINT: a macro of C
    return {static_cast<std::byte*>(memory), [bytes](std::byte* at) { munmap(at, bytes); }};
}

/// Its first bytes say whether what was found is the rank's memory.
Memory map_other(const Offer& offer, std::size_t bytes) {
    const std::string path = "/proc/" + std::to_string(offer.pid) + "/fd/" + std::to_string(offer.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    Memory memory = lseek(file, 0, SEEK_END) == static_cast<off_t>(bytes) ? map_memory(file, bytes) : nullptr;
    close(file);
    std::uint64_t token = 0;
    if (memory) std::memcpy(&token, memory.get(), sizeof token);
    return token == offer.token ? memory : nullptr;
}

}  // namespace

std::uint64_t process_token() {
    static const std::uint64_t kToken = (std::uint64_t{std::random_device()()} << 32U) | std::random_device()();
    static const long kProcess = getpid();
    return kToken ^ static_cast<std::uint64_t>(kProcess == getpid() ? 0 : getpid());  // after a fork
}

bool Region::share(std::size_t bytes, const Bootstrap& ranks) {
    const auto size = static_cast<std::size_t>(ranks.size), self = static_cast<std::size_t>(ranks.rank);
    bases_.assign(size, nullptr);
    Offer mine{process_token(), support::mix(process_token() ^ reinterpret_cast<std::uintptr_t>(this)), 0, getpid(),
               -1};
    const int file = memfd_create("forge", MFD_CLOEXEC);
    // Memory that is not there in the end would be a signal in the middle of an exchange: it is taken now.
    if (file >= 0 && posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0) bases_[self] = map_memory(file, bytes);
    if (bases_[self]) {
        std::memcpy(bases_[self].get(), &mine.token, sizeof mine.token);
        mine.address = reinterpret_cast<std::uintptr_t>(&bases_[self]), mine.file = file;
    }
    std::vector<Offer> offers(size);
    ranks.allgather(&mine, offers.data(), sizeof mine);
    std::uint64_t reached = 1;
    for (std::size_t r = 0; r < size; ++r) {
        if (r != self && offers[r].file >= 0)
            bases_[r] = offers[r].process == mine.process ? *reinterpret_cast<const Memory*>(offers[r].address)
                                                          : map_other(offers[r], bytes);
        reached = reached && bases_[r] ? 1 : 0;
    }
    std::vector<std::uint64_t> all(size);
    ranks.allgather(&reached, all.data(), sizeof reached);  // and all have opened the file
    if (file >= 0) close(file);
    for (const std::uint64_t one : all) reached = reached && one ? 1 : 0;
    if (!reached) {
        bases_.clear();
        return false;
    }
    std::memset(bases_[self].get(), 0, sizeof mine.token);
    ranks.allgather(&reached, all.data(), sizeof reached);  // nobody writes before the token is gone
    return true;
}

}  // namespace forge::dist::detail
