#include "interp/arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "forge/error.h"

namespace forge::interp {
namespace {

std::int64_t axis_of(const Value& x, std::int64_t dim) { return dim < 0 ? dim + x.rank() : dim; }

Extents strides_of(const Value& x) {
    Extents strides(x.shape.size(), 1);
    for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * x.shape[i];
    return strides;
}

/// Every re-indexing op is a gather with strides.
Value gather(const Value& x, Extents shape, const Extents& strides, std::int64_t offset = 0) {
    Value result = zeros(std::move(shape));
    Extents index(result.shape.size(), 0);
    for (double& element : result.data) {
        element = x.data[at(offset)];
        for (std::size_t d = index.size(); d-- > 0;) {  // advance the index like an odometer
            offset += strides[d];
            if (++index[d] < result.shape[d]) break;
            offset -= strides[d] * result.shape[d];
            index[d] = 0;
        }
    }
    return result;
}

/// The elements of an array along one axis.
struct Line {
    double* first;
    std::int64_t stride, size;
    double& operator[](std::int64_t i) const { return first[i * stride]; }
};

/// Lets `edit` rewrite every line of x along `dim`.
template <class Edit>
Value along(Value x, std::int64_t dim, Edit edit) {
    const std::int64_t axis = axis_of(x, dim), size = x.shape[at(axis)], stride = strides_of(x)[at(axis)];
    const auto total = static_cast<std::int64_t>(x.data.size());
    for (std::int64_t block = 0; block < total; block += size * stride)
        for (std::int64_t i = 0; i < stride; ++i) edit(Line{x.data.data() + block + i, stride, size});
    return x;
}

}  // namespace

Value scalar(double x) { return {{}, {x}}; }

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Value zeros(std::vector<std::int64_t> shape) {
    std::vector<double> data(at(element_count(shape)), 0.0);
    return {std::move(shape), std::move(data)};
}

// ---- Views ----

Value expand(const Value& x, const Extents& shape) {
    if (x.shape == shape) return x;
    const Extents own = strides_of(x);
    const std::size_t missing = shape.size() - x.shape.size();
    Extents strides(shape.size(), 0);
    for (std::size_t i = 0; i < own.size(); ++i) strides[missing + i] = x.shape[i] == 1 ? 0 : own[i];
    return gather(x, shape, strides);
}

Value permute(const Value& x, const Extents& axes) {
    const Extents own = strides_of(x);
    Extents shape, strides;
    for (const auto axis : axes) {
        shape.push_back(x.shape[at(axis)]);
        strides.push_back(own[at(axis)]);
    }
    return gather(x, shape, strides);
}

Value reshape(Value x, Extents shape) {
    x.shape = std::move(shape);
    return x;
}

Value select(const Value& x, std::int64_t dim, std::int64_t index) {
    const std::int64_t axis = axis_of(x, dim);
    Extents shape = x.shape, strides = strides_of(x);
    const std::int64_t offset = (index < 0 ? index + shape[at(axis)] : index) * strides[at(axis)];
    shape.erase(shape.begin() + axis);
    strides.erase(strides.begin() + axis);
    return gather(x, shape, strides, offset);
}

Value slice(const Value& x, std::int64_t dim, std::int64_t start, std::int64_t step, std::int64_t length) {
    const std::size_t axis = at(axis_of(x, dim));
    Extents shape = x.shape, strides = strides_of(x);
    const std::int64_t offset = (start < 0 ? start + shape[axis] : start) * strides[axis];
    shape[axis] = length == 0 ? shape[axis] / step : length;
    strides[axis] *= step;
    return gather(x, shape, strides, offset);
}

Value part(const Value& x, std::int64_t dim, std::int64_t index, std::int64_t count) {
    const std::int64_t size = x.shape[at(axis_of(x, dim))] / count;
    return slice(x, dim, index * size, 1, size);
}

Value joined(const std::vector<Value>& parts, std::int64_t dim, bool by_turns) {
    const std::size_t axis = at(axis_of(parts[0], dim));
    const auto count = static_cast<std::int64_t>(parts.size());
    Extents shape = parts[0].shape;
    shape[axis] = 0;
    for (const Value& p : parts) shape[axis] += p.shape[axis];
    Value result = zeros(shape);
    const std::int64_t stride = strides_of(result)[axis], row = shape[axis] * stride;
    std::int64_t before = 0;  // elements of the axis that earlier parts have
    for (std::int64_t n = 0; n < count; ++n) {
        const Value& p = parts[at(n)];
        const std::int64_t size = p.shape[axis];
        for (std::size_t i = 0; i < p.data.size(); ++i) {
            const auto flat = static_cast<std::int64_t>(i);
            const std::int64_t outer = flat / (size * stride), along = flat / stride % size, inner = flat % stride;
            const std::int64_t to = by_turns ? along * count + n : before + along;
            result.data[at(outer * row + to * stride + inner)] = p.data[i];
        }
        before += size;
    }
    return result;
}

Value repeat_interleave(const Value& x, std::int64_t dim, std::int64_t count) {
    const std::int64_t axis = axis_of(x, dim);
    Extents shape = x.shape, strides = strides_of(x);
    shape.insert(shape.begin() + axis + 1, count);
    strides.insert(strides.begin() + axis + 1, 0);
    Extents merged = x.shape;
    merged[at(axis)] *= count;
    return reshape(gather(x, shape, strides), merged);
}

Value unsqueeze(const Value& x, std::int64_t dim) {
    Extents shape = x.shape;
    shape.insert(shape.begin() + (dim < 0 ? dim + x.rank() + 1 : dim), 1);
    return reshape(x, shape);
}

Value squeeze(const Value& x, std::int64_t dim) {
    Extents shape = x.shape;
    shape.erase(shape.begin() + axis_of(x, dim));
    return reshape(x, shape);
}

// ---- Elementwise ----

Extents broadcast(const Extents& a, const Extents& b) {
    Extents result(std::max(a.size(), b.size()), 1);
    for (std::size_t i = 0; i < result.size(); ++i) {
        const std::int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1, db = i < b.size() ? b[b.size() - 1 - i] : 1;
        if (da != db && da != 1 && db != 1)
            throw InternalError(
                fmt::format("interp: [{}] and [{}] do not broadcast", fmt::join(a, ", "), fmt::join(b, ", ")));
        result[result.size() - 1 - i] = da == 1 ? db : da;
    }
    return result;
}

Value where(const Value& condition, const Value& a, const Value& b) {
    const Extents shape = broadcast(condition.shape, broadcast(a.shape, b.shape));
    const Value chosen = expand(condition, shape), other = expand(b, shape);
    Value result = expand(a, shape);
    for (std::size_t i = 0; i < result.data.size(); ++i)
        if (chosen.data[i] == 0) result.data[i] = other.data[i];
    return result;
}

// ---- Along one axis ----

Value cumsum(const Value& x, std::int64_t dim, bool reverse, bool exclusive) {
    return along(x, dim, [&](Line line) {
        double total = 0;
        for (std::int64_t n = 0; n < line.size; ++n) {
            double& element = line[reverse ? line.size - 1 - n : n];
            const double before = total;
            total += element;
            element = exclusive ? before : total;
        }
    });
}

Value cumprod(const Value& x, std::int64_t dim) {
    return along(x, dim, [](Line line) {
        for (std::int64_t i = 1; i < line.size; ++i) line[i] *= line[i - 1];
    });
}

Value amax(const Value& x, std::int64_t dim) {
    return select(along(x, dim,
                        [](Line line) {
                            for (std::int64_t i = 1; i < line.size; ++i)
                                if (!(line[i] <= line[0])) line[0] = line[i];  // a NaN wins, and stays
                        }),
                  dim, 0);
}

Value softmax(const Value& x, std::int64_t dim) {
    return along(x, dim, [](Line line) {
        double largest = -std::numeric_limits<double>::infinity(), total = 0;
        for (std::int64_t i = 0; i < line.size; ++i) largest = std::fmax(largest, line[i]);
        for (std::int64_t i = 0; i < line.size; ++i) total += line[i] = std::exp(line[i] - largest);
        for (std::int64_t i = 0; i < line.size; ++i) line[i] /= total;
    });
}

Value l2norm(const Value& x, std::int64_t dim, double eps) {
    return along(x, dim, [eps](Line line) {
        double total = eps;
        for (std::int64_t i = 0; i < line.size; ++i) total += line[i] * line[i];
        for (std::int64_t i = 0; i < line.size; ++i) line[i] /= std::sqrt(total);
    });
}

Value linear_scan(const Value& decay, const Value& x, bool reverse, bool exclusive) {
    Value h = x;
    const std::int64_t rows = x.shape[0], row = rows == 0 ? 0 : static_cast<std::int64_t>(x.data.size()) / rows;
    for (std::int64_t n = 1; n < rows; ++n) {
        const std::int64_t i = reverse ? rows - 1 - n : n, before = reverse ? i + 1 : i - 1;
        for (std::int64_t j = 0; j < row; ++j)
            h.data[at(i * row + j)] += decay.data[at((reverse ? before : i) * row + j)] * h.data[at(before * row + j)];
    }
    if (!exclusive) return h;
    Value earlier = zeros(x.shape);
    if (reverse) std::copy(h.data.begin() + std::min(row, rows * row), h.data.end(), earlier.data.begin());
    else
        std::copy(h.data.begin(), h.data.end() - std::min(row, rows * row),
                  earlier.data.begin() + std::min(row, rows * row));
    return earlier;
}

Value linear_scan_from(const Value& decay, Value x, const Value& before) {
    for (std::size_t j = 0; j < before.data.size(); ++j) x.data[j] += decay.data[j] * before.data[j];
    return linear_scan(decay, x, false, false);
}

Value arange(std::int64_t n) {
    Value result = zeros({n});
    std::iota(result.data.begin(), result.data.end(), 0.0);
    return result;
}

// ---- Matrices ----

Value triangle(Value x, bool lower, std::int64_t diagonal) {
    const std::int64_t rows = x.shape[0], columns = x.shape[1];
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
            if (lower ? j - i > diagonal : j - i < diagonal) x.data[at(i * columns + j)] = 0;
    return x;
}

Value identity(const Extents& shape) {
    Value result = zeros(shape);
    for (std::int64_t i = 0; i < std::min(shape[0], shape[1]); ++i) result.data[at(i * shape[1] + i)] = 1;
    return result;
}

Value matmul(const Value& a, const Value& b) {
    const std::int64_t rows = a.shape[0], inner = a.shape[1], columns = b.shape[1];
    Value result = zeros({rows, columns});
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
            for (std::int64_t k = 0; k < inner; ++k)
                result.data[at(i * columns + j)] += a.data[at(i * inner + k)] * b.data[at(k * columns + j)];
    return result;
}

Value unit_lower_inverse(const Value& x) {
    const std::int64_t n = x.shape[0];
    Value result = identity(x.shape);
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < i; ++j)
            for (std::int64_t c = 0; c <= j; ++c)
                result.data[at(i * n + c)] -= x.data[at(i * n + j)] * result.data[at(j * n + c)];
    return result;
}

}  // namespace forge::interp
