#include "tile/forms.h"

#include <algorithm>

#include "tile/decay_group.h"
#include "tile/fragment_steps.h"
#include "tile/layout.h"
#include "tile/order.h"

namespace forge::tile {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Space = ir::Layout::Space;

bool is_wide_output(const ir::Result& r, const FragmentRules& rules) {
    return r.role == Role::Input && rules.wide_outputs.contains(r.name);
}

bool is_float_image(const ir::Result& r, const FragmentRules& rules) {
    return r.role == Role::Spill && rules.float_images.contains(r.name);
}
bool is_wide_spill(const ir::Result& r, const FragmentRules& rules) {
    return r.role == Role::Spill && rules.wide_spills.contains(r.name);
}

std::size_t first_operand(Space result) { return result == Space::Transposed ? 1 : 0; }
Space first_operand_form(const Function& fn, ValueId v, Space result) {
    const Op& op = fn.op(v);
    if (result == Space::Transposed) return op.attrs.trans_b ? Space::Fragment : Space::Transposed;
    return op.attrs.trans_a ? Space::Transposed : Space::Fragment;
}

Forms::Forms(const Function& symbolic, const Function& fn, const FragmentRules& rules)
    : symbolic_(symbolic),
      fn_(fn),
      rules_(rules),
      users_(ir::users_of(fn)),
      results_(ir::result_uses(fn)),
      form_(fn.ops.size(), Space::Reg),
      decided_(fn.ops.size(), false) {
    if (rules.output_groups > 0) find_outputs();
    for (ValueId v = 0; v < fn.size(); ++v) decide(v);
    for (ValueId v = fn.size() - 1; v >= 0; --v)
        if (!decided_[index(v)]) form_[index(v)] = wanted(v);
    find_parts_in_place();
}

Space Forms::evaluated(ValueId v) const {
    while (form_[index(v)] == Space::Reg && !users_[index(v)].empty()) v = users_[index(v)][0];
    return is_sum(v) ? Space::Fragment : form_[index(v)];
}

bool Forms::is_sum(ValueId v) const {
    const Op& op = fn_.op(v);
    if (!is_reduction(op) || !is_matrix(op.args[0]) || ir::is_view(fn_.op(op.args[0]).code)) return false;
    const Shape& shape = symbolic_.op(op.args[0]).type.shape;
    if (all_alike()) return true;
    // Tasks of a single chunk have more of shared memory than of registers, which rows of inputs need not, and
    // products are in anyway.
    return (rules_.stages > 1 || (op.attrs.dim == 1 && is_made_of_inputs(op.args[0])) ||
            is_made_of_product(op.args[0])) &&
           std::none_of(shape.begin(), shape.end(), [&](const Dim& d) { return d.symbol == rules_.value_axis; });
}

bool Forms::is_made_of_inputs(ValueId v) const {
    return !comes_from(v, [&](ValueId u) {
        const Op& op = fn_.op(u);
        if (op.code == Opcode::Param) return op.attrs.role != Role::Input;
        return op.code != Opcode::DecayMask && op.code != Opcode::Expand && !ir::is_elementwise(op.code);
    });
}

bool Forms::is_made_of_product(ValueId v) const {
    return comes_from(
        v, [&](ValueId u) { return ir::is_matmul(fn_.op(u).code) || fn_.op(u).code == Opcode::DecayMatmul; });
}

bool Forms::comes_from(ValueId v, const std::function<bool(ValueId)>& is_wanted) const {
    return ir::comes_from(
        fn_, v, [&](ValueId u) { return is_matrix(u) && is_wanted(u); },
        [&](ValueId u) { return is_matrix(u) && ir::is_elementwise(fn_.op(u).code); });
}

bool Forms::is_summed(ValueId v) const {
    while (form_[index(v)] == Space::Reg && !users_[index(v)].empty()) v = users_[index(v)][0];
    return is_sum(v);
}

bool Forms::is_running_sum(ValueId v) const {
    const Op& op = fn_.op(v);
    return all_alike() && op.code == Opcode::Cumsum && op.attrs.dim == 0 && is_matrix(v) &&
           op.type.shape[0].factor == kBlock;
}

bool Forms::is_rows_beside(ValueId v) const {
    const auto& users = users_[index(v)];
    return all_alike() && rows_beside(fn_, v) && results_[index(v)] == 0 && !users.empty() &&
           std::all_of(users.begin(), users.end(), [&](ValueId u) {
               return ir::is_elementwise(fn_.op(u).code) && fn_.op(u).type.shape == fn_.op(v).type.shape;
           });
}

bool Forms::is_decay_apply(ValueId v) const {
    const Op& op = fn_.op(v);
    return all_alike() && op.code == Opcode::DecayApply && is_block_decay(fn_.op(op.args[0]).type, op.type);
}

bool Forms::is_mask_in_loops(ValueId v) const {
    return form_[index(v)] == Space::Reg && repeated_mask(fn_, v).has_value();
}

Space Forms::fragment(ValueId v) const {
    if (!outputs_.empty() && outputs_[index(v)]) return Space::Fragment;
    const Shape& shape = symbolic_.op(v).type.shape;
    return !rules_.value_axis.empty() && shape[1].symbol == rules_.value_axis && shape[0].symbol != rules_.value_axis
               ? Space::Transposed
               : Space::Fragment;
}

bool Forms::is_repeated_mask(ValueId v) const {
    const auto& users = users_[index(v)];
    return repeated_mask(fn_, v) &&
           std::none_of(users.begin(), users.end(), [&](ValueId u) { return ir::is_view(fn_.op(u).code); });
}

bool Forms::is_repeated_rows(ValueId v) const {
    const Op& op = fn_.op(v);
    const auto& users = users_[index(v)];
    return all_alike() && op.code == Opcode::RepeatInterleave && op.attrs.dim == 0 && is_matrix(v) &&
           results_[index(v)] == 0 && !users.empty() && std::all_of(users.begin(), users.end(), [&](ValueId u) {
               return ir::is_elementwise(fn_.op(u).code) && fn_.op(u).type.shape == op.type.shape;
           });
}

bool Forms::is_stored_by_turns(ValueId v) const {
    const Op& op = fn_.op(v);
    const auto is_output = [&](const ir::Result& r) {
        return r.value != v || (r.role == Role::Input && !is_wide_output(r, rules_));
    };
    return op.code == Opcode::Interleave && op.attrs.dim == 0 && is_matrix(v) && rules_.operand_parts == 1 &&
           users_[index(v)].empty() && std::all_of(fn_.results.begin(), fn_.results.end(), is_output) &&
           std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) {
               const bool may_be = all_alike() && !decided_[index(a)] && ir::is_elementwise(fn_.op(a).code);
               return is_fragment(form_[index(a)]) || may_be;
           });
}

