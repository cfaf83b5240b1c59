/// A directory of a test's own, and what a test does with errors.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace forge::tests {

/// The place of a directory that is gone after the test; making it is up to the test.
class Directory {
  public:
    explicit Directory(const std::string& name)
        : path_(std::filesystem::path(testing::TempDir()) / ("forge-" + name + "-" + std::to_string(getpid()))) {
        std::filesystem::remove_all(path_);
    }
    ~Directory() { std::filesystem::remove_all(path_); }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    [[nodiscard]] std::string path() const { return path_; }

  private:
    std::filesystem::path path_;
};

/// What the error that `run` must throw says.
template <class Error, class Run>
std::string message_of(Run&& run) {
    try {
        run();
    } catch (const Error& error) {
        return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
}

}  // namespace forge::tests
