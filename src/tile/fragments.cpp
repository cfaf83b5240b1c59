#include "tile/fragments.h"

#include <algorithm>
#include <limits>

#include "ir/infer.h"
#include "ir/known.h"
#include "ir/rebuild.h"
#include "tile/decay_group.h"
#include "tile/fragment_steps.h"
#include "tile/order.h"
#include "tile/own_values.h"
#include "tile/remade_values.h"
#include "tile/remembered.h"
#include "tile/rows_apart.h"
#include "tile/split.h"
#include "tile/warp_vectors.h"

namespace forge::tile {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

namespace {

constexpr int kStagesOfTwo = 2;  ///< of each of two tasks that share a multiprocessor

/// Vectors of one number per token arrive as they lie in memory; all values that use them read a copy.
Function with_copied_vectors(const Function& fn) {
    return ir::rebuild(fn, [](Function& out, const Op& op, std::vector<ValueId> args) {
        const ValueId v = ir::keep(out, op, std::move(args));
        const bool vector = op.code == Opcode::Param && op.attrs.role == Role::Input && op.type.rank() == 1 &&
                            op.type.shape[0].factor == 1;
        return vector ? ir::emit(out, Opcode::Copy, {v}, {}, op.where, op.name) : v;
    });
}

/// An output that is an input is a copy of it: what arrives belongs to the copies from global memory.
Function with_copied_outputs(const Function& fn) {
    Function out = fn;
    for (ir::Result& r : out.results)
        if (r.role == Role::Input && out.op(r.value).code == Opcode::Param)
            r.value = ir::emit(out, Opcode::Copy, {r.value}, {}, out.op(r.value).where, r.name);
    return out;
}

/// Token inputs, by name, whose columns run along an axis.
std::set<std::string> inputs_with(const Function& fn, const std::string& axis) {
    std::set<std::string> found;
    for (const Op& op : fn.ops)
        if (op.code == Opcode::Param && (op.attrs.role == Role::Input || op.attrs.role == Role::Shifted) &&
            op.type.rank() > 1 && op.type.shape.back().symbol == axis)
            found.insert(op.attrs.name);
    return found;
}

/// Of blocks of tiles: what comes neither with tokens nor from chunk to chunk is there once, for all of them.
void refuse_parts_by_tile(const Function& fn, const std::string& axis) {
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        const bool once = op.code == Opcode::Param && (op.attrs.role == Role::Spill || op.attrs.role == Role::Head);
        const auto is_axis = [&](const Dim& d) { return d.symbol == axis; };
        if (once && std::any_of(op.type.shape.begin(), op.type.shape.end(), is_axis))
            refuse(Reason::SharedParameter, ir::described(fn, v));
    }
}

}  // namespace

bool is_block_matrix(const ir::Type& type) {
    return type.rank() == 2 && std::all_of(type.shape.begin(), type.shape.end(),
                                           [](const Dim& d) { return d.is_constant() && d.factor % kBlock == 0; });
}

bool is_operand_of(const Op& op, ValueId v) {
    return ir::is_matmul(op.code) && (op.args.size() < 3 || op.args[2] != v);
}

bool is_fragment_inverse(const Op& op) {
    constexpr std::int64_t kMost = 3 * kBlock;  // rows, whose lower blocks fill 192 registers
    return op.code == Opcode::Inverse && is_block_matrix(op.type) && op.type.shape[0].factor <= kMost;
}

std::optional<RepeatedMask> repeated_mask(const Function& fn, ValueId v) {
    if (fn.op(v).code != Opcode::RepeatInterleave) return std::nullopt;
    RepeatedMask found{v};
    for (; fn.op(found.mask).code == Opcode::RepeatInterleave; found.mask = fn.op(found.mask).args[0])
        (fn.op(found.mask).attrs.dim == 0 ? found.rows : found.cols) *= fn.op(found.mask).attrs.count;
    return fn.op(found.mask).code == Opcode::DecayMask ? std::optional(found) : std::nullopt;
}

