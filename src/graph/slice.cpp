#include "graph/slice.h"

#include <algorithm>
#include <set>

#include "graph/passes.h"
#include "graph/saved_states.h"

namespace forge::graph {
namespace {

using ir::Along;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

int count(const ir::Type& type, const std::string& symbol) {
    return static_cast<int>(
        std::count_if(type.shape.begin(), type.shape.end(), [&](const Dim& d) { return d.symbol == symbol; }));
}

bool axis_is(const Function& fn, ValueId v, std::int64_t axis, const std::string& symbol) {
    return fn.op(v).type.shape[static_cast<std::size_t>(axis)].symbol == symbol;
}

/// Whether it costs less to make the value again than to store and load it.
bool is_light(const Op& op) {
    switch (ir::along(op.code)) {
        case Along::Leaf:
            return op.code != Opcode::Param || (op.attrs.role != Role::State && op.attrs.role != Role::Spill);
        case Along::Scanned:
        case Along::Reduced:
            return op.code == Opcode::Cumsum || op.code == Opcode::Sum;
        case Along::Place:
        case Along::Pointwise:
        case Along::Triangle:
        case Along::Permuted:
        case Along::Inserted:
        case Along::Removed:
        case Along::Selected:
        case Along::Cut:
        case Along::Broadcast:
        case Along::Repeated:
        case Along::Joined:
            return true;
        case Along::Copied:
        case Along::Shifted:
        case Along::RowScan:
        case Along::Normalised:
        case Along::Contracted:
        case Along::Matrix:
        case Along::Pairs:
        case Along::Rows:
            return false;
    }
    return false;
}

}  // namespace

bool has_axis(const ir::Type& type, const std::string& axis) {
    return std::any_of(type.shape.begin(), type.shape.end(), [&](const Dim& d) { return d.symbol == axis; });
}

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

bool is_parallel(const Function& fn, const Op& op, const std::string& s) {
    if (count(op.type, s) > 1) return false;
    switch (ir::along(op.code)) {
        case Along::Place:
        case Along::Triangle:
        case Along::Matrix:
            return !has_axis(op.type, s);
        case Along::Pairs:
            return !has_axis(op.type, s) && !has_axis(fn.op(op.args[0]).type, s);
        case Along::Contracted:
            return !axis_is(fn, op.args[0], op.attrs.trans_a ? 0 : 1, s);
        case Along::Reduced:
        case Along::Scanned:
        case Along::Normalised:
        case Along::Removed:
        case Along::Selected:
            return !axis_is(fn, op.args[0], op.attrs.dim, s);
        case Along::Cut:
        case Along::Joined:
        case Along::Repeated:  // neither of the axis, nor into it, of parts whose sizes are numbers
            return !axis_is(fn, op.args[0], op.attrs.dim, s) &&
                   op.type.shape[static_cast<std::size_t>(op.attrs.dim)].symbol != s;
        case Along::RowScan:
        case Along::Rows:
        case Along::Shifted:
            return !axis_is(fn, op.args[0], 0, s);
        case Along::Leaf:
        case Along::Pointwise:
        case Along::Copied:
        case Along::Permuted:
        case Along::Inserted:
        case Along::Broadcast:
            return true;  // axes are carried along
    }
    return false;
}

bool is_parallel(const Function& fn, const std::string& axis, Sums sums) {
    std::vector<ValueId> states;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Role role = fn.op(v).attrs.role;
        const bool state = role == Role::State || role == Role::Before || role == Role::Spill;
        if (fn.op(v).code == Opcode::Param && state) states.push_back(v);
    }
    const std::vector<bool> reads_state = ir::depends_on(fn, states);
    for (ValueId v = 0; v < fn.size(); ++v) {
        const bool ahead =
            sums == Sums::Ahead && !reads_state[static_cast<std::size_t>(v)] && !has_axis(fn.op(v).type, axis);
        if (!ahead && !is_parallel(fn, fn.op(v), axis)) return false;
    }
    return true;
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
        const bool light = is_light(op);
        is_cheap[static_cast<std::size_t>(v)] = light && std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) {
                                                    return is_cheap[static_cast<std::size_t>(a)];
                                                });
    }
    return is_cheap;
}

std::vector<std::string> parallel_axes(const Function& program, Whole whole, Sums sums) {
    std::vector<std::string> found;
    for (const ir::Result& r : program.results) {
        if (r.role != Role::State) continue;
        const Shape& shape = program.op(r.value).type.shape;
        for (auto d = shape.rbegin(); d != shape.rend(); ++d) {
            if (d->is_constant() || std::count(found.begin(), found.end(), d->symbol)) continue;
            const auto has_it = [&](const ir::Result& other) {
                return has_axis(program.op(other.value).type, d->symbol);
            };
            if (is_parallel(program, d->symbol, sums) &&
                (whole == Whole::Some || std::all_of(program.results.begin(), program.results.end(), has_it)))
                found.push_back(d->symbol);
        }
    }
    return found;
}

std::vector<std::string> scan_axes(const Function& program, Whole whole, Sums sums) {
    const std::set<std::string> summed = has_saved_states(program) ? summed_states(program) : std::set<std::string>();
    Function scans = program;
    std::erase_if(scans.results, [&](const ir::Result& r) {
        return r.role != Role::After && (r.role != Role::State || summed.contains(r.name));
    });
    return parallel_axes(dce(scans), whole, sums);
}

std::set<std::string> summed_states(const Function& program) {
    std::set<std::string> found;
    const auto users = ir::users_of(program);
    const std::vector<int> results = ir::result_uses(program);
    for (const ir::Result& r : program.results) {
        const Op& sum = program.op(r.value);
        if (r.role != Role::State || sum.code != Opcode::Add) continue;
        for (const ValueId a : sum.args) {
            const Op& op = program.op(a);
            const bool own = op.code == Opcode::Param && op.attrs.role == Role::State && op.attrs.name == r.name;
            const auto at = static_cast<std::size_t>(a), out = static_cast<std::size_t>(r.value);
            if (own && users[at].size() == 1 && results[at] == 0 && users[out].empty() && results[out] == 1)
                found.insert(r.name);
        }
    }
    return found;
}

Function with_contributions(const Function& program) {
    Function out = program;
    const std::set<std::string> sums = summed_states(program);
    for (ir::Result& r : out.results) {
        if (r.role != Role::State || !sums.contains(r.name)) continue;
        const Op& sum = out.op(r.value);
        const Op& first = out.op(sum.args[0]);
        const bool own = first.code == Opcode::Param && first.attrs.role == Role::State && first.attrs.name == r.name;
        r = {r.name, Role::Chunk, sum.args[own ? 1 : 0]};
    }
    return dce(out);
}

}  // namespace forge::graph
