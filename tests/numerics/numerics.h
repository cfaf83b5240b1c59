/// What the numerics tests share: a program compiled in some way, run on problems of src/check, compared with the
/// float64 recurrence within the one tolerance table.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "check/check.h"
#include "check/suite.h"
#include "tests/support/turns.h"

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

std::vector<std::string> all_strategies();
/// nullopt where the strategy needs a decay that is affine in the state and the program's is not.
std::optional<Attention> compile_as(const ir::Definition& def, CompileOptions options);
/// Compiles in all the given ways at once, with the problem's sizes and element type filled in.
std::vector<std::optional<Attention>> compile_all(const ir::Definition& def, const check::Problem& problem,
                                                  std::vector<CompileOptions> ways);

/// Runs the case and expects every output and final state within tolerance of the reference.
void expect_agreement(const Attention& attention, Prepared& prepared);

}  // namespace forge::tests
