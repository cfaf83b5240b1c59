// Compiles a ready-made variant for 128 x 128 states and runs it on two sequences of 1000 tokens.
#include <cstdio>
#include <vector>

#include "forge/forge.h"
#include "variants/variants.h"

int main() try {
    constexpr std::int64_t B = 2, T = 1000, H = 4, K = 128, V = 128;
    const forge::Attention attention =
        forge::compile(forge::variants::scalar_gla(), {.dtype = forge::F32, .sizes = {{"K", K}, {"V", V}}});

    std::vector<float> q(B * T * H * K, 0.1F), k(B * T * H * K, 0.1F), v(B * T * H * V, 1.0F), g(B * T * H, -0.01F),
        o(B * T * H * V);
    std::vector<float> state(B * H * K * V);
    forge::Call call;
    call.tensors = {{"q", forge::dense(q.data(), forge::F32, {B, T, H, K})},
                    {"k", forge::dense(k.data(), forge::F32, {B, T, H, K})},
                    {"v", forge::dense(v.data(), forge::F32, {B, T, H, V})},
                    {"g", forge::dense(g.data(), forge::F32, {B, T, H})},
                    {"o", forge::dense(o.data(), forge::F32, {B, T, H, V})}};
    call.scalars = {{"scale", 1.0}};
    call.final_states = {{"s", forge::dense(state.data(), forge::F32, {B, H, K, V})}};  // and initial_states, to go on
    attention(call);

    std::printf("strategy %s on %s: first output %g, last %g\n", attention.strategy().c_str(), attention.isa().c_str(),
                static_cast<double>(o.front()), static_cast<double>(o.back()));
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
