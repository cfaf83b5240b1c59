// How dimensions are spelt decides nothing: independent axes are found from what the operations do.
#include "frontend/axes.h"

#include <gtest/gtest.h>

#include <regex>

#include "emit/cpu/emit_cpu.h"
#include "emit/cuda/emit_cuda.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "graph/slice.h"
#include "ir/text.h"
#include "target/hopper/warp_groups.h"
#include "target/simt/shared_memory.h"
#include "tests/support/entries.h"

namespace forge::frontend {
namespace {

using ir::Definition;

constexpr target::SharedMemory kHopper{220 * 1024, 132, 227 * 1024};

/// A variant with other words for K and V.
Definition spelt(const char* variant, const std::string& k, const std::string& v) {
    std::string text = ir::print(tests::program_named(variant).make().define());
    text = std::regex_replace(text, std::regex(R"(\bK\b)"), k);
    return with_dtype(ir::parse_definition(std::regex_replace(text, std::regex(R"(\bV\b)"), v)), BF16);
}

plan::Plan plan_for(const Definition& def, const std::map<std::string, std::int64_t>& sizes, bool warp_groups) {
    const Definition own = with_own_axes(def);
    const ir::Function program = graph::optimize(join(own));
    const tile::Sizes all = own_sizes(own, sizes);
    target::FitWishes wishes;
    wishes.expected_tasks = 32;
    wishes.expected_tokens = 8192;
    return plan::make_plan(own, program, all,
                           warp_groups ? target::fit_warp_groups(own, program, all, kHopper, wishes)
                                       : target::fit_shared_memory(own, program, all, kHopper, wishes));
}

/// Without the comments, in which names stand.
std::string code(const std::string& source) {
    return std::regex_replace(std::regex_replace(source, std::regex("//[^\n]*"), ""), std::regex("\n+"), "\n");
}

struct Sources {
    std::string warp_groups, portable, cpu;
    friend bool operator==(const Sources&, const Sources&) = default;
};

Sources sources_for(const Definition& def, const std::map<std::string, std::int64_t>& sizes) {
    const Definition own = with_own_axes(def);
    plan::Schedule on_cpu;
    on_cpu.tile_axis = graph::parallel_axes(graph::optimize(join(own))).at(0);
    on_cpu.tiles = 2, on_cpu.tile_size = 64;
    const plan::Plan cpu = plan::make_plan(own, graph::optimize(join(own)), own_sizes(own, sizes), on_cpu);
    return {code(emit::emit_cuda(plan_for(def, sizes, true))), code(emit::emit_cuda(plan_for(def, sizes, false))),
            code(emit::emit_cpu(cpu))};
}

class Spelling : public testing::TestWithParam<const char*> {};

TEST_P(Spelling, DecidesNothing) {
    const Sources wanted = sources_for(spelt(GetParam(), "K", "V"), {{"K", 128}, {"V", 128}});
    EXPECT_NE(wanted.warp_groups.find("issue_multiply"), std::string::npos);
    EXPECT_TRUE(sources_for(spelt(GetParam(), "D", "D"), {{"D", 128}}) == wanted) << "one symbol";
    EXPECT_TRUE(sources_for(spelt(GetParam(), "128", "128"), {}) == wanted) << "numbers";
    EXPECT_TRUE(sources_for(spelt(GetParam(), "D", "128"), {{"D", 128}}) == wanted) << "a symbol and a number";
}

INSTANTIATE_TEST_SUITE_P(Some, Spelling, testing::Values("scalar_gla", "gated_delta_net"));

TEST(OwnAxes, AreShownAsTheyWereSpelt) {
    for (const char* name : {"D", "128"}) {
        const Definition def = spelt("gated_delta_net", name, name);
        const plan::Plan plan = plan_for(def, {{"D", 128}}, true);
        for (const plan::TensorSlot& slot : plan.tensors) {
            const ir::InputDecl* in = def.input(slot.name);
            EXPECT_TRUE(!in || to_string(slot.type) == to_string(in->type)) << slot.name << " " << to_string(slot.type);
        }
        EXPECT_EQ(ir::print(plan.definition), ir::print(def));
        EXPECT_NE(to_string(plan.schedule).find(std::string(", ") + name + " in 2 tiles of 64"), std::string::npos)
            << to_string(plan.schedule);
    }
}

TEST(OwnAxes, KeepTheirNamesWhereTheseAlreadyDiffer) {
    for (const auto& entry : tests::all_programs()) {
        const Definition def = entry.make().define(), own = with_own_axes(def);
        for (std::size_t i = 0; i < def.states.size(); ++i)
            EXPECT_EQ(own.states[i].type, def.states[i].type) << entry.name;
    }
}

// S = S + Sᵀ + k vᵀ: its two axes are one.
TEST(OwnAxes, AreOneWhereAnOperationTiesThem) {
    LinearAttention a("tied");
    auto [T, H, D] = dims("T", "H", "D");
    a.input("k", F32, {T, H, D}).input("v", F32, {T, H, D});
    a.state("s", F32, {D, D});
    a.output("o", F32, {T, H, D});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul(transpose(k), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor s, Tensor chunk) { return s + transpose(s) + chunk; });
    a.merge({"k", "chunk_state"}, [](Tensor k, Tensor s) { return matmul(k, s); });
    const Definition own = with_own_axes(a.define());
    EXPECT_EQ(own.states[0].type.shape, (Shape{D, D}));
    EXPECT_TRUE(graph::parallel_axes(join(own)).empty());
}

}  // namespace
}  // namespace forge::frontend
