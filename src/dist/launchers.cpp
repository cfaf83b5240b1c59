// Where ranks come from: threads, or processes that mpirun or srun started.
#include <dlfcn.h>
#include <fmt/format.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "forge/dist.h"

namespace forge::dist {
namespace {

/// An all-gather of threads.
class Meeting {
  public:
    Meeting(int size, std::chrono::milliseconds timeout) : size_(size), timeout_(timeout) {}

    void allgather(int rank, const void* in, void* out, std::size_t bytes) {
        std::unique_lock lock(mutex_);
        if (!wait(lock, [&] { return leaving_ == 0; })) late();
        if (came_ == 0) bytes_.assign(bytes * static_cast<std::size_t>(size_), std::byte{});
        if (bytes_.size() != bytes * static_cast<std::size_t>(size_))
            throw PlanMismatch("group: ranks gather different numbers of bytes", -1, 0);
        std::memcpy(bytes_.data() + static_cast<std::size_t>(rank) * bytes, in, bytes);
        if (++came_ == size_) leaving_ = size_, changed_.notify_all();
        if (!wait(lock, [&] { return leaving_ > 0; })) --came_, late();
        std::memcpy(out, bytes_.data(), bytes_.size());
        if (--leaving_ == 0) came_ = 0, changed_.notify_all();
    }

  private:
    template <class Ready>
    bool wait(std::unique_lock<std::mutex>& lock, const Ready& ready) {
        if (timeout_.count() > 0) return changed_.wait_for(lock, timeout_, ready);
        changed_.wait(lock, ready);
        return true;
    }
    [[noreturn]] void late() const {
        throw PeerTimeout(
            fmt::format("group: expected {} threads, of which some did not come within {} ms", size_, timeout_.count()),
            -1, 0);
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::byte> bytes_;
    int size_, came_ = 0, leaving_ = 0;
    std::chrono::milliseconds timeout_;
};

/// As much of Open MPI as gathers bytes. Its handles are addresses of the library's own objects.
struct Mpi {
    using Handle = void*;
    int (*initialized)(int*) = nullptr;
    int (*finalized)(int*) = nullptr;
    int (*init)(int*, char***) = nullptr;
    int (*finalize)() = nullptr;
    int (*rank)(Handle, int*) = nullptr;
    int (*size)(Handle, int*) = nullptr;
    int (*allgather)(const void*, int, Handle, void*, int, Handle, Handle) = nullptr;
    int (*set_errors)(Handle, Handle) = nullptr;
    Handle world = nullptr, byte = nullptr, errors_return = nullptr;
};

Mpi load() {
    void* library = nullptr;
    // Its parts look each other's names up among those of the process.
    for (const char* name : {"libmpi.so.40", "libmpi.so"})
        if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!library) throw RuntimeError("mpi: expected Open MPI's library libmpi.so.40 among those that the loader finds");
    Mpi mpi;
    const auto find = [&](auto& function, const char* name) {
        void* symbol = dlsym(library, name);
        if (!symbol) throw RuntimeError(fmt::format("mpi: expected Open MPI's library, found one without {}", name));
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);  // NOLINT: dlsym
    };
    find(mpi.initialized, "MPI_Initialized"), find(mpi.finalized, "MPI_Finalized"), find(mpi.init, "MPI_Init");
    find(mpi.finalize, "MPI_Finalize"), find(mpi.rank, "MPI_Comm_rank"), find(mpi.size, "MPI_Comm_size");
    find(mpi.allgather, "MPI_Allgather"), find(mpi.set_errors, "MPI_Comm_set_errhandler");
    find(mpi.world, "ompi_mpi_comm_world"), find(mpi.byte, "ompi_mpi_byte");
    find(mpi.errors_return, "ompi_mpi_errors_return");
    return mpi;
}

const Mpi& loaded_mpi() {
    static const Mpi kMpi = load();
    return kMpi;
}

void check_mpi(int status, const char* call) {
    if (status != 0) throw RuntimeError(fmt::format("mpi: {} failed with {}", call, status));
}

/// A rank that ends without it looks like one that crashed.
void finalize_mpi() {
    int ended = 0;
    loaded_mpi().finalized(&ended);
    if (!ended) loaded_mpi().finalize();
}

}  // namespace

std::vector<Bootstrap> threads(int size, std::chrono::milliseconds timeout) {
    const auto meeting = std::make_shared<Meeting>(size, timeout);
    std::vector<Bootstrap> ranks;
    for (int rank = 0; rank < size; ++rank)
        ranks.push_back({rank, size, [meeting, rank](const void* in, void* out, std::size_t bytes) {
                             meeting->allgather(rank, in, out, bytes);
                         }});
    return ranks;
}

Bootstrap mpi() {
    const Mpi& mpi = loaded_mpi();
    int running = 0;
    check_mpi(mpi.initialized(&running), "MPI_Initialized");
    if (!running) {
        check_mpi(mpi.init(nullptr, nullptr), "MPI_Init");
        if (std::atexit(finalize_mpi) != 0) throw RuntimeError("mpi: atexit failed");
        mpi.set_errors(mpi.world, mpi.errors_return);
    }
    Bootstrap made;
    check_mpi(mpi.rank(mpi.world, &made.rank), "MPI_Comm_rank");
    check_mpi(mpi.size(mpi.world, &made.size), "MPI_Comm_size");
    made.allgather = [&mpi](const void* in, void* out, std::size_t bytes) {
        constexpr std::size_t kMost = std::size_t{1} << 30U;
        if (bytes > kMost)
            throw RuntimeError(fmt::format("mpi: expected at most {} bytes of a rank, got {}", kMost, bytes));
        const int count = static_cast<int>(bytes);
        check_mpi(mpi.allgather(in, count, mpi.byte, out, count, mpi.byte, mpi.world), "MPI_Allgather");
    };
    return made;
}

}  // namespace forge::dist
