/// From a program and a question to a schedule: a pure function of plain data. All targets that the question is about
/// give candidates, which are compared here and nowhere else, for CPUs and GPUs alike: what cannot be had comes last;
/// a measurement counts more than any price, a price more than the order in which targets name candidates.
#pragma once

#include "target/target.h"

namespace forge::target {

/// `program` is joined and optimised from `definition`. RuntimeError if no candidate fulfils the wishes.
Choice choose(const ir::Definition& definition, const ir::Function& program, const Question& question,
              Range range = Range::Best);

/// The table of candidates with prices or the rule of their order, the refusals and the floor; at most `most`
/// candidates. `program`, `definition`: those of the choice.
std::string explain(const Choice& choice, const ir::Definition& definition, const ir::Function& program,
                    std::size_t most = 16);

}  // namespace forge::target
