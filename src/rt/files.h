/// The files of a package: of a folder, or of one shared library that holds them. Every one is compared with its seal
/// before anything in it is used. PackageErrors, which name the file.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace forge::rt {

/// What a shared library of a package shows, under the name forge_package: emitted by src/package.
struct EmbeddedBlob {
    const char* name;
    const void* data;
    std::size_t size;
};
struct EmbeddedPackage {
    const EmbeddedBlob* blobs;
    std::size_t count;
};

inline constexpr const char* kManifestFile = "manifest.json";
/// A line "fingerprint bytes name" for each file of a folder; sealed itself.
inline constexpr const char* kSealsFile = "SEALS";

/// A loaded library of kernels.
class Library {
  public:
    Library(const std::string& file, const std::string& path);
    ~Library();
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    /// PackageError if it is not there.
    [[nodiscard]] void* symbol(const std::string& name) const;

  private:
    std::string path_;
    void* handle_;
};

class Files {
  public:
    virtual ~Files() = default;
    /// Valid as long as this is.
    [[nodiscard]] virtual std::string_view read(const std::string& name) = 0;
    /// The library in which the kernels of a file lie.
    [[nodiscard]] virtual const Library& library(const std::string& name) = 0;
};

std::unique_ptr<Files> open_files(const std::string& path);

}  // namespace forge::rt
