#include "runtime/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "support/checked.h"

namespace forge::runtime {

using plan::Plan;
using plan::TensorSlot;
using Kind = TensorSlot::Kind;

namespace {

std::int64_t magnitude(std::int64_t stride) {
    return stride == std::numeric_limits<std::int64_t>::min() ? support::Checked::kMost : std::abs(stride);
}

}  // namespace

void refuse_argument(const Plan& plan, const std::string& argument, const std::string& expected,
                     const std::string& got) {
    throw RuntimeError(
        fmt::format("{}: argument '{}': expected {}, got {}", plan.definition.name, argument, expected, got));
}

std::string shown(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

bool is_state(const TensorSlot& slot) {
    return slot.kind == Kind::InitialState || slot.kind == Kind::FinalState || slot.kind == Kind::ChunkState;
}

bool has_tokens(const TensorSlot& slot) { return slot.kind == Kind::Input || slot.kind == Kind::Output; }

std::string argument_name(const TensorSlot& slot) {
    if (slot.kind == Kind::InitialState) return "initial_states." + slot.name;
    if (slot.kind == Kind::FinalState) return "final_states." + slot.name;
    if (slot.kind == Kind::ChunkState) return "chunk_states." + slot.name;
    return slot.name;
}

const TensorView* find_argument(const Plan& plan, const Call& call, const TensorSlot& slot) {
    const auto& from = slot.kind == Kind::InitialState ? call.initial_states
                       : slot.kind == Kind::FinalState ? call.final_states
                       : slot.kind == Kind::ChunkState ? call.chunk_states
                                                       : call.tensors;
    const auto it = from.find(slot.name);
    if (it != from.end()) return &it->second;
    if (!is_state(slot)) refuse_argument(plan, slot.name, fmt::format("a tensor {}", to_string(slot.type)), "nothing");
    return nullptr;
}

const std::optional<TensorView>& slots_for(const Call& call, const TensorSlot& slot) {
    return slot.kind == Kind::InitialState ? call.initial_slots : call.final_slots;
}

std::int64_t element_of(const TensorView& integers, std::int64_t n) {
    const std::int64_t at = n * (integers.strides.empty() ? 1 : integers.strides[0]);
    return integers.dtype == DType::I32 ? static_cast<const std::int32_t*>(integers.data)[at]
                                        : static_cast<const std::int64_t*>(integers.data)[at];
}

void refuse_unknown(const Plan& plan, const Call& call) {
    const auto check = [&](const std::map<std::string, TensorView>& given, const char* prefix, auto wanted) {
        for (const auto& [name, view] : given) {
            std::vector<std::string> known;
            for (const TensorSlot& s : plan.tensors)
                if (wanted(s)) known.push_back(s.name);
            if (std::find(known.begin(), known.end(), name) == known.end())
                refuse_argument(plan, prefix + name, fmt::format("one of {}", fmt::join(known, ", ")),
                                "an unknown name");
        }
    };
    check(call.tensors, "", [](const TensorSlot& s) { return !is_state(s); });
    check(call.initial_states, "initial_states.", [](const TensorSlot& s) { return s.kind == Kind::InitialState; });
    check(call.final_states, "final_states.", [](const TensorSlot& s) { return s.kind == Kind::FinalState; });
    const auto has_chunk_state = [](const TensorSlot& s) { return s.kind == Kind::ChunkState; };
    if (!call.chunk_states.empty() && std::none_of(plan.tensors.begin(), plan.tensors.end(), has_chunk_state))
        refuse_argument(plan, "chunk_states", "a variant that was compiled with chunk_states", "one without");
    check(call.chunk_states, "chunk_states.", has_chunk_state);
    for (const auto& [name, value] : call.scalars)
        if (std::find(plan.scalars.begin(), plan.scalars.end(), name) == plan.scalars.end())
            refuse_argument(plan, name, fmt::format("one of the scalars {}", fmt::join(plan.scalars, ", ")),
                            "an unknown name");
}

void refuse_extremes(const Plan& plan, const Call& call) {
    const auto check = [&](const std::string& name, const TensorView& view) {
        if (std::any_of(view.shape.begin(), view.shape.end(), [](auto n) { return n < 0; }))
            refuse_argument(plan, name, "sizes of at least 0", shown(view.shape));
        const auto bytes = static_cast<std::int64_t>(size_in_bytes(view.dtype));
        support::Checked elements = bytes, extent = bytes;
        for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
            elements = elements * std::max<std::int64_t>(1, view.shape[axis]);
            if (axis < view.strides.size() && view.shape[axis] > 1)
                extent = extent + support::Checked(view.shape[axis] - 1) * magnitude(view.strides[axis]) * bytes;
        }
        if (!elements.at_most()) refuse_argument(plan, name, "fewer than 2^63 bytes", shown(view.shape));
        if (!extent.at_most())
            refuse_argument(plan, name, "strides within 2^63 bytes",
                            fmt::format("{} of {}", shown(view.strides), shown(view.shape)));
        if (reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(bytes) != 0)  // NOLINT
            refuse_argument(plan, name, fmt::format("an address that is a multiple of {} bytes", bytes),
                            fmt::format("{}", static_cast<const void*>(view.data)));
    };
    const auto check_all = [&](const std::map<std::string, TensorView>& group, const char* prefix) {
        for (const auto& [name, view] : group) check(prefix + name, view);
    };
    check_all(call.tensors, ""), check_all(call.initial_states, "initial_states."),
        check_all(call.final_states, "final_states."), check_all(call.chunk_states, "chunk_states.");
    if (call.cu_seqlens) check("cu_seqlens", *call.cu_seqlens);
    if (call.initial_slots) check("initial_slots", *call.initial_slots);
    if (call.final_slots) check("final_slots", *call.final_slots);
    if (call.has_initial_state) check("has_initial_state", *call.has_initial_state);
}

}  // namespace forge::runtime
