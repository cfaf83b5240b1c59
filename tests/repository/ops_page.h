/// docs/ops.md, made from the op table (include/forge/ops.def).
#pragma once

#include <string>

namespace forge::tests {

std::string ops_page();

}  // namespace forge::tests
