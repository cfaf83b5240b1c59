/// Random programs from a fixed seed, through every engine that needs no GPU: all of them are planned for GPUs and
/// their sources written; what compiles and runs takes turns. `scripts/fuzz-programs` goes on from here. And the
/// definitions in which such runs found faults, which stay.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "build/cuda_binary.h"
#include "graph/derive.h"
#include "interp/semantics.h"
#include "tests/random/examine.h"
#include "tests/random/oracle.h"
#include "tests/random/program.h"
#include "tests/support/expected.h"
#include "tests/support/turns.h"

namespace forge::fuzz {
namespace {

constexpr std::uint64_t kFirst = 1000;
constexpr int kGroups = 5, kInGroup = 2;

/// Every so many seeds; 0: none.
auto every(std::uint64_t n) {
    return [n](std::uint64_t seed) { return n > 0 && seed % n == 0; };
}

class RandomPrograms : public testing::TestWithParam<int> {};

TEST_P(RandomPrograms, AreRightOnEveryEngine) {
    const std::vector<Engine> engines = {
        interpreter_engine(), gradients_engine(),   sources_engine(every(0)), cpu_engine(1),
        backward_engine(),    kept_states_engine(), emulated_engine(every(3))};
    Tally tally;
    for (int i = 0; i < kInGroup; ++i) {
        const std::uint64_t seed = kFirst + static_cast<std::uint64_t>(GetParam() * kInGroup + i);
        const auto fault = examine(seed, {}, engines, tally);
        EXPECT_FALSE(fault) << report(*fault) << "Shrink it: scripts/fuzz-programs --programs 1 --seed " << seed;
    }
}

INSTANTIATE_TEST_SUITE_P(Fixed, RandomPrograms, testing::Range(0, kGroups));

/// Decisions that few seeds take: values of length 1 or that sum to 1, two rows of outputs per token, and kernels that
/// others are left to if they do not fit.
const Decisions::Forced kSeldom[] = {
    {{"blocks", 1}, {"v_a.form", 1}},
    {{"blocks", 1}, {"v_a.form", 12}},
    {{"blocks", 1}, {"warp.scans_apart", 1}, {"emulated_backward.scans_apart", 1}, {"warp.strategy", 2}},
    {{"blocks", 1}, {"emulated_backward.between", 1}},
    {{"blocks", 1}, {"warp.halved", 1}, {"emulated_backward.halved", 1}, {"warp.strategy", 2}},
    {{"blocks", 1}, {"warp.whole", 1}, {"warp.strategy", 3}},
    {{"blocks", 1}, {"warp.tiles_ahead", 1}, {"warp.strategy", 1}, {"warp.by_warps", 0}},
    {{"blocks", 1}, {"warp.late", 1}, {"emulated_backward.late", 1}, {"warp.strategy", 3}},
    {{"blocks", 1}, {"warp.folds", 1}, {"emulated_backward.folds", 1}, {"warp.strategy", 2}},
    {{"blocks", 1}, {"warp.apart", 1}, {"warp.strategy", 1}, {"warp.folds", 1}, {"warp.by_warps", 0}},
    {{"blocks", 1}, {"warp.by_warps", 1}, {"emulated_backward.small", 1}},
    {{"blocks", 1}, {"o.twice", 1}, {"o.apart", 1}, {"o.wide", 0}, {"wide", 0}},
    {{"blocks", 1}, {"axes", 2}, {"size.K", 0}, {"size.V", 0}, {"k_a.turned", 1}, {"q_a.turned", 1}},
};

class SeldomKernels : public testing::TestWithParam<int> {};

TEST_P(SeldomKernels, AreRight) {
    constexpr std::uint64_t kPrograms = 2;
    const std::vector<Engine> engines = {emulated_engine(every(2)), emulated_backward_engine(every(2))};
    Tally tally;
    for (std::uint64_t seed = kFirst; seed < kFirst + kPrograms; ++seed) {
        const auto fault = examine(seed, kSeldom[GetParam()], engines, tally);
        EXPECT_FALSE(fault) << report(*fault);
    }
    EXPECT_GE(tally["emulated: warp groups"] + tally["emulated: warps"] + tally["emulated: backward, warp groups"] +
                  tally["emulated: backward, warps"],
              1);
}

INSTANTIATE_TEST_SUITE_P(Fixed, SeldomKernels, testing::Range(0, static_cast<int>(std::size(kSeldom))));

/// A step is enough, or is refused in words: what is derived from it agrees with it in float64.
TEST(RandomSteps, AreDerived) {
    constexpr int kPrograms = 120;
    int derived = 0;
    for (std::uint64_t seed = 0; seed < kPrograms; ++seed) {
        Decisions decisions(seed);
        try {
            Program program = make_program(decisions);
            if (!program.def.step || !interp::check_semantics(program.def).empty()) continue;
            program.def.chunk = program.def.decay = program.def.merge = {};
            program.def = graph::derive(program.def);
            for (const Diagnostic& d : interp::check_semantics(program.def)) ADD_FAILURE() << seed << ": " << d.what;
            for (const std::string& fault : faults_in_float64(program, make_problem(decisions, program, "p0", 16), 16))
                ADD_FAILURE() << seed << ": " << fault;
            ++derived;
        } catch (const CompileError&) {
            continue;  // refused: by the language, or as not affine
        }
    }
    EXPECT_GE(derived, kPrograms / 2);
}

TEST(RandomSources, Compile) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Any))
        GTEST_SKIP() << "neither libnvrtc nor nvcc is on this machine";
    Tally tally;
    for (std::uint64_t seed = kFirst; seed < kFirst + kGroups * kInGroup; seed += 7) {
        const auto fault = examine(seed, {}, {sources_engine(every(1))}, tally);
        EXPECT_FALSE(fault) << report(*fault);
    }
}

