#include "runtime/prepared_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace forge::runtime {
namespace {

CudaPointer pointer(const void* data) {
    return reinterpret_cast<CudaPointer>(data);  // NOLINT: the driver's pointers are numbers
}

/// How many blocks share each of a kernel's tasks: as many as have tokens, with all tasks at once.
unsigned cluster_of(const Launch& how, CudaFunction function, std::int64_t tasks, std::int64_t tokens) {
    const CudaDriver& cuda = CudaDriver::get();
    for (int blocks = how.cluster_blocks; blocks > 1; --blocks) {
        if ((blocks - 1) * how.cluster_rows >= tokens) continue;
        CudaLaunchAttribute cluster{CudaLaunchAttribute::kClusters, {blocks, 1, 1}};
        CudaLaunch launch;
        launch.grid_x = static_cast<unsigned>(blocks), launch.block_x = static_cast<unsigned>(how.threads);
        launch.shared_bytes = static_cast<unsigned>(how.shared_bytes);
        launch.attributes = &cluster, launch.attribute_count = 1;
        int at_once = 0;
        cuda.check(cuda.clusters_at_once(&at_once, function, &launch), "asking how many clusters fit");
        if (at_once >= tasks) return static_cast<unsigned>(blocks);
    }
    return 1;
}

}  // namespace

PreparedCall::PreparedCall(const Callable& callable, const CudaProgram& program, const Arguments& call, Memory* memory)
    : device_(program.device()),
      layout_(callable, call, bind(callable, call, Lengths::OnDevice, memory), device_.multiprocessors),
      starts_(memory),
      cleared_(memory) {
    const cuda::Call arguments = layout_.with(addresses_of(callable, call));
    constexpr int kHopper = 9;  // the first whose kernels wait for those before
    const CudaScope scope(device_);
    starts_.reserve(callable.kernels.size() + 1);
    for (std::size_t k = 0; k < callable.kernels.size(); ++k) {
        const Launch& how = callable.kernels[k].how;
        const DeviceLayout::KernelCall& layout = layout_.kernels()[k];
        if (layout.tasks == 0) continue;
        if (layout.tasks > std::numeric_limits<int>::max())
            throw RuntimeError(
                fmt::format("{}: the call has {} tasks, more than a grid holds", callable.name, layout.tasks));
        Start start;
        start.function = program.kernels()[k];
        start.cluster = cluster_of(how, start.function, layout.tasks, arguments.tokens);
        start.blocks = static_cast<unsigned>(how.cluster_rows > 0 ? layout.tasks * start.cluster : layout.blocks);
        start.groups = static_cast<unsigned>(std::max(1, how.threads / callable.block_threads));
        start.threads = static_cast<unsigned>(how.threads) / start.groups;
        start.shared_bytes = static_cast<unsigned>(how.shared_bytes);
        const bool after_kernel_ahead = k > 0 && layout_.kernels()[k - 1].tasks > 0;
        start.may_overlap = how.waits && !starts_.empty() && (after_kernel_ahead || !how.waits_late) &&
                            CudaDriver::get().kernels_overlap;
        start.early = how.early && starts_.empty() && CudaDriver::get().kernels_overlap && device_.major >= kHopper;
        start.call = layout, start.maps = MapLayout(callable, how, arguments);
        starts_.push_back(start);
        if (k < kernels_of_summaries(callable)) summaries_ = starts_.size();
    }
    if (layout_.last_rows().tasks > 0) {
        Start start;
        start.function = program.last_rows();
        start.blocks = static_cast<unsigned>(layout_.last_rows().blocks);
        start.threads = static_cast<unsigned>(callable.block_threads);
        start.call = layout_.last_rows();
        starts_.push_back(start);
        has_end_ = true;
    }
    if (!callable.clears_skipped && (call.initial_slots.is_given() || call.final_slots.is_given()))
        cleared_ = dense_outputs(callable, call, memory);
}

void PreparedCall::launch(const Addresses& addresses, Step step) const {
    const CudaDriver& cuda = CudaDriver::get();
    const CudaScope scope(device_);
    const auto stream = static_cast<CudaStream>(addresses.stream);
    for (const OutputMemory& output : cleared_)
        cuda.check(cuda.fill_bytes(pointer(addresses.tensors[output.tensor]), 0, output.bytes, stream),
                   "clearing outputs");
    cuda::Call arguments = layout_.with(addresses);
    arguments.every_summary = step == Step::EverySummary ? 1 : 0;
    const std::size_t whole = starts_.size() - (has_end_ && !layout_.has_end(arguments) ? 1 : 0);
    const std::size_t first = step == Step::AfterSummaries ? summaries_ : 0,
                      end = step == Step::Whole || step == Step::AfterSummaries ? whole : summaries_;
    for (std::size_t s = first; s < end; ++s)  // before all kernels: between two it would end their overlap
        if (const DeviceLayout::KernelCall& kernel = starts_[s].call; kernel.exchange_bytes > 0)
            cuda.check(
                cuda.fill_bytes(pointer(addresses.workspace + kernel.exchange), 0xFF, kernel.exchange_bytes, stream),
                "clearing the workspace");
    for (std::size_t s = first; s < end; ++s) {
        const Start& start = starts_[s];
        DeviceLayout::select(arguments, start.call, addresses);
        cuda::TensorMaps maps = start.maps.with(arguments);
        void* parameters[] = {&arguments, &maps};  // kernels without maps take the first alone
        CudaLaunchAttribute attributes[2];
        CudaLaunch how;
        how.grid_x = start.blocks, how.block_x = start.threads, how.block_y = start.groups;
        how.shared_bytes = start.shared_bytes, how.stream = stream;
        how.attributes = attributes;
        if ((start.may_overlap && s > first) || start.early)
            attributes[how.attribute_count++] = {CudaLaunchAttribute::kMayOverlap, {1}};
        if (start.cluster > 1)
            attributes[how.attribute_count++] = {CudaLaunchAttribute::kClusters,
                                                 {static_cast<int>(start.cluster), 1, 1}};
        cuda.check(cuda.launch(&how, start.function, parameters, nullptr), "launching a kernel");
    }
}

}  // namespace forge::runtime
