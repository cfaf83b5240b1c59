#include "tests/fuzz/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/fuzz/targets.h"

namespace forge::fuzz {
namespace {

using Kind = capi::Slot::Kind;

constexpr std::size_t kMostRank = 16;
constexpr std::int64_t kMostBytes = 1 << 22;  ///< of a tensor

std::int32_t dtype_of(DType dtype) {
    return dtype == BF16         ? FORGE_BF16
           : dtype == F16        ? FORGE_F16
           : dtype == DType::I32 ? FORGE_I32
           : dtype == DType::I64 ? FORGE_I64
                                 : FORGE_F32;
}

bool is_state(const capi::Slot& slot) {
    return slot.kind == Kind::InitialState || slot.kind == Kind::FinalState || slot.kind == Kind::ChunkState;
}

/// Offsets of the first and last element from the one at index 0; nothing if there are no elements.
struct Extent {
    std::int64_t low = 0, high = 0;
    bool empty = false;
};
Extent extent_of(const CallTensor& t) {
    Extent e;
    for (std::size_t i = 0; i < static_cast<std::size_t>(t.rank); ++i) {
        e.empty = e.empty || t.shape[i] == 0;
        if (t.shape[i] <= 1) continue;  // its stride may be anything
        const std::int64_t reach = (t.shape[i] - 1) * t.strides[i];
        (reach < 0 ? e.low : e.high) += reach;
    }
    return e;
}

/// The bytes that elements have.
void mark_elements(const CallTensor& t, std::vector<bool>& marks) {
    std::int64_t count = 1;
    const auto rank = static_cast<std::size_t>(t.rank);
    for (std::size_t axis = 0; axis < rank; ++axis) count *= t.shape[axis];
    for (std::int64_t flat = 0; flat < count; ++flat) {
        std::int64_t at = static_cast<std::byte*>(t.data) - t.memory.data(), rest = flat;
        for (std::size_t axis = rank; axis-- > 0; rest /= t.shape[axis])
            at += rest % t.shape[axis] * t.strides[axis] * static_cast<std::int64_t>(t.element);
        std::fill_n(marks.begin() + at, t.element, true);
    }
}

void run_all(void*, std::int64_t tasks, std::int32_t workers, void (*body)(void*, std::int64_t, std::int32_t),
             void* data) {
    for (std::int64_t task = tasks; task-- > 0;) body(data, task, static_cast<std::int32_t>(task % workers));
}

}  // namespace

RandomCall::RandomCall(const forge_attention& attention, Dice& dice) : attention_(attention), dice_(dice) {
    make_lengths();
    const std::size_t given = dice_.below(4);  // which of the tensors that may be absent there are
    for (const Slot& slot : attention_.slots) {
        tensors_.push_back(
            make(shape_of(slot), slot.type.dtype,
                 slot.kind != Kind::Input && slot.kind != Kind::Head && slot.kind != Kind::InitialState));
        if (is_state(slot) && (given == 0 || (given == 1 && dice_.one_in(2)))) tensors_.back().rank = 0;
    }
    for (std::size_t i = 0; i < attention_.scalars.size(); ++i)
        scalars_.push_back(dice_.one_of({0.5, 1.0, -1.0, 0.0, 1e300, std::numeric_limits<double>::quiet_NaN()}));
    make_offsets();
    make_slots();
    make_workspace();
    if (dice_.one_in(3)) args_.parallel_for = run_all;
    args_.tensor_count = tensors_.size(), args_.scalar_count = scalars_.size();
    dlpack_ = dice_.one_in(4);
}

std::int64_t RandomCall::size_of(const Dim& dim) const {
    if (dim.is_constant()) return dim.factor;
    if (dim.symbol == ir::kTokenSymbol) return dim.factor * tokens_;
    const auto size = attention_.options.sizes.find(dim.symbol);
    return dim.factor * (size != attention_.options.sizes.end() ? size->second : heads_of_.at(dim.symbol));
}

void RandomCall::make_lengths() {
    packed_ = dice_.one_in(3);
    sequences_ = dice_.between(packed_ ? 0 : 1, 4);
    const auto length = [&] { return dice_.one_in(6) ? 0 : dice_.between(1, 70); };
    if (packed_)
        for (std::int64_t n = 0; n < sequences_; ++n) lengths_.push_back(length());
    tokens_ = packed_ ? std::accumulate(lengths_.begin(), lengths_.end(), std::int64_t{0}) : length();
    if (!packed_) lengths_.assign(static_cast<std::size_t>(sequences_), tokens_);
    has_batch_ = packed_ ? dice_.one_in(2) : sequences_ != 1 || dice_.one_in(2);
    const std::int64_t chunk = attention_.attention.chunk();
    if (packed_)
        for (const std::int64_t n : lengths_) chunks_ += (n + chunk - 1) / chunk;
    else chunks_ = (tokens_ + chunk - 1) / chunk;
    heads_ = dice_.one_of<std::int64_t>({1, 2, 4});
    for (const Slot& slot : attention_.slots)
        if (slot.kind == Kind::Output) heads_of_[slot.type.shape[1].symbol] = heads_;
    for (const Slot& slot : attention_.slots) {
        if (is_state(slot)) continue;
        const std::string& symbol = slot.type.shape[slot.kind == Kind::Head ? 0 : 1].symbol;
        if (!heads_of_.contains(symbol)) heads_of_[symbol] = dice_.one_in(2) ? 1 : heads_;
    }
    with_slots_ = dice_.one_in(4);
    pool_ = with_slots_ ? sequences_ + dice_.between(1, 3) : sequences_;
}

std::vector<std::int64_t> RandomCall::shape_of(const Slot& slot) const {
    std::vector<std::int64_t> shape;
    if (slot.kind == Kind::ChunkState) {
        if (has_batch_) shape.push_back(packed_ ? 1 : sequences_);
        shape.insert(shape.end(), {chunks_, heads_});
    } else if (is_state(slot)) {
        shape = {pool_, slot.heads ? size_of(*slot.heads) : heads_};
    } else if (slot.kind != Kind::Head && has_batch_) {
        shape = {packed_ ? 1 : sequences_};
    }
    for (const Dim& dim : slot.type.shape) shape.push_back(size_of(dim));
    return shape;
}

CallTensor RandomCall::make(const std::vector<std::int64_t>& shape, DType dtype, bool is_result) {
    CallTensor t;
    t.rank = static_cast<std::int32_t>(shape.size());
    t.shape = shape;
    t.shape.resize(kMostRank, 1), t.strides.resize(kMostRank, 1);
    t.dtype = dtype_of(dtype);
    t.element = size_in_bytes(dtype);
    t.is_result = is_result;
    lay_out(t);
    fill(t);
    return t;
}

/// Strides, and as much memory as they reach over.
void RandomCall::lay_out(CallTensor& t) {
    const auto rank = static_cast<std::size_t>(t.rank);
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), 0U);
    const std::size_t way = dice_.below(4);  // 0, 1: dense
    if (way == 2)
        std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(dice_.below(rank)), order.end());
    std::int64_t next = 1;
    for (std::size_t i = rank; i-- > 0;) {
        const std::size_t axis = order[i];
        t.strides[axis] = next;
        if (way == 3 && dice_.one_in(3)) t.strides[axis] *= dice_.one_of<std::int64_t>({-1, 2, -3});
        next = std::abs(t.strides[axis]) * std::max<std::int64_t>(1, t.shape[axis]);
        if (way == 3 && !t.is_result && dice_.one_in(6)) t.strides[axis] = 0;
        if (way != 0 && t.shape[axis] == 1 && dice_.one_in(6)) t.strides[axis] = extreme_number(dice_);
    }
    t.has_strides = way != 0;
    const Extent e = extent_of(t);
    const std::int64_t bytes = e.empty ? 0 : (e.high - e.low + 1) * static_cast<std::int64_t>(t.element);
    if (bytes > kMostBytes) throw Fault("a call of the fuzzer's own is too large");
    t.memory = GuardedMemory(static_cast<std::size_t>(bytes), t.element, dice_.one_in(2));
    t.data = t.memory.data() + (e.empty ? 0 : -e.low * static_cast<std::int64_t>(t.element));
    if (e.empty && dice_.one_in(2)) t.data = nullptr;
}

