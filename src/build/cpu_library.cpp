#include "build/cpu_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <sstream>

#include "build/cache.h"
#include "forge/error.h"
#include "support/environment.h"
#include "support/files.h"
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

constexpr const char* kFlags[] = {"-std=c++20",
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

std::vector<std::string> words_of(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
}

/// The command that begins a compilation: $FORGE_CXX, which may be several words ("ccache g++"), or what is there.
std::vector<std::string> compiler() {
    const auto wanted = support::environment("FORGE_CXX");
    std::vector<std::vector<std::string>> choices = {{"g++"}, {"c++"}, {"clang++"}};
    if (wanted) choices = {words_of(*wanted)};
    for (std::vector<std::string>& words : choices) {
        if (words.empty()) continue;
        const std::string program = support::find_program(words[0]);
        if (program.empty()) continue;
        words[0] = program;
        return words;
    }
    throw RuntimeError(
        fmt::format("no C++ compiler: expected {} on the PATH, found none; install one (Debian: apt-get install g++) "
                    "or set FORGE_CXX",
                    wanted ? *wanted : "g++, c++ or clang++"));
}

/// A shared library from a source, by the compiler alone in a directory of its own.
std::string compile(const Cache& cache, const std::vector<std::string>& flags, const fs::path& source) {
    const support::ScratchDirectory scratch = cache.scratch();
    const fs::path library = scratch.path() / "library.so";
    std::vector<std::string> command = compiler();
    command.insert(command.end(), flags.begin(), flags.end());
    for (const std::string& word :
         {std::string("-iquote"), cache.headers().string(), std::string("-o"), library.string(), source.string()})
        command.push_back(word);
    const support::Finished done = support::run_process(command, {"LC_ALL=C", "TMPDIR=" + scratch.path().string()});
    const auto made = support::read_file(library);
    if (done.status == 0 && made && !made->empty()) return *made;
    refuse_full_disk(done.output);
    throw InternalError(
        fmt::format("build: the compiler refused emitted code ({}):\n{}", source.string(), done.output));
}

std::string loader_error() {
    const char* text = dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
    return text ? text : "it is not what was written";
}

/// The library of a name in the cache, if it is whole and the loader takes it.
void* open_cached(const Cache& cache, const std::string& name) {
    return cache.sealed(name) ? dlopen(cache.place(name).c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
}

}  // namespace

CpuLibrary::~CpuLibrary() { dlclose(handle_); }

void* CpuLibrary::symbol(const std::string& name) const {
    void* address = dlsym(handle_, name.c_str());
    if (!address) throw InternalError(fmt::format("build: no symbol '{}' in {}", name, path_));
    return address;
}

std::vector<std::string> cpu_flags(const std::string& isa) {
    std::vector<std::string> flags(std::begin(kFlags), std::end(kFlags));
    const auto isa_specific = isa_flags(isa);
    flags.insert(flags.end(), isa_specific.begin(), isa_specific.end());
    return flags;
}

int vector_width(const std::string& isa) { return isa == "avx512" ? 16 : isa == "avx2" ? 8 : 4; }

std::shared_ptr<CpuLibrary> build_cpu_library(const std::string& name, const std::string& source,
                                              const std::string& isa, const std::string& cache_dir) {
    const Cache cache{cache_dir};
    const std::vector<std::string> flags = cpu_flags(isa);
    // The compiler's own version is no part of it: what one has compiled needs none any more.
    const std::string stem = stem_of(name, fmt::format("{}\n{}\n{}\n{}", source, headers_hash(), fmt::join(flags, " "),
                                                       support::environment("FORGE_CXX").value_or("")));
    const std::string cpp = stem + ".cpp", so = stem + ".so";
    const auto loaded = [&](void* handle, bool from_cache) {
        return std::shared_ptr<CpuLibrary>(new CpuLibrary(handle, cache.place(so), from_cache));
    };
    if (void* handle = open_cached(cache, so)) return loaded(handle, true);
    cache.publish(cpp, source);
    const support::FileLock others(cache.place(cpp));  // who asks for the same meanwhile waits, and finds it
    if (void* handle = open_cached(cache, so)) return loaded(handle, true);
    cache.seal(so, compile(cache, flags, cache.place(cpp)));
    if (void* handle = open_cached(cache, so)) return loaded(handle, false);
    throw RuntimeError(fmt::format("cannot load {}: {}", cache.place(so).string(), loader_error()));
}

}  // namespace forge::build
