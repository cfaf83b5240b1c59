/// The forge command: reads the command line, calls one command, prints what it throws. Exit codes: 0 well, 1 failed,
/// 2 not understood.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>

#include "command_options.h"

namespace forge::tools {
namespace {

const char* const kAbout =
    "Forge compiles variants of linear attention, each written as three short functions,\n"
    "into fast kernels for this machine.\n\n"
    "A VARIANT is a name that `forge list` prints, parts (compose:decay=vector,update=delta) or a file with a\n"
    "definition in text form.\n"
    "Start with:  forge demo";

/// The first word, if it looks like a command and is none.
std::optional<std::string> unknown_command(const CLI::App& app, int argc, char** argv) {
    if (argc < 2 || *argv[1] == '-') return std::nullopt;
    for (const CLI::App* command : app.get_subcommands(nullptr))
        if (command->get_name() == argv[1]) return std::nullopt;
    return argv[1];
}

int run(int argc, char** argv) {
    CLI::App app(kAbout, "forge");
    app.require_subcommand(1);
    app.option_defaults()->always_capture_default();
    app.set_version_flag("--version", "forge " FORGE_VERSION);
    AllOptions options;
    Command chosen;
    add_commands(app, options, chosen);
    if (const auto unknown = unknown_command(app, argc, argv)) {
        fmt::print(stderr, "forge has no command '{}'; `forge --help` lists them\n", *unknown);
        return 2;
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    return chosen();
}

}  // namespace
}  // namespace forge::tools

int main(int argc, char** argv) {
    try {
        return forge::tools::run(argc, argv);
    } catch (const forge::CompileError& error) {
        fmt::print(stderr, "{}\n", error.what());  // starts with the place in the user's source
    } catch (const std::exception& error) {
        fmt::print(stderr, "forge: {}\n", error.what());
    }
    return 1;
}