std::optional<PartInPlace> part_in_place(const Function& fn, ValueId v) {
    constexpr std::int64_t kNeighbours = 4;  // that loops read at a time
    if (fn.op(v).code != Opcode::Slice) return std::nullopt;
    PartInPlace found{v};
    const Op &op = fn.op(v), &from = fn.op(op.args[0]);
    if (op.attrs.dim == 1 && op.attrs.step == 2 && from.code != Opcode::Slice && is_block_matrix(from.type)) {
        found.of = op.args[0], found.col = op.attrs.start, found.col_step = 2;
        const bool all = 2 * op.type.shape[1].factor == from.type.shape[1].factor;
        return all && found.col >= 0 && found.col < 2 ? std::optional(found) : std::nullopt;
    }
    for (; fn.op(found.of).code == Opcode::Slice; found.of = fn.op(found.of).args[0]) {
        const ir::Attrs& attrs = fn.op(found.of).attrs;
        if (attrs.dim == 0) found.row = attrs.start + attrs.step * found.row, found.row_step *= attrs.step;
        else if (attrs.step != 1 || attrs.start % kNeighbours != 0) return std::nullopt;
        else found.col += attrs.start;
    }
    return is_block_matrix(fn.op(found.of).type) && is_block_matrix(fn.op(v).type) ? std::optional(found)
                                                                                   : std::nullopt;
}

bool is_made_by_turns(const Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    if (op.code != Opcode::Interleave || op.attrs.dim != 1 || op.args.size() != 2 || !is_block_matrix(op.type))
        return false;
    const auto readers = [&](ValueId a) {
        return std::count_if(fn.ops.begin(), fn.ops.end(), [&](const Op& reader) {
            return std::find(reader.args.begin(), reader.args.end(), a) != reader.args.end();
        });
    };
    return op.args[0] != op.args[1] && std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) {
               const bool result =
                   std::any_of(fn.results.begin(), fn.results.end(), [&](const ir::Result& r) { return r.value == a; });
               return ir::is_elementwise(fn.op(a).code) && fn.op(a).type.dtype != DType::Bool && !result &&
                      readers(a) == 1;
           });
}

std::optional<RowsBeside> rows_beside(const Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    if (op.code != Opcode::LinearScan || !op.attrs.exclusive || op.attrs.dim != 0 || !is_block_matrix(op.type))
        return std::nullopt;
    ValueId decay = op.args[0];
    while (fn.op(decay).code == Opcode::Expand || fn.op(decay).code == Opcode::Unsqueeze) decay = fn.op(decay).args[0];
    const Op& kept = fn.op(decay);
    if (kept.code != Opcode::Constant || kept.attrs.value != 0) return std::nullopt;
    return RowsBeside{op.args[1], op.attrs.reverse ? 1 : -1};
}

bool is_reduction(const Op& op) { return op.code == Opcode::Sum || op.code == Opcode::Amax; }

bool is_fragment_sum(const Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    return op.layout && is_reduction(op) && is_block_matrix(fn.op(op.args[0]).type) &&
           fn.op(op.args[0]).layout->space != ir::Layout::Space::Tile;
}

bool arrives_late(const Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    return op.code == Opcode::Param && op.layout && in_memory(op.layout->space) && is_block_matrix(op.type) &&
           std::any_of(fn.ops.begin(), fn.ops.begin() + v, [](const Op& o) { return o.code != Opcode::Param; });
}

std::int64_t fragment_work_floats(const Function& fn, ValueId v) {
    constexpr std::int64_t kInverseFloats = 12 * 256, kInverseOfBlocksFloats = 4096, kRunningFloats = 2560,
                           kWarps = 4;  // the device library's
    if (is_fragment_sum(fn, v)) return fn.op(v).attrs.dim == 1 ? 0 : kWarps * size_of(fn.op(v).type, 0);
    const Op& op = fn.op(v);
    if (is_fragment_inverse(op)) return op.type.shape[0].factor == kBlock ? kInverseFloats : kInverseOfBlocksFloats;
    if (!op.layout || !is_fragment(op.layout->space)) return work_floats(fn, v, kFragmentRules);
    if (op.code == Opcode::Cumsum) return kWarps * size_of(op.type, 1) + kRunningFloats;
    return op.code == Opcode::DecayApply ? gate_sums_floats(op.type, false) : 0;
}

