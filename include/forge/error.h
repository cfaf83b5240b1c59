/// The three kinds of failure: CompileError (the definition is wrong; all mistakes of a phase at once), RuntimeError (a
/// call's arguments or the machine are wrong), InternalError (a bug in Forge).
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "forge/types.h"

namespace forge {

/// One mistake in the user's terms.
struct Diagnostic {
    std::string what;      ///< "matmul: inner sizes differ"
    std::string expected;  ///< may be empty
    std::string got;       ///< may be empty
    Location where;
    std::string hint;  ///< how to fix it; may be empty
};

/// `mine.cpp:12:3: error: what`, then expected, got and hint on lines of their own.
std::string to_string(const Diagnostic& diagnostic);

/// The definition cannot be compiled. `diagnostics()` lists every mistake found in the phase that failed.
class CompileError : public std::runtime_error {
  public:
    explicit CompileError(std::vector<Diagnostic> diagnostics);
    explicit CompileError(Diagnostic diagnostic);
    [[nodiscard]] const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

  private:
    std::vector<Diagnostic> diagnostics_;
};

/// A call cannot be carried out; the message names the argument, what was expected and what came.
class RuntimeError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A broken invariant of the compiler; the message names the pass.
class InternalError : public std::logic_error {
    using std::logic_error::logic_error;
};

}  // namespace forge
