/// The CUDA driver API, opened with dlopen on first use: Forge links to no CUDA library and runs on machines that have
/// none. The few prototypes are declared here by hand (CUDA 12 and 13 agree on them). Results other than 0 are
/// RuntimeErrors that name the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/gpu_facts.h"

namespace forge::runtime {

using CudaContext = struct CUctx_st*;
using CudaModuleHandle = struct CUmod_st*;
using CudaFunction = struct CUfunc_st*;
using CudaStream = struct CUstream_st*;
using CudaEvent = struct CUevent_st*;
using CudaGraph = struct CUgraph_st*;
using CudaGraphExec = struct CUgraphExec_st*;
using CudaPointer = std::uint64_t;

/// CUlaunchAttribute, of the kinds that are used.
struct CudaLaunchAttribute {
    static constexpr int kClusters = 4;    ///< CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: three numbers of blocks
    static constexpr int kMayOverlap = 6;  ///< CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: 1
    alignas(8) int id = kMayOverlap;
    alignas(8) int value[16] = {1};
};

/// CUlaunchConfig.
struct CudaLaunch {
    unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1, shared_bytes = 0;
    CudaStream stream = nullptr;
    CudaLaunchAttribute* attributes = nullptr;
    unsigned attribute_count = 0;
};

class CudaDriver {
  public:
    /// RuntimeError if this machine has no driver.
    static const CudaDriver& get();

    int (*device_count)(int*) = nullptr;
    int (*device_attribute)(int*, int attribute, int device) = nullptr;
    int (*device_name)(char*, int size, int device) = nullptr;
    int (*device_address)(char*, int size, int device) = nullptr;  ///< on the PCI bus
    int (*primary_context_retain)(CudaContext*, int device) = nullptr;
    int (*context_push)(CudaContext) = nullptr;
    int (*context_pop)(CudaContext*) = nullptr;
    int (*context_synchronize)() = nullptr;
    int (*module_load)(CudaModuleHandle*, const void* image) = nullptr;
    int (*module_unload)(CudaModuleHandle) = nullptr;
    int (*module_function)(CudaFunction*, CudaModuleHandle, const char* name) = nullptr;
    int (*function_set)(CudaFunction, int attribute, int value) = nullptr;
    int (*launch)(const CudaLaunch*, CudaFunction, void** arguments, void** extra) = nullptr;
    int (*clusters_at_once)(int*, CudaFunction, const CudaLaunch*) = nullptr;
    int (*allocate)(CudaPointer*, std::size_t bytes) = nullptr;
    int (*release)(CudaPointer) = nullptr;
    int (*copy_to_device)(CudaPointer, const void*, std::size_t bytes) = nullptr;
    int (*copy_to_host)(void*, CudaPointer, std::size_t bytes) = nullptr;
    int (*copy_on_device)(CudaPointer to, CudaPointer from, std::size_t bytes, CudaStream) = nullptr;
    int (*fill_bytes)(CudaPointer, unsigned char, std::size_t bytes, CudaStream) = nullptr;
    int (*stream_create)(CudaStream*, unsigned flags) = nullptr;
    int (*stream_destroy)(CudaStream) = nullptr;
    int (*stream_synchronize)(CudaStream) = nullptr;
    int (*stream_begin_capture)(CudaStream, int mode) = nullptr;
    int (*stream_end_capture)(CudaStream, CudaGraph*) = nullptr;
    int (*graph_instantiate)(CudaGraphExec*, CudaGraph, unsigned long long flags) = nullptr;
    int (*graph_launch)(CudaGraphExec, CudaStream) = nullptr;
    int (*graph_exec_destroy)(CudaGraphExec) = nullptr;
    int (*graph_destroy)(CudaGraph) = nullptr;
    int (*event_create)(CudaEvent*, unsigned flags) = nullptr;
    int (*event_destroy)(CudaEvent) = nullptr;
    int (*event_record)(CudaEvent, CudaStream) = nullptr;
    int (*event_synchronize)(CudaEvent) = nullptr;
    int (*event_elapsed_ms)(float*, CudaEvent, CudaEvent) = nullptr;
    /// Of a tensor's map: element type, axes, sizes, byte strides of all axes but the first, box, steps, interleaving,
    /// swizzle, what comes into the second-level cache, what stands for elements beyond the ends.
    int (*encode_map)(void* map, int type, unsigned rank, void* address, const std::uint64_t* sizes,
                      const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                      int interleave, int swizzle, int promotion, int fill) = nullptr;
    int (*replace_map_address)(void* map, void* address) = nullptr;
    int (*error_text)(int, const char**) = nullptr;

    /// Whether kernels of a stream may overlap, in captured graphs too: since CUDA 12.4.
    bool kernels_overlap = false;

    /// RuntimeError unless the result is 0.
    void check(int result, const char* what) const;

  private:
    CudaDriver();
};

/// One GPU with its primary context, which PyTorch and the CUDA runtime use too.
struct CudaDevice : GpuFacts {
    int index = 0;
    CudaContext context = nullptr;
};

/// "cuda" or "cuda:<n>"; RuntimeError for anything else, and for a device that is not there or is too old.
const CudaDevice& cuda_device(const std::string& name);

/// Makes a device's context the calling thread's for as long as it lives.
class CudaScope {
  public:
    explicit CudaScope(const CudaDevice& device);
    ~CudaScope();
    CudaScope(const CudaScope&) = delete;
    CudaScope& operator=(const CudaScope&) = delete;
};

}  // namespace forge::runtime