std::int64_t fragment_registers(const Function& fn, const Roles* roles, std::uint8_t role) {
    const auto held = [&](ValueId v) {
        const Op& op = fn.op(v);
        const bool counts = !roles || roles->does(role, v);
        return counts && is_fragment(op.layout->space) ? size_of(op.type, 0) * size_of(op.type, 1) / 128 : 0;
    };
    std::vector<ValueId> last(fn.ops.size(), ir::kNoValue), last_whole = last;
    for (ValueId v = 0; v < fn.size(); ++v)
        for (const ValueId read : tiles_read_by(fn, v)) {
            last[static_cast<std::size_t>(read)] = v;
            if (!is_operand_of(fn.op(v), read)) last_whole[static_cast<std::size_t>(read)] = v;
        }
    for (const ir::Result& r : fn.results)
        if (is_carried(r.role))
            last[static_cast<std::size_t>(r.value)] = last_whole[static_cast<std::size_t>(r.value)] = fn.size();
    std::int64_t most = 0;
    for (ValueId v = 0; v < fn.size(); ++v) {
        if (fn.op(v).layout->space == ir::Layout::Space::Reg) continue;
        std::int64_t now = held(v);
        bool replaces = false;  // an operand whose registers the result takes over
        for (ValueId u = 0; u < v; ++u) {
            const ValueId end = last[static_cast<std::size_t>(u)];
            const bool accumulates = fn.op(v).args.size() == 3 && fn.op(v).args[2] == u;
            const bool dies =
                end == v && !replaces && held(u) == held(v) && (accumulates || !ir::is_matmul(fn.op(v).code));
            if (dies) replaces = true;
            else if (end >= v) now += last_whole[static_cast<std::size_t>(u)] >= v ? held(u) : held(u) / 2;
        }
        most = std::max(most, now);
    }
    return most;
}

std::int64_t tasks_at_once(const TileKernel& kernel) {
    constexpr std::int64_t kReserved = 1024;  // of shared memory, for each task beside its own
    // For matrices, of the 96 that a thread of five tasks has, of the 128 of four, and of the 168 of three.
    constexpr std::int64_t kRegistersOfFive = 64, kRegistersOfFour = 96, kRegistersOfThree = 128;
    const Function& fn = kernel.fn;
    const bool sums = std::any_of(fn.ops.begin(), fn.ops.end(), [&](const Op& op) {  // as products are under way
        return is_reduction(op) && is_block_matrix(fn.op(op.args[0]).type);
    });
    const std::int64_t held = fragment_registers(fn);
    const std::int64_t most = held > kRegistersOfThree          ? 2
                              : held > kRegistersOfFour         ? 3
                              : sums || held > kRegistersOfFive ? 4
                                                                : 5;
    return std::clamp<std::int64_t>(kernel.processor_bytes / (4 * kernel.scratch_floats + kReserved), 1, most);
}

bool is_multiplied(const Function& fn, ValueId v) {
    return std::any_of(fn.ops.begin(), fn.ops.end(),
                       [&](const Op& op) { return ir::is_matmul(op.code) && (op.args[0] == v || op.args[1] == v); });
}

int products_of_parts(int left, int right) {
    int count = 0;
    for (int part = 0; part < left; ++part) count += std::min(right, std::max(left, right) - part);
    return count;
}

int products_of_parts(const Function& fn) {
    std::optional<int> parts;
    for (const Op& op : fn.ops)
        if (op.layout && op.layout->space == ir::Layout::Space::Operand)
            parts = std::min(op.layout->parts, parts.value_or(op.layout->parts));
    return products_of_parts(parts.value_or(1), parts.value_or(1));
}

namespace {

int parts_of(const Function& fn, ValueId v, const FragmentRules& rules, ir::Known<int>& known) {
    return known.at(v, [&] {
        const Op& op = fn.op(v);
        if (op.code == Opcode::Inverse) return std::max(rules.operand_parts, rules.inverse_parts);
        if (op.code == Opcode::Param && op.attrs.role == Role::Spill) {
            const auto it = rules.parts.find(op.attrs.name);
            return it == rules.parts.end() ? rules.operand_parts : it->second;
        }
        int parts = rules.operand_parts;
        if (op.code == Opcode::Copy || op.code == Opcode::Mul)
            for (const ValueId a : op.args) parts = std::max(parts, parts_of(fn, a, rules, known));
        return parts;
    });
}

}  // namespace

int parts_of(const Function& fn, ValueId v, const FragmentRules& rules) {
    ir::Known<int> known;
    return parts_of(fn, v, rules, known);
}