/// Small numbers of either type, and sometimes any bits.
void RandomCall::fill(CallTensor& t) {
    std::byte* bytes = t.memory.data();
    const bool any = dice_.one_in(8);
    const std::uint32_t high = t.dtype == FORGE_F16 ? 0x30 : 0x3d;  // of 0.1 or so
    for (std::size_t i = 0; i < t.memory.size(); ++i)
        bytes[i] = static_cast<std::byte>(any || i % t.element != t.element - 1 ? dice_.below(256)
                                                                                : high | dice_.below(2) << 7);
    t.before.assign(bytes, bytes + t.memory.size());
}

void RandomCall::make_offsets() {
    if (!packed_) return;
    const bool wide = dice_.one_in(2);
    offsets_ = make({sequences_ + 1}, wide ? DType::I64 : DType::I32, false);
    std::int64_t at = 0;
    for (std::int64_t n = 0; n <= sequences_; ++n) {
        std::byte* place = static_cast<std::byte*>(offsets_.data) +
                           n * offsets_.strides[0] * static_cast<std::int64_t>(offsets_.element);
        const auto narrow = static_cast<std::int32_t>(at);
        std::memcpy(place, wide ? static_cast<const void*>(&at) : &narrow, offsets_.element);
        if (n < sequences_) at += lengths_[static_cast<std::size_t>(n)];
    }
    if (offsets_.strides[0] == 0) spoilt_ = true;  // the same number everywhere
    offsets_.before.assign(offsets_.memory.data(), offsets_.memory.data() + offsets_.memory.size());
}

