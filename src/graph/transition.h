/// The transition of a state over one chunk, S -> D∘S + B, as an algebraic object derived from the program: its class,
/// and what it depends on. Summaries of segments (graph/summary.h), sequence parallelism and the reverse scan stand on
/// it.
#pragma once

#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::graph {

enum class TransitionClass : std::uint8_t {
    Identity,                   ///< S + B
    Scalar,                     ///< d S + B
    DiagonalRows,               ///< diag(d) S + B: one factor per row (over K)
    DiagonalColumns,            ///< S diag(d) + B: one factor per column (over V)
    Elementwise,                ///< D * S + B, one factor per entry (of a vector state too)
    DiagonalMinusLowRankLeft,   ///< (diag(d) - A W) S + B with A W never formed outside a summary
    DiagonalMinusLowRankRight,  ///< S (diag(d) - A W) + B
    DenseLeft,                  ///< M S + B
    DenseRight,                 ///< S M + B
    Coupled,                    ///< another state takes part
    NotAffine,
};
const char* to_string(TransitionClass cls);

struct Transition {
    std::string state;
    TransitionClass cls = TransitionClass::Identity;
    bool data_dependent = false;  ///< on token inputs, rather than on per-head inputs and constants alone
    Shape summary;                ///< the shape of D as a summary stores it; empty for the identity
    std::string obstacle;         ///< Coupled, NotAffine: the op that stands in the way, as text
    Location where;               ///< … and its source line

    /// Whether segments of a sequence can be summarised and joined.
    [[nodiscard]] bool composable() const {
        return cls != TransitionClass::Coupled && cls != TransitionClass::NotAffine;
    }
    [[nodiscard]] bool multiplies_left() const {
        return cls == TransitionClass::DiagonalMinusLowRankLeft || cls == TransitionClass::DenseLeft;
    }
    [[nodiscard]] bool multiplies_right() const {
        return cls == TransitionClass::DiagonalMinusLowRankRight || cls == TransitionClass::DenseRight;
    }
    [[nodiscard]] bool is_matrix() const { return multiplies_left() || multiplies_right(); }
};

/// One per state, in the order of the program's results. `program` is optimised.
std::vector<Transition> transitions(const ir::Function& program);

}  // namespace forge::graph
