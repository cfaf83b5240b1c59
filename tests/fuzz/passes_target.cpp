// Definitions through the graph passes, one by one: each makes a well-typed function that prints and parses, and that
// computes what the one before computed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "forge/error.h"
#include "frontend/axes.h"
#include "frontend/join.h"
#include "graph/derive.h"
#include "graph/passes.h"
#include "graph/pipeline.h"
#include "graph/slice.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "support/random.h"
#include "tests/fuzz/targets.h"

namespace forge::fuzz {
namespace {

using interp::Outcome;
using interp::Value;

constexpr std::int64_t kChunk = 5, kTokens = 13;  ///< two chunks and a ragged one
constexpr double kNoise = 1e-11;     ///< relative; float64 rounds at 1e-16, and passes change the order of operations
constexpr double kMagnified = 10;    ///< times what the noise does: as much as passes may change results
constexpr double kRounding = 1e-10;  ///< relative to the result
constexpr double kLargest = 1e60;    ///< of values on the way: beyond, passes may overflow where the original did not
constexpr double kIllConditioned = 1e-3;  ///< results that the noise changes by as much say nothing

void expect_well_formed(const ir::Function& fn, const char* pass) {
    const std::string text = ir::print(fn);
    try {
        const std::string again = ir::print(ir::parse_function(text));
        if (again != text) throw Fault(fmt::format("after {}: parses to something else:\n{}\n{}", pass, text, again));
    } catch (const CompileError& error) {
        throw Fault(fmt::format("after {}: not well formed: {}\n{}", pass, error.what(), text));
    }
}

/// One program on one sequence.
struct Experiment {
    const ir::Definition& def;
    interp::Sequence sequence;
    interp::Sizes sizes;

    [[nodiscard]] Outcome run(const ir::Function& program, const interp::Touch& touch = {}) const {
        return interp::run_program(program, def, sequence, sizes, touch);
    }

    /// Nothing if a value on the way is too large.
    [[nodiscard]] bool is_tame(const ir::Function& program) const {
        bool tame = true;
        static_cast<void>(run(program, [&](const ir::Function&, ir::ValueId, Value& value) {
            tame = tame &&
                   std::all_of(value.data.begin(), value.data.end(), [](double x) { return std::fabs(x) <= kLargest; });
        }));
        return tame;
    }

    [[nodiscard]] Outcome run_with_noise(const ir::Function& program, std::uint64_t seed) const {
        support::Random random(seed);
        return run(program, [&](const ir::Function&, ir::ValueId, Value& value) {
            for (double& x : value.data) x *= 1 + kNoise * (2 * random.uniform() - 1);
        });
    }
};

double largest(const Value& value) {
    double most = 0;
    for (const double x : value.data) most = std::max(most, std::fabs(x));
    return most;
}

double difference(const Value& a, const Value& b) {
    double most = 0;
    for (std::size_t i = 0; i < a.data.size(); ++i) {
        const double d = std::fabs(a.data[i] - b.data[i]);
        if (!(d <= most)) most = std::isnan(d) ? HUGE_VAL : d;
    }
    return most;
}

/// What passes may change every result by; none where that cannot be said.
class Tolerances {
  public:
    Tolerances(const Experiment& experiment, const ir::Function& program, std::uint64_t seed)
        : wanted_(experiment.run(program)) {
        for (std::uint64_t i = 1; i <= 3; ++i) noisy_.push_back(experiment.run_with_noise(program, seed + i));
    }

    void expect_same(const Outcome& got, const char* pass, const ir::Function& before,
                     const ir::Function& after) const {
        for (const auto group : {&Outcome::outputs, &Outcome::states})
            for (const auto& [name, value] : wanted_.*group) {
                const auto found = (got.*group).find(name);
                if (found == (got.*group).end() || found->second.shape != value.shape)
                    throw Fault(fmt::format("{}: the result '{}' is lost or of another shape", pass, name));
                double noise = 0;
                for (const Outcome& other : noisy_) noise = std::max(noise, difference(value, (other.*group).at(name)));
                if (!(noise <= kIllConditioned * largest(value))) continue;
                const double d = difference(value, found->second);
                const double most = kMagnified * noise + kRounding * largest(value);
                if (!(d <= most))
                    throw Fault(
                        fmt::format("{} changes '{}' by {}, at most {} wanted (it is up to {}):\n{}\nbecomes\n{}", pass,
                                    name, d, most, largest(value), ir::print(before), ir::print(after)));
            }
    }

  private:
    Outcome wanted_;
    std::vector<Outcome> noisy_;
};

struct LatePass {
    const char* name;
    ir::Function (*run)(const ir::Function&, const std::string& axis);
};
/// What plans for warp groups run after the pipeline, in order.
constexpr LatePass kLate[] = {
    {"vector_products", [](const ir::Function& fn, const std::string&) { return graph::vector_products(fn); }},
    {"share_masked_products",
     [](const ir::Function& fn, const std::string&) { return graph::share_masked_products(fn); }},
    {"join_products", [](const ir::Function& fn, const std::string&) { return graph::join_products(fn); }},
    {"late_factors", [](const ir::Function& fn, const std::string&) { return graph::late_factors(fn); }},
    {"hoist_scales", [](const ir::Function& fn, const std::string& axis) { return graph::hoist_scales(fn, axis); }},
    {"merge_scales", graph::merge_scales},
    {"fold_factors", graph::fold_factors},
    {"deepest_last", [](const ir::Function& fn, const std::string&) { return graph::deepest_last(fn); }},
    {"sum_apart", [](const ir::Function& fn, const std::string&) { return graph::sum_apart(fn); }},
};

class PassesTarget : public Target {
  public:
    [[nodiscard]] Input input(std::uint64_t seed) const override { return {seed, changed_definition(seed)}; }

    fuzz::Outcome run(const Input& input) override {
        const ir::Definition parsed = graph::with_phases(ir::parse_definition(input.text));
        const bool sound = interp::check_semantics(parsed).empty();
        const bool own_axes = input.seed % 2 == 1;  // which print without their primes
        const ir::Definition def = own_axes ? frontend::with_own_axes(parsed) : parsed;
        const ir::Function joined = frontend::join(def);
        const interp::Sizes sizes = interp::small_sizes(def, kChunk);
        const Experiment experiment{def, interp::random_sequence(def, sizes, kTokens, input.seed), sizes};
        const bool compares = experiment.is_tame(joined);
        const Tolerances tolerances(experiment, joined, input.seed);
        ir::Function now = joined;
        const auto after = [&](const char* name, ir::Function next) {
            if (!own_axes) expect_well_formed(next, name);
            if (compares) tolerances.expect_same(experiment.run(next), name, now, next);
            now = std::move(next);
        };
        for (const graph::Pass& pass : graph::pipeline()) after(pass.name(), pass.run(now));
        const auto axes = graph::parallel_axes(now);
        for (const LatePass& pass : kLate) after(pass.name, pass.run(now, axes.empty() ? "" : axes[0]));
        return sound && compares ? fuzz::Outcome::Accepted : fuzz::Outcome::Refused;
    }
};

}  // namespace

std::unique_ptr<Target> passes_target() { return std::make_unique<PassesTarget>(); }

}  // namespace forge::fuzz
