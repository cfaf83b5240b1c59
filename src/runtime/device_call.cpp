#include "runtime/device_call.h"

#include <algorithm>
#include <utility>

#include "plan/beside.h"

namespace forge::runtime {
namespace {

static_assert(sizeof(cuda::Call) + sizeof(cuda::TensorMaps) <= 32764, "CUDA's limit for the arguments of a kernel");

using support::Checked;

/// Of a spill that chunks or segments have a block of.
Checked floats_of(const plan::SpillSlot& spill, const Bound& bound) {
    const std::int64_t units = spill.per == plan::SpillSlot::Per::Segment ? bound.summaries : bound.chunks;
    return Checked(units) * bound.heads * spill.floats;
}

/// Sequences, chunks, segments or summaries, as many as there can be.
std::int64_t units_of(const plan::Kernel& kernel, const emit::Launch& how, const Bound& bound) {
    if (how.unit_rows > 0) return bound.blocks(how.unit_rows);
    const plan::Loop loop = kernel.graph.loop;
    return loop == plan::Loop::Chunks      ? bound.chunks
           : loop == plan::Loop::Summaries ? bound.summaries
           : loop == plan::Loop::Segments  ? bound.segments
                                           : bound.sequences;
}

std::int64_t tasks_of(const plan::Kernel& kernel, const emit::Launch& how, const Bound& bound) {
    return (Checked(units_of(kernel, how, bound)) * bound.heads * how.parts).saturated();
}

Checked exchange_bytes_of(const plan::Kernel& kernel, const emit::Launch& how, const Bound& bound) {
    if (how.exchange_bytes == 0) return 0;
    return (Checked(how.exchange_header_bytes) + Checked(tasks_of(kernel, how, bound)) * how.exchange_bytes)
        .rounded_up(kDeviceAlignment);
}

/// Where each spill and each kernel's exchange begins, spills first, and where the last ends.
struct Workspace {
    std::vector<std::size_t> spills, exchanges;
    std::size_t bytes = 0;

    Workspace(const plan::Plan& plan, const Bound& bound) {
        Checked end = 0;
        const auto take = [&](Checked size) {
            const std::size_t begin = workspace_size(plan, end);
            end = end + size;
            return begin;
        };
        for (const plan::SpillSlot& spill : plan.spills) {
            const bool per_worker = spill.per == plan::SpillSlot::Per::Worker;
            const Checked floats = per_worker ? Checked(workers(plan, bound)) * spill.floats : floats_of(spill, bound);
            spills.push_back(take((floats * sizeof(float)).rounded_up(kDeviceAlignment)));
        }
        for (const plan::Kernel& kernel : plan.kernels)
            exchanges.push_back(take(exchange_bytes_of(kernel, emit::launch_of(plan, kernel), bound)));
        bytes = workspace_size(plan, end);
    }

  private:
    static std::int64_t workers(const plan::Plan& plan, const Bound& bound) {
        std::int64_t most = 0;
        for (const plan::Kernel& kernel : plan.kernels)
            if (const emit::Launch how = emit::launch_of(plan, kernel); how.most_blocks > 0)
                most = std::max(most, std::min<std::int64_t>(how.most_blocks, tasks_of(kernel, how, bound)));
        return most;
    }
};

}  // namespace

std::size_t device_workspace_bytes(const plan::Plan& plan, const Bound& bound) { return Workspace(plan, bound).bytes; }

Addresses addresses_of(const plan::Plan& plan, const Call& call) {
    using Slot = plan::TensorSlot::Kind;
    Addresses addresses{};
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
        const Slot kind = plan.tensors[i].kind;
        const auto& group = kind == Slot::InitialState ? call.initial_states
                            : kind == Slot::FinalState ? call.final_states
                            : kind == Slot::ChunkState ? call.chunk_states
                                                       : call.tensors;
        const auto view = group.find(plan.tensors[i].name);
        addresses.tensors[i] = view == group.end() ? nullptr : view->second.data;
    }
    for (std::size_t i = 0; i < plan.scalars.size(); ++i) addresses.scalars[i] = call.scalars.at(plan.scalars[i]);
    const auto data = [](const std::optional<TensorView>& view) { return view ? view->data : nullptr; };
    addresses.offsets = data(call.cu_seqlens);
    addresses.initial_slots = data(call.initial_slots);
    addresses.final_slots = data(call.final_slots);
    addresses.has_initial_state = static_cast<const unsigned char*>(data(call.has_initial_state));
    addresses.workspace = static_cast<char*>(call.workspace);
    addresses.stream = call.stream;
    return addresses;
}