bool Forms::is_operand_by_turns(ValueId v) const {
    const auto is_operand = [&](const ir::Result& r) {
        const bool wide = is_wide_output(r, rules_) || is_wide_spill(r, rules_) || is_float_image(r, rules_);
        return r.value != v || (!is_carried(r.role) && !wide);
    };
    const auto& users = users_[index(v)];
    return is_made_by_turns(fn_, v) && std::all_of(fn_.results.begin(), fn_.results.end(), is_operand) &&
           std::all_of(users.begin(), users.end(), [&](ValueId u) { return is_operand_of(fn_.op(u), v); });
}

void Forms::find_parts_in_place() {
    std::vector<bool> in_place(form_.size()), reads(form_.size());  // … and elementwise values in such loops alone
    for (ValueId v = fn_.size() - 1; v >= 0; --v) {
        const auto& users = users_[index(v)];
        const auto is_read_so = [&](ValueId u) { return reads[index(u)]; };
        const auto suits = [&](ValueId u) {
            return in_place[index(u)] || is_operand_of(fn_.op(u), v) ||  // of which there will be a copy
                   (reads[index(u)] && fn_.op(u).type.shape == fn_.op(v).type.shape);
        };
        if (ir::is_elementwise(fn_.op(v).code) && !is_sum(v))
            reads[index(v)] = form_[index(v)] != Space::Reg ? in_memory(form_[index(v)]) || all_alike()
                                                            : std::all_of(users.begin(), users.end(), is_read_so);
        else if (is_operand_by_turns(v)) reads[index(v)] = true;
        const auto part = part_in_place(fn_, v);
        in_place[index(v)] = part && form_[index(part->of)] == Space::Operand && results_[index(v)] == 0 &&
                             std::all_of(users.begin(), users.end(), suits);
    }
    for (ValueId v = 0; v < fn_.size(); ++v) {  // a part of a part that is a tile lies in that
        if (!in_place[index(v)]) continue;
        const ValueId from = fn_.op(v).args[0];
        in_place[index(v)] = in_place[index(from)] || form_[index(from)] == Space::Operand;
        if (in_place[index(v)]) form_[index(v)] = Space::Reg;
    }
}

