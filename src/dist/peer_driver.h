/// What the exchange between GPUs needs of the driver beside runtime/cuda_driver: memory of other GPUs and processes.
#pragma once

#include <array>

#include "runtime/cuda_driver.h"

namespace forge::dist::detail {

/// CUipcMemHandle.
struct MemoryHandle {
    std::array<char, 64> bytes;
};

struct PeerDriver {
    /// RuntimeError if this machine has no driver.
    static const PeerDriver& get();

    int (*can_access)(int*, int device, int peer) = nullptr;
    int (*enable_access)(runtime::CudaContext, unsigned flags) = nullptr;
    int (*export_memory)(MemoryHandle*, runtime::CudaPointer) = nullptr;
    int (*import_memory)(runtime::CudaPointer*, MemoryHandle, unsigned flags) = nullptr;
    int (*close_memory)(runtime::CudaPointer) = nullptr;
    int (*register_host)(void*, std::size_t bytes, unsigned flags) = nullptr;
    int (*unregister_host)(void*) = nullptr;
    int (*host_address)(runtime::CudaPointer*, void*, unsigned flags) = nullptr;
    int (*fill_words)(runtime::CudaPointer, unsigned value, std::size_t count, runtime::CudaStream) = nullptr;
    int (*upload)(runtime::CudaPointer, const void*, std::size_t bytes, runtime::CudaStream) = nullptr;
    int (*download)(void*, runtime::CudaPointer, std::size_t bytes, runtime::CudaStream) = nullptr;
    int (*is_capturing)(runtime::CudaStream, int*) = nullptr;
};

}  // namespace forge::dist::detail
