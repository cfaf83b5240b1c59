#include "build/cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "forge/error.h"
#include "support/embedded.h"
#include "support/files.h"
#include "support/hash.h"

namespace forge::build {
namespace {

namespace fs = std::filesystem;

constexpr const char* kElsewhere = "set FORGE_CACHE_DIR to a directory of your own";
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

/// Only this user and root may have written what is compiled and loaded.
void refuse_foreign(const fs::path& place, const struct stat& about) {
    if (about.st_uid != geteuid() && about.st_uid != 0)
        throw RuntimeError(fmt::format("cache: '{}' belongs to user {}, not to user {}; {}", place.string(),
                                       about.st_uid, geteuid(), kElsewhere));
    if (about.st_mode & kOthersWrite)
        throw RuntimeError(fmt::format("cache: others may write to '{}' (mode {:04o}); run chmod go-w on it, or {}",
                                       place.string(), about.st_mode & 07777U, kElsewhere));
}

/// A directory, or a link of this user's to one.
void check_directory(const fs::path& place) {
    struct stat about{};
    if (lstat(place.c_str(), &about) == 0 && S_ISLNK(about.st_mode)) {
        about.st_mode &= ~kOthersWrite;  // links have no permissions of their own
        refuse_foreign(place, about);
        if (stat(place.c_str(), &about) != 0) about = {};
    }
    if (!S_ISDIR(about.st_mode))
        throw RuntimeError(fmt::format("cache: expected a directory, '{}' is none; {}", place.string(), kElsewhere));
    refuse_foreign(place, about);
}

void make_directories(const fs::path& directory) {
    fs::path so_far;
    for (const fs::path& part : directory) {
        so_far /= part;
        struct stat about{};
        if (stat(so_far.c_str(), &about) == 0 || mkdir(so_far.c_str(), 0700) == 0 || errno == EEXIST) continue;
        throw RuntimeError(fmt::format("cache directory '{}': cannot be made ({}); {}", directory.string(),
                                       std::generic_category().message(errno), kElsewhere));
    }
}

std::string seal_of(const std::string& content) { return "\nforge " + support::hash(content) + "\n"; }

std::size_t seal_size() {
    static const std::size_t kSize = seal_of("").size();
    return kSize;
}

/// Nothing if the file is not there.
std::optional<std::string> read_own(const fs::path& place) {
    struct stat about{};
    auto content = support::read_file(place, &about);
    if (content) refuse_foreign(place, about);
    return content;
}

/// What the cache's user can do about what the system refused.
std::string way_out(int code) {
    switch (code) {
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return std::string("make room (`forge cache prune`), or ") + kElsewhere;
        case EROFS:
        case EACCES:
        case EPERM:
            return std::string("a cache that cannot be written serves only what it holds; make it writable, or ") +
                   kElsewhere;
        default:
            return kElsewhere;
    }
}

[[noreturn]] void refuse(const support::FileError& error) {
    throw RuntimeError(fmt::format("cache: {}; {}", error.what(), way_out(error.code())));
}

void write(const fs::path& place, const std::string& content) try {
    support::publish_file(place, content);
} catch (const support::FileError& error) {
    refuse(error);
}

}  // namespace

Cache::Cache(fs::path directory) : directory_(std::move(directory)) {
    make_directories(directory_);
    check_directory(directory_);
}

bool is_sealed(const std::string& content) {
    if (content.size() < seal_size()) return false;
    const std::size_t end = content.size() - seal_size();
    return content.compare(end, seal_size(), seal_of(content.substr(0, end))) == 0;
}

std::optional<std::string> Cache::sealed(const std::string& name) const {
    auto content = read_own(place(name));
    if (!content || !is_sealed(*content)) return std::nullopt;
    content->resize(content->size() - seal_size());
    return content;
}

void Cache::seal(const std::string& name, const std::string& content) const {
    write(place(name), content + seal_of(content));
}

void Cache::publish(const std::string& name, const std::string& content) const {
    if (read_own(place(name)) != content) write(place(name), content);
}

void Cache::append(const std::string& name, const std::string& content) const try {
    support::append_to_file(place(name), content);
} catch (const support::FileError& error) {
    refuse(error);
}

const std::string& headers_hash() {
    static const std::string kHash = [] {
        std::string all;
        for (const EmbeddedFile& s : device_sources()) all += fmt::format("{} {}\n{}", s.path, s.text.size(), s.text);
        return support::hash(all).substr(0, 16);
    }();
    return kHash;
}

std::string headers_name() { return "device-" + headers_hash(); }

std::string stem_of(const std::string& name, const std::string& made_from) {
    constexpr std::size_t kMost = 64;  // file systems have an end to names, definitions have none
    return name.substr(0, kMost) + "-" + support::hash(made_from);
}

support::ScratchDirectory Cache::scratch() const try {
    return support::ScratchDirectory(directory_);
} catch (const support::FileError& error) {
    refuse(error);
}

fs::path Cache::headers() const {
    const fs::path root = directory_ / headers_name();
    for (const EmbeddedFile& s : device_sources()) {
        const fs::path place = root / s.path;
        make_directories(place.parent_path());
        for (fs::path folder = place.parent_path(); folder != directory_; folder = folder.parent_path())
            check_directory(folder);
        if (read_own(place) != s.text) write(place, s.text);
    }
    return root;
}

void refuse_full_disk(const std::string& compiler_output) {
    if (compiler_output.find(std::generic_category().message(ENOSPC)) == std::string::npos) return;
    throw RuntimeError(fmt::format("cache: no room for a compiler's files; {}:\n{}", way_out(ENOSPC), compiler_output));
}

}  // namespace forge::build
