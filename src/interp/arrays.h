/// The arithmetic of the interpreter: PyTorch's operations on float64 arrays, each by its definition. Arrays in, arrays
/// out; knows nothing of the IR, checks no more than broadcasting, and is not meant to be fast.
#pragma once

#include "interp/interp.h"

namespace forge::interp {

using Extents = std::vector<std::int64_t>;

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Views. Axes may be negative.
Value expand(const Value& x, const Extents& shape);
Value permute(const Value& x, const Extents& axes);
Value select(const Value& x, std::int64_t dim, std::int64_t index);
/// length 0: to the end, in whole steps.
Value slice(const Value& x, std::int64_t dim, std::int64_t start, std::int64_t step, std::int64_t length);
Value part(const Value& x, std::int64_t dim, std::int64_t index, std::int64_t count);
/// One after the other along `dim`, or by turns.
Value joined(const std::vector<Value>& parts, std::int64_t dim, bool by_turns);
Value repeat_interleave(const Value& x, std::int64_t dim, std::int64_t count);
Value unsqueeze(const Value& x, std::int64_t dim);
Value squeeze(const Value& x, std::int64_t dim);

// Elementwise, with broadcasting.
Extents broadcast(const Extents& a, const Extents& b);
Value where(const Value& condition, const Value& a, const Value& b);

template <class Formula>
Value map(Value x, Formula formula) {
    for (double& element : x.data) element = formula(element);
    return x;
}

template <class Formula>
Value map(const Value& a, const Value& b, Formula formula) {
    const Extents shape = broadcast(a.shape, b.shape);
    Value result = expand(a, shape);
    const Value other = expand(b, shape);
    for (std::size_t i = 0; i < result.data.size(); ++i) result.data[i] = formula(result.data[i], other.data[i]);
    return result;
}

// Along one axis; `amax` drops it.
Value cumsum(const Value& x, std::int64_t dim, bool reverse, bool exclusive);
Value cumprod(const Value& x, std::int64_t dim);
Value amax(const Value& x, std::int64_t dim);
Value softmax(const Value& x, std::int64_t dim);
Value l2norm(const Value& x, std::int64_t dim, double eps);
/// reverse: h[i] = decay[i+1] * h[i+1] + x[i]; exclusive: h before the row itself.
Value linear_scan(const Value& decay, const Value& x, bool reverse, bool exclusive);
Value linear_scan_from(const Value& decay, Value x, const Value& before);

/// 0, 1, …, n - 1.
Value arange(std::int64_t n);

// Matrices.
Value triangle(Value x, bool lower, std::int64_t diagonal);
Value identity(const Extents& shape);
Value matmul(const Value& a, const Value& b);
/// Forward substitution; reads nothing but the strict lower triangle.
Value unit_lower_inverse(const Value& x);

}  // namespace forge::interp
