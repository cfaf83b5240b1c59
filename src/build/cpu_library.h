/// Emitted C++ to loaded code: the system's compiler, a cache by content (source, headers, flags, compiler), files
/// published by rename so that concurrent processes see whole ones, dlopen.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace forge::build {

/// A loaded shared library; closes with its last owner.
class CpuLibrary {
  public:
    CpuLibrary(const CpuLibrary&) = delete;
    CpuLibrary& operator=(const CpuLibrary&) = delete;
    ~CpuLibrary();
    [[nodiscard]] void* symbol(const std::string& name) const;  ///< InternalError if it is not there
    [[nodiscard]] bool from_cache() const { return from_cache_; }
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    friend std::shared_ptr<CpuLibrary> build_cpu_library(const std::string&, const std::string&, const std::string&,
                                                         const std::string&);
    CpuLibrary(void* handle, std::string path, bool from_cache)
        : handle_(handle), path_(std::move(path)), from_cache_(from_cache) {}
    void* handle_;
    std::string path_;
    bool from_cache_;
};

/// `isa`: avx512, avx2 or plain. RuntimeError if there is no compiler, naming the package to install.
std::shared_ptr<CpuLibrary> build_cpu_library(const std::string& name, const std::string& source,
                                              const std::string& isa, const std::string& cache_dir);

/// A source as an object file, to be linked with others: its content. Its kernels are named `symbol(name)`, and nothing
/// else in it is known to the linker by a name of the device library's, so that objects of several instruction sets can
/// lie in one library. `kernels`: their names in the source.
struct CpuObject {
    std::string content;
    std::string suffix;  ///< of this source, for this instruction set
    bool from_cache = false;
    [[nodiscard]] std::string symbol(const std::string& kernel) const { return kernel + "_" + suffix; }
};
CpuObject build_cpu_object(const std::string& name, const std::string& source, const std::string& isa,
                           const std::string& cache_dir, const std::vector<std::string>& kernels);

/// Links object files, in order, and a C++ source to a shared library that needs the C library alone: its content. Of
/// what several objects define the first one's stays.
std::string link_library(const std::vector<std::string>& objects, const std::string& source,
                         const std::string& cache_dir);

/// The compiler's options. `isa`: avx512, avx2 or plain.
std::vector<std::string> cpu_flags(const std::string& isa);

/// Floats per vector of an instruction set.
int vector_width(const std::string& isa);

}  // namespace forge::build
