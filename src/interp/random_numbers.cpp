#include "interp/random_numbers.h"

#include <algorithm>
#include <cmath>

#include "interp/interp.h"

namespace forge::interp {
namespace {

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double wide(Range range, double normal) {
    const bool from = std::isfinite(range.low), to = std::isfinite(range.high);
    if (from && to) return range.low + (range.high - range.low) * sigmoid(normal);
    if (from) return range.low + softplus(-normal);
    return to ? range.high - softplus(-normal) : normal;  // from 0 down: log sigmoid(normal)
}

double mild(const graph::InputValues& values, support::Random& random) {
    const Range& range = values.range;
    const bool from = std::isfinite(range.low), to = std::isfinite(range.high);
    const double part = 0.1 + 0.8 * random.uniform();
    if (values.is_gate()) return std::clamp(values.gate(-part), range.low, range.high);
    if (from && to) return range.low + (range.high - range.low) * part;
    return from ? range.low + part : to ? range.high - part : 0.5 * random.normal();
}

}  // namespace

void normalise(std::vector<double>& numbers, std::int64_t width) {
    for (auto row = numbers.begin(); row != numbers.end(); row += width) {
        double squares = 0;
        for (auto x = row; x != row + width; ++x) squares += *x * *x;
        const double factor = 1 / std::sqrt(std::max(squares, 1e-30));
        for (auto x = row; x != row + width; ++x) *x *= factor;
    }
}

std::vector<double> random_numbers(const graph::InputValues& values, const std::vector<std::int64_t>& shape,
                                   support::Random& random, Spread spread) {
    std::vector<double> numbers(static_cast<std::size_t>(element_count(shape)));
    for (double& x : numbers) x = spread == Spread::Wide ? wide(values.range, random.normal()) : mild(values, random);
    if (values.has_unit_rows() && spread == Spread::Wide && shape.back() > 0) normalise(numbers, shape.back());
    return numbers;
}

}  // namespace forge::interp
