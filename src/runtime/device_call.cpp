#include "runtime/device_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/beside.h"
#include "support/divide.h"

namespace forge::runtime {
namespace {

static_assert(sizeof(cuda::Call) + sizeof(cuda::TensorMaps) <= 32764, "CUDA's limit for the arguments of a kernel");

using support::Checked;

/// Of a spill that chunks, segments or sequences have a block of.
Checked floats_of(const Spill& spill, const Bound& bound) {
    const std::int64_t units = spill.per == Per::Segment    ? bound.summaries
                               : spill.per == Per::Sequence ? bound.sequences
                                                            : bound.chunks;
    return Checked(units) * bound.heads * spill.floats;
}

/// Sequences, chunks, segments or summaries, as many as there can be.
std::int64_t units_of(const KernelOfCall& kernel, const Bound& bound) {
    if (kernel.how.unit_rows > 0) return bound.blocks(kernel.how.unit_rows);
    return kernel.loop == Loop::Chunks      ? bound.chunks
           : kernel.loop == Loop::Summaries ? bound.summaries
           : per_segment(kernel.loop)       ? bound.segments
                                            : bound.sequences;
}

std::int64_t tasks_of(const KernelOfCall& kernel, const Bound& bound) {
    const std::int64_t together = kernel.how.head_channels,
                       heads = together > 0 ? support::divide_up(bound.heads, together) : bound.heads;
    return (Checked(units_of(kernel, bound)) * heads * kernel.how.parts).saturated();
}

Checked exchange_bytes_of(const KernelOfCall& kernel, const Bound& bound) {
    const Launch& how = kernel.how;
    if (how.exchange_bytes == 0) return 0;
    return (Checked(how.exchange_header_bytes) + Checked(tasks_of(kernel, bound)) * how.exchange_bytes)
        .rounded_up(kDeviceAlignment);
}

/// Kernels divide numbers of rows by 32 bits.
void check_tokens(const Callable& callable, const Bound& bound) {
    constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
    if (bound.length > kMost)
        throw RuntimeError(fmt::format(
            "{}: expected at most {} tokens {} on a GPU, got {}; cut the call into several, joined by its states",
            callable.name, kMost, bound.packed ? "in all sequences" : "per sequence", bound.length));
}

/// Where each spill and each kernel's exchange begins, spills first, and where the last ends.
struct Workspace {
    List<std::size_t> spills, exchanges;
    std::size_t bytes = 0;

    Workspace(const Callable& callable, const Bound& bound) : spills(bound.memory()), exchanges(bound.memory()) {
        Checked end = 0;
        const auto take = [&](Checked size) {
            const std::size_t begin = workspace_size(callable, end);
            end = end + size;
            return begin;
        };
        spills.reserve(callable.spills.size()), exchanges.reserve(callable.kernels.size());
        for (const Spill& spill : callable.spills) {
            const bool per_worker = spill.per == Per::Worker;
            const Checked floats =
                per_worker ? Checked(workers(callable, bound)) * spill.floats : floats_of(spill, bound);
            spills.push_back(take((floats * sizeof(float)).rounded_up(kDeviceAlignment)));
        }
        for (const KernelOfCall& kernel : callable.kernels) exchanges.push_back(take(exchange_bytes_of(kernel, bound)));
        bytes = workspace_size(callable, end);
    }

