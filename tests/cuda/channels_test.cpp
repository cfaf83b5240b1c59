/// Channel kernels, run: the emitted source, compiled for the CPU with fibers for threads (emulated/), against the float64
/// recurrence. Blocks run in orders that differ from seed to seed and must leave the same bits.
#include <gtest/gtest.h>

#include "build/cuda_binary.h"
#include "check/check.h"
#include "check/suite.h"
#include "emit/cuda/emit_cuda.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "graph/pipeline.h"
#include "runtime/device_call.h"
#include "schedule/channels.h"
#include "support/environment.h"
#include "tests/cuda/emulated/blocks.h"
#include "tests/cuda/emulated/kernels.h"
#include "tests/novel/novel.h"
#include "tests/support/expected.h"

namespace forge {
namespace {

using variants::Entry;

std::optional<plan::Schedule> schedule_for(const ir::Definition& def, int threads) {
    return schedule::fit_channels(def, graph::optimize(frontend::join(def)), {}, threads);
}

std::vector<Entry> channel_programs() {
    std::vector<Entry> found;
    for (const auto* list : {&variants::all(), &novel::all()})
        for (const Entry& entry : *list)
            if (schedule_for(entry.make().define(), 64)) found.push_back(entry);
    return found;
}

TEST(ChannelPrograms, AreThoseOfVectorStatesWithoutProducts) {
    std::vector<std::string> names;
    for (const Entry& entry : channel_programs()) names.push_back(entry.name);
    EXPECT_EQ(names, (std::vector<std::string>{"hgrn", "hawk", "leaky_averages"}));
}

TEST(ChannelPrograms, AreCompiledWithoutSpills) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Any)) GTEST_SKIP() << "neither libnvrtc nor nvcc is on this machine";
    struct Target {
        const char* arch;
        int threads;
        DType dtype;
    };
    for (const Entry& entry : channel_programs())
        for (const auto& [arch, threads, dtype] : {Target{"sm_80", 256, F16}, {"sm_90", 256, BF16}, {"sm_90", 512, BF16}, {"sm_90", 256, F32}}) {
            const ir::Definition def = frontend::with_dtype(entry.make().define(), dtype);
            const auto plan = plan::make_plan(def, graph::optimize(frontend::join(def)), {{"D", 1024}}, *schedule_for(def, threads));
            const build::CudaBinary binary = build::build_cuda_binary(entry.name, emit::emit_cuda(plan), arch, support::default_cache_dir());
            ASSERT_EQ(binary.kernels.size(), 1U) << binary.report;
            EXPECT_EQ(binary.kernels[0].spill_bytes, 0) << entry.name << "\n" << binary.report;
        }
}

TEST(ChannelPrograms, AreOthersIfChunksOrStrategiesMatter) {
    ir::Definition def = variants::find("hgrn")->make().define();
    const ir::Function program = graph::optimize(frontend::join(def));
    schedule::FitWishes wishes;
    EXPECT_TRUE(schedule::fit_channels(def, program, wishes, 256));
    wishes.strategy = plan::Strategy::Segmented;
    EXPECT_FALSE(schedule::fit_channels(def, program, wishes, 256));
    def.step.reset();  // chunks of any size need no longer be the same thing
    EXPECT_FALSE(schedule::fit_channels(def, program, {}, 256));
}

TEST(ChannelPrograms, SourceIsAsBefore) {
    const ir::Definition def = variants::find("hgrn")->make().define();
    const std::string source = emit::emit_cuda(plan::make_plan(def, graph::optimize(frontend::join(def)), {{"D", 1024}}, *schedule_for(def, 256)));
    EXPECT_TRUE(tests::same_as_file(tests::root() / "tests/golden/hgrn_channels.cu", source));
}

/// A program's kernel, ready to be called with tensors in the CPU's memory.
class EmulatedKernel {
 public:
    EmulatedKernel(const emulated::Device& device, const ir::Definition& def, const tile::Sizes& sizes, int threads)
        : plan_(plan::make_plan(def, graph::optimize(frontend::join(def)), sizes, *schedule_for(def, threads))),
          library_(device.build(def.name, emit::emit_cuda(plan_))),
          kernel_(reinterpret_cast<Kernel>(library_.kernel(emit::kernel_symbol(plan_.kernels[0])))) {}  // NOLINT: dlsym

