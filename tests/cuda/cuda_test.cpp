/// The CUDA path as far as a machine without a GPU can check it: every program is fitted to shared memory and emitted,
/// some are compiled for several architectures without spills, and what cannot work says why.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "build/cuda_binary.h"
#include "check/problem.h"
#include "emit/cuda/emit_cuda.h"
#include "emit/cuda/launch.h"
#include "forge/error.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "graph/pipeline.h"
#include "support/environment.h"
#include "target/simt/shared_memory.h"
#include "tests/novel/novel.h"

namespace forge {
namespace {

using variants::Entry;

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kHopper = 220 * kKiB;   ///< of 227 KiB
constexpr std::int64_t kSmallest = 92 * kKiB;  ///< of 99 KiB, on the consumer chips of compute capability 8.x

struct Sizes {
    std::int64_t k, v;
};

plan::Plan plan_for(const Entry& entry, plan::Strategy strategy, Sizes sizes, std::int64_t bytes, DType dtype = BF16) {
    const ir::Definition def = frontend::with_dtype(entry.make().define(), dtype);
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes all = check::sizes_for(def, {.sizes = {{"K", sizes.k}, {"V", sizes.v}}});
    target::FitWishes wishes;
    wishes.strategy = strategy;
    wishes.expected_tasks = 32;
    return plan::make_plan(def, program, all, target::fit_shared_memory(def, program, all, {bytes, 132}, wishes));
}

std::vector<Entry> all_programs() {
    std::vector<Entry> entries = variants::all();
    entries.insert(entries.end(), novel::all().begin(), novel::all().end());
    return entries;
}

const Entry& program(const std::string& name) {
    static const std::vector<Entry> kAll = all_programs();
    return *std::find_if(kAll.begin(), kAll.end(), [&](const Entry& e) { return e.name == name; });
}

class CudaProgram : public testing::TestWithParam<Entry> {};

TEST_P(CudaProgram, FitsIntoSharedMemoryAndIsEmitted) {
    for (const Sizes sizes : {Sizes{128, 128}, Sizes{60, 100}}) {
        const plan::Plan plan = plan_for(GetParam(), plan::Strategy::OnePass, sizes, kHopper);
        for (const plan::Kernel& kernel : plan.kernels)
            EXPECT_LE(kernel.tiles.scratch_floats * 4, kHopper) << kernel.graph.name;
        EXPECT_EQ(emit::emit_cuda(plan), emit::emit_cuda(plan));
    }
}

/// Every strategy that the program admits.
void expect_kernels(const Entry& entry, Sizes sizes, std::int64_t bytes, DType dtype) {
    for (const plan::Strategy strategy : plan::all_strategies()) {
        std::optional<plan::Plan> plan;
        try {
            plan = plan_for(entry, strategy, sizes, bytes, dtype);
        } catch (const CompileError&) {  // segments whose states cannot be joined
            EXPECT_EQ(strategy, plan::Strategy::Segmented);
            continue;
        }
        for (const plan::Kernel& kernel : plan->kernels) {
            EXPECT_LE(kernel.tiles.scratch_floats * 4, bytes) << kernel.graph.name;
            EXPECT_EQ(kernel.tiles.far_floats > 0, emit::launch_of(*plan, kernel).most_blocks > 0) << kernel.graph.name;
        }
        EXPECT_FALSE(emit::emit_cuda(*plan).empty());
    }
}

// Whatever is accepted has kernels, for states of up to 256 x 256, on the smallest chips too: what does not fit into
// shared memory lies in global memory.
TEST_P(CudaProgram, HasKernelsForAllSizesOnAllChips) {
    for (const Sizes sizes : {Sizes{64, 64}, Sizes{128, 128}, Sizes{256, 256}, Sizes{64, 256}, Sizes{256, 128}})
        for (const std::int64_t bytes : {kHopper, kSmallest}) {
            SCOPED_TRACE(fmt::format("{} x {}, {} bytes", sizes.k, sizes.v, bytes));
            for (const DType dtype : {F32, BF16, F16}) expect_kernels(GetParam(), sizes, bytes, dtype);
        }
}

INSTANTIATE_TEST_SUITE_P(All, CudaProgram, testing::ValuesIn(all_programs()),
                         [](const auto& test) { return test.param.name; });

// One program per kind of device function: products and masks, channel decays, the inverse, vector scans, rank 3.
struct Compiled {
    std::string program, arch;
    plan::Strategy strategy;
    Sizes sizes;
    DType dtype;
};

class CudaCompiler : public testing::TestWithParam<Compiled> {};

TEST_P(CudaCompiler, AcceptsTheKernelsWithoutSpills) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Any))
        GTEST_SKIP() << "neither libnvrtc nor nvcc is on this machine";
    const Compiled& c = GetParam();
    const plan::Plan plan =
        plan_for(program(c.program), c.strategy, c.sizes, c.arch == "sm_90" ? kHopper : kSmallest, c.dtype);
    const build::CudaBinary binary =
        build::build_cuda_binary(c.program, emit::emit_cuda(plan), c.arch, support::default_cache_dir());
    EXPECT_EQ(binary.kernels.size(), plan.kernels.size() + (plan.last_rows.empty() ? 0 : 1)) << binary.report;
    for (const build::KernelReport& kernel : binary.kernels)
        EXPECT_EQ(kernel.spill_bytes, 0) << kernel.kernel << "\n" << binary.report;
    EXPECT_FALSE(binary.cubin.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Some, CudaCompiler,
    testing::Values(Compiled{"scalar_gla", "sm_90", plan::Strategy::OnePass, {128, 128}, BF16},
                    Compiled{"kda", "sm_80", plan::Strategy::OnePass, {60, 100}, BF16},
                    Compiled{"gated_delta_net", "sm_90", plan::Strategy::Segmented, {128, 128}, F16},
                    Compiled{"hgrn", "sm_80", plan::Strategy::Decoupled, {128, 128}, F32},
                    Compiled{"elementwise_decay", "sm_90", plan::Strategy::Fused, {128, 128}, BF16},
                    Compiled{"token_shift", "sm_80", plan::Strategy::OnePass, {60, 100}, F32},
                    Compiled{"rotary", "sm_80", plan::Strategy::OnePass, {30, 100}, F32},
                    Compiled{"turned_pairs", "sm_90", plan::Strategy::Segmented, {64, 64}, BF16},
                    Compiled{"two_readings", "sm_90", plan::Strategy::Fused, {64, 64}, F16},
                    Compiled{"elementwise_decay", "sm_80", plan::Strategy::Fused, {256, 256}, F16}),
    [](const auto& test) { return test.param.program + "_" + test.param.arch; });

