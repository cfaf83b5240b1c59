/// What searches for orders of operations have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::tile {

/// One of them, at random, goes to a random place. The same seeds, the same orders.
inline void move_one(std::vector<ir::ValueId>& order, std::uint32_t& seed) {
    const auto any = [&] {
        seed = seed * 1664525u + 1013904223u;
        return order.begin() + static_cast<std::ptrdiff_t>((seed >> 8) % order.size());
    };
    const auto from = any(), to = any();
    if (from < to) std::rotate(from, from + 1, to + 1);
    else std::rotate(to, from, from + 1);
}

/// What was found for the same key before, of the last few: schedules are tried that differ in other kernels. Of each
/// thread its own, as others may search meanwhile. The reference holds until the next call.
template <class Found, class Search>
const Found& found_before(const std::string& key, Search search) {
    constexpr std::size_t kMost = 16;
    thread_local std::map<std::string, Found> found;
    const auto known = found.find(key);
    if (known != found.end()) return known->second;
    if (found.size() >= kMost) found.clear();
    return found.emplace(key, search()).first->second;
}

}  // namespace forge::tile
