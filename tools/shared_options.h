/// What the command lines of several commands have in common: options of a shape, of compilation, of a device and of
/// passes, and how a command is declared and called once its line is understood.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "commands.h"

namespace forge::tools {

using Command = std::function<int()>;

CLI::Validator at_least(std::int64_t least);

void add_shape(CLI::App& app, ShapeOptions& shape, bool with_seed = true);
void add_dtype(CLI::App& app, std::string& dtype);
void add_build(CLI::App& app, BuildOptions& build, bool with_strategy = true);
void add_device(CLI::App& app, BuildOptions& build);
void add_device_or_facts(CLI::App& app, BuildOptions& build);
void add_passes(CLI::App& app, PassOptions& passes);
void add_variant(CLI::App& app, std::string& variant);

CLI::App* add_command(CLI::App& app, const char* name, const char* what, const char* example);

/// `options` must outlive the parse; the callback runs once the command line is understood.
template <class Options>
void on_parse(CLI::App& command, Command& chosen, const Options& options, int (*run)(const Options&)) {
    command.callback([&chosen, &options, run] { chosen = [&options, run] { return run(options); }; });
}

/// The same for commands with a shape and a device: what is usual on a GPU is bf16.
template <class Options>
void on_parse_with_device(CLI::App& command, Command& chosen, Options& options, int (*run)(const Options&)) {
    command.callback([&chosen, &options, &command, run] {
        if (!options.build.on.empty()) options.build.device = "cuda";
        if (options.build.device != "cpu" && command.get_option("--dtype")->count() == 0) options.shape.dtype = "bf16";
        chosen = [&options, run] { return run(options); };
    });
}

}  // namespace forge::tools
