/// Kernels for warp groups, as far as a machine without a GPU can check them: which programs have them, that what is
/// emitted is the same from run to run, and that the compiler keeps registers and leaves products under way.
#include "target/hopper/warp_groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "build/cache.h"
#include "build/cuda_binary.h"
#include "build/nvrtc.h"
#include "check/problem.h"
#include "emit/cuda/emit_cuda.h"
#include "forge/error.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "graph/pipeline.h"
#include "ir/text.h"
#include "support/environment.h"
#include "tests/support/entries.h"
#include "tests/support/expected.h"
#include "tile/vector_scan.h"

namespace forge::tests {
namespace {

constexpr target::SharedMemory kHopper{220 * 1024, 132, 227 * 1024};
constexpr std::int64_t kFewTasks = 32, kManyTasks = 512;  ///< several warp groups per task, or blocks of tasks
constexpr std::int64_t kFewTokens = 1024;                 ///< work ahead of which is over as soon as its scan

struct Case {
    std::int64_t k = 128, v = 128;
    DType dtype = BF16;
    std::optional<plan::Strategy> strategy = {};
    std::int64_t chunk = 0;  ///< 0: chosen
    std::int64_t tasks = kFewTasks;
    std::int64_t tokens = 32768;
};

Case with_strategy(plan::Strategy strategy, std::int64_t tasks = kFewTasks) {
    return {.strategy = strategy, .tasks = tasks};
}

/// NotForWarpGroups or CompileError if there is none.
plan::Plan plan_for(const Entry& entry, const Case& c) {
    const ir::Definition def = frontend::with_dtype(entry.make().define(), c.dtype);
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes sizes = check::sizes_for(def, {.sizes = {{"K", c.k}, {"V", c.v}}});
    target::FitWishes wishes;
    wishes.strategy = c.strategy;
    wishes.chunk = c.chunk;
    wishes.expected_tasks = c.tasks;
    wishes.expected_tokens = c.tokens;
    return plan::make_plan(def, program, sizes, target::fit_warp_groups(def, program, sizes, kHopper, wishes));
}

/// Why there is no plan; empty if there is one.
std::string refusal(const std::string& name, const Case& c) {
    try {
        static_cast<void>(plan_for(program_named(name), c));
    } catch (const plan::NotForWarpGroups& reason) {
        return reason.what();
    } catch (const CompileError& reason) {  // segments, of a decay that is not affine
        return reason.what();
    }
    return "";
}

class WarpGroups : public testing::TestWithParam<Entry> {};

void expect_emitted_or_refused(const Entry& entry, const Case& c) {
    const std::string what = fmt::format("{}, {} tasks", plan::to_string(*c.strategy), c.tasks);
    try {
        const plan::Plan plan = plan_for(entry, c);
        EXPECT_TRUE(std::any_of(plan.kernels.begin(), plan.kernels.end(),
                                [](const plan::Kernel& k) { return k.engine == plan::Engine::WarpGroups; }));
        for (const plan::Kernel& kernel : plan.kernels)
            EXPECT_LE(kernel.tiles.scratch_floats * 4, kernel.tiles.roles ? kHopper.all_bytes : kHopper.bytes)
                << kernel.graph.name;
        const std::string text = emit::emit_cuda(plan);
        EXPECT_NE(text.find("issue_multiply<"), std::string::npos) << what;
        EXPECT_EQ(text, emit::emit_cuda(plan_for(entry, c))) << what;
    } catch (const plan::NotForWarpGroups& reason) {
        EXPECT_STRNE(reason.what(), "") << what;
    } catch (const CompileError&) {
        EXPECT_EQ(*c.strategy, plan::Strategy::Segmented);  // its decay is not affine
    }
}

TEST_P(WarpGroups, AreEmittedOrRefused) {
    for (const plan::Strategy strategy : plan::all_strategies())
        for (const std::int64_t tasks : {kFewTasks, kManyTasks})
            expect_emitted_or_refused(GetParam(), with_strategy(strategy, tasks));
}

INSTANTIATE_TEST_SUITE_P(All, WarpGroups, testing::ValuesIn(all_programs()), name_of);

// Those with a matrix state, whatever the strategy; mamba3, with two rows of 256 channels, where scans leave outputs to
// another kernel.
TEST(WarpGroupVariants, AreThoseOfMatrixStates) {
    const std::set<std::string> accepted = {
        "linear_attention", "retnet", "lightning_attention", "scalar_gla", "gla", "hgrn2", "rwkv6", "delta_net",
        "gated_delta_net",  "kda",    "delta_product"};
    for (const Entry& entry : variants::all())
        for (const plan::Strategy strategy : plan::all_strategies()) {
            const bool apart = strategy == plan::Strategy::Decoupled || strategy == plan::Strategy::Fused;
            EXPECT_EQ(refusal(entry.name, with_strategy(strategy)).empty(),
                      accepted.contains(entry.name) || (apart && entry.name == "mamba3"))
                << entry.name << ", " << plan::to_string(strategy);
        }
}

// Two groups make outputs where there is room for them, and the states need few registers.
TEST(WarpGroupRoles, AreAsManyAsFit) {
    const auto groups = [](const char* name) {
        return plan_for(program_named(name), {.strategy = plan::Strategy::OnePass, .tokens = kFewTokens})
            .schedule.output_groups;
    };
    for (const char* name : {"linear_attention", "retnet", "scalar_gla", "gla"}) EXPECT_EQ(groups(name), 2) << name;
    for (const char* name : {"gated_delta_net", "kda", "squashed"}) EXPECT_EQ(groups(name), 1) << name;
}

// One segment per multiprocessor, where sequences are long enough for what segments cost.
TEST(WarpGroupSegments, AreChosenForLongSequences) {
    const auto strategy = [](const char* name, std::int64_t tasks, std::int64_t tokens) {
        return plan_for(program_named(name), {.tasks = tasks, .tokens = tokens}).schedule.strategy;
    };
    for (const std::int64_t tokens : {1, 100, 2048})
        EXPECT_EQ(strategy("scalar_gla", 32, tokens), plan::Strategy::OnePass);
    EXPECT_EQ(strategy("scalar_gla", 32, 32768), plan::Strategy::Segmented);
    EXPECT_EQ(strategy("scalar_gla", 4, 8192), plan::Strategy::Segmented);
    EXPECT_EQ(strategy("gla", 32, 32768), plan::Strategy::OnePass);
    // Matrices as transitions: where tasks are so few that products of matrices pay.
    for (const char* name : {"gated_delta_net", "delta_net", "kda"}) {
        for (const auto& [tasks, tokens] : {std::pair(1, 8192), {4, 8192}, {4, 32768}, {8, 32768}})
            EXPECT_EQ(strategy(name, tasks, tokens), plan::Strategy::Segmented)
                << name << " " << tasks << " " << tokens;
        for (const auto& [tasks, tokens] : {std::pair(1, 2048), {32, 8192}, {32, 32768}})
            EXPECT_EQ(strategy(name, tasks, tokens), plan::Strategy::OnePass) << name << " " << tasks << " " << tokens;
    }
    EXPECT_EQ(strategy("gated_delta_net", 16, 32768), plan::Strategy::Segmented);
    EXPECT_EQ(strategy("kda", 16, 32768), plan::Strategy::OnePass);  // whose work ahead takes longer
}

// Work ahead of the scan runs beside it, where the scan leaves multiprocessors free and nothing else comes between.
TEST(WarpGroupRoles, LeaveMultiprocessorsToWorkBesideThem) {
    const auto beside = [](const char* name, plan::Strategy strategy, std::int64_t tasks) {
        return plan_for(program_named(name), with_strategy(strategy, tasks)).schedule.beside_groups;
    };
    for (const char* name : {"gla", "delta_net", "gated_delta_net", "kda"}) {
        EXPECT_GT(beside(name, plan::Strategy::OnePass, kFewTasks), 2) << name;
        EXPECT_EQ(beside(name, plan::Strategy::OnePass, kManyTasks), 0) << name;
        EXPECT_EQ(beside(name, plan::Strategy::Fused, kFewTasks), 0) << name;
    }
    EXPECT_EQ(beside("scalar_gla", plan::Strategy::OnePass, kFewTasks), 0);  // has none
}

// Few tasks have several warp groups each. Of many a block has two, with what they have in common, or, if that takes
// long steps of channels, or registers do not suffice, with what is made of it ahead; or one warp group has each.
TEST(WarpGroupRoles, FollowFromTheNumberOfTasks) {
    for (const char* name : {"linear_attention", "retnet", "lightning_attention", "scalar_gla", "gla", "rwkv6",
                             "delta_net", "gated_delta_net", "kda"}) {
        const Entry entry = program_named(name);
        EXPECT_GT(plan_for(entry, {.strategy = plan::Strategy::OnePass, .tokens = kFewTokens}).schedule.output_groups,
                  0)
            << name;
        EXPECT_EQ(plan_for(entry, with_strategy(plan::Strategy::OnePass, kManyTasks)).schedule.output_groups, 0)
            << name;
    }
    const auto tiles = [](const char* name, Case c) {
        return plan_for(program_named(name), std::move(c)).schedule.block_tiles;
    };
    for (const char* name : {"linear_attention", "retnet", "scalar_gla", "delta_net", "gated_delta_net"}) {
        EXPECT_EQ(tiles(name, {.tasks = kManyTasks}), 2) << name;
        EXPECT_EQ(tiles(name, {.v = 64, .tasks = kManyTasks}), 1) << name;
        EXPECT_EQ(tiles(name, {.tasks = kFewTasks}), 1) << name;
    }
}

// What tiles have in common is made ahead where one group beside them would be too slow, or have no registers: then
// states are wide, and products take them in pieces. Where the work is long beside the scan's chain, few tasks have
// such blocks, too: they leave more multiprocessors to it.
TEST(WarpGroupRoles, AreTilesAloneWhereAllElseIsAhead) {
    const auto apart = [](const char* name, const Case& c) {
        const plan::Plan plan = plan_for(program_named(name), c);
        return plan.kernels.back().has_tiles_apart();
    };
    const auto in_pieces = [](const char* name, const Case& c) {
        return plan_for(program_named(name), c).kernels.back().tiles.roles->in_pieces.size();
    };
    for (const char* name : {"gla", "rwkv6", "kda"}) EXPECT_TRUE(apart(name, {.tasks = kManyTasks})) << name;
    for (const char* name : {"retnet", "scalar_gla", "gla", "delta_net", "gated_delta_net"}) {
        const Case wide = {.k = 256, .v = 512, .tasks = kManyTasks};
        EXPECT_TRUE(apart(name, wide)) << name;
        EXPECT_EQ(in_pieces(name, wide), 1) << name;
        EXPECT_FALSE(apart(name, {.k = 256, .v = 64, .tasks = kManyTasks})) << name;  // there is one tile
    }
    EXPECT_TRUE(apart("gla", {.tasks = kFewTasks}));
    EXPECT_EQ(in_pieces("gla", {.tasks = kFewTasks}), 0);
    EXPECT_FALSE(apart("gla", {.tasks = kFewTasks, .tokens = kFewTokens}));
    EXPECT_FALSE(apart("gated_delta_net", {.tasks = kFewTasks}));
    EXPECT_TRUE(
        apart("gated_delta_net", {.tasks = 96, .tokens = 8192}));  // of which the chain is short beside the work
    EXPECT_FALSE(apart("gated_delta_net", {.tasks = 128, .tokens = 8192}));
}

// A task that has its multiprocessor to itself, be it that a second one does not fit; so have programs with several
// rows per token.
TEST(WarpGroupRoles, AreAProducerWhereOneGroupIsAlone) {
    const auto producer = [](const char* name, const Case& c) {
        return plan_for(program_named(name), c).schedule.producer;
    };
    EXPECT_TRUE(producer("retnet", {.k = 256, .v = 64, .tasks = kManyTasks}));
    EXPECT_FALSE(producer("gla", {.v = 64, .tasks = kManyTasks}));
    for (const char* name : {"delta_product", "several_rows"}) EXPECT_TRUE(producer(name, {.tokens = 8192})) << name;
}

// Normalisers and the like have a scan whose values threads hold.
TEST(EarlyStates, AreScannedElementByElement) {
    const auto by_element = [](const char* name) {
        const plan::Plan plan = plan_for(program_named(name), {.tokens = 8192});
        return std::count_if(plan.kernels.begin(), plan.kernels.end(),
                             [](const plan::Kernel& kernel) { return kernel.tiles.by_element; });
    };
    for (const char* name : {"normalised", "precision_weighted", "preconditioned_delta"})
        EXPECT_EQ(by_element(name), 1) << name;
    EXPECT_EQ(by_element("gated_delta_net"), 0);
}

// What follows from a number's place, or from other numbers of a vector, is nothing that threads have.
TEST(VectorScans, AreOfWhatThreadsHave) {
    const auto is_one = [](const std::string& made) {
        const std::string text =
            "func @scan {\n  %p: f32[64] = param() {name=\"z\", role=state}\n"
            "  %x: f32[64] = param() {name=\"x\", role=spill}\n" +
            made + "  %z: f32[64] = add(%p, %y)\n  return state \"z\" = %z\n}\n";
        return tile::as_vector_scan(ir::parse_function(text, "scan"), {}).has_value();
    };
    EXPECT_TRUE(is_one("  %y: f32[64] = exp(%x)\n"));
    EXPECT_TRUE(is_one("  %n: f32[] = select(%x) {dim=0, start=-1}\n  %y: f32[64] = mul(%x, %n)\n"));
    EXPECT_FALSE(is_one("  %y: f32[64] = arange()\n"));
    EXPECT_FALSE(is_one("  %y: f32[64] = cumsum(%x) {dim=0}\n"));
    EXPECT_FALSE(
        is_one("  %c: f32[64, 1] = unsqueeze(%x) {dim=1}\n  %t: f32[64, 1] = tril(%c) {diagonal=0}\n"
               "  %y: f32[64] = squeeze(%t) {dim=1}\n"));
}

TEST(WarpGroupSource, IsAsBefore) {
    const auto source = [](std::int64_t tasks, std::int64_t v = 128,
                           plan::Strategy strategy = plan::Strategy::OnePass) {
        return emit::emit_cuda(plan_for(program_named("scalar_gla"), {.v = v, .strategy = strategy, .tasks = tasks}));
    };
    EXPECT_TRUE(same_as_file(root() / "tests/golden/scalar_gla_warp_groups.cu", source(kFewTasks)));
    EXPECT_TRUE(same_as_file(root() / "tests/golden/scalar_gla_block_of_tiles.cu", source(kManyTasks)));
    EXPECT_TRUE(same_as_file(root() / "tests/golden/scalar_gla_paired.cu", source(kManyTasks, 64)));
    EXPECT_TRUE(
        same_as_file(root() / "tests/golden/scalar_gla_producer.cu", source(kFewTasks, 128, plan::Strategy::Fused)));
}

// What the compiler makes of them. It reports products that it could not leave under way, or whose registers it had to
// wait for, as C75xx.
struct Compiled {
    std::string program;
    plan::Strategy strategy = plan::Strategy::OnePass;
    std::int64_t tasks = kFewTasks;
    DType dtype = BF16;
    std::int64_t k = 128, v = 128;
};

void PrintTo(const Compiled& c, std::ostream* out) {
    *out << c.program << ", " << plan::to_string(c.strategy) << ", " << c.tasks << " tasks, " << to_string(c.dtype);
}

class WarpGroupCompiler : public testing::TestWithParam<Compiled> {};

TEST_P(WarpGroupCompiler, KeepsRegistersAndLeavesProductsUnderWay) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Any))
        GTEST_SKIP() << "neither libnvrtc nor nvcc is on this machine";
    const Compiled& c = GetParam();
    const plan::Plan plan = plan_for(
        program_named(c.program), Case{.k = c.k, .v = c.v, .dtype = c.dtype, .strategy = c.strategy, .tasks = c.tasks});
    const build::CudaBinary binary =
        build::build_cuda_binary(c.program, emit::emit_cuda(plan), "sm_90a", support::default_cache_dir());
    EXPECT_EQ(binary.kernels.size(), plan.kernels.size() + (plan.has_end() ? 1 : 0)) << binary.report;
    // Of work beside a scan four warp groups share the registers: it may put away what it seldom needs, its task above
    // all.
    for (const build::KernelReport& kernel : binary.kernels)
        EXPECT_LE(kernel.spill_bytes, plan.schedule.beside_groups > 0 && kernel.kernel.ends_with("_shared") ? 96 : 0)
            << kernel.kernel << "\n"
            << binary.report;
    std::istringstream report(binary.report);
    for (std::string line; std::getline(report, line);) EXPECT_EQ(line.find("C75"), std::string::npos) << line;
}

