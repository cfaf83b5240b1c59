/// Decay products in fragments and what is made together with them: a second product of the same second operand and
/// gates, rows that are stored with their decays, and the gates' sum.
#pragma once

#include <vector>

#include "tile/lower.h"

namespace forge::tile {

struct DecayGroup {
    struct Factor {
        ir::ValueId product = ir::kNoValue, rows = ir::kNoValue;  ///< rows: kNoValue if they are not wanted
    };
    std::vector<Factor> factors;      ///< one or two
    ir::ValueId rows = ir::kNoValue;  ///< of the second operand
    ir::ValueId sum = ir::kNoValue;

    [[nodiscard]] ir::ValueId head() const { return factors[0].product; }
    [[nodiscard]] std::vector<ir::ValueId> members() const;  ///< the head first
};

/// The groups of a function whose values have forms, in order of their heads.
std::vector<DecayGroup> decay_groups(const ir::Function& fn);
/// Whether every group's members stand side by side, as what is made together must.
bool are_gathered(const ir::Function& fn);
/// The same operations in an order in which they do. Which product rows and sums are made with follows from the order
/// of the products, so that moving one group may change another.
ir::Function gathered(const ir::Function& fn);
/// Floats of memory for the running sums of gates within blocks, `factors`: and for what decays between blocks.
std::int64_t gate_sums_floats(const ir::Type& gates, bool factors);
/// Floats that a group needs while it is made.
std::int64_t group_floats(const ir::Function& fn, const DecayGroup& group);

/// Whether a decay product of these operands can be a fragment: matrices of whole blocks, 64 rows.
bool is_block_decay(const ir::Type& product, const ir::Type& q);
/// The kernel with `decay_rows`, if all its decay products can be fragments; `multiplied`: graph::decay_rows.
ir::Function with_decay_rows(const ir::Function& fn, const Sizes& sizes, bool multiplied);
/// Whether a function's gates are read by decay groups alone, from where they lie in global memory.
bool only_decays(const ir::Function& fn, ir::ValueId gates);
/// Whether an input is read by one decay group alone, as its only first operand: then from where it lies, as each
/// number is read once, and with a second one there would be no registers to ask for it ahead.
bool only_first_factor(const ir::Function& fn, ir::ValueId input);

}  // namespace forge::tile
