// `forge search`: the Python package does it, which also trains what is found; here is the way to it.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "commands.h"

namespace forge::tools {
namespace {

constexpr const char* kProgram =
    "import sys\n"
    "try:\n"
    "    from forge._search import main\n"
    "except ModuleNotFoundError as missing:\n"
    "    sys.exit(f'forge: search is in the Python package, which {sys.executable} does not have: pip install ., or "
    "FORGE_PYTHON=… ({missing})')\n"
    "sys.exit(main())\n";

}  // namespace

int search_variants(const SearchOptions& options) {
    const char* const chosen = std::getenv("FORGE_PYTHON");
    std::vector<std::string> words = {chosen && *chosen ? chosen : "python3", "-c", kProgram};
    words.insert(words.end(), options.words.begin(), options.words.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    throw RuntimeError(
        fmt::format("search: cannot run '{}': {}; FORGE_PYTHON names another Python", words[0], std::strerror(errno)));
}

}  // namespace forge::tools
