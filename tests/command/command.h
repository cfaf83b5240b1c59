/// Running the forge command.
#pragma once

#include <string>
#include <vector>

#include "support/process.h"

namespace forge::tests {

/// With the recorder where the loader looks first for the driver, or without.
inline support::Finished forge_command(std::vector<std::string> words, bool with_recorder,
                                       const std::string& cache = FORGE_TEST_CACHE) {
    std::vector<std::string> all = {"/usr/bin/env", "FORGE_CACHE_DIR=" + cache,
                                    "LD_LIBRARY_PATH=" + std::string(with_recorder ? FORGE_RECORDER : ""),
                                    FORGE_COMMAND};
    all.insert(all.end(), words.begin(), words.end());
    return support::run_process(all);
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace forge::tests
