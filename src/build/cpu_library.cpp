#include "build/cpu_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "build/cache.h"
#include "forge/error.h"
#include "support/environment.h"
#include "support/hash.h"
#include "support/process.h"

namespace forge::build {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> isa_flags(const std::string& isa) {
    if (isa == "avx512")
        return {"-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq",
                "-mavx2",    "-mfma",      "-mf16c",     "-mprefer-vector-width=512"};
    if (isa == "avx2") return {"-mavx2", "-mfma", "-mf16c"};
    if (isa == "plain") return {};
    throw RuntimeError(fmt::format("isa: expected auto, avx512, avx2 or plain, got '{}'", isa));
}

std::string compiler() {
    const auto wanted = support::environment("FORGE_CXX");
    for (const std::string& name : wanted ? std::vector{*wanted} : std::vector<std::string>{"g++", "c++", "clang++"})
        if (const std::string path = support::find_program(name); !path.empty()) return path;
    throw RuntimeError(
        fmt::format("no C++ compiler: expected {} on the PATH, found none; install one (Debian: apt-get install g++) "
                    "or set FORGE_CXX",
                    wanted ? *wanted : "g++, c++ or clang++"));
}

void compile(const std::vector<std::string>& command, const fs::path& source) {
    const support::Finished done = support::run_process(command);
    if (done.status == 0) return;
    throw InternalError(
        fmt::format("build: the compiler refused emitted code ({}):\n{}", source.string(), done.output));
}

}  // namespace

CpuLibrary::~CpuLibrary() { dlclose(handle_); }

void* CpuLibrary::symbol(const std::string& name) const {
    void* address = dlsym(handle_, name.c_str());
    if (!address) throw InternalError(fmt::format("build: no symbol '{}' in {}", name, path_));
    return address;
}

int vector_width(const std::string& isa) { return isa == "avx512" ? 16 : isa == "avx2" ? 8 : 4; }

std::shared_ptr<CpuLibrary> build_cpu_library(const std::string& name, const std::string& source,
                                              const std::string& isa, const std::string& cache_dir) {
    const fs::path cache = open_cache(cache_dir);
    const fs::path headers = header_dir(cache);
    const std::string cxx = compiler();
    std::vector<std::string> command = {cxx,
                                        "-std=c++20",
                                        "-O3",
                                        "-shared",
                                        "-fPIC",
                                        "-fvisibility=hidden",
                                        "-ffp-contract=fast",
                                        "-fno-math-errno",
                                        "-fno-trapping-math",
                                        "-fno-exceptions",
                                        "-fno-rtti",
                                        "-w"};
    const auto isa_specific = isa_flags(isa);
    command.insert(command.end(), isa_specific.begin(), isa_specific.end());
    const std::string key = support::hash(
        fmt::format("{}\n{}\n{}\n{}", source, headers.string(), fmt::join(command, " "), file_identity(cxx)));
    const fs::path cpp = cache / fmt::format("{}-{}.cpp", name, key), so = cache / fmt::format("{}-{}.so", name, key);
    const bool cached = fs::exists(so);
    if (!cached) {
        publish(cpp, source);
        const std::string temporary = so.string() + fmt::format(".{}.tmp", getpid());
        for (const std::string& word :
             {std::string("-iquote"), headers.string(), std::string("-o"), temporary, cpp.string()})
            command.push_back(word);
        compile(command, cpp);
        fs::rename(temporary, so);
    }
    void* handle = dlopen(so.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw RuntimeError(fmt::format("cannot load {}: {}", so.string(), dlerror()));
    return std::shared_ptr<CpuLibrary>(new CpuLibrary(handle, so, cached));
}

}  // namespace forge::build
