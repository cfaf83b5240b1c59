#include "tests/random/half_states.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "check/element.h"

namespace forge::fuzz {
namespace {

std::byte* at(void* data, DType dtype, std::int64_t index) {
    return static_cast<std::byte*>(data) + index * static_cast<std::int64_t>(size_in_bytes(dtype));
}

}  // namespace

HalfStates::HalfStates(const Call& given, DType dtype) : dtype_(dtype), call_(given) {
    if (dtype == DType::F32) return;
    for (auto* const states : {&call_.initial_states, &call_.final_states})
        for (auto& [name, view] : *states)
            if (!name.starts_with("last_")) view = halves_of(view);
}

TensorView HalfStates::halves_of(const TensorView& floats) {
    const std::int64_t count =
        std::accumulate(floats.shape.begin(), floats.shape.end(), std::int64_t{1}, std::multiplies<>());
    const auto found = copies_.find(floats.data);
    const Copy& copy = found != copies_.end() ? found->second : copies_[floats.data] = [&] {
        HostBlock& half = blocks.emplace_back();
        half.bytes.resize(static_cast<std::size_t>(count) * size_in_bytes(dtype_));
        for (std::int64_t i = 0; i < count; ++i)
            check::store(at(half.bytes.data(), dtype_, i), dtype_,
                         check::load(at(floats.data, DType::F32, i), DType::F32));
        return Copy{&half, floats.data, count};
    }();
    return dense(copy.half->bytes.data(), dtype_, floats.shape);
}

void HalfStates::take() {
    for (const auto& [address, copy] : copies_)
        for (std::int64_t i = 0; i < copy.count; ++i) {
            const double now = check::load(at(copy.half->bytes.data(), dtype_, i), dtype_);
            std::byte* const floats = at(copy.floats, DType::F32, i);
            // NaN keeps the bits by which it is known that nobody has written it.
            if (std::isnan(now) && std::isnan(check::load(floats, DType::F32))) continue;
            check::store(floats, DType::F32, now);
        }
}

}  // namespace forge::fuzz
