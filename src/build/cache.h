/// The directory in which built code lives: files are named by the content they were made from and published by rename,
/// so that concurrent processes see whole ones. Nothing here compiles or loads.
#pragma once

#include <filesystem>
#include <string>

namespace forge::build {

/// Makes the directory; RuntimeError if that fails.
std::filesystem::path open_cache(const std::string& dir);

/// Writes a file beside its place, then renames it into it; an existing file is kept.
void publish(const std::filesystem::path& place, const std::string& content);
/// The whole content of a file; empty if it cannot be read.
std::string read_file(const std::filesystem::path& place);

/// The directory of the device library's headers within the cache, by their content.
std::filesystem::path header_dir(const std::filesystem::path& cache);

/// Which program or library a file is, without starting it: path, size and time of change.
std::string file_identity(const std::string& path);

}  // namespace forge::build
