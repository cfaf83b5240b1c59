#include "build/cuda_binary.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>

#include "build/cache.h"
#include "build/nvrtc.h"
#include "forge/error.h"
#include "support/environment.h"
#include "support/hash.h"
#include "support/process.h"

namespace forge::build {
namespace {

namespace fs = std::filesystem;

std::string nvcc() {
    if (std::string path = support::find_program("nvcc"); !path.empty()) return path;
    return support::find_program("/usr/local/cuda/bin/nvcc");
}

struct Output {
    std::string cubin, report;
};

[[noreturn]] void refused(const std::string& arch, const fs::path& source, const std::vector<std::string>& options,
                          const std::string& log) {
    if (log.find("gpu-architecture") != std::string::npos ||
        log.find("Unsupported gpu architecture") != std::string::npos)
        throw RuntimeError(fmt::format("the CUDA compiler does not know {}; install a newer toolkit:\n{}", arch, log));
    throw InternalError(fmt::format("build: the CUDA compiler refused emitted code ({}, with {}):\n{}", source.string(),
                                    fmt::join(options, " "), log));
}

Output run_nvrtc(const Nvrtc& nvrtc, const std::string& text, const fs::path& source, const std::string& arch,
                 const std::vector<std::string>& options) {
    std::vector<std::string> all = options;
    all.push_back("--gpu-architecture=" + arch);
    all.emplace_back("--ptxas-options=-v");
    Nvrtc::Result result = nvrtc.compile(source.string(), text, all);
    if (!result.ok) refused(arch, source, all, result.log);
    return {std::move(result.cubin), std::move(result.log)};
}

Output run_nvcc(const std::string& program, const fs::path& source, const std::string& arch,
                const std::vector<std::string>& options) {
    const std::string out = source.string() + fmt::format(".{}.cubin", getpid()),
                      number = arch.substr(arch.find('_') + 1);
    std::vector<std::string> command = {program, "-cubin",   "-Xptxas",
                                        "-v",    "-gencode", fmt::format("arch=compute_{},code={}", number, arch),
                                        "-o",    out,        source.string()};
    command.insert(command.end(), options.begin(), options.end());
    const support::Finished done = support::run_process(command);
    if (done.status != 0) refused(arch, source, options, done.output);
    Output output{read_file(out), done.output};
    fs::remove(out);
    return output;
}

}  // namespace

bool has_cuda_compiler(CudaCompiler compiler) {
    switch (compiler) {
        case CudaCompiler::Any:
            return has_cuda_compiler(CudaCompiler::Nvrtc) || has_cuda_compiler(CudaCompiler::Nvcc);
        case CudaCompiler::Nvrtc:
            return Nvrtc::find() != nullptr;
        case CudaCompiler::Nvcc:
            return !nvcc().empty();
    }
    return false;
}

std::vector<KernelReport> parse_ptxas_report(const std::string& report) {
    static const std::regex kEntry("Compiling entry function '([^']+)'"), kRegisters("Used ([0-9]+) registers"),
        kShared("([0-9]+) bytes smem"),
        kFrame("([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads");
    std::vector<KernelReport> kernels;
    std::istringstream lines(report);
    std::smatch found;
    for (std::string line; std::getline(lines, line);) {
        if (std::regex_search(line, found, kEntry)) kernels.push_back({found[1], 0, 0, 0, 0});
        if (kernels.empty()) continue;
        KernelReport& kernel = kernels.back();
        if (std::regex_search(line, found, kFrame))
            kernel.stack_bytes = std::stoi(found[1]), kernel.spill_bytes = std::stoi(found[2]) + std::stoi(found[3]);
        if (std::regex_search(line, found, kRegisters)) kernel.registers = std::stoi(found[1]);
        if (std::regex_search(line, found, kShared)) kernel.shared_bytes = std::stoi(found[1]);
    }
    return kernels;
}

CudaBinary build_cuda_binary(const std::string& name, const std::string& source, const std::string& arch,
                             const std::string& cache_dir, CudaCompiler compiler) {
    const Nvrtc* nvrtc = compiler == CudaCompiler::Nvcc ? nullptr : Nvrtc::find();
    const std::string program = nvrtc || compiler == CudaCompiler::Nvrtc ? "" : nvcc();
    if (!nvrtc && program.empty())
        throw RuntimeError(
            "no CUDA compiler: expected libnvrtc.so (CUDA 11 to 13) where the loader looks or under /usr/local/cuda*, "
            "or nvcc on the PATH; found neither");
    const fs::path cache = open_cache(cache_dir), headers = header_dir(cache);
    std::vector<std::string> options = {"-std=c++20", "-I" + headers.string()};
    std::istringstream more(support::environment("FORGE_CUDA_FLAGS").value_or(""));
    for (std::string option; more >> option;) options.push_back(option);
    const std::string key =
        support::hash(fmt::format("{}\n{}\n{}\n{}\n{}", source, arch, headers.string(), fmt::join(options, " "),
                                  file_identity(nvrtc ? nvrtc->path() : program)));
    const fs::path cu = cache / fmt::format("{}-{}.cu", name, key),
                   cubin = cache / fmt::format("{}-{}.cubin", name, key), log = cubin.string() + ".log";
    CudaBinary binary;
    binary.from_cache = fs::exists(cubin) && fs::exists(log);
    if (!binary.from_cache) {
        publish(cu, source);
        const Output output =
            nvrtc ? run_nvrtc(*nvrtc, source, cu, arch, options) : run_nvcc(program, cu, arch, options);
        publish(log, output.report);
        publish(cubin, output.cubin);
    }
    binary.cubin = read_file(cubin);
    binary.report = read_file(log);
    binary.kernels = parse_ptxas_report(binary.report);
    return binary;
}

}  // namespace forge::build
