#include <fmt/format.h>

#include <map>

#include "forge/error.h"
#include "tile/forms.h"
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
        if (rules_.operand_parts > 1) leave_floats();
        return std::move(out_);
    }

  private:
    /// Images that no product multiplies stay as they arrive, in the room of two parts.
    void leave_floats() {
        for (ValueId v = 0; v < out_.size(); ++v) {
            Op& op = out_.op(v);
            const bool image =
                op.code == Opcode::Param && op.attrs.role == Role::Spill && rules_.float_images.contains(op.attrs.name);
            if (image && op.layout->space == Space::Operand && !is_multiplied(out_, v)) op.layout->parts = 2;
        }
    }

    ValueId add(Op op, Space form) {
        const bool loop = ir::is_elementwise(op.code) || op.code == Opcode::Copy;
        if (loop && op.type.rank() > 2)
            refuse(Reason::ManyAxes, fmt::format("the {}", ir::info(op.code).name), op.type.rank());
        op.layout = Layout{};
        op.layout->space = form;
        const ValueId v = out_.add(std::move(op));
        const bool image = form == Space::Spill && out_.op(v).attrs.role == Role::Spill;
        if (form == Space::Operand || image) out_.op(v).layout->parts = parts_of(out_, v, rules_);
        if (form == Space::Fragment) out_.op(v).layout->parts = parts_within(out_.op(v));
        if (out_.op(v).code == Opcode::DecayMask && rules_.operand_parts > 1)
            out_.op(v).layout->parts = 2;  // sums and their rests
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
            forms_.is_running_sum(v) || forms_.is_mask_in_loops(v) || forms_.is_rows_beside(v) ||
            forms_.is_operand_by_turns(v))
            return false;
        if (from.code == Opcode::DecayMask) return operand_form(v, i, v) == Space::Tile;
        if (ir::is_view(op.code) || from.type.rank() == 0) return false;  // functions take a number as one
        if (operand_form(v, i, v) == Space::Operand) return false;        // a copy is made, whatever it is made of
        if (forms_[op.args[i]] == Space::Reg) return true;
        if (forms_[op.args[i]] != Space::Tile || !ir::is_view(from.code)) return false;
        const Layout layout = eventual_layout(fn_, op.args[i], kFragmentRules);
        const bool alike = op.type.rank() == 2 && layout.strides.size() == 2 && layout.strides[1] == 0;
        if (op.code == Opcode::LinearScan && i == 0 && alike && !op.attrs.reverse && !op.attrs.exclusive) return false;
        return !contiguous_rows(from.type, layout);
    }

    /// `reader`: in whose loop the value stands, or itself.
    [[nodiscard]] Space operand_form(ValueId v, std::size_t i, ValueId reader) const {
        const Op& op = fn_.op(v);
        const Space now = forms_[op.args[i]];
        if (ir::is_matmul(op.code)) {
            if (i == 2) return forms_[v];
            if (i != first_operand(forms_[v])) return Space::Operand;
            const bool precise = parts_of(fn_, op.args[i], rules_) > rules_.operand_parts;  // … than registers hold
            return now == first_operand_form(fn_, v, forms_[v]) && !precise ? now : Space::Operand;
        }
        if (forms_.is_running_sum(v)) return Space::Fragment;
        if (now == Space::Spill || (forms_[v] == Space::Reg && part_in_place(fn_, v)))
            return now;  // read where it lies
        if (op.code == Opcode::DecayMatmul && is_fragment(forms_[v]) && i < 2) return Space::Operand;
        if (op.code == Opcode::DecayRows && i == 0) return Space::Operand;
        if (forms_.is_decay_apply(v)) return i == 1 ? Space::Operand : Space::Tile;
        if (op.code == Opcode::Inverse && is_fragment(forms_[v])) return forms_[v];
        if (forms_.is_operand_by_turns(v)) return now == Space::Reg ? now : Space::Tile;
        if (op.code == Opcode::Interleave && forms_[v] == Space::Operand)
            return is_fragment(now) ? now : Space::Fragment;
        if (now == Space::Reg || forms_.is_sum(v) || forms_.is_mask_in_loops(v)) return now;
        if (forms_.is_rows_beside(v) && now == Space::Operand) return now;
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
        return rules_.block_tiles > 1 || (rules_.output_groups > 0 && rules_.stages > 1 && !rules_.masks_in_loops);
    }

    ValueId in_form(ValueId v, Space form) {
        const ValueId mapped = map_[static_cast<std::size_t>(v)];
        if (forms_[v] == form) return mapped;
        if (const auto it = made_.find({v, form}); it != made_.end()) return it->second;
        const Op& from = out_.op(mapped);
        if (is_fragment(form) && from.layout->space == Space::Operand && from.layout->parts != rules_.operand_parts)
            throw InternalError("tile: a precise operand is read elementwise: " + ir::described(fn_, v));
        Op copy{Opcode::Copy, from.type, {mapped}, {}, from.name, from.where, std::nullopt};
        return made_[{v, form}] = add(std::move(copy), form);
    }

    /// Results are stored from operands, those of 32 bits from fragments or, as vectors, from tiles of their own;
    /// states are kept as fragments.
    ValueId stored(const ir::Result& r) {
        const Op& op = fn_.op(r.value);
        if (forms_[r.value] == Space::Spill || r.role == ir::Role::Before)
            return map_[static_cast<std::size_t>(r.value)];
        const bool matrix = is_block_matrix(op.type);
        if (is_wide_output(r, rules_) && is_fragment(forms_[r.value])) return map_[static_cast<std::size_t>(r.value)];
        if (is_float_image(r, rules_) && is_fragment(forms_[r.value])) return map_[static_cast<std::size_t>(r.value)];
        if (is_carried(r.role)) return matrix ? in_form(r.value, forms_.fragment(r.value)) : fresh(r.value);
        if (r.role == ir::Role::Spill && is_part_of_tile(r.value)) return map_[static_cast<std::size_t>(r.value)];
        return matrix && !is_wide_output(r, rules_) && !is_wide_spill(r, rules_) ? in_form(r.value, Space::Operand)
                                                                                 : fresh(r.value);
    }

    /// Of a task of a single chunk, a number that is part of what lies in a tile: it is stored from there.
    [[nodiscard]] bool is_part_of_tile(ValueId v) const {
        const ValueId from = buffer_of(fn_, v);
        return rules_.stages == 1 && from != v && fn_.op(v).type.rank() == 0 && forms_[v] == Space::Tile &&
               forms_[from] == Space::Tile && fn_.op(from).code != Opcode::Param;
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