void Forms::find_outputs() {
    std::vector<ValueId> carried;
    for (const ir::Result& r : fn_.results)
        if (is_carried(r.role)) carried.push_back(r.value);
    outputs_ = ir::needed_for(fn_, carried);
    outputs_.flip();
}

void Forms::decide(ValueId v) {
    const Op& op = fn_.op(v);
    decided_[index(v)] = true;
    if (op.code == Opcode::Param) form_[index(v)] = parameter(v);
    else if (op.code == Opcode::Constant || op.code == Opcode::Identity)
        form_[index(v)] = Space::Reg;  // NOLINT(bugprone-branch-clone): what comes between is asked first
    else if (ir::is_view(op.code) && fn_.op(op.args[0]).code == Opcode::Identity)
        refuse(Reason::PartOfIdentity, ir::described(fn_, v));
    else if (ir::is_view(op.code))  // of a number, or of what will be a tile because a view reads it
        form_[index(v)] = is_number(op.args[0]) ? Space::Reg : Space::Tile;
    else if (ir::is_matmul(op.code)) form_[index(v)] = product(v);
    else if (op.code == Opcode::DecayMatmul) form_[index(v)] = decay_product(v);
    else if (op.code == Opcode::Inverse) form_[index(v)] = is_fragment_inverse(op) ? Space::Fragment : Space::Tile;
    else if (op.code == Opcode::DecayMask && op.type.shape[0].factor != kBlock)
        refuse(Reason::SeveralRows, ir::described(fn_, v));
    else if (is_repeated_mask(v) || is_repeated_rows(v) || is_rows_beside(v))
        form_[index(v)] = Space::Reg;       // wherever it is read
    else if (op.code == Opcode::DecayRows)  // written as soon as it is known
        form_[index(v)] = users_[index(v)].empty() ? Space::Spill : Space::Operand;
    else if (is_running_sum(v) || is_decay_apply(v)) form_[index(v)] = Space::Fragment;
    else if (is_stored_by_turns(v) || is_operand_by_turns(v)) form_[index(v)] = Space::Operand;
    else if (!ir::is_elementwise(op.code)) form_[index(v)] = Space::Tile;
    else elementwise(v);
}

Space Forms::parameter(ValueId v) const {
    const Op& op = fn_.op(v);
    switch (op.attrs.role) {
        case Role::Scalar:
            return Space::Reg;
        case Role::Head:
            return op.type.rank() == 0 ? Space::Reg : Space::Tile;
        case Role::State:
        case Role::Ones:
        case Role::Eye:
            return is_matrix(v) ? fragment(v) : Space::Tile;
        case Role::Spill:
            if (!is_matrix(v) || rules_.wide_spills.contains(op.attrs.name)) return Space::Tile;
            return lies_where_read(v) && !is_in_pieces(op) ? Space::Spill : Space::Operand;
        case Role::Input:
            return input(v);
        case Role::Shifted:
            return is_matrix(v) && rules_.inputs.at(op.attrs.name).dtype == rules_.half &&
                           rules_.inputs.at(op.attrs.name).pad == 0
                       ? Space::Operand
                       : Space::Tile;
        default:
            return Space::Tile;
    }
}

