/// Kernels for GPUs without matrix units for warp groups (plan::Engine::Warps), run: as in warp_groups_run_test.cpp and
/// backward_run_test.cpp, for GPUs that have less shared memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "check/check.h"
#include "check/suite.h"
#include "compile/driver.h"
#include "graph/derive.h"
#include "program/entry_point.h"
#include "tests/cuda/emulated/program.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

struct Example {
    std::string program, gpu, entry = "forward";
    DType dtype = BF16;
    std::int64_t k = 128, v = 128;
    std::string strategy = "auto";
};

void PrintTo(const Example& e, std::ostream* out) {
    *out << e.program << ", " << e.entry << ", " << e.gpu << ", " << to_string(e.dtype) << ", " << e.k << " x " << e.v;
}

std::shared_ptr<compiler::Executable> emitted(const ir::Definition& def, const Example& example) {
    CompileOptions options{.device = "cuda", .dtype = example.dtype, .sizes = {{"K", example.k}, {"V", example.v}}};
    options.entry = example.entry, options.on = example.gpu, options.strategy = example.strategy, options.tuned = false;
    return compiler::emitted(program::Module(def, example.dtype), options);
}

class WarpsKernels : public testing::TestWithParam<Example> {};

// Nothing else is asked for: these are the kernels that such GPUs have.
TEST_P(WarpsKernels, DoWhatTheRecurrenceSays) {
    const Example& example = GetParam();
    const ir::Definition def = graph::with_phases(program_named(example.program).make().define());
    plan::Plan plan = emitted(def, example)->plan;
    ASSERT_EQ(plan.schedule.engine, plan::Engine::Warps);
    if (plan.schedule.far_blocks > 0) plan.schedule.far_blocks = 2;  // blocks with far tiles take several tasks
    const emulated::Program program("warps_" + example.program + "_" + example.entry + "_" + example.gpu, plan);
    for (check::Problem problem : {check::Problem{.T = 150, .H = 1, .initial_state = true},
                                   check::Problem{.H = 1, .lengths = {70, 0, 1, 130}, .initial_state = true},
                                   check::Problem{.T = 100, .H = 1, .strided = true}}) {
        problem.dtype = example.dtype, problem.sizes = {{"K", example.k}, {"V", example.v}};
        const bool back = example.entry == "backward";
        check::Buffers buffers(back ? program::tensors_of(example.entry, def) : def, problem);
        const check::Reference reference = back ? check::backward_reference(buffers, def, plan.schedule.chunk)
                                                : check::reference(buffers, plan.schedule.chunk);
        std::vector<std::vector<std::byte>> first;
        for (const unsigned seed : {1U, 2U}) {
            check::clear_results(buffers);
            ASSERT_NO_THROW(program.run(buffers.call(), seed));
            for (const check::Difference& d : check::compare(buffers, reference).differences)
                EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token << ", T "
                                  << problem.T;
            std::vector<std::vector<std::byte>> bits;
            for (const auto& [name, x] : buffers.outputs) bits.push_back(x.storage);
            for (const auto& [name, x] : buffers.final_states) bits.push_back(x.storage);
            if (first.empty()) first = bits;
            EXPECT_EQ(first, bits) << "other bits";
            if (!problem.lengths.empty()) break;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Gpus, WarpsKernels,
    testing::Values(Example{"gated_delta_net", "a100"}, Example{"kda", "a100", "forward", F16, 100, 60},
                    Example{"linear_attention", "a100", "forward", F32, 64, 64}, Example{"mlstm", "a100"},
                    Example{"delta_product", "rtx4090"}, Example{"gla", "rtx4090"},
                    Example{"gated_delta_net", "rtx4090", "forward", BF16, 128, 64, "segmented"},
                    Example{"gated_delta_net", "a100", "backward"}, Example{"rwkv6", "a100", "backward", BF16, 64, 64},
                    Example{"scalar_gla", "rtx4090", "backward"}, Example{"delta_net", "rtx4090", "backward"},
                    Example{"kda", "rtx4090", "backward"}));

/// The engine that a program has there unasked.
plan::Engine engine_on(const std::string& gpu, const std::string& program, const std::string& entry) {
    const ir::Definition def = graph::with_phases(program_named(program).make().define());
    return emitted(def, {program, gpu, entry})->plan.schedule.engine;
}

// What has matrices has kernels for matrix units everywhere.
TEST(WarpsOn, GpusOfAllKinds) {
    for (const std::string program :
         {"retnet", "gla", "hgrn2", "delta_net", "gated_delta_net", "kda", "rwkv6", "mlstm"})
        for (const std::string entry : {"forward", "backward"}) {
            EXPECT_EQ(engine_on("h200", program, entry), plan::Engine::WarpGroups) << program << " " << entry;
            EXPECT_EQ(engine_on("a100", program, entry), plan::Engine::Warps) << program << " " << entry;
            EXPECT_EQ(engine_on("rtx4090", program, entry), plan::Engine::Warps) << program << " " << entry;
        }
}

}  // namespace
}  // namespace forge::tests
