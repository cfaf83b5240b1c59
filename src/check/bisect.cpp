#include "check/bisect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "check/check.h"
#include "check/replay.h"
#include "compile/driver.h"
#include "compile/request.h"
#include "forge/error.h"
#include "frontend/axes.h"
#include "interp/semantics.h"
#include "program/entry_point.h"

namespace forge::check {
namespace {

using compiler::PassStep;
using interp::Outcome;

constexpr double kFarthest = 1e-6;  ///< float64 in other orders differs by far less, a wrong pass by far more

class Bisecting {
  public:
    Bisecting(const ir::Definition& definition, const CompileOptions& options, const compiler::Plant& plant)
        : module_(definition, options.dtype),
          executable_(compiler::emitted(module_, options)),
          steps_(compiler::steps_of(definition, options, std::nullopt, plant)),
          plan_(executable_->plan) {
        sizes_ = plan_.sizes;
        sizes_[ir::kChunkSymbol] = plan_.schedule.chunk;
        constexpr std::int64_t kFewest = 5;
        const std::int64_t tokens =
            plan_.schedule.chunk > 1 ? 2 * plan_.schedule.chunk + plan_.schedule.chunk / 3 : kFewest;
        const ir::Definition& def = plan_.definition;
        sequence_ = interp::random_sequence(def, sizes_, tokens, 1);
        found_.against_step = def.step.has_value();
        wanted_ = def.step ? interp::run_steps(def, sequence_, sizes_) : interp::run_phases(def, sequence_, sizes_);
    }

    Bisection run(const ir::Definition& definition, const CompileOptions& options, bool planted) {
        for (const PassStep& step : steps_) {
            if (step.pass == ir::Pass::Emit) {
                if (options.device == "cpu" && !planted) compiled(definition, options, step);
                continue;
            }
            interpreted(step);
            if (found_.steps.back().wrong) break;
        }
        return std::move(found_);
    }

  private:
    void interpreted(const PassStep& step) {
        Bisection::Step result{step.title(), 0, step.faults.empty() ? "" : step.faults[0], !step.faults.empty()};
        if (!result.wrong) try {
                const Outcome got = outcome_of(step);
                for (const auto& [name, value] : wanted_.outputs) far(result, value, got.outputs.at(name));
                for (const ir::StateDecl& s : plan_.definition.states)
                    far(result, wanted_.states.at(s.name), got.states.at(s.name));
            } catch (const std::exception& error) {
                result.fault = fmt::format("cannot be run: {}", error.what()), result.wrong = true;
            }
        found_.steps.push_back(std::move(result));
    }

    static void far(Bisection::Step& result, const interp::Value& wanted, const interp::Value& got) {
        double scale = 1e-30, most = 0;
        for (const double x : wanted.data) scale = std::max(scale, std::fabs(x));
        if (wanted.data.size() != got.data.size()) most = HUGE_VAL;
        for (std::size_t i = 0; i < std::min(wanted.data.size(), got.data.size()); ++i) {
            const double d = std::fabs(wanted.data[i] - got.data[i]) / scale;
            if (!(d <= most)) most = std::isnan(d) ? HUGE_VAL : d;
        }
        result.difference = std::max(result.difference, most);
        result.wrong = result.wrong || !(most <= kFarthest);
    }

    /// The whole program up to `place`, whose kernels are then run together, each as its last pass has left it.
    Outcome outcome_of(const PassStep& step) {
        if (step.kernel.empty()) return interp::run_program(step.fn, plan_.definition, sequence_, sizes_);
        const auto planned = std::find_if(plan_.kernels.begin(), plan_.kernels.end(),
                                          [&](const plan::Kernel& k) { return k.graph.name == step.kernel; });
        if (planned == plan_.kernels.end()) throw InternalError("no kernel " + step.kernel);
        if (kernels_.empty())
            for (const PassStep& s : steps_)
                if (s.pass == ir::Pass::Place) kernels_.push_back({&plan_.kernels[kernels_.size()], s.fn});
        kernels_[static_cast<std::size_t>(planned - plan_.kernels.begin())].fn = step.fn;
        return replay(plan_, kernels_, sequence_);
    }

    void compiled(const ir::Definition& definition, const CompileOptions& options, const PassStep& step) {
        Problem problem;
        problem.T = sequence_.tokens, problem.sizes = options.sizes, problem.dtype = options.dtype;
        const Report report = check(compile(definition, options), definition, problem);
        found_.steps.push_back({step.title() + ", compiled and called", report.worst(), "", !report.ok});
    }

    program::Module module_;
    std::shared_ptr<compiler::Executable> executable_;
    std::vector<PassStep> steps_;
    const plan::Plan& plan_;
    interp::Sizes sizes_;
    interp::Sequence sequence_;
    Outcome wanted_;
    std::vector<ReplayKernel> kernels_;
    Bisection found_;
};

}  // namespace

std::string Bisection::text() const {
    std::string lines;
    for (const Step& step : steps)
        lines += fmt::format("{:<5} {:<60} {:.1e}{}\n", step.wrong ? "WRONG" : "ok", step.title, step.difference,
                             step.fault.empty() ? "" : "  " + step.fault);
    const char* const reference = against_step ? "the recurrence" : "the phases as written";
    if (ok()) return lines + fmt::format("Every pass leaves the results those of {}.\n", reference);
    return lines + fmt::format("The first pass after which results are not those of {} is {}.\n", reference,
                               steps.back().title);
}

Bisection bisect(const ir::Definition& definition, const CompileOptions& options, const compiler::Plant& plant) {
    if (program::is_backward(options.entry))
        throw RuntimeError(
            "bisect: expected forward or decode, whose results are those of the recurrence, got backward");
    return Bisecting(definition, options, plant).run(definition, options, static_cast<bool>(plant));
}

}  // namespace forge::check
