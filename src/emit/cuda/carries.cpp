#include "emit/cuda/carries.h"

#include <optional>

#include "emit/kernel.h"
#include "emit/transfers.h"
#include "graph/summary.h"
#include "tile/fragments.h"

namespace forge::emit {
namespace {

using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using tile::size_of;

/// s' = m s + u
struct Carry {
    ValueId state, transition, input;
};

std::optional<Carry> carry_of(const ir::Function& fn) {
    std::optional<Carry> found;
    for (const ir::Result& r : fn.results) {
        if (r.role != Role::State) continue;
        const Op& op = fn.op(r.value);
        if (found || op.code != Opcode::MatmulAdd) return {};
        found = {op.args[1], op.args[0], op.args[2]};
    }
    const auto is = [&](ValueId v, Role role) { return fn.op(v).code == Opcode::Param && fn.op(v).attrs.role == role; };
    if (!found || !is(found->state, Role::State) || !is(found->transition, Role::Spill) ||
        !is(found->input, Role::Spill))
        return {};
    return found;
}

/// What the device code is told of the sizes.
struct CarryLayout {
    static constexpr std::int64_t kMost = 227 * 1024 / 4,  ///< floats that a block may have on compute capability 9.0
        kMostStages = 3, kFours = 4, kRows = 16, kColumns = 8;  // of copies, of products
    std::int64_t rows, columns, stride;
    const plan::SpillSlot &input, &transition;
    std::int64_t work;  ///< where it begins, behind the state

    CarryLayout(const plan::Plan& plan, const ir::Function& fn, const Carry& carry)
        : rows(size_of(fn.op(carry.state).type, 0)),
          columns(size_of(fn.op(carry.state).type, 1)),
          stride(fn.op(carry.state).layout->strides.at(0)),
          input(slot(plan, fn, carry.input)),
          transition(slot(plan, fn, carry.transition)),
          work((fn.op(carry.state).layout->offset + rows * stride + kFours - 1) / kFours * kFours) {}

    static const plan::SpillSlot& slot(const plan::Plan& plan, const ir::Function& fn, ValueId v) {
        return plan.spills[static_cast<std::size_t>(plan.spill(fn.op(v).attrs.name))];
    }
    [[nodiscard]] std::int64_t floats(std::int64_t stages) const {
        return work + rows * stride + stages * (rows * transition.strides.at(0) + 2);
    }
    [[nodiscard]] std::int64_t stages() const {
        std::int64_t stages = kMostStages;
        while (stages > 0 && floats(stages) > kMost) --stages;
        return stages;
    }
    [[nodiscard]] bool fits() const {
        const auto rows_of_memory = [](const plan::SpillSlot& s) {
            return s.strides.size() == 2 && s.strides[1] == 1 && s.strides[0] % kFours == 0 && s.floats % kFours == 0;
        };
        return rows % kRows == 0 && columns % kColumns == 0 && rows_of_memory(input) && rows_of_memory(transition) &&
               stages() > 1;
    }
};

std::optional<Carry> columns_of(const plan::Plan& plan, const plan::Kernel& kernel) {
    if (plan.schedule.engine != plan::Engine::WarpGroups || !plan.schedule.transition_columns ||
        kernel.graph.loop != plan::Loop::Carries)
        return {};
    const std::optional<Carry> carry = carry_of(kernel.tiles.fn);
    return carry && CarryLayout(plan, kernel.tiles.fn, *carry).fits() ? carry : std::nullopt;
}

}  // namespace

bool carries_columns(const plan::Plan& plan, const plan::Kernel& kernel) {
    return columns_of(plan, kernel).has_value();
}

std::int64_t carry_floats(const plan::Plan& plan, const plan::Kernel& kernel) {
    const CarryLayout layout(plan, kernel.tiles.fn, columns_of(plan, kernel).value());
    return layout.floats(layout.stages());
}

void write_carries(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel) {
    Context c(out, dialect, plan, kernel);
    Transfers transfers(c);
    const Carry carry = columns_of(plan, kernel).value();
    const CarryLayout layout(plan, c.fn, carry);
    const std::string state = c.fn.op(carry.state).attrs.name, kept = graph::carry_spill(state);
    ::forge::kernel::Kernel time{kernel_symbol(kernel)};
    time.publishes = dialect.publishes, time.overlaps = dialect.overlaps;
    out.begin_kernel(std::move(time),
                     fmt::format("FORGE_KERNEL void {}({})", kernel_symbol(kernel), dialect.arguments));
    for (const std::string& line : dialect.prologue) out.put(line);
    if (dialect.overlaps) out.add({::forge::kernel::Kind::WaitKernel});
    out.put("const Task at = carry_task(call, task);");
    out.put(dialect.idle);
    out.line("float* const {} = {};  // {}", c.name(carry.state), c.place(c.fn.op(carry.state).layout->offset),
             forge::to_string(c.fn.op(carry.state).type.shape));
    transfers.load_initial_state(carry.state);

    ::forge::kernel::Accesses reads = c.memory(carry.state), writes = c.memory(carry.state);
    for (const ValueId v : {carry.input, carry.transition})
        ::forge::kernel::append(reads, Transfers::spilled(c.fn.op(v).attrs.name));
    if (plan.schedule.forgetting) ::forge::kernel::append(reads, Transfers::spilled(plan::kForgetsSpill));
    ::forge::kernel::append(writes, Transfers::spilled(kept));
    ::forge::kernel::append(writes, Context::floats_at(layout.work, layout.floats(layout.stages()) - layout.work));
    c.next("carry " + c.name(carry.state), std::move(reads), std::move(writes));
    const auto first = [&](const std::string& spill) { return transfers.spill_pointer(spill, "at.block"); };
    out.line("const SegmentSpills spills{{{}, {}, {}, {}}};",
             plan.schedule.forgetting ? first(plan::kForgetsSpill) : "nullptr", first(c.fn.op(carry.input).attrs.name),
             first(c.fn.op(carry.transition).attrs.name), first(kept));
    out.line("CarriedColumns<{}, {}, {}, {}, {}, {}, {}, {}, {}>(call, at, spills, {}, {}).go_through_segments();",
             layout.rows, layout.columns, layout.stride, layout.input.strides[0], layout.input.floats,
             layout.transition.strides[0], layout.transition.floats, layout.stages(),
             c.needs_float(carry.state) ? "Precision::Float" : "Precision::Tf32", c.name(carry.state),
             c.place(layout.work));
    out.end();
}

}  // namespace forge::emit
