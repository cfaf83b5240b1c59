/// Files that travel inside the compiler (made by cmake/embed.cmake): the device library's headers and the facts of
/// some GPUs.
#pragma once

#include <string>
#include <vector>

namespace forge {

struct EmbeddedFile {
    std::string path;  ///< relative to their folder: cpu/matmul.h, h200
    std::string text;
};
const std::vector<EmbeddedFile>& device_sources();  ///< of device/
const std::vector<EmbeddedFile>& fact_files();      ///< of facts/

}  // namespace forge
