#include "check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "check/chunks.h"
#include "check/operands.h"
#include "check/parallel.h"
#include "check/suite.h"
#include "check/tolerance.h"
#include "gpu.h"
#include "json.h"
#include "program/entry_point.h"
#include "variants/variants.h"

namespace forge::tools {
namespace {

/// A case with its arguments and its float64 results, which all strategies share.
struct Prepared {
    std::string name;
    check::Buffers buffers;
    check::Reference reference;
};

std::vector<std::string> choices(const std::string& asked, std::vector<std::string> all) {
    return asked == "all" ? std::move(all) : std::vector<std::string>{asked};
}

std::vector<std::string> strategies_of(const std::string& entry, const ir::Definition& def) {
    if (entry == "decode" || ir::is_sequential(def)) return {"one-pass"};
    if (program::is_backward(entry)) return {"one-pass", "fused", "decoupled"};
    return {"one-pass", "fused", "decoupled", "segmented"};
}

std::vector<check::Case> cases_for(const ir::Definition& def, const CheckOptions& options, const std::string& dtype) {
    ShapeOptions shape = options.shape;
    shape.dtype = dtype;
    const check::Problem problem = problem_of(shape, options.build);
    if (options.one_problem) return {{fmt::format("B={} T={}", problem.B, problem.T), problem}};
    std::vector<check::Case> cases = check::awkward_cases(def, problem.dtype, problem.sizes, problem.seed);
    for (check::Case& c : cases) c.problem.state_dtype = problem.state_dtype;
    return cases;
}

std::string place_of(const check::Difference& d) {
    if (d.ok || d.head < 0) return "";
    const std::string token = d.is_state ? "" : fmt::format("token {}, ", d.first_bad_token);
    return fmt::format("{}head {} of sequence {}", token, d.head, d.sequence);
}

/// The chunk size that the builds share, for references of definitions without `step`.
std::int64_t row_chunk(const std::vector<std::optional<Attention>>& built) {
    for (const auto& attention : built)
        if (attention) return attention->chunk();
    return 0;
}

/// Calls with buffers of the host, wherever the kernels run.
using Caller = std::function<void(const Attention&, check::Buffers&)>;

/// Runs one compiled strategy over the prepared cases.
class Examination {
  public:
    Examination(CheckRow row, CheckResult& result, const ir::Definition& def, const std::string& entry,
                const Caller& call)
        : row_(std::move(row)), result_(result), def_(def), entry_(entry), call_(call) {}

    void run(const Attention& attention, Prepared& prepared) {
        ++row_.cases;
        try {
            check::clear_results(prepared.buffers);
            check::run(prepared.buffers, [&](check::Buffers& part) { call_(attention, part); });
            check::Report report = check::compare(prepared.buffers, prepared.reference);
            if (!report.ok) ask_operands(report, prepared, attention);
            note(report, prepared.name);
        } catch (const std::exception& error) {
            row_.ok = false;
            result_.failures.push_back({row_.variant, row_.dtype, row_.strategy, prepared.name, {}, error.what()});
        }
    }
    CheckRow finish() { return std::move(row_); }

  private:
    /// Of results that are off: whether the kernels are wrong, or 16 bits too few for the program. So many has an
    /// operand of gradients of float32 inputs on matrix units, too.
    void ask_operands(check::Report& report, const Prepared& prepared, const Attention& attention) const {
        const bool rounds =
            is_half(dtype_named(row_.dtype)) || (program::is_backward(entry_) && attention.engine() != "portable");
        if (!rounds || entry_ == "decode" || ir::is_sequential(def_)) return;
        const check::Report best =
            check::with_rounded_operands(prepared.buffers, def_, entry_, attention.chunk(), prepared.reference);
        for (std::size_t i = 0; i < report.differences.size(); ++i)
            report.differences[i].of_operands = best.differences[i].relative_rms;
    }

    void note(const check::Report& report, const std::string& name) {
        row_.against_step = report.against_step;
        if (!report.admitted) ++row_.not_admitted;
        for (std::size_t i = 0; i < report.differences.size(); ++i) {
            const check::Difference& d = report.differences[i];
            if (row_.worst.size() <= i) row_.worst.push_back(d), row_.worst_case.push_back(name);
            const double largest = std::max(row_.worst[i].max_abs, d.max_abs);
            if (d.relative_rms > row_.worst[i].relative_rms) row_.worst[i] = d, row_.worst_case[i] = name;
            row_.worst[i].max_abs = largest;
            row_.ok = row_.ok && (d.ok || d.coarse());
            if (!d.ok && !d.coarse())
                result_.failures.push_back({row_.variant, row_.dtype, row_.strategy, name, d, ""});
        }
    }

