/// The CUDA path as far as a machine without a GPU can check it: every program is fitted to shared memory and emitted,
/// some are compiled for several architectures without spills, and what cannot work says why.
#include <gtest/gtest.h>

#include <algorithm>

#include "build/cuda_binary.h"
#include "check/problem.h"
#include "emit/cuda/emit_cuda.h"
#include "forge/error.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "graph/pipeline.h"
#include "schedule/shared_memory.h"
#include "support/environment.h"
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
    schedule::FitWishes wishes;
    wishes.strategy = strategy;
    wishes.expected_tasks = 32;
    return plan::make_plan(def, program, all, schedule::fit_shared_memory(def, program, all, {bytes, 132}, wishes));
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

// Programs whose state cannot be cut, or that have a whole state per token, may be too large for the smallest chips.
TEST_P(CudaProgram, FitsIntoTheLeastSharedMemoryOrSaysWhatDoesNot) {
    try {
        const plan::Plan plan = plan_for(GetParam(), plan::Strategy::OnePass, {128, 128}, kSmallest);
        for (const plan::Kernel& kernel : plan.kernels)
            EXPECT_LE(kernel.tiles.scratch_floats * 4, kSmallest) << kernel.graph.name;
    } catch (const RuntimeError& error) {
        EXPECT_EQ(variants::find(GetParam().name), nullptr) << error.what();
        EXPECT_NE(std::string(error.what()).find("for kernel " + GetParam().name), std::string::npos) << error.what();
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
    EXPECT_EQ(binary.kernels.size(), plan.kernels.size()) << binary.report;
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
                    Compiled{"two_readings", "sm_90", plan::Strategy::Fused, {64, 64}, F16}),
    [](const auto& test) { return test.param.program + "_" + test.param.arch; });

TEST(CudaNvcc, IsAnAlternativeToNvrtc) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Nvcc)) GTEST_SKIP() << "no nvcc on this machine";
    const plan::Plan plan = plan_for(program("linear_attention"), plan::Strategy::OnePass, {64, 64}, kHopper);
    const build::CudaBinary binary = build::build_cuda_binary("linear_attention", emit::emit_cuda(plan), "sm_90",
                                                              support::default_cache_dir(), build::CudaCompiler::Nvcc);
    EXPECT_EQ(binary.kernels.size(), plan.kernels.size()) << binary.report;
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

TEST(CudaFit, NamesTheKernelThatIsTooLarge) {
    try {
        plan_for(program("gla"), plan::Strategy::OnePass, {128, 128}, 8 * kKiB);
        FAIL() << "8 KiB were enough";
    } catch (const RuntimeError& error) {
        EXPECT_NE(std::string(error.what()).find("gla: shared memory: expected at most 8192 bytes, got"),
                  std::string::npos)
            << error.what();
    }
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

TEST(CudaBarriers, StandBetweenDependentOperations) {
    using emit::Range;
    emit::Writer out;
    emit::Barriers barriers(true);
    barriers.before(out, {}, {{0, 8}});   // a = …
    barriers.before(out, {}, {{8, 16}});  // b = …
    EXPECT_EQ(out.text(), "");
    barriers.before(out, {{0, 8}}, {{16, 24}});  // c = f(a): waits for a
    EXPECT_EQ(out.text(), "sync();\n");
    barriers.before(out, {{8, 16}}, {{24, 32}});  // d = f(b): b was waited for
    EXPECT_EQ(out.text(), "sync();\n");
    barriers.before(out, {}, {{4, 6}});  // writes what c reads
    EXPECT_EQ(out.text(), "sync();\nsync();\n");
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