DeviceLayout::DeviceLayout(const plan::Plan& plan, const Call& call, const Bound& bound, int multiprocessors)
    : tensors_(bound.tensors.size()), scalars_(plan.scalars.size()) {
    std::copy(bound.tensors.begin(), bound.tensors.end(), common_.tensors);
    if (call.cu_seqlens) {
        common_.offsets_stride = call.cu_seqlens->strides.empty() ? 1 : call.cu_seqlens->strides[0];
        common_.wide_offsets = call.cu_seqlens->dtype == DType::I64;
    }
    common_.slots.wide = bound.slots.wide;
    common_.tokens = bound.length;
    common_.chunk_rows = plan.schedule.chunk;
    common_.segment_rows = bound.segment_rows, common_.summary_rows = bound.summary_rows;
    common_.sequences = bound.sequences;
    common_.heads = bound.heads;
    const Workspace workspace(plan, bound);
    workspace_bytes_ = workspace.bytes;
    spills_ = workspace.spills;
    for (std::size_t k = 0; k < plan.kernels.size(); ++k) {
        const emit::Launch how = emit::launch_of(plan, plan.kernels[k]);
        KernelCall kernel;
        kernel.tasks = tasks_of(plan.kernels[k], how, bound), kernel.parts = how.parts;
        kernel.blocks = how.resident_blocks > 0
                            ? std::min<std::int64_t>(kernel.tasks, std::int64_t{how.resident_blocks} * multiprocessors)
                        : how.most_blocks > 0 ? std::min<std::int64_t>(kernel.tasks, how.most_blocks)
                                              : kernel.tasks;
        kernel.exchange = workspace.exchanges[k],
        kernel.exchange_bytes = static_cast<std::size_t>(exchange_bytes_of(plan.kernels[k], how, bound).saturated());
        kernels_.push_back(kernel);
    }
    const bool wanted = std::any_of(plan.last_rows.begin(), plan.last_rows.end(), [&](const plan::LastRowSlots& slots) {
        return bound.tensors[static_cast<std::size_t>(slots.final)].data != nullptr;
    });
    last_rows_.parts = 1;
    last_rows_.tasks = last_rows_.blocks = wanted ? bound.sequences * bound.heads : 0;
    for (std::size_t k = 0; k + 1 < kernels_.size(); ++k) {
        if (!emit::launch_of(plan, plan.kernels[k]).beside) continue;
        const plan::WorkBeside work{kernels_[k].tasks, plan.schedule.beside_groups, plan.schedule.beside_steps};
        const plan::BesideBlocks placed =
            plan::place_beside(work, kernels_[k + 1].tasks, kernels_[k + 1].parts, multiprocessors);
        kernels_[k].blocks = placed.blocks, kernels_[k].common = placed.common,
        kernels_[k].staying = kernels_[k + 1].staying = placed.staying;
    }
}

cuda::Call DeviceLayout::with(const Addresses& addresses) const {
    cuda::Call call = common_;
    for (std::size_t i = 0; i < tensors_; ++i) call.tensors[i].data = addresses.tensors[i];
    for (std::size_t i = 0; i < scalars_; ++i) call.scalars[i] = static_cast<float>(addresses.scalars[i]);
    for (std::size_t i = 0; i < spills_.size(); ++i)
        call.spills[i] = reinterpret_cast<float*>(addresses.workspace + spills_[i]);  // NOLINT: workspace is bytes
    call.offsets = addresses.offsets;
    call.slots.initial = addresses.initial_slots;
    call.slots.final = addresses.final_slots;
    call.slots.has_initial = addresses.has_initial_state;
    return call;
}

void DeviceLayout::select(cuda::Call& call, const KernelCall& kernel, const Addresses& addresses) {
    call.tiles = kernel.parts;
    call.tasks = kernel.tasks;
    call.common = kernel.common, call.staying = kernel.staying;
    call.exchange = addresses.workspace + kernel.exchange;
}

}  // namespace forge::runtime
