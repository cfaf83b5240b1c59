#include "tests/random/pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "check/check.h"
#include "forge/error.h"

namespace forge::fuzz {
std::vector<std::int64_t> shuffled(std::int64_t count, check::Random& random) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[static_cast<std::size_t>(random.uniform() * static_cast<double>(i))]);
    return order;
}

HostBlock numbers(const std::vector<std::int64_t>& slots, bool wide) {
    HostBlock block;
    const auto put = [&](auto number) {
        const auto* const bytes = reinterpret_cast<const std::byte*>(&number);
        block.bytes.insert(block.bytes.end(), bytes, bytes + sizeof number);
    };
    for (const std::int64_t slot : slots) wide ? put(slot) : put(static_cast<std::int32_t>(slot));
    return block;
}

std::optional<PooledCall> PooledCall::of(Decisions& d, const std::string& name, check::Buffers& solved) {
    constexpr double kSeldom = 0.3;
    if (solved.problem().strided || solved.final_states.empty() || solved.problem().sequences() == 0 ||
        !d.flip(name + ".pooled", kSeldom))
        return std::nullopt;
    return PooledCall(d, name + ".pooled", solved);
}

PooledCall::PooledCall(Decisions& d, const std::string& name, check::Buffers& solved)
    : solved_(solved),
      shape_(solved.problem()),
      outputs_(solved.outputs),
      final_states_(solved.final_states),
      sequences_(shape_.sequences()),
      slots_(2 * sequences_ + 1) {
    choose_slots(d, name);
    make_pools(d, name);
}

void PooledCall::choose_slots(Decisions& d, const std::string& name) {
    constexpr double kSkipped = 0.3;
    check::Random random(check::mix(d.seed(), name));
    place_ = static_cast<Place>(d.below(name + ".place", 3));
    wide_ = d.flip(name + ".wide", 0.5);
    reads_ = shape_.initial_state || d.flip(name + ".reads", 0.5);
    numbered_ = place_ != Place::OtherSlots && d.flip(name + ".numbered", 0.2);
    if (numbered_) slots_ = sequences_;
    std::vector<std::int64_t> from = shuffled(slots_, random), to = shuffled(slots_, random);
    if (numbered_) std::iota(from.begin(), from.end(), 0), to = from;
    const bool skips = !numbered_ && d.flip(name + ".skips", 0.5);
    for (std::size_t n = 0; n < count(); ++n) {
        initial_.push_back(from[n]);
        final_.push_back(place_ == Place::Apart ? to[n] : place_ == Place::InPlace ? from[n] : from[n + count()]);
        if (!skips || random.uniform() >= kSkipped) continue;
        const double which = random.uniform();
        if (reads_ && which < 0.6) initial_.back() = -1;
        if (!reads_ || which > 0.3) final_.back() = -2;
    }
    if (!reads_ || (shape_.initial_state && d.flip(name + ".unsaid", 0.5))) return;
    for (std::size_t n = 0; n < count(); ++n) has_state_.push_back(shape_.initial_state || random.uniform() < 0.5);
}

PooledCall::Pool& PooledCall::add_pool(const check::OwnedTensor& states) {
    const std::size_t of_slot = states.storage.size() / count();
    blocks.push_back({std::vector<std::byte>(of_slot * static_cast<std::size_t>(slots_), kSpoilt)});
    std::vector<std::int64_t> shape = states.shape;
    shape[0] = slots_;
    return pools_.emplace_back(Pool{&blocks.back(), {}, std::move(shape), of_slot});
}

/// Zeros where the plain call had no states.
void PooledCall::fill(Pool& pool, const check::OwnedTensor& initial) {
    for (std::size_t n = 0; n < count(); ++n) {
        if (initial_[n] < 0 || (!has_state_.empty() && !has_state_[n])) continue;
        std::byte* const slot = pool.now->bytes.data() + static_cast<std::size_t>(initial_[n]) * pool.of_slot;
        if (initial.storage.empty()) std::fill_n(slot, pool.of_slot, std::byte{});
        else std::copy_n(initial.storage.data() + n * pool.of_slot, pool.of_slot, slot);
    }
}

void PooledCall::make_pools(Decisions& d, const std::string& name) {
    constexpr double kUnwanted = 0.15;
    const std::map<std::string, check::OwnedTensor>& given = solved_.initial_states;
    for (const auto& [state, x] : final_states_) {
        const auto initial = given.find(state);
        const bool wanted = !d.flip(fmt::format("{}.unwanted_{}", name, state), kUnwanted);
        if (reads_)
            fill(*(from_[state] = &add_pool(x)), initial == given.end() ? check::OwnedTensor() : initial->second);
        if (wanted) to_[state] = reads_ && place_ != Place::Apart ? from_[state] : &add_pool(x);
    }
    for (Pool& pool : pools_) pool.before = pool.now->bytes;
}

TensorView PooledCall::indices(const std::vector<std::int64_t>& slots) {
    HostBlock& block = blocks.emplace_back(numbers(slots, wide_));
    return dense(block.bytes.data(), wide_ ? DType::I64 : DType::I32, {sequences_});
}

