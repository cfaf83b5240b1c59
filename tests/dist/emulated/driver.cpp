// A CUDA driver for machines without a GPU, as libcuda.so.1: memory is the host's, and a launch of the exchange's
// kernels (device/cuda/ranks) runs them on the calling thread, their threads as fibers that change at every barrier and
// poll. Ranks are threads of a process, so that the kernels of several run at a time, each waiting for the others'.
// Memory of other processes cannot be had.
// NOLINTBEGIN: CUDA's names, and the driver's
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/cuda_driver.h"
#include "tests/cuda/emulated/fiber.h"

namespace {

using forge::emulated::Fiber;

constexpr int kMultiprocessors = 8;

struct Index {
    unsigned x = 0;
};
/// A block of threads under way.
struct Running {
    std::vector<std::byte> memory;
    unsigned waiting = 0, round = 0, alive = 0;
    int all = 1, result = 1;
};
thread_local Index threadIdx, blockIdx, gridDim;
thread_local Running* block = nullptr;
thread_local Fiber* fiber = nullptr;

/// The other fibers go on; where the launch goes on here, it is this one's turn again.
void pass() {
    const Index thread = threadIdx, of = blockIdx;
    Running* const mine = block;
    Fiber* const self = fiber;
    self->leave();
    threadIdx = thread, blockIdx = of, block = mine, fiber = self;
}

int barrier(int value) {
    Running& b = *block;
    const unsigned round = b.round;
    b.all = b.all && value;
    if (++b.waiting == b.alive) b.result = b.all, b.all = 1, b.waiting = 0, ++b.round;
    else
        while (b.round == round) pass();
    return b.result;  // nobody begins the next barrier's end before all have left this one
}

struct alignas(16) float4 {
    float x, y, z, w;
};
template <class T>
T __ldcg(const T* from) {
    return *from;
}
void __syncthreads() { barrier(1); }
int __syncthreads_and(int value) { return barrier(value != 0); }
void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
unsigned atomicAdd(unsigned* to, unsigned value) { return *to += value, *to - value; }
float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
template <class A, class B>
auto min(A a, B b) {
    return a < b ? a : b;
}

}  // namespace

namespace forge::cuda::ptx {
namespace {

using Word = unsigned long long;
void* block_memory() { return block->memory.data(); }
Word load_acquire_system(const void* word) {
    pass();
    return std::atomic_ref(*static_cast<Word*>(const_cast<void*>(word))).load(std::memory_order_acquire);
}
Word load_relaxed_system(const void* word) {
    return std::atomic_ref(*static_cast<Word*>(const_cast<void*>(word))).load(std::memory_order_relaxed);
}
void store_release_system(void* word, Word value) {
    std::atomic_ref(*static_cast<Word*>(word)).store(value, std::memory_order_release);
}
Word nanoseconds() {
    return static_cast<Word>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}
float from_half(unsigned short) { std::abort(); }  // no test has such rows

}  // namespace
}  // namespace forge::cuda::ptx

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#include "device/cuda/ranks/exchange.h"
#include "device/cuda/ranks/fold.h"

