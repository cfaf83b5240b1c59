/// Programs whose inputs are all float32.
#pragma once

#include "forge/forge.h"
#include "frontend/trace.h"
#include "graph/derive.h"

namespace forge::tests {

/// Linear attention with inputs of 32 bits and an output of 16.
inline ir::Definition floats_to_halves() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("floats_to_halves");
    a.input("q", F32, {T, H, K}).input("k", F32, {T, H, K}).input("v", F32, {T, H, V});
    a.state("s", F32, {K, V}).output("o", BF16, {T, H, V});
    a.step({"q", "k", "v", "prev_s"},
           [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& s) -> Results {
               const Tensor next = s + outer(k, v);
               return {{"s", next}, {"o", matmul(q, next)}};
           });
    return graph::with_phases(a.define());
}

}  // namespace forge::tests