INSTANTIATE_TEST_SUITE_P(Some, WarpGroupCompiler,
                         testing::Values(Compiled{"linear_attention"}, Compiled{"scalar_gla"},
                                         Compiled{"scalar_gla", plan::Strategy::Segmented}, Compiled{"gla"},
                                         Compiled{"rwkv6"}, Compiled{"delta_net"}, Compiled{"gated_delta_net"},
                                         Compiled{"kda"}, Compiled{"shifted_gates"}, Compiled{"running_maximum"},
                                         Compiled{"token_shift"},
                                         Compiled{"scalar_gla", plan::Strategy::OnePass, kManyTasks},
                                         Compiled{"gated_delta_net", plan::Strategy::OnePass, kManyTasks},
                                         Compiled{"gla", plan::Strategy::OnePass, kFewTasks, F16},
                                         Compiled{"rwkv6", plan::Strategy::OnePass, kManyTasks, F16},
                                         Compiled{"kda", plan::Strategy::OnePass, kFewTasks, F16},
                                         Compiled{"kda", plan::Strategy::OnePass, kManyTasks, F16},
                                         Compiled{"retnet", plan::Strategy::OnePass, kManyTasks, BF16, 256, 512},
                                         Compiled{"gla", plan::Strategy::OnePass, kManyTasks, BF16, 256, 512},
                                         Compiled{"delta_net", plan::Strategy::OnePass, kManyTasks, BF16, 256, 256}),
                         [](const auto& test) {
                             return test.param.program +
                                    (test.param.strategy == plan::Strategy::OnePass ? "" : "_segmented") +
                                    (test.param.tasks == kFewTasks ? "" : "_many") +
                                    (test.param.k == 128 ? "" : "_wide") + (test.param.dtype == F16 ? "_f16" : "");
                         });

