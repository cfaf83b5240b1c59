// `forge bench --ranks`: one sequence over ranks that are threads of this process.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "check/problem.h"
#include "commands.h"
#include "dist/exchange.h"
#include "forge/dist.h"

namespace forge::tools {
namespace {

using dist::Scheme;
using dist::detail::Exchange;
using dist::detail::Field;
using Clock = std::chrono::steady_clock;

constexpr int kLeastRuns = 5, kMostRuns = 200;
constexpr double kSeconds = 0.4;  ///< of one measurement, about

/// The median time of `made(group)`, which each rank makes once and all call together, from a common start to the last
/// rank's end.
class Together {
  public:
    explicit Together(int size) : start_(size), end_(size), size_(size) {}

    double seconds(Scheme scheme, const std::function<std::function<void()>(dist::Group&)>& made) {
        const std::vector<dist::Bootstrap> ranks = dist::threads(size_);
        std::vector<std::exception_ptr> thrown(ranks.size());
        std::vector<std::thread> threads;
        for (std::size_t r = 0; r < ranks.size(); ++r)
            threads.emplace_back([&, r] {
                try {
                    dist::Group group(ranks[r], {.scheme = scheme});
                    run(r == 0, made(group));
                } catch (...) {
                    thrown[r] = std::current_exception();
                    start_.arrive_and_drop(), end_.arrive_and_drop();
                }
            });
        for (std::thread& t : threads) t.join();
        for (const std::exception_ptr& e : thrown)
            if (e) std::rethrow_exception(e);
        std::nth_element(times_.begin(), times_.begin() + static_cast<std::ptrdiff_t>(times_.size() / 2), times_.end());
        return times_[times_.size() / 2];
    }

  private:
    void run(bool first, const std::function<void()>& once) {
        if (first) times_.clear(), runs_ = kLeastRuns;
        for (int i = -1; i < runs_; ++i) {  // the first one is not counted
            start_.arrive_and_wait();
            const auto begin = Clock::now();
            once();
            end_.arrive_and_wait();
            if (!first) continue;
            const double took = std::chrono::duration<double>(Clock::now() - begin).count();
            if (i >= 0) times_.push_back(took);
            else next_runs_ = std::clamp(static_cast<int>(kSeconds / std::max(took, 1e-6)), kLeastRuns, kMostRuns);
            runs_ = next_runs_;  // others read it behind the next start
        }
    }

    std::barrier<> start_, end_;
    int size_;
    std::atomic<int> runs_ = kLeastRuns;
    int next_runs_ = kLeastRuns;
    std::vector<double> times_;
};

/// Every rank's own tokens of one sequence, and its call.
struct RanksCalls {
    RanksCalls(const ir::Definition& definition, const check::Problem& problem, int ranks) {
        for (int r = 0; r < ranks; ++r) {
            check::Problem mine = problem;
            mine.seed = problem.seed + static_cast<std::uint64_t>(r);
            buffers.push_back(std::make_unique<check::Buffers>(definition, mine));
        }
    }
    std::vector<std::unique_ptr<check::Buffers>> buffers;
};

double call_seconds(const Attention& attention, const RanksCalls& calls, int ranks, Scheme scheme) {
    return Together(ranks).seconds(scheme, [&](dist::Group& group) -> std::function<void()> {
        const Call call = calls.buffers[static_cast<std::size_t>(group.rank())]->call();
        return [&attention, call, &group] { dist::run(attention, call, group); };
    });
}

/// Nothing is forgotten, so that no rank sends before it has received.
double exchange_seconds(const std::vector<Field>& fields, int ranks, Scheme scheme) {
    return Together(ranks).seconds(scheme, [&](dist::Group& group) -> std::function<void()> {
        struct Numbers {
            std::vector<std::vector<float>> states, maps, came;
        };
        const auto numbers = std::make_shared<Numbers>();
        dist::detail::Summary summary{group.rank() == 0, group.rank() > 0, group.rank() + 1 < group.size(), {}, {}};
        std::vector<float*> incoming;
        for (const Field& f : fields) {
            const auto count = static_cast<std::size_t>(f.lanes * f.block());
            summary.states.push_back(numbers->states.emplace_back(count, 1.0F).data());
            const auto maps = static_cast<std::size_t>(f.lanes * f.map_block());
            summary.maps.push_back(maps > 0 ? numbers->maps.emplace_back(maps, 1.0F).data() : nullptr);
            incoming.push_back(numbers->came.emplace_back(count).data());
        }
        return [&fields, &group, numbers, summary, incoming] {
            Exchange(fields, 1, false).scan(group.space(), summary, incoming);
        };
    });
}

std::vector<Field> fields_of(const Attention& attention, std::int64_t lanes) {
    std::vector<Field> fields;
    for (const Carried& c : attention.carried()) fields.push_back({c.map, c.shape, c.map_shape, lanes});
    return fields;
}

void bench_variant(const BenchOptions& options, const std::string& name, Table& table) {
    const ir::Definition definition = find_variant(name);
    const int ranks = options.ranks;
    check::Problem whole = problem_of(options.shape), part = whole;
    part.T = std::max<std::int64_t>(1, whole.T / ranks);
    const Attention attention = build(definition, whole, options.build);
    const RanksCalls weak(definition, whole, ranks), strong(definition, part, ranks);
    const double one = call_seconds(attention, weak, 1, Scheme::Auto);
    const std::vector<Field> fields = fields_of(attention, whole.sequences() * weak.buffers[0]->heads());
    dist::Volume volume{ranks};
    for (const Field& f : fields) volume.summed = volume.summed && f.map != Carried::Map::None;
    for (const dist::Priced& priced : dist::price(volume, dist::link_named("shared-memory"))) {
        if (!priced.why.empty()) continue;
        const double all = call_seconds(attention, weak, ranks, priced.scheme),
                     split = call_seconds(attention, strong, ranks, priced.scheme);
        table.row({name, attention.summarised_segments() > 0 ? "segments" : "apart", to_string(priced.scheme),
                   volume.summed ? seconds_text(exchange_seconds(fields, ranks, priced.scheme)) : "-",
                   seconds_text(one), seconds_text(all), fmt::format("{:.0f} %", 100 * one / all), seconds_text(split),
                   fmt::format("{:.2f}x", one / split)});
    }
}

}  // namespace

int bench_ranks(const BenchOptions& options, const std::vector<std::string>& names) {
    if (options.build.device != "cpu")
        throw RuntimeError(
            "--ranks: expected ranks on this machine's CPU; on GPUs bench/ranks.py measures them, and "
            "bench_exchange the exchange alone");
    BenchOptions asked = options;
    const int cores = thread_count(0);
    if (asked.build.threads == 0) asked.build.threads = std::max(1, cores / options.ranks);
    const check::Problem problem = problem_of(options.shape);
    fmt::print("{} ranks of {} threads each on {} cores; B={} H={} K={} V={} {}\n", options.ranks, asked.build.threads,
               cores, problem.B, problem.H, options.shape.K, options.shape.V, options.shape.dtype);
    if (options.ranks * asked.build.threads > cores)
        fmt::print("More threads than cores: ranks wait for each other's turn, and these are no times of ranks.\n");
    Table table({"variant", "summary", "scheme", ">exchange", fmt::format(">1 rank, T={}", problem.T),
                 fmt::format(">{} ranks, each T={}", options.ranks, problem.T), ">efficiency",
                 fmt::format(">{} ranks, T={} in all", options.ranks, problem.T), ">speed-up"});
    for (const std::string& name : names) bench_variant(asked, name, table);
    fmt::print("{}", table.text());
    return 0;
}

}  // namespace forge::tools
