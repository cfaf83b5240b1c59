/// Backward passes of random programs, on whatever runs them, against the adjoint of `step`.
#pragma once

#include <functional>
#include <optional>

#include "program/backward.h"
#include "tests/random/examine.h"
#include "tests/random/oracle.h"

namespace forge::fuzz {

/// A problem whose gradients must be within the table, or a few times what rounding makes of them.
class BackwardProblem {
  public:
    /// `entry`: backward, or backward to inputs.
    BackwardProblem(const Program& program, check::Problem shape, const std::string& entry = "backward");

    /// What is wrong with what the call leaves in the buffers; nothing if all is well. `chunk`: of its kernels.
    std::vector<std::string> faults(const std::function<void(check::Buffers&)>& call, std::int64_t chunk, Tally& tally,
                                    const UnitsRound& units = {}) const;

  private:
    static constexpr double kTimesSpread = 4, kNothingToSay = 0.25;

    /// What rounding does to a gradient, by the interpreter, as a part of what errors are relative to.
    [[nodiscard]] double spread(const check::Buffers& buffers, const check::Reference& reference,
                                const check::Difference& d, std::int64_t chunk, const UnitsRound& units) const;

    const Program& program_;
    Program back_;  ///< with the tensors of its backward pass
    program::Backward made_;
    check::Problem shape_;
};

/// The definition with phases derived from its step alone, if some of its states only keep exponents small.
std::optional<ir::Definition> stabilised(ir::Definition def);

/// How probable choices are that warp groups hardly ever take, beside others: chunks of other than 64 tokens, the
/// strategies one-pass and decoupled.
struct Seldom {
    double chunk = 1, one_pass = 1, decoupled = 1;
};
/// A backward pass by a random strategy and chunk size.
CompileOptions backward_options(Subject& subject, const std::string& name, const Seldom& seldom = {});

}  // namespace forge::fuzz
