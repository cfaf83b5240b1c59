#include "graph/slice.h"

#include <algorithm>
#include <set>

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

bool has(const ir::Type& type, const std::string& symbol) {
    return std::any_of(type.shape.begin(), type.shape.end(), [&](const Dim& d) { return d.symbol == symbol; });
}

int count(const ir::Type& type, const std::string& symbol) {
    return static_cast<int>(
        std::count_if(type.shape.begin(), type.shape.end(), [&](const Dim& d) { return d.symbol == symbol; }));
}

bool axis_is(const Function& fn, ValueId v, std::int64_t axis, const std::string& symbol) {
    return fn.op(v).type.shape[static_cast<std::size_t>(axis)].symbol == symbol;
}

/// Whether the op treats the axis as a batch: no contraction, reduction, reordering or position along it.
bool parallel_over(const Function& fn, const Op& op, const std::string& s) {
    if (count(op.type, s) > 1) return false;
    switch (op.code) {
        case Opcode::Identity:
        case Opcode::Arange:
        case Opcode::Tril:
        case Opcode::Triu:
        case Opcode::Inverse:
        case Opcode::DecayMask:
            return !has(op.type, s);
        case Opcode::DecayMatmul:
            return !has(fn.op(op.args[0]).type, s);
        case Opcode::Matmul:
        case Opcode::MatmulOutFp32:
        case Opcode::MatmulAdd:
        case Opcode::MatmulSub:
            return !axis_is(fn, op.args[0], op.attrs.trans_a ? 0 : 1, s);
        case Opcode::Sum:
        case Opcode::Amax:
        case Opcode::Cumsum:
        case Opcode::Cumprod:
        case Opcode::Softmax:
        case Opcode::L2norm:
        case Opcode::Select:
        case Opcode::Slice:
        case Opcode::Part:
        case Opcode::Concat:
        case Opcode::Interleave:
        case Opcode::RepeatInterleave:
            return !axis_is(fn, op.args[0], op.attrs.dim, s);
        case Opcode::LinearScan:
        case Opcode::LinearScanFrom:
            return !axis_is(fn, op.args[0], 0, s);
        default:
            return true;  // elementwise ops and views carry axes along
    }
}

}  // namespace

const char* to_string(Slice slice) {
    switch (slice) {
        case Slice::StateFree:
            return "state-free";
        case Slice::StateBound:
            return "state-bound";
        case Slice::OutputOnly:
            return "output-only";
    }
    return "?";
}

std::vector<Slice> slices(const Function& program) {
    std::vector<ValueId> states, carried;
    for (ValueId v = 0; v < program.size(); ++v)
        if (program.op(v).code == Opcode::Param && program.op(v).attrs.role == Role::State) states.push_back(v);
    for (const ir::Result& r : program.results)
        if (r.role == Role::State) carried.push_back(r.value);
    const auto reads_state = ir::depends_on(program, states), makes_state = ir::needed_for(program, carried);
    std::vector<Slice> marks;
    for (std::size_t i = 0; i < program.ops.size(); ++i)
        marks.push_back(!reads_state[i] ? Slice::StateFree : makes_state[i] ? Slice::StateBound : Slice::OutputOnly);
    return marks;
}

std::vector<bool> cheap(const Function& program) {
    std::vector<bool> is_cheap(program.ops.size(), false);
    for (ValueId v = 0; v < program.size(); ++v) {
        const Op& op = program.op(v);
        const bool light = ir::is_elementwise(op.code) || ir::is_view(op.code) || op.code == Opcode::Cumsum ||
                           op.code == Opcode::Sum || op.code == Opcode::Constant || op.code == Opcode::Identity ||
                           op.code == Opcode::Arange || op.code == Opcode::Size ||
                           op.code == Opcode::RepeatInterleave || op.code == Opcode::Concat ||
                           op.code == Opcode::Interleave ||
                           (op.code == Opcode::Param && op.attrs.role != Role::State && op.attrs.role != Role::Spill);
        is_cheap[static_cast<std::size_t>(v)] = light && std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) {
                                                    return is_cheap[static_cast<std::size_t>(a)];
                                                });
    }
    return is_cheap;
}

std::vector<std::string> parallel_axes(const Function& program) {
    std::vector<std::string> found;
    for (const ir::Result& r : program.results) {
        if (r.role != Role::State) continue;
        const Shape& shape = program.op(r.value).type.shape;
        for (auto d = shape.rbegin(); d != shape.rend(); ++d) {
            if (d->is_constant() || std::count(found.begin(), found.end(), d->symbol)) continue;
            const auto parallel = [&](const Op& op) { return parallel_over(program, op, d->symbol); };
            const auto whole = [&](const ir::Result& other) { return has(program.op(other.value).type, d->symbol); };
            if (std::all_of(program.ops.begin(), program.ops.end(), parallel) &&
                std::all_of(program.results.begin(), program.results.end(), whole))
                found.push_back(d->symbol);
        }
    }
    return found;
}

}  // namespace forge::graph
