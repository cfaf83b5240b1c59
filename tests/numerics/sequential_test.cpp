/// Recurrences that are not affine in their states run token by token: forwards, in decode and backwards on the CPU,
/// and as kernels for a GPU that is not there.
#include "graph/derive.h"
#include "ir/text.h"
#include "tests/numerics/numerics.h"

namespace forge::tests {
namespace {

/// S = tanh(e^g S) + k vᵀ, where k is what the token before was, too: a matrix that no chunk form has.
LinearAttention squashed_memory() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("squashed_memory");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.input("g", F32, {T, H}, kLogDecays);
    a.state("s", F32, {K, V});
    a.step({"q", "k", "v", "g", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s) -> Results {
        Tensor next = tanh(s * exp(g)) + outer(k + 0.5 * prev_token(k), v);
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a.sequential();
}

/// An Elman network: h = tanh(A h + x), whose matrix is the same for all tokens of a head.
LinearAttention elman() {
    auto [T, H, D] = dims("T", "H", "V");
    LinearAttention a("elman");
    a.input("x", BF16, {T, H, D}).head_input("a", F32, {H, D, D}, Range{-0.2, 0.2});
    a.state("h", F32, {D});
    a.step({"x", "a", "prev_h"}, [](Tensor x, Tensor weights, Tensor h) -> Results {
        Tensor next = tanh(matmul(weights, h) + x);
        return {{"h", next}, {"o", next}};
    });
    return a.sequential();
}

class Sequential : public testing::TestWithParam<Entry> {
  protected:
    ir::Definition def_ = GetParam().make().define();
    std::vector<check::Case> cases_ = few_cases(F32, {{"K", 20}, {"V", 12}});
};

TEST_P(Sequential, RunsTokenByToken) {
    EXPECT_TRUE(ir::is_sequential(def_));
    EXPECT_EQ(ir::print(ir::parse_definition(ir::print(def_))), ir::print(def_));
    EXPECT_THROW(graph::derive(def_), CompileError);
    std::vector<Prepared> prepared = prepare(def_, cases_);
    for (const auto& attention : compile_all(def_, cases_[0].problem, {{}, {.entry = "decode"}})) {
        ASSERT_TRUE(attention);
        EXPECT_EQ(attention->chunk(), 1);
        for (Prepared& p : prepared) expect_agreement(*attention, p);
    }
}

TEST_P(Sequential, HasTheGradientsOfItsRecurrence) {
    const auto attention = compile_all(def_, cases_[0].problem, {{.entry = "backward"}})[0];
    ASSERT_TRUE(attention);
    for (const check::Case& c : cases_) {
        if (c.problem.cut != 0) continue;  // gradients come from the end of a call
        const check::Report report = check::check(*attention, def_, c.problem, "backward");
        for (const check::Difference& d : report.differences)
            EXPECT_TRUE(d.ok) << c.name << ": " << d.name << " is off by " << d.relative_rms;
    }
}

TEST_P(Sequential, HasKernelsForAGpu) {
    for (const char* entry : {"forward", "decode", "backward"}) {
        CompileOptions options;
        options.sizes = {{"K", 64}, {"V", 64}}, options.entry = entry;
        options.device = "cuda", options.on = "h200", options.load = false;
        std::erase_if(options.sizes, [&](const auto& size) { return def_.name == "elman" && size.first == "K"; });
        const Attention attention = compile(def_, options);
        EXPECT_EQ(attention.chunk(), 1);
        EXPECT_EQ(attention.engine(), "portable");
        EXPECT_FALSE(attention.sources().empty());
    }
}

INSTANTIATE_TEST_SUITE_P(All, Sequential,
                         testing::Values(Entry{"squashed_memory", "", "", squashed_memory},
                                         Entry{"elman", "", "", elman}),
                         [](const auto& entry) { return entry.param.name; });

TEST(SequentialErrors, AreSaid) {
    const auto message = [](const LinearAttention& wrong, const CompileOptions& options) -> std::string {
        try {
            compile(wrong, options);
        } catch (const std::exception& error) {
            return error.what();
        }
        return "";
    };
    LinearAttention both = variants::scalar_gla();
    EXPECT_NE(message(both.sequential(), {}).find("'scalar_gla' is sequential, and has other phases than step"),
              std::string::npos);
    CompileOptions fused, chunks;
    fused.sizes = chunks.sizes = {{"K", 8}, {"V", 8}};
    fused.strategy = "fused", chunks.chunk = 64;
    EXPECT_EQ(
        message(squashed_memory(), fused),
        "squashed_memory: strategy: expected one-pass, which what runs token by token has, got 'fused'; leave the "
        "option out");
    EXPECT_EQ(message(squashed_memory(), chunks),
              "squashed_memory: chunk: expected 1, which the definition fixes, got 64; leave the option out");
}

}  // namespace
}  // namespace forge::tests
