/// What of outputs is made behind a scan that is cut along the values, and which programs have it.
#include "graph/epilogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "compile/driver.h"
#include "forge/language.h"
#include "program/entry_point.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

using Names = std::vector<std::string>;

plan::Plan plan_of(const ir::Definition& definition, DType dtype, std::int64_t heads = 32) {
    CompileOptions options{.device = "cuda", .dtype = dtype, .sizes = {{"K", 128}, {"V", 128}}};
    options.on = "h200", options.tuned = false, options.expected_heads = heads, options.expected_tokens = 8192;
    return compiler::emitted(program::Module(definition, dtype), options)->plan;
}

/// Linear attention whose outputs are what `readout` makes of what is read.
ir::Definition attention(const std::function<Tensor(Tensor read)>& readout) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("attention");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {K, V});
    a.step({"q", "k", "v", "prev_s"},
           [&](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& s) -> Results {
               const Tensor next = s + outer(k, v);
               return {{"s", next}, {"o", readout(matmul(q, next))}};
           });
    return a.define();
}

Names axes(const std::function<Tensor(Tensor read)>& readout) {
    return graph::axes_but_for_epilogue(program::Module(attention(readout), BF16).entry("forward").optimised);
}

TEST(Epilogue, IsWhatNeedsAllValuesOfAnOutput) {
    const auto of = [](const Tensor& read) { return read / sqrt(mean(read * read, 0) + 1e-6); };
    EXPECT_EQ(axes(of), Names{"V"});
    EXPECT_EQ(axes([](const Tensor& read) { return l2norm(read); }), Names{"V"});
    EXPECT_EQ(axes([](const Tensor& read) { return read / amax(abs(read), 0); }), Names{"V"});
    // Nothing does.
    EXPECT_EQ(axes([](const Tensor& read) { return tanh(read); }), Names());
}

// What a scan leaves has 16 bits.
TEST(Epilogue, HasNeitherDifferencesNorExponentials) {
    EXPECT_EQ(axes([](const Tensor& read) { return read - mean(read, 0); }), Names());
    EXPECT_EQ(axes([](const Tensor& read) { return softmax(read, 0); }), Names());
    EXPECT_EQ(axes([](const Tensor& read) { return read / (1.0 + abs(sum(read, 0))); }), Names());
}

// All ways through a chain of which each link reads the one before twice are 2^40.
TEST(Epilogue, IsFoundBehindLongChains) {
    EXPECT_EQ(axes([](const Tensor& read) {
                  Tensor x = read * read;
                  for (int link = 0; link < 40; ++link) x = x + x;
                  return read / sqrt(mean(x, 0) + 1.0);
              }),
              Names{"V"});
}

TEST(Epilogue, HasAKernelBehindTheScan) {
    const plan::Plan plan = plan_of(program_named("gated_norm").make().define(), BF16);
    EXPECT_TRUE(plan.schedule.epilogue);
    EXPECT_GT(plan.schedule.output_groups, 0) << "the scan has roles";
    ASSERT_GE(plan.kernels.size(), 2U);
    EXPECT_EQ(plan.kernels.back().graph.name, "gated_norm_epilogue");
    EXPECT_EQ(&plan.scan(), &plan.kernels.back() - 1);
    EXPECT_EQ(plan.scan().parts(), 2);
    EXPECT_EQ(plan.kernels.back().parts(), 1);
}

TEST(Epilogue, IsLeftToOtherKernelsWhereItsRangeIsTooNarrow) {
    EXPECT_FALSE(plan_of(program_named("gated_norm").make().define(), F16).schedule.epilogue);
}

}  // namespace
}  // namespace forge::tests
