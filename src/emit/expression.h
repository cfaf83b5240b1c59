/// One elementwise op as C++, for all emitters: an operator, or the device function of the op's name.
#pragma once

#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::emit {

enum class Spelling : std::uint8_t {
    Operators,  ///< a + b
    Functions,  ///< add(a, b)
};

/// `operands`: the texts of the op's operands, in order; of tril and triu then row, column and diagonal. `zero`: what a
/// number is compared with to become a truth value.
std::string expression(const ir::Function& fn, const ir::Op& op, const std::vector<std::string>& operands,
                       const std::string& zero = "zero", Spelling spelling = Spelling::Operators);

}  // namespace forge::emit
