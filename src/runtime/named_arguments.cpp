#include "runtime/named_arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace forge::runtime {
namespace {

using Kind = TensorKind;
using Views = std::map<std::string, TensorView>;

void refuse_unknown(const Callable& callable, const Call& call) {
    const auto check = [&](const Views& given, const char* prefix, auto wanted) {
        for (const auto& [name, view] : given) {
            std::vector<std::string> known;
            for (const TensorOfCall& tensor : callable.tensors)
                if (wanted(tensor)) known.push_back(tensor.name);
            if (std::find(known.begin(), known.end(), name) == known.end())
                refuse_argument(callable, prefix + name, fmt::format("one of {}", fmt::join(known, ", ")),
                                "an unknown name");
        }
    };
    check(call.tensors, "", [](const TensorOfCall& t) { return !t.is_state(); });
    check(call.initial_states, "initial_states.", [](const TensorOfCall& t) { return t.kind == Kind::InitialState; });
    check(call.final_states, "final_states.", [](const TensorOfCall& t) { return t.kind == Kind::FinalState; });
    const auto has_chunk_state = [](const TensorOfCall& t) { return t.kind == Kind::ChunkState; };
    if (!call.chunk_states.empty() && std::none_of(callable.tensors.begin(), callable.tensors.end(), has_chunk_state))
        refuse_argument(callable, "chunk_states", "a variant that was compiled with chunk_states", "one without");
    check(call.chunk_states, "chunk_states.", has_chunk_state);
    for (const auto& [name, value] : call.scalars)
        if (std::find(callable.scalars.begin(), callable.scalars.end(), name) == callable.scalars.end())
            refuse_argument(callable, name, fmt::format("one of the scalars {}", fmt::join(callable.scalars, ", ")),
                            "an unknown name");
}

View view_of(const Callable& callable, const std::string& name, const TensorView& tensor, bool is_dense = false) {
    if (!is_dense && tensor.strides.size() != tensor.shape.size())
        refuse_argument(callable, name, "one stride per axis", fmt::format("{} strides", tensor.strides.size()));
    return {tensor.data, tensor.shape.data(), is_dense ? nullptr : tensor.strides.data(),
            static_cast<int>(tensor.shape.size()), tensor.dtype};
}

/// The caller's threads, which take a function of C++.
void run_on(void* context, std::int64_t tasks, std::int32_t workers,
            void (*body)(void* data, std::int64_t task, std::int32_t worker), void* data) {
    (*static_cast<const ParallelFor*>(context))(
        tasks, workers, [body, data](std::int64_t task, int worker) { body(data, task, worker); });
}

}  // namespace

NamedArguments::NamedArguments(const Callable& callable, const Call& call) {
    refuse_unknown(callable, call);
    for (const TensorOfCall& tensor : callable.tensors) {
        const Views& group = tensor.kind == Kind::InitialState ? call.initial_states
                             : tensor.kind == Kind::FinalState ? call.final_states
                             : tensor.kind == Kind::ChunkState ? call.chunk_states
                                                               : call.tensors;
        const auto given = group.find(tensor.name);
        tensors_.push_back(given == group.end() ? View() : view_of(callable, tensor.argument(), given->second));
    }
    for (const std::string& name : callable.scalars) {
        const auto given = call.scalars.find(name);
        if (given == call.scalars.end()) refuse_argument(callable, name, "a number", "nothing");
        scalars_.push_back(given->second);
    }
    const auto place = [&](View& view, const char* name, const std::optional<TensorView>& given) {
        if (given) view = view_of(callable, name, *given, given->strides.empty());
    };
    place(arguments_.cu_seqlens, "cu_seqlens", call.cu_seqlens);
    place(arguments_.initial_slots, "initial_slots", call.initial_slots);
    place(arguments_.final_slots, "final_slots", call.final_slots);
    place(arguments_.has_initial_state, "has_initial_state", call.has_initial_state);
    place(arguments_.chunk_slots, "chunk_slots", call.chunk_slots);
    arguments_.tensors = tensors_.data(), arguments_.scalars = scalars_.data();
    arguments_.workspace = call.workspace, arguments_.workspace_bytes = call.workspace_size;
    arguments_.stream = call.stream;
    if (call.parallel_for)
        arguments_.threads = {run_on, const_cast<ParallelFor*>(&call.parallel_for)};  // NOLINT: C has one kind
}

}  // namespace forge::runtime
