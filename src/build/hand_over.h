/// Emitted code for people to keep, read and compile: all that a source needs, as files of one folder.
#pragma once

#include <string>
#include <vector>

#include "support/embedded.h"

namespace forge::build {

/// The device library's headers that a source includes, through others too, by path.
std::vector<EmbeddedFile> headers_of(const std::string& source);

/// A shell script that compiles the source beside it as Forge does. `target`: avx512, avx2, plain, or a GPU's sm_90a.
std::string compile_script(const std::string& source_name, const std::string& target);

}  // namespace forge::build
