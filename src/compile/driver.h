/// The way through the compiler: from a module and options to an executable, by choosing a schedule, making its plan,
/// emitting the sources and building them.
#pragma once

#include "compile/executable.h"
#include "ir/pass.h"
#include "program/module.h"

namespace forge::compiler {

/// What build() loads: schedule, plan and sources of the entry point, sizes and device that the options name. Needs no
/// compiler, and for a GPU of CompileOptions::on no GPU. CompileError, RuntimeError.
std::shared_ptr<Executable> emitted(const program::Module& module, const CompileOptions& options,
                                    const ir::PassRunner& passes = {});
/// The same with its kernels, compiled and loaded.
std::shared_ptr<const Executable> build(const program::Module& module, const CompileOptions& options);

}  // namespace forge::compiler
