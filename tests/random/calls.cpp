// The shapes of calls and what their arguments hold.
#include <algorithm>
#include <cmath>
#include <limits>

#include "check/random.h"
#include "tests/random/program.h"

namespace forge::fuzz {
namespace {

constexpr double kSomeExtreme = std::numeric_limits<double>::infinity();  // as Problem::gate: see draw_extreme

}  // namespace

check::Problem make_problem(Decisions& d, const Program& program, const std::string& name, std::int64_t chunk) {
    const auto key = [&](const char* what) { return name + "." + what; };
    check::Problem problem;
    problem.sizes = program.sizes, problem.dtype = program.dtype;
    problem.seed = check::mix(d.seed(), name);
    const std::int64_t lengths[] = {chunk + 6,     chunk,        1, 3, chunk - 1, chunk + 1, 0, 2 * chunk,
                                    2 * chunk + 9, 3 * chunk + 5};
    problem.T = lengths[d.pick(key("T"), {4, 1, 1, 1, 1, 1, 0.5, 1, 3, 2})];
    problem.H = 1 + d.below(key("H"), 2);
    if (program.has("grouped heads")) problem.HV = problem.H * (1 + d.below(key("groups"), 3));
    problem.initial_state = d.flip(key("initial"), 0.6);
    problem.strided = d.flip(key("strided"), 0.25);
    switch (d.pick(key("packed"), {5, 1, 1, 1})) {
        case 1:
            problem.lengths = {chunk + 6, 0, 1, 2 * chunk + 2};
            break;
        case 2:
            problem.lengths = {0, 5, chunk};
            break;
        case 3:
            problem.lengths = {chunk + 1, chunk - 1, 3, 0}, problem.int64_offsets = true;
            break;
        default:
            problem.B = 1 + d.below(key("B"), 2);
    }
    //                           usual  long memory  short  none at all  steep  some beyond all measure
    constexpr double kGates[] = {1, 0.02, 5, 0, 40, kSomeExtreme};
    // Running maxima are differences of sums of gates, which -inf makes NaN: no definition that has them admits it.
    const double extreme = program.has("stabilised") || program.has("amax among decays") ? 0 : 1;
    problem.gate = kGates[d.pick(key("gates"), {5, 2, 1, 0.5, 0.5, extreme})];
    return problem;
}

namespace {

double draw(Kind kind, check::Random& random, double gate);

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

/// One number in eight is the end of a gate's range: no decay, or one to nothing, by a number or by infinity. What
/// becomes a gate by softplus or sigmoid is as large as makes these saturate.
double draw_extreme(Kind kind, check::Random& random) {
    const double x = random.normal(), which = random.normal();
    if (std::fabs(which) < 1.53) return draw(kind, random, 1);
    if (kind == Kind::Raw) return x < 0 ? -120 : 12;
    return std::fabs(x) < 0.43 ? 0 : std::fabs(x) < 0.97 ? -1000 : -std::numeric_limits<double>::infinity();
}

double draw(Kind kind, check::Random& random, double gate) {
    if (gate == kSomeExtreme && (kind == Kind::Raw || kind == Kind::LogDecay)) return draw_extreme(kind, random);
    const double x = random.normal();
    switch (kind) {
        case Kind::Normal:
        case Kind::Unit:
        case Kind::Raw:
            return x;
        case Kind::Fraction:
            return 1 / (1 + std::exp(-x));
        case Kind::LogDecay:
            return -gate * softplus(-x);
        case Kind::Weight:
            return 0.5 * x;
        case Kind::Positive:
            return 0.5 * std::fabs(x);
    }
    return x;
}

/// Values of a kind; of rows of so many numbers.
void fill(check::OwnedTensor& tensor, Kind kind, std::int64_t width, double gate, std::uint64_t seed) {
    check::Random random(seed);
    std::vector<double> values(static_cast<std::size_t>(tensor.count()));
    for (double& x : values) x = draw(kind, random, gate);
    for (std::size_t row = 0; kind == Kind::Unit && row < values.size(); row += static_cast<std::size_t>(width)) {
        double squares = 1e-30;
        for (std::int64_t i = 0; i < width; ++i) squares += std::pow(values[row + static_cast<std::size_t>(i)], 2);
        for (std::int64_t i = 0; i < width; ++i) values[row + static_cast<std::size_t>(i)] /= std::sqrt(squares);
    }
    for (std::size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<std::int64_t>(i), values[i]);
}

/// So that calls with states of that type in memory begin with the same numbers.
void round_to(DType dtype, check::OwnedTensor& tensor) {
    check::OwnedTensor rounded(dtype, {1}, -1, false);
    for (std::int64_t i = 0; i < tensor.count(); ++i) rounded.set(0, tensor.at(i)), tensor.set(i, rounded.at(0));
}

}  // namespace

check::Buffers make_buffers(const Program& program, const check::Problem& problem) {
    check::Problem plain = problem;
    plain.gate = std::numeric_limits<double>::quiet_NaN();
    check::Buffers buffers(program.def, plain);
    for (auto* group : {&buffers.inputs, &buffers.initial_states})
        for (auto& [name, tensor] : *group)
            if (tensor.count() > 0 && program.kinds.contains(name))
                fill(tensor, program.kinds.at(name), tensor.shape.empty() ? 1 : tensor.shape.back(), problem.gate,
                     check::mix(problem.seed, name));
    if (is_half(problem.dtype))
        for (auto& [name, tensor] : buffers.initial_states) round_to(problem.dtype, tensor);
    return buffers;
}

}  // namespace forge::fuzz
