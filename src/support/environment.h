/// The only reader of the process environment and of the machine's properties.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace forge::support {

std::optional<std::string> environment(const char* name);
/// $FORGE_CACHE_DIR, else $XDG_CACHE_HOME/forge, else ~/.cache/forge, else /tmp/forge-<user>.
std::string default_cache_dir();
/// The best instruction set that emitted code may use here: avx512, avx2 or plain.
std::string machine_isa();
/// Folders with facts of GPUs, besides those that come with Forge: $FORGE_FACTS, separated by colons.
std::vector<std::string> facts_folders();
int core_count();

}  // namespace forge::support
