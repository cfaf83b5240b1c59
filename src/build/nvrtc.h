/// NVIDIA's run-time compiler, opened with dlopen on first use: no CUDA toolkit is needed to build or to link Forge.
#pragma once

#include <string>
#include <vector>

namespace forge::build {

class Nvrtc {
  public:
    /// The library of this process; nullptr if none was found.
    static const Nvrtc* find();

    struct Result {
        bool ok = false;
        std::string cubin;  ///< empty for a virtual architecture, compute_…
        std::string ptx;
        std::string log;  ///< errors, or the assembler's report
    };
    [[nodiscard]] Result compile(const std::string& name, const std::string& source,
                                 const std::vector<std::string>& options) const;
    [[nodiscard]] const std::string& path() const { return path_; }  ///< of the library file

  private:
    using Program = struct ProgramHandle*;
    bool open(const char* file);
    std::string path_;
    int (*create_)(Program*, const char* source, const char* name, int headers, const char* const* texts,
                   const char* const* names) = nullptr;
    int (*compile_)(Program, int options, const char* const*) = nullptr;
    int (*log_size_)(Program, std::size_t*) = nullptr;
    int (*log_)(Program, char*) = nullptr;
    int (*cubin_size_)(Program, std::size_t*) = nullptr;
    int (*cubin_)(Program, char*) = nullptr;
    int (*ptx_size_)(Program, std::size_t*) = nullptr;
    int (*ptx_)(Program, char*) = nullptr;
    int (*destroy_)(Program*) = nullptr;
};

}  // namespace forge::build
