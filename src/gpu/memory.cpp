#include "gpu/memory.h"

namespace forge::gpu {

using runtime::CudaDriver;

Memory::Memory(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) CudaDriver::get().check(CudaDriver::get().allocate(&pointer_, bytes), "allocating device memory");
}

Memory::~Memory() {
    if (pointer_) CudaDriver::get().release(pointer_);
}

void Memory::fill(unsigned char value, const Stream* stream) const {
    CudaDriver::get().check(CudaDriver::get().fill_bytes(pointer_, value, bytes_, stream ? stream->handle() : nullptr),
                            "filling device memory");
}

void Memory::upload(const void* from, std::size_t bytes, std::size_t offset) const {
    if (bytes > 0)
        CudaDriver::get().check(CudaDriver::get().copy_to_device(at(offset), from, bytes), "copying to the device");
}

Stream::Stream() {
    constexpr unsigned kNonBlocking = 1;
    CudaDriver::get().check(CudaDriver::get().stream_create(&handle_, kNonBlocking), "making a stream");
}
Stream::~Stream() { CudaDriver::get().stream_destroy(handle_); }
void Stream::synchronize() const {
    CudaDriver::get().check(CudaDriver::get().stream_synchronize(handle_), "waiting for a stream");
}

Graph::Graph(const Stream& stream, const std::function<void()>& launches) {
    const CudaDriver& cuda = CudaDriver::get();
    constexpr int kThreadLocal = 1;
    cuda.check(cuda.stream_begin_capture(stream.handle(), kThreadLocal), "beginning a capture");
    launches();
    cuda.check(cuda.stream_end_capture(stream.handle(), &graph_), "ending a capture");
    cuda.check(cuda.graph_instantiate(&exec_, graph_, 0), "instantiating a graph");
}

Graph::~Graph() {
    if (exec_) CudaDriver::get().graph_exec_destroy(exec_);
    if (graph_) CudaDriver::get().graph_destroy(graph_);
}

void Graph::replay(const Stream& stream) const {
    CudaDriver::get().check(CudaDriver::get().graph_launch(exec_, stream.handle()), "launching a graph");
}

}  // namespace forge::gpu
