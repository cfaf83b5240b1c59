#include "emit/last_rows.h"

#include "emit/names.h"
#include "forge/error.h"
#include "tile/layout.h"

namespace forge::emit {
namespace {

/// Of a type's axes from `first` on.
std::vector<std::int64_t> sizes_of(const plan::Plan& plan, const ir::Type& type, std::size_t first) {
    std::vector<std::int64_t> sizes;
    for (std::size_t axis = first; axis < type.shape.size(); ++axis) {
        const Dim& d = type.shape[axis];
        sizes.push_back(d.is_constant() ? d.factor : d.factor * plan.sizes.at(d.symbol));
    }
    return sizes;
}

/// {rows, axes, {sizes}} of an input's token.
std::string token_shape(const plan::Plan& plan, const ir::Type& type) {
    const std::vector<std::int64_t> sizes = sizes_of(plan, type, 2);
    return fmt::format("{{{}, {}, {{{}}}}}", type.shape[0].factor, sizes.size(), fmt::join(sizes, ", "));
}

void write_late_state(Writer& out, const plan::Plan& plan, const plan::LateState& state) {
    const plan::SpillSlot& slot = plan.spills[static_cast<std::size_t>(state.spill)];
    const std::vector<std::int64_t> sizes = sizes_of(plan, slot.type, 0);
    out.line("if (call.in_place) store_late_state(call, {}, at, call.spills[{}] + {} * {}, {{{}, {{{}}}, {{{}}}}});",
             state.final, state.spill, kSequenceBlock, slot.floats, sizes.size(), fmt::join(sizes, ", "),
             fmt::join(slot.strides, ", "));
}

std::string what_is_stored(const plan::Plan& plan) {
    if (plan.late_states.empty()) return "The last rows of inputs";
    return plan.last_rows.empty() ? "States in place" : "The last rows of inputs, and states in place";
}

}  // namespace

int rows_before(const plan::Plan& plan, int input) {
    for (const plan::LastRowSlots& slots : plan.last_rows)
        if (slots.input == input) return slots.initial;
    throw InternalError("emit: an input that nothing looks back to is shifted");
}

std::string last_rows_symbol(const plan::Plan& plan) { return "forge_" + plan.definition.name + "_last_rows"; }

void write_last_rows(Writer& out, const Dialect& dialect, const plan::Plan& plan) {
    if (!plan.has_end()) return;
    out.put("");
    out.line("// {}, for the next call.", what_is_stored(plan));
    out.open(fmt::format("FORGE_KERNEL void {}({})", last_rows_symbol(plan), dialect.arguments));
    for (const std::string& line : dialect.prologue) out.put(line);
    out.line("const Task at = end_task(call, task);");
    for (const plan::LastRowSlots& slots : plan.last_rows) {
        const plan::TensorSlot& input = plan.tensors[static_cast<std::size_t>(slots.input)];
        out.line("store_last_rows<{}>(call, {}, {}, {}, at, {}, {});", storage_type(input.type.dtype), slots.input,
                 slots.initial, slots.final, token_shape(plan, input.type), float_literal(input.pad));
    }
    for (const plan::LateState& state : plan.late_states) write_late_state(out, plan, state);
    out.close();
}

}  // namespace forge::emit
