/// Emitted sources as files: every variant in one pass, the delta rule in every strategy, and a scan that is cut. A change of the emitted
/// code shows here, to be read; scripts/update-tests accepts it.
#include <algorithm>

#include "check/problem.h"
#include "emit/cpu/emit_cpu.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "tests/support/expected.h"
#include "variants/variants.h"

namespace forge::tests {
namespace {

struct Golden {
    std::string variant;
    plan::Strategy strategy;
    std::int64_t tiles = 1;  ///< of V

    [[nodiscard]] std::string name() const {
        std::string text = variant + "_" + plan::to_string(strategy);
        std::replace(text.begin(), text.end(), '-', '_');
        return tiles > 1 ? text + "_in_tiles" : text;
    }
};

std::vector<Golden> all_golden() {
    std::vector<Golden> list;
    for (const auto& entry : variants::all()) list.push_back({entry.name, plan::Strategy::OnePass});
    for (const plan::Strategy strategy : plan::all_strategies())
        if (strategy != plan::Strategy::OnePass) list.push_back({"delta_net", strategy});
    list.push_back({"gated_delta_net", plan::Strategy::OnePass, 2});
    return list;
}

std::string emitted(const Golden& golden) {
    const ir::Definition def = variants::find(golden.variant)->make().define();
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes sizes = check::sizes_for(def, {.sizes = {{"K", 64}, {"V", 64}}});
    plan::Schedule schedule;
    schedule.strategy = golden.strategy;
    schedule.chunk = 64;
    schedule.vector_width = 16;  // AVX-512; emitting needs no such machine
    schedule.tiles = golden.tiles;
    if (golden.tiles > 1) schedule.tile_axis = "V", schedule.tile_size = 64 / golden.tiles, schedule.stretch_bytes = 1 << 20;
    schedule.segments = golden.strategy == plan::Strategy::Segmented ? 4 : 1;
    return emit::emit_cpu(plan::make_plan(def, program, sizes, schedule));
}

class EmittedSource : public testing::TestWithParam<Golden> {};

TEST_P(EmittedSource, IsAsBefore) {
    const std::string source = emitted(GetParam());
    EXPECT_TRUE(same_as_file(root() / "tests/golden" / (GetParam().name() + ".cpp"), source));
    EXPECT_EQ(source, emitted(GetParam())) << "not the same from run to run";
}

INSTANTIATE_TEST_SUITE_P(Cpu, EmittedSource, testing::ValuesIn(all_golden()), [](const auto& golden) { return golden.param.name(); });

}  // namespace
}  // namespace forge::tests
