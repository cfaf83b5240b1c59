/// Every level of one compilation as text, for people. Nothing is decided here.
#pragma once

#include "program/module.h"
#include "runtime/executable.h"

namespace forge::compiler {

/// "cpu", or what a GPU's kernels are made for: channels, warp-groups or portable.
std::string engine_of(const runtime::Executable& executable);

/// The definition, the joined program of an entry point, what was found out about it, the schedule with its reasons,
/// and every kernel at graph and at tile level.
std::string explain(const program::Module& module, const std::string& entry, const runtime::Executable& executable);

}  // namespace forge::compiler
