#include <algorithm>
#include <cmath>

#include "check/problem.h"
#include "check/random.h"
#include "interp/random_numbers.h"
#include "interp/semantics.h"

namespace forge::check {
namespace {

constexpr double kCosine = 0.9;  ///< of any two correlated keys, on average
constexpr double kNearOne = 4;   ///< what is added to the logits of numbers in [0, 1]: 0.98 and more, mostly

/// Turns unit rows towards one common unit vector, with which their cosine then is the root of kCosine.
void correlate(std::vector<double>& values, std::int64_t n, std::uint64_t seed) {
    Random random(mix(seed, "common"));
    std::vector<double> common(static_cast<std::size_t>(n));
    for (double& x : common) x = random.normal();
    interp::normalise(common, n);
    for (double* row = values.data(); row != values.data() + values.size(); row += n) {
        double along = 0;
        for (std::int64_t i = 0; i < n; ++i) along += row[i] * common[static_cast<std::size_t>(i)];
        for (std::int64_t i = 0; i < n; ++i) row[i] -= along * common[static_cast<std::size_t>(i)];
    }
    interp::normalise(values, n);
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = std::sqrt(1 - kCosine) * values[i] + std::sqrt(kCosine) * common[i % static_cast<std::size_t>(n)];
}

bool is_unit_interval(const graph::InputValues& values) { return !values.is_gate() && values.range == kZeroToOne; }

}  // namespace

std::map<std::string, graph::InputValues> values_of(const ir::Definition& def) { return interp::admitted_values(def); }

bool has_gates(const ir::Definition& def, bool per_token) {
    const auto values = graph::input_values(def);
    return std::any_of(def.inputs.begin(), def.inputs.end(), [&](const ir::InputDecl& in) {
        return values.at(in.name).is_gate() && (!per_token || in.role == ir::Role::Input);
    });
}

bool has_keys(const ir::Definition& def) {
    const auto values = graph::input_values(def);
    return std::any_of(values.begin(), values.end(),
                       [](const auto& named) { return named.second.kind == graph::InputValues::Kind::Keys; });
}

std::vector<double> random_values(const graph::InputValues& values, std::size_t index,
                                  const std::vector<std::int64_t>& shape, const Problem& problem) {
    Random random(mix(problem.seed ^ mix(index)));
    std::vector<double> numbers = interp::random_numbers(values, shape, random, interp::Spread::Wide);
    if (values.is_gate() && !std::isnan(problem.gate)) numbers.assign(numbers.size(), values.gate(problem.gate));
    if (!problem.correlated_keys) return numbers;
    if (is_unit_interval(values))
        for (double& x : numbers) x = 1 / (1 + (1 / x - 1) * std::exp(-kNearOne));
    if (values.kind == graph::InputValues::Kind::Keys && !numbers.empty())
        correlate(numbers, shape.back(), problem.seed);
    return numbers;
}

}  // namespace forge::check
