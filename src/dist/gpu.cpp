#include "dist/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "build/cuda_binary.h"
#include "dist/space.h"
#include "support/environment.h"
#include "support/hash.h"
#include "support/random.h"

namespace forge::dist::detail {
namespace {

using runtime::CudaDriver;
using runtime::CudaPointer;
using runtime::CudaScope;

constexpr const char* kSource = "#include \"cuda/ranks/exchange.h\"\n#include \"cuda/ranks/fold.h\"\n";
constexpr std::size_t kAlignment = 256, kLeastChunk = std::size_t{8} << 20U;

CudaPointer number_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
void* pointer_of(CudaPointer number) { return reinterpret_cast<void*>(number); }  // NOLINT: the driver's are numbers

/// The same number for the same GPU in all processes of a machine.
std::uint64_t number_of_gpu(const runtime::CudaDevice& device) {
    std::array<char, 64> address{};
    const CudaDriver& cuda = CudaDriver::get();
    cuda.check(cuda.device_address(address.data(), static_cast<int>(address.size()), device.index),
               "reading a device's address");
    return support::mix(7, std::string(address.data()));
}

}  // namespace

Gpu::Gpu(Space& space, const runtime::CudaDevice& device) : space_(space), device_(device) {
    load();
    if (space_.shares_memory()) meet();
}

Gpu::~Gpu() {
    const CudaDriver& cuda = CudaDriver::get();
    const CudaScope scope(device_);
    cuda.context_synchronize();  // nobody's kernel of this process writes into what is freed
    for (const Chunk& chunk : chunks_) cuda.release(chunk.address);
    for (const auto& [key, address] : neutrals_) cuda.release(address);
    shared_.clear();
    if (registered_) PeerDriver::get().unregister_host(registered_);
    if (module_) cuda.module_unload(module_);
}

void Gpu::load() {
    const build::CudaBinary binary =
        build::build_cuda_binary("ranks", kSource, device_.arch(), support::default_cache_dir());
    const CudaDriver& cuda = CudaDriver::get();
    const CudaScope scope(device_);
    cuda.check(cuda.module_load(&module_, binary.cubin.data()), "loading the exchange of states");
    cuda.check(cuda.module_function(&exchange_, module_, "forge_exchange"), "finding a kernel");
    cuda.check(cuda.module_function(&gather_, module_, "forge_gather"), "finding a kernel");
    cuda.check(cuda.module_function(&neutral_, module_, "forge_neutral"), "finding a kernel");
    cuda.check(cuda.module_function(&fold_, module_, "forge_fold"), "finding a kernel");
    constexpr int kMaxDynamicSharedBytes = 8, kStatic = 1024;
    cuda.check(cuda.function_set(exchange_, kMaxDynamicSharedBytes, static_cast<int>(device_.shared_bytes) - kStatic),
               "reserving shared memory for a kernel");
    cuda.check(cuda.function_set(fold_, kMaxDynamicSharedBytes, static_cast<int>(device_.shared_bytes) - kStatic),
               "reserving shared memory for a kernel");
}

/// Which GPUs the ranks have, and whether they reach each other. What cannot be had is no error: states then go by way
/// of the host.
void Gpu::meet() {
    if (space_.size() > cuda::ranks::kMaxRanks) return;
    const GpuOffer mine{process_token(), number_of_gpu(device_), reinterpret_cast<std::uintptr_t>(device_.context),
                        device_.index};
    offers_.resize(static_cast<std::size_t>(space_.size()));
    space_.mail(&mine, offers_.data(), sizeof mine);
    sharing_ = static_cast<int>(
        std::count_if(offers_.begin(), offers_.end(), [&](const GpuOffer& o) { return o.gpu == mine.gpu; }));
    const CudaScope scope(device_);
    // The word that says that the group failed is the host's, for kernels to read and to write.
    constexpr unsigned kForAllContexts = 1, kMapped = 2;
    const PeerDriver& peers = PeerDriver::get();
    constexpr std::size_t kPage = 4096;
    void* page = pointer_of(number_of(&space_.failed()) / kPage * kPage);
    std::uint64_t there = peers.register_host(page, kPage, kForAllContexts | kMapped) == 0 ? 1 : 0;
    if (there) {
        registered_ = page;
        CudaPointer base = 0;
        there = peers.host_address(&base, page, 0) == 0 ? 1 : 0;
        failed_ = base + (number_of(&space_.failed()) - number_of(page));
    }
    std::vector<std::uint64_t> all(offers_.size());
    space_.mail(&there, all.data(), sizeof there);
    if (std::find(all.begin(), all.end(), 0) != all.end()) return;
    const std::size_t bytes =
        sizeof(cuda::ranks::Control) + (offers_.size() + 1) * static_cast<std::size_t>(cuda::ranks::kDoneBytes);
    shared_.emplace_back(device_, offers_, space_.rank());
    reaches_ = shared_.back().share(bytes, space_.by_mail());
}

void Gpu::begin(runtime::CudaStream stream) {
    space_.check();
    if (begun_ && stream != stream_) {
        // What the call before left on its stream may use what this one takes.
        int capturing = 0;
        PeerDriver::get().is_capturing(stream, &capturing);
        if (!capturing) CudaDriver::get().check(CudaDriver::get().context_synchronize(), "waiting for another stream");
    }
    begun_ = true, stream_ = stream, chunk_ = used_ = 0;
}

// ---------------------------------------------------------------------------------------------- states

void* Gpu::workspace(std::size_t bytes) {
    bytes = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    for (; chunk_ < chunks_.size(); ++chunk_, used_ = 0) {
        if (used_ + bytes > chunks_[chunk_].bytes) continue;
        used_ += bytes;
        return pointer_of(chunks_[chunk_].address + used_ - bytes);
    }
    // Nothing is freed before the group is: that would wait for the GPU, on which other ranks' kernels may wait for us.
    const std::size_t size = std::max({bytes, kLeastChunk, chunks_.empty() ? 0 : chunks_.back().bytes});
    Chunk made{0, size};
    CudaDriver::get().check(CudaDriver::get().allocate(&made.address, size), "allocating memory for states of ranks");
    chunks_.push_back(made);
    chunk_ = chunks_.size() - 1, used_ = bytes;
    return pointer_of(made.address);
}

float* Gpu::take(std::size_t count) { return static_cast<float*>(workspace(count * sizeof(float))); }

void Gpu::fill(float* to, std::size_t count, float value) {
    if (count == 0) return;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    CudaDriver::get().check(PeerDriver::get().fill_words(number_of(to), bits, count, stream_), "filling states");
}

const float* Gpu::neutral(std::size_t count, std::int64_t width) {
    CudaPointer& address = neutrals_[{count, width}];
    if (!address) {
        const CudaDriver& cuda = CudaDriver::get();
        cuda.check(cuda.allocate(&address, std::max<std::size_t>(count, 1) * sizeof(float)), "allocating transitions");
        cuda::ranks::Neutral n{static_cast<float*>(pointer_of(address)), static_cast<cuda::ranks::Size>(count),
                               static_cast<int>(width)};
        if (count > 0) launch(neutral_, 64, 0, &n);
    }
    return static_cast<const float*>(pointer_of(address));
}

void Gpu::copy(const float* from, std::size_t count, float* to) {
    if (count > 0)
        CudaDriver::get().check(
            CudaDriver::get().copy_on_device(number_of(to), number_of(from), count * sizeof(float), stream_),
            "copying states");
}

void Gpu::read(const TensorView& from, float* to) {
    const std::int64_t count = count_of(from);
    if (count == 0) return;
    if (from.dtype == DType::F32 && is_dense(from))
        return copy(static_cast<const float*>(from.data), static_cast<std::size_t>(count), to);
    cuda::ranks::Gather g{from.data, to, count, 0, static_cast<int>(from.shape.size()), {}, {}};
    g.dtype = from.dtype == DType::F32 ? 2 : from.dtype == DType::F16 ? 1 : 0;
    if (from.shape.size() > std::size(g.shape)) throw InternalError("ranks: a tensor has too many axes");
    std::copy(from.shape.begin(), from.shape.end(), g.shape);
    std::copy(from.strides.begin(), from.strides.end(), g.strides);
    launch(gather_, static_cast<unsigned>(std::min<std::int64_t>((count + 255) / 256, 1024)), 0, &g);
}

std::vector<std::int64_t> Gpu::integers(const TensorView& view) {
    TensorView copy = view;
    if (view.shape.at(0) == 0) return {};
    const std::int64_t stride = view.strides[0], last = (view.shape[0] - 1) * stride;
    const std::size_t bytes = size_in_bytes(view.dtype);
    const std::int64_t first = std::min<std::int64_t>(last, 0), span = std::max(last, std::int64_t{0}) - first + 1;
    std::vector<std::byte> memory(static_cast<std::size_t>(span) * bytes);
    const CudaDriver& cuda = CudaDriver::get();
    cuda.check(
        PeerDriver::get().download(memory.data(), number_of(view.data) + static_cast<std::uint64_t>(first) * bytes,
                                   memory.size(), stream_),
        "reading cu_seqlens");
    cuda.check(cuda.stream_synchronize(stream_), "reading cu_seqlens");
    copy.data = memory.data() - first * static_cast<std::int64_t>(bytes);
    return HostStore().integers(copy);
}

void Gpu::download(const float* from, std::size_t count, float* to) const {
    const CudaDriver& cuda = CudaDriver::get();
    if (count == 0) return;
    cuda.check(PeerDriver::get().download(to, number_of(from), count * sizeof(float), stream_), "reading states");
    cuda.check(cuda.stream_synchronize(stream_), "reading states");
}

void Gpu::upload(const float* from, std::size_t count, float* to) const {
    const CudaDriver& cuda = CudaDriver::get();
    if (count == 0) return;
    cuda.check(PeerDriver::get().upload(number_of(to), from, count * sizeof(float), stream_), "writing states");
    cuda.check(cuda.stream_synchronize(stream_), "writing states");
}

void Gpu::launch(runtime::CudaFunction function, unsigned blocks, unsigned shared_bytes, void* argument) const {
    runtime::CudaLaunch how;
    how.grid_x = blocks, how.block_x = cuda::ranks::kThreads, how.shared_bytes = shared_bytes, how.stream = stream_;
    void* arguments[] = {argument};
    CudaDriver::get().check(CudaDriver::get().launch(&how, function, arguments, nullptr), "launching an exchange");
}

}  // namespace forge::dist::detail
