/// Reading and writing whole files: every call of the system is checked, interrupted ones go on, and what is published
/// under a name is there whole or not at all, also if the disk is full, the process dies, or other processes do the
/// same.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>

#include "forge/error.h"

namespace forge::support {

/// What the system refused, and its number for that (errno).
class FileError : public RuntimeError {
  public:
    FileError(const std::string& what, int code) : RuntimeError(what), code_(code) {}
    [[nodiscard]] int code() const { return code_; }

  private:
    int code_;
};

/// The whole content; nothing if the file is not there or cannot be read. `about` gets what it was when it was opened.
std::optional<std::string> read_file(const std::filesystem::path& file, struct stat* about = nullptr);

/// Writes a new file (mode 0600) beside `place` under a name that nobody else has, then renames it into its place.
/// FileError with the system's words if any of that fails; nothing is left behind then.
void publish_file(const std::filesystem::path& place, const std::string& content);

/// Adds to a file's end, in one piece; FileError if that fails.
void append_to_file(const std::filesystem::path& file, const std::string& content);

/// A name that no other process has, in any container that shares the directory.
std::string unique_name(const std::string& stem);

/// A new directory (mode 0700) within another, gone with all it holds when this is.
class ScratchDirectory {
  public:
    explicit ScratchDirectory(const std::filesystem::path& parent);
    ~ScratchDirectory();
    ScratchDirectory(const ScratchDirectory&) = delete;
    ScratchDirectory& operator=(const ScratchDirectory&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

/// Held by one thread of one process at a time, as long as this lives; where files cannot be locked, by everybody.
class FileLock {
  public:
    explicit FileLock(const std::filesystem::path& file);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

  private:
    int file_;
};

}  // namespace forge::support
