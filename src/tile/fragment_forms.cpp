#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "forge/error.h"
#include "tile/decay_group.h"
#include "tile/fragment_steps.h"
#include "tile/layout.h"
#include "tile/order.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Space = Layout::Space;

bool is_wide_output(const ir::Result& r, const FragmentRules& rules) {
    return r.role == Role::Input && rules.wide_outputs.contains(r.name);
}

bool is_wide_spill(const ir::Result& r, const FragmentRules& rules) {
    return r.role == Role::Spill && rules.wide_spills.contains(r.name);
}

/// Which operand of a product shares its result's rows as the fragment has them, and the form it would have in
/// registers.
std::size_t first_operand(Space result) { return result == Space::Transposed ? 1 : 0; }
Space first_operand_form(const Function& fn, ValueId v, Space result) {
    const Op& op = fn.op(v);
    if (result == Space::Transposed) return op.attrs.trans_b ? Space::Fragment : Space::Transposed;
    return op.attrs.trans_a ? Space::Transposed : Space::Fragment;
}

/// The form of every value of a function whose types are sizes.
class Forms {
  public:
    Forms(const Function& symbolic, const Function& fn, const FragmentRules& rules)
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

    [[nodiscard]] Space operator[](ValueId v) const { return form_[index(v)]; }

    /// The form in which an elementwise value is evaluated: its own, or that of the loop it stands in.
    [[nodiscard]] Space evaluated(ValueId v) const {
        while (form_[index(v)] == Space::Reg && !users_[index(v)].empty()) v = users_[index(v)][0];
        return is_sum(v) ? Space::Fragment : form_[index(v)];
    }

