/// One compilation, pass by pass: what each has made, and how long it took. For people and for tests; nothing is
/// decided here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "forge/runtime.h"
#include "ir/definition.h"
#include "ir/pass.h"

namespace forge::compiler {

/// What one pass made of the program or of one kernel.
struct PassStep {
    ir::Pass pass = ir::Pass::Join;
    std::string kernel;  ///< empty: the whole program
    ir::Function fn;
    double seconds = 0;
    std::string note;                 ///< what the function does not show
    std::string text;                 ///< as it prints; of `emit` the sources
    std::vector<std::string> faults;  ///< why it is not legal on its level; empty if it is

    [[nodiscard]] std::string title() const;  ///< "lay_out, kernel gla_scan (tile)"
};

/// Changes what a pass made, as a pass that is wrong would.
using Plant = std::function<void(ir::Pass pass, ir::Function& fn)>;

/// Every step in order, up to the pass `last` of the table, if one is given: what fails after it does not matter then.
std::vector<PassStep> steps_of(const ir::Definition& definition, const CompileOptions& options,
                               std::optional<ir::Pass> last = std::nullopt, const Plant& plant = {});

/// The steps of one pass, or of all, as text: after:NAME or all. RuntimeError for anything else.
std::string dump(const std::vector<PassStep>& steps, const std::string& what);
/// Time per pass, in the table's order.
std::string times(const std::vector<PassStep>& steps);
/// The levels side by side as a page that needs no other file, with what changed from step to step.
std::string html(const std::vector<PassStep>& steps, const std::string& title);

/// The pass of this name. RuntimeError, with the names there are, if there is none.
ir::Pass pass_named(const std::string& name);

}  // namespace forge::compiler
