// What can be wrong in a call, and the call itself.
#include <algorithm>
#include <cstring>
#include <limits>

#include "forge_dlpack.h"
#include "tests/fuzz/calls.h"

namespace forge::fuzz {
namespace {

using Kind = capi::Slot::Kind;

DLTensor dlpack_of(const forge_tensor& t, std::byte offset) {
    DLTensor d{};
    d.data = t.data ? static_cast<std::byte*>(t.data) - std::to_integer<int>(offset) : nullptr;
    d.byte_offset = t.data ? std::to_integer<std::uint64_t>(offset) : 0;
    d.device = {kDLCPU, 0};
    d.ndim = t.rank;
    d.shape = const_cast<std::int64_t*>(t.shape);      // NOLINT: DLPack knows no const
    d.strides = const_cast<std::int64_t*>(t.strides);  // NOLINT
    const bool integer = t.dtype == FORGE_I32 || t.dtype == FORGE_I64;
    const int bits = t.dtype == FORGE_I64 || t.dtype == FORGE_F64   ? 64
                     : t.dtype == FORGE_F32 || t.dtype == FORGE_I32 ? 32
                                                                    : 16;
    d.dtype = {static_cast<std::uint8_t>(integer                 ? kDLInt
                                         : t.dtype == FORGE_BF16 ? kDLBfloat
                                                                 : kDLFloat),
               static_cast<std::uint8_t>(bits), 1};
    return d;
}

}  // namespace

void RandomCall::spoil() {
    spoilt_ = true;
    const std::size_t which = dice_.below(tensors_.size() + 3);
    if (which < tensors_.size()) spoil_tensor(tensors_[which], &attention_.slots[which]);
    else if (which == tensors_.size() && packed_) spoil_tensor(offsets_, nullptr);
    else spoil_args();
}

void RandomCall::spoil_tensor(CallTensor& t, const capi::Slot* slot) {
    if (t.rank == 0) return;
    const auto axis = dice_.below(static_cast<std::size_t>(t.rank));
    switch (dice_.below(9)) {
        case 0:
            t.data = nullptr;
            return;
        case 1:
            t.rank = dice_.one_of<std::int32_t>({t.rank + 1, t.rank - 1, 0, 9, 16, -1,
                                                 std::numeric_limits<std::int32_t>::max(),
                                                 std::numeric_limits<std::int32_t>::min()});
            return;
        case 2:
            t.dtype = static_cast<std::int32_t>(dice_.one_in(4) ? extreme_number(dice_) : dice_.between(0, 7));
            if (!slot && t.dtype == FORGE_I64 && t.element < 8) t.dtype = FORGE_F64;  // would be longer than there is
            return;
        case 3:
            t.has_shape = false;
            return;
        case 4: {  // an address that is no multiple of the element's size
            const std::byte* begin = t.memory.data();
            const std::ptrdiff_t at = static_cast<std::byte*>(t.data) - begin;
            if (!t.data || t.memory.size() == 0) return;
            t.memory = GuardedMemory(t.memory.size(), 64, false, 1 + dice_.below(t.element - 1));
            std::memcpy(t.memory.data(), t.before.data(), t.before.size());
            t.data = t.memory.data() + at;
            return;
        }
        case 5:
            if (!slot && t.memory.size() > 0)  // offsets that are wrong
                for (std::size_t i = 0; i < t.memory.size(); i += t.element)
                    if (const std::int64_t n = dice_.one_in(2) ? extreme_number(dice_) : dice_.between(-3, 80);
                        dice_.one_in(3))
                        std::memcpy(t.memory.data() + i, &n, t.element);
            t.before.assign(t.memory.data(), t.memory.data() + t.memory.size());
            return;
        case 6:  // one element for all
            std::fill(t.strides.begin(), t.strides.end(), 0);
            t.has_strides = true;
            if (t.memory.size() > 0) t.data = t.memory.data();
            return;
        default: {
            // More than there is must not be claimed where a call could be right: in pools of states, of heads, of
            // offsets.
            const bool may_grow = slot && axis != 0 && slot->kind != Kind::Output && slot->kind != Kind::ChunkState;
            std::int64_t n = extreme_number(dice_);
            if (n > 0 && (!may_grow || heads_ % n == 0)) n = -n;
            t.shape[axis] = dice_.one_in(3) ? std::max<std::int64_t>(0, t.shape[axis] - 1) : n;
        }
    }
}

void RandomCall::spoil_args() {
    switch (dice_.below(10)) {
        case 0:
            struct_bytes_ = dice_.one_of<std::size_t>(
                {0, 7, 8, sizeof(forge_args) - 8, sizeof(forge_args) - 24, sizeof(forge_args) + 8, 512});
            tail_ = static_cast<std::byte>(dice_.below(2));
            return;
        case 1:
            args_.tensor_count = dice_.one_of<std::size_t>({0, 1, tensors_.size() + 1, SIZE_MAX});
            return;
        case 2:
            args_.scalar_count = dice_.one_of<std::size_t>({1, 2, SIZE_MAX});
            return;
        case 3:
            args_.workspace = nullptr;
            if (dice_.one_in(2)) args_.workspace_bytes = 0;
            return;
        case 4:
            args_.workspace_bytes = dice_.below(args_.workspace_bytes + 1);
            return;
        case 5:
            workspace_ = GuardedMemory(args_.workspace_bytes, 64, false, 1 + dice_.below(63));
            args_.workspace = workspace_.data();
            return;
        case 6:
            args_.initial_slots = nullptr;
            args_.wide_slots = dice_.one_of({0, args_.wide_slots});
            return;
        case 7:
            for (std::vector<std::byte>* slots : {&initial_slots_, &final_slots_})
                for (std::byte& b : *slots)
                    if (dice_.one_in(8)) b = static_cast<std::byte>(dice_.below(256));
            return;
        case 8:
            has_tensors_ = false;
            return;
        default:
            has_scalars_ = false;
    }
}

forge_status RandomCall::call() {
    std::vector<forge_tensor> tensors;
    for (const CallTensor& t : tensors_) tensors.push_back(t.c());
    forge_tensor offsets = offsets_.c();
    args_.struct_size = struct_bytes_;
    args_.tensors = has_tensors_ ? tensors.data() : nullptr;
    args_.scalars = has_scalars_ ? scalars_.data() : nullptr;
    args_.cu_seqlens = packed_ ? &offsets : nullptr;
    std::vector<DLTensor> dlpack;
    std::vector<const DLTensor*> pointers;
    DLTensor dlpack_offsets{};
    if (dlpack_) {
        for (const forge_tensor& t : tensors) dlpack.push_back(dlpack_of(t, static_cast<std::byte>(dice_.below(3))));
        for (std::size_t i = 0; i < dlpack.size(); ++i) pointers.push_back(tensors[i].rank == 0 ? nullptr : &dlpack[i]);
        dlpack_offsets = dlpack_of(offsets, std::byte{0});
        args_.tensors = nullptr, args_.cu_seqlens = nullptr;
    }
    // On the heap, and no longer than it says, so that the sanitizer sees what reads past its end.
    const std::size_t allocated = std::max(struct_bytes_, sizeof(std::size_t));
    std::vector<std::uint64_t> memory((allocated + 7) / 8, tail_ == std::byte{0} ? 0 : std::uint64_t{1} << 32);
    std::memcpy(memory.data(), &args_, std::min(allocated, sizeof args_));
    const auto* args = reinterpret_cast<const forge_args*>(memory.data());  // NOLINT: of whatever version
    return dlpack_ ? forge_launch_dlpack(&attention_, args, has_tensors_ ? pointers.data() : nullptr,
                                         packed_ ? &dlpack_offsets : nullptr)
                   : forge_launch(&attention_, args);
}

}  // namespace forge::fuzz
