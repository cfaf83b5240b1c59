/// What prints parses, and prints the same again: every variant and novel program at every level.
#include "forge/error.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "tests/support/entries.h"
#include "tests/support/expected.h"

namespace forge::tests {
namespace {

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
    static_cast<void>(graph::optimize(joined, [](const graph::Pass& pass, const ir::Function& fn) { expect_fixpoint(fn, pass.name); }));
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

INSTANTIATE_TEST_SUITE_P(All, RoundTrip, testing::ValuesIn(all_programs()), name_of);

}  // namespace
}  // namespace forge::tests
