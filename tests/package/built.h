/// Packages that tests share, built once for each process, and calls of the C++ interface in libforge_rt's terms.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "forge_rt.h"
#include "package/build.h"
#include "rt/manifest.h"

namespace forge::tests {

/// A package of two definitions, one of which looks back at tokens: forward and decode, f32 and bf16, K = 32 and 64,
/// V = 32, for every CPU; lib<name>.so beside it.
const std::filesystem::path& built();
package::Request request_of_built();
inline constexpr std::int64_t kTokens = 64, kTasks = 4;  ///< the only call that its kernels were chosen for

/// A copy of a package that a test may spoil; gone with this.
class Copy {
  public:
    explicit Copy(const std::filesystem::path& from);
    ~Copy();
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] std::string read(const std::string& file) const;
    void write(const std::string& file, const std::string& content) const;
    /// Writes the seals anew, so that what is in the files is what counts.
    void seal() const;

  private:
    std::filesystem::path path_;
};

/// A call in C's terms. The call must outlive this.
class CCall {
  public:
    CCall(const runtime::Callable& callable, const Call& call);
    CCall(const CCall&) = delete;
    CCall& operator=(const CCall&) = delete;
    forge_args args{};

  private:
    forge_tensor tensor_of(const TensorView* view);
    std::vector<forge_tensor> tensors_;
    std::vector<double> scalars_;
    forge_tensor offsets_{};
};

/// An opened package.
class Opened {
  public:
    explicit Opened(const std::filesystem::path& path, const char* device = "cpu", int threads = 2);
    ~Opened() { forge_rt_close(package_); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    [[nodiscard]] const forge_rt_package* get() const { return package_; }
    [[nodiscard]] const forge_rt_entry* find(const std::string& definition, const std::string& entry) const;
    [[nodiscard]] const rt::Manifest& manifest() const { return manifest_; }
    /// The tensors of an entry point's calls.
    [[nodiscard]] const runtime::Callable& callable(const std::string& definition, const std::string& entry) const;

  private:
    forge_rt_package* package_ = nullptr;
    rt::Manifest manifest_;
};

}  // namespace forge::tests
