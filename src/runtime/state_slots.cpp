#include "runtime/state_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
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

/// Which slot of the pool of states before chunks the first slot of a call's own states is, where these are some of its
/// slots. (Of one slot the stride is 0.)
std::optional<std::int64_t> first_slot_in(const CallTensor& of_chunks, const CallTensor& states) {
    constexpr std::int64_t kFloat = sizeof(float);
    if (of_chunks.head != states.head ||
        !std::equal(std::begin(of_chunks.dim), std::end(of_chunks.dim), std::begin(states.dim)))
        return std::nullopt;
    const std::int64_t apart = static_cast<const char*>(states.data) - static_cast<const char*>(of_chunks.data),
                       slot = of_chunks.token * kFloat;
    if (states.sequence != 0 && states.sequence != of_chunks.token) return std::nullopt;
    if (apart == 0) return 0;
    return slot > 0 && apart % slot == 0 ? std::optional(apart / slot) : std::nullopt;
}

/// A slot that some sequence reads or writes can take no state before a chunk: another sequence may not have read it
/// yet, or write it later.
void check_checkpoints(const Callable& callable, const Arguments& call, const Bound& bound) {
    const View& slots = call.chunk_slots;
    if (!slots.is_given()) return;
    std::int64_t count = 1;
    for (int axis = 0; axis < slots.rank; ++axis) count *= slots.shape[axis];
    const View all{slots.data, &count, nullptr, 1, slots.dtype};
    List<Writer> users(bound.memory());
    const std::vector<TensorOfCall>& tensors = callable.tensors;
    for (std::size_t of_chunks = 0; of_chunks < tensors.size(); ++of_chunks) {
        if (tensors[of_chunks].kind != Kind::ChunkState || !bound.tensors[of_chunks].data) continue;
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            if (!tensors[i].is_state() || tensors[i].kind == Kind::ChunkState || !bound.tensors[i].data) continue;
            const auto first = first_slot_in(bound.tensors[of_chunks], bound.tensors[i]);
            if (!first) continue;
            users.clear();
            for (std::int64_t n = 0; n < bound.sequences; ++n)
                if (!std::binary_search(bound.skipped.begin(), bound.skipped.end(), n))
                    users.push_back({*first + slot_of(call.slots_for(tensors[i]), n), n});
            std::sort(users.begin(), users.end());
            for (std::int64_t c = 0; c < count; ++c) {
                const std::int64_t slot = element_of(all, c);
                const auto user = std::lower_bound(users.begin(), users.end(), Writer{slot, 0});
                if (user == users.end() || user->slot != slot) continue;
                refuse_argument(callable, "chunk_slots",
                                "slots that no sequence has, as states before chunks are written to the pool of the "
                                "call's own states",
                                fmt::format("slot {} for the chunk {}, which sequence {} {}", slot, c, user->sequence,
                                            tensors[i].kind == Kind::InitialState ? "reads" : "writes"));
            }
        }
    }
}

/// How many slots there are that states of every kind can be read from.
std::int64_t count_of(const Callable& callable, const Arguments& call, std::int64_t sequences) {
    if (!call.initial_slots.is_given()) return sequences;
    std::int64_t count = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < callable.tensors.size(); ++i)
        if (callable.tensors[i].kind == Kind::InitialState && call.tensors[i].is_given())
            count = std::min(count, call.tensors[i].shape[0]);
    return count;
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
                   call.chunk_slots.dtype == DType::I64,
                   count_of(callable, call, bound.sequences)};
    if (lengths == Lengths::OnDevice) return;
    if (any.is_given()) {
        skip_sequences(callable, call, bound);
        check_independence(callable, call, bound);
    }
    check_checkpoints(callable, call, bound);
}

}  // namespace forge::runtime
