/// What an input may hold, for those who draw random numbers for it: its declared range, else what the program does
/// with it. Names say nothing.
#pragma once

#include <map>
#include <string>

#include "ir/definition.h"

namespace forge::graph {

struct InputValues {
    /// How numbers spread within the range, or what they are made from.
    enum class Kind : std::uint8_t {
        Numbers,  ///< anything in `range`
        Rows,     ///< rows of unit length: factors of products over their own axis
        Keys,     ///< such rows, multiplied with each other
        Gate,     ///< logarithms of decays, or minus these: one end of `range` is 0
    } kind = Kind::Numbers;
    Range range;
    bool declared = false;  ///< the range; else it is read off the program, or a guess
    bool guessed = false;   ///< neither declared nor read off: a range of another sign may be what is meant

    [[nodiscard]] bool is_gate() const { return kind == Kind::Gate; }
    [[nodiscard]] bool has_unit_rows() const { return kind == Kind::Rows || kind == Kind::Keys; }
    /// A gate whose logarithm of the decay is `x` <= 0.
    [[nodiscard]] double gate(double x) const { return range.high > 0 ? -x : x; }
    friend bool operator==(const InputValues&, const InputValues&) = default;
};

/// By name. Undeclared ones: an input whose sum over tokens reaches an exponential, or that is the exponent of a scan's
/// decay, is a gate; one whose logarithm is summed, or that is a scan's decay itself, is in [0, 1]; rows that are
/// multiplied with rows over their own axis have unit length. A token's single number is guessed to be in [0, 1], a
/// scalar in [0.5, 1], and of rows and values per head nothing is known.
std::map<std::string, InputValues> input_values(const ir::Definition& def);

}  // namespace forge::graph
