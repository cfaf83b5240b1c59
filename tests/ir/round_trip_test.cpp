/// What prints parses, and prints the same again: every variant and novel program at every level.
#include "check/problem.h"
#include "forge/error.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "graph/pipeline.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "target/hopper/warp_groups.h"
#include "tests/support/entries.h"
#include "tests/support/expected.h"

namespace forge::tests {
namespace {

using Space = ir::Layout::Space;

/// With locations only where every op has one: parsing gives the others their place in the text.
void expect_fixpoint(const ir::Function& fn, const std::string& level, bool locations = false) {
    const std::string text = ir::print(fn, {locations});
    EXPECT_TRUE(same_text(text, ir::print(ir::parse_function(text), {locations}))) << level;
}

class RoundTrip : public testing::TestWithParam<Entry> {
  protected:
    ir::Definition def = GetParam().make().define();
};

TEST_P(RoundTrip, OfTheDefinition) {
    for (const bool locations : {false, true}) {
        const std::string text = ir::print(def, {locations});
        EXPECT_TRUE(ir::is_definition(text));
        EXPECT_TRUE(same_text(text, ir::print(ir::parse_definition(text), {locations})));
    }
}

TEST_P(RoundTrip, OfTheProgramAfterEachPass) {
    const ir::Function joined = frontend::join(def);
    for (const bool locations : {false, true}) expect_fixpoint(joined, "joined", locations);
    const ir::PassRunner passes([](const ir::Passed& p) { expect_fixpoint(p.fn, ir::info(p.pass).name); });
    static_cast<void>(graph::optimize(joined, passes));
}

TEST_P(RoundTrip, OfEveryKernel) {
    const ir::Function program = graph::optimize(frontend::join(def));
    tile::Sizes sizes = interp::small_sizes(def, 16);
    sizes.erase("C");
    for (const plan::Strategy strategy : plan::all_strategies()) {
        plan::Schedule schedule;
        schedule.strategy = strategy;
        schedule.chunk = 16;
        schedule.segments = strategy == plan::Strategy::Segmented ? 2 : 1;
        try {
            for (const plan::Kernel& kernel : plan::make_plan(def, program, sizes, schedule).kernels) {
                expect_fixpoint(kernel.graph.fn, kernel.graph.name);
                expect_fixpoint(kernel.tiles.fn, kernel.graph.name + " in tiles");
            }
        } catch (const CompileError&) {
            EXPECT_EQ(strategy, plan::Strategy::Segmented);  // its decay is not affine
        }
    }
}

TEST_P(RoundTrip, OfEveryKernelForWarpGroups) {
    const ir::Definition half = frontend::with_dtype(def, BF16);
    const ir::Function program = graph::optimize(frontend::join(half));
    const tile::Sizes sizes = check::sizes_for(half, {.sizes = {{"K", 128}, {"V", 128}}});
    for (const plan::Strategy strategy : plan::all_strategies()) {
        target::FitWishes wishes;
        wishes.strategy = strategy;
        try {
            const plan::Plan plan = plan::make_plan(
                half, program, sizes, target::fit_warp_groups(half, program, sizes, {220 * 1024, 132}, wishes));
            for (const plan::Kernel& kernel : plan.kernels)
                expect_fixpoint(kernel.tiles.fn, kernel.graph.name + " in fragments");
        } catch (const plan::NotForWarpGroups&) {  // tests/cuda says which
        } catch (const CompileError&) {
            EXPECT_EQ(strategy, plan::Strategy::Segmented);  // its decay is not affine
        }
    }
}

// Each form, with and without what it may carry, as a value and as text.
TEST(RoundTripLayouts, OfEverySpace) {
    const std::vector<std::pair<ir::Layout, std::string>> layouts = {
        {{.space = Space::Reg, .strides = {}}, " @ reg"},
        {{.space = Space::Tile, .offset = 4096, .strides = {68, 1}}, " @ tile(4096, [68, 1])"},
        {{.space = Space::Tile, .offset = 64, .strides = {1, 0}, .staged = true}, " @ tile(64, [1, 0], staged)"},
        {{.space = Space::Spill, .offset = 8, .strides = {64, 1}}, " @ spill(8, [64, 1])"},
        {{.space = Space::Operand, .offset = 2048, .strides = {}}, " @ operand(2048, parts=1)"},
        {{.space = Space::Operand, .offset = 0, .strides = {}, .parts = 2, .staged = true},
         " @ operand(0, parts=2, staged)"},
        {{.space = Space::Fragment, .strides = {}}, " @ fragment"},
        {{.space = Space::Fragment, .strides = {}, .parts = 2}, " @ fragment(parts=2)"},
        {{.space = Space::Transposed, .strides = {}}, " @ transposed"},
    };
    for (const auto& [layout, text] : layouts) {
        ir::Function fn;
        fn.name = "f";
        ir::Attrs attrs;
        attrs.name = "x";
        fn.add({ir::Opcode::Param, {F32, {Dim(64), Dim(64)}}, {}, attrs, "x", {}, layout});
        fn.results.push_back({"x", ir::Role::Input, 0});
        const std::string printed = ir::print(fn);
        EXPECT_NE(printed.find(text + "\n"), std::string::npos) << printed;
        EXPECT_EQ(ir::parse_function(printed).op(0).layout, layout) << printed;
    }
}

INSTANTIATE_TEST_SUITE_P(All, RoundTrip, testing::ValuesIn(all_programs()), name_of);

}  // namespace
}  // namespace forge::tests
