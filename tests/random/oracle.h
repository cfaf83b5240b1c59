/// What a program's results must be, and how far they may be off. The oracle is `step` in float64 or, without one, the
/// program of a chunk.
///
/// The bound is the table of check/tolerance.h. It holds for well-conditioned arithmetic, and random programs have
/// differences of large numbers, quotients by small ones and normalisations of nearly nothing. Where a result is beyond
/// the table, the program itself is asked what rounding does to it: the interpreter runs the program as written, with
/// every value off by a random part of what rounding may change (a float32's last bits; for operands of products and
/// values in 16 bits, those of the 16-bit type, as matrix units round there). The root mean square of what results then
/// is what any order of arithmetic has to expect; a result may be a few times that far off and no further. Nothing is
/// loosened for a compiler that makes of a well-conditioned program an ill-conditioned one, as the program is run as
/// written. The spread is computed only for results beyond the table, which are rare.
#pragma once

#include "check/check.h"
#include "tests/random/program.h"

namespace forge::fuzz {

/// A problem with its arguments and its reference.
class Problem {
  public:
    Problem(const Program& program, const check::Problem& problem, std::int64_t chunk);

    check::Problem shape;
    check::Buffers buffers;
    std::int64_t chunk;
    check::Reference reference;

    /// What is wrong with the results in `buffers`; nothing if all is well.
    [[nodiscard]] std::vector<std::string> faults() const;
    /// By the reference, one head of a sequence after so many of its tokens.
    [[nodiscard]] interp::Outcome after(std::int64_t sequence, std::int64_t head, std::int64_t tokens) const;
    /// Whether rounding explains that a result is so far off, or lets nothing be said.
    [[nodiscard]] bool expects(const std::string& name, bool is_state, double relative_rms) const;
    /// Results that were beyond the table but within what the arithmetic lets expect, so far, and those about which
    /// nothing can be said.
    mutable int excused = 0, hopeless = 0;

  private:
    [[nodiscard]] double spread(const std::string& name, bool is_state) const;
    const Program& program_;
    ir::Function optimised_;
    mutable std::map<std::string, double> spreads_;
};

/// What matrix units round beyond what the inputs' type does: of products of what decays from token to token the
/// operands, which are no values of the program, once they have decayed; of float32 inputs the operands of all
/// products, which are of two parts of 16 bits.
struct UnitsRound {
    double decayed = 0x1p-22, floats = 0x1p-22;
    bool decays_operands = false;  ///< what decay products multiply has been rounded as other products' operands are
};
/// Moves every value by a random part of what rounding may change in arithmetic on inputs of this type.
interp::Touch rounding(DType dtype, std::uint64_t seed, const UnitsRound& units = {});

/// Step, phases, joined program and optimised program in float64: what differs.
std::vector<std::string> faults_in_float64(const Program& program, const check::Problem& problem, std::int64_t chunk);

std::string describe(const check::Problem& problem);

}  // namespace forge::fuzz
