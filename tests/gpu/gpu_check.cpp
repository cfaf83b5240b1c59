/// Every variant, objective, novel program and recurrence of the literature on a GPU, for every element type, strategy
/// and awkward shape, against the float64 recurrence; then twice for the same bits, and by graph replay with other
/// lengths of packed sequences. `--time` measures: the variants, or what `--only` names.
///
///   gpu_check [--shard=I/N] [--only=NAME,NAME] [--dtype=f32,bf16,f16] [--sizes=128x128,60x100] [--strategy=NAME]
///             [--threads=N] [--engine=NAME] [--entry=NAME] [--heads=N] [--cases=TEXT,TEXT] [--csv=FILE] [--tokens=N]
///             [--time]
///             [--large] [--shape=TEXT]
///
/// `--heads`: how many the schedule is to expect (32: several warp groups per task; 512: one, or blocks of tiles).
/// `--cases`: only awkward cases whose names have one of these texts, each once and without replays (for
/// compute-sanitizer). `--tokens` adds a case of so many tokens, or is the most to measure. `--large`: long sequences
/// and tensors of more than 2^31 elements instead (large.h), `--shape` some of them. A row per (program, type, sizes,
/// strategy) goes to the CSV, failures to standard output; the exit status says whether all is well. The schedule in a
/// row says which path it took. Needs no test library.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "check/check.h"
#include "check/suite.h"
#include "frontend/trace.h"
#include "gpu/session.h"
#include "graph/derive.h"
#include "large.h"
#include "plan/place.h"
#include "program/entry_point.h"
#include "tests/novel/novel.h"
#include "tests/novel/recurrences.h"
#include "timing.h"

namespace forge::gpu {
namespace {

struct Sizes {
    std::int64_t k, v;
};

struct Options {
    int shard = 0, shards = 1;
    std::vector<std::string> only;
    std::string strategy = "all", engine = "auto", entry = "forward", csv, device = "cuda", shape;
    std::vector<std::string> dtypes = {"f32", "bf16", "f16"}, cases;
    std::vector<Sizes> sizes = {{128, 128}, {60, 100}};
    int threads = 0;
    std::int64_t tokens = 0;
    std::int64_t heads = 32;
    bool time = false, large = false;
};

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

Options parse(int argc, char** argv) {
    Options o;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i], value = word.substr(std::min(word.size(), word.find('=') + 1));
        if (word.starts_with("--shard=")) std::sscanf(value.c_str(), "%d/%d", &o.shard, &o.shards);
        else if (word.starts_with("--only=")) o.only = split(value, ',');
        else if (word.starts_with("--strategy=")) o.strategy = value;
        else if (word.starts_with("--engine=")) o.engine = value;
        else if (word.starts_with("--entry=")) o.entry = value;
        else if (word.starts_with("--csv=")) o.csv = value;
        else if (word.starts_with("--dtype=")) o.dtypes = split(value, ',');
        else if (word.starts_with("--threads=")) o.threads = std::stoi(value);
        else if (word.starts_with("--tokens=")) o.tokens = std::stoll(value);
        else if (word.starts_with("--heads=")) o.heads = std::stoll(value);
        else if (word.starts_with("--cases=")) o.cases = split(value, ',');
        else if (word.starts_with("--shape=")) o.shape = value;
        else if (word == "--time") o.time = true;
        else if (word == "--large") o.large = true;
        else if (word.starts_with("--sizes=")) {
            o.sizes.clear();
            for (const std::string& pair : split(value, ','))
                o.sizes.push_back({std::stoll(pair), std::stoll(pair.substr(pair.find('x') + 1))});
        } else throw RuntimeError("unknown option " + word);
    }
    return o;
}

DType dtype_named(const std::string& name) { return name == "f32" ? F32 : name == "f16" ? F16 : BF16; }

/// A case with its float64 results, which strategies share unless the chunk size is part of the definition's meaning.
struct Prepared {
    std::string name;
    check::Buffers buffers;
    std::map<std::int64_t, check::Reference> references;
};

struct Row {
    std::string program, dtype, strategy, schedule, worst_case, problem;
    Sizes sizes{};
    int cases = 0, failures = 0;
    double worst = 0, tolerance = 0, build_s = 0;
};

class Examination {
  public:
    explicit Examination(Options options) : options_(std::move(options)), session_(options_.device) {
        fmt::print("{}: {} multiprocessors, {}\n", session_.device().name, session_.device().multiprocessors,
                   session_.device().arch());
    }