// The instructions themselves, in PTX, which is made without the assembler.
void expect_instructions(const char* program, std::int64_t tasks, const std::vector<const char*>& instructions) {
    const build::Nvrtc* nvrtc = build::Nvrtc::find();
    if (!nvrtc) GTEST_SKIP() << "libnvrtc is not on this machine";
    const std::string headers = build::Cache(support::default_cache_dir()).headers().string();
    const std::string source =
        emit::emit_cuda(plan_for(program_named(program), with_strategy(plan::Strategy::OnePass, tasks)));
    const auto result =
        nvrtc->compile("program.cu", source, {"-std=c++20", "-I" + headers, "--gpu-architecture=compute_90a"});
    ASSERT_TRUE(result.ok) << result.log;
    for (const char* instruction : instructions)
        EXPECT_NE(result.ptx.find(instruction), std::string::npos) << instruction;
}

TEST(WarpGroupInstructions, OfOneGroupAreAsynchronousProductsAndCopies) {
    expect_instructions(
        "linear_attention", kManyTasks,
        {"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", "wgmma.wait_group", "cp.async.cg.shared.global"});
}

TEST(WarpGroupInstructions, OfRolesAreTensorCopiesAndBarriersBetweenGroups) {
    expect_instructions(
        "gated_delta_net", kFewTasks,
        {"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", "cp.async.bulk.tensor.4d.shared::cluster.global.tile",
         "cp.async.bulk.shared::cluster.global", "cp.async.bulk.tensor.4d.global.shared::cta",
         "mbarrier.try_wait.parity", "setmaxnreg.inc", "setmaxnreg.dec"});
}

}  // namespace
}  // namespace forge::tests
