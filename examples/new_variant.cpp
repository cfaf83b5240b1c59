// A variant that is in no list, from its idea to a checked and running kernel, without a line in the compiler.
//
// The idea, "sleepy memory": a token writes as much as it is awake, and the memory forgets only while it is written to.
// With a in [0, 1], S_t = (1 - a_t)^r S_{t-1} + a_t k_t v_tᵀ and o_t = S_tᵀ q_t, where r is one rate per head: a token
// with a = 0 leaves the memory as it is, a token with a = 1 and r > 0 starts it anew.
#include <cstdio>

#include "check/check.h"
#include "forge/forge.h"
#include "ir/definition.h"

using namespace forge;

namespace {

LinearAttention sleepy_memory() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("sleepy_memory");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.input("beta", F32, {T, H}).head_input("slope", F32, {H});  // how awake a token is; the rate
    a.state("s", F32, {K, V});

    // What the chunk adds to the memory, as seen at its end. Phases see one chunk of one head: q, k [C, K], v [C, V].
    a.chunk({"k", "v", "beta", "slope"}, [](Tensor k, Tensor v, Tensor beta, Tensor slope) {
        Tensor g = cache_result(log(1.0 - beta) * slope, "g");  // the decay as a logarithm, so that a sum is a product
        Tensor written = cache_result(k * unsqueeze(beta, 1), "written");
        return matmul(transpose(written * unsqueeze(exp(sum(g, 0) - cumsum(g, 0)), 1)), v.to(F32));
    });
    // The memory after the chunk.
    a.decay({"prev_s", "chunk_state", "g"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * exp(sum(g, 0)) + chunk; });
    // What the queries read: tokens of this chunk, and the memory before it.
    a.merge({"q", "v", "g", "written", "chunk_state"}, [](Tensor q, Tensor v, Tensor g, Tensor written, Tensor before) {
        Tensor G = cumsum(g, 0), wide = q.to(F32);
        Tensor scores = tril(matmul(wide, transpose(written)) * exp(unsqueeze(G, 1) - unsqueeze(G, 0)));
        return matmul(scores, v.to(F32)) + matmul(wide, before) * unsqueeze(exp(G), 1);
    });
    // The specification, token by token: the formula above. `check` runs it in float64.
    a.step({"q", "k", "v", "beta", "slope", "prev_s"},
           [](Tensor q, Tensor k, Tensor v, Tensor beta, Tensor slope, Tensor s) -> Results {
               Tensor next = s * pow(1.0 - beta, slope) + outer(k * beta, v);
               return {{"s", next}, {"o", matmul(q, next)}};
           });
    return a;
}

bool agrees_with_its_step(DType dtype, const std::string& strategy) {
    const ir::Definition definition = sleepy_memory().define();
    check::Problem problem;
    problem.T = 200, problem.H = 3, problem.dtype = dtype, problem.initial_state = true;
    problem.sizes = {{"K", 64}, {"V", 64}};
    const Attention attention = compile(definition, {.dtype = dtype, .sizes = problem.sizes, .strategy = strategy});
    const check::Report report = check::check(attention, definition, problem);
    std::printf("%-5s %-10s relative RMS error %.1e, at most %.1e may be: %s\n", to_string(dtype).c_str(),
                strategy.c_str(), report.worst(), report.tolerance, report.ok ? "ok" : "WRONG");
    return report.ok;
}

/// One call with the caller's own memory: 1 sequence of T tokens, H heads.
float first_output() {
    constexpr std::int64_t T = 100, H = 2, K = 16, V = 16;
    std::vector<float> q(T * H * K, 0.25F), k(T * H * K, 0.25F), v(T * H * V, 1.0F), beta(T * H, 0.5F), slope(H, 1.0F),
        o(T * H * V), s(H * K * V);
    const Attention attention = compile(sleepy_memory(), {.dtype = F32, .sizes = {{"K", K}, {"V", V}}});
    Call call;
    call.tensors = {{"q", dense(q.data(), F32, {T, H, K})},   {"k", dense(k.data(), F32, {T, H, K})},
                    {"v", dense(v.data(), F32, {T, H, V})},   {"beta", dense(beta.data(), F32, {T, H})},
                    {"slope", dense(slope.data(), F32, {H})}, {"o", dense(o.data(), F32, {T, H, V})}};
    call.final_states = {{"s", dense(s.data(), F32, {1, H, K, V})}};
    attention(call);
    return o[0];
}

}  // namespace

int main() {
    try {
        bool ok = true;
        for (const DType dtype : {F32, BF16, F16})
            for (const char* strategy : {"one-pass", "fused", "decoupled", "segmented"})
                ok = agrees_with_its_step(dtype, strategy) && ok;
        std::printf("The first output of ones written half awake: %g\n", static_cast<double>(first_output()));
        return ok ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
