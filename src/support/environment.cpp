#include "support/environment.h"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace forge::support {

std::optional<std::string> environment(const char* name) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here writes the environment
    if (!value || !*value) return std::nullopt;
    return value;
}

std::string default_cache_dir() {
    if (const auto dir = environment("FORGE_CACHE_DIR")) return *dir;
    if (const auto dir = environment("XDG_CACHE_HOME")) return *dir + "/forge";
    if (const auto home = environment("HOME")) return *home + "/.cache/forge";
    return "/tmp/forge-" + std::to_string(geteuid());
}

std::string machine_isa() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
    return "plain";
}

std::vector<std::string> facts_folders() {
    std::vector<std::string> folders;
    std::istringstream list(environment("FORGE_FACTS").value_or(""));
    for (std::string folder; std::getline(list, folder, ':');)
        if (!folder.empty()) folders.push_back(folder);
    return folders;
}

int core_count() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
    return 1;
}

}  // namespace forge::support
