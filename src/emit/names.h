/// C++ names for values: the user's, made valid and kept apart from the device library's.
#pragma once

#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::emit {

std::vector<std::string> cpp_names(const ir::Function& fn);
std::string cpp_identifier(const std::string& name);
std::string float_literal(double value);
std::string storage_type(DType dtype);  ///< float, bf16, f16

}  // namespace forge::emit
