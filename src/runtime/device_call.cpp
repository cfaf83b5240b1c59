#include "runtime/device_call.h"

#include <algorithm>

namespace forge::runtime {
namespace {

constexpr std::size_t kAlignment = 256;

static_assert(sizeof(cuda::Call) + sizeof(cuda::TensorMaps) <= 4096, "CUDA's limit for the arguments of a kernel");

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::size_t bytes_of(const plan::SpillSlot& spill, const Bound& bound) {
    return aligned(static_cast<std::size_t>((spill.per_segment ? bound.segments : bound.chunks) * bound.heads * spill.floats) * sizeof(float));
}

/// Sequences, chunks or segments, as many as there can be.
std::int64_t units_of(const plan::Kernel& kernel, const emit::Launch& how, const Bound& bound) {
    if (how.unit_rows > 0) return bound.blocks(how.unit_rows);
    const plan::Loop loop = kernel.graph.loop;
    return loop == plan::Loop::Chunks ? bound.chunks : plan::per_segment(loop) ? bound.segments : bound.sequences;
}

std::int64_t tasks_of(const plan::Kernel& kernel, const emit::Launch& how, const Bound& bound) { return units_of(kernel, how, bound) * bound.heads * how.parts; }

std::size_t exchange_bytes_of(const plan::Kernel& kernel, const emit::Launch& how, const Bound& bound) {
    return how.exchange_bytes == 0 ? 0 : aligned(static_cast<std::size_t>(how.exchange_header_bytes + tasks_of(kernel, how, bound) * how.exchange_bytes));
}

}  // namespace

std::size_t device_workspace_bytes(const plan::Plan& plan, const Bound& bound) {
    std::size_t bytes = 0;
    for (const auto& spill : plan.spills) bytes += bytes_of(spill, bound);
    for (const plan::Kernel& kernel : plan.kernels) bytes += exchange_bytes_of(kernel, emit::launch_of(plan, kernel), bound);
    return bytes;
}

DeviceCall::DeviceCall(const plan::Plan& plan, const Call& of, const Bound& bound) : bound_(bound) {
    std::copy(bound.tensors.begin(), bound.tensors.end(), call.tensors);
    std::copy(bound.scalars.begin(), bound.scalars.end(), call.scalars);
    exchange_ = static_cast<char*>(of.workspace);
    for (std::size_t i = 0; i < plan.spills.size(); ++i) {
        call.spills[i] = reinterpret_cast<float*>(exchange_);  // NOLINT: workspace is bytes
        exchange_ += bytes_of(plan.spills[i], bound);
    }
    if (of.cu_seqlens) {
        call.offsets = of.cu_seqlens->data;
        call.offsets_stride = of.cu_seqlens->strides.empty() ? 1 : of.cu_seqlens->strides[0];
        call.wide_offsets = of.cu_seqlens->dtype == DType::I64;
    }
    call.slots = bound.slots;
    call.tokens = bound.length;
    call.chunk_rows = plan.schedule.chunk;
    call.segment_rows = bound.segment_rows;
    call.sequences = bound.sequences;
    call.heads = bound.heads;
}

std::int64_t DeviceCall::select(const plan::Kernel& kernel, const emit::Launch& how) {
    call.tiles = how.parts;
    call.tasks = tasks_of(kernel, how, bound_);
    call.exchange = exchange_;
    exchange_bytes = exchange_bytes_of(kernel, how, bound_);
    exchange_ += exchange_bytes;
    return call.tasks;
}

}  // namespace forge::runtime
