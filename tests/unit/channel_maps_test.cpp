/// Programs of one token, and the maps of their states: what a factor or shift and an addend say of a state is what the
/// program makes of it.
#include "graph/channel_maps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "frontend/join.h"
#include "graph/pipeline.h"
#include "graph/token_program.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "support/reasons.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

ir::Function token(const std::string& body) {
    return ir::parse_function(
        "func @f {\n"
        "  %h: f32[D] = param() {name=\"h\", role=state}\n"
        "  %x: f32[D] = param() {name=\"x\", role=input}\n"
        "  %g: f32[D] = param() {name=\"g\", role=input}\n"
        "  %zero: f32[] = constant() {value=0}\n" +
        body + "  return state \"h\" = %next\n}\n");
}

/// A maximum of the shifted state where x >= 0, else the state forgotten.
const char* const kMasked =
    "  %shifted: f32[D] = add(%g, %h)\n"
    "  %larger: f32[D] = maximum(%shifted, %x)\n"
    "  %there: bool[D] = ge(%x, %zero)\n"
    "  %next: f32[D] = where(%there, %larger, %g)\n";

TEST(ChannelMaps, AreOfRunningMaxima) {
    EXPECT_TRUE(graph::is_maximum(token(kMasked), "h"));
    EXPECT_TRUE(graph::is_maximum(token("  %next: f32[D] = maximum(%x, %h)\n"), "h"));
    EXPECT_FALSE(graph::is_maximum(token("  %next: f32[D] = add(%x, %h)\n"), "h")) << "no maximum";
    EXPECT_FALSE(graph::is_maximum(token("  %m: f32[D] = maximum(%x, %g)\n  %next: f32[D] = add(%m, %h)\n"), "h"))
        << "one of what is added";
    EXPECT_FALSE(graph::is_maximum(token("  %s: f32[D] = mul(%h, %g)\n  %next: f32[D] = maximum(%x, %s)\n"), "h"))
        << "factors may be negative";
    EXPECT_FALSE(graph::is_maximum(token("  %s: f32[D] = sub(%g, %h)\n  %next: f32[D] = maximum(%x, %s)\n"), "h"))
        << "the state turned over";
    EXPECT_FALSE(graph::is_maximum(token("  %s: f32[D] = add(%h, %h)\n  %next: f32[D] = maximum(%x, %s)\n"), "h"))
        << "the state twice";
}

TEST(ChannelMaps, SayWhatBecomesOfAState) {
    const ir::Function maps = graph::channel_maps(token(kMasked));
    const interp::Sizes sizes = {{"D", 3}};
    const auto run = [&](const ir::Function& fn, const std::vector<double>& h, const std::vector<double>& shift) {
        return interp::evaluate(fn,
                                {{interp::binding_name("h", ir::Role::State), {{3}, h}},
                                 {interp::binding_name("h", ir::Role::Ones), {{3}, shift}},
                                 {interp::binding_name("x", ir::Role::Input), {{3}, {2, 1, -1}}},
                                 {interp::binding_name("g", ir::Role::Input), {{3}, {-1, -2, -3}}}},
                                sizes);
    };
    const auto addend = run(maps, {kNone, kNone, kNone}, {0, 0, 0});
    ASSERT_EQ(addend.size(), 2U);
    const std::vector<double> h = {7, 0.5, 9}, direct = run(token(kMasked), h, {}).at(0).data;
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(std::max(h[i] + addend[1].data[i], addend[0].data[i]), direct[i]) << i;
    EXPECT_EQ(addend[1].data, (std::vector<double>{-1, -2, kNone}));
}

TEST(ChannelMaps, HaveNoShiftWhereNothingIsAdded) {
    EXPECT_EQ(graph::channel_maps(token("  %next: f32[D] = maximum(%x, %h)\n")).results.size(), 1U);
}

TEST(TokenPrograms, AreThoseOfChunksOfOneToken) {
    int found = 0;
    for (const Entry& entry : all_programs()) {
        ir::Definition def = entry.make().define();
        if (def.fixed_chunk != 0) continue;
        const ir::Function program = graph::optimize(frontend::join(def));
        def.step.reset();
        EXPECT_TRUE(interp::goes_by_token(def, program)) << def.name;
        try {
            const ir::Function token = graph::token_program(program);
            const int most = graph::rows_of(token) ? 2 : 1;
            for (const ir::Op& op : token.ops) EXPECT_LE(op.type.rank(), most) << def.name;
            ++found;
        } catch (const Refused&) {  // tests/cuda/reasons_test.cpp has the reasons
        }
    }
    EXPECT_GE(found, 3);
}

/// Each chunk halves what was before.
TEST(TokenPrograms, AreOthersIfChunksMatter) {
    auto [T, H, D] = dims("T", "H", "D");
    LinearAttention a("halved");
    a.input("x", BF16, {T, H, D}).state("h", F32, {D});
    a.chunk({"x"}, [](Tensor x) { return sum(x.to(F32), 0); });
    a.decay({"prev_h", "chunk_state"}, [](Tensor h, Tensor chunk) { return h * 0.5 + chunk; });
    a.merge({"x", "prev_h"}, [](Tensor x, Tensor h) { return x + unsqueeze(h, 0); });
    const ir::Definition def = a.define();
    EXPECT_FALSE(interp::goes_by_token(def, graph::optimize(frontend::join(def))));
}

}  // namespace
}  // namespace forge::tests
