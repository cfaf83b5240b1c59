/// What the numerics tests share: a program compiled in some way, run on problems of src/check, compared with the
/// float64 recurrence within the one tolerance table.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "check/check.h"
#include "check/suite.h"
#include "tests/support/entries.h"

namespace forge::tests {

/// A case with its arguments and float64 results, which all ways of compiling share.
struct Prepared {
    std::string name;
    check::Buffers buffers;
    check::Reference reference;
};
std::vector<Prepared> prepare(const ir::Definition& def, const std::vector<check::Case>& cases);

/// One packed problem with every length that a chunk of 16 or 64 makes awkward.
check::Case every_length(DType dtype, const std::map<std::string, std::int64_t>& sizes);
/// A few cases that together reach all code of a kernel: ragged, strided, packed, with states in and out.
std::vector<check::Case> few_cases(DType dtype, const std::map<std::string, std::int64_t>& sizes);

/// A program's place in the list of all, which decides on its turn.
std::size_t turn_of(const Entry& program);
/// Whether each program is to go all ways: FORGE_EVERY_WAY=1.
bool every_way();
/// `count` of these ways. Programs take turns: each goes a few of them, all together go all, and each test begins with
/// another one (`shift`).
template <class Way>
std::vector<Way> in_turn(const Entry& program, std::vector<Way> ways, std::size_t count, std::size_t shift = 0) {
    if (every_way()) return ways;
    const std::size_t first = (turn_of(program) + shift) % ways.size();
    std::rotate(ways.begin(), ways.begin() + static_cast<std::ptrdiff_t>(first), ways.end());
    ways.erase(ways.begin() + static_cast<std::ptrdiff_t>(std::min(count, ways.size())), ways.end());
    return ways;
}

std::vector<std::string> all_strategies();
/// nullopt where the strategy needs a decay that is affine in the state and the program's is not.
std::optional<Attention> compile_as(const ir::Definition& def, CompileOptions options);
/// Compiles in all the given ways at once, with the problem's sizes and element type filled in.
std::vector<std::optional<Attention>> compile_all(const ir::Definition& def, const check::Problem& problem,
                                                  std::vector<CompileOptions> ways);

/// Runs the case and expects every output and final state within tolerance of the reference.
void expect_agreement(const Attention& attention, Prepared& prepared);

}  // namespace forge::tests
