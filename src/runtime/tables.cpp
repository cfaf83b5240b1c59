#include "runtime/tables.h"

#include "forge/error.h"

namespace forge::runtime {

void Tables::end_at(std::size_t bytes) {
    if (at_ > begin_ + bytes)
        throw InternalError("tables: a call's lists take more of its workspace than is set apart");
    if (begin_ + bytes < end_) end_ = begin_ + bytes;
}

void* Tables::do_allocate(std::size_t bytes, std::size_t alignment) {
    const std::size_t padding = -reinterpret_cast<std::uintptr_t>(at_) % alignment;  // NOLINT: of an address
    if (!at_ || static_cast<std::size_t>(end_ - at_) < padding ||
        static_cast<std::size_t>(end_ - at_) - padding < bytes)
        return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    char* const place = at_ + padding;
    at_ = place + bytes;
    return place;
}

void Tables::do_deallocate(void* place, std::size_t bytes, std::size_t alignment) {
    const char* const of = static_cast<char*>(place);
    if (!at_ || of < begin_ || of >= at_) std::pmr::new_delete_resource()->deallocate(place, bytes, alignment);
}

support::Checked table_bytes(const Callable& callable, const Bound& bound) {
    using support::Checked;
    constexpr std::int64_t kPerSequence = 5 * sizeof(device::Size) +  // start, length, first segment, skipped ones
                                          2 * sizeof(std::int64_t) +  // which slot each one writes
                                          sizeof(int) + sizeof(device::Size),  // of a stretch
        kLists = 16, kPadding = alignof(std::max_align_t);
    const auto fixed = static_cast<std::int64_t>(callable.tensors.size() * sizeof(device::CallTensor) +
                                                 callable.scalars.size() * sizeof(float) +
                                                 callable.spills.size() * (sizeof(std::size_t) + sizeof(float*)) +
                                                 static_cast<std::size_t>(callable.heads) * sizeof(std::int64_t));
    return Checked(bound.sequences) * kPerSequence +
           (Checked(bound.chunks) + bound.segments) * static_cast<std::int64_t>(sizeof(int)) + fixed +
           kLists * kPadding + static_cast<std::int64_t>(sizeof(device::Size));
}

}  // namespace forge::runtime
