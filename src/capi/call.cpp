// Launching: from the C ABI's arguments to forge::Call.
#include "capi/call.h"

#include <algorithm>

#include "capi/guard.h"

namespace forge::capi {
namespace {

/// The caller's threads in the runtime's terms.
ParallelFor threads_of(forge_parallel_for parallel_for, void* context) {
    if (!parallel_for) return {};
    return [parallel_for, context](std::int64_t tasks, int workers, const ParallelBody& body) {
        const auto run = [](void* data, std::int64_t task, std::int32_t worker) {
            (*static_cast<const ParallelBody*>(data))(task, worker);
        };
        parallel_for(context, tasks, workers, run,
                     const_cast<ParallelBody*>(&body));  // NOLINT: C has one kind of context pointer
    };
}

/// Of a call whose tensors are placed; what is wrong with their shapes is found later.
std::int64_t sequences_of(const Call& call, const forge_attention& attention) {
    if (call.cu_seqlens)
        return call.cu_seqlens->shape.empty() ? 0 : std::max<std::int64_t>(1, call.cu_seqlens->shape[0]) - 1;
    for (const Slot& slot : attention.slots) {
        const auto view = call.tensors.find(slot.name);
        if (slot.kind != Slot::Kind::Input || view == call.tensors.end()) continue;
        return view->second.shape.size() > slot.type.shape.size() ? view->second.shape[0] : 1;
    }
    return 1;
}

}  // namespace

TensorView view_of(const forge_tensor& tensor, const std::string& name) {
    if (tensor.rank < 0 || tensor.rank > kMaxRank)
        throw InvalidArgument("argument '" + name + "': expected a rank of 0 to " + std::to_string(kMaxRank) +
                              ", got " + std::to_string(tensor.rank));
    required(tensor.shape, name.c_str());
    const auto rank = static_cast<std::size_t>(tensor.rank);
    TensorView view = dense(tensor.data, rt::dtype_of(tensor.dtype, name.c_str()), {tensor.shape, tensor.shape + rank});
    if (tensor.strides) view.strides.assign(tensor.strides, tensor.strides + rank);
    return view;
}

Call call_without_tensors(const forge_attention& attention, const forge_args& args) {
    if (args.tensor_count != attention.slots.size())
        throw InvalidArgument("tensor_count: expected " + std::to_string(attention.slots.size()) + ", got " +
                              std::to_string(args.tensor_count));
    if (args.scalar_count != attention.scalars.size())
        throw InvalidArgument("scalar_count: expected " + std::to_string(attention.scalars.size()) + ", got " +
                              std::to_string(args.scalar_count));
    Call call;
    for (std::size_t i = 0; i < args.scalar_count; ++i)
        call.scalars.emplace(attention.scalars[i], required(args.scalars, "scalars")[i]);
    if (!args.workspace && args.workspace_bytes > 0) throw InvalidArgument("workspace: expected a pointer, got NULL");
    call.workspace = args.workspace;
    call.workspace_size = args.workspace_bytes;
    call.stream = args.stream;
    call.parallel_for = threads_of(args.parallel_for, args.parallel_context);
    return call;
}

void place_slots(Call& call, const forge_attention& attention, const forge_args& args) {
    const std::int64_t sequences = sequences_of(call, attention);
    const auto view = [&](const void* data, DType type) {
        return dense(const_cast<void*>(data), type, {sequences});
    };  // NOLINT: views are untyped
    if (args.initial_slots) call.initial_slots = view(args.initial_slots, args.wide_slots ? DType::I64 : DType::I32);
    if (args.final_slots) call.final_slots = view(args.final_slots, args.wide_slots ? DType::I64 : DType::I32);
    if (args.has_initial_state) call.has_initial_state = view(args.has_initial_state, DType::Bool);
}

void place(Call& call, const Slot& slot, TensorView view) {
    auto& group = slot.kind == Slot::Kind::InitialState ? call.initial_states
                  : slot.kind == Slot::Kind::FinalState ? call.final_states
                  : slot.kind == Slot::Kind::ChunkState ? call.chunk_states
                                                        : call.tensors;
    group.emplace(slot.name, std::move(view));
}

}  // namespace forge::capi

using forge::capi::guarded;
using forge::capi::required;

namespace forge::capi {

Call call_of(const forge_attention& attention, const forge_args& args) {
    Call call = call_without_tensors(attention, args);
    for (std::size_t i = 0; i < args.tensor_count; ++i) {
        const Slot& slot = attention.slots[i];
        if (const forge_tensor& tensor = required(args.tensors, "tensors")[i]; tensor.rank != 0)
            place(call, slot, view_of(tensor, slot.name));
    }
    if (args.cu_seqlens) call.cu_seqlens = view_of(*args.cu_seqlens, "cu_seqlens");
    if (args.chunk_slots) call.chunk_slots = view_of(*args.chunk_slots, "chunk_slots");
    place_slots(call, attention, args);
    return call;
}

}  // namespace forge::capi

forge_status forge_launch(const forge_attention* attention, const forge_args* given) {
    return guarded([&] {
        required(attention, "attention");
        const forge_args args = forge::capi::known_part(given, "args");
        if (attention->layouts.launch(args)) return;
        const forge::Call call = forge::capi::call_of(*attention, args);
        if (auto prepared = attention->attention.prepare(call)) {
            attention->layouts.remember(args, std::move(prepared));
            if (attention->layouts.launch(args)) return;  // not if the workspace does not do
        }
        attention->attention(call);
    });
}

forge_status forge_workspace_bytes(const forge_attention* attention, const forge_bounds* given, size_t* bytes,
                                   size_t* alignment) {
    return guarded([&] {
        const forge_bounds bounds = forge::capi::known_part(given, "bounds");
        const forge::Attention& compiled = required(attention, "attention")->attention;
        *required(bytes, "bytes") =
            compiled.workspace_bytes(forge::Bounds{bounds.sequences, bounds.tokens, bounds.heads, bounds.packed != 0});
        *required(alignment, "alignment") = attention->options.device == "cpu" ? 64 : 256;
    });
}
