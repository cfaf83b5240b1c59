/// Random numbers for an input, by what it may hold.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/input_values.h"
#include "support/random.h"

namespace forge::interp {

/// How far from their middle numbers spread.
enum class Spread : std::uint8_t {
    Wide,  ///< normal numbers, bent into the range: log sigmoid(x), softplus(x), sigmoid(x)
    Mild,  ///< what naive forms of chunks bear: gates from 0.1 to 0.9, and nothing close to a range's ends
};

/// Row-major in `shape`; nothing is rounded.
std::vector<double> random_numbers(const graph::InputValues& values, const std::vector<std::int64_t>& shape,
                                   support::Random& random, Spread spread);

/// Scales each row of `width` numbers to unit length.
void normalise(std::vector<double>& numbers, std::int64_t width);

}  // namespace forge::interp
