/// Gradients of random programs in float64: the adjoint of the program of a chunk against the adjoint of `step`.
#include "tests/random/gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "check/kept_states.h"
#include "forge/error.h"
#include "graph/derive.h"
#include "graph/gradient.h"
#include "graph/stabilisers.h"
#include "interp/recurrence.h"
#include "program/backward.h"
#include "program/entry_point.h"
#include "tests/random/pools.h"

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
    const program::Backward by_token = program::step_backward(def), by_chunk = program::backward_of(def);
    const check::Buffers buffers = make_buffers(program, shape);
    interp::Sizes sizes(program.sizes.begin(), program.sizes.end());
    sizes["C"] = def.fixed_chunk ? def.fixed_chunk : chunk;
    std::vector<std::string> found;
    const std::int64_t heads = buffers.heads();
    for (std::int64_t i = 0; i < heads * shape.sequences() && found.empty(); ++i) {
        interp::Sequence sequence = buffers.sequence(i / heads, i % heads);
        const interp::Outcome results = interp::run_steps(def, sequence, sizes);
        if (!finite(results)) continue;
        const interp::Outcome given = random_gradients(results, static_cast<std::uint64_t>(i));
        for (const auto& [name, value] : given.outputs) sequence.inputs["grad_" + name] = value;
        for (const auto& [name, value] : given.states) sequence.initial_states["grad_" + name] = value;
        const interp::Outcome want =
            interp::run_step_gradient({def, by_token.interface, by_token.program, by_token.adjoint}, sequence, sizes);
        if (!finite(want)) continue;
        const interp::Outcome got = interp::run_program_gradient(
            {def, by_chunk.interface, by_chunk.program, by_chunk.adjoint}, sequence, sizes);
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

/// Of the gradients of inputs alone, where some states only keep exponents small.
std::vector<std::string> faults_to_inputs(const Program& program, const check::Problem& shape, std::int64_t chunk,
                                          Tally& tally) {
    const auto def = stabilised(program.def);
    if (!def) return {};
    ++tally["gradients past stabilisers"];
    const program::Backward by_token = program::step_backward(*def),
                            by_chunk = program::backward_of(*def, {}, nullptr, true);
    const check::Buffers buffers = make_buffers(program, shape);
    interp::Sizes sizes(program.sizes.begin(), program.sizes.end());
    sizes["C"] = chunk;
    std::vector<std::string> found;
    const std::int64_t heads = buffers.heads();
    for (std::int64_t i = 0; i < heads * shape.sequences() && found.empty(); ++i) {
        interp::Sequence sequence = buffers.sequence(i / heads, i % heads);
        const interp::Outcome results = interp::run_steps(*def, sequence, sizes);
        if (!finite(results)) continue;
        const interp::Outcome given = random_gradients(results, static_cast<std::uint64_t>(i));
        for (const auto& [name, value] : given.outputs) sequence.inputs["grad_" + name] = value;
        const interp::Outcome want =
            interp::run_step_gradient({*def, by_token.interface, by_token.program, by_token.adjoint}, sequence, sizes);
        if (!finite(want)) continue;
        const interp::Outcome got = interp::run_program_gradient(
            {*def, by_chunk.interface, by_chunk.program, by_chunk.adjoint}, sequence, sizes);
        for (const auto& [name, value] : want.outputs)
            if (const double off = difference(value, got.outputs.at(name), kNoise * largest(want)); !(off <= kFloat64))
                found.push_back(fmt::format("{} is off by {:.3g} in float64, to inputs, chunks of {}; {}", name, off,
                                            chunk, describe(shape)));
    }
    return found;
}

}  // namespace

Engine gradients_engine() {
    return {"gradients", [](Subject& s, Tally& tally) -> std::vector<std::string> {
                if (!s.program.def.step) return {};
                const std::int64_t chunk = 8 << s.d.below("gradients.chunk", 3);
                ++tally["gradients"];
                const check::Problem problem = make_problem(s.d, s.program, "g0", chunk);
                std::vector<std::string> found = faults_of(s.program, problem, chunk);
                return found.empty() ? faults_to_inputs(s.program, problem, chunk, tally) : found;
            }};
}

std::optional<ir::Definition> stabilised(ir::Definition def) {
    def.chunk = def.decay = def.merge = {};
    try {
        def = graph::with_phases(std::move(def));
    } catch (const CompileError&) {
        return std::nullopt;
    }
    return graph::stabilisers(def).empty() ? std::nullopt : std::optional(std::move(def));
}

BackwardProblem::BackwardProblem(const Program& program, check::Problem shape, const std::string& entry)
    : program_(program),
      back_(program),
      made_(program::backward_of(program.def, {}, nullptr, program::is_to_inputs(entry))),
      shape_(std::move(shape)) {
    back_.def = made_.interface;
}

