/// The way through the compiler: from a module and options to an executable, by choosing a schedule, making its plan,
/// emitting the sources and building them.
#pragma once

#include "ir/pass.h"
#include "program/module.h"
#include "runtime/executable.h"

namespace forge::compiler {

/// What build() loads: schedule, plan and sources of the entry point, sizes and device that the options name. Needs no
/// compiler, and for a GPU of CompileOptions::on no GPU. CompileError, RuntimeError.
std::shared_ptr<runtime::Executable> emitted(const program::Module& module, const CompileOptions& options,
                                             const ir::PassRunner& passes = {});
/// The same with its kernels, compiled and loaded.
std::shared_ptr<const runtime::Executable> build(const program::Module& module, const CompileOptions& options);

}  // namespace forge::compiler
