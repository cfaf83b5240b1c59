#include "command_options.h"

#include "forge/compose.h"

namespace forge::tools {
namespace {

void add_check(CLI::App& app, CheckOptions& o, Command& chosen) {
    CLI::App* c = add_command(app, "check", "Compare kernels with the float64 recurrence, on awkward shapes and gates",
                              "forge check gla --dtype bf16");
    o.shape = {1, 0, 2, 0, 60, 100, {}, "f32", 1};
    auto* names = c->add_option("variants", o.variants, "names from `forge list`, or files")->type_name("VARIANT|FILE");
    auto* all = c->add_flag("--all", o.all, "every variant of `forge list`");
    names->excludes(all);
    c->add_option("--strategy", o.strategy, "which to compile")
        ->check(CLI::IsMember({"all", "auto", "one-pass", "fused", "decoupled", "segmented"}))
        ->group("Compilation");
    c->add_option("--dtype", o.dtype, "element types to try")
        ->check(CLI::IsMember({"all", "f32", "bf16", "f16"}))
        ->group("Shape");
    c->add_flag("--json", o.json, "print JSON");
    c->add_flag("--verbose", o.verbose, "a line for every output and state");
    c->add_flag_callback("--backward", [&o] { o.build.entry = "backward"; }, "gradients, as --entry backward");
    add_shape(*c, o.shape);
    add_build(*c, o.build, false);
    add_device(*c, o.build);
    c->get_option("--T")
        ->description("one problem of this many tokens (with --B, --H, --HV) instead of the suite")
        ->default_str("the suite");
    c->callback([&o, &chosen, c] {
        if (o.variants.empty() && !o.all) throw CLI::RequiredError("VARIANT or --all");
        o.one_problem = c->get_option("--T")->count() > 0;
        chosen = [&o] { return check_variants(o); };
    });
}

void add_bench(CLI::App& app, BenchOptions& o, Command& chosen) {
    CLI::App* c = add_command(app, "bench",
                              "Measure time, and how near it comes to this machine's sgemm and memcpy; on a GPU, to "
                              "the floor\nthat its memory sets",
                              "forge bench gated_delta_net --T 16384");
    o.shape.T = 8192;
    auto* names =
        c->add_option("variants", o.variants,
                      "names or files; default: linear_attention, scalar_gla, gla, delta_net, gated_delta_net")
            ->type_name("VARIANT|FILE");
    auto* all = c->add_flag("--all", o.all, "every variant of `forge list`");
    names->excludes(all);
    auto* json = c->add_flag("--json", o.json, "print JSON");
    c->add_option("--ranks", o.ranks,
                  "one sequence over so many ranks, threads of this process: every scheme's exchange alone, and the "
                  "time\nwith --T tokens on each rank and with --T tokens in all")
        ->check(CLI::Range(2, 64))
        ->excludes(json);
    add_shape(*c, o.shape);
    add_dtype(*c, o.shape.dtype);
    add_build(*c, o.build);
    add_device(*c, o.build);
    on_parse_with_device(*c, chosen, o, bench_variants);
}

void add_tune(CLI::App& app, TuneOptions& o, Command& chosen) {
    CLI::App* c =
        add_command(app, "tune", "Measure the best schedules of a variant, and remember them for later compilations",
                    "forge tune gated_delta_net --T 512,4096,32768 --H 1,8,32 --database measured.jsonl");
    add_variant(*c, o.variant);
    c->add_option("--candidates", o.candidates, "how many to measure, beside the best of every strategy")
        ->check(at_least(1));
    c->add_option("--runs", o.runs, "of each; the median counts")->check(at_least(1));
    c->add_flag("--probe", o.probe, "measure the machine's peak and bandwidths again");
    c->add_flag("--force", o.force,
                "store times even if other processes were busy and those of a quiet machine are known");
    c->add_option("--database", o.database,
                  "the file to add what was measured to, for `forge build --database`; default: the cache's");
    add_shape(*c, o.shape);
    const auto several = [&](const char* name, std::vector<std::int64_t>& list, const char* what, int least) {
        c->remove_option(c->get_option(name));
        c->add_option(name, list, std::string(what) + "; several, with commas: all with all")
            ->delimiter(',')
            ->check(at_least(least))
            ->group("Shape");
    };
    several("--B", o.B, "sequences", 0), several("--T", o.T, "tokens per sequence", 0), several("--H", o.H, "heads", 1);
    add_dtype(*c, o.shape.dtype);
    add_build(*c, o.build);
    add_device(*c, o.build);
    on_parse_with_device(*c, chosen, o, tune_shapes);
}

void add_demo(CLI::App& app, DemoOptions& o, Command& chosen) {
    CLI::App* c =
        add_command(app, "demo",
                    "Read a text once with seven variants as associative memories, predict each next byte, and\n"
                    "write a report. Nothing is trained.",
                    "forge demo --text README.md --out /tmp/report.html");
    c->add_option("--text", o.text, "the text to read; any file");
    c->add_option("--out", o.out, "where to write the HTML report");
    c->add_option("--seed", o.seed, "of the keys and codes");
    c->add_option("--bytes", o.bytes, "at most so many bytes of the text; 0: all of it (4 kB of memory per byte)")
        ->check(at_least(0));
    c->add_option("--dtype", o.dtype, "element type of keys, values and outputs")
        ->check(CLI::IsMember({"f32", "bf16", "f16"}));
    add_build(*c, o.build);
    on_parse(*c, chosen, o, run_demo);
}

void add_single_variant_commands(CLI::App& app, AllOptions& o, Command& chosen) {
    CLI::App* run = add_command(app, "run", "Compile a variant, call it on random inputs, and say how long it took",
                                "forge run gla --T 8192 --dtype bf16");
    add_variant(*run, o.run.variant);
    add_shape(*run, o.run.shape);
    add_dtype(*run, o.run.shape.dtype);
    add_build(*run, o.run.build);
    add_device(*run, o.run.build);
    on_parse_with_device(*run, chosen, o.run, run_variant);

    CLI::App* explain = add_command(
        app, "explain", "Show a variant at every level, its kernels, and why they were chosen; of a package its tables",
        "forge explain delta_net --strategy decoupled");
    add_variant(*explain, o.explain.variant);
    explain->add_flag("--json", o.explain.json, "print JSON");
    explain->add_option("--html", o.explain.passes.html, "write the levels side by side, as a page, to this file")
        ->group("Passes");
    explain
        ->add_option("--ranks", o.explain.ranks, "also what so many ranks exchange, each with a part of the sequence")
        ->check(CLI::Range(1, 65536));
    explain->add_option("--link", o.explain.link, "what joins the ranks: shared-memory, messages or nvlink (modelled)");
    add_passes(*explain, o.explain.passes);
    add_shape(*explain, o.explain.shape, false);
    add_dtype(*explain, o.explain.shape.dtype);
    add_build(*explain, o.explain.build);
    add_device_or_facts(*explain, o.explain.build);
    on_parse_with_device(*explain, chosen, o.explain, explain_variant);

    CLI::App* cost =
        add_command(app, "cost",
                    "Say what calls cost, kernel by kernel, before anything is compiled: operations, bytes, "
                    "tasks,\nwhat each resource takes, the predicted time, and what it is bound by",
                    "forge cost gated_delta_net --on h200 --T 32768 --H 32");
    add_variant(*cost, o.cost.variant);
    cost->add_flag("--json", o.cost.json, "print JSON");
    cost->add_option("--html", o.cost.html, "write it with pictures, as a page, to this file");
    add_shape(*cost, o.cost.shape, false);
    add_dtype(*cost, o.cost.shape.dtype);
    add_build(*cost, o.cost.build);
    add_device_or_facts(*cost, o.cost.build);
    cost->get_option("--entry")->default_str("forward, backward and decode");
    cost->callback([&o, &chosen, cost] {
        CostOptions& c = o.cost;
        if (cost->get_option("--entry")->count() > 0) c.entries = {c.build.entry};
        if (!c.build.on.empty()) c.build.device = "cuda";
        if (c.build.device != "cpu" && cost->get_option("--dtype")->count() == 0) c.shape.dtype = "bf16";
        chosen = [&c] { return cost_variant(c); };
    });

    CLI::App* emit = add_command(app, "emit", "Write the generated sources of a variant", "forge emit kda -o /tmp/kda");
    add_variant(*emit, o.emit.variant);
    emit->add_option("-o,--output", o.emit.directory,
                     "directory to write to, with the headers that they include and a script that compiles "
                     "them;\ndefault: print them");
    add_passes(*emit, o.emit.passes);
    add_shape(*emit, o.emit.shape, false);
    add_dtype(*emit, o.emit.shape.dtype);
    add_build(*emit, o.emit.build);
    add_device_or_facts(*emit, o.emit.build);
    on_parse_with_device(*emit, chosen, o.emit, emit_sources);

    CLI::App* compile =
        add_command(app, "check-compile", "Compile a variant; of a GPU's kernels say what they take of it",
                    "forge check-compile gated_delta_net --on h200");
    add_variant(*compile, o.check_compile.variant);
    add_shape(*compile, o.check_compile.shape, false);
    add_dtype(*compile, o.check_compile.shape.dtype);
    add_build(*compile, o.check_compile.build);
    add_device_or_facts(*compile, o.check_compile.build);
    on_parse_with_device(*compile, chosen, o.check_compile, check_compile);
}

void add_derive(CLI::App& app, DeriveOptions& o, Command& chosen) {
    CLI::App* c =
        add_command(app, "derive", "Print a definition with phases derived from its step, the recurrence of one token",
                    "forge derive kda");
    add_variant(*c, o.variant);
    on_parse(*c, chosen, o, derive_phases);
}

void add_compose(CLI::App& app, ComposeOptions& o, Command& chosen) {
    CLI::App* c = add_command(app, "compose",
                              "Make a variant of the field's usual parts, and print its recurrence. Any command takes "
                              "it as\ncompose:PART=CHOICE,…",
                              "forge compose --decay vector --update delta -o mine.forge");
    const auto add = [&](const std::string& name, const std::string& what, const std::string& usual) {
        const auto take = [&o, name](const std::string& choice) { o.chosen.emplace_back(name, choice); };
        c->add_option_function<std::string>("--" + name, take, what)->default_str(usual)->group("Parts");
    };
    for (const CompositionPart& part : composition_parts()) {
        std::string choices;
        for (const auto& choice : part.choices) choices += (choices.empty() ? "" : ", ") + choice.name;
        add(part.name, part.meaning + ": " + choices, part.choices[0].name);
    }
    add("rank", "keys and values per token of updates that have several, 2 to 8", "2");
    add("name", "of the variant", "the choices");
    add("functions", "a file with a mask or a transition of your own, in text form (forge/compose.h)", "none");
    c->add_option("-o,--output", o.output, "the file to write to; default: print it");
    c->add_flag("--check", o.check, "compile it, and hold it against its recurrence in float64");
    c->add_flag("--explain", o.explain, "show what the compiler makes of it");
    c->add_flag("--list", o.list, "list the choices, and what they mean");
    on_parse(*c, chosen, o, compose_variant);
}

void add_search(CLI::App& app, SearchOptions& o, Command& chosen) {
    CLI::App* c = add_command(app, "search",
                              "Make variants of some choices of parts, price them, and see how well they learn; with "
                              "the Python package",
                              "forge search --decay none,scalar --update all --on h200 --train 300 --plot found.svg");
    c->set_help_flag();  // it has its own
    c->prefix_command();
    c->callback([&o, &chosen, c] {
        o.words = c->remaining();
        chosen = [&o] { return search_variants(o); };
    });
}

void add_opt(CLI::App& app, OptOptions& o, Command& chosen) {
    CLI::App* c = add_command(app, "opt", "Run graph passes over a function in text form; for tests of passes",
                              "forge opt program.ir --passes=canonicalize,cse");
    auto* file = c->add_option("file", o.file, "the function; -: standard input");
    c->add_option("--passes", o.passes, "names in order, separated by commas")->delimiter(',');
    auto* list = c->add_flag("--list", o.list, "list the passes instead");
    file->excludes(list);
    c->callback([&o, &chosen] {
        if (o.file.empty() && !o.list) throw CLI::RequiredError("file");
        chosen = [&o] { return run_graph_passes(o); };
    });
}

void add_package(CLI::App& app, PackageOptions& o, Command& chosen) {
    CLI::App* c =
        add_command(app, "build",
                    "Compile entry points ahead of time, for targets that need not be here, into a package "
                    "that libforge_rt\nloads without a compiler; `forge explain FOLDER` shows it. A build that "
                    "was interrupted goes on where it was",
                    "forge build gla kda --targets sm_90a,x86-64-v3,x86-64-v4 --size K=V=64,128 "
                    "--dtype bf16,f32 -o zoo --shared");
    auto* names = c->add_option("variants", o.variants, "names from `forge list`, or files")->type_name("VARIANT|FILE");
    names->excludes(c->add_flag("--all", o.all, "every variant of `forge list`"));
    c->add_option("-o,--output", o.output, "the folder to write")->required();
    c->add_option("--name", o.name, "of the package; default: the folder's");
    c->add_option("--targets", o.targets, "sm_90a, sm_80, sm_89, x86-64, x86-64-v3, x86-64-v4; native: this CPU's")
        ->delimiter(',')
        ->required();
    c->add_option("--entries", o.entries, "programs: forward, decode, backward, 'backward of q'")->delimiter(',');
    c->add_option("--dtype", o.dtypes, "element types: bf16, f16, f32")->delimiter(',');
    c->add_option("--size", o.sizes,
                  "a size and its values, K=64,128, or K=V=64,128 for two that are the same; all choices with all");
    c->add_option("--tokens", o.tokens, "per sequence, of the calls that kernels are chosen for")->delimiter(',');
    c->add_option("--tasks", o.tasks, "of these calls: sequences times heads")->delimiter(',');
    c->add_option("--database", o.database, "what `forge tune` measured on a machine with the target (tuning.jsonl)");
    c->add_option("--threads", o.threads, "of a CPU that is compiled for; 0: as many as here")->check(at_least(0));
    c->add_option("--jobs", o.jobs, "compilations at a time; 0: one for each core")->check(at_least(0));
    c->add_option("--cache", o.cache_dir, "directory of compiled kernels; empty: ~/.cache/forge");
    c->add_option("--state-dtype", o.state_dtype, "of decoding's states in memory: f32, bf16 or f16");
    c->add_flag("--shared", o.shared, "also write lib<name>.so, with everything in it");
    c->add_flag("--chunk-states", o.chunk_states, "calls can have the states before chunks, in slots of a pool too");
    c->add_flag("--batch-invariant", o.batch_invariant, "the bits of a sequence do not depend on others in a call");
    c->callback([&o, &chosen] {
        if (o.variants.empty() && !o.all) throw CLI::RequiredError("VARIANT or --all");
        chosen = [&o] { return build_package(o); };
    });
}

void add_replay(CLI::App& app, ReplayOptions& o, Command& chosen) {
    CLI::App* c = add_command(app, "replay",
                              "Make a call again that forge_rt_dump_call, or FORGE_DUMP_CALLS, wrote to a file, and "
                              "compare its results",
                              "forge replay call-17-000000.forgecall --package zoo");
    c->add_option("file", o.file, "the call")->required()->type_name("FILE");
    c->add_option("--package", o.package,
                  "whose kernels to call; default: the definition is compiled for this machine");
    c->add_flag("--bits", o.bits, "fail unless all bits are the same, as those of the same kernels are");
    on_parse(*c, chosen, o, replay_call);
}

void add_cache(CLI::App& app, CacheOptions& o, Command& chosen) {
    CLI::App* c = add_command(app, "cache", "List, verify or prune the directory of compiled kernels",
                              "forge cache prune --older-than 30 --max-size 500MB");
    c->require_subcommand(1);
    const auto add = [&](const char* name, const char* what, const char* example, int (*run)(const CacheOptions&)) {
        CLI::App* command = add_command(*c, name, what, example);
        command->add_option("--cache", o.directory, "the directory; empty: ~/.cache/forge");
        command->add_flag("--json", o.json, "print JSON");
        on_parse(*command, chosen, o, run);
        return command;
    };
    add("list", "What lies in it: kernels, headers, measurements of `forge tune`", "forge cache list --json",
        list_cache);
    add("verify", "Compare contents with their seals; exit code 1 if one is damaged (the next compilation mends it)",
        "forge cache verify", verify_cache);
    CLI::App* prune = add("prune",
                          "Remove leftovers of interrupted compilations and headers of other versions, and kernels "
                          "that the options name.\nWhat is removed is compiled again when it is asked for",
                          "forge cache prune --older-than 30", prune_cache);
    prune->add_option("--older-than", o.older_than, "kernels that were built so many days ago, or before")
        ->check(at_least(0))
        ->default_str("of no age");
    prune->add_option("--max-size", o.max_size, "the oldest kernels, until no more is left: 500MB, 2GB")
        ->transform(CLI::AsSizeValue(true))
        ->default_str("any size");
    prune->add_flag("--all", o.all, "all kernels and headers; measurements stay");
}

}  // namespace

void add_commands(CLI::App& app, AllOptions& options, Command& chosen) {
    add_demo(app, options.demo, chosen);
    CLI::App* list = add_command(app, "list", "List the ready-made variants", "forge list --json");
    list->add_flag("--json", options.list.json, "print JSON");
    on_parse(*list, chosen, options.list, list_variants);
    add_single_variant_commands(app, options, chosen);
    add_check(app, options.check, chosen);
    add_bench(app, options.bench, chosen);
    add_tune(app, options.tune, chosen);
    add_derive(app, options.derive, chosen);
    add_compose(app, options.compose, chosen);
    add_search(app, options.search, chosen);
    add_opt(app, options.opt, chosen);
    add_package(app, options.package, chosen);
    add_replay(app, options.replay, chosen);
    add_cache(app, options.cache, chosen);
}

}  // namespace forge::tools
