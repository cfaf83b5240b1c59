#include "gpu/arguments.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace forge::gpu {
namespace {

using runtime::CudaDriver;

constexpr std::int64_t kPattern = 1024;  ///< tokens

const check::OwnedTensor& owned(const check::Buffers& buffers, const std::string& name) {
    const auto input = buffers.inputs.find(name);
    return input != buffers.inputs.end() ? input->second : buffers.outputs.at(name);
}

bool has_tokens(const ir::Definition& definition, const std::string& name) {
    const auto input = std::find_if(definition.inputs.begin(), definition.inputs.end(),
                                    [&](const ir::InputDecl& in) { return in.name == name; });
    return input == definition.inputs.end() || input->role == ir::Role::Input;  // outputs have
}

/// So many bytes, which are the pattern's over and over.
Memory repeated(const check::OwnedTensor& pattern, std::size_t bytes) {
    Memory memory(bytes);
    std::size_t done = std::min(bytes, pattern.storage.size());
    memory.upload(pattern.storage.data(), done);
    for (std::size_t more = 0; done < bytes; done += more) {
        more = std::min(done, bytes - done);
        CudaDriver::get().check(CudaDriver::get().copy_on_device(memory.at(done), memory.at(0), more, nullptr),
                                "repeating a pattern");
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
    const std::size_t bytes =
        static_cast<std::size_t>(call.cu_seqlens->shape[0]) * size_in_bytes(call.cu_seqlens->dtype);
    const auto to =
        reinterpret_cast<runtime::CudaPointer>(call_.cu_seqlens->data);  // NOLINT: the driver's pointers are numbers
    CudaDriver::get().check(CudaDriver::get().copy_to_device(to, call.cu_seqlens->data, bytes),
                            "copying offsets to the device");
    CudaDriver::get().check(CudaDriver::get().context_synchronize(), "waiting for the device");
}

Call DeviceBuffers::without_workspace(const Stream& stream) const {
    Call call = call_;
    call.stream = stream.handle();
    return call;
}

Call& DeviceBuffers::call(const Attention& attention, const Stream& stream) {
    call_.stream = stream.handle();
    const std::size_t bytes = attention.workspace_bytes(call_);
    if (bytes > 0) {
        memory_.emplace_back(bytes);
        memory_.back().fill(0xFF);  // NaN: what is read but was never written shows
        call_.workspace = memory_.back().data();
    }
    CudaDriver::get().check(CudaDriver::get().context_synchronize(),
                            "waiting for the device");  // copies and fills may still be under way
    return call_;
}

void DeviceBuffers::fetch(check::Buffers& into) const {
    const auto fetch_one = [](check::OwnedTensor& x, const TensorView& view) {
        const auto from =
            reinterpret_cast<runtime::CudaPointer>(view.data);  // NOLINT: the driver's pointers are numbers
        if (!x.storage.empty())
            CudaDriver::get().check(CudaDriver::get().copy_to_host(x.storage.data(), from, x.storage.size()),
                                    "copying from the device");
    };
    for (auto& [name, x] : into.outputs) fetch_one(x, call_.tensors.at(name));
    for (auto& [name, x] : into.final_states) fetch_one(x, call_.final_states.at(name));
}

check::Problem pattern_of(check::Problem problem) {
    problem.B = 1;
    problem.T = std::min(problem.T, kPattern);
    return problem;
}

std::int64_t Extent::sequences() const { return lengths.empty() ? B : static_cast<std::int64_t>(lengths.size()); }
std::int64_t Extent::tokens() const {
    return lengths.empty() ? B * T : std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

void* RepeatedCall::keep(Memory memory) {
    tensors_.push_back(std::move(memory));
    return tensors_.back().data();
}

RepeatedCall::RepeatedCall(const check::Buffers& pattern, const Extent& extent) : call_(pattern.call()) {
    const std::int64_t period = std::max<std::int64_t>(1, pattern.problem().T);
    for (auto& [name, view] : call_.tensors) {
        const check::OwnedTensor& x = owned(pattern, name);
        const bool tokens = has_tokens(pattern.definition(), name);
        const std::int64_t rows = x.shape.size() > 1 ? x.shape[1] / period : 0;  // per token
        std::vector<std::int64_t> shape = x.shape;
        if (tokens) shape[0] = extent.B, shape[1] = rows * extent.T;
        if (tokens && !extent.lengths.empty()) shape.erase(shape.begin()), shape[0] = rows * extent.tokens();
        const std::size_t bytes =
            tokens ? x.storage.size() / static_cast<std::size_t>(period) * static_cast<std::size_t>(extent.tokens())
                   : x.storage.size();
        view = dense(keep(repeated(x, bytes)), x.dtype, shape);
        bytes_ += static_cast<double>(bytes);
    }
    call_.initial_states.clear();
    for (auto& [name, view] : call_.final_states) {
        view.shape[0] = extent.sequences();
        const std::int64_t floats =
            std::accumulate(view.shape.begin(), view.shape.end(), std::int64_t{1}, std::multiplies<>());
        const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
        view = dense(keep(Memory(bytes)), view.dtype, view.shape);
        tensors_.back().fill(extent.states_in_place ? 0 : 0xFF);  // NaN where nobody reads before it is written
        if (extent.states_in_place) bytes_ += 2 * static_cast<double>(bytes);
    }
    if (extent.states_in_place) call_.initial_states = call_.final_states;
    else if (!extent.final_states) call_.final_states.clear();
    if (extent.lengths.empty()) return;
    std::vector<std::int64_t> offsets{0};
    for (const std::int64_t length : extent.lengths) offsets.push_back(offsets.back() + length);
    const std::size_t bytes = offsets.size() * sizeof(std::int64_t);
    call_.cu_seqlens = dense(keep(Memory(bytes)), DType::I64, {static_cast<std::int64_t>(offsets.size())});
    tensors_.back().upload(offsets.data(), bytes);
}

const Call& RepeatedCall::call(const Attention& attention, const Stream& stream) {
    call_.stream = stream.handle();
    const std::size_t bytes = attention.workspace_bytes(call_);
    workspace_.clear();
    workspace_.emplace_back(bytes);
    if (bytes > 0) workspace_.back().fill(0xFF);
    call_.workspace = workspace_.back().data();
    CudaDriver::get().check(CudaDriver::get().context_synchronize(), "waiting for the device");
    return call_;
}

}  // namespace forge::gpu
