/// The way through the compiler: from a module and options to an executable, by choosing a schedule, making its plan,
/// emitting the sources and building them.
#pragma once

#include "program/module.h"
#include "runtime/executable.h"

namespace forge::compiler {

/// Of the entry point, sizes and device that the options name. CompileError, RuntimeError.
std::shared_ptr<const runtime::Executable> build(const program::Module& module, const CompileOptions& options);

}  // namespace forge::compiler
