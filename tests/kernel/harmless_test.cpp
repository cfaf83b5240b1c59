/// What the verifier lets be dropped from a kernel's statements may be dropped: without it the kernel, printed from
/// what is left and run on the CPU (tests/cuda/emulated), leaves the same bits whatever the order of its warps, copies
/// and products.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "check/check.h"
#include "emit/cuda/emit_cuda.h"
#include "kernel/hazards.h"
#include "tests/cuda/emulated/program.h"
#include "tests/kernel/faults.h"
#include "tests/kernel/plans.h"

namespace forge::tests {
namespace {

using kernel::Kernel;
using kernel::Kind;
using kernel::Statement;

struct Harmless {
    std::string name, plan;
    std::int64_t k, v;
};
void PrintTo(const Harmless& harmless, std::ostream* out) { *out << harmless.plan; }

/// A fence that is left alone in a kernel of one group, where the function for it is not declared.
std::string for_one_group(std::string source) {
    const std::string alone = " settle();";
    for (std::size_t at = source.find(alone); at != std::string::npos; at = source.find(alone))
        source.replace(at, alone.size(), " ptx::fence_async();");
    return source;
}

/// The sources with what may be dropped from them, one statement each; the first of several that stand alike.
std::vector<std::pair<std::string, std::string>> sources_without(const emit::Source& source) {
    std::vector<std::pair<std::string, std::string>> sources;
    const std::vector<Kernel> kernels = emit::kernels_of(source);
    std::set<std::string> done;
    std::size_t n = 0;
    for (std::size_t s = 0; s < source.statements.size(); ++s) {
        if (source.statements[s].kind != Kind::Kernel) continue;
        const Kernel& kernel = kernels[n++];
        if (kernel.arrivals) continue;  // what waits for its copies is one function, the fence included
        for (const Place& place : synchronising_statements(kernel.body)) {
            const std::string what = kernel.name + ": " + described(kernel.body, place);
            Kernel faulty = kernel;
            drop(faulty.body, place);
            if (!kernel::find_hazards(faulty).empty() || !done.insert(what).second) continue;
            emit::Source edited = source;
            edited.statements[s].body = faulty.body;
            if (print(edited) != print(source)) sources.emplace_back(what, for_one_group(print(edited)));
        }
    }
    return sources;
}

std::vector<std::vector<std::byte>> results_of(const emulated::Program& program, check::Buffers& buffers,
                                               unsigned seed) {
    check::clear_results(buffers);
    program.run(buffers.call(), seed);
    std::vector<std::vector<std::byte>> all;
    for (const auto* list : {&buffers.outputs, &buffers.final_states})
        for (const auto& [name, x] : *list) all.push_back(x.storage);
    return all;
}

class HarmlessDrops : public testing::TestWithParam<Harmless> {};

TEST_P(HarmlessDrops, AreHarmlessInAnyOrder) {
    const plan::Plan plan = plan_named(GetParam().plan);
    const emit::Source source = emit::cuda_source(plan);
    const ir::Definition declared = program_named(plan.definition.name).make().define();
    std::vector<check::Buffers> problems;
    for (check::Problem problem : {check::Problem{.T = 330, .H = 1, .initial_state = true},
                                   check::Problem{.H = 1, .lengths = {70, 0, 1, 200}}}) {
        problem.sizes = {{"K", GetParam().k}, {"V", GetParam().v}}, problem.dtype = BF16;
        problems.emplace_back(declared, problem);
    }
    const emulated::Program whole("whole_" + GetParam().name, plan);
    int count = 0;
    for (const auto& [what, text] : sources_without(source)) {
        SCOPED_TRACE(what);
        const emulated::Program program(fmt::format("{}_{}", GetParam().name, count++), plan,
                                        [&, &edited = text](std::string& emitted) { emitted = edited; });
        for (check::Buffers& buffers : problems)
            for (const unsigned seed : {1U, 2U, 3U})
                EXPECT_TRUE(results_of(whole, buffers, 1) == results_of(program, buffers, seed)) << "seed " << seed;
    }
    EXPECT_GT(count, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Some, HarmlessDrops,
    testing::Values(Harmless{"Alone", "weighted_tokens, warp groups, one-pass, bf16, 64 x 64, 512 tasks", 64, 64},
                    Harmless{"Paired", "scalar_gla, warp groups, one-pass, bf16, 64 x 64, 512 tasks", 64, 64},
                    Harmless{"Blocks", "gated_delta_net, warp groups, one-pass, bf16, 128 x 128, 512 tasks", 128, 128},
                    Harmless{"Apart", "kda, warp groups, one-pass, bf16, 128 x 128, 512 tasks", 128, 128},
                    Harmless{"Beside", "gated_delta_net, warp groups, one-pass, bf16, 64 x 64, 32 tasks", 64, 64}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace forge::tests