    CheckRow row_;
    CheckResult& result_;
    const ir::Definition& def_;
    const std::string& entry_;
    const Caller& call_;
};

/// One definition at one element type: references once, then every strategy.
void examine(const ir::Definition& def, const std::string& dtype, const CheckOptions& options, const Caller& call,
             Progress& progress, CheckResult& result) {
    const bool backward = program::is_backward(options.build.entry);
    const std::vector<std::string> strategies = choices(options.strategy, strategies_of(options.build.entry, def));
    std::vector<check::Case> cases = cases_for(def, options, dtype);
    if (backward) std::erase_if(cases, [](const check::Case& c) { return c.problem.cut != 0; });  // it ends at the cut
    std::vector<std::optional<Attention>> built(strategies.size());
    std::vector<std::string> reasons(strategies.size());
    std::vector<char> is_none(strategies.size(), 0);  // what the definition cannot have, and nobody asked for
    progress.step(fmt::format("{} {}: compiling", def.name, dtype));
    check::parallel_for(static_cast<std::int64_t>(strategies.size()), [&](std::int64_t i) {
        const auto at = static_cast<std::size_t>(i);
        BuildOptions how = options.build;
        how.strategy = strategies[at];
        try {
            built[at] = build(def, cases.front().problem, how);
        } catch (const CompileError& error) {  // segments, of transitions that are not affine
            is_none[at] = options.strategy == "all" && strategies[at] == "segmented";
            reasons[at] = error.what();
        } catch (const std::exception& error) {
            reasons[at] = error.what();
        }
    });
    progress.step(fmt::format("{} {}: {} cases", def.name, dtype, cases.size()));
    if (const auto dependence = check::chunk_dependence(def); dependence && options.build.chunk == 0)
        result.failures.push_back({def.name, dtype, "", "sizes of chunks", {}, to_string(*dependence)});
    std::vector<Prepared> prepared;
    for (const check::Case& c : cases) {
        check::Buffers buffers(check::tensors_of(options.build.entry, def), c.problem);
        check::Reference reference = backward ? check::backward_reference(buffers, def, row_chunk(built))
                                              : check::reference(buffers, row_chunk(built));
        prepared.push_back({c.name, std::move(buffers), std::move(reference)});
    }
    for (std::size_t i = 0; i < strategies.size(); ++i) {
        CheckRow row{def.name,
                     dtype,
                     strategies[i],
                     reasons[i],
                     0,
                     0,
                     0,
                     backward ? check::gradient_tolerance(dtype_named(dtype))
                              : check::tolerance(dtype_named(dtype), dtype_named(options.build.state_dtype)),
                     {},
                     {},
                     true,
                     true};
        row.ok = built[i].has_value() || is_none[i];
        if (built[i]) row.chunk = built[i]->chunk(), row.strategy = built[i]->strategy();
        Examination examination(std::move(row), result, def, options.build.entry, call);
        if (built[i])
            for (Prepared& p : prepared) examination.run(*built[i], p);
        result.rows.push_back(examination.finish());
    }
}

const char* verdict(const check::Difference& d) { return d.ok ? "ok" : d.coarse() ? "coarse" : "FAIL"; }

/// Results that a wider type would mend.
void print_coarse(const CheckResult& result) {
    for (const CheckRow& row : result.rows)
        for (const check::Difference& d : row.worst)
            if (d.coarse())
                fmt::print(
                    "\n{} {} {}: {} is coarse: its program with the operands of its products rounded to {}, and "
                    "all else exact, is off by {:.1e}; {} is more accurate\n",
                    row.variant, row.dtype, row.strategy, d.name, row.dtype == "f32" ? "16 bits" : row.dtype,
                    d.of_operands, row.dtype == "f32" ? "--engine portable" : "f32");
}

void print_rows(const CheckResult& result, bool each_tensor) {
    Table table({"variant", "dtype", "strategy", ">chunk", "tensor", ">rel. RMS", ">tolerance", ">max error", ">cases",
                 "", "worst case"});
    for (const CheckRow& row : result.rows) {
        const auto line = [&](const check::Difference& d, const std::string& tensor, const std::string& where) {
            table.row({row.variant, row.dtype, row.strategy, std::to_string(row.chunk), tensor,
                       fmt::format("{:.2e}", d.relative_rms), fmt::format("{:.1e}", row.tolerance),
                       fmt::format("{:.2e}", d.max_abs), std::to_string(row.cases), verdict(d), where});
        };
        if (row.worst.empty()) {
            table.row({row.variant, row.dtype, row.strategy, "", "", "", "", "", std::to_string(row.cases),
                       !row.ok              ? "FAIL"
                       : row.reason.empty() ? "ok"
                                            : "none",
                       ""});
            continue;
        }
        std::size_t worst = 0;
        for (std::size_t i = 0; i < row.worst.size(); ++i) {
            if (each_tensor)
                line(row.worst[i], (row.worst[i].is_state ? "state " : "output ") + row.worst[i].name,
                     row.worst_case[i]);
            if (row.worst[i].relative_rms > row.worst[worst].relative_rms) worst = i;
        }
        if (!each_tensor) line(row.worst[worst], row.worst[worst].name, row.worst_case[worst]);
        if (!row.ok && std::all_of(row.worst.begin(), row.worst.end(),
                                   [](const check::Difference& d) { return d.ok || d.coarse(); }))
            table.row(
                {row.variant, row.dtype, row.strategy, "", "", "", "", "", "", "FAIL", "a call failed, see below"});
    }
    fmt::print("{}", table.text());
}

void print_failures(const CheckResult& result) {
    constexpr std::size_t kMost = 50;
    for (const CheckRow& row : result.rows)
        if (!row.reason.empty()) fmt::print("\n{} {} {}: {}\n", row.variant, row.dtype, row.strategy, row.reason);
    for (std::size_t i = 0; i < std::min(kMost, result.failures.size()); ++i) {
        const CheckFailure& f = result.failures[i];
        fmt::print("\n{} {} {}, case \"{}\": ", f.variant, f.dtype, f.strategy, f.problem);
        if (!f.message.empty()) {
            fmt::print("{}\n", f.message);
            continue;
        }
        fmt::print("{} {} is off: relative RMS {:.3g}, max error {:.3g}; first at {}\n",
                   f.difference.is_state ? "state" : "output", f.difference.name, f.difference.relative_rms,
                   f.difference.max_abs, place_of(f.difference));
    }
    if (result.failures.size() > kMost) fmt::print("\n… and {} more failures\n", result.failures.size() - kMost);
}

bool is_ok(const CheckResult& result) {
    return result.failures.empty() &&
           std::all_of(result.rows.begin(), result.rows.end(), [](const CheckRow& row) { return row.ok; });
}

void print_summary(const CheckResult& result) {
    int runs = 0, skipped = 0;
    bool phases = false;
    for (const CheckRow& row : result.rows) runs += row.cases, skipped += row.not_admitted, phases |= !row.against_step;
    const bool ok = is_ok(result);
    fmt::print("\n{}: {} runs, {} failures, against the float64 recurrence of each definition's step\n",
               ok ? "ok" : "FAILED", runs, result.failures.size());
    if (skipped > 0) fmt::print("{} runs are not compared: the recurrence itself is not finite there\n", skipped);
    if (phases) fmt::print("a definition has no step: it was compared with its own three phases in float64\n");
}

}  // namespace

int check_variants(const CheckOptions& options) {
    std::vector<std::string> names = options.variants;
    if (options.all) {
        names.clear();
        for (const variants::Entry& entry : variants::all()) names.push_back(entry.name);
    }
    const std::vector<std::string> dtypes = choices(options.dtype, {"f32", "bf16", "f16"});
    CheckResult result;
    std::optional<gpu::Session> session;
    if (on_gpu(options.build)) session.emplace(options.build.device);
    const Caller call = [&](const Attention& attention, check::Buffers& buffers) {
        if (session) session->run(attention, buffers);
        else attention(buffers.call());
    };
    {
        Progress progress(2 * names.size() * dtypes.size());
        for (const std::string& name : names) {
            const ir::Definition def = find_variant(name);
            for (const std::string& dtype : dtypes) examine(def, dtype, options, call, progress, result);
        }
    }
    const bool ok = is_ok(result);
    if (options.json) {
        fmt::print("{}\n", json_of(result));
        return ok ? 0 : 1;
    }
    print_rows(result, options.verbose || names.size() == 1);
    print_coarse(result);
    print_failures(result);
    print_summary(result);
    return ok ? 0 : 1;
}

}  // namespace forge::tools
