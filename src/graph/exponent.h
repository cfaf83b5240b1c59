/// Exponents as linear combinations. A value is split into a product of plain factors and exp(sum of terms), where a
/// term is a multiple of a gate `g`, of its running sum over the tokens, or of its total. Stabilisation works on these.
#pragma once

#include <vector>

#include "ir/function.h"

namespace forge::graph {

/// coefficient * {g, cumsum(g, 0), sum(g, 0)}, laid into a larger value: dimension d of the atom is dimension axes[d]
/// of the value.
struct Term {
    enum class Kind : std::uint8_t { Plain, Prefix, Total } kind = Kind::Plain;
    double coefficient = 1;
    ir::ValueId g = ir::kNoValue;
    std::int64_t repeat = 1;  ///< rows of the atom stand `repeat` times in the value (repeat_interleave)
    std::vector<int> axes;

    [[nodiscard]] bool same_atom(const Term& o) const {
        return kind == o.kind && g == o.g && repeat == o.repeat && axes == o.axes;
    }
};
using Terms = std::vector<Term>;

inline constexpr std::size_t kMostFactors = 64;  ///< a product of more is a factor itself

struct Factored {
    std::vector<ir::ValueId> factors;
    Terms exponent;
};

/// The exponent `e` as terms; what is not understood is a Plain term of its own.
Terms linear_terms(const ir::Function& fn, ir::ValueId e);
/// v = product of factors * exp(terms). Emits views of factors where a view stands around a product.
Factored factor(ir::Function& fn, ir::ValueId v);
/// Whether an exponential takes part in the product tree of v at all.
bool has_exponential(const ir::Function& fn, ir::ValueId v);

void add_term(Terms& terms, Term term);
/// Takes the coefficient of an atom out of the list; 0 if it is not there.
double take(Terms& terms, Term::Kind kind, ir::ValueId g, std::int64_t repeat, const std::vector<int>& axes);

/// exp(terms) as a value of the given rank, in the safe form: total - running sum is a running sum from the end,
/// running sum - own element an exclusive one. kNoValue if there are no terms.
ir::ValueId emit_exp(ir::Function& fn, Terms terms, int rank, const Location& where);
/// A linear combination in which totals and running sums of a gate cancel, in the same safe form: what an exponent is
/// compared with, its maximum say, must be what is exponentiated. v itself if nothing cancels.
ir::ValueId with_safe_sums(ir::Function& fn, ir::ValueId v);
/// product of factors * exp(terms), of the given rank.
ir::ValueId emit_product(ir::Function& fn, const Factored& product, int rank, const Location& where);

}  // namespace forge::graph
