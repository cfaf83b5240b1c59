#include "rt/files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "rt/border.h"
#include "rt/seal.h"

namespace forge::rt {
namespace {

/// A file's content, as it is on disk.
class Mapped {
  public:
    explicit Mapped(const std::string& path) {
        const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        struct stat about{};
        if (file < 0 || fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
            const int error = errno;
            if (file >= 0) close(file);
            throw PackageError(
                fmt::format("{}: cannot be read: {}", path,
                            file < 0 ? strerror(error) : "not a file"));  // NOLINT(concurrency-mt-unsafe)
        }
        size_ = static_cast<std::size_t>(about.st_size);
        void* data = size_ == 0 ? nullptr : mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
        close(file);
        if (data == MAP_FAILED) throw PackageError(fmt::format("{}: cannot be mapped", path));
        data_ = static_cast<const char*>(data);
    }
    ~Mapped() {
        if (data_) munmap(const_cast<char*>(data_), size_);  // NOLINT: it was mapped so
    }
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    [[nodiscard]] std::string_view content() const { return {data_, size_}; }

  private:
    const char* data_ = nullptr;
    std::size_t size_ = 0;
};

/// What SEALS says of each file.
struct Seal {
    std::string fingerprint;
    std::size_t bytes = 0;
};

std::map<std::string, Seal> parse_seals(std::string_view text, const std::string& path) {
    constexpr std::size_t kDigits = 16;
    std::map<std::string, Seal> seals;
    text = text.substr(0, check_seal(text, path));
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        Seal seal;
        const char* const end = line.data() + line.size();
        const char* at = end;
        if (line.size() > kDigits) at = std::from_chars(line.data() + kDigits + 1, end, seal.bytes).ptr;
        if (at == end || *at != ' ') throw PackageError(fmt::format("{}: damaged: '{}' is no seal", path, line));
        seal.fingerprint = line.substr(0, kDigits);
        seals.emplace(std::string(at + 1, end), std::move(seal));
    }
    return seals;
}

class Folder : public Files {
  public:
    explicit Folder(std::string path) : path_(std::move(path)) {
        const std::string seals = path_ + "/" + kSealsFile;
        if (access((path_ + "/" + kManifestFile).c_str(), F_OK) != 0)
            throw PackageError(
                fmt::format("{}: expected a folder that `forge build` wrote, with {}", path_, kManifestFile));
        seals_ = parse_seals(Mapped(seals).content(), seals);
    }

    std::string_view read(const std::string& name) override {
        const auto seal = seals_.find(name);
        if (seal == seals_.end()) throw PackageError(fmt::format("{}: {} has no such file", path_, kSealsFile));
        const auto [file, is_new] = files_.try_emplace(name);
        if (is_new) file->second = std::make_unique<Mapped>(path_ + "/" + name);
        const std::string_view content = file->second->content();
        if (content.size() != seal->second.bytes)
            throw PackageError(fmt::format("{}/{}: truncated, or of another package: expected {} bytes, got {}", path_,
                                           name, seal->second.bytes, content.size()));
        if (is_new && fingerprint(content) != seal->second.fingerprint)
            throw PackageError(fmt::format(
                "{}/{}: damaged, or of another package: its content is not what its seal says", path_, name));
        return content;
    }

    const Library& library(const std::string& name) override {
        static_cast<void>(read(name));
        const auto [found, is_new] = libraries_.try_emplace(name);
        if (is_new) found->second = std::make_unique<Library>(name, path_ + "/" + name);
        return *found->second;
    }

  private:
    std::string path_;
    std::map<std::string, Seal> seals_;
    std::map<std::string, std::unique_ptr<Mapped>> files_;
    std::map<std::string, std::unique_ptr<Library>> libraries_;
};

class Shared : public Files {
  public:
    explicit Shared(const std::string& path) {
        check_seal(Mapped(path).content(), path);
        library_ = std::make_unique<Library>(path, path.find('/') == std::string::npos ? "./" + path : path);
        package_ = static_cast<const EmbeddedPackage*>(library_->symbol("forge_package"));
    }

    std::string_view read(const std::string& name) override {
        for (std::size_t i = 0; i < package_->count; ++i)
            if (name == package_->blobs[i].name)
                return {static_cast<const char*>(package_->blobs[i].data), package_->blobs[i].size};
        throw PackageError(fmt::format("the package holds no file '{}'", name));
    }
    const Library& library(const std::string&) override { return *library_; }

  private:
    std::unique_ptr<Library> library_;
    const EmbeddedPackage* package_ = nullptr;
};

}  // namespace

Library::Library(const std::string& file, const std::string& path)
    : path_(file), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_)
        throw PackageError(fmt::format("{}: cannot be loaded: {}", file, dlerror()));  // NOLINT(concurrency-mt-unsafe)
}

Library::~Library() { dlclose(handle_); }

void* Library::symbol(const std::string& name) const {
    if (void* address = dlsym(handle_, name.c_str())) return address;
    throw PackageError(fmt::format("{}: holds no '{}'", path_, name));
}

std::unique_ptr<Files> open_files(const std::string& path) try {
    struct stat about{};
    if (stat(path.c_str(), &about) != 0)
        throw PackageError(fmt::format("{}: {}", path, strerror(errno)));  // NOLINT(concurrency-mt-unsafe)
    if (S_ISDIR(about.st_mode)) return std::make_unique<Folder>(path);
    return std::make_unique<Shared>(path);
} catch (const PackageError&) {
    throw;
} catch (const RuntimeError& error) {
    throw PackageError(error.what());
}

}  // namespace forge::rt
