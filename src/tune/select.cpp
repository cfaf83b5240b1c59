#include "tune/select.h"

#include "ir/text.h"
#include "support/environment.h"
#include "support/hash.h"

namespace forge::tune {

Question question_of(const ir::Function& program, const CompileOptions& options) {
    const std::string isa = options.isa == "auto" ? support::machine_isa() : options.isa;
    const int threads = options.threads > 0 ? options.threads : support::core_count();
    const std::string cache_dir = options.cache_dir.empty() ? support::default_cache_dir() : options.cache_dir;
    Question q;
    q.problem = {options.sizes, options.expected_tokens, options.expected_sequences, options.expected_heads};
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