namespace {

/// Rows decayed to an end of the chunk are made with a product of such decays, or not at all; kNoValue: all are.
ValueId rows_alone(const Function& fn) {
    const std::vector<DecayGroup> groups = decay_groups(fn);
    for (ValueId v = 0; v < fn.size(); ++v) {
        if (fn.op(v).code != Opcode::DecayRows) continue;
        const bool made = std::any_of(groups.begin(), groups.end(), [&](const DecayGroup& group) {
            const auto members = group.members();
            return std::find(members.begin(), members.end(), v) != members.end();
        });
        if (!made) return v;
    }
    return ir::kNoValue;
}

/// With loops joined in the way that leaves room for the most tasks, or else in the first of several.
TileKernel with_loops(const Function& fn, const FragmentRules& rules) {
    const int stages = rules.stages;
    TileKernel best = with_memory({fn}, std::nullopt, rules);
    std::int64_t most = tasks_at_once(best);
    for (const Moved moved : {Moved::Nothing, Moved::Loops, Moved::InputsToo}) {
        if (moved != Moved::Nothing && stages > 1) break;  // operations are where they fill the time of others
        JoinedLoops loops = with_joined_loops(fn, moved, stages == 1);
        if (!loops.any) continue;
        TileKernel joined = with_memory(loops, std::nullopt, rules);
        const std::int64_t tasks = tasks_at_once(joined);
        const bool fits = joined.far_floats <= best.far_floats &&
                          (joined.scratch_floats <= best.scratch_floats || tasks > 1 ||
                           (best.far_floats > 0 && joined.scratch_floats <= rules.shared_floats));
        if (fits && tasks >= most) best = std::move(joined), most = tasks;
    }
    return best;
}

std::int64_t states_in_fragments(const Function& fn) {
    return std::count_if(fn.ops.begin(), fn.ops.end(), [](const Op& op) {
        return op.code == Opcode::Param && op.attrs.role == Role::State && is_fragment(op.layout->space);
    });
}

/// The groups of a kernel that work side by side, and the order of what each does.
class Sides {
  public:
    Sides(const Function& kernel, const FragmentRules& rules)
        : kernel_(kernel),
          rules_(rules),
          by_tiles_(rules.block_tiles > 1),
          several_(rules.stages > 1 && (rules.output_groups > 0 || by_tiles_ || rules.producer)) {
        if (by_tiles_ && several_) refuse_parts_by_tile(kernel, rules.value_axis);
    }
    [[nodiscard]] bool are_several() const { return several_; }

    [[nodiscard]] Roles divided(const Function& fn) const {
        if (rules_.producer) return roles_with_producer(fn, rules_.images_apart);
        return by_tiles_ ? roles_by_tiles(fn, vectors_alone(fn), inputs_with(kernel_, rules_.value_axis),
                                          rules_.block_tiles, rules_.buffers)
                         : roles_by_slices(fn, vectors_alone(fn), rules_.output_groups, rules_.left_outputs);
    }

    /// In forms, with masks worked out in loops where two groups that make outputs would hold too much beside products.
    [[nodiscard]] Function formed(const Function& symbolic, const Function& fn) const {
        Function made = in_forms(symbolic, fn, rules_);
        if (!several_ || rules_.output_groups < 2) return made;
        const Roles roles = divided(made);
        if (held(overlapped(made, true, &roles), Roles::kTakes) <= kMostOfTwoGroups) return made;
        FragmentRules fewer = rules_;
        fewer.masks_in_loops = true;
        return in_forms(symbolic, fn, fewer);
    }

    [[nodiscard]] Function ordered(const Function& formed) const {
        const Roles roles = divided(formed);
        Function order = overlapped(formed, true, &roles);
        if (by_tiles_)
            return roles.in_pieces.empty() ? with_few_registers(order, divided(order)) : with_states_read_first(order);
        if (states_in_fragments(formed) > 1 || held(order, Roles::kGives) <= kMostOfState) return order;
        const Function early = overlapped(formed, true, &roles, true);
        return held(early, Roles::kGives) < held(order, Roles::kGives) ? early : order;
    }

  private:
    /// Registers for matrices with which each of two groups that make outputs, of 128, compiled without spilling (with
    /// 128 none did), and one that holds a state, of 184. Of several states the compiler holds more than is counted.
    static constexpr std::int64_t kMostOfTwoGroups = 96, kMostOfState = 192;

    [[nodiscard]] std::int64_t held(const Function& order, std::uint8_t role) const {
        const Roles roles = divided(order);
        return fragment_registers(order, &roles, role);
    }

