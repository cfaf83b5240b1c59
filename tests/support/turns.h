/// Tests that would take each program many ways take turns: each program goes a few of them, all together go all.
/// FORGE_EVERY_WAY=1: each goes all.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "support/environment.h"
#include "tests/support/entries.h"

namespace forge::tests {

inline bool every_way() { return support::environment("FORGE_EVERY_WAY").value_or("0") == "1"; }

/// A program's place in the list of all, which decides on its turn.
inline std::size_t turn_of(const std::string& program) {
    static const std::vector<Entry> kAll = all_programs();
    const auto same = [&](const Entry& e) { return e.name == program; };
    return static_cast<std::size_t>(std::find_if(kAll.begin(), kAll.end(), same) - kAll.begin());
}
inline std::size_t turn_of(const Entry& program) { return turn_of(program.name); }

/// Whether a program is a variant: what people run, which has no turns where novel programs have.
inline bool is_variant(const Entry& program) { return turn_of(program) < variants::all().size(); }

/// Whether what one program in `programs` does is for this one.
inline bool has_turn(const Entry& program, std::size_t programs, std::size_t shift = 0) {
    return every_way() || (turn_of(program) + shift) % programs == 0;
}

/// `count` of these ways, from that of this turn on; each test may begin with another one (`shift`).
template <class Way>
std::vector<Way> in_turn(std::size_t turn, std::vector<Way> ways, std::size_t count, std::size_t shift = 0) {
    if (every_way() || ways.size() <= count) return ways;
    const std::size_t first = (turn + shift) % ways.size();
    std::rotate(ways.begin(), ways.begin() + static_cast<std::ptrdiff_t>(first), ways.end());
    ways.erase(ways.begin() + static_cast<std::ptrdiff_t>(count), ways.end());
    return ways;
}
template <class Way>
std::vector<Way> in_turn(const Entry& program, std::vector<Way> ways, std::size_t count, std::size_t shift = 0) {
    return in_turn(turn_of(program), std::move(ways), count, shift);
}

}  // namespace forge::tests
