#include "device_buffers.h"

namespace forge::gpu {

using runtime::CudaDriver;

Memory::Memory(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) CudaDriver::get().check(CudaDriver::get().allocate(&pointer_, bytes), "allocating device memory");
}

Memory::~Memory() {
    if (pointer_) CudaDriver::get().release(pointer_);
}

void Memory::fill(unsigned char value) const { CudaDriver::get().check(CudaDriver::get().fill_bytes(pointer_, value, bytes_, nullptr), "filling device memory"); }

Stream::Stream() {
    constexpr unsigned kNonBlocking = 1;
    CudaDriver::get().check(CudaDriver::get().stream_create(&handle_, kNonBlocking), "making a stream");
}
Stream::~Stream() { CudaDriver::get().stream_destroy(handle_); }
void Stream::synchronize() const { CudaDriver::get().check(CudaDriver::get().stream_synchronize(handle_), "waiting for a stream"); }

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

void Graph::replay(const Stream& stream) const { CudaDriver::get().check(CudaDriver::get().graph_launch(exec_, stream.handle()), "launching a graph"); }

std::vector<double> replay_seconds(const Graph& graph, const Stream& stream, const Memory& flush, int runs) {
    const CudaDriver& cuda = CudaDriver::get();
    runtime::CudaEvent begin = nullptr, end = nullptr;
    cuda.check(cuda.event_create(&begin, 0), "making an event");
    cuda.check(cuda.event_create(&end, 0), "making an event");
    std::vector<double> seconds;
    for (int run = 0; run < runs; ++run) {
        cuda.check(cuda.fill_bytes(flush.at(0), static_cast<unsigned char>(run), flush.bytes(), stream.handle()), "flushing the cache");
        cuda.check(cuda.event_record(begin, stream.handle()), "recording an event");
        graph.replay(stream);
        cuda.check(cuda.event_record(end, stream.handle()), "recording an event");
        cuda.check(cuda.event_synchronize(end), "waiting for an event");
        float ms = 0;
        cuda.check(cuda.event_elapsed_ms(&ms, begin, end), "reading a time");
        seconds.push_back(static_cast<double>(ms) * 1e-3);
    }
    cuda.event_destroy(begin);
    cuda.event_destroy(end);
    return seconds;
}

void DeviceBuffers::upload(const check::OwnedTensor& x, TensorView& view) {
    memory_.emplace_back(std::max<std::size_t>(x.storage.size(), 16));
    if (!x.storage.empty())
        CudaDriver::get().check(CudaDriver::get().copy_to_device(memory_.back().at(0), x.storage.data(), x.storage.size()), "copying to the device");
    view.data = memory_.back().data();
}

DeviceBuffers::DeviceBuffers(check::Buffers& host) : host_(host), call_(host.call()) {
    for (auto& [name, x] : host.inputs) upload(x, call_.tensors.at(name));
    for (auto& [name, x] : host.outputs) upload(x, call_.tensors.at(name));
    for (auto& [name, x] : host.initial_states) upload(x, call_.initial_states.at(name));
    for (auto& [name, x] : host.final_states) upload(x, call_.final_states.at(name));
    if (!call_.cu_seqlens) return;
    memory_.emplace_back(static_cast<std::size_t>(call_.cu_seqlens->shape[0]) * size_in_bytes(call_.cu_seqlens->dtype));
    call_.cu_seqlens->data = memory_.back().data();
    set_offsets(host);
}

void DeviceBuffers::set_offsets(const check::Buffers& other) {
    const Call call = other.call();
    const std::size_t bytes = static_cast<std::size_t>(call.cu_seqlens->shape[0]) * size_in_bytes(call.cu_seqlens->dtype);
    const auto to = reinterpret_cast<runtime::CudaPointer>(call_.cu_seqlens->data);  // NOLINT: the driver's pointers are numbers
    CudaDriver::get().check(CudaDriver::get().copy_to_device(to, call.cu_seqlens->data, bytes), "copying offsets to the device");
    CudaDriver::get().check(CudaDriver::get().context_synchronize(), "waiting for the device");
}

Call& DeviceBuffers::call(const Attention& attention, const Stream& stream) {
    call_.stream = stream.handle();
    const std::size_t bytes = attention.workspace_bytes(call_);
    if (bytes > 0) {
        memory_.emplace_back(bytes);
        memory_.back().fill(0xFF);  // NaN: what is read but was never written shows
        call_.workspace = memory_.back().data();
    }
    CudaDriver::get().check(CudaDriver::get().context_synchronize(), "waiting for the device");  // copies and fills may still be under way
    return call_;
}

void DeviceBuffers::fetch(check::Buffers& into) const {
    const auto fetch_one = [](check::OwnedTensor& x, const TensorView& view) {
        const auto from = reinterpret_cast<runtime::CudaPointer>(view.data);  // NOLINT: the driver's pointers are numbers
        if (!x.storage.empty()) CudaDriver::get().check(CudaDriver::get().copy_to_host(x.storage.data(), from, x.storage.size()), "copying from the device");
    };
    for (auto& [name, x] : into.outputs) fetch_one(x, call_.tensors.at(name));
    for (auto& [name, x] : into.final_states) fetch_one(x, call_.final_states.at(name));
}

}  // namespace forge::gpu
