/// Every level of one compilation as text, for people. Nothing is decided here.
#pragma once

#include "compile/executable.h"
#include "program/module.h"

namespace forge::compiler {

/// "cpu", or what a GPU's kernels are made for: channels, warp-groups or portable.
std::string engine_of(const Executable& executable);

/// The definition, the joined program of an entry point, what was found out about it, the schedule with its reasons,
/// and every kernel at graph and at tile level.
std::string explain(const program::Module& module, const std::string& entry, const Executable& executable);

}  // namespace forge::compiler
