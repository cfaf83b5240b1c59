/// The graph passes: pure functions from a function to an equivalent one, one file each. The pipeline (pipeline.h)
/// names and orders them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/function.h"

namespace forge::graph {

/// Everything in float32: conversions and cache_result vanish; parameters keep their storage type in the plan. For back
/// ends that compute in float32 throughout.
ir::Function widen(const ir::Function& fn);
/// Constants folded, x*1 and x+0 dropped, views pushed outwards or merged, transposes folded into products,
/// select(cumsum(g), -1) = sum(g) and what follows from it, triangles and last rows of decay masks, negations and
/// divisions by constants in one form.
ir::Function canonicalize(const ir::Function& fn);
/// The three of them until nothing changes.
ir::Function simplify(const ir::Function& fn);
/// Equal ops on equal operands become one.
ir::Function cse(const ir::Function& fn);
/// Ops that no result needs are dropped.
ir::Function dce(const ir::Function& fn);
/// Decays in a safe form: exponents that are differences of running sums become sums over the tokens between, so that
/// every gate in [-inf, 0] gives a finite, accurate result. See stabilize.cpp for the forms recognised.
ir::Function stabilize(const ir::Function& fn);
/// a@x ± a@y = a@(x ± y): products that share a factor become one, so that no product with the state is done twice and
/// no K x K matrix is formed.
ir::Function reassociate(const ir::Function& fn);
/// l2norm, softmax in terms of reductions and elementwise ops.
ir::Function decompose(const ir::Function& fn);
/// What is done alike to each row of tokens that have several is done to all at once: see join_rows.cpp.
ir::Function join_rows(const ir::Function& fn);
/// c + a@b and c - a@b as accumulating products; marks structural zeros that products may skip.
ir::Function fuse_products(const ir::Function& fn);
/// Products, triangles and sums of -x are those of x, and adding it is subtracting x: the bits are the same, and no
/// matrix is stored twice for its sign. Of gradients, in which the delta rules leave such matrices.
ir::Function move_signs(const ir::Function& fn);
/// The row sums of x * (a b), times a scale of rows, are those of a * ((x scaled) b^T): where a gradient has the second
/// product anyway, the first is not made.
ir::Function share_products(const ir::Function& fn);
/// A product with some rows of its second operand masked is that with all of them, where the program has it, masked.
ir::Function share_masked_products(const ir::Function& fn);
/// Products of scores with each of a token's rows are one product with all of them. For back ends whose products take
/// inputs where they lie.
ir::Function join_products(const ir::Function& fn);
/// Elementwise products with a decay mask begin with the factors that they have in common, and (x + y) m is x m + y m
/// where x m and y m are parts of other products. Of gradients: a mask, worked out wherever it is read, is in many.
ir::Function share_factors(const ir::Function& fn);
/// Of inputs' pads by name, those of matrices that mask_pads can make zeros.
std::map<std::string, double> maskable_pads(const ir::Function& fn, std::map<std::string, double> pads);
/// Inputs that are padded by these numbers are zero behind a sequence's end, and what reads them adds the padding
/// there, by the token mask. For back ends that load matrices with zeros only.
ir::Function mask_pads(const ir::Function& fn, const std::map<std::string, double>& pads);
/// Products with a vector are sums of elementwise products, those of two vectors elementwise products. After
/// fuse_products, for back ends whose products are of matrices.
ir::Function vector_products(const ir::Function& fn);
/// t@b - (t@a)@s = t@(b - a@s). After fuse_products, for back ends that would store t@a.
ir::Function late_factors(const ir::Function& fn);
/// Scales of rows and columns leave the operands of products. After fuse_products, for back ends whose products read
/// inputs as they came; `value_axis`: where results have it as columns, the second operand comes from registers, else
/// the first. `sizes`, of a task: of results that are large numbers stay with an operand.
ir::Function hoist_scales(const ir::Function& fn, const std::string& value_axis,
                          const std::map<std::string, std::int64_t>& sizes = {});
/// Scales come together and move to values that need neither states nor the value axis. After hoist_scales, for back
/// ends that make such values ahead.
ir::Function merge_scales(const ir::Function& fn, const std::string& value_axis);
/// A product with an inverse that states wait for is multiplied ahead by what it is multiplied by next. After
/// merge_scales, for back ends that make such values ahead.
ir::Function fold_factors(const ir::Function& fn, const std::string& value_axis);
/// Of two products that are summed, the one that waits longest for its operands is accumulated onto the other.
ir::Function deepest_last(const ir::Function& fn);
/// Products are added to carried states in fp32, not by the matrix units. For operands of several parts.
ir::Function sum_apart(const ir::Function& fn);
/// Rows of a decay product's operands that are stored with their decays from the chunk's beginning, or to its end:
/// `decay_rows` of the same gates, which follow from the product's own numbers. Results that something else reads as
/// well stay as they are. `multiplied`: of the second operand also rows that other products read, and nothing else.
ir::Function decay_rows(const ir::Function& fn, bool multiplied = false);

/// The program with the states before the chunk among its results.
ir::Function with_chunk_states(const ir::Function& program);
/// A program with saved states (graph/saved_states.h) that does not make them anew: each is a parameter, whether it is
/// read or not.
ir::Function with_given_states(const ir::Function& program);

}  // namespace forge::graph
