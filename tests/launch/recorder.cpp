#include "tests/launch/recorder.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/cuda_driver.h"
#include "tests/cuda/emulated/tensor_map.h"

using forge::recorder::kMost;

namespace {

forge::recorder::Record record;
std::atomic<int> launches{0}, fills{0};
std::atomic<int> pieces{0};  ///< of work: kernels and copies
int captured_from = 0;       ///< … when a capture began
int replayed = 0;            ///< … in replays of graphs since a time was read

void* const kSomething = &record;  ///< what handles are

// CUdevice_attribute, as cuda.h numbers them, of an H100.
int attribute(int number) {
    switch (number) {
        case 16:
            return 132;  // multiprocessors
        case 36:
            return 2619000;  // kHz of the memory
        case 37:
            return 5120;  // bits of its bus
        case 75:
            return 9;  // compute capability
        case 97:
            return 232448;  // bytes of shared memory
        default:
            return 0;
    }
}

void* pointer(std::uint64_t address) {
    return reinterpret_cast<void*>(address);
}  // NOLINT: the driver's pointers are numbers

}  // namespace

// NOLINTBEGIN: the driver's names
extern "C" {

const forge::recorder::Record* forge_record() {
    record.launches = launches, record.fills = fills;
    return &record;
}
void forge_record_clear() { launches = 0, fills = 0; }

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuGetExportTable(const void**, const void*) { return 801; }  // NVRTC asks
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGetAttribute(int* value, int number, int) { return *value = attribute(number), 0; }
int cuDeviceGetName(char* name, int size, int) {
    return std::snprintf(name, static_cast<std::size_t>(size), "recorder"), 0;
}
int cuDeviceGetPCIBusId(char* address, int size, int) {
    return std::snprintf(address, static_cast<std::size_t>(size), "0000:01:00.0"), 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = kSomething, 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void** context) { return *context = kSomething, 0; }
int cuCtxSynchronize() { return 0; }
int cuModuleLoadData(void** module, const void*) { return *module = kSomething, 0; }
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** function, void*, const char*) { return *function = kSomething, 0; }
int cuFuncSetAttribute(void*, int, int) { return 0; }

// A multiprocessor has room for two blocks.
int cuOccupancyMaxActiveClusters(int* clusters, void*, const forge::runtime::CudaLaunch* how) {
    return *clusters = 2 * attribute(16) / how->attributes[0].value[0], 0;
}

int cuLaunchKernelEx(const forge::runtime::CudaLaunch* how, void*, void** arguments, void**) {
    ++pieces;
    const int at = launches++;
    if (at >= kMost) return 0;
    forge::recorder::Launch& launch = record.launch[at];
    launch = {how->grid_x, 1, how->block_x * how->block_y, how->shared_bytes, how->stream, {}, {}};
    for (unsigned a = 0; a < how->attribute_count; ++a) {
        const forge::runtime::CudaLaunchAttribute& given = how->attributes[a];
        if (given.id == given.kClusters) launch.cluster = static_cast<unsigned>(given.value[0]);
    }
    std::memcpy(&launch.arguments, arguments[0], sizeof(launch.arguments));
    std::memcpy(&launch.maps, arguments[1], sizeof(launch.maps));
    return 0;
}

int cuTensorMapEncodeTiled(void* map, int type, unsigned axes, void* address, const std::uint64_t* sizes,
                           const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t*, int,
                           int swizzle, int, int) {
    forge::emulated::TensorMap plain{};
    if (axes != forge::emulated::TensorMap::kAxes) return 1;
    std::memcpy(&plain.address, &address, sizeof(address));
    std::memcpy(plain.sizes, sizes, sizeof(plain.sizes));
    std::memcpy(plain.strides, strides, sizeof(plain.strides));
    std::memcpy(plain.box, box, sizeof(plain.box));
    plain.axes = axes, plain.swizzle = static_cast<std::uint32_t>(swizzle);
    plain.bytes = type == forge::emulated::TensorMap::kF32 ? 4 : 2;
    return std::memcpy(map, &plain, sizeof(plain)), 0;
}
int cuTensorMapReplaceAddress(void* map, void* address) { return std::memcpy(map, &address, sizeof(address)), 0; }

int cuMemsetD8Async(std::uint64_t address, unsigned char value, std::size_t bytes, void* stream) {
    const int at = fills++;
    if (at < kMost) record.fill[at] = {address, value, bytes, stream};
    return 0;
}

int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
    constexpr std::size_t kAlignment = 256;  // as the driver's
    const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* const memory = std::aligned_alloc(kAlignment, whole);
    if (memory) std::memset(memory, 0, whole);
    return *address = reinterpret_cast<std::uint64_t>(memory), 0;
}
int cuMemFree_v2(std::uint64_t address) { return std::free(pointer(address)), 0; }
int cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
    return std::memcpy(pointer(to), from, bytes), 0;
}
int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
    return std::memcpy(to, pointer(from), bytes), 0;
}
int cuMemcpyDtoDAsync_v2(std::uint64_t, std::uint64_t, std::size_t, void*) { return ++pieces, 0; }
int cuStreamCreate(void** stream, unsigned) { return *stream = kSomething, 0; }
int cuStreamDestroy_v2(void*) { return 0; }
int cuStreamSynchronize(void*) { return 0; }

// A graph is the number of its kernels and copies, and each of them takes a millisecond.
int cuStreamBeginCapture_v2(void*, int) { return captured_from = pieces, 0; }
int cuStreamEndCapture(void*, void** graph) {
    return *graph = pointer(static_cast<std::uint64_t>(pieces - captured_from)), 0;
}
int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) { return *exec = graph, 0; }
int cuGraphLaunch(void* exec, void*) { return replayed += static_cast<int>(reinterpret_cast<std::uint64_t>(exec)), 0; }
int cuGraphExecDestroy(void*) { return 0; }
int cuGraphDestroy(void*) { return 0; }
int cuEventCreate(void** event, unsigned) { return *event = kSomething, 0; }
int cuEventDestroy_v2(void*) { return 0; }
int cuEventRecord(void*, void*) { return 0; }
int cuEventSynchronize(void*) { return 0; }
int cuEventElapsedTime(float* milliseconds, void*, void*) {
    return *milliseconds = static_cast<float>(std::exchange(replayed, 0)), 0;
}
int cuGetErrorString(int, const char** text) { return *text = "an error of the recorder", 0; }

}  // extern "C"
// NOLINTEND
