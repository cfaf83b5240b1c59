/// The arguments of a call on a GPU: copies of host buffers, a stream, a graph of launches, and times by events. For tests
/// and measurements.
#pragma once

#include <functional>
#include <vector>

#include "check/problem.h"
#include "runtime/cuda_driver.h"

namespace forge::gpu {

/// Device memory that is freed with its owner.
class Memory {
 public:
    explicit Memory(std::size_t bytes);
    ~Memory();
    Memory(Memory&& other) noexcept : pointer_(std::exchange(other.pointer_, 0)), bytes_(other.bytes_) {}
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    Memory& operator=(Memory&&) = delete;

    [[nodiscard]] void* data() const { return reinterpret_cast<void*>(pointer_); }  // NOLINT: the driver's pointers are numbers
    [[nodiscard]] runtime::CudaPointer at(std::size_t offset) const { return pointer_ + offset; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    void fill(unsigned char value) const;

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

/// Seconds of each of `runs` replays, with `flush` overwritten in between so that nothing is found in the L2 cache.
std::vector<double> replay_seconds(const Graph& graph, const Stream& stream, const Memory& flush, int runs);

/// Host buffers and their copies on the device.
class DeviceBuffers {
 public:
    explicit DeviceBuffers(check::Buffers& host);
    /// Another workspace is made if the attention needs more.
    Call& call(const Attention& attention, const Stream& stream);
    void set_offsets(const check::Buffers& other);  ///< the packed lengths of another problem with as many sequences
    void fetch(check::Buffers& into) const;  ///< outputs and final states

 private:
    void upload(const check::OwnedTensor& x, TensorView& view);
    check::Buffers& host_;
    Call call_;
    std::vector<Memory> memory_;
};

}  // namespace forge::gpu
