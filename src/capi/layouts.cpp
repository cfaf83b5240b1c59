#include "capi/layouts.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "capi/call.h"

namespace forge::capi {
namespace {

constexpr std::size_t kMost = 4096;  ///< of servers that see every length once; then all are forgotten

bool is_aligned(const void* address, std::size_t unit) {
    return reinterpret_cast<std::uintptr_t>(address) % unit == 0;  // NOLINT: of an address
}

/// Whether the address is one of such elements; the long way refuses others.
bool is_aligned(const forge_tensor& tensor) {
    constexpr std::size_t kBytes[] = {1, 4, 8, 2, 2, 4, 8};  // of forge_dtype
    return tensor.dtype > 0 && static_cast<std::size_t>(tensor.dtype) < std::size(kBytes) &&
           is_aligned(tensor.data, kBytes[tensor.dtype]);
}

/// Whether a tensor can be described. Addresses are left out, but for whether there is one.
bool append(std::vector<std::int64_t>& key, const forge_tensor& tensor) {
    if (tensor.rank < 0 || tensor.rank > kMaxRank || (tensor.rank > 0 && !tensor.shape)) return false;
    if (tensor.rank > 0 && !is_aligned(tensor)) return false;
    key.push_back(tensor.rank | static_cast<std::int64_t>(tensor.strides != nullptr) << 8 |
                  static_cast<std::int64_t>(tensor.data != nullptr) << 9 |
                  static_cast<std::int64_t>(tensor.dtype) << 32);
    key.insert(key.end(), tensor.shape, tensor.shape + tensor.rank);
    if (tensor.strides) key.insert(key.end(), tensor.strides, tensor.strides + tensor.rank);
    return true;
}

}  // namespace

std::size_t Layouts::Hash::operator()(const Key& key) const {
    std::uint64_t hash = key.size();
    for (const std::int64_t word : key) {
        hash = (hash ^ static_cast<std::uint64_t>(word)) *
               0x9E3779B97F4A7C15U;  // of the golden ratio: spreads low bits to high ones
        hash ^= hash >> 32;
    }
    return hash;
}

bool Layouts::describe(const forge_args& args, Key& key) const {
    if (args.tensor_count != tensors_ || !args.tensors || args.scalar_count != scalars_ ||
        (scalars_ > 0 && !args.scalars))
        return false;
    key.clear();
    key.push_back((args.cu_seqlens ? 1 : 0) | (args.initial_slots ? 2 : 0) | (args.final_slots ? 4 : 0) |
                  (args.has_initial_state ? 8 : 0) | (args.wide_slots ? 16 : 0) | (args.chunk_slots ? 32 : 0));
    if (args.chunk_slots && !append(key, *args.chunk_slots)) return false;
    if (args.cu_seqlens && !append(key, *args.cu_seqlens)) return false;
    return std::all_of(args.tensors, args.tensors + tensors_,
                       [&](const forge_tensor& tensor) { return append(key, tensor); });
}

std::shared_ptr<const runtime::PreparedCall> Layouts::find(const Key& key) const {
    const std::shared_lock lock(mutex_);
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : found->second;
}

runtime::Addresses Layouts::addresses_of(const forge_args& args) const {
    runtime::Addresses addresses;
    for (std::size_t i = 0; i < tensors_; ++i)
        addresses.tensors[i] = args.tensors[i].rank == 0 ? nullptr : args.tensors[i].data;
    std::copy(args.scalars, args.scalars + scalars_, addresses.scalars);
    addresses.offsets = args.cu_seqlens ? args.cu_seqlens->data : nullptr;
    addresses.initial_slots = args.initial_slots;
    addresses.final_slots = args.final_slots;
    addresses.has_initial_state = args.has_initial_state;
    addresses.chunk_slots = args.chunk_slots ? args.chunk_slots->data : nullptr;
    addresses.workspace = static_cast<char*>(args.workspace);
    addresses.stream = args.stream;
    return addresses;
}

bool Layouts::launch(const forge_args& args) const {
    thread_local Key key;  // keeps its memory
    if (!describe(args, key)) return false;
    const auto prepared = find(key);
    if (!prepared || args.workspace_bytes < prepared->workspace_bytes() ||
        (!args.workspace && args.workspace_bytes > 0) || !is_aligned(args.workspace, runtime::kDeviceAlignment))
        return false;
    prepared->launch(addresses_of(args));
    return true;
}

void Layouts::remember(const forge_args& args, std::shared_ptr<const runtime::PreparedCall> prepared) {
    Key key;
    if (!describe(args, key)) return;
    const std::unique_lock lock(mutex_);
    if (known_.size() >= kMost) known_.clear();
    known_.emplace(std::move(key), std::move(prepared));
}

}  // namespace forge::capi