Space Forms::input(ValueId v) const {
    const Op& op = fn_.op(v);
    if (op.type.rank() == 1) return Space::Tile;
    const FragmentRules::Input& in = rules_.inputs.at(op.attrs.name);
    if (op.type.rank() != 2 || !is_matrix(v)) refuse(Reason::SizeOfInput, op.attrs.name, to_string(op.type.shape));
    if (in.pad != 0) refuse(Reason::PaddedInput, op.attrs.name, in.pad);
    if (in.dtype == rules_.half)
        return results_[index(v)] == 0 && only_first_factor(fn_, v) ? Space::Spill : Space::Operand;
    if (rules_.operand_parts > 1 && is_multiplied(fn_, v)) return Space::Operand;
    return only_decays(fn_, v) || lies_where_read(v) ? Space::Spill : Space::Tile;
}

bool Forms::lies_where_read(ValueId v) const {
    const auto& users = users_[index(v)];
    return all_alike() && !rules_.brought && results_[index(v)] == 0 && !users.empty() &&
           std::all_of(users.begin(), users.end(), [&](ValueId u) {
               const Op& op = fn_.op(u);
               const bool decays =
                   is_decay_apply(u) || (op.code == Opcode::DecayMatmul && is_fragment(decay_product(u)));
               const bool input = fn_.op(v).attrs.role == Role::Input;  // gates are numbers there, no image
               if (decays) return input && op.args[0] != v && op.args[1] != v;
               return is_sum(u) || is_running_sum(u) || (ir::is_elementwise(op.code) && is_matrix(u));
           });
}

Space Forms::product(ValueId v) const {
    const Op& op = fn_.op(v);
    for (std::size_t i = 0; i < 2; ++i)
        if (!is_matrix(op.args[i]))
            refuse(Reason::SizeOfOperand, ir::described(fn_, v), to_string(fn_.op(op.args[i]).type.shape));
    return fragment(v);
}

Space Forms::decay_product(ValueId v) const {
    const Op& op = fn_.op(v);
    return is_block_decay(op.type, fn_.op(op.args[0]).type) ? Space::Fragment : Space::Tile;
}

void Forms::elementwise(ValueId v) {
    if (stands_in_loop(v)) return;
    form_[index(v)] = is_matrix(v) ? from_fragment(v) : Space::Tile;
    decided_[index(v)] = form_[index(v)] != Space::Reg;
}

bool Forms::stands_in_loop(ValueId v) const {
    const auto& users = users_[index(v)];
    if (results_[index(v)] > 0 || users.empty()) return false;
    if (all_alike() && is_matrix(v) && fragments_read(v).size() > 1) return false;  // one takes the place of two
    if (!std::all_of(users.begin(), users.end(), [&](ValueId u) {
            return ir::is_elementwise(fn_.op(u).code) || is_sum(u) || is_operand_by_turns(u);
        }))
        return false;
    if (is_number_for_vectors(v)) return true;
    const std::set<ValueId> distinct(users.begin(), users.end());
    const bool bool_valued = fn_.op(v).type.dtype == DType::Bool;
    if (distinct.size() > 1 && !bool_valued && !is_cheap_again(v, distinct)) return false;
    return bool_valued || is_sum(*distinct.begin()) || fn_.op(*distinct.begin()).type.shape == fn_.op(v).type.shape ||
           !costly(fn_.op(v).code);
}

bool Forms::is_number_for_vectors(ValueId v) const {
    const auto is_here = [&](ValueId a) { return fn_.op(a).type.rank() == 0 && is_number(a); };
    const auto is_short = [&](ValueId u) { return fn_.op(u).type.rank() <= 1; };
    const Op& op = fn_.op(v);
    return op.type.rank() == 0 && std::all_of(op.args.begin(), op.args.end(), is_here) &&
           std::all_of(users_[index(v)].begin(), users_[index(v)].end(), is_short);
}

bool Forms::is_cheap_again(ValueId v, const std::set<ValueId>& users) const {
    const std::size_t fragments = fragments_read(v).size();
    return all_alike() && is_matrix(v) && !costly(fn_.op(v).code) &&
           (fragments == 1 || (fragments == 0 && rules_.made_again && is_light(v))) &&
           std::all_of(users.begin(), users.end(),
                       [&](ValueId u) { return is_sum(u) || fn_.op(u).type.shape == fn_.op(v).type.shape; });
}

