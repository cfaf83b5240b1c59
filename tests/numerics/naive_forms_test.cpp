/// Decays in the naive forms that people write, with every kind of gate: the compiler makes them safe, so that nobody
/// sees a NaN, and right to float32's tolerance.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "check/check.h"
#include "forge/forge.h"
#include "ir/definition.h"

namespace forge {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// How the scores under the triangle are written.
enum class Form : std::uint8_t { Products, Quotient, Anchored, Transposed, MaskOutside };

/// One gate per token, or one per token and channel; `column` lays it beside [C, K].
Tensor scores(Form form, const Tensor& q, const Tensor& k, const Tensor& G, bool vector) {
    const auto column = [&](const Tensor& x) { return vector ? x : unsqueeze(x, 1); };
    const Tensor queries = q * column(exp(G)), keys = k * column(exp(-G));
    switch (form) {
        case Form::Products:
            return tril(matmul(queries, transpose(keys)));
        case Form::Quotient:
            return matmul(queries, transpose(k / column(exp(G)))) * tril(matmul(q * 0.0, transpose(k)) + 1.0);
        case Form::Anchored: {
            const Tensor last = select(G, 0, -1), anchor = vector ? unsqueeze(last, 0) : last;
            return tril(matmul(q * exp(column(G) - anchor), transpose(k * exp(anchor - column(G)))) * 2.0) * 0.5;
        }
        case Form::Transposed:
            return tril(matmul(transpose(transpose(q) * transpose(column(exp(G)))), transpose(keys)));
        case Form::MaskOutside:
            return vector ? tril(matmul(queries, transpose(keys)))
                          : tril(matmul(q, transpose(k))) * exp(unsqueeze(G, 1) - unsqueeze(G, 0));
    }
    return {};
}

LinearAttention naive(Form form, bool vector) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("naive");
    a.input("q", F32, {T, H, K})
        .input("k", F32, {T, H, K})
        .input("v", F32, {T, H, V})
        .input("g", F32, vector ? Shape{T, H, K} : Shape{T, H});
    a.state("s", F32, {K, V});
    const auto whole = [vector](const Tensor& g) { return vector ? unsqueeze(exp(sum(g, 0)), 1) : exp(sum(g, 0)); };
    a.chunk({"k", "v", "g"}, [=](Tensor k, Tensor v, Tensor g) {
        const Tensor grown = exp(-cumsum(g, 0));
        return matmul(transpose(k * (vector ? grown : unsqueeze(grown, 1))), v) * whole(g);
    });
    a.decay({"prev_s", "chunk_state", "g"},
            [=](Tensor prev, Tensor chunk, Tensor g) { return prev * whole(g) + chunk; });
    a.merge({"q", "k", "v", "g", "chunk_state"}, [=](Tensor q, Tensor k, Tensor v, Tensor g, Tensor before) {
        const Tensor G = cumsum(g, 0), decay = exp(G);
        return matmul(scores(form, q, k, G, vector), v) + matmul(q * (vector ? decay : unsqueeze(decay, 1)), before);
    });
    a.step({"q", "k", "v", "g", "prev_s"}, [=](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s) -> Results {
        const Tensor next = s * (vector ? unsqueeze(exp(g), 1) : exp(g)) + outer(k, v);
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a;
}

class NaiveForms : public testing::TestWithParam<std::tuple<Form, bool>> {};

TEST_P(NaiveForms, AreFiniteAndRightForEveryGate) {
    const auto [form, vector] = GetParam();
    const ir::Definition def = naive(form, vector).define();
    const Attention attention = compile(def, {.dtype = F32, .sizes = {{"K", 64}, {"V", 64}}});
    for (const double gate : {0.0, -1e-3, -5.0, -100.0, -1000.0, -kInfinity, std::nan("")}) {
        check::Problem problem;
        problem.sizes = {{"K", 64}, {"V", 64}};
        problem.gate = gate;
        problem.T = 150;
        for (const auto& d : check::check(attention, def, problem).differences)
            EXPECT_TRUE(d.ok) << "gate " << gate << ", '" << d.name << "': relative RMS " << d.relative_rms
                              << ", first bad token " << d.first_bad_token;
    }
}

INSTANTIATE_TEST_SUITE_P(All, NaiveForms,
                         testing::Combine(testing::Values(Form::Products, Form::Quotient, Form::Anchored,
                                                          Form::Transposed, Form::MaskOutside),
                                          testing::Bool()));

}  // namespace
}  // namespace forge
