/// A chain of ranks with random summaries, and the states at their borders in float64.
#pragma once

#include "dist/exchange.h"

namespace forge::tests {

/// All ranks' summaries, and what goes over which borders.
struct Chain {
    std::vector<dist::detail::Field> fields;
    std::vector<std::vector<std::vector<float>>> states, maps;  ///< by rank and field
    std::vector<bool> fresh, open;                              ///< open: to the next rank

    [[nodiscard]] dist::detail::Summary summary(int rank, int size) const {
        const auto r = static_cast<std::size_t>(rank);
        dist::detail::Summary s{fresh[r], rank > 0 && open[r - 1], rank + 1 < size && open[r], {}, {}};
        for (std::size_t f = 0; f < fields.size(); ++f)
            s.states.push_back(states[r][f].data()), s.maps.push_back(maps[r][f].empty() ? nullptr : maps[r][f].data());
        return s;
    }
};

/// States of all kinds.
Chain random_chain(int size, std::uint64_t seed);

/// The state before each rank, in float64, the plain way.
std::vector<std::vector<double>> folded(const Chain& chain, std::size_t f, int size);

using Incoming = std::vector<std::vector<std::vector<float>>>;  ///< by rank and field

}  // namespace forge::tests
