// Kernels whose tiles are too many for shared memory: orders, and loads that come again; tiles packed by their lives.
#include "tile/compact.h"

#include <gtest/gtest.h>

#include <random>

#include "plan/plan.h"
#include "program/module.h"
#include "target/simt/shared_memory.h"
#include "tests/support/entries.h"
#include "tile/far.h"

namespace forge::tile {
namespace {

constexpr target::SharedMemory kHopper{220 * 1024, 132, 227 * 1024};

plan::Plan plan_of(const char* program, const char* entry, std::int64_t chunk) {
    const program::Module module(tests::program_named(program).make().define(), BF16);
    const program::EntryPoint& e = module.entry(entry);
    const Sizes sizes{{"K", 128}, {"V", 128}};
    target::FitWishes wishes;
    wishes.strategy = plan::Strategy::Fused, wishes.chunk = chunk, wishes.expected_tasks = 32;
    return plan::make_plan(e.tensors, e.optimised, sizes,
                           target::fit_shared_memory(e.tensors, e.optimised, sizes, kHopper, wishes));
}

const TileKernel& kernel_named(const plan::Plan& plan, const std::string& ending) {
    const auto it = std::find_if(plan.kernels.begin(), plan.kernels.end(),
                                 [&](const plan::Kernel& k) { return k.graph.name.ends_with(ending); });
    EXPECT_NE(it, plan.kernels.end()) << ending;
    return it->tiles;
}

std::map<std::string, int> loads_of(const ir::Function& fn) {
    std::map<std::string, int> loads;
    for (const ir::Op& op : fn.ops)
        if (op.code == ir::Opcode::Param) ++loads[op.attrs.name];
    return loads;
}

/// Of the tiles of this kernel, in the order of its graph, 400 KB lay in global memory.
TEST(Compact, GradientsOfChunksFit) {
    const plan::Plan plan = plan_of("gated_delta_net", "backward", 64);
    const TileKernel& outputs = kernel_named(plan, "_outputs");
    EXPECT_EQ(outputs.far_floats, 0);
    EXPECT_LE(outputs.scratch_floats * 4, kHopper.bytes);
    EXPECT_GT(loads_of(outputs.fn).at("k"), 1);
    EXPECT_EQ(loads_of(outputs.fn).at("g"), 1) << "vectors are kept";
}

TEST(Compact, WhatFitsIsLoadedOnceAndFirst) {
    const plan::Plan plan = plan_of("gated_delta_net", "forward", 64);
    for (const plan::Kernel& kernel : plan.kernels) {
        bool loading = true;
        for (const ir::Op& op : kernel.tiles.fn.ops) {
            EXPECT_TRUE(loading || op.code != ir::Opcode::Param) << kernel.graph.name;
            loading = op.code == ir::Opcode::Param;
        }
        for (const auto& [name, count] : loads_of(kernel.tiles.fn)) EXPECT_EQ(count, 1) << name;
    }
}

/// Values are made before they are read, and results are what they were.
TEST(Compact, ResultsKeepTheirNamesAndTypes) {
    const plan::Plan roomy = plan_of("kda", "backward", 16), tight = plan_of("kda", "backward", 64);
    ASSERT_EQ(roomy.kernels.size(), tight.kernels.size());
    for (std::size_t n = 0; n < tight.kernels.size(); ++n) {
        const ir::Function &a = roomy.kernels[n].tiles.fn, &b = tight.kernels[n].tiles.fn;
        ASSERT_EQ(a.results.size(), b.results.size());
        for (std::size_t r = 0; r < a.results.size(); ++r) EXPECT_EQ(a.results[r].name, b.results[r].name);
        for (ir::ValueId v = 0; v < b.size(); ++v)
            for (const ir::ValueId arg : b.op(v).args) EXPECT_LT(arg, v);
    }
}

/// A random order of buffers, each of which begins, and mostly ends.
std::vector<BufferUse> random_uses(std::mt19937& rng) {
    std::vector<BufferUse> uses, open;
    for (int n = 0; n < 40; ++n) {
        const std::int64_t floats = rng() % 2 ? 64 : 1024 * (1 + rng() % 8);
        uses.push_back({{n, false}, floats, true});
        open.push_back(uses.back());
        while (open.size() > 1 + rng() % 6) {
            const auto ends = open.begin() + static_cast<std::ptrdiff_t>(rng() % open.size());
            uses.push_back({ends->name, ends->floats, false});
            open.erase(ends);
        }
    }
    return uses;
}

TEST(Compact, PackedBuffersDoNotOverlap) {
    std::mt19937 rng(1);
    for (int turn = 0; turn < 50; ++turn) {
        const std::vector<BufferUse> uses = random_uses(rng);
        const std::set<BufferName> far = {{3, false}, {17, false}};
        const Arenas arenas = placed(uses, far, true);
        std::map<BufferName, std::int64_t> live;
        std::int64_t near = 0, most = 0;
        for (const BufferUse& use : uses) {
            const bool is_far = far.contains(use.name);
            if (!is_far) near += use.begins ? use.floats : -use.floats;
            most = std::max(most, near);
            if (!use.begins) {
                live.erase(use.name);
                continue;
            }
            const std::int64_t from = arenas.offsets.at(use.name), to = from + use.floats;
            EXPECT_EQ(from >= arenas.shared_floats, is_far);
            EXPECT_LE(to, is_far ? arenas.shared_floats + arenas.far_floats : arenas.shared_floats);
            for (const auto& [name, floats] : live) {
                const std::int64_t other = arenas.offsets.at(name);
                EXPECT_TRUE(to <= other || other + floats <= from);
            }
            live[use.name] = use.floats;
        }
        EXPECT_EQ(arenas.shared_floats, shared_floats_of(uses)(far));
        EXPECT_GE(arenas.shared_floats, most);
        EXPECT_LE(arenas.shared_floats, most * 5 / 4) << "turn " << turn;
    }
}

}  // namespace
}  // namespace forge::tile
