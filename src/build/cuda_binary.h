/// Emitted CUDA C++ to machine code: NVRTC, opened at run time, or nvcc, found on the search path; a cache by content
/// (source, headers, options, compiler). The assembler's report is kept and parsed. Nothing here needs a GPU or a
/// driver. $FORGE_CUDA_FLAGS are further options, separated by spaces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge::build {

enum class CudaCompiler : std::uint8_t { Any, Nvrtc, Nvcc };  ///< Any: NVRTC if it is there, else nvcc

/// What ptxas says of one kernel.
struct KernelReport {
    std::string kernel;
    int registers = 0;
    int shared_bytes = 0;  ///< statically declared
    int spill_bytes = 0;   ///< stored and loaded
    int stack_bytes = 0;
};

struct CudaBinary {
    std::string cubin;   ///< as the driver loads it
    std::string report;  ///< ptxas -v
    std::vector<KernelReport> kernels;
    bool from_cache = false;
};

/// `arch`: sm_80, sm_90a, … RuntimeError if there is no compiler (naming what was looked for) or it does not know the
/// architecture; InternalError if it refuses the code.
CudaBinary build_cuda_binary(const std::string& name, const std::string& source, const std::string& arch,
                             const std::string& cache_dir, CudaCompiler compiler = CudaCompiler::Any);

/// Whether a compiler of this kind was found.
bool has_cuda_compiler(CudaCompiler compiler);

std::vector<KernelReport> parse_ptxas_report(const std::string& report);

}  // namespace forge::build
