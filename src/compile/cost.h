/// The cost of what was compiled, or only planned: from its plan and the machine that it is for.
#pragma once

#include "compile/executable.h"
#include "forge/cost.h"

namespace forge::compiler {

/// Of calls as the schedule expects them, of the entry point of that name.
CallCost cost_of(const Executable& executable, const std::string& entry);

}  // namespace forge::compiler
