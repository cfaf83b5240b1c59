/// The directory in which built code lives. Files are named by what they were made from, so a cache may be moved, and
/// are published whole; a directory that cannot be written serves what it holds. They are loaded into the process, so
/// nobody else may have written them: the directory and all in it belong to this user (or root) and are writable by
/// nobody else, or are refused. What is loaded carries a seal, a hash of its content, so that a file that was cut short
/// is made again. Nothing here compiles or loads.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "support/files.h"

namespace forge::build {

class Cache {
  public:
    /// Makes the directory (mode 0700) if it is not there. RuntimeError if it cannot be made, or is not this user's.
    explicit Cache(std::filesystem::path directory);

    [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
    [[nodiscard]] std::filesystem::path place(const std::string& name) const { return directory_ / name; }

    /// The content that `seal` put away under a name; nothing if there is none, or it is damaged. RuntimeError if it is
    /// somebody else's.
    [[nodiscard]] std::optional<std::string> sealed(const std::string& name) const;
    /// Publishes content with a seal behind its end, where loaders of libraries do not look. RuntimeError if it cannot
    /// be written.
    void seal(const std::string& name, const std::string& content) const;
    /// Publishes a text for people and compilers to read; one that is there already stays the same file.
    void publish(const std::string& name, const std::string& content) const;

    /// Adds a line or more to a text.
    void append(const std::string& name, const std::string& content) const;

    /// The directory of the device library's headers, each of which is there as it should be.
    [[nodiscard]] std::filesystem::path headers() const;
    /// A directory for a compiler's files.
    [[nodiscard]] support::ScratchDirectory scratch() const;

  private:
    std::filesystem::path directory_;
};

/// What the device library's headers hold, as a hash, and the name of their directory.
const std::string& headers_hash();
std::string headers_name();

/// What files made for a definition of this name begin with: `made_from` is all that they depend on.
std::string stem_of(const std::string& name, const std::string& made_from);

/// Whether a content ends in its seal.
bool is_sealed(const std::string& content);

/// RuntimeError if a compiler's output shows that the disk was full.
void refuse_full_disk(const std::string& compiler_output);

}  // namespace forge::build
