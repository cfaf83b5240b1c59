#include "compile/question.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "ir/text.h"
#include "program/entry_point.h"
#include "support/environment.h"
#include "support/hash.h"

namespace forge::compiler {
namespace {

using target::Wishes;

/// The engines that can be asked for by name.
constexpr struct {
    const char* name;
    plan::Engine engine;
} kEngines[] = {
    {"portable", plan::Engine::Tiles}, {"warp-groups", plan::Engine::WarpGroups}, {"warps", plan::Engine::Warps}};

std::optional<plan::Engine> engine_named(const std::string& name) {
    for (const auto& known : kEngines)
        if (name == known.name) return known.engine;
    if (name != "auto")
        throw RuntimeError(fmt::format("engine: expected auto, portable, warps or warp-groups, got '{}'", name));
    return std::nullopt;
}

/// On a GPU measurements count where nothing but the chunk is asked for: definitions may fix it.
bool leaves_all_open(Wishes wishes) {
    wishes.chunk = 0, wishes.rule = target::Rule::Cost;
    return wishes == Wishes();
}

target::Device cpu_of(const CompileOptions& options) {
    const std::string isa = options.isa == "auto" ? support::machine_isa() : options.isa;
    const int threads = options.threads > 0 ? options.threads : support::core_count();
    const auto measured = options.tuned ? tune::load_device(cache_dir(options), isa, threads) : std::nullopt;
    return measured ? *measured : target::cpu_device(isa, threads);
}

}  // namespace

Wishes wishes_of(const CompileOptions& options) {
    Wishes wishes;
    if (options.strategy != "auto") wishes.strategy = plan::strategy_named(options.strategy);
    wishes.engine = engine_named(options.engine);
    wishes.rule = target::rule_named(options.rule);
    wishes.chunk = options.chunk;
    wishes.tiles = options.tiles;
    wishes.segments = options.batch_invariant && options.entry != "decode" ? 1 : options.segments;
    if (options.device != "cpu") wishes.threads = options.threads;
    return wishes;
}

CompileOptions asking_for(CompileOptions options, const target::Candidate& candidate) {
    const Wishes wishes = target::wishes_of(candidate.schedule, options.device != "cpu");
    options.tuned = false;
    if (options.device != "cpu") options.threads = wishes.threads;
    for (const auto& known : kEngines)
        if (wishes.engine == known.engine) options.engine = known.name;
    if (!wishes.strategy) return options;
    options.strategy = plan::to_string(*wishes.strategy);
    options.chunk = wishes.chunk, options.tiles = wishes.tiles, options.segments = wishes.segments;
    return options;
}

target::Problem expected_problem(const CompileOptions& given) {
    CompileOptions options = given;
    if (options.batch_invariant)
        options.expected_tokens = options.entry == "decode" ? 1 : 4096, options.expected_sequences = 1,
        options.expected_heads = 32;
    constexpr std::int64_t kMostLanes = 1 << 16, kMostTokens = std::int64_t{1} << 38;  // of all sequences and heads
    const auto least = [](std::int64_t n, std::int64_t most) { return std::min(n, std::max<std::int64_t>(1, most)); };
    target::Problem problem{options.sizes, 0, 0, least(options.expected_heads, kMostLanes)};
    problem.sequences = least(options.expected_sequences, kMostLanes / std::max<std::int64_t>(1, problem.heads));
    const std::int64_t lanes = std::max<std::int64_t>(1, problem.sequences * problem.heads);
    problem.tokens = least(options.expected_tokens, kMostTokens / lanes);
    problem.state_dtype = options.state_dtype;
    return problem;
}

std::string cache_dir(const CompileOptions& options) {
    return options.cache_dir.empty() ? support::default_cache_dir() : options.cache_dir;
}

Asked ask(const ir::Function& program, const CompileOptions& options, const target::GpuFacts* gpu) {
    Asked asked;
    target::Question& q = asked.question;
    q.problem = expected_problem(options);
    q.wishes = wishes_of(options);
    const bool back = program::is_backward(options.entry) || options.entry == "summary of backward";
    const bool few = options.entry == "decode";
    q.walk = back ? target::Walk::Backwards : few ? target::Walk::Tokens : target::Walk::Forwards;
    if (gpu) q.machine = *gpu;
    else q.machine = cpu_of(options);
    asked.key = {support::hash(ir::print(program)), gpu ? gpu->tuning_class() : tune::device_class(q.cpu()),
                 tune::shape_class(q.problem, options.dtype)};
    if (!options.tuned || (gpu && !leaves_all_open(q.wishes))) return asked;
    const tune::Database database =
        options.database.empty() ? tune::load(cache_dir(options)) : tune::load_file(options.database);
    q.measurements = database.find(asked.key);
    if (gpu && q.wishes.chunk != 0)
        std::erase_if(q.measurements, [&](const auto& m) { return m.schedule.chunk != q.wishes.chunk; });
    return asked;
}

}  // namespace forge::compiler
