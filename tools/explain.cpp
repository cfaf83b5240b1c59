#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "build/hand_over.h"
#include "check/bisect.h"
#include "commands.h"
#include "forge/dist.h"
#include "gpu.h"
#include "graph/derive.h"
#include "graph/pipeline.h"
#include "ir/text.h"
#include "json.h"
#include "rt/package.h"

namespace forge::tools {
namespace {

namespace fs = std::filesystem;

/// To be read, not called: no compiler runs.
Attention planned(const std::string& variant, const ShapeOptions& shape, BuildOptions how) {
    how.load = false;
    return build(find_variant(variant), problem_of(shape), how);
}

fs::path write_file(const std::string& directory, const std::string& name, const std::string& text) {
    fs::path path = fs::path(directory) / name;
    std::error_code error;
    if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw RuntimeError(fmt::format("cannot write '{}': {}", path.string(), std::strerror(errno)));
    fmt::print("{}\n", path.string());
    return path;
}

int show_passes(const ir::Definition& definition, const ShapeOptions& shape, const BuildOptions& build,
                const PassOptions& asked) {
    const CompileOptions options = compile_options(definition, problem_of(shape), build);
    if (asked.bisect) {
        const check::Bisection found = check::bisect(definition, options);
        fmt::print("{}", found.text());
        return found.ok() ? 0 : 1;
    }
    const auto last = asked.stop_after.empty() ? std::nullopt : std::optional(compiler::pass_named(asked.stop_after));
    const std::vector<compiler::PassStep> steps = compiler::steps_of(definition, options, last);
    if (!asked.dump.empty()) fmt::print("{}", compiler::dump(steps, asked.dump));
    else if (last && asked.html.empty() && !asked.times)
        fmt::print("{}", compiler::dump(steps, "after:" + asked.stop_after));
    if (asked.times) fmt::print("{}", compiler::times(steps));
    if (!asked.html.empty()) write_file("", asked.html, compiler::html(steps, definition.name + ", pass by pass"));
    return 0;
}

}  // namespace

int explain_variant(const ExplainOptions& options) {
    if (rt::is_package(options.variant)) {
        const rt::Manifest manifest = rt::read_manifest(options.variant);
        fmt::print("{}\n", options.json ? rt::print(manifest) : rt::explain(manifest));
        return 0;
    }
    const ir::Definition definition = find_variant(options.variant);
    if (options.passes.any()) return show_passes(definition, options.shape, options.build, options.passes);
    const Attention attention = planned(options.variant, options.shape, options.build);
    fmt::print("{}\n", options.json ? json_of(attention) : attention.explain());
    if (options.ranks > 0) {
        const check::Problem problem = problem_of(options.shape);
        const std::int64_t lanes = problem.sequences() * std::max(problem.H, problem.HV);
        const std::string link = !options.link.empty()   ? options.link
                                 : on_gpu(options.build) ? "nvlink"
                                                         : "shared-memory";
        fmt::print("{}", dist::explain(attention, options.ranks, lanes, dist::link_named(link)));
    }
    return 0;
}

int cost_variant(const CostOptions& options) {
    const bool all = options.entries.empty();
    std::vector<CallCost> calls;
    std::string without;
    for (const std::string& entry : all ? std::vector<std::string>{"forward", "backward", "decode"} : options.entries) {
        BuildOptions build = options.build;
        ShapeOptions shape = options.shape;
        build.entry = entry;
        if (entry == "decode" && all) shape.T = 1;  // what is decoded at a time
        try {
            calls.push_back(planned(options.variant, shape, build).cost());
        } catch (const std::exception& error) {  // not every definition has gradients, or can be decoded
            if (!all || entry == "forward") throw;
            without += fmt::format("\nno {}: {}\n", entry, error.what());
        }
    }
    if (!options.html.empty()) write_file("", options.html, cost_page(calls));
    else if (options.json) fmt::print("{}\n", cost_json(calls));
    else fmt::print("{}{}", cost_text(calls), without);
    return 0;
}

int emit_sources(const EmitOptions& options) {
    const ir::Definition definition = find_variant(options.variant);
    if (options.passes.any()) return show_passes(definition, options.shape, options.build, options.passes);
    const Attention attention = planned(options.variant, options.shape, options.build);
    if (options.directory.empty()) {
        for (const GeneratedSource& source : attention.sources())
            fmt::print("// ---- {}\n{}\n", source.name, source.text);
        return 0;
    }
    for (const GeneratedSource& source : attention.sources()) {
        write_file(options.directory, source.name, source.text);
        for (const EmbeddedFile& header : build::headers_of(source.text))
            write_file(options.directory, header.path, header.text);
        const fs::path script =
            write_file(options.directory, source.name + ".sh", build::compile_script(source.name, attention.isa()));
        fs::permissions(script, fs::perms::owner_exec, fs::perm_options::add);
    }
    return 0;
}

int check_compile(const CheckCompileOptions& options) {
    const ir::Definition definition = find_variant(options.variant);
    const Attention attention = build(definition, problem_of(options.shape), options.build);
    const std::vector<KernelResources> resources = attention.resources();
    fmt::print("{}: {} kernel{} for {}, {}\n", definition.name, attention.kernels().size(),
               attention.kernels().size() == 1 ? "" : "s", attention.isa(), attention.schedule());
    if (resources.empty()) return 0;
    Table table({"kernel", ">registers", ">spilled bytes", ">stack bytes"});
    for (const KernelResources& r : resources)
        table.row(
            {r.kernel, std::to_string(r.registers), std::to_string(r.spill_bytes), std::to_string(r.stack_bytes)});
    fmt::print("{}", table.text());
    return 0;
}

int derive_phases(const DeriveOptions& options) {
    fmt::print("{}", ir::print(graph::derive(find_variant(options.variant))));
    return 0;
}

int run_graph_passes(const OptOptions& options) {
    if (options.list) {
        Table table({"pass", "what it is for"});
        for (const graph::Pass& pass : graph::pipeline()) table.row({pass.name(), pass.why()});
        fmt::print("{}", table.text());
        return 0;
    }
    const std::string path = options.file == "-" ? "/dev/stdin" : options.file;
    fmt::print("{}", graph::run_passes(read_file(path), options.passes, options.file));
    return 0;
}

}  // namespace forge::tools