void RandomCall::make_slots() {
    if (!with_slots_) return;
    args_.wide_slots = dice_.one_of({0, 1, 2, -1});
    const auto array = [&](std::vector<std::byte>& into) {
        std::vector<std::int64_t> slots(static_cast<std::size_t>(pool_));
        std::iota(slots.begin(), slots.end(), 0);
        for (std::size_t i = slots.size(); i > 1; --i) std::swap(slots[i - 1], slots[dice_.below(i)]);
        slots.resize(static_cast<std::size_t>(sequences_));
        for (std::int64_t& slot : slots)
            if (dice_.one_in(6)) slot = -1;
        const std::size_t element = args_.wide_slots ? 8 : 4;
        into.resize(slots.size() * element);
        for (std::size_t i = 0; i < slots.size(); ++i) {
            const auto narrow = static_cast<std::int32_t>(slots[i]);
            std::memcpy(into.data() + i * element, args_.wide_slots ? static_cast<const void*>(&slots[i]) : &narrow,
                        element);
        }
        into.reserve(into.size() + 1);  // so that there is an address
    };
    array(initial_slots_), array(final_slots_);
    args_.initial_slots = initial_slots_.data(), args_.final_slots = final_slots_.data();
    if (!dice_.one_in(2)) return;
    for (std::int64_t n = 0; n <= sequences_; ++n) has_state_.push_back(static_cast<std::byte>(dice_.below(3)));
    args_.has_initial_state = reinterpret_cast<const unsigned char*>(has_state_.data());  // NOLINT: bytes
}

void RandomCall::make_workspace() {
    const forge_bounds bounds{sizeof(forge_bounds), sequences_, tokens_, heads_, packed_};
    std::size_t bytes = 0, alignment = 0;
    if (forge_workspace_bytes(&attention_, &bounds, &bytes, &alignment) != FORGE_OK)
        throw Fault(fmt::format("no workspace for a small call: {}", forge_error()));
    workspace_ = GuardedMemory(bytes, alignment, dice_.one_in(2));
    args_.workspace = workspace_.data(), args_.workspace_bytes = bytes;
}

forge_status RandomCall::launch() {
    const forge_status status = call();
    expect_left_alone(status == FORGE_OK);
    if (!spoilt_ && status != FORGE_OK) throw Fault(fmt::format("a call that is right: {}", forge_error()));
    return status;
}

/// What is around tensors and the workspace, inputs, and what lies between the elements of results.
void RandomCall::expect_left_alone(bool launched) const {
    if (!workspace_.is_intact()) throw Fault("something was written beside the workspace");
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const CallTensor& t = tensors_[i];
        const std::string& name = attention_.slots[i].name;
        if (!t.memory.data()) continue;
        if (!t.memory.is_intact()) throw Fault(fmt::format("something was written beside '{}'", name));
        if (t.is_result && launched && spoilt_) continue;  // which elements it has is hard to say
        std::vector<bool> written(t.memory.size(), false);
        if (t.is_result && launched && t.rank > 0) mark_elements(t, written);
        for (std::size_t b = 0; b < written.size(); ++b)
            if (!written[b] && t.memory.data()[b] != t.before[b])
                throw Fault(fmt::format("byte {} of '{}' changed, which no element has", b, name));
    }
}

}  // namespace forge::fuzz
