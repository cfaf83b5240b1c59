#include "runtime/state_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "runtime/arguments.h"

namespace forge::runtime {
namespace {

using device::CallTensor;
using plan::Plan;
using plan::TensorSlot;
using Kind = TensorSlot::Kind;

void check_per_sequence(const Plan& plan, const Bound& bound, const std::optional<TensorView>& view, const char* name,
                        std::initializer_list<DType> types) {
    if (!view) return;
    if (std::find(types.begin(), types.end(), view->dtype) == types.end())
        refuse_argument(plan, name, types.size() > 1 ? "i32 or i64" : "bool", to_string(view->dtype));
    if (view->shape != std::vector<std::int64_t>{bound.sequences})
        refuse_argument(plan, name, fmt::format("shape [{}]", bound.sequences), shown(view->shape));
    if (!view->data && bound.sequences > 0) refuse_argument(plan, name, "a pointer", "null");
    if (view->shape[0] > 1 && view->strides != std::vector<std::int64_t>{1})
        refuse_argument(plan, name, "a dense array", fmt::format("stride {}", view->strides[0]));
}

/// Sequences with a negative slot have no tokens for the kernels.
void skip_sequences(const Plan& plan, const Call& call, Bound& bound) {
    for (std::int64_t n = 0; n < bound.sequences; ++n) {
        bool skipped = false;
        for (const TensorSlot& slot : plan.tensors) {
            if (!is_state(slot) || slot.kind == Kind::ChunkState || !slots_for(call, slot)) continue;
            const TensorView* states = find_argument(plan, call, slot);
            const std::int64_t at = element_of(*slots_for(call, slot), n);
            skipped = skipped || at < 0;
            if (states && at >= states->shape[0])
                refuse_argument(plan, slot.kind == Kind::InitialState ? "initial_slots" : "final_slots",
                                fmt::format("slots below {}", states->shape[0]), std::to_string(at));
        }
        if (!skipped) continue;
        bound.skipped.push_back(n);
        bound.skipped_tokens.push_back(std::exchange(bound.tokens[static_cast<std::size_t>(n)], 0));
    }
}

/// Without slots sequence n has slot n.
std::int64_t slot_of(const std::optional<TensorView>& slots, std::int64_t n) {
    return slots ? element_of(*slots, n) : n;
}

bool are_same_memory(const CallTensor& a, const CallTensor& b) {
    return a.data == b.data && a.sequence == b.sequence && a.head == b.head &&
           std::equal(std::begin(a.dim), std::end(a.dim), std::begin(b.dim));
}

/// What a call does with the states of its plan.
struct Use {
    bool written = false;   ///< some final state is given
    bool in_place = false;  ///< … and lies in the pool that the initial one is read from
};

Use use_of(const Plan& plan, const Bound& bound) {
    Use use;
    for (std::size_t to = 0; to < plan.tensors.size(); ++to) {
        if (plan.tensors[to].kind != Kind::FinalState || !bound.tensors[to].data) continue;
        use.written = true;
        for (std::size_t from = 0; from < plan.tensors.size(); ++from)
            if (plan.tensors[from].kind == Kind::InitialState && plan.tensors[from].name == plan.tensors[to].name)
                use.in_place = use.in_place || are_same_memory(bound.tensors[from], bound.tensors[to]);
    }
    return use;
}

/// Sequences run at once, in any order: no slot may be written by two of them, nor written by one and read by another.
void check_independence(const Plan& plan, const Call& call, const Bound& bound) {
    const Use use = use_of(plan, bound);
    if (!use.written) return;
    std::unordered_map<std::int64_t, std::int64_t> writer_of;
    const auto is_skipped = [&](std::int64_t n) {
        return std::binary_search(bound.skipped.begin(), bound.skipped.end(), n);
    };
    for (std::int64_t n = 0; n < bound.sequences; ++n) {
        if (is_skipped(n)) continue;
        const std::int64_t slot = slot_of(call.final_slots, n);
        const auto [writer, is_first] = writer_of.emplace(slot, n);
        if (!is_first)
            refuse_argument(plan, "final_slots", "a slot of its own for every sequence",
                            fmt::format("slot {} for the sequences {} and {}; a sequence that is to be skipped has "
                                        "slot -1",
                                        slot, writer->second, n));
    }
    if (!use.in_place) return;
    for (std::int64_t n = 0; n < bound.sequences; ++n) {
        if (is_skipped(n) || (bound.slots.has_initial && !bound.slots.has_initial[n])) continue;
        const auto writer = writer_of.find(slot_of(call.initial_slots, n));
        if (writer != writer_of.end() && writer->second != n)
            refuse_argument(plan, "final_slots",
                            "slots that no other sequence reads, as the states are read and written in one pool",
                            fmt::format("slot {}, which sequence {} reads and sequence {} writes", writer->first, n,
                                        writer->second));
    }
}

}  // namespace

void bind_slots(const Plan& plan, const Call& call, Lengths lengths, Bound& bound) {
    check_per_sequence(plan, bound, call.initial_slots, "initial_slots", {DType::I32, DType::I64});
    check_per_sequence(plan, bound, call.final_slots, "final_slots", {DType::I32, DType::I64});
    check_per_sequence(plan, bound, call.has_initial_state, "has_initial_state", {DType::Bool});
    if (call.initial_slots && call.final_slots && call.initial_slots->dtype != call.final_slots->dtype)
        refuse_argument(plan, "final_slots", to_string(call.initial_slots->dtype) + " as initial_slots",
                        to_string(call.final_slots->dtype));
    const auto data = [](const std::optional<TensorView>& view) { return view ? view->data : nullptr; };
    const std::optional<TensorView>& any = call.initial_slots ? call.initial_slots : call.final_slots;
    bound.slots = {data(call.initial_slots), data(call.final_slots),
                   static_cast<const unsigned char*>(data(call.has_initial_state)), any && any->dtype == DType::I64};
    if (lengths == Lengths::OnDevice || !any) return;
    skip_sequences(plan, call, bound);
    check_independence(plan, call, bound);
}

}  // namespace forge::runtime
