#include "tests/cuda/emulated/kernels.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <stdexcept>

#include "support/embedded.h"
#include "support/process.h"
#include "tests/support/expected.h"

namespace forge::emulated {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostShared = 228 << 10;

void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
}

/// Of its own: one that ends takes nothing from another.
fs::path new_folder() {
    static std::atomic<int> count = 0;
    return fs::temp_directory_path() / fmt::format("forge-emulated-{}-{}", getpid(), count++);
}

}  // namespace

Device::Device() : dir_(new_folder()) {
    for (const EmbeddedFile& source : device_sources()) write(dir_ / source.path, source.text);
    const fs::path ours = tests::root() / "tests/cuda/emulated";
    for (const char* header : {"machine.h", "hardware.h", "warp.h"})
        write(dir_ / header, tests::read_file(ours / header));
    for (const auto& entry : fs::directory_iterator(ours / "ptx"))
        write(dir_ / "cuda/ptx" / entry.path().filename(), tests::read_file(entry.path()));
}

Device::~Device() { fs::remove_all(dir_); }

fs::path Device::build(const std::string& name, const std::string& source) const {
    const fs::path cpp = dir_ / (name + ".cpp"), so = dir_ / (name + ".so");
    write(cpp, "#define FORGE_EMULATED\n#include \"machine.h\"\n" + source);
    const support::Finished done = support::run_process(
        {"g++", "-std=c++20", "-O0",                                    // compiling takes longer than running, even so
         "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error",  // which a GPU traps on, too
         "-shared", "-fPIC", "-ffp-contract=fast", "-fno-strict-aliasing",
         "-fno-gnu-unique",  // of which the loader would keep one for all libraries, and those for ever
         "-w", "-iquote", dir_.string(), "-o", so.string(), cpp.string()});
    if (done.status != 0) throw std::runtime_error(done.output.substr(0, 4000));
    return so;
}

Library::Library(const fs::path& file) : library_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) throw std::runtime_error(dlerror());
    machine_ = static_cast<Machine*>(kernel("forge_machine"));
    hardware_ = static_cast<Hardware**>(kernel("forge_hardware"));
}

Library::~Library() { dlclose(library_); }

void* Library::kernel(const std::string& symbol) const {
    void* const found = dlsym(library_, symbol.c_str());
    if (!found) throw std::runtime_error("no " + symbol + " in an emitted source");
    return found;
}

SharedMemory Library::memory(std::size_t bytes) const {
    if (bytes > kMostShared) throw std::runtime_error("more shared memory than a block has");
    const auto begin = reinterpret_cast<void* (*)()>(kernel("forge_shared_memory"));  // NOLINT: dlsym
    return {static_cast<std::byte*>(begin()), bytes};
}

}  // namespace forge::emulated