    void run(Call call, int blocks, unsigned seed) const {
        const runtime::Bound bound = runtime::bind(plan_, call, runtime::Lengths::OnDevice);
        std::vector<std::max_align_t> workspace(runtime::device_workspace_bytes(plan_, bound) / sizeof(std::max_align_t) + 1);
        call.workspace = workspace.data();
        const runtime::DeviceLayout layout(plan_, call, bound, blocks);
        const runtime::DeviceLayout::KernelCall& kernel = layout.kernels()[0];
        if (kernel.tasks == 0) return;
        const runtime::Addresses addresses = runtime::addresses_of(plan_, call);
        cuda::Call arguments = layout.with(addresses);
        runtime::DeviceLayout::select(arguments, kernel, addresses);
        std::memset(arguments.exchange, 0xFF, kernel.exchange_bytes);
        const emit::Launch how = emit::launch_of(plan_, plan_.kernels[0]);
        emulated::run(library_.machine(), {blocks, how.threads, static_cast<std::size_t>(how.shared_bytes), seed}, [&] { kernel_(arguments); });
    }

 private:
    using Kernel = void (*)(cuda::Call);
    plan::Plan plan_;
    emulated::Library library_;
    Kernel kernel_;
};

struct Example {
    std::string program;
    DType dtype;
    std::int64_t channels;
    int threads;
};

class ChannelKernels : public testing::TestWithParam<Example> {
 protected:
    static std::vector<std::vector<std::byte>> results(const check::Buffers& buffers) {
        std::vector<std::vector<std::byte>> all;
        for (const auto* list : {&buffers.outputs, &buffers.final_states})
            for (const auto& [name, x] : *list) all.push_back(x.storage);
        return all;
    }
};

TEST_P(ChannelKernels, DoWhatTheRecurrenceSays) {
    const Example& run = GetParam();
    const emulated::Device device;
    const std::vector<Entry> programs = channel_programs();
    const ir::Definition declared = std::find_if(programs.begin(), programs.end(), [&](const Entry& e) { return e.name == run.program; })->make().define();
    const std::map<std::string, std::int64_t> sizes = {{"K", run.channels}, {"V", run.channels}, {"D", run.channels}};
    const ir::Definition def = frontend::with_dtype(declared, run.dtype);
    std::vector<check::Case> cases = check::awkward_cases(declared, run.dtype, sizes, 1);
    cases.push_back({"a sequence of many groups", {.B = 2, .T = 16 * 8 * (run.threads / 32) * 3 + 5, .H = 2, .sizes = sizes, .dtype = run.dtype, .initial_state = true}});
    const EmulatedKernel kernel(device, def, check::sizes_for(def, cases[0].problem), run.threads);
    for (const check::Case& c : cases) {
        check::Buffers buffers(declared, c.problem);
        const check::Reference reference = check::reference(buffers, 64);
        std::vector<std::vector<std::byte>> first;
        for (const auto& [blocks, seed] : {std::pair{1, 1U}, {3, 2U}, {5, 3U}}) {
            check::clear_results(buffers);
            kernel.run(buffers.call(), blocks, seed);
            for (const check::Difference& d : check::compare(buffers, reference).differences) EXPECT_TRUE(d.ok) << c.name << ": " << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
            if (first.empty()) first = results(buffers);
            EXPECT_EQ(first, results(buffers)) << c.name << ": other bits with " << blocks << " blocks";
        }
    }
}

// A decay of 0 forgets all earlier states, so that tiles need not wait for one another, unless the last may overwrite what
// the first has yet to read.
TEST(ChannelKernelsInPlace, FinalStatesMayReplaceInitialOnes) {
    const emulated::Device device;
    const ir::Definition def = frontend::with_dtype(variants::find("hgrn")->make().define(), F32);
    const std::map<std::string, std::int64_t> sizes = {{"D", 64}};
    const EmulatedKernel kernel(device, def, sizes, 64);
    for (const double gate : {-1e-3, -1000.0}) {
        check::Problem problem{.B = 2, .T = 600, .H = 1, .sizes = sizes, .initial_state = true};
        problem.gate = gate;
        check::Buffers buffers(def, problem);
        kernel.run(buffers.call(), 1, 1);
        const check::OwnedTensor apart = buffers.final_states.at("h"), before = buffers.initial_states.at("h");
        const auto outputs = buffers.outputs.at("o").storage;
        for (unsigned seed = 1; seed <= 5; ++seed) {
            buffers.initial_states.at("h").storage = before.storage;
            Call call = buffers.call();
            call.final_states.at("h").data = call.initial_states.at("h").data;
            kernel.run(call, 7, seed);
            EXPECT_EQ(buffers.initial_states.at("h").storage, apart.storage) << "gate " << gate;
            EXPECT_EQ(buffers.outputs.at("o").storage, outputs) << "gate " << gate;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Emulated, ChannelKernels,
                         testing::Values(Example{"hgrn", BF16, 136, 64}, Example{"hgrn", F32, 60, 64}, Example{"hawk", F16, 130, 128}, Example{"leaky_averages", BF16, 64, 64}),
                         [](const auto& test) { return fmt::format("{}_{}_{}", test.param.program, to_string(test.param.dtype), test.param.channels); });

}  // namespace
}  // namespace forge
