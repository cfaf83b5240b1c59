#include "timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "gpu/session.h"
#include "graph/derive.h"
#include "plan/place.h"
#include "tests/novel/novel.h"
#include "tests/novel/recurrences.h"
#include "variants/variants.h"

namespace forge::gpu {
namespace {

constexpr std::int64_t kFewestTokens = 1024, kMostTokens = 32 * kFewestTokens;  ///< unless the caller says otherwise

std::vector<variants::Entry> entries_named(const std::vector<std::string>& names) {
    if (names.empty()) return variants::all();
    std::vector<variants::Entry> found;
    for (const auto* list : {&variants::all(), &variants::objectives(), &novel::all(), &novel::recurrences()})
        for (const variants::Entry& entry : *list)
            if (std::find(names.begin(), names.end(), entry.name) != names.end()) found.push_back(entry);
    return found;
}

/// `all`, or one, or `auto`, what would be chosen.
std::vector<std::string> strategies_of(const std::string& asked) {
    if (asked != "all") return {asked};
    std::vector<std::string> all;
    for (const plan::Strategy s : plan::all_strategies()) all.emplace_back(plan::to_string(s));
    return all;
}

}  // namespace

int measure(const std::vector<std::string>& only, const Kernels& kernels, std::int64_t most_tokens,
            const std::string& csv_file) {
    const Session session("cuda");
    const double bandwidth = session.copy_bandwidth();
    fmt::print("{}: {:.0f} GB/s when copying\n", session.device().name, bandwidth * 1e-9);
    std::ofstream csv(csv_file.empty() ? "/dev/null" : csv_file);
    csv << "variant,engine,strategy,chunk,T,median_us,least_us,most_us,host_us,bytes,gb_per_s,of_copy_bandwidth\n";
    for (const variants::Entry& entry : entries_named(only)) {
        const ir::Definition def = graph::with_phases(entry.make().define());
        check::Problem problem;
        problem.H = 32, problem.dtype = BF16, problem.sizes = {{"K", 128}, {"V", 128}, {"D", 1024}};
        if (check::sizes_for(def, problem).contains("D")) problem.H = 1;
        problem.T = kFewestTokens;
        const check::Buffers pattern(def, pattern_of(problem));
        for (const std::string& strategy : strategies_of(kernels.strategy)) {
            for (std::int64_t tokens = kFewestTokens; tokens <= (most_tokens > 0 ? most_tokens : kMostTokens);
                 tokens *= 2)
                try {
                    CompileOptions options;
                    options.device = "cuda";
                    options.sizes = check::sizes_for(def, problem);
                    options.strategy = strategy, options.engine = kernels.engine;
                    options.threads = kernels.threads;
                    options.expected_tokens = tokens, options.expected_heads = problem.H;
                    const Attention attention = compile(def, options);
                    RepeatedCall arguments(pattern, {problem.B, tokens});
                    const Timing timing = session.time(attention, arguments.call(attention, session.stream()));
                    const std::string row = fmt::format(
                        "{},{},{},{},{},{:.1f},{:.1f},{:.1f},{:.1f},{:.0f},{:.0f},{:.2f}", entry.name,
                        attention.engine(), strategy, attention.chunk(), tokens, timing.seconds * 1e6,
                        timing.least * 1e6, timing.most * 1e6, timing.host_seconds * 1e6, arguments.bytes(),
                        arguments.bytes() / timing.seconds * 1e-9, arguments.bytes() / timing.seconds / bandwidth);
                    fmt::print("{}\n", row);
                    csv << row << std::endl;
                } catch (const std::runtime_error& error) {
                    fmt::print("{},,{},,{}: {}\n", entry.name, strategy, tokens,
                               std::string(error.what()).substr(0, 200));
                }
            std::fflush(stdout);
        }
    }
    return 0;
}

}  // namespace forge::gpu
