/// What is asked of compile(), checked before anything is chosen or built.
#pragma once

#include "forge/runtime.h"
#include "ir/definition.h"
#include "program/entry_point.h"

namespace forge::compiler {

/// RuntimeError for options that no machine has.
void check_options(const CompileOptions& options);
/// RuntimeError for sizes of symbols that the definition has not. Programs may give the same sizes to many definitions;
/// who names them one by one, in texts, has mistaken a name.
void check_known(const ir::Definition& def, const std::map<std::string, std::int64_t>& sizes);
/// RuntimeError unless every symbol but T and the heads has a size from 1 to ir::kMostExtent.
void check_sizes(const ir::Definition& def, const std::map<std::string, std::int64_t>& sizes);
/// RuntimeError if a value of the program is too large: kernels count its elements with int.
void check_extents(const ir::Definition& def, const ir::Function& program,
                   const std::map<std::string, std::int64_t>& sizes);
/// CompileError where the type rules hold, and yet an output depends on a later token, or on padding.
void check_meaning(const ir::Definition& def);
/// With what the entry point leaves no choice of. Schedulers and the tuning database take it like what was asked for.
CompileOptions settled(CompileOptions options, const program::EntryPoint& entry);

/// All of compile()'s errors that do not depend on sizes or on the machine.
void verify(const ir::Definition& declared, const CompileOptions& options);

}  // namespace forge::compiler
