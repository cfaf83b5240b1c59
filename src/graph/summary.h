/// What segments of a sequence, and ranks, tell of their tokens: S' = D S + B, of which D is the product of the chunks'
/// transitions (graph/transition.h) and B what becomes of a state from zero.
#pragma once

#include <string>
#include <vector>

#include "graph/transition.h"

namespace forge::graph {

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