    /// Whether all fragments are of matrices themselves, so that one form suits all loops.
    [[nodiscard]] bool all_alike() const { return rules_.value_axis.empty(); }
    /// Whether the threads sum what they hold of a matrix, or find the greatest.
    [[nodiscard]] bool is_sum(ValueId v) const {
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

    /// Whether a matrix is elementwise work on inputs and vectors alone.
    [[nodiscard]] bool is_made_of_inputs(ValueId v) const {
        return !comes_from(v, [&](ValueId u) {
            const Op& op = fn_.op(u);
            return op.code == Opcode::Param ? op.attrs.role != Role::Input : !ir::is_elementwise(op.code);
        });
    }

    /// Whether a matrix is elementwise work on a product.
    [[nodiscard]] bool is_made_of_product(ValueId v) const {
        return comes_from(
            v, [&](ValueId u) { return ir::is_matmul(fn_.op(u).code) || fn_.op(u).code == Opcode::DecayMatmul; });
    }

    /// Whether elementwise work on matrices alone leads from such a matrix to this one.
    [[nodiscard]] bool comes_from(ValueId v, const std::function<bool(ValueId)>& is_wanted) const {
        return ir::comes_from(
            fn_, v, [&](ValueId u) { return is_matrix(u) && is_wanted(u); },
            [&](ValueId u) { return is_matrix(u) && ir::is_elementwise(fn_.op(u).code); });
    }

    /// Whether a value stands in the loop of such a sum.
    [[nodiscard]] bool is_summed(ValueId v) const {
        while (form_[index(v)] == Space::Reg && !users_[index(v)].empty()) v = users_[index(v)][0];
        return is_sum(v);
    }

    /// Whether the threads make running sums, or what decays from token to token, of what they hold of a matrix.
    [[nodiscard]] bool is_running_sum(ValueId v) const {
        const Op& op = fn_.op(v);
        return all_alike() && op.code == Opcode::Cumsum && op.attrs.dim == 0 && is_matrix(v) &&
               op.type.shape[0].factor == kBlock;
    }
    [[nodiscard]] bool is_decay_apply(ValueId v) const {
        const Op& op = fn_.op(v);
        return all_alike() && op.code == Opcode::DecayApply && is_block_decay(fn_.op(op.args[0]).type, op.type);
    }

    /// Whether a decay mask between tokens of several rows each is worked out in the loops that read it.
    [[nodiscard]] bool is_mask_in_loops(ValueId v) const {
        return form_[index(v)] == Space::Reg && repeated_mask(fn_, v).has_value();
    }

    /// Of a matrix whose columns run along the value axis, or of any other. Groups that only make outputs have no
    /// states to chain: theirs are never transposed, so that scores feed the product with values from registers.
    [[nodiscard]] Space fragment(ValueId v) const {
        if (!outputs_.empty() && outputs_[index(v)]) return Space::Fragment;
        const Shape& shape = symbolic_.op(v).type.shape;
        return !rules_.value_axis.empty() && shape[1].symbol == rules_.value_axis &&
                       shape[0].symbol != rules_.value_axis
                   ? Space::Transposed
                   : Space::Fragment;
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    /// Of a mask, by rows or columns, and by nothing that has to find it in memory.
    [[nodiscard]] bool is_repeated_mask(ValueId v) const {
        const auto& users = users_[index(v)];
        return repeated_mask(fn_, v) &&
               std::none_of(users.begin(), users.end(), [&](ValueId u) { return ir::is_view(fn_.op(u).code); });
    }

    /// Of a matrix, whose rows loops find where they lie once.
    [[nodiscard]] bool is_repeated_rows(ValueId v) const {
        const Op& op = fn_.op(v);
        const auto& users = users_[index(v)];
        return all_alike() && op.code == Opcode::RepeatInterleave && op.attrs.dim == 0 && is_matrix(v) &&
               results_[index(v)] == 0 && !users.empty() && std::all_of(users.begin(), users.end(), [&](ValueId u) {
                   return ir::is_elementwise(fn_.op(u).code) && fn_.op(u).type.shape == op.type.shape;
               });
    }

    /// Some rows or columns of an operand, which loops find where they lie, rather than in a tile of it all.
    void find_parts_in_place() {
        std::vector<bool> in_place(form_.size()), reads(form_.size());  // … and elementwise values in such loops alone
        for (ValueId v = fn_.size() - 1; v >= 0; --v) {
            const auto& users = users_[index(v)];
            const auto is_read_so = [&](ValueId u) { return reads[index(u)]; };
            const auto suits = [&](ValueId u) {
                return in_place[index(u)] || (reads[index(u)] && fn_.op(u).type.shape == fn_.op(v).type.shape);
            };
            if (ir::is_elementwise(fn_.op(v).code) && !is_sum(v))
                reads[index(v)] = form_[index(v)] != Space::Reg ? in_memory(form_[index(v)]) || all_alike()
                                                                : std::all_of(users.begin(), users.end(), is_read_so);
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

    /// What no carried state needs.
    void find_outputs() {
        std::vector<ValueId> carried;
        for (const ir::Result& r : fn_.results)
            if (is_carried(r.role)) carried.push_back(r.value);
        outputs_ = ir::needed_for(fn_, carried);
        outputs_.flip();
    }

    [[nodiscard]] bool is_matrix(ValueId v) const { return is_block_matrix(fn_.op(v).type); }

    [[nodiscard]] bool is_number(ValueId v) const { return form_[index(v)] == Space::Reg && decided_[index(v)]; }

    void decide(ValueId v) {
        const Op& op = fn_.op(v);
        decided_[index(v)] = true;
        if (op.code == Opcode::Param) form_[index(v)] = parameter(v);
        else if (op.code == Opcode::Constant || op.code == Opcode::Identity) form_[index(v)] = Space::Reg;
        else if (ir::is_view(op.code) && fn_.op(op.args[0]).code == Opcode::Identity)
            refuse(Reason::PartOfIdentity, ir::described(fn_, v));
        else if (ir::is_view(op.code))  // of a number, or of what will be a tile because a view reads it
            form_[index(v)] = is_number(op.args[0]) ? Space::Reg : Space::Tile;
        else if (ir::is_matmul(op.code)) form_[index(v)] = product(v);
        else if (op.code == Opcode::DecayMatmul) form_[index(v)] = decay_product(v);
        else if (op.code == Opcode::Inverse) form_[index(v)] = is_fragment_inverse(op) ? Space::Fragment : Space::Tile;
        else if (op.code == Opcode::DecayMask && op.type.shape[0].factor != kBlock)
            refuse(Reason::SeveralRows, ir::described(fn_, v));
        else if (is_repeated_mask(v) || is_repeated_rows(v)) form_[index(v)] = Space::Reg;  // wherever it is read
        else if (op.code == Opcode::DecayRows) form_[index(v)] = Space::Spill;  // written as soon as it is known
        else if (is_running_sum(v) || is_decay_apply(v)) form_[index(v)] = Space::Fragment;
        else if (!ir::is_elementwise(op.code)) form_[index(v)] = Space::Tile;
        else elementwise(v);
    }

    [[nodiscard]] Space parameter(ValueId v) const {
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
                return lies_where_read(v) && !is_wide_part(op) ? Space::Spill : Space::Operand;
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

    /// Whether it may be some rows of an image of several panels, which do not lie there in one piece.
    static bool is_wide_part(const Op& spill) { return !spill.attrs.at.empty() && size_of(spill.type, 1) > kBlock; }

    [[nodiscard]] Space input(ValueId v) const {
        const Op& op = fn_.op(v);
        if (op.type.rank() == 1) return Space::Tile;
        const FragmentRules::Input& in = rules_.inputs.at(op.attrs.name);
        if (op.type.rank() != 2 || !is_matrix(v)) refuse(Reason::SizeOfInput, op.attrs.name, to_string(op.type.shape));
        if (in.pad != 0) refuse(Reason::PaddedInput, op.attrs.name, in.pad);
        if (in.dtype == rules_.half)
            return results_[index(v)] == 0 && only_first_factor(fn_, v) ? Space::Spill : Space::Operand;
        return only_decays(fn_, v) || lies_where_read(v) ? Space::Spill : Space::Tile;
    }

    /// Whether a matrix is read by loops, sums and decays alone, which take it from global memory; of spills, whose
    /// numbers have 16 bits there, decays have the log decays in shared memory.
    [[nodiscard]] bool lies_where_read(ValueId v) const {
        const auto& users = users_[index(v)];
        return all_alike() && results_[index(v)] == 0 && !users.empty() &&
               std::all_of(users.begin(), users.end(), [&](ValueId u) {
                   const Op& op = fn_.op(u);
                   const bool decays =
                       is_decay_apply(u) || (op.code == Opcode::DecayMatmul && is_fragment(decay_product(u)));
                   const bool input = fn_.op(v).attrs.role == Role::Input;  // gates are numbers there, no image
                   if (decays) return input && op.args[0] != v && op.args[1] != v;
                   return is_sum(u) || is_running_sum(u) || (ir::is_elementwise(op.code) && is_matrix(u));
               });
    }

    [[nodiscard]] Space product(ValueId v) const {
        const Op& op = fn_.op(v);
        for (std::size_t i = 0; i < 2; ++i)
            if (!is_matrix(op.args[i]))
                refuse(Reason::SizeOfOperand, ir::described(fn_, v), to_string(fn_.op(op.args[i]).type.shape));
        return fragment(v);
    }

    [[nodiscard]] Space decay_product(ValueId v) const {
        const Op& op = fn_.op(v);
        return is_block_decay(op.type, fn_.op(op.args[0]).type) ? Space::Fragment : Space::Tile;
    }

    /// Numbers and vectors are tiles or stand in their user's loop, matrices that are computed from fragments
    /// fragments; for other matrices their users decide.
    void elementwise(ValueId v) {
        if (stands_in_loop(v)) return;
        form_[index(v)] = is_matrix(v) ? from_fragment(v) : Space::Tile;
        decided_[index(v)] = form_[index(v)] != Space::Reg;
    }

    [[nodiscard]] bool stands_in_loop(ValueId v) const {
        const auto& users = users_[index(v)];
        if (results_[index(v)] > 0 || users.empty()) return false;
        if (all_alike() && is_matrix(v) && fragments_read(v).size() > 1) return false;  // one takes the place of two
        if (!std::all_of(users.begin(), users.end(),
                         [&](ValueId u) { return ir::is_elementwise(fn_.op(u).code) || is_sum(u); }))
            return false;
        if (is_number_for_vectors(v)) return true;
        const std::set<ValueId> distinct(users.begin(), users.end());
        const bool bool_valued = fn_.op(v).type.dtype == DType::Bool;
        if (distinct.size() > 1 && !bool_valued && !is_cheap_again(v, distinct)) return false;
        return bool_valued || is_sum(*distinct.begin()) ||
               fn_.op(*distinct.begin()).type.shape == fn_.op(v).type.shape || !costly(fn_.op(v).code);
    }

    /// Of numbers that each thread has, and for loops over a vector at most, which one warp can make then.
    [[nodiscard]] bool is_number_for_vectors(ValueId v) const {
        const auto is_here = [&](ValueId a) { return fn_.op(a).type.rank() == 0 && is_number(a); };
        const auto is_short = [&](ValueId u) { return fn_.op(u).type.rank() <= 1; };
        const Op& op = fn_.op(v);
        return op.type.rank() == 0 && std::all_of(op.args.begin(), op.args.end(), is_here) &&
               std::all_of(users_[index(v)].begin(), users_[index(v)].end(), is_short);
    }

    /// Whether several loops had better work out a matrix each from the same fragment than hold it in registers too, or
    /// from what lies in shared memory in 16 bits than find it there in 32.
    [[nodiscard]] bool is_cheap_again(ValueId v, const std::set<ValueId>& users) const {
        const std::size_t fragments = fragments_read(v).size();
        return all_alike() && is_matrix(v) && !costly(fn_.op(v).code) &&
               (fragments == 1 || (fragments == 0 && rules_.made_again && is_light(v))) &&
               std::all_of(users.begin(), users.end(),
                           [&](ValueId u) { return is_sum(u) || fn_.op(u).type.shape == fn_.op(v).type.shape; });
    }

    /// Whether all that stands in the value's loop costs little.
    [[nodiscard]] bool is_light(ValueId v) const {
        const auto inlined = [&](ValueId u) { return u == v || (is_number(u) && ir::is_elementwise(fn_.op(u).code)); };
        return !ir::comes_from(fn_, v, [&](ValueId u) { return inlined(u) && costly(fn_.op(u).code); }, inlined);
    }

    /// The fragments that the value's loop reads, in the order of the operands.
    [[nodiscard]] std::vector<ValueId> fragments_read(ValueId v) const {
        std::vector<ValueId> found;
        std::set<ValueId> seen;
        add_fragments(v, found, seen);
        return found;
    }
    void add_fragments(ValueId v, std::vector<ValueId>& found, std::set<ValueId>& seen) const {
        for (const ValueId a : fn_.op(v).args) {
            if (!seen.insert(a).second) continue;
            if (is_fragment(form_[index(a)])) found.push_back(a);
            else if (form_[index(a)] == Space::Reg && ir::is_elementwise(fn_.op(a).code)) add_fragments(a, found, seen);
        }
    }

    /// The form of the first fragment that the value's loop reads; Reg if it reads none.
    [[nodiscard]] Space from_fragment(ValueId v) const {
        const auto read = fragments_read(v);
        return read.empty() ? Space::Reg : form_[index(read.front())];
    }

    /// Whether one of the operations on decays reads a matrix as an operand: neither as gates nor as a triangle.
    [[nodiscard]] bool decays_operand(ValueId user, ValueId v) const {
        const Op& op = fn_.op(user);
        if (op.code == Opcode::DecayRows) return op.args[1] != v;
        if (op.code == Opcode::DecayMatmul) return is_fragment(form_[index(user)]) && op.args[2] != v;
        return is_decay_apply(user) && op.args[0] != v && op.args[2] != v;
    }

    /// Whether loops may evaluate matrices in a form. Where all fragments are alike they read operands and spills in
    /// place, row by row: of those a transpose could not be had so.
    [[nodiscard]] bool is_read(Space form) const { return form != Space::Transposed || !all_alike(); }

    /// Whether several products read a matrix that is made of no fragment: there is room for it in shared memory.
    [[nodiscard]] bool is_read_often(ValueId v) const {
        const std::set<ValueId> users(users_[index(v)].begin(), users_[index(v)].end());
        return rules_.made_again && fragments_read(v).empty() &&
               std::count_if(users.begin(), users.end(), [&](ValueId u) { return ir::is_matmul(fn_.op(u).code); }) > 1;
    }

    /// The form that suits the users of an elementwise matrix.
    [[nodiscard]] Space wanted(ValueId v) const {
        bool operand = false, as_tile = false, summed = false;
        Space as_fragment = Space::Reg;
        for (const ir::Result& r : fn_.results) {
            if (r.value != v) continue;
            if (is_carried(r.role)) as_fragment = fragment(v);
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
        if (as_tile && (!operand || parts_of(fn_, v, rules_) > 1)) return Space::Tile;
        if (summed) as_fragment = Space::Fragment;  // whatever products want: sums are over rows and columns of these
        return operand || as_fragment == Space::Reg ? Space::Operand : as_fragment;
    }

    const Function& symbolic_;
    const Function& fn_;
    const FragmentRules& rules_;
    std::vector<std::vector<ValueId>> users_;
    std::vector<int> results_;
    std::vector<bool> outputs_;  ///< empty: one warp group does everything
    std::vector<Space> form_;
    std::vector<bool> decided_;
};

/// The function with a copy wherever a value is wanted in another form.
class Copies {
  public:
    Copies(const Function& fn, const Forms& forms, const FragmentRules& rules) : fn_(fn), forms_(forms), rules_(rules) {
        out_.name = fn.name;
    }

    Function run() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            Op op = fn_.op(v);
            for (std::size_t i = 0; i < op.args.size(); ++i) op.args[i] = operand(v, i);
            map_.push_back(add(std::move(op), forms_[v]));
        }
        for (ir::Result r : fn_.results) {
            r.value = stored(r);
            out_.results.push_back(r);
        }
        return std::move(out_);
    }

  private:
    ValueId add(Op op, Space form) {
        op.layout = Layout{};
        op.layout->space = form;
        const ValueId v = out_.add(std::move(op));
        const bool image = form == Space::Spill && out_.op(v).attrs.role == Role::Spill;
        if (form == Space::Operand || image) out_.op(v).layout->parts = parts_of(out_, v, rules_);
        if (form == Space::Fragment) out_.op(v).layout->parts = parts_within(out_.op(v));
        return v;
    }

    /// The parts in which a product multiplies what decays: tf32 has the 11 bits of an f16, so that its rounding would
    /// count as much as that of the scores, and in the gradient of a gate, a difference of sums of such products that
    /// is small where hardly anything is left of the tokens before, for many times that.
    [[nodiscard]] int parts_within(const Op& op) const {
        const bool decays = op.code == Opcode::DecayMatmul || op.code == Opcode::DecayApply;
        return decays && rules_.half == DType::F16 ? 2 : 1;
    }

    ValueId operand(ValueId v, std::size_t i) {
        const ValueId a = fn_.op(v).args[i];
        if (lies_apart(v, i)) return fresh(a);
        const bool truth = forms_[a] == Space::Reg && fn_.op(a).type.dtype == DType::Bool;
        return truth && forms_.evaluated(a) != forms_.evaluated(v) ? again(a, v) : in_form(a, operand_form(v, i, v));
    }

    /// Truth values stand in loops over matrices of several forms, each of which reads what lies as it needs it.
    ValueId again(ValueId v, ValueId reader) {
        Op op = fn_.op(v);
        for (std::size_t i = 0; i < op.args.size(); ++i) {
            const ValueId a = op.args[i];
            const bool inside = forms_[a] == Space::Reg && ir::is_elementwise(fn_.op(a).code);
            op.args[i] = inside ? again(a, reader) : in_form(a, operand_form(v, i, reader));
        }
        return add(std::move(op), Space::Reg);
    }

    /// Whether an operand needs a tile of its own: a device function reads dense rows, and of a decay mask there are
    /// only the sums that loops work it out from.
    [[nodiscard]] bool lies_apart(ValueId v, std::size_t i) const {
        const Op &op = fn_.op(v), &from = fn_.op(op.args[i]);
        if (ir::is_elementwise(op.code) || ir::is_matmul(op.code) || op.code == Opcode::Copy || forms_.is_sum(v) ||
            forms_.is_running_sum(v) || forms_.is_mask_in_loops(v))
            return false;
        if (from.code == Opcode::DecayMask) return operand_form(v, i, v) == Space::Tile;
        if (ir::is_view(op.code) || from.type.rank() == 0) return false;  // functions take a number as one
        if (operand_form(v, i, v) == Space::Operand) return false;        // a copy is made, whatever it is made of
        if (forms_[op.args[i]] == Space::Reg) return true;
        if (forms_[op.args[i]] != Space::Tile || !ir::is_view(from.code)) return false;
        return !contiguous_rows(from.type, eventual_layout(fn_, op.args[i], {4, true}));
    }

    /// `reader`: in whose loop the value stands, or itself.
    [[nodiscard]] Space operand_form(ValueId v, std::size_t i, ValueId reader) const {
        const Op& op = fn_.op(v);
        const Space now = forms_[op.args[i]];
        if (ir::is_matmul(op.code)) {
            if (i == 2) return forms_[v];
            if (i != first_operand(forms_[v])) return Space::Operand;
            const bool precise = parts_of(fn_, op.args[i], rules_) > 1;  // of which registers would hold one part
            return now == first_operand_form(fn_, v, forms_[v]) && !precise ? now : Space::Operand;
        }
        if (forms_.is_running_sum(v)) return Space::Fragment;
        if (now == Space::Spill || (forms_[v] == Space::Reg && part_in_place(fn_, v)))
            return now;  // read where it lies
        if (op.code == Opcode::DecayMatmul && is_fragment(forms_[v]) && i < 2) return Space::Operand;
        if (op.code == Opcode::DecayRows && i == 0) return Space::Operand;
        if (forms_.is_decay_apply(v)) return i == 1 ? Space::Operand : Space::Tile;
        if (op.code == Opcode::Inverse && is_fragment(forms_[v])) return forms_[v];
        if (now == Space::Reg || forms_.is_sum(v) || forms_.is_mask_in_loops(v)) return now;
        if (!ir::is_elementwise(op.code)) return Space::Tile;
        const Space loop = forms_.evaluated(reader);
        if (is_fragment(loop) && fn_.op(op.args[i]).code == Opcode::DecayMask && is_beside_products()) return loop;
        if (is_fragment(loop) && now == Space::Operand)
            return forms_.all_alike() || forms_.is_summed(reader) ? now : loop;
        if (is_fragment(loop)) return now == Space::Tile || now == loop ? now : Space::Tile;
        return is_fragment(now) ? Space::Tile : now;
    }

    /// Whether a decay mask had better be worked out while products are under way that its loop waits for: by a group
    /// that makes outputs, and nothing else.
    [[nodiscard]] bool is_beside_products() const {
        return rules_.block_tiles > 1 || (rules_.output_groups > 0 && rules_.stages > 1);
    }

    ValueId in_form(ValueId v, Space form) {
        const ValueId mapped = map_[static_cast<std::size_t>(v)];
        if (forms_[v] == form) return mapped;
        if (const auto it = made_.find({v, form}); it != made_.end()) return it->second;
        const Op& from = out_.op(mapped);
        if (is_fragment(form) && from.layout->space == Space::Operand && from.layout->parts != 1)
            throw InternalError("tile: a precise operand is read elementwise: " + ir::described(fn_, v));
        Op copy{Opcode::Copy, from.type, {mapped}, {}, from.name, from.where, std::nullopt};
        return made_[{v, form}] = add(std::move(copy), form);
    }

    /// Results are stored from operands, those of 32 bits and vectors from tiles of their own; states are kept as
    /// fragments.
    ValueId stored(const ir::Result& r) {
        const Op& op = fn_.op(r.value);
        if (forms_[r.value] == Space::Spill || r.role == ir::Role::Before)
            return map_[static_cast<std::size_t>(r.value)];
        const bool matrix = is_block_matrix(op.type);
        if (is_wide_output(r, rules_) && forms_[r.value] == Space::Fragment && forms_.all_alike())
            return map_[static_cast<std::size_t>(r.value)];
        if (is_carried(r.role)) return matrix ? in_form(r.value, forms_.fragment(r.value)) : fresh(r.value);
        return matrix && !is_wide_output(r, rules_) && !is_wide_spill(r, rules_) ? in_form(r.value, Space::Operand)
                                                                                 : fresh(r.value);
    }

    ValueId fresh(ValueId v) {
        const ValueId mapped = in_form(v, Space::Tile);
        const Op& op = out_.op(mapped);
        if (op.code != Opcode::Param && op.code != Opcode::DecayMask && !ir::is_view(op.code)) return mapped;
        return add(Op{Opcode::Copy, op.type, {mapped}, {}, op.name, op.where, std::nullopt}, Space::Tile);
    }

    const Function& fn_;
    const Forms& forms_;
    const FragmentRules& rules_;
    Function out_;
    std::vector<ValueId> map_;
    std::map<std::pair<ValueId, Space>, ValueId> made_;
};

}  // namespace

Function in_forms(const Function& symbolic, const Function& fn, const FragmentRules& rules) {
    return Copies(fn, Forms(symbolic, fn, rules), rules).run();
}

}  // namespace forge::tile
