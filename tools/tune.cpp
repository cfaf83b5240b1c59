#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "compile/question.h"
#include "frontend/axes.h"
#include "gpu.h"
#include "program/module.h"
#include "support/environment.h"
#include "target/cpu/probe.h"

namespace forge::tools {
namespace {

/// One candidate as it was predicted and measured.
struct Trial {
    target::Candidate candidate;
    double seconds = 0;
    std::string error;
};

/// The candidates that are worth compiling: the cheapest ones, and the best of every strategy so that a wrong model
/// shows.
std::vector<target::Candidate> worth_measuring(const target::Choice& choice, std::size_t count) {
    std::vector<target::Candidate> taken;
    std::vector<plan::Strategy> strategies;
    for (const target::Candidate& c : choice.candidates) {
        const bool new_strategy =
            std::find(strategies.begin(), strategies.end(), c.schedule.strategy) == strategies.end();
        if (!c.possible() || (taken.size() >= count && !new_strategy)) continue;
        if (new_strategy) strategies.push_back(c.schedule.strategy);
        taken.push_back(c);
    }
    return taken;
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
    void forget() { seconds_.clear(); }
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

/// Runs all in turns: what slows the machine for a while slows all of them. Returns what others used meanwhile.
double run_in_turns(const std::vector<std::unique_ptr<Timer>>& timers, int runs) {
    Progress progress(static_cast<std::size_t>(runs));
    const Contention contention;
    for (int run = 0; run <= runs; ++run) {
        if (run > 0) progress.step("all candidates in turns");
        for (const auto& timer : timers)
            if (timer) timer->run();
    }
    return contention.others();
}

/// Compiles all trials and measures them, while other processes are busy a few times: the quietest is kept. Returns
/// what others used of the cores then.
double measure(const ir::Definition& definition, const CompileOptions& options, const check::Buffers& buffers,
               std::vector<Trial>& trials, int runs) {
    Progress progress(trials.size());
    std::vector<std::unique_ptr<Timer>> timers;
    for (Trial& trial : trials) {
        const plan::Schedule& s = trial.candidate.schedule;
        progress.step(fmt::format("compiling {}, chunk {}", plan::to_string(s.strategy), s.chunk));
        timers.push_back(nullptr);
        try {
            timers.back() =
                std::make_unique<Timer>(compile(definition, compiler::asking_for(options, trial.candidate)), buffers);
        } catch (const std::runtime_error& error) {
            trial.error = error.what();
        }
    }
    constexpr int kAttempts = 3;
    double least = 2;
    for (int attempt = 0; attempt < kAttempts && least >= target::Measurement::kQuiet; ++attempt) {
        const double others = run_in_turns(timers, runs);
        for (std::size_t i = 0; i < trials.size(); ++i) {
            if (timers[i] && others < least) trials[i].seconds = timers[i]->seconds();
            if (timers[i]) timers[i]->forget();
        }
        least = std::min(least, others);
    }
    return least;
}

/// Measures the machine if it is not known, or only as it was under load.
void probe(const TuneOptions& options, const std::string& cache_dir, const std::string& isa, int threads) {
    const auto known = tune::load_device(cache_dir, isa, threads);
    if (known && known->others < target::Measurement::kQuiet && !options.probe) return;
    const Contention contention;
    target::Device device = target::measure_cpu(isa, threads);
    device.others = contention.others();
    fmt::print("{}", tune::remember(cache_dir, device, options.force));
}

std::string cut_text(const plan::Schedule& s) {
    if (s.strategy == plan::Strategy::Segmented) return fmt::format("{} segments", s.segments);
    return s.tiles > 1 ? fmt::format("{} in {}", to_string(Dim(s.tile_axis)), s.tiles) : "";
}

void print(const target::Choice& choice, const std::vector<Trial>& trials, double chosen_s) {
    fmt::print("{}\n{} candidates, of which {} were measured:\n\n", target::to_string(choice.question.cpu()),
               choice.candidates.size(), trials.size());
    Table table({"strategy", ">chunk", "cut", ">predicted", ">measured", ">measured / predicted", ""});
    for (const Trial& t : trials) {
        const plan::Schedule& s = t.candidate.schedule;
        const std::string note = !t.error.empty()        ? t.error
                                 : &t == &trials.front() ? "fastest"
                                 : t.seconds == chosen_s ? "the model's choice"
                                                         : "";
        table.row({plan::to_string(s.strategy), std::to_string(s.chunk), cut_text(s),
                   seconds_text(t.candidate.cost->seconds), t.error.empty() ? seconds_text(t.seconds) : "-",
                   t.error.empty() ? fmt::format("{:.2f}", t.seconds / t.candidate.cost->seconds) : "-", note});
    }
    fmt::print("{}", table.text());
    if (chosen_s > 0)
        fmt::print("\nthe model's choice takes {:.2f} times the fastest\n", chosen_s / trials.front().seconds);
}

}  // namespace

int tune_variant(const TuneOptions& options) {
    if (options.build.entry != "forward")
        throw RuntimeError(fmt::format("--entry: expected forward, got '{}', which is not tuned", options.build.entry));
    if (on_gpu(options.build)) return tune_on_gpu(options);
    const ir::Definition declared = find_variant(options.variant);
    const check::Problem problem = problem_of(options.shape);
    CompileOptions o = compile_options(declared, problem, options.build);
    const std::string cache_dir = o.cache_dir.empty() ? support::default_cache_dir() : o.cache_dir;
    const std::string isa = o.isa == "auto" ? support::machine_isa() : o.isa;
    const int threads = o.threads > 0 ? o.threads : support::core_count();
    probe(options, cache_dir, isa, threads);

    const program::Module module(declared, o.dtype);
    o.sizes = frontend::own_sizes(module.own(), o.sizes);
    const ir::Function& program = module.entry("forward").optimised;
    compiler::Asked asked = compiler::ask(program, o, nullptr);
    asked.question.measurements.clear();  // the model's choice is to be compared with
    const target::Choice choice = target::choose(module.own(), program, asked.question);
    for (const std::string& warning : tune::load(cache_dir).warnings) fmt::print(stderr, "{}\n", warning);

    std::vector<Trial> trials;
    for (const target::Candidate& c : worth_measuring(choice, static_cast<std::size_t>(options.candidates)))
        trials.push_back({c, 0, ""});
    const double others = measure(declared, o, check::Buffers(declared, problem), trials, options.runs);
    const double chosen_s = trials.front().seconds;
    std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
        return a.error.empty() != b.error.empty() ? a.error.empty() : a.seconds < b.seconds;
    });
    std::vector<tune::Entry> entries;
    for (const Trial& t : trials)
        if (t.error.empty()) entries.push_back({asked.key, declared.name, {t.candidate.schedule, t.seconds, others}});
    print(choice, trials, chosen_s);
    if (const std::string warning = Contention::warning(others); !warning.empty()) fmt::print("\n{}", warning);
    fmt::print("{}", remember(options, cache_dir, entries));
    return entries.empty() ? 1 : 0;
}

