/// C++ names for values: the user's behind a prefix, so that none is a keyword, a macro, or a name of the device
/// library or of the emitters.
#pragma once

#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::emit {

/// Of a tensor, state or value that the user named. What emitters derive from it ends in an underscore and one of their
/// own words (`t_q_rows`), and is no other name's identifier: names that end so themselves get an underscore more.
std::string cpp_identifier(const std::string& name);
/// Of every value: those without a name are `v` and their number.
std::vector<std::string> cpp_names(const ir::Function& fn);
std::string float_literal(double value);
std::string storage_type(DType dtype);  ///< float, bf16, f16

}  // namespace forge::emit
