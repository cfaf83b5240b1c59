#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "commands.h"
#include "graph/pipeline.h"
#include "json.h"

namespace forge::tools {

int explain_variant(const ExplainOptions& options) {
    const ir::Definition definition = find_variant(options.variant);
    const Attention attention = build(definition, problem_of(options.shape), options.build);
    fmt::print("{}\n", options.json ? json_of(attention) : attention.explain());
    return 0;
}

int emit_sources(const EmitOptions& options) {
    const ir::Definition definition = find_variant(options.variant);
    const Attention attention = build(definition, problem_of(options.shape), options.build);
    if (options.directory.empty()) {
        for (const GeneratedSource& source : attention.sources())
            fmt::print("// ---- {}\n{}\n", source.name, source.text);
        return 0;
    }
    for (const GeneratedSource& source : attention.sources()) {
        const std::filesystem::path path = std::filesystem::path(options.directory) / source.name;
        std::filesystem::create_directories(path.parent_path());
        if (!(std::ofstream(path, std::ios::binary) << source.text))
            throw RuntimeError(fmt::format("cannot write '{}'", path.string()));
        fmt::print("{}\n", path.string());
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

int run_graph_passes(const OptOptions& options) {
    if (options.list) {
        Table table({"pass", "what it is for"});
        for (const graph::Pass& pass : graph::pipeline()) table.row({pass.name, pass.why});
        fmt::print("{}", table.text());
        return 0;
    }
    const std::string path = options.file == "-" ? "/dev/stdin" : options.file;
    fmt::print("{}", graph::run_passes(read_file(path), options.passes, options.file));
    return 0;
}

}  // namespace forge::tools
