/// What the target of CPUs says besides its candidates.
#pragma once

#include "schedule/question.h"

namespace forge::schedule {

/// The strategy that the paper's Algorithm 1 takes (Rule::Paper), and why.
struct PaperRule {
    plan::Strategy strategy;
    std::string why;
};
PaperRule paper_rule(const ir::Definition& definition, const Question& question);

}  // namespace forge::schedule
