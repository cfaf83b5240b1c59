#include "tests/random/chunk_states.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "check/check.h"
#include "check/tolerance.h"

namespace forge::fuzz {

ChunkStatesCall::ChunkStatesCall(Decisions& d, const std::string& name, Problem& problem, std::int64_t chunk)
    : problem_(problem), chunk_(chunk) {
    find_chunks();
    choose_slots(d, name);
    const bool rows = problem.shape.lengths.empty() && (problem.shape.B > 1 || d.flip(name + ".rows", 0.5));
    for (const auto& [state, final] : problem.buffers.final_states) {
        if (state.starts_with("last_")) continue;
        const std::int64_t of_slot = final.count() / std::max<std::int64_t>(1, problem.shape.sequences());
        const auto count = static_cast<std::size_t>(slots_ * of_slot);
        blocks.push_back({std::vector<std::byte>(count * sizeof(float), kSpoilt)});
        std::vector<std::int64_t> shape = final.shape;
        shape[0] = slots_;
        if (!pooled_ && rows) shape[0] = slots_ / problem.shape.B, shape.insert(shape.begin(), problem.shape.B);
        states_.push_back({state, &blocks.back(), std::move(shape), of_slot});
    }
}

void ChunkStatesCall::find_chunks() {
    const check::Problem& shape = problem_.shape;
    for (std::int64_t n = 0; n < shape.sequences(); ++n) {
        const std::int64_t tokens = shape.lengths.empty() ? shape.T : shape.lengths[static_cast<std::size_t>(n)];
        for (std::int64_t token = 0; token < tokens; token += chunk_)
            places_.push_back({n, token, static_cast<std::int64_t>(places_.size())});
    }
    slots_ = static_cast<std::int64_t>(places_.size());
}

void ChunkStatesCall::choose_slots(Decisions& d, const std::string& name) {
    constexpr double kNowhere = 0.3;
    pooled_ = slots_ > 0 && d.flip(name + ".slots", 0.5), wide_ = d.flip(name + ".wide", 0.5);
    if (!pooled_) return;
    check::Random random(check::mix(d.seed(), name));
    slots_ += 2;
    const std::vector<std::int64_t> order = shuffled(slots_, random);
    for (std::size_t i = 0; i < places_.size(); ++i) places_[i].slot = random.uniform() < kNowhere ? -1 : order[i];
}

Call ChunkStatesCall::call() {
    check::clear_results(problem_.buffers);
    Call call = problem_.buffers.call();
    for (const States& s : states_) call.chunk_states[s.name] = dense(s.memory->bytes.data(), DType::F32, s.shape);
    if (!pooled_) return call;
    std::vector<std::int64_t> slots;
    for (const Place& place : places_) slots.push_back(place.slot);
    const std::int64_t rows = problem_.shape.lengths.empty() ? problem_.shape.B : 1,
                       columns = static_cast<std::int64_t>(slots.size()) / rows;
    HostBlock& block = blocks.emplace_back(numbers(slots, wide_));
    call.chunk_slots = dense(block.bytes.data(), wide_ ? DType::I64 : DType::I32,
                             rows > 1 ? std::vector<std::int64_t>{rows, columns} : std::vector<std::int64_t>{columns});
    return call;
}

std::string ChunkStatesCall::fault_of(const States& states) const {
    const std::int64_t heads = problem_.buffers.heads(), width = states.of_slot / heads;
    std::vector<bool> written(static_cast<std::size_t>(slots_), false);
    double error = 0, square = 0;
    for (const Place& place : places_) {
        if (place.slot < 0) continue;
        written[static_cast<std::size_t>(place.slot)] = true;
        for (std::int64_t head = 0; head < heads; ++head) {
            const interp::Value exact = problem_.after(place.sequence, head, place.token).states.at(states.name);
            for (std::int64_t i = 0; i < width; ++i) {
                float x = 0;
                std::memcpy(&x, states.memory->bytes.data() + ((place.slot * heads + head) * width + i) * 4, sizeof x);
                const double wanted = exact.data[static_cast<std::size_t>(i)];
                error += (x - wanted) * (x - wanted), square += wanted * wanted;
            }
        }
    }
    const auto bytes = static_cast<std::size_t>(states.of_slot) * sizeof(float);
    for (std::size_t slot = 0; slot < written.size(); ++slot)
        for (std::size_t i = 0; i < bytes; ++i)
            if (!written[slot] && states.memory->bytes[slot * bytes + i] != kSpoilt)
                return fmt::format("states {} before chunks: slot {} was written, which is nobody's", states.name,
                                   slot);
    const double off = std::sqrt(error), size = std::sqrt(square);
    if (off <= check::tolerance(problem_.shape.dtype) * size || problem_.expects(states.name, true, off / size))
        return {};
    return fmt::format("states {} before chunks of {} tokens: relative RMS {:.3g}{}; {}", states.name, chunk_,
                       off / size, pooled_ ? ", in slots" : "", describe(problem_.shape));
}

std::vector<std::string> ChunkStatesCall::faults() const {
    std::vector<std::string> found;
    if (!problem_.reference.finite) return found;
    for (const States& s : states_)
        if (std::string fault = fault_of(s); !fault.empty()) found.push_back(std::move(fault));
    return found;
}

}  // namespace forge::fuzz
