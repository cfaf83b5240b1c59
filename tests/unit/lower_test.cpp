/// Lowering to tiles: sizes, layouts, and states that are updated where they lie.
#include "tile/lower.h"

#include <gtest/gtest.h>

#include "frontend/join.h"
#include "graph/pipeline.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "tests/support/entries.h"

namespace forge::tile {
namespace {

using ir::Layout;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

plan::Plan one_pass(const std::string& variant) {
    const ir::Definition def = variants::find(variant)->make().define();
    plan::Schedule schedule;
    schedule.chunk = 64;
    return plan::make_plan(def, graph::optimize(frontend::join(def)), {{"K", 64}, {"V", 64}}, schedule);
}

TEST(Lower, UpdatesTheStateWhereItLies) {
    for (const char* variant : {"linear_attention", "scalar_gla", "gla", "delta_net", "gated_delta_net"}) {
        const plan::Plan plan = one_pass(variant);
        const ir::Function& fn = plan.kernels.at(0).tiles.fn;
        const ValueId before = fn.param("s"), after = fn.result("s", Role::State);
        EXPECT_EQ(fn.op(before).layout, fn.op(after).layout) << variant;
        for (const ir::Op& op : fn.ops)
            if (op.code == Opcode::Copy) {
                EXPECT_NE(buffer_of(fn, op.args[0]), before) << variant << " copies its state";
            }
    }
}

TEST(Lower, GivesEveryValueAPlace) {
    for (const auto& entry : variants::all()) {
        if (entry.make().define().state("s") == nullptr) continue;
        const TileKernel kernel = one_pass(entry.name).kernels.at(0).tiles;
        for (ValueId v = 0; v < kernel.fn.size(); ++v) {
            const ir::Op& op = kernel.fn.op(v);
            ASSERT_TRUE(op.layout.has_value()) << ir::print_op(kernel.fn, v);
            for (const Dim& d : op.type.shape) EXPECT_TRUE(d.is_constant());
            if (op.layout->space != Layout::Space::Tile || ir::is_view(op.code)) continue;
            EXPECT_EQ(op.layout->offset % 16, 0) << ir::print_op(kernel.fn, v);
            EXPECT_LE(op.layout->offset + tile_floats(op.type, 16), kernel.scratch_floats)
                << ir::print_op(kernel.fn, v);
        }
    }
}

TEST(Lower, SharesBuffersBetweenValuesThatDoNotMeet) {
    std::int64_t apart = 0;
    const plan::Plan plan = one_pass("gated_delta_net");
    const TileKernel& kernel = plan.kernels.at(0).tiles;
    for (const ir::Op& op : kernel.fn.ops)
        if (op.layout->space == Layout::Space::Tile && !ir::is_view(op.code)) apart += tile_floats(op.type, 16);
    EXPECT_LT(kernel.scratch_floats, apart / 2);
}

TEST(Lower, PadsRowsToWholeVectors) {
    const ir::Type type{F32, {60, 100}};
    EXPECT_EQ(tile_strides(type, 16), (std::vector<std::int64_t>{112, 1}));
    EXPECT_EQ(tile_floats(type, 16), 60 * 112);
    EXPECT_EQ(tile_strides(type, 4), (std::vector<std::int64_t>{100, 1}));
    EXPECT_EQ(tile_strides({F32, {2, 60, 100}}, 8), (std::vector<std::int64_t>{60 * 104, 104, 1}));
    EXPECT_EQ(tile_floats({F32, {}}, 8), 8);
}

}  // namespace
}  // namespace forge::tile
