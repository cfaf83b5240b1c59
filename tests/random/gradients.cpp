/// Gradients of random programs in float64: the adjoint of the program of a chunk against the adjoint of `step`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "forge/error.h"
#include "graph/gradient.h"
#include "interp/recurrence.h"
#include "program/backward.h"
#include "tests/random/examine.h"

namespace forge::fuzz {
namespace {

constexpr double kFloat64 = 1e-6;  ///< of the largest number of a gradient
constexpr double kNoise = 1e-6;    ///< of the largest number of all gradients, which are sums of what may cancel

bool finite(const interp::Outcome& outcome) {
    for (const interp::Bindings* values : {&outcome.outputs, &outcome.states})
        for (const auto& [name, value] : *values)
            if (!std::all_of(value.data.begin(), value.data.end(), [](double x) { return std::isfinite(x); }))
                return false;
    return true;
}

interp::Outcome random_gradients(interp::Outcome like, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    for (interp::Bindings* values : {&like.outputs, &like.states})
        for (auto& [name, value] : *values)
            for (double& x : value.data) x = normal(random);
    return like;
}

double largest(const interp::Outcome& outcome) {
    double found = 0;
    for (const interp::Bindings* values : {&outcome.outputs, &outcome.states})
        for (const auto& [name, value] : *values)
            for (const double x : value.data) found = std::max(found, std::abs(x));
    return found;
}

/// How far a gradient is off; rows of several per token are counted alike.
double difference(const interp::Value& expected, const interp::Value& got, double least) {
    if (expected.data.size() != got.data.size()) return INFINITY;
    double scale = std::max(least, 1e-30), most = 0;
    for (std::size_t i = 0; i < expected.data.size(); ++i) {
        scale = std::max(scale, std::abs(expected.data[i]));
        const double off = std::abs(expected.data[i] - got.data[i]);
        most = off <= most ? most : off;
    }
    return most / scale;
}

std::vector<std::string> faults_of(const Program& program, const check::Problem& shape, std::int64_t chunk) {
    const ir::Definition& def = program.def;
    const program::Backward by_token = program::step_backward(def), by_chunk = program::backward(def);
    const check::Buffers buffers = make_buffers(program, shape);
    interp::Sizes sizes(program.sizes.begin(), program.sizes.end());
    sizes["C"] = def.fixed_chunk ? def.fixed_chunk : chunk;
    std::vector<std::string> found;
    const std::int64_t heads = buffers.heads();
    for (std::int64_t i = 0; i < heads * shape.sequences() && found.empty(); ++i) {
        const interp::Sequence sequence = buffers.sequence(i / heads, i % heads);
        const interp::Outcome results = interp::run_steps(def, sequence, sizes);
        if (!finite(results)) continue;
        const interp::Outcome given = random_gradients(results, static_cast<std::uint64_t>(i));
        const interp::Outcome want = interp::run_step_gradient(
            {def, by_token.interface, by_token.program, by_token.adjoint}, sequence, given, sizes);
        if (!finite(want)) continue;
        const interp::Outcome got = interp::run_program_gradient(
            {def, by_chunk.interface, by_chunk.program, by_chunk.adjoint}, sequence, given, sizes);
        const auto compare = [&](const interp::Bindings& a, const interp::Bindings& b) {
            for (const auto& [name, value] : a)
                if (const double off = difference(value, b.at(name), kNoise * largest(want)); !(off <= kFloat64))
                    found.push_back(fmt::format("{} is off by {:.3g} in float64, chunks of {}; {}", name, off,
                                                sizes.at("C"), describe(shape)));
        };
        compare(want.outputs, got.outputs);
        compare(want.states, got.states);
    }
    return found;
}

}  // namespace

Engine gradients_engine() {
    return {"gradients", [](Subject& s, Tally& tally) -> std::vector<std::string> {
                if (!s.program.def.step) return {};
                const std::int64_t chunk = 8 << s.d.below("gradients.chunk", 3);
                ++tally["gradients"];
                return faults_of(s.program, make_problem(s.d, s.program, "g0", chunk), chunk);
            }};
}

}  // namespace forge::fuzz
