#include "graph/affine.h"

#include <algorithm>
#include <numeric>

#include "ir/infer.h"

namespace forge::graph {

using ir::Function;
using ir::Linear;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

bool is_state(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::State; }

std::optional<std::vector<std::size_t>> linear_operands(const Op& op) {
    switch (ir::linear(op.code)) {
        case Linear::Sum:
        case Linear::Difference:
        case Linear::Product:
        case Linear::Contraction:
        case Linear::Weighted:
            return {{0, 1}};
        case Linear::Selected:
            return {{1, 2}};
        case Linear::Second:
            return {{1}};
        case Linear::Accumulated:
        case Linear::Subtracted:
            return {{0, 1, 2}};
        case Linear::Same:
        case Linear::Rearranged:
        case Linear::Negated:
        case Linear::Quotient:
        case Linear::Summed:
        case Linear::Masked:
            return {{0}};
        case Linear::Joined: {
            std::vector<std::size_t> all(op.args.size());
            std::iota(all.begin(), all.end(), std::size_t{0});
            return all;
        }
        case Linear::Opaque:
            return std::nullopt;
    }
    return std::nullopt;
}

bool accumulates(const Op& op) {
    return ir::linear(op.code) == Linear::Accumulated || ir::linear(op.code) == Linear::Subtracted;
}

std::vector<ir::Result> state_results(const Function& program) {
    std::vector<ir::Result> results;
    for (const ir::Result& r : program.results)
        if (r.role == Role::State) results.push_back(r);
    return results;
}

StateReads::StateReads(const Function& program) : fn_(program), reads_(program.ops.size()) {
    for (ValueId v = 0; v < program.size(); ++v) {
        std::set<std::string>& reads = reads_[static_cast<std::size_t>(v)];
        const Op& op = program.op(v);
        if (is_state(op)) reads.insert(op.attrs.name);
        for (const ValueId a : op.args) reads.insert(states_of(a).begin(), states_of(a).end());
    }
}

std::optional<ValueId> StateReads::obstacle(ValueId v) const {
    Obstacles known;
    return obstacle(v, known);
}

std::optional<ValueId> StateReads::obstacle(ValueId v, Obstacles& known) const {
    return known.at(v, [&]() -> std::optional<ValueId> {
        if (!varies(v) || is_state(fn_.op(v))) return std::nullopt;
        for (const ValueId a : fn_.op(v).args)
            if (const auto found = obstacle(a, known)) return found;
        return is_affine(v) ? std::nullopt : std::optional(v);
    });
}

/// Whether an operation is affine in operands that vary, as far as they are affine in the states.
bool StateReads::is_affine(ValueId v) const {
    const Op& op = fn_.op(v);
    const auto linear = linear_operands(op);
    int varying = 0;
    for (std::size_t i = 0; i < op.args.size(); ++i) {
        if (!varies(op.args[i])) continue;
        if (!linear || std::find(linear->begin(), linear->end(), i) == linear->end()) return false;
        varying += accumulates(op) && i == 2 ? 0 : 1;
    }
    return varying <= 1 || ir::is_additive(ir::linear(op.code));
}

}  // namespace forge::graph