std::vector<std::string> BackwardProblem::faults(const std::function<void(check::Buffers&)>& call, std::int64_t chunk,
                                                 Tally& tally, const UnitsRound& units) const {
    check::Buffers buffers = make_buffers(back_, shape_);
    const check::Reference reference = check::backward_reference(buffers, program_.def, chunk);
    check::clear_results(buffers);
    call(buffers);
    const check::Report report = check::compare(buffers, reference);
    std::vector<std::string> found;
    for (const check::Difference& d : report.differences) {
        if (d.ok) continue;
        const double expected = kTimesSpread * spread(buffers, reference, d, chunk, units);
        if (d.relative_rms <= expected || !(expected <= kNothingToSay)) {
            ++tally["gradients explained by rounding"];
            continue;
        }
        found.push_back(fmt::format(
            "chunk {}: {} is off by {:.3g} (rounding: {:.2g}), first at token {}, head {} of sequence {}; {}", chunk,
            d.name, d.relative_rms, expected, d.first_bad_token, d.head, d.sequence, describe(shape_)));
    }
    return found;
}

double BackwardProblem::spread(const check::Buffers& buffers, const check::Reference& reference,
                               const check::Difference& d, std::int64_t chunk, const UnitsRound& units) const {
    constexpr int kTrials = 3;
    interp::Sizes sizes(program_.sizes.begin(), program_.sizes.end());
    sizes["C"] = chunk;
    double most = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
        double error = 0, squares = 0;
        std::int64_t count = 0;
        for (std::size_t i = 0; i < reference.outcomes.size(); ++i) {
            const auto at = static_cast<std::int64_t>(i);
            const interp::Outcome off = interp::run_program_gradient(
                {program_.def, made_.interface, made_.program, made_.adjoint},
                buffers.sequence(at / buffers.heads(), at % buffers.heads()), sizes,
                rounding(program_.dtype, i * kTrials + static_cast<std::uint64_t>(trial), units));
            const interp::Outcome& right = reference.outcomes[i];
            const interp::Value &a = (d.is_state ? right.states : right.outputs).at(d.name),
                                &b = (d.is_state ? off.states : off.outputs).at(d.name);
            for (std::size_t e = 0; e < a.data.size(); ++e, ++count)
                error += std::pow(a.data[e] - b.data[e], 2), squares += a.data[e] * a.data[e];
        }
        const auto n = static_cast<double>(std::max<std::int64_t>(count, 1));
        const double off = std::sqrt(error / n) / std::max(reference.least_scale_of(d.name), std::sqrt(squares / n));
        most = off <= most ? most : off;
    }
    return most;
}

CompileOptions backward_options(Subject& s, const std::string& name, const Seldom& seldom) {
    const char* const strategies[] = {"one-pass", "fused", "decoupled", "auto"};
    const std::int64_t chunks[] = {64, 16, 32, 128, 0};
    CompileOptions options{.dtype = s.program.dtype, .sizes = s.program.sizes, .tuned = false};
    options.entry = "backward";
    options.strategy = strategies[s.d.pick(name + ".strategy", {seldom.one_pass, 1, seldom.decoupled, 1})];
    options.chunk = s.program.def.fixed_chunk
                        ? 0
                        : chunks[s.d.pick(name + ".chunk", {1, seldom.chunk, seldom.chunk, seldom.chunk, 1})];
    return options;
}

Engine backward_engine() {
    return {"backward", [](Subject& s, Tally& tally) {
                const Attention attention = compile(s.program.def, backward_options(s, "backward"));
                ++tally["backward: " + attention.strategy()];
                const BackwardProblem problem(s.program, make_problem(s.d, s.program, "b0", 64));
                const auto call = [&](check::Buffers& buffers) {
                    attention(buffers.call());
                    call_in_pools(s.d, "backward", buffers, false, [&](const Call& pooled) { attention(pooled); });
                };
                return problem.faults(call, attention.chunk(), tally);
            }};
}

/// Gradients from the states before chunks that a forward pass has left.
Engine kept_states_engine() {
    return {"kept states", [](Subject& s, Tally& tally) -> std::vector<std::string> {
                const ir::Definition& def = s.program.def;
                if (def.states.empty()) return {};
                CompileOptions options = backward_options(s, "kept");
                if (!def.fixed_chunk && options.chunk == 0) options.chunk = 64;
                options.entry = "backward from states";
                const Attention backward = compile(def, options);
                options.entry = "forward", options.strategy = "auto", options.chunk_states = true;
                options.chunk = def.fixed_chunk ? 0 : backward.chunk();
                const Attention forward = compile(def, options);
                ++tally["from kept states: " + backward.strategy()];
                const BackwardProblem problem(s.program, make_problem(s.d, s.program, "k0", 64));
                const auto call = [&](check::Buffers& buffers) {
                    const auto kept = check::kept_states(forward, def, buffers);
                    for (const ir::StateDecl& state : def.states) buffers.final_states.erase(state.name);
                    Call with_states = buffers.call();
                    for (const auto& [name, x] : kept)
                        with_states.initial_states.erase(name), with_states.chunk_states[name] = x.view();
                    backward(with_states);
                };
                return problem.faults(call, backward.chunk(), tally);
            }};
}

}  // namespace forge::fuzz
