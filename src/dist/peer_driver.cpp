#include "dist/peer_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "forge/error.h"

namespace forge::dist::detail {
namespace {

PeerDriver load_peer_driver() {
    static_cast<void>(runtime::CudaDriver::get());  // says what is wrong where there is none
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    PeerDriver driver;
    const auto find = [&](auto& function, const char* name) {
        void* symbol = library ? dlsym(library, name) : nullptr;
        if (!symbol) throw RuntimeError(fmt::format("libcuda.so.1 has no '{}'; install a newer NVIDIA driver", name));
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);  // NOLINT: dlsym
    };
    find(driver.can_access, "cuDeviceCanAccessPeer"), find(driver.enable_access, "cuCtxEnablePeerAccess");
    find(driver.export_memory, "cuIpcGetMemHandle"), find(driver.import_memory, "cuIpcOpenMemHandle_v2");
    find(driver.close_memory, "cuIpcCloseMemHandle"), find(driver.register_host, "cuMemHostRegister_v2");
    find(driver.unregister_host, "cuMemHostUnregister"), find(driver.host_address, "cuMemHostGetDevicePointer_v2");
    find(driver.fill_words, "cuMemsetD32Async"), find(driver.upload, "cuMemcpyHtoDAsync_v2");
    find(driver.download, "cuMemcpyDtoHAsync_v2"), find(driver.is_capturing, "cuStreamIsCapturing");
    return driver;
}

}  // namespace

const PeerDriver& PeerDriver::get() {
    static const PeerDriver kDriver = load_peer_driver();
    return kDriver;
}

}  // namespace forge::dist::detail