  private:
    static std::int64_t workers(const Callable& callable, const Bound& bound) {
        std::int64_t most = 0;
        for (const KernelOfCall& kernel : callable.kernels)
            if (kernel.how.most_blocks > 0)
                most = std::max(most, std::min<std::int64_t>(kernel.how.most_blocks, tasks_of(kernel, bound)));
        return most;
    }
};

}  // namespace

std::size_t device_workspace_bytes(const Callable& callable, const Bound& bound) {
    return Workspace(callable, bound).bytes;
}

SummaryPlaces device_summaries(const Callable& callable, const Arguments& call, std::int64_t n,
                               std::span<const std::int64_t> offsets) {
    const Bound bound = bind(callable, call, Lengths::OnDevice);
    SummaryPlaces places;
    for (const std::size_t offset : Workspace(callable, bound).spills)
        places.spills.push_back(
            reinterpret_cast<float*>(static_cast<char*>(call.workspace) + offset));  // NOLINT: bytes
    const auto row = static_cast<std::size_t>(n);
    const std::int64_t tokens = bound.packed ? offsets[row + 1] - offsets[row] : bound.length;
    places.heads = bound.heads;
    places.count = std::max<std::int64_t>(1, support::divide_up(tokens, bound.summary_rows));
    places.first = bound.packed ? offsets[row] / bound.summary_rows + n : n * places.count;  // portable/call.h
    return places;
}

Addresses addresses_of(const Callable& callable, const Arguments& call) {
    Addresses addresses{};
    for (std::size_t i = 0; i < callable.tensors.size(); ++i) addresses.tensors[i] = call.tensors[i].data;
    std::copy(call.scalars, call.scalars + callable.scalars.size(), addresses.scalars);
    addresses.offsets = call.cu_seqlens.data;
    addresses.initial_slots = call.initial_slots.data;
    addresses.final_slots = call.final_slots.data;
    addresses.has_initial_state = static_cast<const unsigned char*>(call.has_initial_state.data);
    addresses.chunk_slots = call.chunk_slots.data;
    addresses.workspace = static_cast<char*>(call.workspace);
    addresses.stream = call.stream;
    return addresses;
}

DeviceLayout::DeviceLayout(const Callable& callable, const Arguments& call, const Bound& bound, int multiprocessors)
    : tensors_(bound.tensors.size()),
      scalars_(callable.scalars.size()),
      spills_(bound.memory()),
      kernels_(bound.memory()),
      pairs_(bound.memory()) {
    check_tokens(callable, bound);
    std::copy(bound.tensors.begin(), bound.tensors.end(), common_.tensors);
    if (call.cu_seqlens.is_given()) {
        common_.offsets_stride = call.cu_seqlens.stride(0);
        common_.wide_offsets = call.cu_seqlens.dtype == DType::I64;
    }
    common_.slots = bound.slots;  // `with` says where they lie
    common_.tokens = bound.length;
    common_.chunk_rows = callable.chunk;
    common_.segment_rows = bound.segment_rows, common_.summary_rows = bound.summary_rows;
    common_.sequences = bound.sequences;
    common_.heads = bound.heads;
    Workspace workspace(callable, bound);
    workspace_bytes_ = workspace.bytes;
    spills_ = std::move(workspace.spills);
    kernels_.reserve(callable.kernels.size());
    for (std::size_t k = 0; k < callable.kernels.size(); ++k) {
        const Launch& how = callable.kernels[k].how;
        KernelCall kernel;
        kernel.tasks = tasks_of(callable.kernels[k], bound), kernel.parts = how.parts;
        kernel.blocks = how.resident_blocks > 0
                            ? std::min<std::int64_t>(kernel.tasks, std::int64_t{how.resident_blocks} * multiprocessors)
                        : how.most_blocks > 0 ? std::min<std::int64_t>(kernel.tasks, how.most_blocks)
                                              : kernel.tasks;
        kernel.exchange = workspace.exchanges[k],
        kernel.exchange_bytes = static_cast<std::size_t>(exchange_bytes_of(callable.kernels[k], bound).saturated());
        kernels_.push_back(kernel);
    }
    find_pairs(callable, call);
    bool wanted = false;
    for (const LastRowSlots& slots : callable.last_rows) {
        const bool given = bound.tensors[static_cast<std::size_t>(slots.final)].data != nullptr;
        wanted = wanted || given, ends_always_ = ends_always_ || (given && !slots.in_place);
    }
    last_rows_.parts = 1;
    last_rows_.tasks = last_rows_.blocks = wanted ? bound.sequences * bound.heads : 0;
    for (std::size_t k = 0; k + 1 < kernels_.size(); ++k) {
        if (!callable.kernels[k].how.beside) continue;
        const WorkBeside work{kernels_[k].tasks, callable.beside_groups, callable.beside_steps};
        const BesideBlocks placed = place_beside(work, kernels_[k + 1].tasks, kernels_[k + 1].parts, multiprocessors);
        kernels_[k].blocks = placed.blocks, kernels_[k].common = placed.common,
        kernels_[k].staying = kernels_[k + 1].staying = placed.staying;
    }
}

DeviceLayout::Extent DeviceLayout::extent_of(const View& view) {
    if (view.is_empty()) return {};
    const auto bytes = static_cast<std::int64_t>(size_in_bytes(view.dtype));
    Extent extent{0, bytes};
    for (int axis = 0; axis < view.rank; ++axis) {
        const std::int64_t reach = (view.shape[axis] - 1) * view.stride(axis) * bytes;
        (reach < 0 ? extent.from : extent.to) += reach;
    }
    return extent;
}

void DeviceLayout::find_pairs(const Callable& callable, const Arguments& call) {
    for (std::size_t to = 0; to < callable.tensors.size(); ++to) {
        if (callable.tensors[to].kind != TensorKind::FinalState || !call.tensors[to].is_given()) continue;
        for (std::size_t from = 0; from < callable.tensors.size(); ++from)
            if (callable.tensors[from].kind == TensorKind::InitialState && call.tensors[from].is_given() &&
                callable.tensors[from].name == callable.tensors[to].name)
                pairs_.push_back({from, to, extent_of(call.tensors[from]), extent_of(call.tensors[to])});
    }
}

/// Slots are the kernels' to read: of a pool all counts.
bool DeviceLayout::in_place(const Addresses& addresses) const {
    const auto at = [&](std::size_t tensor) { return reinterpret_cast<std::intptr_t>(addresses.tensors[tensor]); };
    return std::any_of(pairs_.begin(), pairs_.end(), [&](const StatePair& pair) {
        return at(pair.initial) && at(pair.final) &&
               at(pair.initial) + pair.read.from < at(pair.final) + pair.written.to &&
               at(pair.final) + pair.written.from < at(pair.initial) + pair.read.to;
    });
}

cuda::Call DeviceLayout::with(const Addresses& addresses) const {
    cuda::Call call = common_;
    for (std::size_t i = 0; i < tensors_; ++i) call.tensors[i].data = addresses.tensors[i];
    for (std::size_t i = 0; i < scalars_; ++i) call.scalars[i] = static_cast<float>(addresses.scalars[i]);
    for (std::size_t i = 0; i < spills_.size(); ++i)
        call.spills[i] = reinterpret_cast<float*>(addresses.workspace + spills_[i]);  // NOLINT: workspace is bytes
    call.in_place = in_place(addresses) ? 1 : 0;
    call.offsets = addresses.offsets;
    call.slots.initial = addresses.initial_slots;
    call.slots.final = addresses.final_slots;
    call.slots.has_initial = addresses.has_initial_state;
    call.slots.chunks = addresses.chunk_slots;
    return call;
}

void DeviceLayout::select(cuda::Call& call, const KernelCall& kernel, const Addresses& addresses) {
    call.tiles = kernel.parts;
    call.tasks = kernel.tasks;
    call.common = kernel.common, call.staying = kernel.staying;
    call.exchange = addresses.workspace + kernel.exchange;
}

}  // namespace forge::runtime
