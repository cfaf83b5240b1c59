#include "tests/cuda/emulated/copies.h"

#include "tests/cuda/emulated/tensor_map.h"

namespace forge::emulated {
namespace {

constexpr unsigned kPanel = 64, kSwizzleBytes = 1024, kPieceBytes = 16;

const TensorMap& map_of(const Hardware::Box& box) { return *static_cast<const TensorMap*>(box.map); }

unsigned bytes_of(const Hardware::Box& box) {
    const TensorMap& map = map_of(box);
    const bool swizzled = map.swizzle == TensorMap::kSwizzle128, halves = map.bytes == 2,
               panel = map.axes == TensorMap::kAxes && map.box[0] == kPanel && swizzled == halves;
    if (!panel || map.box[2] != 1 || map.box[3] != 1)
        throw std::runtime_error(
            "a tensor copy whose map is not that of panels: halves in the 128-byte swizzle, or floats");
    return map.box[0] * map.box[1] * map.bytes;
}

/// Where an element of a box lies in the tensor; null beyond its ends.
std::byte* element(const TensorMap& map, const std::array<int, 4>& at) {
    std::uint64_t address = map.address + static_cast<std::uint64_t>(at[0]) * map.bytes;
    for (std::size_t n = 0; n < at.size(); ++n) {
        if (at[n] < 0 || static_cast<std::uint64_t>(at[n]) >= map.sizes[n]) return nullptr;
        if (n > 0) address += static_cast<std::uint64_t>(at[n]) * map.strides[n - 1];
    }
    return reinterpret_cast<std::byte*>(address);  // NOLINT: maps hold numbers
}

}  // namespace

void Copies::start(int thread, unsigned shared, const void* global, int bytes, int valid) {
    const auto count = static_cast<std::size_t>(bytes);
    if (reinterpret_cast<std::uintptr_t>(global) % count != 0)
        throw std::runtime_error("a copy from an address that is not aligned");
    if (valid > 0) global_.expect(global, static_cast<std::size_t>(valid));
    memory_.poison(shared, count, count);
    threads_[static_cast<std::size_t>(thread)].open.push_back({shared, global, bytes, valid});
}

void Copies::commit(int thread) {
    Thread& t = threads_[static_cast<std::size_t>(thread)];
    t.groups.push_back(std::move(t.open));
    t.open.clear();
}

void Copies::wait(int thread, int pending) {
    auto& groups = threads_[static_cast<std::size_t>(thread)].groups;
    while (groups.size() > static_cast<std::size_t>(pending)) {
        carry_out(groups.front());
        groups.erase(groups.begin());
    }
}

void Copies::carry_out(std::vector<Piece>& group) const {
    for (const Piece& p : group) {
        std::byte* const to =
            memory_.at(p.shared, static_cast<std::size_t>(p.bytes), static_cast<std::size_t>(p.bytes));
        std::memset(to, 0, static_cast<std::size_t>(p.bytes));
        if (p.valid > 0) std::memcpy(to, p.global, static_cast<std::size_t>(p.valid));
    }
    group.clear();
}

/// For a bulk copy.
void Copies::poison(unsigned shared, std::size_t bytes, std::size_t alignment) const {
    memory_.poison(shared, bytes, alignment);
    view_.written(shared, bytes);
}

void Copies::start_bulk(unsigned shared, const void* global, unsigned bytes, unsigned barrier) {
    if (reinterpret_cast<std::uintptr_t>(global) % kPieceBytes != 0 || bytes % kPieceBytes != 0)
        throw std::runtime_error("a bulk copy that is not aligned");
    global_.expect(global, bytes);
    poison(shared, bytes, kPieceBytes);
    bulk_.push_back({false, shared, bytes, barrier, global, {}, 0, 0});
}

void Copies::start_bulk_store(int thread, void* global, unsigned shared, unsigned bytes) {
    if (reinterpret_cast<std::uintptr_t>(global) % kPieceBytes != 0 || bytes % kPieceBytes != 0)
        throw std::runtime_error("a bulk store that is not aligned");
    global_.expect(global, bytes);
    static_cast<void>(memory_.at(shared, bytes, kPieceBytes));
    bulk_.push_back(
        {true, shared, bytes, 0, nullptr, {}, thread, threads_[static_cast<std::size_t>(thread)].store_groups, global});
}

void Copies::start_load(unsigned shared, const Hardware::Box& box, unsigned barrier) {
    poison(shared, bytes_of(box), kSwizzleBytes);
    bulk_.push_back({false, shared, bytes_of(box), barrier, nullptr, box, 0, 0});
}

void Copies::start_store(int thread, const Hardware::Box& box, unsigned shared) {
    static_cast<void>(memory_.at(shared, bytes_of(box), kSwizzleBytes));
    bulk_.push_back({true, shared, bytes_of(box), 0, nullptr, box, thread,
                     threads_[static_cast<std::size_t>(thread)].store_groups});
}

void Copies::commit_stores(int thread) { ++threads_[static_cast<std::size_t>(thread)].store_groups; }

void Copies::wait_for_stores(int thread, int pending) {
    const int before = threads_[static_cast<std::size_t>(thread)].store_groups - pending;
    for (std::size_t n = 0; n < bulk_.size();)
        if (bulk_[n].is_store && bulk_[n].thread == thread && bulk_[n].group < before) carry_out_bulk(n);
        else ++n;
}

void Copies::carry_out_bulk(std::size_t n) {
    const Bulk copy = bulk_[n];
    bulk_.erase(bulk_.begin() + static_cast<std::ptrdiff_t>(n));
    if (copy.to) std::memcpy(copy.to, view_.seen().at(copy.shared, copy.bytes, kPieceBytes), copy.bytes);
    else if (copy.global) std::memcpy(memory_.at(copy.shared, copy.bytes, kPieceBytes), copy.global, copy.bytes);
    else move_box(copy);
    if (copy.is_store) return;
    view_.written(copy.shared, copy.bytes);
    barriers_.complete(copy.barrier, copy.bytes);
}

void Copies::move_box(const Bulk& copy) const {
    const TensorMap& map = map_of(copy.box);
    for (unsigned row = 0; row < map.box[1]; ++row)
        for (unsigned col = 0; col < map.box[0]; ++col) {
            const unsigned straight = copy.shared + (row * kPanel + col) * map.bytes,
                           address = map.swizzle == TensorMap::kSwizzle128 ? swizzled(straight) : straight;
            std::byte* const here = (copy.is_store ? view_.seen() : memory_).at(address, map.bytes, map.bytes);
            std::array<int, 4> at = copy.box.at;
            at[0] += static_cast<int>(col), at[1] += static_cast<int>(row);
            std::byte* const there = element(map, at);
            if (!copy.is_store && there) std::memcpy(here, there, map.bytes);
            else if (!copy.is_store) std::memset(here, 0, map.bytes);
            else if (there) std::memcpy(there, here, map.bytes);
        }
}

bool Copies::carry_out_any(std::mt19937& random) {
    const std::size_t thread = random() % threads_.size();
    auto& groups = threads_[thread].groups;
    if (!groups.empty()) {
        carry_out(groups[random() % groups.size()]);
        view_.note_writes(thread / kLanes);
    }
    if (bulk_.empty()) return false;
    carry_out_bulk(random() % bulk_.size());
    return true;
}

void Copies::expect_none() const {
    if (!bulk_.empty())
        throw std::runtime_error(fmt::format("{} bulk copies were under way when the block ended", bulk_.size()));
    for (const Thread& thread : threads_)
        for (const auto& group : thread.groups)
            if (!group.empty())
                throw std::runtime_error("copies that nobody has waited for were under way when the block ended");
}

}  // namespace forge::emulated
