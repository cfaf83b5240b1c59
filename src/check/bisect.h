/// After which pass of a compilation results are wrong: the float64 interpreter on what each has made, and on a CPU at
/// last the compiled program, against the recurrence.
#pragma once

#include "compile/inspect.h"

namespace forge::check {

struct Bisection {
    struct Step {
        std::string title;
        double difference = 0;  ///< relative, of the output or state that is farthest off; of a compiled one: RMS
        std::string fault;      ///< why it is not legal, or could not be run
        bool wrong = false;
    };
    std::vector<Step> steps;   ///< up to the first that is wrong
    bool against_step = true;  ///< else against the phases as written
    [[nodiscard]] bool ok() const { return steps.empty() || !steps.back().wrong; }
    [[nodiscard]] std::string text() const;  ///< a line per step, and the verdict
};

/// A sequence of a few chunks, of which the last one is not whole. RuntimeError if the recurrence is not finite on it.
Bisection bisect(const ir::Definition& definition, const CompileOptions& options, const compiler::Plant& plant = {});

}  // namespace forge::check
