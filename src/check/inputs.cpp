#include <algorithm>
#include <cmath>

#include "check/problem.h"
#include "check/random.h"

namespace forge::check {
namespace {

constexpr double kCosine = 0.9;  ///< of any two correlated keys, on average
constexpr double kNearOne = 4;   ///< what is added to the logits of their beta: 0.98 and more, mostly

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

bool starts_with(const std::string& name, const char* prefix) { return name.rfind(prefix, 0) == 0; }

void normalise(double* row, std::int64_t n) {
    double squares = 0;
    for (std::int64_t i = 0; i < n; ++i) squares += row[i] * row[i];
    const double factor = 1 / std::sqrt(std::max(squares, 1e-30));
    for (std::int64_t i = 0; i < n; ++i) row[i] *= factor;
}

/// Turns unit rows towards one common unit vector, with which their cosine then is the root of kCosine.
void correlate(std::vector<double>& values, std::int64_t n, std::uint64_t seed) {
    Random random(mix(seed, "common"));
    std::vector<double> common(static_cast<std::size_t>(n));
    for (double& x : common) x = random.normal();
    normalise(common.data(), n);
    for (double* row = values.data(); row != values.data() + values.size(); row += n) {
        double along = 0;
        for (std::int64_t i = 0; i < n; ++i) along += row[i] * common[static_cast<std::size_t>(i)];
        for (std::int64_t i = 0; i < n; ++i) row[i] -= along * common[static_cast<std::size_t>(i)];
        normalise(row, n);
        for (std::int64_t i = 0; i < n; ++i)
            row[i] = std::sqrt(1 - kCosine) * row[i] + std::sqrt(kCosine) * common[static_cast<std::size_t>(i)];
    }
}

double draw(InputKind kind, Random& random) {
    const double x = random.normal();
    switch (kind) {
        case InputKind::Normal:
        case InputKind::Key:
        case InputKind::Query:
        case InputKind::Scalar:
            return x;
        case InputKind::Beta:
        case InputKind::Alpha:
            return sigmoid(x);
        case InputKind::Bonus:
            return 0.5 * x;
        case InputKind::Step:
            return softplus(x);
        case InputKind::Slope:
            return softplus(-x);
        case InputKind::Gate:
            return -softplus(-x);  // log sigmoid(x)
    }
    return x;
}

}  // namespace

bool has_gates(const ir::Definition& def, bool per_token) {
    return std::any_of(def.inputs.begin(), def.inputs.end(), [&](const ir::InputDecl& in) {
        const InputKind kind = kind_of(in);
        return (kind == InputKind::Gate || kind == InputKind::Slope) && (!per_token || in.role == ir::Role::Input);
    });
}

InputKind kind_of(const ir::InputDecl& input) {
    const std::string& name = input.name;
    if (input.role == ir::Role::Scalar) return InputKind::Scalar;
    if (starts_with(name, "k") || name == "p") return InputKind::Key;
    if (starts_with(name, "q")) return InputKind::Query;
    if (starts_with(name, "beta")) return InputKind::Beta;
    if (starts_with(name, "u")) return InputKind::Bonus;
    if (starts_with(name, "dt")) return InputKind::Step;
    if (starts_with(name, "alpha")) return InputKind::Alpha;
    if (starts_with(name, "slope")) return InputKind::Slope;
    const bool plain = is_half(input.type.dtype) || starts_with(name, "v") || starts_with(name, "x") ||
                       starts_with(name, "lambda") || name == "r" || name == "i";
    return plain ? InputKind::Normal : InputKind::Gate;
}

std::vector<double> random_values(const ir::InputDecl& input, const std::vector<std::int64_t>& shape,
                                  const Problem& problem) {
    const InputKind kind = kind_of(input);
    std::vector<double> values(static_cast<std::size_t>(interp::element_count(shape)));
    Random random(mix(problem.seed, input.name));
    for (double& x : values) x = draw(kind, random);
    if (kind == InputKind::Beta && problem.correlated_keys)
        for (double& x : values) x = sigmoid(std::log(x / (1 - x)) + kNearOne);
    if (kind == InputKind::Gate && !std::isnan(problem.gate)) values.assign(values.size(), problem.gate);
    if (kind == InputKind::Slope && !std::isnan(problem.gate)) values.assign(values.size(), -problem.gate);
    if (kind != InputKind::Key && kind != InputKind::Query) return values;
    const std::int64_t width = shape.back();
    for (std::size_t row = 0; row < values.size(); row += static_cast<std::size_t>(width))
        normalise(&values[row], width);
    if (kind == InputKind::Key && problem.correlated_keys) correlate(values, width, problem.seed);
    return values;
}

}  // namespace forge::check
