#include "graph/epilogue.h"

#include <algorithm>
#include <set>

#include "graph/passes.h"
#include "graph/saved_states.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

std::vector<ValueId> states_of(const Function& program) {
    std::vector<ValueId> states;
    for (ValueId v = 0; v < program.size(); ++v)
        if (program.op(v).code == Opcode::Param && program.op(v).attrs.role == Role::State) states.push_back(v);
    return states;
}

/// Which values are nowhere negative, by how they are made.
std::vector<bool> not_negative(const Function& fn) {
    std::vector<bool> found;
    for (const Op& op : fn.ops) {
        const bool all =
            std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) { return found[static_cast<std::size_t>(a)]; });
        switch (op.code) {
            case Opcode::Constant:
                found.push_back(op.attrs.value >= 0);
                break;
            case Opcode::Size:
            case Opcode::Abs:
            case Opcode::Sqrt:
            case Opcode::Rsqrt:
            case Opcode::Exp:
                found.push_back(true);
                break;
            case Opcode::Mul:
                found.push_back(op.args[0] == op.args[1] || all);
                break;
            case Opcode::Add:
            case Opcode::Div:
            case Opcode::Maximum:
            case Opcode::Sum:
                found.push_back(all);
                break;
            default:
                found.push_back(ir::is_view(op.code) && all);
        }
    }
    return found;
}

/// Whether an operation takes numbers of 16 bits to a result that is off by as small a part of itself: no difference,
/// and no exponential.
bool keeps_digits(const Op& op, bool not_negative) {
    switch (op.code) {
        case Opcode::Mul:
        case Opcode::Div:
        case Opcode::Neg:
        case Opcode::Abs:
        case Opcode::Sqrt:
        case Opcode::Rsqrt:
        case Opcode::Tanh:
        case Opcode::Relu:
        case Opcode::Maximum:
        case Opcode::Minimum:
        case Opcode::Amax:
        case Opcode::Expand:
        case Opcode::RepeatInterleave:
        case Opcode::Interleave:
            return true;
        case Opcode::Add:
        case Opcode::Sum:
            return not_negative;
        default:
            return ir::is_view(op.code);
    }
}

}  // namespace

std::optional<std::vector<bool>> epilogue(const Function& program, const std::string& axis) {
    const std::vector<ValueId> states = states_of(program);
    const std::vector<bool> reads_state = ir::depends_on(program, states);
    std::vector<ValueId> first;
    for (ValueId v = 0; v < program.size(); ++v)
        if (reads_state[static_cast<std::size_t>(v)] && !is_parallel(program, program.op(v), axis)) first.push_back(v);
    if (first.empty() || has_saved_states(program)) return std::nullopt;
    std::vector<bool> found = ir::depends_on(program, first);
    for (const ir::Result& r : program.results)
        if (r.role == Role::State && found[static_cast<std::size_t>(r.value)]) return std::nullopt;
    const std::vector<bool> sums = not_negative(program);
    const auto is_state = [&](ValueId a) { return std::find(states.begin(), states.end(), a) != states.end(); };
    for (ValueId v = 0; v < program.size(); ++v) {
        const auto i = static_cast<std::size_t>(v);
        const Op& op = program.op(v);
        if (found[i] && (!keeps_digits(op, sums[i]) || std::any_of(op.args.begin(), op.args.end(), is_state)))
            return std::nullopt;
    }
    return found;
}

std::vector<ValueId> read_by_epilogue(const Function& program, const std::vector<bool>& epilogue) {
    const std::vector<bool> reads_state = ir::depends_on(program, states_of(program));
    std::set<ValueId> read;
    for (ValueId v = 0; v < program.size(); ++v) {
        if (!epilogue[static_cast<std::size_t>(v)]) continue;
        for (const ValueId a : program.op(v).args)
            if (!epilogue[static_cast<std::size_t>(a)] && reads_state[static_cast<std::size_t>(a)]) read.insert(a);
    }
    return {read.begin(), read.end()};
}

std::vector<std::string> axes_but_for_epilogue(const Function& program, Sums sums) {
    std::vector<std::string> axes;
    for (const std::string& axis : scan_axes(program, Whole::Some, sums)) {
        const auto last = epilogue(program, axis);
        if (!last) continue;
        Function scan = program;
        std::erase_if(scan.results, [&](const ir::Result& r) { return (*last)[static_cast<std::size_t>(r.value)]; });
        for (const ValueId v : read_by_epilogue(program, *last))
            scan.results.push_back({program.op(v).name, Role::Spill, v});
        const auto cut = parallel_axes(dce(scan), Whole::Some, sums);
        if (std::find(cut.begin(), cut.end(), axis) != cut.end()) axes.push_back(axis);
    }
    return axes;
}

}  // namespace forge::graph
