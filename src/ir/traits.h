/// What passes, prices and emitters ask of an op beyond its name: the trait columns of ops.def. A pass that goes by
/// traits, in a switch without `default`, holds for ops that are added later; one that treats an op like no other
/// names it.
#pragma once

#include <cstdint>

namespace forge::ir {

/// Where the elements come from that an element of the result depends on.
enum class Along : std::uint8_t {
    Leaf,        ///< there are no operands
    Place,       ///< there are none, and an element is what its place says
    Pointwise,   ///< from the same place in each operand, after broadcasting: elementwise
    Triangle,    ///< elementwise, and an element's place in the last two axes says whether it stays
    Copied,      ///< from the same place
    Shifted,     ///< from the row of the token before
    Reduced,     ///< from all along `dim`, which disappears
    Scanned,     ///< from those before (or behind) along `dim`
    RowScan,     ///< from the rows before, along axis 0
    Normalised,  ///< from all along `dim`
    Permuted,    ///< views: from one place in the operand
    Inserted,
    Removed,
    Selected,
    Cut,
    Broadcast,
    Repeated,    ///< from one place in the operand, not at one stride
    Joined,      ///< from one place in one of the operands, which follow each other along `dim`
    Contracted,  ///< products: from a row of one matrix and a column of another
    Matrix,      ///< from the whole matrix
    Pairs,       ///< from a pair of rows and those between, each with its channels: [C, C]
    Rows,        ///< from the rows up to its own, channel by channel
};

/// In which operands the op is linear, the others fixed.
enum class Linear : std::uint8_t {
    Opaque,       ///< in none
    Same,         ///< the operand's numbers as they are
    Rearranged,   ///< the operand's numbers at other places
    Negated,      ///< -x
    Sum,          ///< a + b, in both at once
    Difference,   ///< a - b, in both at once
    Product,      ///< a * b, in either
    Quotient,     ///< a / b, in a
    Selected,     ///< where(c, a, b), in a and b at once
    Joined,       ///< in all at once
    Summed,       ///< sums along an axis
    Masked,       ///< entries that stay or become 0
    Second,       ///< in the second operand
    Contraction,  ///< a @ b, in either
    Weighted,     ///< sums of products of the first two operands, in either, with weights of the third
    Accumulated,  ///< c + a @ b, in a or b, and in c at once
    Subtracted,   ///< c - a @ b
};

/// Per vector of results. What is priced by sizes and shapes (schedule/work) has none.
struct Cost {
    double vectors = 0;       ///< simple operations on a vector
    double exponentials = 0;  ///< … and such as take as long as so many exponentials
    /// Whether it is made again for each of several elements that read it, rather than kept.
    bool again = false;
};
inline constexpr Cost kNothing{0, 0, true}, kLight{1, 0, true}, kTwice{2, 0, true};
inline constexpr Cost kOnce{1, 0, false};  ///< as light, but kept: truth values are, and what changes the type
inline constexpr Cost kExponential{0, 1, false}, kMoreThanExponential{0, 1.5, false}, kThreeExponentials{0, 3, false};
inline constexpr Cost kBySize{}, kUncounted{};

struct Traits {
    Along along = Along::Leaf;
    Linear linear = Linear::Opaque;
    Cost cost;
};

/// Whether several operands that vary at once leave the op linear.
constexpr bool is_additive(Linear linear) {
    return linear == Linear::Sum || linear == Linear::Difference || linear == Linear::Selected ||
           linear == Linear::Joined;
}

}  // namespace forge::ir