    const Function& kernel_;
    const FragmentRules& rules_;
    bool by_tiles_, several_;
};

/// Inputs come again where two tasks then share a multiprocessor, and else do not.
Function thrifty_for_two(const Function& formed, const FragmentRules& rules) {
    Function order = thrifty(formed);
    Arrived arrived = with_arrivals(order, rules);
    const bool better = arrived.tasks == 2 && arrived.again > 0 && rows_alone(arrived.fn) == ir::kNoValue;
    return better ? std::move(arrived.fn) : order;
}

TileKernel lowered_by(const Function& kernel, const Sizes& sizes, const FragmentRules& rules, Rewriting how,
                      const ir::PassRunner& passes) {
    using ir::Pass;
    Function symbolic = kernel;
    if (rules.split) symbolic = passes.run(Pass::SplitAxes, [&] { return split_axes(kernel, sizes); });
    symbolic = passes.run(Pass::CopyVectors, [&] { return with_copied_outputs(with_copied_vectors(symbolic)); });
    symbolic = passes.run(Pass::DecayRows, [&] { return with_decay_rows(symbolic, sizes, rules.rows_multiplied); });
    if (rules.output_groups > 0 && rules.stages > 1)
        symbolic = passes.run(Pass::OwnValues, [&] { return with_own_values(symbolic, rules.value_axis); });
    symbolic = passes.run(Pass::OrderFragments, [&] { return ordered(with_carried_params(symbolic)); });
    if (how.remade) symbolic = passes.run(Pass::RemadeValues, [&] { return with_remade_values(symbolic, sizes); });
    if (how.apart) symbolic = passes.run(Pass::RowsApart, [&] { return with_rows_apart(symbolic); });
    Function fn = symbolic;
    for (Op& op : fn.ops) op.type = with_sizes(std::move(op.type), sizes);
    const Sides sides(kernel, rules);
    const Function formed = passes.run(Pass::FragmentForms, [&] { return sides.formed(symbolic, fn); });
    fn = passes.run(Pass::FragmentOrder, [&] {
        if (rules.stages == 1 && !rules.value_axis.empty()) return thrifty_for_two(formed, rules);
        if (rules.stages == 1) return frugal(formed, rules);
        if (sides.are_several() && !rules.producer) return sides.ordered(formed);
        Function order = overlapped(formed, rules.stages > kStagesOfTwo, nullptr);
        return rules.wide_late ? with_wide_inputs_late(order, rules.all_late) : order;
    });
    fn = passes.run(Pass::Gather, [&] { return gathered(fn); });
    const auto with_places = [&] {
        return sides.are_several() ? with_memory({fn}, sides.divided(fn), rules) : with_loops(fn, rules);
    };
    TileKernel made =
        passes.run(Pass::FragmentMemory, with_places, [](TileKernel& t) -> Function& { return t.fn; }, notes_of);
    if (const ValueId rows = rows_alone(made.fn); rows != ir::kNoValue)
        refuse(Reason::SeveralRows, ir::described(made.fn, rows));
    return made;
}

/// Passes that somebody observes run each time.
TileKernel lowered(const Function& kernel, const Sizes& sizes, const FragmentRules& rules, Rewriting how,
                   const ir::PassRunner& passes) {
    const auto anew = [&] { return lowered_by(kernel, sizes, rules, how, passes); };
    return passes.observed() ? anew() : remembered(kernel, sizes, rules, how, anew);
}

/// Rewritten as takes the least memory; where that is the same, with rows apart, and without values that are remade.
TileKernel lowered_best(const Function& kernel, const Sizes& sizes, const FragmentRules& rules,
                        const ir::PassRunner& passes) {
    const bool one_group = rules.stages == 1 || (rules.output_groups == 0 && rules.block_tiles == 1),
               remade = one_group && !rules.value_axis.empty() &&
                        with_remade_values(kernel, sizes).ops.size() != kernel.ops.size(),
               apart = has_rows_apart(kernel);
    if (!remade && !apart) return lowered(kernel, sizes, rules, {}, passes);
    Rewriting best;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Rewriting how : {Rewriting{false, true}, {false, false}, {true, true}, {true, false}}) try {
            if ((how.remade && !remade) || (how.apart && !apart)) continue;
            const TileKernel made = lowered(kernel, sizes, rules, how, {});
            if (const std::int64_t needs = made.scratch_floats + made.far_floats; needs < least)
                best = how, least = needs;
        } catch (const Refused&) {  // as it is if none can be had
        }
    return lowered(kernel, sizes, rules, best, passes);
}

}  // namespace

TileKernel lower_to_fragments(const Function& kernel, const Sizes& sizes, const FragmentRules& rules,
                              const ir::PassRunner& passes) {
    const auto tasks = [&](const FragmentRules& by) { return tasks_at_once(lowered_best(kernel, sizes, by, {})); };
    FragmentRules narrow = rules;
    narrow.narrow = true;
    const bool two_only_so = rules.stages == 1 && tasks(rules) == 1 && tasks(narrow) > 1;
    return lowered_best(kernel, sizes, two_only_so ? narrow : rules, passes);
}

}  // namespace forge::tile
