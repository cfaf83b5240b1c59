#include "target/gpu_target.h"

#include <algorithm>

#include "forge/error.h"

namespace forge::target {
namespace {

using plan::Strategy;

/// What a program needs to be refused for, where a target does not say so itself.
Refusal refusal_of(const Target& target, const std::exception& error) {
    const std::string text = error.what();
    return {target.name, "Error", text.substr(0, text.find('\n')), ""};
}

template <class T>
bool keeps(const T& asked, const T& open, const T& varied) {
    return asked == open || varied == asked;
}

/// Whether a variation leaves what the caller fixed as it is.
bool within(const Wishes& asked, const Wishes& varied) {
    return keeps<std::optional<Strategy>>(asked.strategy, std::nullopt, varied.strategy) &&
           keeps<std::int64_t>(asked.chunk, 0, varied.chunk) && keeps<std::int64_t>(asked.tiles, 0, varied.tiles) &&
           keeps<std::int64_t>(asked.segments, 0, varied.segments) && keeps(asked.threads, 0, varied.threads);
}

bool is_known(const std::vector<Candidate>& found, const Candidate& candidate) {
    return std::any_of(found.begin(), found.end(), [&](const Candidate& c) {
        if (c.possible() != candidate.possible()) return false;
        return c.possible() ? same_choice(c.schedule, candidate.schedule)
                            : to_string(*c.refusal) == to_string(*candidate.refusal);
    });
}

}  // namespace

std::vector<Candidate> tried(const Target& target, Fit fit, const ir::Definition& definition,
                             const ir::Function& program, const Question& question,
                             const std::vector<Wishes>& variations) {
    std::vector<Candidate> found;
    const auto attempt = [&](const Wishes& wishes) {
        Candidate candidate;
        candidate.target = &target, candidate.wishes = wishes;
        try {
            candidate.schedule = fit(definition, program, question, wishes);
        } catch (const Refused& why) {  // passes of every level refuse so; from here on it is a value
            candidate.refusal = why.refusal(), candidate.refusal->engine = target.name;
        }
        if (!is_known(found, candidate)) found.push_back(std::move(candidate));
    };
    attempt(question.wishes);
    for (const Wishes& wishes : variations) {
        if (!within(question.wishes, wishes)) continue;
        Candidate wrong;
        try {
            attempt(wishes);
            continue;
        } catch (const RuntimeError& error) {
            wrong.refusal = refusal_of(target, error);
        } catch (const CompileError& error) {
            wrong.refusal = refusal_of(target, error);
        }
        wrong.target = &target, wrong.wishes = wishes;
        if (!is_known(found, wrong)) found.push_back(std::move(wrong));
    }
    return found;
}

FitWishes fit_wishes(const Problem& problem, const Wishes& wishes) {
    FitWishes fit;
    fit.strategy = wishes.strategy;
    fit.chunk = wishes.chunk, fit.tiles = wishes.tiles, fit.segments = wishes.segments;
    fit.threads = wishes.threads;
    fit.expected_tokens = problem.tokens;
    fit.expected_tasks = problem.sequences * problem.heads;
    fit.state_dtype = problem.state_dtype;
    return fit;
}

SharedMemory shared_memory_of(const GpuFacts& gpu, int threads) {
    // Not for tiles: two floats per thread for device functions, slack behind the tiles, the system's.
    const std::int64_t other_bytes = std::int64_t{2} * 4 * threads + 5 * 1024;
    constexpr std::int64_t kOfSystem = 1024;  // of each block, beside what it may have
    return {gpu.shared_bytes - other_bytes, gpu.multiprocessors, gpu.shared_bytes, gpu.shared_bytes + kOfSystem};
}

Wishes with_strategy(Wishes wishes, Strategy strategy) { return wishes.strategy = strategy, wishes; }
Wishes with_segments(Wishes wishes, std::int64_t segments) {
    return wishes.strategy = Strategy::Segmented, wishes.segments = segments, wishes;
}
Wishes with_tiles(Wishes wishes, std::int64_t tiles) {
    return wishes.strategy = Strategy::OnePass, wishes.tiles = tiles, wishes;
}
Wishes with_threads(Wishes wishes, int threads) { return wishes.threads = threads, wishes; }
Wishes with_chunk(Wishes wishes, std::int64_t chunk) { return wishes.chunk = chunk, wishes; }

std::vector<Wishes> placements(const Wishes& wishes) {
    std::vector<Wishes> list;
    for (const Strategy strategy : {Strategy::OnePass, Strategy::Segmented, Strategy::Fused, Strategy::Decoupled})
        list.push_back(with_strategy(wishes, strategy));
    for (const std::int64_t segments : {4, 8, 2, 16, 32}) list.push_back(with_segments(wishes, segments));
    for (const std::int64_t tiles : {1, 2, 4, 8}) list.push_back(with_tiles(wishes, tiles));
    return list;
}

}  // namespace forge::target
