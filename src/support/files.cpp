#include "support/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "forge/error.h"

namespace forge::support {
namespace {

namespace fs = std::filesystem;

/// A call of the system again as long as signals interrupt it.
template <class Call>
auto uninterrupted(Call&& call) {
    auto result = call();
    while (result < 0 && errno == EINTR) result = call();
    return result;
}

[[noreturn]] void fail(const char* what, const fs::path& file) {
    const int code = errno;
    throw FileError(fmt::format("cannot {} '{}': {}", what, file.string(), std::generic_category().message(code)),
                    code);
}

class Descriptor {
  public:
    Descriptor(const fs::path& file, int flags)
        : number_(uninterrupted([&] { return open(file.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600); })) {}
    ~Descriptor() {
        if (number_ >= 0) close(number_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    [[nodiscard]] int number() const { return number_; }
    [[nodiscard]] bool is_open() const { return number_ >= 0; }
    /// Some file systems say only here that a file could not be written.
    [[nodiscard]] bool closes() { return close(std::exchange(number_, -1)) == 0; }

  private:
    int number_;
};

bool write_all(int file, const std::string& content) {
    for (std::size_t done = 0; done < content.size();) {
        const ssize_t n = uninterrupted([&] { return write(file, content.data() + done, content.size() - done); });
        if (n < 0) return false;
        done += static_cast<std::size_t>(n);
    }
    return true;
}

}  // namespace

std::optional<std::string> read_file(const fs::path& place, struct stat* about) {
    const Descriptor file(place, O_RDONLY);
    struct stat info{};
    if (!file.is_open() || fstat(file.number(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
    if (about) *about = info;
    std::string content;
    content.reserve(static_cast<std::size_t>(info.st_size));
    for (std::array<char, 1 << 16> buffer;;) {
        const ssize_t n = uninterrupted([&] { return read(file.number(), buffer.data(), buffer.size()); });
        if (n < 0) return std::nullopt;
        if (n == 0) return content;
        content.append(buffer.data(), static_cast<std::size_t>(n));
    }
}

void publish_file(const fs::path& place, const std::string& content) {
    const fs::path temporary = unique_name(place.string());
    Descriptor file(temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (!file.is_open()) fail("write", place);
    // What has a name after a crash has its content too: it reaches the disk before the name does.
    const bool whole = write_all(file.number(), content) && uninterrupted([&] { return fsync(file.number()); }) == 0 &&
                       file.closes() && rename(temporary.c_str(), place.c_str()) == 0;
    if (whole) return;
    const int error = errno;
    unlink(temporary.c_str());
    errno = error;
    fail("write", place);
}

void append_to_file(const fs::path& place, const std::string& content) {
    Descriptor file(place, O_WRONLY | O_CREAT | O_APPEND);
    if (!file.is_open() || !write_all(file.number(), content) || !file.closes()) fail("write", place);
}

std::string unique_name(const std::string& stem) {
    std::uint64_t random = 0;
    if (uninterrupted([&] { return getrandom(&random, sizeof(random), 0); }) != sizeof(random))
        throw RuntimeError("the system gives no random numbers");
    return fmt::format("{}.{}.{:016x}.tmp", stem, getpid(), random);
}

ScratchDirectory::ScratchDirectory(const fs::path& parent) : path_(unique_name(parent / "build")) {
    if (mkdir(path_.c_str(), 0700) != 0) fail("make", path_);
}

ScratchDirectory::~ScratchDirectory() {
    std::error_code ignored;  // a leftover is a file that `forge cache prune` removes
    fs::remove_all(path_, ignored);
}

FileLock::FileLock(const fs::path& file) : file_(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) {
    if (file_ >= 0) uninterrupted([&] { return flock(file_, LOCK_EX); });
}

FileLock::~FileLock() {
    if (file_ < 0) return;
    flock(file_, LOCK_UN);  // a child that was forked meanwhile has the file open, too
    close(file_);
}

}  // namespace forge::support
