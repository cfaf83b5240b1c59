/// From compile options to the question that a choice answers: texts become enums here, the machine is looked up, and
/// so is what was measured on it. The one place that reads scheduling files.
#pragma once

#include "forge/runtime.h"
#include "target/choose.h"
#include "tune/database.h"

namespace forge::compiler {

/// RuntimeError for a strategy, engine or rule that there is none.
target::Wishes wishes_of(const CompileOptions& options);
/// The options that give a candidate and no other, whatever is measured later.
CompileOptions asking_for(CompileOptions options, const target::Candidate& candidate);

/// What calls are expected to be, within bounds beyond which nothing is decided otherwise and arithmetic would not
/// hold.
target::Problem expected_problem(const CompileOptions& options);

std::string cache_dir(const CompileOptions& options);

/// A question, and under which key its answers are measured.
struct Asked {
    target::Question question;
    tune::Key key;
};
/// `options`: settled for the entry point (request.h), with the sizes of own axes. `gpu`: that it is about; nullptr: a
/// CPU, of the options' instruction set.
Asked ask(const ir::Function& program, const CompileOptions& options, const target::GpuFacts* gpu);

}  // namespace forge::compiler