std::string remember(const TuneOptions& options, const std::string& cache_dir,
                     const std::vector<tune::Entry>& entries) {
    if (entries.empty()) return "";
    return options.database.empty() ? tune::remember(cache_dir, entries, options.force)
                                    : tune::remember_in(options.database, entries, options.force);
}

int tune_shapes(const TuneOptions& options) {
    const auto or_else = [](const std::vector<std::int64_t>& list, std::int64_t usual) {
        return list.empty() ? std::vector<std::int64_t>{usual} : list;
    };
    const ShapeOptions& shape = options.shape;
    const auto batches = or_else(options.B, shape.B), tokens = or_else(options.T, shape.T),
               heads = or_else(options.H, shape.H);
    const std::size_t all = batches.size() * tokens.size() * heads.size();
    std::size_t done = 0;
    int failed = 0;
    for (const std::int64_t B : batches)
        for (const std::int64_t T : tokens)
            for (const std::int64_t H : heads) {
                TuneOptions one = options;
                one.shape.B = B, one.shape.T = T, one.shape.H = H;
                if (all > 1)
                    fmt::print("{}[{}/{}] B = {}, T = {}, H = {}\n\n", done ? "\n" : "", done + 1, all, B, T, H);
                ++done;
                one.probe = options.probe && done == 1;
                failed = std::max(failed, tune_variant(one));
            }
    return failed;
}

}  // namespace forge::tools
