#include "compile/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compile/driver.h"
#include "compile/request.h"
#include "forge/error.h"
#include "ir/text.h"

namespace forge::compiler {
namespace {

std::vector<std::string> names_of(const std::vector<PassStep>& steps) {
    std::vector<std::string> names;
    for (const ir::Pass pass : ir::all_passes())
        if (std::any_of(steps.begin(), steps.end(), [&](const PassStep& step) { return step.pass == pass; }))
            names.emplace_back(ir::info(pass).name);
    return names;
}

}  // namespace

std::string PassStep::title() const {
    const ir::PassInfo& of = ir::info(pass);
    return fmt::format("{} ({}{})", of.name, ir::to_string(of.level), kernel.empty() ? "" : ", kernel " + kernel);
}

std::vector<PassStep> steps_of(const ir::Definition& definition, const CompileOptions& options,
                               std::optional<ir::Pass> last, const Plant& plant) {
    std::vector<PassStep> steps;
    const ir::PassRunner passes([&](const ir::Passed& p) {
        if (plant) plant(p.pass, p.fn);
        if (!ir::is_whole(p.fn)) throw InternalError(fmt::format("the pass {} has lost values", ir::info(p.pass).name));
        if (last && p.pass > *last) return;
        const bool text = p.pass == ir::Pass::Emit;
        steps.push_back({p.pass, p.kernel, p.fn, p.seconds, text ? "" : p.note, text ? p.note : ir::print(p.fn),
                         ir::faults(p.fn, ir::info(p.pass).level)});
    });
    check_options(options);
    const program::Module module(definition, options.dtype);
    check_sizes(module.definition(), options.sizes);
    try {
        emitted(module, options, passes);
    } catch (const std::exception&) {
        const auto wanted = [&](const PassStep& step) { return step.pass == *last; };
        if (!last || std::none_of(steps.begin(), steps.end(), wanted)) throw;
    }
    return steps;
}

ir::Pass pass_named(const std::string& name) {
    if (const auto pass = ir::pass_named(name)) return *pass;
    std::vector<std::string> names;
    for (const ir::Pass pass : ir::all_passes()) names.emplace_back(ir::info(pass).name);
    throw RuntimeError(fmt::format("pass: expected one of {}; got '{}'", fmt::join(names, ", "), name));
}

std::string dump(const std::vector<PassStep>& steps, const std::string& what) {
    constexpr std::string_view kAfter = "after:";
    const bool all = what == "all";
    if (!all && !what.starts_with(kAfter))
        throw RuntimeError(fmt::format("dump: expected all or after:PASS, got '{}'", what));
    const ir::Pass wanted = all ? ir::Pass::Join : pass_named(what.substr(kAfter.size()));
    std::string text;
    for (const PassStep& step : steps) {
        if (!all && step.pass != wanted) continue;
        text += fmt::format("// ---- {}: {}\n", step.title(), ir::info(step.pass).why);
        if (!step.note.empty()) text += fmt::format("// {}\n", step.note);
        for (const std::string& fault : step.faults) text += fmt::format("// not legal here: {}\n", fault);
        text += step.text + "\n";
    }
    if (!text.empty()) return text;
    throw RuntimeError(fmt::format("dump: the pass {} did not run: expected one of this compilation, which are {}",
                                   ir::info(wanted).name, fmt::join(names_of(steps), ", ")));
}

std::string times(const std::vector<PassStep>& steps) {
    std::string text = fmt::format("{:<16} {:<8} {:>5} {:>10}\n", "pass", "level", "runs", "µs");
    double all = 0;
    for (const ir::Pass pass : ir::all_passes()) {
        double seconds = 0;
        int runs = 0;
        for (const PassStep& step : steps)
            if (step.pass == pass) seconds += step.seconds, ++runs;
        if (runs == 0) continue;
        all += seconds;
        text += fmt::format("{:<16} {:<8} {:>5} {:>9.0f}\n", ir::info(pass).name, ir::to_string(ir::info(pass).level),
                            runs, seconds * 1e6);
    }
    return text + fmt::format("{:<16} {:<8} {:>5} {:>9.0f}\n", "all", "", steps.size(), all * 1e6);
}

}  // namespace forge::compiler
