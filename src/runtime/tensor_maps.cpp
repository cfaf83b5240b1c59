#include "runtime/tensor_maps.h"

#include <array>
#include <cstring>

#include "runtime/cuda_driver.h"

namespace forge::runtime {
namespace {

// CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion
constexpr int kF16 = 6, kF32 = 7, kBF16 = 9, kNoSwizzle = 0, kSwizzle128 = 3, kPromote256 = 3;
constexpr std::uint32_t kBox = 64;
constexpr int kPiece = 16;

bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % kPiece == 0; }

/// Maps are encoded before it is known whether the addresses to come are aligned.
void* some_aligned(void* data) {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(data) / kPiece * kPiece);
}  // NOLINT: numbers

bool encode(void* map, const TensorOfCall& tensor, const cuda::Call& call, const device::CallTensor& t) {
    const bool packed = call.offsets != nullptr;
    const auto size = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    const std::array<std::uint64_t, 4> sizes = {size(tensor.axes.back().number),
                                                size(tensor.axes.front().number * call.tokens),
                                                size(call.heads / t.group), size(packed ? 1 : call.sequences)};
    // An axis of one element needs no stride of its own.
    const auto stride = [&](std::int64_t elements, std::uint64_t count) {
        return count == 1 ? size(kPiece) : size(elements * static_cast<std::int64_t>(size_in_bytes(tensor.dtype)));
    };
    const std::array<std::uint64_t, 3> strides = {stride(t.token, sizes[1]), stride(t.head, sizes[2]),
                                                  stride(t.sequence, sizes[3])};
    if (t.dim[0] != 1) return false;
    for (const std::uint64_t n : sizes)
        if (n == 0) return false;
    for (const std::uint64_t s : strides)
        if (s == 0 || s % kPiece != 0) return false;
    const std::array<std::uint32_t, 4> box = {kBox, kBox, 1, 1}, steps = {1, 1, 1, 1};
    const bool floats = tensor.dtype == DType::F32;
    const int type = floats ? kF32 : tensor.dtype == DType::BF16 ? kBF16 : kF16;
    return CudaDriver::get().encode_map(map, type, 4, some_aligned(t.data), sizes.data(), strides.data(), box.data(),
                                        steps.data(), 0, floats ? kNoSwizzle : kSwizzle128, kPromote256, 0) == 0;
}

}  // namespace

MapLayout::MapLayout(const Callable& callable, const Launch& how, const cuda::Call& call) : tensors_(how.maps) {
    maps_.usable = tensors_.empty() ? 0 : 1;
    for (std::size_t n = 0; n < tensors_.size() && maps_.usable; ++n) {
        const auto tensor = static_cast<std::size_t>(tensors_[n]);
        if (!encode(maps_.map[n], callable.tensors[tensor], call, call.tensors[tensor])) maps_.usable = 0;
    }
}

cuda::TensorMaps MapLayout::with(const cuda::Call& call) const {
    cuda::TensorMaps maps{};
    maps.usable = maps_.usable;
    for (std::size_t n = 0; n < tensors_.size() && maps.usable; ++n) {
        void* data = call.tensors[tensors_[n]].data;
        std::memcpy(maps.map[n], maps_.map[n], sizeof(maps.map[n]));
        if (!is_aligned(data) || CudaDriver::get().replace_map_address(maps.map[n], data) != 0) maps.usable = 0;
    }
    return maps;
}

}  // namespace forge::runtime
