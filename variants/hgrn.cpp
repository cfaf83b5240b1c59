/// HGRN: h_t = α_t ⊙ h_{t-1} + (1 - α_t) ⊙ v_t, o_t = h_t ⊙ q_t, with α = exp(g): a vector state, no matrix products.
/// Qin et al., "Hierarchically Gated Recurrent Neural Network", 2023, arXiv:2311.04823, section 3.2 (the real-valued
/// form).
#include "variants/variants.h"

namespace forge::variants {

LinearAttention hgrn() {
    auto [T, H, D] = dims("T", "H", "D");
    LinearAttention a("hgrn");
    a.input("q", BF16, {T, H, D}).input("v", BF16, {T, H, D}).input("g", F32, {T, H, D}, kLogDecays);
    a.state("h", F32, {D});

    a.chunk({"v", "g"}, [](Tensor v, Tensor g) {  // [C, D] [C, D] -> [D]
        Tensor alpha = exp(g);
        return select(cache_result(linear_scan(alpha, (1.0 - alpha) * v), "within"), 0, -1);
    });
    a.decay({"prev_h", "chunk_state", "g"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * exp(sum(g, 0)) + chunk; });
    a.merge({"q", "g", "within", "chunk_state"}, [](Tensor q, Tensor g, Tensor within, Tensor before) {  // -> [C, D]
        return (within + exp(cumsum(g, 0)) * before) * q;
    });
    a.step({"q", "v", "g", "prev_h"}, [](Tensor q, Tensor v, Tensor g, Tensor h) -> Results {
        Tensor next = exp(g) * h + (1.0 - exp(g)) * v;
        return {{"h", next}, {"o", next * q}};
    });
    return a;
}

}  // namespace forge::variants
