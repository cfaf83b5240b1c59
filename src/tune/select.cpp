#include "tune/select.h"

#include <algorithm>

#include "ir/text.h"
#include "support/environment.h"
#include "support/hash.h"

namespace forge::tune {

schedule::Problem expected_problem(const CompileOptions& options) {
    constexpr std::int64_t kMostLanes = 1 << 16, kMostTokens = std::int64_t{1} << 38;  // of all sequences and heads
    const auto least = [](std::int64_t n, std::int64_t most) { return std::min(n, std::max<std::int64_t>(1, most)); };
    schedule::Problem problem{options.sizes, 0, 0, least(options.expected_heads, kMostLanes)};
    problem.sequences = least(options.expected_sequences, kMostLanes / std::max<std::int64_t>(1, problem.heads));
    const std::int64_t lanes = std::max<std::int64_t>(1, problem.sequences * problem.heads);
    problem.tokens = least(options.expected_tokens, kMostTokens / lanes);
    return problem;
}

Question question_of(const ir::Function& program, const CompileOptions& options) {
    const std::string isa = options.isa == "auto" ? support::machine_isa() : options.isa;
    const int threads = options.threads > 0 ? options.threads : support::core_count();
    const std::string cache_dir = options.cache_dir.empty() ? support::default_cache_dir() : options.cache_dir;
    Question q;
    q.problem = expected_problem(options);
    const auto measured = options.tuned ? load_device(cache_dir, isa, threads) : std::nullopt;
    q.device = measured ? *measured : schedule::cpu_device(isa, threads);
    if (options.strategy != "auto") q.wishes.strategy = plan::strategy_named(options.strategy);
    q.wishes.chunk = options.chunk;
    q.wishes.tiles = options.tiles;
    q.wishes.segments = options.segments;
    q.wishes.rule = schedule::rule_named(options.rule);
    q.key = {support::hash(ir::print(program)), device_class(q.device), shape_class(q.problem, options.dtype)};
    return q;
}

schedule::Choice select(const ir::Definition& definition, const ir::Function& program, const CompileOptions& options) {
    const Question q = question_of(program, options);
    std::vector<schedule::Measurement> measurements;
    if (options.tuned)
        measurements = load(options.cache_dir.empty() ? support::default_cache_dir() : options.cache_dir).find(q.key);
    return schedule::choose_schedule(definition, program, q.problem, q.device, q.wishes, measurements);
}

}  // namespace forge::tune
