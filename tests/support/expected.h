/// Expected texts that live in files: read, compare with a short diff, and write anew when FORGE_UPDATE is set
/// (scripts/update-tests).
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace forge::tests {

/// The repository's root.
std::filesystem::path root();
std::string read_file(const std::filesystem::path& path);
/// Whether expectations are to be written instead of compared.
bool updating();
/// Writes the file if its content is another.
void write_file(const std::filesystem::path& path, const std::string& text);

/// Success if the texts are equal; else the first lines that differ, with a few lines around them.
testing::AssertionResult same_text(const std::string& expected, const std::string& got);
/// The same against a file's content; writes the file when updating.
testing::AssertionResult same_as_file(const std::filesystem::path& path, const std::string& got);

}  // namespace forge::tests
