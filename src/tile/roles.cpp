#include "tile/roles.h"

#include <algorithm>

#include "tile/fragment_steps.h"
#include "tile/order.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Space = ir::Layout::Space;

class Division {
  public:
    Division(const Function& fn, const std::vector<ValueId>& vectors, int output_groups) : fn_(fn), vectors_(vectors) {
        roles_.of.assign(fn.ops.size(), 0);
        std::vector<ValueId> carried, others;
        for (const ir::Result& r : fn.results) {
            if (r.role == Role::Spill) refuse(Reason::StoredForLater, ir::described(fn, r.value));
            if (r.role == Role::Before) continue;  // stored by the states' group
            (is_carried(r.role) ? carried : others).push_back(r.value);
        }
        mark(carried, Roles::kStates);
        mark(others, Roles::kOutputs);
        for (std::uint8_t& of : roles_.of)
            if ((of & Roles::kStates) != 0) of = Roles::kStates;
        roles_.output_groups = others.empty() ? 0 : output_groups;
    }

    /// Values computed in their users' loops, and views, belong to the roles that read them: nothing is stored for
    /// them.
    Roles run() {
        for (ValueId v = 0; v < fn_.size(); ++v) pass(v);
        for (ValueId v = fn_.size() - 1; v >= 0; --v) {
            if (!is_written(v)) continue;
            check(v);
            if (roles_.does(Roles::kOutputs, v)) get_operands(v);
        }
        return std::move(roles_);
    }

  private:
    /// The role that holds a state's fragment copies it into the operand for the outputs.
    void pass(ValueId v) {
        const Op& op = fn_.op(v);
        if (op.code != Opcode::Copy || op.layout->space != Space::Operand ||
            roles_.of[static_cast<std::size_t>(v)] != Roles::kOutputs)
            return;
        const ValueId from = op.args[0];
        const bool state = fn_.op(from).code == Opcode::Param || roles_.does(Roles::kStates, from);
        if (!is_fragment(fn_.op(from).layout->space) || !state) return;
        roles_.of[static_cast<std::size_t>(v)] = Roles::kStates;
        roles_.passed.push_back({v});
    }

    void mark(const std::vector<ValueId>& roots, std::uint8_t role) {
        const auto needed = ir::needed_for(fn_, roots);
        for (std::size_t v = 0; v < needed.size(); ++v)
            if (needed[v]) roles_.of[v] |= role;
    }

    [[nodiscard]] bool is_vector(ValueId v) const {
        return std::find(vectors_.begin(), vectors_.end(), v) != vectors_.end();
    }
    /// Whether there is text of its own for the value in a group's loop.
    [[nodiscard]] bool is_written(ValueId v) const {
        const Op& op = fn_.op(v);
        return op.code != Opcode::Param && !ir::is_view(op.code) && op.layout->space != Space::Reg && !is_vector(v);
    }

    /// Device functions that have shared memory of their own cannot be called by two groups at a time.
    void check(ValueId v) const {
        const Op& op = fn_.op(v);
        if (roles_.output_groups == 0) return;
        const bool simple = ir::is_matmul(op.code) || ir::is_elementwise(op.code) || op.code == Opcode::Copy ||
                            op.code == Opcode::Constant || op.code == Opcode::Identity;
        if (!simple) refuse(Reason::OneGroupAtATime, ir::described(fn_, v));
        for (const ValueId t : tiles_read_by(fn_, v)) check_parameter(t);
    }
    void check_parameter(ValueId t) const {
        const Op& op = fn_.op(t);
        if (op.code != Opcode::Param) return;
        const bool copied = op.attrs.role == Role::Shifted && op.layout->space == Space::Operand;
        const bool staged = op.attrs.role == Role::Input || op.attrs.role == Role::Spill || copied || is_vector(t);
        const bool fixed = op.attrs.role == Role::Scalar || (op.attrs.role == Role::Head && op.type.rank() == 0);
        if (!staged && !fixed && !is_fragment(op.layout->space)) refuse(Reason::SharedParameter, ir::described(fn_, t));
    }

    /// What an operation of the outputs' groups reads must be theirs, arrive with the chunk, or be passed.
    void get_operands(ValueId v) {
        for (const ValueId t : tiles_read_by(fn_, v)) {
            const Op& op = fn_.op(t);
            const bool state = op.code == Opcode::Param && is_fragment(op.layout->space);
            if (!state &&
                (op.code == Opcode::Param || is_vector(t) || roles_.does(Roles::kOutputs, t) || roles_.find(t)))
                continue;
            const bool loaded = op.code == Opcode::Copy && fn_.op(op.args[0]).code == Opcode::Param &&
                                !is_fragment(fn_.op(op.args[0]).layout->space);
            if (!loaded || !is_fragment(op.layout->space)) refuse(Reason::SharedValue, ir::described(fn_, t));
            roles_.of[static_cast<std::size_t>(t)] |= Roles::kOutputs;  // each loads it for itself
        }
    }

    const Function& fn_;
    const std::vector<ValueId>& vectors_;
    Roles roles_;
};

}  // namespace

Roles roles_of(const Function& fn, const std::vector<ValueId>& vectors, int output_groups) {
    return Division(fn, vectors, output_groups).run();
}

}  // namespace forge::tile
