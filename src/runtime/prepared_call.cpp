#include "runtime/prepared_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace forge::runtime {
namespace {

CudaPointer pointer(const void* data) { return reinterpret_cast<CudaPointer>(data); }  // NOLINT: the driver's pointers are numbers

}  // namespace

PreparedCall::PreparedCall(const plan::Plan& plan, const CudaProgram& program, const Call& call)
    : device_(program.device()), layout_(plan, call, bind(plan, call, Lengths::OnDevice), device_.multiprocessors) {
    const cuda::Call arguments = layout_.with(addresses_of(plan, call));
    for (std::size_t k = 0; k < plan.kernels.size(); ++k) {
        const emit::Launch& how = program.kernels()[k].how;
        const std::int64_t tasks = layout_.kernels()[k].tasks, blocks = layout_.kernels()[k].blocks;
        if (tasks == 0) continue;
        if (tasks > std::numeric_limits<int>::max())
            throw RuntimeError(fmt::format("{}: the call has {} tasks, more than a grid holds", plan.definition.name, tasks));
        starts_.push_back({program.kernels()[k].function, static_cast<unsigned>(blocks), static_cast<unsigned>(how.threads),
                           static_cast<unsigned>(how.shared_bytes), how.waits && !starts_.empty() && CudaDriver::get().kernels_overlap, layout_.kernels()[k], MapLayout(plan, how, arguments)});
    }
    if (call.initial_slots || call.final_slots) cleared_ = dense_outputs(plan, call);
}

void PreparedCall::launch(const Addresses& addresses) const {
    const CudaDriver& cuda = CudaDriver::get();
    const CudaScope scope(device_);
    const auto stream = static_cast<CudaStream>(addresses.stream);
    for (const OutputMemory& output : cleared_)
        cuda.check(cuda.fill_bytes(pointer(addresses.tensors[output.tensor]), 0, output.bytes, stream), "clearing outputs");
    cuda::Call arguments = layout_.with(addresses);
    for (const Start& start : starts_) {
        DeviceLayout::select(arguments, start.call, addresses);
        if (start.call.exchange_bytes > 0)
            cuda.check(cuda.fill_bytes(pointer(arguments.exchange), 0xFF, start.call.exchange_bytes, stream), "clearing the workspace");
        cuda::TensorMaps maps = start.maps.with(arguments);
        void* parameters[] = {&arguments, &maps};  // kernels without roles take the first alone
        CudaLaunchAttribute overlap;
        CudaLaunch how;
        how.grid_x = start.blocks, how.block_x = start.threads, how.shared_bytes = start.shared_bytes, how.stream = stream;
        if (start.may_overlap) how.attributes = &overlap, how.attribute_count = 1;
        cuda.check(cuda.launch(&how, start.function, parameters, nullptr), "launching a kernel");
    }
}

}  // namespace forge::runtime
