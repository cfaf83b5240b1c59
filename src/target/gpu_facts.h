/// GPUs that need not be there: what is asked of them to plan, emit and compile for them, from files of facts.
#pragma once

#include <string>
#include <vector>

#include "runtime/gpu_facts.h"

namespace forge::target {

using runtime::GpuFacts;

/// A text of lines "key = value", with comments after '#'. RuntimeError, with file and line, for what is missing,
/// unknown or no number, and for a GPU that is too old.
GpuFacts parse_facts(const std::string& text, const std::string& file);

/// A GPU that can be named.
struct FactsFile {
    std::string name;
    std::string path;  ///< empty: it comes with Forge
};
/// Those of $FORGE_FACTS, and of facts/, which come after the former of the same name.
std::vector<FactsFile> known_facts();

/// "h200" or another name of these, or the path of such a file; RuntimeError if it is neither.
GpuFacts facts_of(const std::string& name_or_path);

}  // namespace forge::target
