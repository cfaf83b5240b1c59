/// The form of every value of a kernel for warp groups: as an operand, as a fragment or its transpose, as a tile of
/// floats, or in the loop that reads it.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "tile/fragments.h"

namespace forge::tile {

/// What does not fit the 16 bits of an operand.
bool is_wide_output(const ir::Result& r, const FragmentRules& rules);
bool is_wide_spill(const ir::Result& r, const FragmentRules& rules);
bool is_float_image(const ir::Result& r, const FragmentRules& rules);

/// Which operand of a product shares its result's rows as the fragment has them, and the form it would have in
/// registers.
std::size_t first_operand(ir::Layout::Space result);
ir::Layout::Space first_operand_form(const ir::Function& fn, ir::ValueId v, ir::Layout::Space result);

/// Of a function whose types are sizes.
class Forms {
    using Space = ir::Layout::Space;

  public:
    Forms(const ir::Function& symbolic, const ir::Function& fn, const FragmentRules& rules);

    [[nodiscard]] Space operator[](ir::ValueId v) const { return form_[index(v)]; }

    /// The form in which an elementwise value is evaluated: its own, or that of the loop it stands in.
    [[nodiscard]] Space evaluated(ir::ValueId v) const;

    /// Whether all fragments are of matrices themselves, so that one form suits all loops.
    [[nodiscard]] bool all_alike() const { return rules_.value_axis.empty(); }
    /// Whether the threads sum what they hold of a matrix, or find the greatest.
    [[nodiscard]] bool is_sum(ir::ValueId v) const;

    /// Whether a matrix is elementwise work on inputs and vectors alone.
    [[nodiscard]] bool is_made_of_inputs(ir::ValueId v) const;

    /// Whether a matrix is elementwise work on a product.
    [[nodiscard]] bool is_made_of_product(ir::ValueId v) const;

    /// Whether elementwise work on matrices alone leads from such a matrix to this one.
    [[nodiscard]] bool comes_from(ir::ValueId v, const std::function<bool(ir::ValueId)>& is_wanted) const;

    /// Whether a value stands in the loop of such a sum.
    [[nodiscard]] bool is_summed(ir::ValueId v) const;

    /// Whether the threads make running sums, or what decays from token to token, of what they hold of a matrix.
    [[nodiscard]] bool is_running_sum(ir::ValueId v) const;
    [[nodiscard]] bool is_decay_apply(ir::ValueId v) const;

    /// Whether the rows beside a matrix's are read in loops, rather than made in a tile of their own.
    [[nodiscard]] bool is_rows_beside(ir::ValueId v) const;

    /// Whether a decay mask between tokens of several rows each is worked out in the loops that read it.
    [[nodiscard]] bool is_mask_in_loops(ir::ValueId v) const;

    /// Whether an operand, of products and results alone, is two matrices column by column, by turns, as a loop over
    /// these makes them.
    [[nodiscard]] bool is_operand_by_turns(ir::ValueId v) const;

    /// Of a matrix whose columns run along the value axis, or of any other. Groups that only make outputs have no
    /// states to chain: theirs are never transposed, so that scores feed the product with values from registers.
    [[nodiscard]] Space fragment(ir::ValueId v) const;

  private:
    static std::size_t index(ir::ValueId v) { return static_cast<std::size_t>(v); }

    /// Of a mask, by rows or columns, and by nothing that has to find it in memory.
    [[nodiscard]] bool is_repeated_mask(ir::ValueId v) const;

    /// Of a matrix, whose rows loops find where they lie once.
    [[nodiscard]] bool is_repeated_rows(ir::ValueId v) const;

    /// Of an output with several rows per token, each of them a fragment: its image takes their rows by turns.
    [[nodiscard]] bool is_stored_by_turns(ir::ValueId v) const;

    /// Some rows or columns of an operand, which loops find where they lie, rather than in a tile of it all.
    void find_parts_in_place();

    /// What no carried state needs.
    void find_outputs();

    [[nodiscard]] bool is_matrix(ir::ValueId v) const { return is_block_matrix(fn_.op(v).type); }

    [[nodiscard]] bool is_number(ir::ValueId v) const { return form_[index(v)] == Space::Reg && decided_[index(v)]; }

    void decide(ir::ValueId v);

    [[nodiscard]] Space parameter(ir::ValueId v) const;

    /// Whether it may be some rows of an image of several panels, or parts, which do not lie there in one piece.
    [[nodiscard]] bool is_in_pieces(const ir::Op& spill) const {
        const bool parts = rules_.operand_parts > 1 && !rules_.float_images.contains(spill.attrs.name);
        return !spill.attrs.at.empty() && (parts || size_of(spill.type, 1) > kBlock);
    }

    [[nodiscard]] Space input(ir::ValueId v) const;

    /// Whether a matrix is read by loops, sums and decays alone, which take it from global memory; of spills, whose
    /// numbers have 16 bits there, decays have the log decays in shared memory.
    [[nodiscard]] bool lies_where_read(ir::ValueId v) const;

    [[nodiscard]] Space product(ir::ValueId v) const;

    [[nodiscard]] Space decay_product(ir::ValueId v) const;

    /// Numbers and vectors are tiles or stand in their user's loop, matrices that are computed from fragments
    /// fragments; for other matrices their users decide.
    void elementwise(ir::ValueId v);

    [[nodiscard]] bool stands_in_loop(ir::ValueId v) const;

    /// Of numbers that each thread has, and for loops over a vector at most, which one warp can make then.
    [[nodiscard]] bool is_number_for_vectors(ir::ValueId v) const;

    /// Whether several loops had better work out a matrix each from the same fragment than hold it in registers too, or
    /// from what lies in shared memory in 16 bits than find it there in 32.
    [[nodiscard]] bool is_cheap_again(ir::ValueId v, const std::set<ir::ValueId>& users) const;

    /// Whether all that stands in the value's loop costs little.
    [[nodiscard]] bool is_light(ir::ValueId v) const;

    /// The fragments that the value's loop reads, in the order of the operands.
    [[nodiscard]] std::vector<ir::ValueId> fragments_read(ir::ValueId v) const;
    void add_fragments(ir::ValueId v, std::vector<ir::ValueId>& found, std::set<ir::ValueId>& seen) const;

    /// The form of the first fragment that the value's loop reads; Reg if it reads none.
    [[nodiscard]] Space from_fragment(ir::ValueId v) const;

    /// Whether one of the operations on decays reads a matrix as an operand: neither as gates nor as a triangle.
    [[nodiscard]] bool decays_operand(ir::ValueId user, ir::ValueId v) const;

    /// Whether loops may evaluate matrices in a form. Where all fragments are alike they read operands and spills in
    /// place, row by row: of those a transpose could not be had so.
    [[nodiscard]] bool is_read(Space form) const { return form != Space::Transposed || !all_alike(); }

    /// Whether several products read a matrix that is made of no fragment: there is room for it in shared memory.
    [[nodiscard]] bool is_read_often(ir::ValueId v) const;

    /// The form that suits the users of an elementwise matrix.
    [[nodiscard]] Space wanted(ir::ValueId v) const;

    const ir::Function& symbolic_;
    const ir::Function& fn_;
    const FragmentRules& rules_;
    std::vector<std::vector<ir::ValueId>> users_;
    std::vector<int> results_;
    std::vector<bool> outputs_;  ///< empty: one warp group does everything
    std::vector<Space> form_;
    std::vector<bool> decided_;
};

}  // namespace forge::tile
