/// The words of every command of `forge`: what it says of itself, its options and its example.
#pragma once

#include "shared_options.h"

namespace forge::tools {

struct AllOptions {
    ListOptions list;
    RunOptions run;
    CheckOptions check;
    ExplainOptions explain;
    CostOptions cost;
    EmitOptions emit;
    CheckCompileOptions check_compile;
    DeriveOptions derive;
    ComposeOptions compose;
    SearchOptions search;
    OptOptions opt;
    BenchOptions bench;
    TuneOptions tune;
    PackageOptions package;
    ReplayOptions replay;
    DemoOptions demo;
    CacheOptions cache;
};

/// All commands; `chosen` is what to call once the line is understood. `options` must outlive it.
void add_commands(CLI::App& app, AllOptions& options, Command& chosen);

}  // namespace forge::tools
