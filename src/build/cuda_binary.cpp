#include "build/cuda_binary.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <sstream>

#include "build/cache.h"
#include "build/nvrtc.h"
#include "forge/error.h"
#include "support/environment.h"
#include "support/files.h"
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

Output run_nvcc(const std::string& program, const Cache& cache, const fs::path& source, const std::string& arch,
                const std::vector<std::string>& options) {
    const support::ScratchDirectory scratch = cache.scratch();
    const std::string out = scratch.path() / "kernels.cubin", number = arch.substr(arch.find('_') + 1);
    std::vector<std::string> command = {program, "-cubin",   "-Xptxas",
                                        "-v",    "-gencode", fmt::format("arch=compute_{},code={}", number, arch),
                                        "-o",    out,        source.string()};
    command.insert(command.end(), options.begin(), options.end());
    const support::Finished done = support::run_process(command, {"LC_ALL=C", "TMPDIR=" + scratch.path().string()});
    auto cubin = support::read_file(out);
    if (done.status == 0 && cubin && !cubin->empty()) return {std::move(*cubin), done.output};
    refuse_full_disk(done.output);
    refused(arch, source, options, done.output);
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

namespace {

std::vector<std::string> further_options() {
    std::istringstream more(support::environment("FORGE_CUDA_FLAGS").value_or(""));
    return {std::istream_iterator<std::string>(more), {}};
}

Output compile(const Cache& cache, const std::string& source, const fs::path& cu, const std::string& arch,
               CudaCompiler compiler) {
    std::vector<std::string> options = {"-std=c++20", "-I" + cache.headers().string()};
    for (std::string& option : further_options()) options.push_back(std::move(option));
    if (const Nvrtc* nvrtc = compiler == CudaCompiler::Nvcc ? nullptr : Nvrtc::find())
        return run_nvrtc(*nvrtc, source, cu, arch, options);
    if (const std::string program = compiler == CudaCompiler::Nvrtc ? "" : nvcc(); !program.empty())
        return run_nvcc(program, cache, cu, arch, options);
    throw RuntimeError(
        "no CUDA compiler: expected libnvrtc.so (CUDA 11 to 13) where the loader looks or under /usr/local/cuda*, "
        "or nvcc on the PATH; found neither");
}

}  // namespace

CudaBinary build_cuda_binary(const std::string& name, const std::string& source, const std::string& arch,
                             const std::string& cache_dir, CudaCompiler compiler) {
    const Cache cache{cache_dir};
    // The compiler itself is no part of it: what one has compiled needs none any more.
    const std::string stem =
        stem_of(name, fmt::format("{}\n{}\n{}\n{}\n{}", source, arch, headers_hash(), fmt::join(further_options(), " "),
                                  compiler == CudaCompiler::Nvcc ? "nvcc" : ""));
    const std::string cu = stem + ".cu", cubin = stem + ".cubin", log = cubin + ".log";
    CudaBinary binary;
    const auto find = [&] {
        auto code = cache.sealed(cubin), report = cache.sealed(log);
        if (!code || !report) return false;
        binary.cubin = std::move(*code), binary.report = std::move(*report);
        return true;
    };
    binary.from_cache = find();
    if (!binary.from_cache) {
        cache.publish(cu, source);
        const support::FileLock others(cache.place(cu));  // who asks for the same meanwhile waits, and finds it
        binary.from_cache = find();
        if (!binary.from_cache) {
            Output made = compile(cache, source, cache.place(cu), arch, compiler);
            cache.seal(log, made.report), cache.seal(cubin, made.cubin);
            binary.cubin = std::move(made.cubin), binary.report = std::move(made.report);
        }
    }
    binary.kernels = parse_ptxas_report(binary.report);
    return binary;
}

}  // namespace forge::build
