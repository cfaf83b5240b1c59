#include "emit/last_rows.h"

#include "emit/names.h"
#include "forge/error.h"
#include "tile/layout.h"

namespace forge::emit {
namespace {

/// {rows, axes, {sizes}} of an input's token.
std::string token_shape(const plan::Plan& plan, const ir::Type& type) {
    std::vector<std::int64_t> sizes;
    for (std::size_t axis = 2; axis < type.shape.size(); ++axis) {
        const Dim& d = type.shape[axis];
        sizes.push_back(d.is_constant() ? d.factor : d.factor * plan.sizes.at(d.symbol));
    }
    return fmt::format("{{{}, {}, {{{}}}}}", type.shape[0].factor, sizes.size(), fmt::join(sizes, ", "));
}

}  // namespace

int rows_before(const plan::Plan& plan, int input) {
    for (const plan::LastRowSlots& slots : plan.last_rows)
        if (slots.input == input) return slots.initial;
    throw InternalError("emit: an input that nothing looks back to is shifted");
}

std::string last_rows_symbol(const plan::Plan& plan) { return "forge_" + plan.definition.name + "_last_rows"; }

void write_last_rows(Writer& out, const Dialect& dialect, const plan::Plan& plan) {
    if (plan.last_rows.empty()) return;
    out.put("");
    out.line("// The last rows of inputs, for the next call.");
    out.open(fmt::format("FORGE_KERNEL void {}({})", last_rows_symbol(plan), dialect.arguments));
    for (const std::string& line : dialect.prologue) out.put(line);
    out.line("const Task at = end_task(call, task);");
    for (const plan::LastRowSlots& slots : plan.last_rows) {
        const plan::TensorSlot& input = plan.tensors[static_cast<std::size_t>(slots.input)];
        out.line("store_last_rows<{}>(call, {}, {}, {}, at, {}, {});", storage_type(input.type.dtype), slots.input,
                 slots.initial, slots.final, token_shape(plan, input.type), float_literal(input.pad));
    }
    out.close();
}

}  // namespace forge::emit
