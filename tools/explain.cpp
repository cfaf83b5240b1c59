#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "commands.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "json.h"
#include "tune/select.h"

namespace forge::tools {

namespace {

void price_schedules(const ir::Definition& declared, const ExplainOptions& options) {
    constexpr std::size_t kAll = 1000;
    const CompileOptions o = compile_options(declared, problem_of(options.shape), options.build);
    const ir::Definition definition = frontend::with_dtype(declared, o.dtype);
    const ir::Function program = graph::optimize(frontend::join(definition));
    tune::Question q = tune::question_of(program, o);
    if (options.on != "cpu") q.device = schedule::device_named(options.on);
    const schedule::Choice choice = schedule::choose_schedule(definition, program, q.problem, q.device, q.wishes);
    fmt::print("// {}: {}.\n{}", definition.name, to_string(choice.schedule), schedule::explain(choice, kAll));
}

}  // namespace

int explain_variant(const ExplainOptions& options) {
    const ir::Definition definition = find_variant(options.variant);
    if (!options.on.empty()) {
        price_schedules(definition, options);
        return 0;
    }
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
