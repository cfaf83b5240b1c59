#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "frontend/axes.h"
#include "frontend/join.h"
#include "gpu.h"
#include "graph/pipeline.h"
#include "schedule/probe.h"
#include "support/environment.h"
#include "tune/select.h"

namespace forge::tools {
namespace {

/// One candidate as it was predicted and measured.
struct Trial {
    schedule::Candidate candidate;
    double seconds = 0;
    std::string error;
};

/// The candidates that are worth compiling: the cheapest ones, and the best of every strategy so that a wrong model
/// shows.
std::vector<schedule::Candidate> worth_measuring(const schedule::Choice& choice, std::size_t count) {
    std::vector<schedule::Candidate> taken;
    std::vector<plan::Strategy> strategies;
    for (const schedule::Candidate& c : choice.candidates) {
        const bool new_strategy =
            std::find(strategies.begin(), strategies.end(), c.schedule.strategy) == strategies.end();
        if (!c.possible || (taken.size() >= count && !new_strategy)) continue;
        if (new_strategy) strategies.push_back(c.schedule.strategy);
        taken.push_back(c);
    }
    return taken;
}

/// The options that leave this candidate alone.
CompileOptions exactly(CompileOptions options, const plan::Schedule& s) {
    options.strategy = plan::to_string(s.strategy);
    options.chunk = s.chunk;
    options.tiles = s.tiles;
    options.segments = s.strategy == plan::Strategy::Segmented ? s.segments : 0;
    options.tuned = false;
    return options;
}

/// One call's seconds, in a workspace made beforehand.
class Timer {
  public:
    Timer(Attention attention, const check::Buffers& buffers)
        : attention_(std::move(attention)), call_(buffers.call()) {
        constexpr std::size_t kAlignment = 64;
        storage_.resize(attention_.workspace_bytes(call_) + kAlignment);
        const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
        call_.workspace = storage_.data() + (kAlignment - address % kAlignment) % kAlignment;
    }
    void run() {
        const auto start = std::chrono::steady_clock::now();
        attention_(call_);
        seconds_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    /// Median of the runs but the first.
    [[nodiscard]] double seconds() const {
        std::vector<double> times(seconds_.begin() + 1, seconds_.end());
        std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
        return times[times.size() / 2];
    }

  private:
    Attention attention_;
    Call call_;
    std::vector<std::byte> storage_;
    std::vector<double> seconds_;
};

/// Compiles all trials, then runs them in turns: what slows the machine for a while slows all of them.
void measure(const ir::Definition& definition, const CompileOptions& options, const check::Buffers& buffers,
             std::vector<Trial>& trials, int runs) {
    Progress progress(trials.size() + static_cast<std::size_t>(runs));
    std::vector<std::unique_ptr<Timer>> timers;
    for (Trial& trial : trials) {
        const plan::Schedule& s = trial.candidate.schedule;
        progress.step(fmt::format("compiling {}, chunk {}", plan::to_string(s.strategy), s.chunk));
        timers.push_back(nullptr);
        try {
            timers.back() = std::make_unique<Timer>(compile(definition, exactly(options, s)), buffers);
        } catch (const std::runtime_error& error) {
            trial.error = error.what();
        }
    }
    for (int run = 0; run <= runs; ++run) {
        if (run > 0) progress.step(fmt::format("run {} of {}", run, runs));
        for (const auto& timer : timers)
            if (timer) timer->run();
    }
    for (std::size_t i = 0; i < trials.size(); ++i)
        if (timers[i]) trials[i].seconds = timers[i]->seconds();
}

std::string cut_text(const plan::Schedule& s) {
    if (s.strategy == plan::Strategy::Segmented) return fmt::format("{} segments", s.segments);
    return s.tiles > 1 ? fmt::format("{} in {}", to_string(Dim(s.tile_axis)), s.tiles) : "";
}

void print(const schedule::Choice& choice, const std::vector<Trial>& trials, double chosen_s) {
    fmt::print("{}\n{} candidates, of which {} were measured:\n\n", schedule::to_string(choice.device),
               choice.candidates.size(), trials.size());
    Table table({"strategy", ">chunk", "cut", ">predicted", ">measured", ">measured / predicted", ""});
    for (const Trial& t : trials) {
        const plan::Schedule& s = t.candidate.schedule;
        const std::string note = !t.error.empty()        ? t.error
                                 : &t == &trials.front() ? "fastest"
                                 : t.seconds == chosen_s ? "the model's choice"
                                                         : "";
        table.row({plan::to_string(s.strategy), std::to_string(s.chunk), cut_text(s),
                   seconds_text(t.candidate.cost.seconds), t.error.empty() ? seconds_text(t.seconds) : "-",
                   t.error.empty() ? fmt::format("{:.2f}", t.seconds / t.candidate.cost.seconds) : "-", note});
    }
    fmt::print("{}", table.text());
    if (chosen_s > 0)
        fmt::print("\nthe model's choice takes {:.2f} times the fastest\n", chosen_s / trials.front().seconds);
}

}  // namespace

int tune_variant(const TuneOptions& options) {
    if (on_gpu(options.build)) return tune_on_gpu(options);
    const ir::Definition declared = find_variant(options.variant);
    const check::Problem problem = problem_of(options.shape);
    CompileOptions o = compile_options(declared, problem, options.build);
    const std::string cache_dir = o.cache_dir.empty() ? support::default_cache_dir() : o.cache_dir;
    const std::string isa = o.isa == "auto" ? support::machine_isa() : o.isa;
    const int threads = o.threads > 0 ? o.threads : support::core_count();
    if (options.probe || !tune::load_device(cache_dir, isa, threads))
        tune::save_device(cache_dir, schedule::measure_cpu(isa, threads));

    const ir::Definition definition = frontend::with_own_axes(frontend::with_dtype(declared, o.dtype));
    o.sizes = frontend::own_sizes(definition, o.sizes);
    const ir::Function program = graph::optimize(frontend::join(definition));
    const tune::Question q = tune::question_of(program, o);
    const schedule::Choice choice = schedule::choose_schedule(definition, program, q.problem, q.device, q.wishes);
    for (const std::string& warning : tune::load(cache_dir).warnings) fmt::print(stderr, "{}\n", warning);

    const Contention contention;
    std::vector<Trial> trials;
    for (const schedule::Candidate& c : worth_measuring(choice, static_cast<std::size_t>(options.candidates)))
        trials.push_back({c, 0, ""});
    measure(declared, o, check::Buffers(declared, problem), trials, options.runs);
    const double chosen_s = trials.front().seconds;
    std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
        return a.error.empty() != b.error.empty() ? a.error.empty() : a.seconds < b.seconds;
    });
    std::vector<tune::Entry> entries;
    for (const Trial& t : trials)
        if (t.error.empty()) entries.push_back({q.key, definition.name, {t.candidate.schedule, t.seconds}});
    tune::append(cache_dir, entries);
    print(choice, trials, chosen_s);
    if (const std::string warning = Contention::warning(contention.others()); !warning.empty())
        fmt::print("\n{}", warning);
    return entries.empty() ? 1 : 0;
}

}  // namespace forge::tools