Call PooledCall::call() {
    check::clear_results(solved_);
    Call call = solved_.call();
    call.initial_states.clear(), call.final_states.clear();
    for (const auto& [state, pool] : from_)
        call.initial_states[state] = dense(pool->now->bytes.data(), DType::F32, pool->shape);
    for (const auto& [state, pool] : to_)
        call.final_states[state] = dense(pool->now->bytes.data(), DType::F32, pool->shape);
    if (reads_ && !numbered_) call.initial_slots = indices(initial_);
    if (!numbered_) call.final_slots = indices(final_);
    if (has_state_.empty()) return call;
    HostBlock& block = blocks.emplace_back();
    for (const bool has : has_state_) block.bytes.push_back(std::byte{has});
    call.has_initial_state = dense(block.bytes.data(), DType::Bool, {sequences_});
    return call;
}

void PooledCall::clear_outputs() {
    for (auto& [name, x] : solved_.outputs) std::fill(x.storage.begin(), x.storage.end(), std::byte{});
}

PooledCall::Part PooledCall::part_of(const check::OwnedTensor& output, std::size_t n) const {
    const std::int64_t tokens = shape_.tokens();
    if (tokens == 0) return {};
    const std::vector<std::int64_t>& lengths = shape_.lengths;
    const auto at = static_cast<std::ptrdiff_t>(n);
    const std::int64_t first = lengths.empty()
                                   ? shape_.T * at
                                   : std::accumulate(lengths.begin(), lengths.begin() + at, std::int64_t{0}),
                       own = lengths.empty() ? shape_.T : lengths[n];
    const std::size_t of_token = output.storage.size() / static_cast<std::size_t>(tokens);
    return {static_cast<std::size_t>(first) * of_token, static_cast<std::size_t>(own) * of_token};
}

void PooledCall::take_outputs(std::vector<std::string>& found) {
    for (auto& [name, x] : solved_.outputs)
        for (std::size_t n = 0; n < count(); ++n) {
            if (!is_skipped(n)) continue;
            const Part part = part_of(x, n);
            std::byte* const begin = x.storage.data() + part.begin;
            if (!std::all_of(begin, begin + part.size, [](std::byte b) { return b == std::byte{}; }))
                found.push_back(fmt::format("output {}: sequence {} was skipped, and has no zeros", name, n));
            std::copy_n(outputs_.at(name).storage.data() + part.begin, part.size, begin);
        }
}

void PooledCall::take_states(std::vector<std::string>& found) {
    for (auto& [name, x] : solved_.final_states) {
        const std::vector<std::byte>& plain = final_states_.at(name).storage;
        const auto pool = to_.find(name);
        for (std::size_t n = 0; n < count(); ++n) {
            const bool made = pool != to_.end() && !is_skipped(n);
            const std::size_t bytes = x.storage.size() / count();
            std::byte* const to = x.storage.data() + n * bytes;
            if (!made) {
                std::copy_n(plain.data() + n * bytes, bytes, to);
                continue;
            }
            const std::size_t slot = static_cast<std::size_t>(final_[n]) * bytes;
            std::copy_n(pool->second->now->bytes.data() + slot, bytes, to);
            std::copy_n(pool->second->before.data() + slot, bytes, pool->second->now->bytes.data() + slot);
        }
    }
    for (const Pool& pool : pools_)
        if (pool.now->bytes != pool.before) found.emplace_back("slots were written that are nobody's");
}

std::vector<std::string> PooledCall::take(bool same_bits) {
    std::vector<std::string> found;
    take_outputs(found), take_states(found);
    const auto compare = [&](const char* kind, const auto& now, const auto& plain) {
        for (const auto& [name, x] : now)
            if (same_bits && x.storage != plain.at(name).storage)
                found.push_back(fmt::format("{} {} has other bits than the call without pools", kind, name));
    };
    compare("output", solved_.outputs, outputs_), compare("state", solved_.final_states, final_states_);
    for (std::string& text_of_fault : found) text_of_fault += text();
    return found;
}

std::string PooledCall::text() const {
    constexpr const char* kPlaces[] = {"apart", "in place", "in other slots of the same pool"};
    const auto skipped = [&] {
        std::int64_t sum = 0;
        for (std::size_t n = 0; n < count(); ++n) sum += is_skipped(n) ? 1 : 0;
        return sum;
    };
    return fmt::format("; states in pools{}, {}{}, {} of {} sequences skipped, {} of {} final states wanted; {}",
                       numbered_ ? " without slots" : "", kPlaces[static_cast<int>(place_)],
                       reads_ ? "" : ", none at first", skipped(), sequences_, to_.size(), final_states_.size(),
                       describe(shape_));
}

void call_in_pools(Decisions& d, const std::string& name, check::Buffers& solved, bool wants_zeros,
                   const std::function<void(const Call&)>& run) {
    auto pooled = PooledCall::of(d, name, solved);
    if (!pooled) return;
    const Call call = pooled->call();
    if (wants_zeros) pooled->clear_outputs();
    run(call);
    if (const auto found = pooled->take(true); !found.empty()) throw RuntimeError(found[0]);
}

}  // namespace forge::fuzz
