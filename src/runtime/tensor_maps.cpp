#include "runtime/tensor_maps.h"

#include <array>

#include "runtime/cuda_driver.h"

namespace forge::runtime {
namespace {

// CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion
constexpr int kF16 = 6, kBF16 = 9, kSwizzle128 = 3, kPromote256 = 3;
constexpr std::uint32_t kBox = 64;
constexpr int kHalfBytes = 2, kPiece = 16;

bool encode(void* map, const plan::TensorSlot& slot, std::int64_t columns, const cuda::Call& call, const device::CallTensor& t) {
    const bool packed = call.offsets != nullptr;
    const auto size = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    const std::array<std::uint64_t, 4> sizes = {size(columns), size(call.tokens), size(call.heads / t.group), size(packed ? 1 : call.sequences)};
    // An axis of one element needs no stride of its own.
    const auto stride = [&](std::int64_t elements, std::uint64_t count) { return count == 1 ? size(kPiece) : size(elements * kHalfBytes); };
    const std::array<std::uint64_t, 3> strides = {stride(t.token, sizes[1]), stride(t.head, sizes[2]), stride(t.sequence, sizes[3])};
    if (t.dim[0] != 1 || reinterpret_cast<std::uintptr_t>(t.data) % kPiece != 0) return false;
    for (const std::uint64_t n : sizes)
        if (n == 0) return false;
    for (const std::uint64_t s : strides)
        if (s == 0 || s % kPiece != 0) return false;
    const std::array<std::uint32_t, 4> box = {kBox, kBox, 1, 1}, steps = {1, 1, 1, 1};
    return CudaDriver::get().encode_map(map, slot.type.dtype == DType::BF16 ? kBF16 : kF16, 4, t.data, sizes.data(), strides.data(), box.data(), steps.data(), 0, kSwizzle128, kPromote256, 0) == 0;
}

}  // namespace

cuda::TensorMaps tensor_maps(const plan::Plan& plan, const emit::Launch& how, const cuda::Call& call) {
    cuda::TensorMaps maps;
    maps.usable = how.maps.empty() ? 0 : 1;
    for (std::size_t n = 0; n < how.maps.size() && maps.usable; ++n) {
        const auto tensor = static_cast<std::size_t>(how.maps[n]);
        const plan::TensorSlot& slot = plan.tensors[tensor];
        const Dim& last = slot.type.shape.back();
        const std::int64_t columns = last.factor * (last.is_constant() ? 1 : plan.sizes.at(last.symbol));
        if (!encode(maps.map[n], slot, columns, call, call.tensors[tensor])) maps.usable = 0;
    }
    return maps;
}

}  // namespace forge::runtime
