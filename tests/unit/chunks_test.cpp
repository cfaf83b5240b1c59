/// Definitions whose results depend on the size of the chunks: found, and fixed.
#include "check/chunks.h"

#include <gtest/gtest.h>

#include "check/check.h"
#include "check/suite.h"
#include "ir/text.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

/// A window of 8 tokens that ends at the chunk's start: S = S + k vᵀ, o = what the window holds.
LinearAttention banded(std::int64_t chunk) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("banded");
    if (chunk != 0) a.fixed_chunk(chunk);
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {K, V});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(transpose(k), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor own) { return prev + own; });
    a.merge({"q", "k", "v"}, [](Tensor q, Tensor k, Tensor v) {
        return matmul(triu(tril(matmul_out_fp32(q, transpose(k))), -8), v.to(F32));
    });
    return a;
}

TEST(Chunks, ThatChangeAResultAreFound) {
    const auto found = check::chunk_dependence(banded(0).define());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->name, "o");
    EXPECT_FALSE(found->is_state);
    EXPECT_EQ(found->token, 16) << "the first token of the second chunk";
    EXPECT_EQ(found->chunk, 16);
    EXPECT_NE(to_string(*found).find("chunk=64"), std::string::npos) << to_string(*found);
    EXPECT_FALSE(check::chunk_dependence(banded(64).define()));
}

TEST(Chunks, MakeNoDifferenceToTheZoo) {
    for (const Entry& entry : all_programs()) {
        ir::Definition def = entry.make().define();
        const bool depends = def.fixed_chunk != 0;
        def.step.reset(), def.fixed_chunk = 0;
        EXPECT_EQ(check::chunk_dependence(def).has_value(), depends) << def.name;
    }
}

TEST(Chunks, AreFixedByTheDefinition) {
    const ir::Definition def = banded(32).define();
    EXPECT_EQ(def.fixed_chunk, 32);
    const std::string text = ir::print(def);
    EXPECT_NE(text.find("linear_attention @banded chunk=32"), std::string::npos);
    EXPECT_EQ(ir::print(ir::parse_definition(text)), text);
    const std::map<std::string, std::int64_t> sizes = {{"K", 16}, {"V", 16}};
    for (const char* strategy : {"auto", "one-pass", "fused", "decoupled", "segmented"}) {
        const Attention attention = compile(def, {.dtype = F32, .sizes = sizes, .strategy = strategy});
        EXPECT_EQ(attention.chunk(), 32) << strategy;
        for (const check::Case& c : check::awkward_cases(def, F32, sizes, 1))
            EXPECT_TRUE(check::check(attention, def, c.problem).ok) << strategy << ", " << c.name;
    }
    EXPECT_EQ(compile(def, {.dtype = F32, .sizes = sizes, .chunk = 32}).chunk(), 32);
}

TEST(Chunks, ThatContradictTheDefinitionAreRefused) {
    try {
        compile(banded(32).define(), {.dtype = F32, .sizes = {{"K", 16}, {"V", 16}}, .chunk = 64});
        FAIL() << "accepted";
    } catch (const RuntimeError& error) {
        EXPECT_STREQ(error.what(),
                     "banded: chunk: expected 32, which the definition fixes, got 64; leave the option out");
    }
    EXPECT_THROW(banded(48).define(), CompileError);
    EXPECT_THROW(ir::parse_definition(ir::print(banded(32).define()).replace(24, 8, "chunk=48")), CompileError);
}

}  // namespace
}  // namespace forge::tests
