#include "build/cpu_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
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

/// What the compiler makes with these words, alone in a directory of its own. `what`: it compiles, for messages.
std::string run_compiler(const support::ScratchDirectory& scratch, const std::vector<std::string>& words,
                         const std::string& what) {
    const fs::path out = scratch.path() / "made";
    std::vector<std::string> command = compiler();
    command.insert(command.end(), words.begin(), words.end());
    command.emplace_back("-o"), command.push_back(out.string());
    const support::Finished done = support::run_process(command, {"LC_ALL=C", "TMPDIR=" + scratch.path().string()});
    const auto made = support::read_file(out);
    if (done.status == 0 && made && !made->empty()) return *made;
    refuse_full_disk(done.output);
    throw InternalError(fmt::format("build: the compiler refused emitted code ({}):\n{}", what, done.output));
}

std::string compile(const Cache& cache, std::vector<std::string> flags, const fs::path& source) {
    for (const std::string& word : {std::string("-iquote"), cache.headers().string(), source.string()})
        flags.push_back(word);
    return run_compiler(cache.scratch(), flags, source.string());
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

CpuObject build_cpu_object(const std::string& name, const std::string& source, const std::string& isa,
                           const std::string& cache_dir, const std::vector<std::string>& kernels) {
    const Cache cache{cache_dir};
    std::vector<std::string> flags = cpu_flags(isa);
    std::replace(flags.begin(), flags.end(), std::string("-shared"), std::string("-c"));
    const std::string made_from = fmt::format("object\n{}\n{}\n{}\n{}", source, headers_hash(), fmt::join(flags, " "),
                                              support::environment("FORGE_CXX").value_or(""));
    CpuObject object;
    object.suffix = support::hash(made_from).substr(0, 16);
    flags.push_back("-Dforge=forge_" + object.suffix);  // the namespace of all that is inline
    for (const std::string& kernel : kernels) flags.push_back("-D" + kernel + "=" + object.symbol(kernel));
    const std::string stem = stem_of(name, made_from), cpp = stem + ".cpp", o = stem + ".o";
    const auto find = [&] {
        auto content = cache.sealed(o);
        object.from_cache = content.has_value();
        if (content) object.content = std::move(*content);
        return object.from_cache;
    };
    if (find()) return object;
    cache.publish(cpp, source);
    const support::FileLock others(cache.place(cpp));  // who asks for the same meanwhile waits, and finds it
    if (find()) return object;
    object.content = compile(cache, flags, cache.place(cpp));
    cache.seal(o, object.content);
    return object;
}

std::string link_library(const std::vector<std::string>& objects, const std::string& source,
                         const std::string& cache_dir) {
    const Cache cache{cache_dir};
    const support::ScratchDirectory scratch = cache.scratch();
    std::vector<std::string> words = {
        "-shared",           "-fPIC",           "-fvisibility=hidden", "-O1",   "-static-libgcc",
        "-static-libstdc++", "-Wl,--as-needed", "-Wl,--no-undefined",  "-Wl,-s"};
    const auto add = [&](const std::string& file, const std::string& content) {
        support::publish_file(scratch.path() / file, content);
        words.push_back((scratch.path() / file).string());
    };
    add("package.cpp", source);
    for (std::size_t i = 0; i < objects.size(); ++i) add(fmt::format("{}.o", i), objects[i]);
    words.emplace_back("-lm");
    return run_compiler(scratch, words, "a library of kernels");
}

}  // namespace forge::build
