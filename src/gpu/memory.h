/// What a program beside the compiler needs of a GPU: device memory, a stream, a graph of launches that is replayed.
/// For checks and measurements; calls themselves allocate nothing. A device's context must be current
/// (runtime::CudaScope).
#pragma once

#include <functional>
#include <utility>

#include "runtime/cuda_driver.h"

namespace forge::gpu {

class Stream;

/// Device memory that is freed with its owner.
class Memory {
  public:
    explicit Memory(std::size_t bytes);
    ~Memory();
    Memory(Memory&& other) noexcept : pointer_(std::exchange(other.pointer_, 0)), bytes_(other.bytes_) {}
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    Memory& operator=(Memory&&) = delete;

    [[nodiscard]] void* data() const {
        return reinterpret_cast<void*>(pointer_);
    }  // NOLINT: the driver's pointers are numbers
    [[nodiscard]] runtime::CudaPointer at(std::size_t offset) const { return pointer_ + offset; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    void fill(unsigned char value, const Stream* stream = nullptr) const;
    /// Copies from the host to `offset`.
    void upload(const void* from, std::size_t bytes, std::size_t offset = 0) const;

  private:
    runtime::CudaPointer pointer_ = 0;
    std::size_t bytes_;
};

class Stream {
  public:
    Stream();
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    [[nodiscard]] runtime::CudaStream handle() const { return handle_; }
    void synchronize() const;

  private:
    runtime::CudaStream handle_ = nullptr;
};

/// What was launched on a stream, to be launched again.
class Graph {
  public:
    Graph(const Stream& stream, const std::function<void()>& launches);
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    void replay(const Stream& stream) const;

  private:
    runtime::CudaGraph graph_ = nullptr;
    runtime::CudaGraphExec exec_ = nullptr;
};

}  // namespace forge::gpu