    int run() {
        int index = 0;
        for (const auto* list : {&variants::all(), &novel::all(), &variants::objectives(), &novel::recurrences()})
            for (const variants::Entry& entry : *list) {
                if (!options_.only.empty() &&
                    std::find(options_.only.begin(), options_.only.end(), entry.name) == options_.only.end())
                    continue;
                for (const std::string& dtype : options_.dtypes)
                    for (const Sizes& sizes : options_.sizes)
                        if (index++ % options_.shards == options_.shard) examine(entry, dtype, sizes);
            }
        write_csv();
        fmt::print("{} rows, {} failed\n", rows_.size(), failed_);
        return failed_ == 0 ? 0 : 1;
    }

  private:
    [[nodiscard]] bool asked_for(const std::string& name) const {
        const auto& wanted = options_.cases;
        return wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const std::string& part) {
                   return name.find(part) != std::string::npos;
               });
    }

    void examine(const variants::Entry& entry, const std::string& dtype, const Sizes& sizes) {
        const ir::Definition def = graph::with_phases(entry.make().define());
        std::vector<Prepared> prepared;
        const ir::Definition tensors = program::tensors_of(options_.entry, def);
        for (check::Case& c : check::awkward_cases(def, dtype_named(dtype), {{"K", sizes.k}, {"V", sizes.v}}, 1))
            if (asked_for(c.name) && !(backward() && c.problem.cut != 0))  // whose gradient would end at the cut
                prepared.push_back({c.name, check::Buffers(tensors, c.problem), {}});
        if (prepared.empty())
            throw RuntimeError(
                fmt::format("{} has none of the cases '{}'", entry.name, fmt::join(options_.cases, ", ")));
        if (options_.tokens > 0) {
            check::Problem longer = prepared.front().buffers.problem();
            longer.T = options_.tokens, longer.H = 2, longer.initial_state = true;
            prepared.push_back({fmt::format("{} tokens", options_.tokens), check::Buffers(tensors, longer), {}});
        }
        for (const plan::Strategy strategy : plan::all_strategies()) {
            if (options_.strategy != "all" && options_.strategy != plan::to_string(strategy)) continue;
            const bool decode = options_.entry == "decode";  // which has that strategy alone
            if (decode && (strategy != plan::Strategy::OnePass || !program::has_decode(def))) continue;
            if (program::is_backward(options_.entry) && strategy == plan::Strategy::Segmented) continue;
            Row row{entry.name, dtype, plan::to_string(strategy), "", "", "", sizes};
            row.tolerance = 0;
            try {
                const Attention attention = build(def, prepared.front().buffers.problem(), row);
                for (Prepared& p : prepared) check_case(attention, def, p, row);
                if (options_.cases.empty()) check_replay(attention, def, prepared.front().buffers.problem(), row);
            } catch (const CompileError& error) {
                row.problem = error.diagnostics()[0].what;  // a strategy that the program does not admit
            } catch (const std::exception& error) {
                row.problem = error.what();
                ++row.failures;
            }
            finish(row);
        }
    }

    Attention build(const ir::Definition& def, const check::Problem& problem, Row& row) const {
        CompileOptions options;
        options.device = options_.device;
        options.dtype = problem.dtype;
        options.sizes = check::sizes_for(def, problem);
        options.strategy = row.strategy;
        options.threads = options_.threads;
        options.engine = options_.engine;
        options.entry = options_.entry;
        options.expected_heads = options_.heads;
        options.segments = row.strategy == "segmented" ? 3 : 0;
        Attention attention = compile(def, options);
        row.schedule = attention.schedule();
        row.build_s = attention.build_seconds();
        return attention;
    }

    [[nodiscard]] bool backward() const { return program::is_backward(options_.entry); }

    [[nodiscard]] const check::Reference& reference_for(const ir::Definition& def, Prepared& p,
                                                        std::int64_t chunk) const {
        const std::int64_t key = def.step ? 0 : chunk;
        const auto found = p.references.find(key);
        if (found != p.references.end()) return found->second;
        return p.references
            .emplace(key,
                     backward() ? check::backward_reference(p.buffers, def, chunk) : check::reference(p.buffers, chunk))
            .first->second;
    }

    void check_case(const Attention& attention, const ir::Definition& def, Prepared& p, Row& row) {
        check::clear_results(p.buffers);
        if (p.buffers.problem().cut != 0) {
            check::run(p.buffers, [&](check::Buffers& part) { session_.run(attention, part); });
            return note(check::compare(p.buffers, reference_for(def, p, attention.chunk())), p.name, row);
        }
        DeviceBuffers device(p.buffers);
        const Call& call = device.call(attention, session_.stream());
        attention(call);
        session_.stream().synchronize();
        device.fetch(p.buffers);
        note(check::compare(p.buffers, reference_for(def, p, attention.chunk())), p.name, row);
        if (!options_.cases.empty()) return;
        const auto first = p.buffers.outputs;
        attention(call);
        session_.stream().synchronize();
        device.fetch(p.buffers);
        for (const auto& [name, x] : p.buffers.outputs)
            if (x.storage != first.at(name).storage)
                fail(row, p.name, fmt::format("output {} differs from run to run", name));
    }

    /// Captured with some lengths, replayed with others of the same sum.
    void check_replay(const Attention& attention, const ir::Definition& def, const check::Problem& like, Row& row) {
        check::Problem captured = like, replayed = like;
        captured.lengths = {5, 0, 129, 16}, replayed.lengths = {70, 33, 0, 47};
        captured.T = replayed.T = 0;
        const ir::Definition tensors = program::tensors_of(options_.entry, def);
        Prepared p{"graph replay with other lengths", check::Buffers(tensors, replayed), {}};
        const check::Buffers other(tensors, captured);
        check::clear_results(p.buffers);
        DeviceBuffers device(p.buffers);
        device.set_offsets(other);
        const Call& call = device.call(attention, session_.stream());
        const Graph graph(session_.stream(), [&] { attention(call); });
        graph.replay(session_.stream());
        session_.stream().synchronize();
        device.set_offsets(p.buffers);
        graph.replay(session_.stream());
        session_.stream().synchronize();
        device.fetch(p.buffers);
        note(check::compare(p.buffers, reference_for(def, p, attention.chunk())), p.name, row);
    }

    void note(const check::Report& report, const std::string& name, Row& row) {
        ++row.cases;
        row.tolerance = report.tolerance;
        for (const check::Difference& d : report.differences) {
            if (!(d.relative_rms <= row.worst)) row.worst = d.relative_rms, row.worst_case = name;
            if (!d.ok)
                fail(row, name,
                     fmt::format("{} {}: relative RMS {:.3g} beyond {:.1e}, max error {:.3g}, first at token {}, head "
                                 "{} of sequence {}",
                                 d.is_state ? "state" : "output", d.name, d.relative_rms, report.tolerance, d.max_abs,
                                 d.first_bad_token, d.head, d.sequence));
        }
    }

    static void fail(Row& row, const std::string& name, const std::string& what) {
        constexpr int kMostPrinted = 3;
        if (++row.failures <= kMostPrinted)
            fmt::print("FAIL {} {} {}x{} {}: {}: {}\n", row.program, row.dtype, row.sizes.k, row.sizes.v, row.strategy,
                       name, what);
    }

    void finish(const Row& row) {
        if (row.failures > 0) ++failed_;
        if (row.failures > 0 && !row.problem.empty())
            fmt::print("FAIL {} {} {}x{} {}: {}\n", row.program, row.dtype, row.sizes.k, row.sizes.v, row.strategy,
                       row.problem.substr(0, 600));
        std::fflush(stdout);
        rows_.push_back(row);
    }

    void write_csv() const {
        if (options_.csv.empty()) return;
        std::ofstream csv(options_.csv);
        csv << "program,dtype,K,V,strategy,schedule,cases,failures,worst_relative_rms,tolerance,worst_case,build_s,"
               "problem\n";
        for (const Row& r : rows_)
            csv << fmt::format("{},{},{},{},{},\"{}\",{},{},{:.3g},{:.1e},\"{}\",{:.2f},\"{}\"\n", r.program, r.dtype,
                               r.sizes.k, r.sizes.v, r.strategy, r.schedule, r.cases, r.failures, r.worst, r.tolerance,
                               r.worst_case, r.build_s,
                               split(r.problem, '\n').empty() ? "" : split(r.problem, '\n')[0]);
    }

    Options options_;
    Session session_;
    std::vector<Row> rows_;
    int failed_ = 0;
};

}  // namespace
}  // namespace forge::gpu

int main(int argc, char** argv) {
    try {
        const forge::gpu::Options options = forge::gpu::parse(argc, argv);
        if (options.large)
            return forge::gpu::check_large({options.only.empty() ? "" : options.only[0], options.strategy,
                                            options.engine, options.shape, options.csv});
        if (options.time)
            return forge::gpu::measure(options.only, {options.strategy, options.engine, options.threads},
                                       options.tokens, options.csv);
        return forge::gpu::Examination(options).run();
    } catch (const std::exception& error) {
        fmt::print(stderr, "gpu_check: {}\n", error.what());
        return 2;
    }
}
