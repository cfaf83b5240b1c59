#include "runtime/state_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace forge::runtime {
namespace {

using device::CallTensor;
using Kind = TensorKind;

void check_per_sequence(const Callable& callable, const Bound& bound, const View& view, const char* name,
                        std::initializer_list<DType> types) {
    if (!view.is_given()) return;
    if (std::find(types.begin(), types.end(), view.dtype) == types.end())
        refuse_argument(callable, name, types.size() > 1 ? "i32 or i64" : "bool", to_string(view.dtype));
    if (view.rank != 1 || view.shape[0] != bound.sequences)
        refuse_argument(callable, name, fmt::format("shape [{}]", bound.sequences), shown(view));
    if (!view.data && bound.sequences > 0) refuse_argument(callable, name, "a pointer", "null");
    if (view.shape[0] > 1 && view.stride(0) != 1)
        refuse_argument(callable, name, "a dense array", fmt::format("stride {}", view.stride(0)));
}

/// Sequences with a negative slot have no tokens for the kernels.
void skip_sequences(const Callable& callable, const Arguments& call, Bound& bound) {
    bound.skipped.reserve(bound.tokens.size()), bound.skipped_tokens.reserve(bound.tokens.size());
    for (std::int64_t n = 0; n < bound.sequences; ++n) {
        bool skipped = false;
        for (std::size_t i = 0; i < callable.tensors.size(); ++i) {
            const TensorOfCall& tensor = callable.tensors[i];
            if (!tensor.is_state() || tensor.kind == Kind::ChunkState || !call.slots_for(tensor).is_given()) continue;
            const std::int64_t at = element_of(call.slots_for(tensor), n);
            skipped = skipped || at < 0;
            if (call.tensors[i].is_given() && at >= call.tensors[i].shape[0])
                refuse_argument(callable, tensor.kind == Kind::InitialState ? "initial_slots" : "final_slots",
                                fmt::format("slots below {}", call.tensors[i].shape[0]), std::to_string(at));
        }
        if (!skipped) continue;
        bound.skipped.push_back(n);
        bound.skipped_tokens.push_back(std::exchange(bound.tokens[static_cast<std::size_t>(n)], 0));
    }
}

/// Without slots sequence n has slot n.
std::int64_t slot_of(const View& slots, std::int64_t n) { return slots.is_given() ? element_of(slots, n) : n; }

bool are_same_memory(const CallTensor& a, const CallTensor& b) {
    return a.data == b.data && a.sequence == b.sequence && a.head == b.head &&
           std::equal(std::begin(a.dim), std::end(a.dim), std::begin(b.dim));
}

/// What a call does with the states of its plan.
struct Use {
    bool written = false;   ///< some final state is given
    bool in_place = false;  ///< … and lies in the pool that the initial one is read from
};

Use use_of(const Callable& callable, const Bound& bound) {
    Use use;
    const std::vector<TensorOfCall>& tensors = callable.tensors;
    for (std::size_t to = 0; to < tensors.size(); ++to) {
        if (tensors[to].kind != Kind::FinalState || !bound.tensors[to].data) continue;
        use.written = true;
        for (std::size_t from = 0; from < tensors.size(); ++from)
            if (tensors[from].kind == Kind::InitialState && tensors[from].name == tensors[to].name)
                use.in_place = use.in_place || are_same_memory(bound.tensors[from], bound.tensors[to]);
    }
    return use;
}

/// Which sequence writes a slot.
struct Writer {
    std::int64_t slot, sequence;
    friend auto operator<=>(const Writer&, const Writer&) = default;
};

/// Sequences run at once, in any order: no slot may be written by two of them, nor written by one and read by another.
void check_independence(const Callable& callable, const Arguments& call, const Bound& bound) {
    const Use use = use_of(callable, bound);
    if (!use.written) return;
    const auto is_skipped = [&](std::int64_t n) {
        return std::binary_search(bound.skipped.begin(), bound.skipped.end(), n);
    };
    List<Writer> writers(bound.memory());
    writers.reserve(static_cast<std::size_t>(bound.sequences));
    for (std::int64_t n = 0; n < bound.sequences; ++n)
        if (!is_skipped(n)) writers.push_back({slot_of(call.final_slots, n), n});
    std::sort(writers.begin(), writers.end());
    const auto twice = std::adjacent_find(writers.begin(), writers.end(),
                                          [](const Writer& a, const Writer& b) { return a.slot == b.slot; });
    if (twice != writers.end())
        refuse_argument(callable, "final_slots", "a slot of its own for every sequence",
                        fmt::format("slot {} for the sequences {} and {}; a sequence that is to be skipped has "
                                    "slot -1",
                                    twice->slot, twice->sequence, twice[1].sequence));
    if (!use.in_place) return;
    for (std::int64_t n = 0; n < bound.sequences; ++n) {
        if (is_skipped(n) || (bound.slots.has_initial && !bound.slots.has_initial[n])) continue;
        const std::int64_t slot = slot_of(call.initial_slots, n);
        const auto writer = std::lower_bound(writers.begin(), writers.end(), Writer{slot, 0});
        if (writer != writers.end() && writer->slot == slot && writer->sequence != n)
            refuse_argument(
                callable, "final_slots",
                "slots that no other sequence reads, as the states are read and written in one pool",
                fmt::format("slot {}, which sequence {} reads and sequence {} writes", slot, n, writer->sequence));
    }
}

}  // namespace

void bind_slots(const Callable& callable, const Arguments& call, Lengths lengths, Bound& bound) {
    check_per_sequence(callable, bound, call.initial_slots, "initial_slots", {DType::I32, DType::I64});
    check_per_sequence(callable, bound, call.final_slots, "final_slots", {DType::I32, DType::I64});
    check_per_sequence(callable, bound, call.has_initial_state, "has_initial_state", {DType::Bool});
    const bool both = call.initial_slots.is_given() && call.final_slots.is_given();
    if (both && call.initial_slots.dtype != call.final_slots.dtype)
        refuse_argument(callable, "final_slots", to_string(call.initial_slots.dtype) + " as initial_slots",
                        to_string(call.final_slots.dtype));
    const View& any = call.initial_slots.is_given() ? call.initial_slots : call.final_slots;
    bound.slots = {call.initial_slots.data,
                   call.final_slots.data,
                   static_cast<const unsigned char*>(call.has_initial_state.data),
                   any.is_given() && any.dtype == DType::I64,
                   call.chunk_slots.data,
                   call.chunk_slots.dtype == DType::I64};
    if (lengths == Lengths::OnDevice || !any.is_given()) return;
    skip_sequences(callable, call, bound);
    check_independence(callable, call, bound);
}

}  // namespace forge::runtime
