/// Plans of backward passes on warp groups, and what compilers make of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "build/cuda_binary.h"
#include "compile/driver.h"
#include "emit/cuda/emit_cuda.h"
#include "emit/cuda/launch.h"
#include "support/environment.h"
#include "tests/support/elf.h"
#include "tests/support/entries.h"
#include "tile/fragments.h"
#include "tile/remembered.h"
#include "tile/text.h"

namespace forge::tests {
namespace {

auto emitted_for(const std::string& program, std::int64_t size, const std::string& entry) {
    CompileOptions options{.device = "cuda", .dtype = BF16, .sizes = {{"K", size}, {"V", size}}};
    options.entry = entry, options.on = "h200", options.engine = "warp-groups", options.tuned = false;
    options.expected_tokens = 8192, options.expected_heads = 32;
    return compiler::emitted(program::Module(program_named(program).make().define(), BF16), options);
}

/// Or its first half.
const plan::Kernel& kernel_of(const plan::Plan& plan, const std::string& end) {
    for (const plan::Kernel& kernel : plan.kernels)
        if (kernel.graph.name.ends_with(end) || kernel.graph.name.find(end + "_first") != std::string::npos)
            return kernel;
    throw std::runtime_error("no kernel " + end);
}

// Neither needs what the other makes; what comes next relies on both.
TEST(BackwardScans, RunBesideEachOther) {
    for (const char* program : {"scalar_gla", "gla", "gated_delta_net", "kda"}) {
        const auto made = emitted_for(program, 128, "backward");
        const auto launch = [&](const char* kernel) {
            return emit::launch_of(made->plan, kernel_of(made->plan, kernel));
        };
        EXPECT_TRUE(launch("_before").waits_late || launch("_states").waits_late) << program;
        EXPECT_FALSE(launch("_before").waits_late && launch("_states").waits_late) << program;
        EXPECT_TRUE(launch("_outputs").waits && !launch("_outputs").waits_late) << program;
    }
}

// Programs alike but for sizes, types and strategies, planned one after the other by one thread that remembers all.
TEST(RememberedKernels, AreWhatWouldBeMadeAnew) {
    const std::vector<std::pair<std::string, std::int64_t>> programs = {
        {"gated_delta_net", 128}, {"gated_delta_net", 64}, {"kda", 128}, {"delta_net", 128}, {"gated_delta_net", 128}};
    const auto texts = [&](const std::string& entry) {
        std::vector<std::string> all;
        for (const auto& [program, size] : programs)
            all.push_back(emitted_for(program, size, entry)->sources.at(0).text);
        return all;
    };
    for (const char* entry : {"forward", "backward"}) {
        const std::vector<std::string> anew = texts(entry);
        const tile::Remembering kernels;
        EXPECT_EQ(texts(entry), anew) << entry;
    }
}

bool has(const plan::Kernel& kernel, ir::Opcode code) {
    return std::any_of(kernel.graph.fn.ops.begin(), kernel.graph.fn.ops.end(),
                       [&](const ir::Op& op) { return op.code == code; });
}

// Products of inputs that a kernel has in any case are made again, not stored for it.
TEST(BackwardSpills, AreNoProductsOfInputs) {
    const auto made = emitted_for("gated_delta_net", 128, "backward");
    const ir::Function& fn = kernel_of(made->plan, "_shared").graph.fn;
    const auto is_input = [&](ir::ValueId v) {
        return fn.op(v).code == ir::Opcode::Param && fn.op(v).attrs.role == ir::Role::Input;
    };
    for (const ir::Result& r : fn.results) {
        const ir::Op& op = fn.op(r.value);
        EXPECT_FALSE(op.code == ir::Opcode::Matmul && is_input(op.args[0]) && is_input(op.args[1])) << r.name;
    }
}

std::ptrdiff_t count(const plan::Kernel& kernel, ir::Opcode code) {
    const auto& ops = kernel.tiles.fn.ops;
    return std::count_if(ops.begin(), ops.end(), [&](const ir::Op& op) { return op.code == code; });
}

// The sums of gates lie in shared memory until the last decay by them, as there is room for a second task all the same.
TEST(BackwardDecays, ShareTheSumsOfTheirGates) {
    const auto made = emitted_for("kda", 128, "backward");
    const plan::Kernel& outputs = kernel_of(made->plan, "_outputs");
    EXPECT_EQ(count(outputs, ir::Opcode::DecayApply), 4);
    EXPECT_EQ(outputs.tiles.summed.size(), 3U);
    EXPECT_EQ(tile::tasks_at_once(outputs.tiles), 2);
}

// Of the mask times the scores' gradient, and of the mask times the gradient of the system's matrix.
TEST(BackwardMasks, AreMultipliedOnceByWhatProductsShare) {
    const auto made = emitted_for("gated_delta_net", 128, "backward of q, k, v, g, beta");
    const ir::Function& fn = kernel_of(made->plan, "_outputs").graph.fn;
    const auto reads_mask = [&](const ir::Op& op) {
        return std::any_of(op.args.begin(), op.args.end(),
                           [&](ir::ValueId v) { return fn.op(v).code == ir::Opcode::DecayMask; });
    };
    EXPECT_EQ(std::count_if(fn.ops.begin(), fn.ops.end(), reads_mask), 2);
}

// Tasks of a chunk have better uses for registers than addresses.
TEST(BackwardAddresses, LieInSharedMemory) {
    const auto made = emitted_for("gated_delta_net", 128, "backward");
    const plan::Kernel& outputs = kernel_of(made->plan, "_outputs");
    EXPECT_GE(outputs.tiles.addresses, 0);
    EXPECT_GE(outputs.tiles.scratch_floats, outputs.tiles.addresses + 2 * 11);  // six inputs, five gradients
    EXPECT_LT(kernel_of(made->plan, "_states").tiles.addresses, 0);
}

// Two large tasks share a multiprocessor; of small ones four hide each other's waits.
TEST(Arrivals, AreTheHardwaresWhereFewTasksShareAMultiprocessor) {
    const auto backward = emitted_for("gated_delta_net", 128, "backward");
    const auto of = [&](const char* kernel) { return &kernel_of(backward->plan, kernel); };
    EXPECT_TRUE(emit::has_arrivals(backward->plan, *of("_outputs")));
    EXPECT_EQ(emit::launch_of(backward->plan, *of("_outputs")).maps.size(), 7U);  // q, k, v, grad_o and three gradients
    EXPECT_GE(tile::tasks_at_once(of("_shared")->tiles), 4);
    EXPECT_FALSE(emit::has_arrivals(backward->plan, *of("_shared")));
    EXPECT_FALSE(emit::takes_maps(backward->plan, *of("_shared")));
}

// The mask's exponentials are worked out once for both gradients of scores, and once for the three of the system.
TEST(JoinedFragments, WorkOutDecaysOnce) {
    const auto made = emitted_for("gated_delta_net", 128, "backward");
    const tile::TileKernel& outputs = kernel_of(made->plan, "_outputs").tiles;
    const auto joined = std::count_if(outputs.joined.begin(), outputs.joined.end(), [&](ir::ValueId v) {
        return outputs.fn.op(v).layout->space == ir::Layout::Space::Fragment;
    });
    EXPECT_GE(joined, 3);
    const std::string source = emit::emit_cuda(made->plan);
    const std::string text = source.substr(source.find("_gradient_outputs(const"));
    std::size_t decays = 0;
    for (std::size_t at = text.find("decays<"); at < text.find("_gradient_sums("); at = text.find("decays<", at + 1))
        ++decays;
    EXPECT_EQ(decays, 3U);
    EXPECT_NE(text.find("sum_rows_of_products("), std::string::npos);
}

// Four tiles of values would each make the same scores.
TEST(ForwardOutputs, ShareWhatNoTileOwns) {
    const auto made = emitted_for("kda", 256, "forward");
    EXPECT_TRUE(has(kernel_of(made->plan, "_shared"), ir::Opcode::DecayMatmul));
    EXPECT_FALSE(has(kernel_of(made->plan, "_outputs"), ir::Opcode::DecayMatmul));
}

// Tasks have 64 channels each; what sums over channels, or has none, is made once before.
TEST(BackwardOutputs, AreCutWhereTheyDoMuch) {
    for (const char* program : {"kda", "gla", "delta_net"}) {
        const auto made = emitted_for(program, 256, "backward");
        const plan::Kernel &joint = kernel_of(made->plan, "_joint"), &outputs = kernel_of(made->plan, "_outputs");
        EXPECT_EQ(joint.cut.count, 1) << program;
        EXPECT_EQ(outputs.cut.axis, "K") << program;
        EXPECT_EQ(outputs.cut.count, 4) << program;
        EXPECT_FALSE(has(joint, ir::Opcode::DecayApply)) << program;
        EXPECT_EQ(emit::launch_of(made->plan, outputs).parts, 4) << program;
        EXPECT_EQ(tile::tasks_at_once(outputs.tiles), 2) << program;
    }
    EXPECT_EQ(kernel_of(emitted_for("gla", 128, "backward")->plan, "_shared").cut.count, 2);  // needs nothing joint
}

// Heads that a kernel has room for, and whose channels decay alike, are made whole; so are outputs of which one kernel
// would leave another sums of fewer digits, and those of which most would be made ahead.
TEST(BackwardOutputs, AreWholeWhereThatIsAsGood) {
    const auto is_whole = [](const std::string& program, std::int64_t size) {
        const auto made = emitted_for(program, size, "backward");
        return made->plan.schedule.outputs_axis.empty() && kernel_of(made->plan, "_outputs").cut.count == 1;
    };
    EXPECT_TRUE(is_whole("gated_delta_net", 128));
    EXPECT_TRUE(is_whole("delta_net", 128));
    EXPECT_TRUE(is_whole("rwkv7", 128));
    EXPECT_TRUE(is_whole("gated_delta_net", 256));
}

// Decays multiply them in 32 bits, or two parts; products take 16 bits of all others.
TEST(BackwardOutputs, TakeWhatDecaysMultiplyWhole) {
    const auto made = emitted_for("kda", 256, "backward");
    const ir::Function& fn = kernel_of(made->plan, "_outputs").tiles.fn;
    for (const ir::Op& op : fn.ops) {
        if (op.code != ir::Opcode::DecayApply) continue;
        const ir::Op& weights = fn.op(op.args[0]);
        ASSERT_EQ(weights.attrs.role, ir::Role::Spill);
        EXPECT_EQ(weights.layout->space, ir::Layout::Space::Tile);
        EXPECT_EQ(made->plan.spills[static_cast<std::size_t>(made->plan.spill(weights.attrs.name))].parts, 0);
    }
}

class BackwardCompiler : public testing::TestWithParam<const char*> {};

// C7512: each product waits for the one before, as registers are too few for them to be under way.
TEST_P(BackwardCompiler, LeavesProductsUnderWay) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Any))
        GTEST_SKIP() << "neither libnvrtc nor nvcc is on this machine";
    const auto made = emitted_for(GetParam(), 128, "backward");
    const build::CudaBinary binary =
        build::build_cuda_binary(GetParam(), emit::emit_cuda(made->plan), "sm_90a", support::default_cache_dir());
    std::istringstream report(binary.report);
    for (std::string line; std::getline(report, line);) EXPECT_EQ(line.find("C7512"), std::string::npos) << line;
    // An array whose index is no constant lies in local memory; a pair may, for a few of its numbers.
    for (const build::KernelReport& kernel : binary.kernels)
        EXPECT_TRUE(kernel.stack_bytes <= 8 || kernel.spill_bytes > 0) << kernel.kernel << "\n" << binary.report;
    const auto texts = text_of_kernels(binary.cubin);
    for (const plan::Kernel& kernel : made->plan.kernels) {
        if (kernel.graph.loop != plan::Loop::Chunks) continue;
        const auto said = static_cast<double>(tile::text_bytes(kernel.tiles)),
                   made_of = static_cast<double>(texts.at("forge_" + kernel.graph.name));
        EXPECT_LT(said, 1.35 * made_of) << kernel.graph.name;
        EXPECT_GT(said, 0.8 * made_of) << kernel.graph.name;
    }
}

INSTANTIATE_TEST_SUITE_P(Some, BackwardCompiler,
                         testing::Values("scalar_gla", "gla", "delta_net", "gated_delta_net", "kda"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace forge::tests
