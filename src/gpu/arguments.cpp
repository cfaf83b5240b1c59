#include "gpu/arguments.h"

#include <algorithm>

namespace forge::gpu {
namespace {

using runtime::CudaDriver;

constexpr std::int64_t kPattern = 1024;  ///< tokens

const check::OwnedTensor& owned(const check::Buffers& buffers, const std::string& name) {
    const auto input = buffers.inputs.find(name);
    return input != buffers.inputs.end() ? input->second : buffers.outputs.at(name);
}

bool has_tokens(const ir::Definition& definition, const std::string& name) {
    const auto input = std::find_if(definition.inputs.begin(), definition.inputs.end(), [&](const ir::InputDecl& in) { return in.name == name; });
    return input == definition.inputs.end() || input->role == ir::Role::Input;  // outputs have
}

/// A token tensor of B sequences, each of so many bytes, which are the pattern's tokens over and over.
Memory repeated(const check::OwnedTensor& pattern, std::int64_t B, std::size_t sequence) {
    Memory memory(sequence * static_cast<std::size_t>(B));
    for (std::size_t at = 0; at < memory.bytes();) {
        const std::size_t left = sequence - at % sequence, bytes = std::min(left, pattern.storage.size());
        memory.upload(pattern.storage.data(), bytes, at);
        at += bytes;
    }
    return memory;
}

}  // namespace

void DeviceBuffers::upload(const check::OwnedTensor& x, TensorView& view) {
    memory_.emplace_back(std::max<std::size_t>(x.storage.size(), 16));
    memory_.back().upload(x.storage.data(), x.storage.size());
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
        if (!x.storage.empty())
            CudaDriver::get().check(CudaDriver::get().copy_to_host(x.storage.data(), from, x.storage.size()), "copying from the device");
    };
    for (auto& [name, x] : into.outputs) fetch_one(x, call_.tensors.at(name));
    for (auto& [name, x] : into.final_states) fetch_one(x, call_.final_states.at(name));
}

check::Problem pattern_of(check::Problem problem) {
    problem.B = 1;
    problem.T = std::min(problem.T, kPattern);
    return problem;
}

RepeatedCall::RepeatedCall(const check::Buffers& pattern, std::int64_t B, std::int64_t T) : call_(pattern.call()) {
    const std::int64_t tokens = std::max<std::int64_t>(1, pattern.problem().T);
    for (auto& [name, view] : call_.tensors) {
        const check::OwnedTensor& x = owned(pattern, name);
        if (has_tokens(pattern.definition(), name)) {
            std::vector<std::int64_t> shape = x.shape;
            shape[0] = B, shape[1] = shape[1] / tokens * T;
            tensors_.push_back(repeated(x, B, x.storage.size() / static_cast<std::size_t>(tokens) * static_cast<std::size_t>(T)));
            view = dense(tensors_.back().data(), x.dtype, shape);
        } else {
            tensors_.emplace_back(x.storage.size());
            tensors_.back().upload(x.storage.data(), x.storage.size());
            view.data = tensors_.back().data();
        }
        bytes_ += static_cast<double>(tensors_.back().bytes());
    }
    call_.initial_states.clear();
    call_.final_states.clear();
}

const Call& RepeatedCall::call(const Attention& attention, const Stream& stream) {
    call_.stream = stream.handle();
    const std::size_t bytes = attention.workspace_bytes(call_);
    workspace_.clear();
    workspace_.emplace_back(bytes);
    call_.workspace = workspace_.back().data();
    CudaDriver::get().check(CudaDriver::get().context_synchronize(), "waiting for the device");
    return call_;
}

}  // namespace forge::gpu