namespace {

enum Kernel : std::uintptr_t { kExchange = 1, kGather, kNeutral, kFold };
void* handle(std::uintptr_t number) { return reinterpret_cast<void*>(number); }
void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

/// All threads of all blocks, in turn, until they have ended.
void run_grid(unsigned blocks, unsigned threads, std::size_t bytes, const std::function<void()>& kernel) {
    struct Thread {
        Fiber fiber;
        unsigned number, of;
    };
    std::vector<Running> running(blocks);
    std::vector<std::unique_ptr<Thread>> all;
    for (unsigned b = 0; b < blocks; ++b) {
        running[b].memory.resize(bytes + 16), running[b].alive = threads;
        for (unsigned t = 0; t < threads; ++t) {
            all.push_back(std::make_unique<Thread>());
            all.back()->number = t, all.back()->of = b;
            all.back()->fiber.start(kernel);
        }
    }
    gridDim = {blocks};
    for (std::size_t ended = 0; ended < all.size();) {
        ended = 0;
        for (const auto& thread : all) {
            if (thread->fiber.ended()) {
                ++ended;
                continue;
            }
            threadIdx = {thread->number}, blockIdx = {thread->of}, block = &running[thread->of], fiber = &thread->fiber;
            thread->fiber.resume();
            if (thread->fiber.ended()) --running[thread->of].alive, ++ended;
        }
        std::this_thread::yield();
    }
}

int attribute(int number) {
    switch (number) {
        case 16:
            return kMultiprocessors;
        case 36:
            return 2619000;
        case 37:
            return 5120;
        case 75:
            return 9;
        case 97:
            return 232448;
        default:
            return 0;
    }
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuGetExportTable(const void**, const void*) { return 801; }
int cuDeviceGetCount(int* count) { return *count = 2, 0; }
int cuDeviceGetAttribute(int* value, int number, int) { return *value = attribute(number), 0; }
int cuDeviceGetName(char* name, int size, int) {
    return std::snprintf(name, static_cast<std::size_t>(size), "emulated"), 0;
}
int cuDeviceGetPCIBusId(char* address, int size, int device) {
    return std::snprintf(address, static_cast<std::size_t>(size), "0000:0%d:00.0", device + 1), 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = handle(9), 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void** context) { return *context = handle(9), 0; }
int cuCtxSynchronize() { return 0; }
int cuModuleLoadData(void** module, const void*) { return *module = handle(9), 0; }
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** function, void*, const char* name) {
    const std::string_view of = name;
    *function = handle(of == "forge_exchange" ? kExchange
                       : of == "forge_gather" ? kGather
                       : of == "forge_fold"   ? kFold
                                              : kNeutral);
    return 0;
}
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuOccupancyMaxActiveClusters(int* clusters, void*, const void*) { return *clusters = 1, 0; }
int cuLaunchKernelEx(const forge::runtime::CudaLaunch* how, void* function, void** arguments, void**) {
    namespace ranks = forge::cuda::ranks;
    const auto which = reinterpret_cast<std::uintptr_t>(function);
    run_grid(how->grid_x, how->block_x, how->shared_bytes, [&] {
        if (which == kExchange) forge_exchange(*static_cast<const ranks::Exchange*>(arguments[0]));
        else if (which == kGather) forge_gather(*static_cast<const ranks::Gather*>(arguments[0]));
        else if (which == kFold) forge_fold(*static_cast<const ranks::Fold*>(arguments[0]));
        else forge_neutral(*static_cast<const ranks::Neutral*>(arguments[0]));
    });
    return 0;
}
int cuTensorMapEncodeTiled(void*, ...) { return 801; }
int cuTensorMapReplaceAddress(void*, void*) { return 801; }
int cuMemsetD8Async(std::uint64_t address, unsigned char value, std::size_t bytes, void*) {
    return std::memset(pointer(address), value, bytes), 0;
}
int cuMemsetD32Async(std::uint64_t address, unsigned value, std::size_t count, void*) {
    return std::fill_n(static_cast<unsigned*>(pointer(address)), count, value), 0;
}
int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
    return *address = reinterpret_cast<std::uint64_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256)), 0;
}
int cuMemFree_v2(std::uint64_t address) { return std::free(pointer(address)), 0; }
int cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
    return std::memcpy(pointer(to), from, bytes), 0;
}
int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
    return std::memcpy(to, pointer(from), bytes), 0;
}
int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void*) {
    return cuMemcpyHtoD_v2(to, from, bytes);
}
int cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes, void*) {
    return cuMemcpyDtoH_v2(to, from, bytes);
}
int cuMemcpyDtoDAsync_v2(std::uint64_t to, std::uint64_t from, std::size_t bytes, void*) {
    return std::memcpy(pointer(to), pointer(from), bytes), 0;
}
int cuDeviceCanAccessPeer(int* can, int, int) { return *can = 1, 0; }
int cuCtxEnablePeerAccess(void*, unsigned) { return 0; }
struct Handle {
    std::array<char, 64> bytes;
};
int cuIpcGetMemHandle(void*, std::uint64_t) { return 801; }
int cuIpcOpenMemHandle_v2(std::uint64_t*, Handle, unsigned) { return 801; }
int cuIpcCloseMemHandle(std::uint64_t) { return 0; }
int cuMemHostRegister_v2(void*, std::size_t, unsigned) { return 0; }
int cuMemHostUnregister(void*) { return 0; }
int cuMemHostGetDevicePointer_v2(std::uint64_t* address, void* host, unsigned) {
    return *address = reinterpret_cast<std::uint64_t>(host), 0;
}
int cuStreamCreate(void** stream, unsigned) { return *stream = handle(9), 0; }
int cuStreamDestroy_v2(void*) { return 0; }
int cuStreamSynchronize(void*) { return 0; }
int cuStreamIsCapturing(void*, int* state) { return *state = 0, 0; }
int cuStreamBeginCapture_v2(void*, int) { return 801; }
int cuStreamEndCapture(void*, void**) { return 801; }
int cuGraphInstantiateWithFlags(void**, void*, unsigned long long) { return 801; }
int cuGraphLaunch(void*, void*) { return 801; }
int cuGraphExecDestroy(void*) { return 0; }
int cuGraphDestroy(void*) { return 0; }
int cuEventCreate(void** event, unsigned) { return *event = handle(9), 0; }
int cuEventDestroy_v2(void*) { return 0; }
int cuEventRecord(void*, void*) { return 0; }
int cuEventSynchronize(void*) { return 0; }
int cuEventElapsedTime(float* milliseconds, void*, void*) { return *milliseconds = 0, 0; }
int cuGetErrorString(int, const char** text) { return *text = "an error of the emulated driver", 0; }

}  // extern "C"
// NOLINTEND