TEST(CudaNvcc, IsAnAlternativeToNvrtc) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Nvcc)) GTEST_SKIP() << "no nvcc on this machine";
    const plan::Plan plan = plan_for(program("linear_attention"), plan::Strategy::OnePass, {64, 64}, kHopper);
    const build::CudaBinary binary = build::build_cuda_binary("linear_attention", emit::emit_cuda(plan), "sm_90",
                                                              support::default_cache_dir(), build::CudaCompiler::Nvcc);
    EXPECT_EQ(binary.kernels.size(), plan.kernels.size() + (plan.last_rows.empty() ? 0 : 1)) << binary.report;
}

TEST(CudaFlags, AreOptionsOfTheCompilerAndOfTheCache) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Any)) GTEST_SKIP() << "no CUDA compiler on this machine";
    const std::string source = "#ifndef WANTED\n#error not given\n#endif\nextern \"C\" __global__ void nothing() {}\n";
    const auto build = [&] {
        return build::build_cuda_binary("flags", source, "sm_90a", support::default_cache_dir());
    };
    EXPECT_THROW(build(), InternalError);
    setenv("FORGE_CUDA_FLAGS", " -DWANTED=1  -DMORE ", 1);
    EXPECT_EQ(build().kernels.size(), 1u);
    unsetenv("FORGE_CUDA_FLAGS");
    EXPECT_THROW(build(), InternalError);
}

// Where shared memory is too small whatever is cut, the tiles that are read least lie in global memory, and no more of
// them than must.
TEST(CudaFit, PutsIntoGlobalMemoryWhatIsReadLeast) {
    const plan::Plan plan = plan_for(program("normalised"), plan::Strategy::OnePass, {256, 256}, kHopper);
    const tile::TileKernel& tiles = plan.kernels.at(0).tiles;
    EXPECT_GT(tiles.scratch_floats * 4, kHopper / 2);
    EXPECT_LT(tiles.far_floats, 5 * 256 * 260 / 4);
    const auto state = std::find_if(tiles.fn.ops.begin(), tiles.fn.ops.end(), [](const ir::Op& op) {
        return op.attrs.role == ir::Role::State && op.attrs.name == "s";
    });
    EXPECT_GE(state->layout->offset, tiles.scratch_floats);  // the state alone is larger than shared memory
    EXPECT_EQ(plan.schedule.chunk, 64);
    EXPECT_NE(to_string(plan.schedule).find("in global memory"), std::string::npos);
    EXPECT_EQ(plan_for(program("gla"), plan::Strategy::OnePass, {128, 128}, kHopper).kernels.at(0).tiles.far_floats, 0);
}

/// A second state of K x K beside one of K x V, which no cut along V makes smaller.
LinearAttention second_state() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("second_state");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {K, V}).state("m", F32, {K, K});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) -> Results {
        return {{"s", matmul_out_fp32(transpose(k), v)}, {"m", matmul_out_fp32(transpose(k), k)}};
    });
    a.decay({"prev_s", "chunk_s", "prev_m", "chunk_m"},
            [](Tensor s, Tensor chunk_s, Tensor m, Tensor chunk_m) -> Results {
                return {{"s", s + chunk_s}, {"m", m + chunk_m}};
            });
    a.merge({"q", "prev_s", "prev_m"}, [](Tensor q, Tensor s, Tensor m) { return matmul(matmul(q.to(F32), m), s); });
    return a;
}

TEST(CudaFit, HasRoomForSecondStates) {
    const Entry entry{"second_state", "", "", second_state};
    for (const std::int64_t size : {128, 256})
        for (const std::int64_t bytes : {kHopper, kSmallest}) expect_kernels(entry, {size, size}, bytes, BF16);
}

TEST(CudaReport, IsRead) {
    const auto kernels = build::parse_ptxas_report(
        "ptxas info    : Compiling entry function 'a' for 'sm_90'\nptxas info    : Function properties for a\n"
        "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\nptxas info    : Used 40 registers, used "
        "1 barriers, 2048 bytes smem\n");
    ASSERT_EQ(kernels.size(), 1U);
    EXPECT_EQ(kernels[0].kernel, "a");
    EXPECT_EQ(kernels[0].registers, 40);
    EXPECT_EQ(kernels[0].spill_bytes, 20);
    EXPECT_EQ(kernels[0].stack_bytes, 16);
    EXPECT_EQ(kernels[0].shared_bytes, 2048);
}

TEST(CudaDevice, IsNamedWhenItIsWrongOrAbsent) {
    CompileOptions options;
    options.sizes = {{"K", 64}, {"V", 64}};
    for (const char* device : {"gpu", "cuda:x", "cuda:99"}) {
        options.device = device;
        EXPECT_THROW(compile(program("linear_attention").make(), options), RuntimeError) << device;
    }
}

}  // namespace
}  // namespace forge
