#include "rt/ranges.h"

#include <dlfcn.h>

#include "forge/error.h"

namespace forge::rt {

Ranges load_ranges() {
    for (const char* name : {"libnvtx3interop.so.1", "libnvToolsExt.so.1"}) {  // CUDA 12.5 and later; earlier
        void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);             // stays, as tools have hooks in it
        if (library == nullptr) continue;
        Ranges ranges;
        ranges.push = reinterpret_cast<int (*)(const char*)>(dlsym(library, "nvtxRangePushA"));  // NOLINT: dlsym
        ranges.pop = reinterpret_cast<int (*)()>(dlsym(library, "nvtxRangePop"));                // NOLINT: dlsym
        if (ranges.push && ranges.pop) return ranges;
    }
    throw RuntimeError(
        "nvtx: expected libnvtx3interop.so.1 or libnvToolsExt.so.1, of the CUDA toolkit, where the loader finds it; "
        "add its folder to LD_LIBRARY_PATH, or leave nvtx (FORGE_NVTX) out");
}

}  // namespace forge::rt
