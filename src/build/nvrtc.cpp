#include "build/nvrtc.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <optional>

namespace forge::build {
namespace {

template <class Function>
bool look_up(void* library, const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));  // NOLINT: dlsym
    return function != nullptr;
}

/// What the loader finds by name, then the places where toolkits are installed.
std::vector<std::string> candidates() {
    std::vector<std::string> files = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/usr/local", ignored))
        if (entry.path().filename().string().starts_with("cuda"))
            for (const char* folder : {"lib64", "lib"})
                files.push_back((entry.path() / folder / "libnvrtc.so").string());
    return files;
}

}  // namespace

bool Nvrtc::open(const char* file) {
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    const bool whole =
        look_up(library, "nvrtcCreateProgram", create_) && look_up(library, "nvrtcCompileProgram", compile_) &&
        look_up(library, "nvrtcGetProgramLogSize", log_size_) && look_up(library, "nvrtcGetProgramLog", log_) &&
        look_up(library, "nvrtcGetCUBINSize", cubin_size_) && look_up(library, "nvrtcGetCUBIN", cubin_) &&
        look_up(library, "nvrtcGetPTXSize", ptx_size_) && look_up(library, "nvrtcGetPTX", ptx_) &&
        look_up(library, "nvrtcDestroyProgram", destroy_);
    link_map* map = nullptr;
    if (whole && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) path_ = map->l_name;
    if (whole) return true;  // never closed: it lives as long as the process
    dlclose(library);
    return false;
}

const Nvrtc* Nvrtc::find() {
    static const std::optional<Nvrtc> kLibrary = []() -> std::optional<Nvrtc> {
        Nvrtc nvrtc;
        for (const std::string& file : candidates())
            if (nvrtc.open(file.c_str())) return nvrtc;
        return std::nullopt;
    }();
    return kLibrary ? &*kLibrary : nullptr;
}

Nvrtc::Result Nvrtc::compile(const std::string& name, const std::string& source,
                             const std::vector<std::string>& options) const {
    Result result;
    Program program = nullptr;
    if (create_(&program, source.c_str(), name.c_str(), 0, nullptr, nullptr) != 0) return result;
    std::vector<const char*> words;
    for (const std::string& option : options) words.push_back(option.c_str());
    result.ok = compile_(program, static_cast<int>(words.size()), words.data()) == 0;
    std::size_t size = 0;
    if (log_size_(program, &size) == 0 && size > 1) {
        result.log.resize(size);
        log_(program, result.log.data());
        result.log.resize(size - 1);  // the final zero
    }
    if (result.ok && cubin_size_(program, &size) == 0) {
        result.cubin.resize(size);
        cubin_(program, result.cubin.data());
    }
    if (result.ok && ptx_size_(program, &size) == 0 && size > 1) {
        result.ptx.resize(size);
        ptx_(program, result.ptx.data());
        result.ptx.resize(size - 1);  // the final zero
    }
    destroy_(&program);
    return result;
}

}  // namespace forge::build
