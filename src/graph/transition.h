/// The transition of a state over one chunk, S -> D∘S + B, as an algebraic object derived from the program: its class,
/// what it depends on, and functions that compute summaries of segments (D and B composed over chunks) and carry states
/// through them. Segments, sequence parallelism and the reverse scan stand on this.
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

/// The state-bound slice for summaries: parameters with role State start from zero and become B; those with role Ones
/// (factors) or Eye (matrices), named like the state, become D; the results have the same roles. Throws CompileError
/// with the obstacle.
ir::Function summary(const ir::Function& program);

/// The same without transitions: B alone.
ir::Function input_summary(const ir::Function& program);

/// Whether the columns of a matrix transition are what the program makes of the columns of the identity: all states are
/// matrices [K, axis] of one K that are multiplied from the left, and nothing is added to them where all that has the
/// axis is zero.
bool acts_on_columns(const ir::Function& program, const std::string& axis);

/// The whole program with the factors of its states' transitions beside the states: the parameters and results with
/// role Ones or Eye of `summary`, and all of its own. Of the states named alone. Throws CompileError with the obstacle.
ir::Function with_transitions(const ir::Function& program, const std::vector<std::string>& states);

/// What a rank tells of its tokens: the program without its outputs, whose states from zero are B, and beside each of
/// the states `carried` that has a factor or matrix a further state, transition_name(state), that is D if it starts
/// from ones or from the identity. Other states, sums over tokens that nobody carries on, are left out. Throws
/// CompileError with the obstacle.
ir::Function rank_summary(const ir::Function& program, const std::vector<std::string>& carried);

/// One step over a summary: from State `s` and the Spills `s.transition` and `s.input` to State `s`, with the incoming
/// state as the Spill result `s.carry`.
ir::Function carry(const ir::Function& program);

/// Names under which summaries and carries pass from kernel to kernel.
std::string transition_spill(const std::string& state);
std::string input_spill(const std::string& state);
std::string carry_spill(const std::string& state);
std::string final_spill(const std::string& state);  ///< as the last task leaves it, for the end
/// The state of a rank's summary that is another state's transition.
std::string transition_name(const std::string& state);

}  // namespace forge::graph
