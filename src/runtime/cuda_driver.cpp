#include "runtime/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <map>
#include <mutex>

#include "forge/error.h"

namespace forge::runtime {
namespace {

// CUdevice_attribute, as cuda.h numbers them.
constexpr int kMultiprocessors = 16, kMemoryKilohertz = 36, kMemoryBits = 37, kMajor = 75, kMinor = 76,
              kSharedBytesPerBlock = 97;

template <class Function>
void look_up(void* library, const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));  // NOLINT: dlsym
    if (!function)
        throw RuntimeError(
            fmt::format("libcuda.so.1 has no '{}'; install a newer NVIDIA driver (CUDA 12 or later)", symbol));
}

CudaDevice open_device(int index) {
    const CudaDriver& cuda = CudaDriver::get();
    int count = 0;
    cuda.check(cuda.device_count(&count), "counting devices");
    if (index >= count)
        throw RuntimeError(fmt::format("device: expected cuda:0 to cuda:{}, got cuda:{}", count - 1, index));
    CudaDevice device;
    device.index = index;
    std::array<char, 256> name{};
    cuda.check(cuda.device_name(name.data(), static_cast<int>(name.size()), index), "reading a device's name");
    device.name = name.data();
    int shared = 0, kilohertz = 0, bits = 0;
    for (const auto& [attribute, value] :
         {std::pair{kMajor, &device.major}, std::pair{kMinor, &device.minor},
          std::pair{kMultiprocessors, &device.multiprocessors}, std::pair{kSharedBytesPerBlock, &shared},
          std::pair{kMemoryKilohertz, &kilohertz}, std::pair{kMemoryBits, &bits}})
        cuda.check(cuda.device_attribute(value, attribute, index), "reading a device's attributes");
    device.shared_bytes = shared;
    device.memory_bandwidth = 2.0 * kilohertz * 1e3 * bits / 8;  // double data rate
    check_capability(device, fmt::format("device cuda:{}", index));
    cuda.check(cuda.primary_context_retain(&device.context, index), "retaining a device's context");
    return device;
}

}  // namespace

CudaDriver::CudaDriver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        throw RuntimeError(
            "device: this machine has no NVIDIA driver (libcuda.so.1 was not found); use device = \"cpu\"");
    int (*initialize)(unsigned) = nullptr;
    int (*driver_version)(int*) = nullptr;
    look_up(library, "cuInit", initialize);
    look_up(library, "cuDriverGetVersion", driver_version);
    look_up(library, "cuDeviceGetCount", device_count);
    look_up(library, "cuDeviceGetAttribute", device_attribute);
    look_up(library, "cuDeviceGetName", device_name);
    look_up(library, "cuDeviceGetPCIBusId", device_address);
    look_up(library, "cuDevicePrimaryCtxRetain", primary_context_retain);
    look_up(library, "cuCtxPushCurrent_v2", context_push);
    look_up(library, "cuCtxPopCurrent_v2", context_pop);
    look_up(library, "cuCtxSynchronize", context_synchronize);
    look_up(library, "cuModuleLoadData", module_load);
    look_up(library, "cuModuleUnload", module_unload);
    look_up(library, "cuTensorMapEncodeTiled", encode_map);
    look_up(library, "cuTensorMapReplaceAddress", replace_map_address);
    look_up(library, "cuModuleGetFunction", module_function);
    look_up(library, "cuFuncSetAttribute", function_set);
    look_up(library, "cuLaunchKernelEx", launch);
    look_up(library, "cuOccupancyMaxActiveClusters", clusters_at_once);
    look_up(library, "cuMemAlloc_v2", allocate);
    look_up(library, "cuMemFree_v2", release);
    look_up(library, "cuMemcpyHtoD_v2", copy_to_device);
    look_up(library, "cuMemcpyDtoH_v2", copy_to_host);
    look_up(library, "cuMemcpyDtoDAsync_v2", copy_on_device);
    look_up(library, "cuMemsetD8Async", fill_bytes);
    look_up(library, "cuStreamCreate", stream_create);
    look_up(library, "cuStreamDestroy_v2", stream_destroy);
    look_up(library, "cuStreamSynchronize", stream_synchronize);
    look_up(library, "cuStreamBeginCapture_v2", stream_begin_capture);
    look_up(library, "cuStreamEndCapture", stream_end_capture);
    look_up(library, "cuGraphInstantiateWithFlags", graph_instantiate);
    look_up(library, "cuGraphLaunch", graph_launch);
    look_up(library, "cuGraphExecDestroy", graph_exec_destroy);
    look_up(library, "cuGraphDestroy", graph_destroy);
    look_up(library, "cuEventCreate", event_create);
    look_up(library, "cuEventDestroy_v2", event_destroy);
    look_up(library, "cuEventRecord", event_record);
    look_up(library, "cuEventSynchronize", event_synchronize);
    look_up(library, "cuEventElapsedTime", event_elapsed_ms);
    look_up(library, "cuGetErrorString", error_text);
    check(initialize(0), "starting the driver");
    constexpr int kOverlapInGraphs = 12040;
    int version = 0;
    check(driver_version(&version), "reading the driver's version");
    kernels_overlap = version >= kOverlapInGraphs;
}

const CudaDriver& CudaDriver::get() {
    static const CudaDriver kDriver;
    return kDriver;
}

void CudaDriver::check(int result, const char* what) const {
    if (result == 0) return;
    const char* text = nullptr;
    error_text(result, &text);
    throw RuntimeError(fmt::format("CUDA: {}: {} (error {})", what, text ? text : "unknown error", result));
}

const CudaDevice& cuda_device(const std::string& name) {
    int index = 0;
    const std::string number = name.starts_with("cuda:") ? name.substr(5) : "0";
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), index);
    if ((name != "cuda" && !name.starts_with("cuda:")) || parsed.ec != std::errc() ||
        parsed.ptr != number.data() + number.size() || index < 0)
        throw RuntimeError(fmt::format("device: expected cpu, cuda or cuda:<number>, got '{}'", name));
    static std::mutex mutex;
    static std::map<int, CudaDevice> open;
    const std::lock_guard lock(mutex);
    const auto found = open.find(index);
    return found != open.end() ? found->second : open.emplace(index, open_device(index)).first->second;
}

CudaScope::CudaScope(const CudaDevice& device) {
    CudaDriver::get().check(CudaDriver::get().context_push(device.context), "entering a device's context");
}

CudaScope::~CudaScope() {
    CudaContext before = nullptr;
    CudaDriver::get().context_pop(&before);
}

}  // namespace forge::runtime
