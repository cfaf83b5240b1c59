/// What the target of CPUs says besides its candidates.
#pragma once

#include "target/question.h"

namespace forge::target {

/// The strategy that the paper's Algorithm 1 takes (Rule::Paper), and why.
struct PaperRule {
    plan::Strategy strategy;
    std::string why;
};
PaperRule paper_rule(const ir::Definition& definition, const Question& question);

}  // namespace forge::target
