/// Which kernels a strategy makes, and what passes between them.
#include "plan/place.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "forge/error.h"
#include "forge/language.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "graph/slice.h"
#include "ir/text.h"
#include "program/module.h"
#include "tests/support/entries.h"

namespace forge::plan {
namespace {

/// "name: spills read -> spills, states and outputs made" of each kernel; spills by their shapes.
std::vector<std::string> kernels_of(const std::string& variant, Strategy strategy, const std::string& tile_axis = "",
                                    Again again = Again::Cheap) {
    const ir::Function program = graph::optimize(frontend::join(variants::find(variant)->make().define()));
    std::vector<std::string> lines;
    for (const KernelGraph& kernel : place(program, strategy, tile_axis, {again})) {
        std::vector<std::string> reads, makes;
        for (const ir::Op& op : kernel.fn.ops)
            if (op.code == ir::Opcode::Param && op.attrs.role == ir::Role::Spill)
                reads.push_back(to_string(op.type.shape));
        for (const ir::Result& r : kernel.fn.results) {
            const bool spill = r.role == ir::Role::Spill;
            makes.push_back(spill ? to_string(kernel.fn.op(r.value).type.shape)
                                  : fmt::format("{} {}", to_string(r.role), r.name));
        }
        lines.push_back(fmt::format("{}: {} -> {}", kernel.name.substr(variant.size() + 1), fmt::join(reads, " "),
                                    fmt::join(makes, " ")));
    }
    return lines;
}

using Lines = std::vector<std::string>;

TEST(Place, OnePassIsOneKernel) {
    for (const auto& entry : variants::all())
        EXPECT_EQ(kernels_of(entry.name, Strategy::OnePass).size(), 1U) << entry.name;
    EXPECT_EQ(kernels_of("delta_net", Strategy::OnePass), (Lines{"scan:  -> input o state s"}));
}

// What is not cut with the value axis is made once and shared by its parts.
TEST(Place, OnePassInTilesSharesWhatDoesNotDependOnThem) {
    EXPECT_EQ(kernels_of("scalar_gla", Strategy::OnePass, "V"),
              (Lines{"shared:  -> [C, C]", "scan: [C, C] -> input o state s"}));
}

// … what costs little too, and then matrices of the caller, if that is dearer than reading what another kernel stored.
TEST(Place, TilesMakeAgainWhatTheyAreToldTo) {
    EXPECT_EQ(kernels_of("scalar_gla", Strategy::OnePass, "V", Again::Inputs),
              (Lines{"shared:  -> [C, K] [] [C, C] [C]", "scan: [C, K] [] [C, C] [C] -> input o state s"}));
    EXPECT_EQ(
        kernels_of("scalar_gla", Strategy::OnePass, "V", Again::Vectors),
        (Lines{"shared:  -> [C, K] [] [C, K] [C, C] [C]", "scan: [C, K] [] [C, K] [C, C] [C] -> input o state s"}));
}

enum class Read { ByProducts, ByFactors, ByFunctions };

/// Linear attention whose values pass through a function; outputs are multiplied by it, too, or by a function of it.
LinearAttention felt_values(Read read) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("felt");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {K, V}).output("o", BF16, {T, H, V});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) {
        return matmul_out_fp32(transpose(k), cache_result(exp(v.to(F32)), "felt").to(k.dtype()));
    });
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return prev + chunk; });
    a.merge({"q", "k", "felt", "chunk_state"}, [read](Tensor q, Tensor k, Tensor felt, Tensor s) {
        const Tensor o = matmul_out_fp32(tril(matmul_out_fp32(q, transpose(k))).to(q.dtype()), felt.to(q.dtype())) +
                         matmul_out_fp32(q, s.to(q.dtype()));
        return read == Read::ByFactors ? o * felt : read == Read::ByFunctions ? o * exp(felt) : o;
    });
    return a;
}

// Dear functions of tiles' inputs are made once, ahead of the two groups of a scan that would, if products read them,
// and beside these at most what makes no more of their rounding: what passes between kernels has 16 bits. What tiles
// share may then run beside the scan.
TEST(Place, TilesMakeFunctionsForProductsAhead) {
    PlaceRules rules{Again::Inputs};
    rules.tiles_ahead = true;
    const auto names = [&](Read read) {
        std::vector<std::string> found;
        for (const KernelGraph& kernel :
             place(graph::optimize(frontend::join(felt_values(read).define())), Strategy::OnePass, "V", rules))
            found.push_back(kernel.name);
        return found;
    };
    EXPECT_EQ(names(Read::ByProducts), (Lines{"felt_tiles", "felt_shared", "felt_scan"}));
    EXPECT_EQ(names(Read::ByFactors), (Lines{"felt_tiles", "felt_shared", "felt_scan"}));
    EXPECT_EQ(names(Read::ByFunctions), (Lines{"felt_shared", "felt_scan"}));
}