// A generator whose programs are refused, or never come to an engine, tests little.
TEST(RandomPrograms, ReachEveryEngine) {
    constexpr int kPrograms = 150;
    Tally tally;
    for (std::uint64_t seed = 0; seed < kPrograms; ++seed) examine(seed, {}, {sources_engine(every(0))}, tally);
    EXPECT_LE(tally["refused"], kPrograms / 50);
    EXPECT_GE(tally["sm_90a: warp groups"], kPrograms / 3);
    EXPECT_GE(tally["sm_90a: channels"], 2);
    EXPECT_GE(tally["sm_80: portable"], kPrograms / 2);
    for (const char* trait : {"several rows per token", "several outputs", "no value axis", "normaliser", "prev_token",
                              "l2norm", "raw gates", "grouped heads", "no step", "number as state", "vector state",
                              "inverse", "maximum", "numbers as axes", "rank 3", "amax among decays"})
        EXPECT_GE(tally[std::string("with ") + trait], 1) << trait;
}
TEST(RandomPrograms, ReachWarpGroupsInGradients) {
    constexpr int kPrograms = 60;
    Tally tally;
    for (std::uint64_t seed = 0; seed < kPrograms; ++seed) examine(seed, {}, {backward_sources_engine()}, tally);
    EXPECT_GE(tally["gradients: warp groups"], kPrograms / 4);
    EXPECT_GE(tally["gradients: tiles"], kPrograms / 10);
}

std::vector<std::string> found_before() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(tests::root() / "tests/random/found"))
        names.push_back(entry.path().stem().string());
    std::sort(names.begin(), names.end());
    return names;
}

/// Whether a report's first line has one of these words.
bool names_any(const std::string& report, const std::vector<std::string>& words) {
    const std::string line = report.substr(0, report.find('\n'));
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string& word) { return line.find(word) != std::string::npos; });
}
/// Which kernels a report is about: all where it names no engine.
bool is_for_gpus(const std::string& report) {
    return tests::every_way() || !names_any(report, {"Found by backward", "Found by cpu"});
}
bool is_for_cpus(const std::string& report) {
    return tests::every_way() || !names_any(report, {"by emulated", "on emulated", "on a GPU", "by device"});
}
bool is_for_the_forward_pass(const std::string& report) {
    return tests::every_way() || !names_any(report, {"emulated backward", "emulated-backward", "device backward"});
}

/// What a run of random programs has found once.
class FoundOnce : public testing::TestWithParam<std::string> {};

TEST_P(FoundOnce, IsMended) {
    const std::string text = tests::read_file(tests::root() / "tests/random/found" / (GetParam() + ".txt"));
    const Reported reported = parse_report(text);
    const auto in_gradients = [&](std::uint64_t) { return reported.forced.contains("emulated_backward.strategy"); };
    std::vector<Engine> engines = {interpreter_engine(), gradients_engine(), sources_engine(every(0))};
    if (is_for_cpus(text)) engines.insert(engines.end(), {cpu_engine(1), backward_engine()});
    if (is_for_gpus(text)) {
        if (is_for_the_forward_pass(text)) engines.push_back(emulated_engine(every(1)));
        engines.insert(engines.end(), {emulated_channels_engine(), emulated_backward_engine(in_gradients)});
    }
    Tally tally;
    const auto fault = examine(reported.seed, reported.forced, engines, tally, &reported.program);
    EXPECT_FALSE(fault) << fault->engine << ": " << fault->what.at(0);
}

INSTANTIATE_TEST_SUITE_P(All, FoundOnce, testing::ValuesIn(found_before()),
                         [](const auto& test) { return test.param; });

// Decisions: what shrinking rests on.
TEST(Decisions, FollowFromSeedAndNameAlone) {
    Decisions a(7), b(7);
    const int first = a.below("x", 1000), second = a.below("y", 1000);
    EXPECT_EQ(b.below("y", 1000), second);
    EXPECT_EQ(b.below("x", 1000), first);
    EXPECT_NE(Decisions(8).below("x", 1000), first);
    EXPECT_EQ(Decisions(7, {{"x", 3}}).below("x", 1000), 3);
    EXPECT_EQ(Decisions(7, {{"x", 3}}).below("x", 2), 1);
}

TEST(Decisions, ParseAsTheyPrint) {
    const std::string text = to_string(12, {{"a.there", 0}, {"p0.T", 3}});
    EXPECT_EQ(text, "12:a.there=0,p0.T=3");
    const Decisions parsed = parse_decisions(text);
    EXPECT_EQ(to_string(parsed.seed(), parsed.forced()), text);
}

// An engine that dislikes something tells what is left of a program in the end.
TEST(Shrinking, LeavesWhatMatters) {
    const Engine dislikes_inverses{"test", [](Subject& s, Tally&) {
                                       return s.program.has("inverse") ? std::vector<std::string>{"an inverse"}
                                                                       : std::vector<std::string>{};
                                   }};
    int shrunk = 0;
    Tally tally;
    for (std::uint64_t seed = 1; shrunk < 3 && seed < 100; ++seed) {
        const auto fault = examine(seed, {}, {dislikes_inverses}, tally);
        if (!fault) continue;
        ++shrunk;
        const Fault least = shrink(
            *fault, [&](const Decisions::Forced& forced) { return examine(seed, forced, {dislikes_inverses}, tally); });
        const Reported reported = parse_report(report(least));
        EXPECT_EQ(reported.program.def.states.size(), 1U);
        EXPECT_LE(reported.program.def.inputs.size(), 4U) << report(least);
    }
    EXPECT_EQ(shrunk, 3);
}

}  // namespace
}  // namespace forge::fuzz