bool Forms::is_light(ValueId v) const {
    const auto inlined = [&](ValueId u) { return u == v || (is_number(u) && ir::is_elementwise(fn_.op(u).code)); };
    return !ir::comes_from(fn_, v, [&](ValueId u) { return inlined(u) && costly(fn_.op(u).code); }, inlined);
}

std::vector<ValueId> Forms::fragments_read(ValueId v) const {
    std::vector<ValueId> found;
    std::set<ValueId> seen;
    add_fragments(v, found, seen);
    return found;
}

void Forms::add_fragments(ValueId v, std::vector<ValueId>& found, std::set<ValueId>& seen) const {
    for (const ValueId a : fn_.op(v).args) {
        if (!seen.insert(a).second) continue;
        if (is_fragment(form_[index(a)])) found.push_back(a);
        else if (form_[index(a)] == Space::Reg && ir::is_elementwise(fn_.op(a).code)) add_fragments(a, found, seen);
    }
}

Space Forms::from_fragment(ValueId v) const {
    const auto read = fragments_read(v);
    return read.empty() ? Space::Reg : form_[index(read.front())];
}

bool Forms::decays_operand(ValueId user, ValueId v) const {
    const Op& op = fn_.op(user);
    if (op.code == Opcode::DecayRows) return op.args[1] != v;
    if (op.code == Opcode::DecayMatmul) return is_fragment(form_[index(user)]) && op.args[2] != v;
    return is_decay_apply(user) && op.args[0] != v && op.args[2] != v;
}

bool Forms::is_read_often(ValueId v) const {
    const std::set<ValueId> users(users_[index(v)].begin(), users_[index(v)].end());
    return rules_.made_again && fragments_read(v).empty() &&
           std::count_if(users.begin(), users.end(), [&](ValueId u) { return ir::is_matmul(fn_.op(u).code); }) > 1;
}

Space Forms::wanted(ValueId v) const {
    bool operand = false, as_tile = false, summed = false;
    Space as_fragment = Space::Reg;
    for (const ir::Result& r : fn_.results) {
        if (r.value != v) continue;
        if (is_carried(r.role) || is_float_image(r, rules_)) as_fragment = fragment(v);
        else if (is_wide_spill(r, rules_)) return Space::Tile;
        else if (is_wide_output(r, rules_)) return all_alike() ? Space::Fragment : Space::Tile;
        else operand = true;
    }
    for (const ValueId u : users_[index(v)]) {
        const Op& user = fn_.op(u);
        if (ir::is_matmul(user.code)) {
            for (std::size_t i = 0; i < user.args.size(); ++i) {
                if (user.args[i] != v) continue;
                const Space first = first_operand_form(fn_, u, form_[index(u)]);
                if (i == 2) as_fragment = form_[index(u)];
                else if (i == first_operand(form_[index(u)]) && is_read(first) && !is_read_often(v))
                    as_fragment = first;
                else operand = true;
            }
        } else if (decays_operand(u, v)) {
            operand = true;
        } else if (user.code == Opcode::Interleave && form_[index(u)] == Space::Operand) {
            as_fragment = Space::Fragment;
        } else if (is_sum(u) || is_running_sum(u)) {
            summed = true;
        } else if (!ir::is_elementwise(user.code) || !is_fragment(evaluated(u))) {
            if (!all_alike() || !ir::is_elementwise(user.code)) return Space::Tile;
            as_tile = true;
        } else if (users_[index(v)].size() > 1) {
            if (!all_alike()) return Space::Tile;
            as_fragment = Space::Fragment;
        }
    }
    if (as_tile && (!operand || parts_of(fn_, v, rules_) > rules_.operand_parts)) return Space::Tile;
    if (summed) as_fragment = Space::Fragment;  // whatever products want: sums are over rows and columns of these
    return operand || as_fragment == Space::Reg ? Space::Operand : as_fragment;
}

}  // namespace forge::tile