TEST(Place, TilesOfEveryProgramShareAllWork) {
    for (const auto& entry : tests::all_programs()) {
        const ir::Function program = graph::optimize(frontend::join(entry.make().define()));
        for (const std::string& axis : graph::parallel_axes(program)) {
            const ir::Function scan = place(program, Strategy::OnePass, axis, {Again::Vectors}).back().fn;
            std::vector<ir::ValueId> own;  // what differs from tile to tile
            for (ir::ValueId v = 0; v < scan.size(); ++v) {
                const ir::Op& op = scan.op(v);
                const bool cut = std::any_of(op.type.shape.begin(), op.type.shape.end(),
                                             [&](const Dim& d) { return d.symbol == axis; });
                if (op.args.empty() && (cut || op.attrs.role == ir::Role::State)) own.push_back(v);
            }
            const auto differs = ir::depends_on(scan, own);
            for (ir::ValueId v = 0; v < scan.size(); ++v)
                EXPECT_TRUE(differs[static_cast<std::size_t>(v)] || scan.op(v).args.empty() ||
                            ir::is_view(scan.op(v).code))
                    << entry.name << ": " << ir::print_op(scan, v);
        }
    }
}

TEST(Place, FusedStoresStatesAndUpdates) {
    EXPECT_EQ(kernels_of("scalar_gla", Strategy::Fused),
              (Lines{"states:  -> state s [K, V]", "outputs: [K, V] -> input o"}));
    EXPECT_EQ(kernels_of("delta_net", Strategy::Fused),
              (Lines{"states:  -> state s [K, V] [C, V]", "outputs: [K, V] [C, V] -> input o"}));
}

// Scores are stored once: masked and scaled they are light work on what the kernel reads anyway.
TEST(Place, OutputsOfAllChunksMakeLightMatricesAgain) {
    const program::Module module(variants::find("gated_delta_net")->make().define(), BF16);
    const ir::Function& program = module.entry("backward").optimised;
    const std::vector<std::string> names = ir::value_names(program);
    const std::vector<KernelGraph> kernels = place(program, Strategy::Fused, "V", {Again::Inputs});
    const KernelGraph& outputs =
        *std::find_if(kernels.begin() + 1, kernels.end(), [](const KernelGraph& k) { return k.loop == Loop::Chunks; });
    std::set<std::string> read;
    for (const ir::Op& op : outputs.fn.ops)
        if (op.code == ir::Opcode::Param) read.insert(op.attrs.name);
    std::set<ir::ValueId> at_hand;
    for (ir::ValueId v = 0; v < program.size(); ++v) {
        const ir::Op& op = program.op(v);
        const bool is_read = read.contains(names[static_cast<std::size_t>(v)]), leaf = op.args.empty();
        const bool made = !leaf && (ir::is_view(op.code) || ir::is_elementwise(op.code)) && ir::cost(op.code).again &&
                          std::all_of(op.args.begin(), op.args.end(), [&](auto a) { return at_hand.contains(a); });
        if (is_read || made || op.code == ir::Opcode::DecayMask) at_hand.insert(v);  // masks are made of gates
        EXPECT_FALSE(is_read && made) << ir::print_op(program, v);
    }
    EXPECT_GT(at_hand.size(), read.size());
}

// A norm along the axis that outputs are cut along is of all parts, although every kernel could make it from inputs.
TEST(Place, OutputsOfPartsReadWhatNeedsTheWholeAxis) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("normed_queries");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}).state("s", F32, {K, V});
    a.step({"q", "k", "v", "prev_s"},
           [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& s) -> Results {
               Tensor next = s + outer(k, v);
               return {{"s", next}, {"o", matmul(l2norm(q), next)}};
           });
    PlaceRules rules{Again::Inputs};
    rules.outputs_axis = "K";
    const program::Module module(a.define(), BF16);
    const std::vector<KernelGraph> kernels = place(module.entry("backward").optimised, Strategy::Fused, "V", rules);
    const KernelGraph& outputs = kernels.back();
    ASSERT_EQ(outputs.own_axis, "K");
    for (const ir::Op& op : outputs.fn.ops) EXPECT_TRUE(graph::is_parallel(outputs.fn, op, "K")) << op.name;
}

// The scan is left with the two products of the recurrence: all else runs for all chunks at once.
TEST(Place, DecoupledTakesStateFreeWorkOutOfTheScan) {
    EXPECT_EQ(kernels_of("delta_net", Strategy::Decoupled),
              (Lines{"chunks:  -> [C, V] [C, K]", "states: [C, V] [C, K] -> state s [K, V] [C, V]",
                     "outputs: [K, V] [C, V] -> input o"}));
    EXPECT_EQ(kernels_of("linear_attention", Strategy::Decoupled),
              (Lines{"states:  -> state s [K, V]", "outputs: [K, V] -> input o"}));
}

TEST(Place, SegmentedJoinsSegmentsByTheirSummaries) {
    EXPECT_EQ(kernels_of("linear_attention", Strategy::Segmented),
              (Lines{"summaries:  -> state s", "carries: [K, V] -> [K, V] state s",
                     "scan:  -> input o state s"}));  // no transition: it is the identity
    EXPECT_EQ(kernels_of("delta_net", Strategy::Segmented).size(), 3U);
}

TEST(Place, KnowsStrategiesByName) {
    for (const Strategy strategy : all_strategies()) EXPECT_EQ(strategy_named(to_string(strategy)), strategy);
    try {
        strategy_named("two-pass");
        FAIL();
    } catch (const RuntimeError& error) {
        EXPECT_STREQ(error.what(), "strategy: expected one of one-pass, fused, decoupled, segmented, got 'two-pass'");
    }
}

}  // namespace
}  // namespace forge::plan
