/// Operations along the inner axes of values of rank 3: cumsum, cumprod, sums and repetitions, in every strategy.
#include "forge/language.h"
#include "frontend/join.h"
#include "tests/numerics/numerics.h"

namespace forge::tests {
namespace {

/// `at`: the axis of K in x, [K, V] or [C, K, V].
Tensor mixed(const Tensor& x, int at) {
    const Tensor sums = cumsum(x, at + 1) + cumprod(x, at);
    const Tensor products = cumprod(x, at + 1) + cumsum(x, at);
    const Tensor twice = sum(repeat_interleave(x, 2, at), at);
    const Tensor both = sum(repeat_interleave(x, 2, at + 1), at + 1);
    return sums + products + unsqueeze(twice, at) + unsqueeze(both, at + 1);
}

/// S = S + mixed(x), o = q S.
LinearAttention inner_axes() {
    const auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("inner_axes");
    a.input("q", F32, {T, H, K}).input("x", F32, {T, H, K, V}, Range{-1, 1});
    a.state("s", F32, {K, V});
    a.chunk({"x"}, [](Tensor x) { return sum(cache_result(mixed(x, 1), "mixed"), 0); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor s, Tensor c) { return s + c; });
    a.merge({"q", "mixed", "chunk_state"}, [](Tensor q, Tensor x, Tensor before) {
        return sum(unsqueeze(q, 2) * cumsum(x, 0), 1) + matmul(q, before);
    });
    a.step({"q", "x", "prev_s"}, [](Tensor q, Tensor x, Tensor s) -> Results {
        Tensor next = s + mixed(x, 0);
        return {{"s", next}, {"o", sum(unsqueeze(q, 1) * next, 0)}};
    });
    return a;
}

TEST(InnerAxes, AgreeWithTheRecurrence) {
    const ir::Definition def = inner_axes().define();
    const std::map<std::string, std::int64_t> sizes = {{"K", 5}, {"V", 12}};
    std::vector<Prepared> cases = prepare(def, few_cases(F32, sizes));
    for (const std::string& strategy : all_strategies()) {
        const auto attention = compile_as(def, {.dtype = F32, .sizes = sizes, .strategy = strategy, .chunk = 16});
        ASSERT_TRUE(attention) << strategy;
        for (Prepared& prepared : cases) expect_agreement(*attention, prepared);
    }
}

}  // namespace
}  // namespace forge::tests
