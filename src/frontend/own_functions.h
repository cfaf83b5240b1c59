/// A mask and a transition of one's own: functions that are read from text, traced, and called on a token.
#pragma once

#include "frontend/compositions.h"

namespace forge::frontend {

/// Those of a text, with the inputs and states that they declare.
void take_functions(Composition& made, const std::string& text);

/// The mask as a function of its own: arguments as a token's.
ir::Function traced_mask(const CompositionFunction& mask, const std::vector<ir::InputDecl>& inputs, Here here);

/// Whether a transition returns angles: it is called once, on arguments of which nothing is kept.
bool returns_angles(const CompositionFunction& transition, const ChosenParts& parts);

/// What a transition of one's own is, of one token. CompileError where its results are none.
OwnTransition transition_of(const TokenParts& token);

}  // namespace forge::frontend
