/// One function per command of `forge`: options in, report on stdout, exit code out. Failures are thrown; main.cpp
/// prints them. Options carry their defaults, which the help text repeats.
#pragma once

#include "common.h"
#include "tune/database.h"

namespace forge::tools {

struct ListOptions {
    bool json = false;
};
int list_variants(const ListOptions& options);

struct RunOptions {
    std::string variant;
    ShapeOptions shape;
    BuildOptions build;
};
int run_variant(const RunOptions& options);

struct SearchOptions {
    std::vector<std::string> words;  ///< of its own command line
};
int search_variants(const SearchOptions& options);

struct CheckOptions {
    std::vector<std::string> variants;
    bool all = false, json = false, verbose = false;
    bool one_problem = false;  ///< the shape below instead of the suite of awkward ones
    std::string strategy = "all", dtype = "all";
    ShapeOptions shape;
    BuildOptions build;
};
int check_variants(const CheckOptions& options);

/// What to show of the passes, instead of what a command shows else.
struct PassOptions {
    std::string dump;        ///< after:PASS or all
    std::string stop_after;  ///< a pass
    std::string html;        ///< a file
    bool times = false, bisect = false;
    [[nodiscard]] bool any() const { return !dump.empty() || !stop_after.empty() || !html.empty() || times || bisect; }
};

struct ExplainOptions {
    std::string variant;
    bool json = false;
    int ranks = 0;     ///< what so many exchange, too; 0: not asked for
    std::string link;  ///< what joins them
    PassOptions passes;
    ShapeOptions shape;
    BuildOptions build;
};
int explain_variant(const ExplainOptions& options);

struct CostOptions {
    std::string variant, html;
    std::vector<std::string> entries;  ///< empty: all that the definition has
    bool json = false;
    ShapeOptions shape;
    BuildOptions build;
};
int cost_variant(const CostOptions& options);

struct EmitOptions {
    std::string variant, directory;
    PassOptions passes;
    ShapeOptions shape;
    BuildOptions build;
};
int emit_sources(const EmitOptions& options);

struct CheckCompileOptions {
    std::string variant;
    ShapeOptions shape;
    BuildOptions build;
};
int check_compile(const CheckCompileOptions& options);

struct DeriveOptions {
    std::string variant;
};
/// Prints the definition with phases derived from its step, whatever phases it has.
int derive_phases(const DeriveOptions& options);

struct ComposeOptions {
    std::vector<std::pair<std::string, std::string>> chosen;  ///< parts and choices, rank and name
    std::string output;                                       ///< a file; empty: printed
    bool check = false, explain = false, list = false;
    /// The variant as other commands take it.
    [[nodiscard]] std::string variant() const;
};
/// Prints, writes, checks or explains the variant of these parts.
int compose_variant(const ComposeOptions& options);

struct OptOptions {
    std::string file;
    std::vector<std::string> passes;
    bool list = false;
};
int run_graph_passes(const OptOptions& options);

struct CacheOptions {
    std::string directory;
    bool json = false, all = false;
    std::int64_t older_than = -1;  ///< days; -1: of any age
    std::int64_t max_size = -1;    ///< bytes; -1: of any size
};
int list_cache(const CacheOptions& options);
int verify_cache(const CacheOptions& options);
int prune_cache(const CacheOptions& options);

struct BenchOptions {
    std::vector<std::string> variants;
    bool all = false, json = false;
    int ranks = 0;  ///< threads that share a sequence; 0: calls of one rank are measured
    ShapeOptions shape;
    BuildOptions build;
};
int bench_variants(const BenchOptions& options);
/// One sequence over ranks.
int bench_ranks(const BenchOptions& options, const std::vector<std::string>& names);

struct TuneOptions {
    std::string variant;
    std::int64_t candidates = 8;        ///< to compile and run, beside the best of every strategy
    int runs = 9;                       ///< of each; the median counts
    bool probe = false;                 ///< measure the machine again
    bool force = false;                 ///< times under load may replace those of a quiet machine
    std::vector<std::int64_t> B, T, H;  ///< shapes, all with all; those that are empty are the shape's
    std::string database;               ///< a file to write to, for `forge build --database`; empty: the cache's
    ShapeOptions shape;
    BuildOptions build;
};
/// Every shape.
int tune_shapes(const TuneOptions& options);
int tune_variant(const TuneOptions& options);
/// Where the options say; what became of it, in words.
std::string remember(const TuneOptions& options, const std::string& cache_dir, const std::vector<tune::Entry>& entries);

struct PackageOptions {
    std::vector<std::string> variants, entries = {"forward", "decode"}, targets, dtypes = {"bf16"}, sizes;
    std::vector<std::int64_t> tokens = {512, 4096, 32768}, tasks = {8, 64, 512};
    std::string name, output, database, cache_dir, state_dtype = "f32";
    int threads = 0, jobs = 0;
    bool all = false, shared = false, chunk_states = false, batch_invariant = false;
};
int build_package(const PackageOptions& options);

struct ReplayOptions {
    std::string file, package;
    bool bits = false;
};
int replay_call(const ReplayOptions& options);

struct DemoOptions {
    std::string text = "/usr/share/common-licenses/GPL-3", out = "report.html", dtype = "f32";
    std::uint64_t seed = 1;
    std::int64_t bytes = 200000;  ///< at most, of the text; 0: all
    BuildOptions build;
};
int run_demo(const DemoOptions& options);

}  // namespace forge::tools
