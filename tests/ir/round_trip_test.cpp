/// What prints parses, and prints the same again: every variant and novel program at every level.
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "schedule/choose.h"
#include "tests/novel/novel.h"
#include "tests/support/expected.h"

namespace forge::tests {
namespace {

using variants::Entry;

void expect_fixpoint(const ir::Function& fn, const std::string& level) {
    for (const bool locations : {false, true}) {
        const std::string text = ir::print(fn, {locations});
        EXPECT_TRUE(same_text(text, ir::print(ir::parse_function(text), {locations}))) << level;
    }
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
    expect_fixpoint(joined, "joined");
    static_cast<void>(graph::optimize(joined, [](const graph::Pass& pass, const ir::Function& fn) { expect_fixpoint(fn, pass.name); }));
}

TEST_P(RoundTrip, OfEveryKernel) {
    const ir::Function program = graph::optimize(frontend::join(def));
    tile::Sizes sizes = interp::small_sizes(def, 16);
    sizes.erase("C");
    for (const plan::Strategy strategy : plan::all_strategies()) {
        const auto schedule = schedule::choose_schedule(program, {sizes}, {2, 8}, {strategy, 16});
        const plan::Plan plan = plan::make_plan(def, program, sizes, schedule);
        for (const auto& kernel : plan.graphs) expect_fixpoint(kernel.fn, kernel.name);
        for (const auto& kernel : plan.kernels) expect_fixpoint(kernel.fn, kernel.name + " in tiles");
    }
}

std::string name_of(const testing::TestParamInfo<Entry>& entry) { return entry.param.name; }
INSTANTIATE_TEST_SUITE_P(Variants, RoundTrip, testing::ValuesIn(variants::all()), name_of);
INSTANTIATE_TEST_SUITE_P(Novel, RoundTrip, testing::ValuesIn(novel::all()), name_of);

}  // namespace
}  // namespace forge::tests
