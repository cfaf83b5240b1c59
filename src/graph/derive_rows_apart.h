/// Several rows per token, one by one: values of `step` with a row for each are so many values. Where an operation
/// mixes rows, they stand beside each other as a further axis of the token.
#pragma once

#include "ir/definition.h"

namespace forge::graph {

/// `step` in which inputs with several rows per token are read by `select`, and outputs with several rows are `concat`.
ir::Function rows_apart(const ir::Function& step, const ir::Definition& def);

}  // namespace forge::graph
