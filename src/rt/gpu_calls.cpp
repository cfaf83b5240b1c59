#include "rt/gpu_calls.h"

namespace forge::rt {

using runtime::Arguments;
using runtime::Callable;
using runtime::PreparedCall;
using runtime::Tables;
using runtime::View;

namespace {

constexpr std::size_t kWordsOfTensor = 1 + 2 * runtime::kMostRank;

/// For the lists of a prepared call, with those that it is made from; what is more comes from the heap.
std::size_t memory_of(const Callable& callable) {
    constexpr std::size_t kOfKernel = 2048, kOfTensor = 128, kOfAll = 2048;
    static_assert(sizeof(runtime::MapLayout) + 2 * sizeof(runtime::DeviceLayout::KernelCall) < kOfKernel - 256);
    return kOfAll + kOfKernel * (callable.kernels.size() + 1) + kOfTensor * callable.tensors.size();
}

}  // namespace

GpuCalls::GpuCalls(const Callable& callable, const runtime::CudaProgram& program)
    : callable_(callable), program_(program) {
    const std::size_t words = (callable.tensors.size() + 1) * kWordsOfTensor + 1;
    key_.reserve(words);
    const std::size_t bytes = memory_of(callable);
    for (Known& known : known_) {
        known.key.reserve(words);
        known.memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
        known.lists = std::make_unique<Tables>(known.memory.get(), bytes);
    }
}

void GpuCalls::describe(const Arguments& call) {
    key_.clear();
    const auto add = [&](const View& view) {
        key_.push_back(view.rank | static_cast<std::int64_t>(view.data != nullptr) << 8 |
                       static_cast<std::int64_t>(view.dtype) << 16);
        for (int axis = 0; axis < view.rank; ++axis) key_.push_back(view.shape[axis]);
        for (int axis = 0; axis < view.rank; ++axis) key_.push_back(view.stride(axis));
    };
    for (std::size_t i = 0; i < callable_.tensors.size(); ++i) add(call.tensors[i]);
    add(call.cu_seqlens), add(call.chunk_slots);
    const auto slots = [](const View& view) { return view.is_given() ? 1 + static_cast<std::int64_t>(view.dtype) : 0; };
    key_.push_back(slots(call.initial_slots) | slots(call.final_slots) << 8 | slots(call.has_initial_state) << 16);
}

const PreparedCall& GpuCalls::prepared(const Arguments& call) {
    describe(call);
    for (const Known& known : known_)
        if (known.call && known.key == key_) return *known.call;
    Known& known = known_[next_];
    known.call.reset();
    known.lists->begin_again();
    known.call.emplace(callable_, program_, call, known.lists.get());
    known.key = key_;
    next_ = (next_ + 1) % kKnown;
    return *known.call;
}

void GpuCalls::launch(const Arguments& call) {
    refuse_extremes(callable_, call);
    const std::lock_guard lock(mutex_);  // the driver launches one at a time anyway
    const PreparedCall& known = prepared(call);
    check_workspace(callable_, call, known.workspace_bytes(), runtime::kDeviceAlignment);
    known.launch(addresses_of(callable_, call));
}

}  // namespace forge::rt
