/// One phase being traced: the function so far and the mistakes found. Tensors are (trace, value) pairs; an operation
/// that fails is reported once and yields the value -1, on which later operations stay silent.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "forge/language.h"
#include "ir/function.h"

namespace forge::frontend {

class Trace : public std::enable_shared_from_this<Trace> {
  public:
    explicit Trace(std::string name) { fn.name = std::move(name); }

    /// Records an op; its type by the type rules. `own` is the type of a leaf.
    Tensor record(ir::Opcode code, const std::vector<Tensor>& args, ir::Attrs attrs, const Location& where,
                  const ir::Type& own = {});
    Tensor constant(double value, const Location& where);
    Tensor error(Diagnostic diagnostic);
    [[nodiscard]] const ir::Type* type(const Tensor& t) const;  ///< nullptr after an error

    ir::Function fn;
    std::vector<Diagnostic> diagnostics;
};

}  // namespace forge::frontend
