// `forge tune` on a GPU: the candidates, measured there and remembered for later compilations.
#include <fmt/format.h>

#include <algorithm>

#include "check/parallel.h"
#include "compile/question.h"
#include "compile/request.h"
#include "frontend/axes.h"
#include "gpu.h"
#include "program/module.h"
#include "support/environment.h"

namespace forge::tools {
namespace {

struct GpuTrial {
    target::Candidate candidate;
    std::optional<Attention> attention;
    double seconds = 0;
    double lost = 0;  ///< share of it that others took
    std::string error;
};

/// At most `most` of those that can be had.
std::vector<GpuTrial> compiled(const ir::Definition& declared, const CompileOptions& options,
                               const target::Choice& choice, std::size_t most) {
    std::vector<GpuTrial> trials;
    for (const target::Candidate& c : choice.candidates)
        if (c.possible() && trials.size() < most) trials.push_back({c, std::nullopt, 0, 0, ""});
    check::parallel_for(static_cast<std::int64_t>(trials.size()), [&](std::int64_t i) {
        GpuTrial& trial = trials[static_cast<std::size_t>(i)];
        try {
            trial.attention = compile(declared, compiler::asking_for(options, trial.candidate));
        } catch (const std::exception& error) {
            trial.error = error.what();
        }
    });
    return trials;
}

void measure(const gpu::Session& session, gpu::RepeatedCall& arguments, int runs, std::vector<GpuTrial>& trials) {
    Progress progress(trials.size());
    for (GpuTrial& trial : trials) {
        progress.step(plan::to_string(trial.candidate.schedule));
        if (!trial.attention) continue;
        try {
            const gpu::Timing timing =
                session.time(*trial.attention, arguments.call(*trial.attention, session.stream()), runs);
            trial.seconds = timing.seconds, trial.lost = timing.lost();
        } catch (const RuntimeError& error) {  // no memory for its workspace, say
            trial.error = error.what();
        }
    }
}

/// Of the trials' shares that others took, the median: a kernel may vary by itself, others slow all.
double usual_loss(const std::vector<GpuTrial>& trials) {
    std::vector<double> lost;
    for (const GpuTrial& t : trials)
        if (t.error.empty()) lost.push_back(t.lost);
    if (lost.empty()) return 0;
    const auto middle = lost.begin() + static_cast<std::ptrdiff_t>(lost.size() / 2);
    std::nth_element(lost.begin(), middle, lost.end());
    return *middle;
}

void print(const std::vector<GpuTrial>& trials, const plan::Schedule& unasked, double unasked_s, double floor_s) {
    Table table({"schedule", ">measured", ">time / floor", ""});
    for (const GpuTrial& t : trials) {
        const bool ok = t.error.empty();
        std::string note = ok ? "" : t.error.substr(0, t.error.find('\n'));
        if (ok && target::same_choice(t.candidate.schedule, unasked)) note = "taken unasked";
        if (&t == &trials.front() && ok) note = note.empty() ? "fastest" : "fastest, " + note;
        table.row({plan::to_string(t.candidate.schedule), ok ? seconds_text(t.seconds) : "-",
                   ok ? fmt::format("{:.2f}", t.seconds / floor_s) : "-", note});
    }
    fmt::print("{}", table.text());
    if (unasked_s > 0)
        fmt::print("\nwhat is taken unasked takes {:.2f} times the fastest\n", unasked_s / trials.front().seconds);
}

}  // namespace

int tune_on_gpu(const TuneOptions& options) {
    const gpu::Session session(options.build.device);
    const ir::Definition declared = find_variant(options.variant);
    const check::Problem problem = problem_of(options.shape);
    CompileOptions o = compile_options(declared, problem, options.build);
    const program::Module module(declared, o.dtype);
    CompileOptions own = o;
    own.sizes = frontend::own_sizes(module.own(), o.sizes);
    const ir::Function& program = module.entry("forward").optimised;
    compiler::Asked asked = compiler::ask(program, compiler::settled(own, module.entry("forward")), &session.device());
    asked.question.measurements.clear();  // what is taken unasked comes first
    const target::Choice choice = target::choose(module.own(), program, asked.question, target::Range::All);
    std::vector<GpuTrial> trials = compiled(declared, o, choice, static_cast<std::size_t>(options.candidates));

    const check::Buffers pattern(declared, gpu::pattern_of(problem));
    gpu::RepeatedCall arguments(pattern, {problem.B, problem.T});
    const gpu::Load load(session.device());
    measure(session, arguments, options.runs, trials);
    const double others = std::max(load.others(), usual_loss(trials));
    const plan::Schedule unasked = trials.front().candidate.schedule;
    const double unasked_s = trials.front().seconds;
    std::stable_sort(trials.begin(), trials.end(), [](const GpuTrial& a, const GpuTrial& b) {
        return a.error.empty() != b.error.empty() ? a.error.empty() : a.seconds < b.seconds;
    });
    const tune::Key& key = asked.key;
    std::vector<tune::Entry> entries;
    for (const GpuTrial& t : trials)
        if (t.error.empty()) entries.push_back({key, declared.name, {t.candidate.schedule, t.seconds, others}});
    fmt::print("{} on {}, {}: {} candidates\n\n", declared.name, key.device, key.shape, trials.size());
    print(trials, unasked, unasked_s, arguments.bytes() / session.device().memory_bandwidth);
    const std::string cache_dir = o.cache_dir.empty() ? support::default_cache_dir() : o.cache_dir;
    fmt::print("{}{}", gpu_warning(others), remember(options, cache_dir, entries));
    return entries.empty() ? 1 : 0;
}

}  // namespace forge::tools
