#include "check/chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "check/problem.h"
#include "check/random.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "interp/random_numbers.h"
#include "interp/semantics.h"

namespace forge::check {
namespace {

constexpr std::int64_t kTokens = 150;
constexpr double kTolerance = 1e-7;  ///< relative; float64 in other orders differs by 1e-12

interp::Sequence random_arguments(const ir::Definition& def, const interp::Sizes& sizes) {
    interp::Sequence sequence = interp::random_sequence(def, sizes, kTokens, 1);
    const auto values = values_of(def);
    Random random(1);
    for (auto& [name, x] : sequence.inputs)
        x.data = interp::random_numbers(values.at(name), x.shape, random, interp::Spread::Wide);
    return sequence;
}

/// The first row (of a state: any) that differs, and how much; -1 if none does.
std::int64_t first_difference(const interp::Value& a, const interp::Value& b, std::int64_t rows, double& difference) {
    double scale = 1e-30;
    for (const double x : a.data)
        if (std::isfinite(x)) scale = std::max(scale, std::fabs(x));
    const std::size_t width = std::max<std::size_t>(1, a.data.size() / static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < a.data.size(); ++i) {
        difference = std::fabs(a.data[i] - b.data[i]) / scale;
        if (!(difference <= kTolerance)) return static_cast<std::int64_t>(i / width);
    }
    return -1;
}

std::optional<ChunkDependence> compare(const ir::Definition& def, const interp::Outcome& a, const interp::Outcome& b) {
    ChunkDependence found;
    for (const ir::OutputDecl& o : def.outputs) {
        found.token = first_difference(a.outputs.at(o.name), b.outputs.at(o.name), kTokens, found.difference);
        found.name = o.name;
        if (found.token >= 0) return found;
    }
    found.is_state = true;
    for (const ir::StateDecl& s : def.states) {
        found.name = s.name;
        if (first_difference(a.states.at(s.name), b.states.at(s.name), 1, found.difference) >= 0) return found;
    }
    return std::nullopt;
}

bool has_numbers(const interp::Outcome& outcome) {
    return std::any_of(outcome.outputs.begin(), outcome.outputs.end(), [](const auto& named) {
        const auto& data = named.second.data;
        return std::any_of(data.begin(), data.end(), [](double x) { return std::isfinite(x); });
    });
}

}  // namespace

std::optional<ChunkDependence> chunk_dependence(const ir::Definition& def) {
    if (def.step || def.fixed_chunk != 0) return std::nullopt;
    const ir::Function program = graph::optimize(frontend::join(def));  // naive forms of chunks overflow
    interp::Sizes sizes = interp::small_sizes(def, 16);
    const interp::Sequence sequence = random_arguments(def, sizes);
    const interp::Outcome first = interp::run_program(program, def, sequence, sizes);
    if (!has_numbers(first)) return std::nullopt;
    for (const std::int64_t chunk : {32, 64, 128}) {
        sizes[ir::kChunkSymbol] = chunk;
        if (auto found = compare(def, first, interp::run_program(program, def, sequence, sizes))) {
            found->chunk = 16, found->other = chunk;
            return found;
        }
    }
    return std::nullopt;
}

std::string to_string(const ChunkDependence& found) {
    const std::string what = found.is_state
                                 ? fmt::format("the final state '{}' differs", found.name)
                                 : fmt::format("output '{}' differs from token {} on", found.name, found.token);
    return fmt::format(
        "the result depends on the size of the chunks, which Forge chooses: between chunks of {} and of {} tokens {} "
        "(by "
        "{:.2g} of its largest number); if that size is part of the definition, fix it: chunk=64 in Python and in "
        "text, "
        "fixed_chunk(64) in C++; if it is not, a step shows which size is wrong",
        found.chunk, found.other, what, found.difference);
}

}  // namespace forge::check
