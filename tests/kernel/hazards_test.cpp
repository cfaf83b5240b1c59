/// The verifier of hazards: each of its rules on a few lines of text, and its silence on every kernel that is emitted.
#include "kernel/hazards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "emit/cuda/emit_cuda.h"
#include "forge/error.h"
#include "kernel/synchronise.h"
#include "tests/kernel/plans.h"
#include "tests/support/expected.h"
#include "tests/support/turns.h"

namespace forge::tests {
namespace {

constexpr const char* kAlone = "kernel \"one group\"\n";
/// One group fills two buffers for another.
constexpr const char* kHandedOver =
    "kernel \"two groups\"\n"
    "role writer: 1 of 4 warps makes\n"
    "role reader: 1 of 4 warps makes\n"
    "channel full: 2 buffers by turn from writer to reader filled 4 empty 4 at \"scratch\"[1000:1032]\n";

std::string hazards(const std::string& text) {
    return fmt::format("{}", fmt::join(kernel::find_hazards(kernel::parse(text)), "\n"));
}

struct Rule {
    std::string name, text, hazard;  ///< empty: there is none
};

void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.text; }

class HazardRules : public testing::TestWithParam<Rule> {};

TEST_P(HazardRules, AreAsStated) {
    const Rule& rule = GetParam();
    const std::string found = hazards(rule.text);
    if (rule.hazard.empty()) EXPECT_EQ(found, "");
    else EXPECT_NE(found.find(rule.hazard), std::string::npos) << "found: " << found;
}

std::string alone(const std::string& body) { return std::string(kAlone) + "{\n" + body + "}\n"; }

const std::string kReader =
    "  role \"reader\" {\n"
    "    loop \"chunks\" {\n"
    "      wait full.filled\n"
    "      issue \"p\" reads full \"scratch\"[0:64 + 64 * chunk % 2] writes %p\n"
    "      finish of \"p\"\n"
    "      arrive full.empty\n"
    "    }\n"
    "  }\n";

std::string handed_over(const std::string& writes, const std::string& reader = kReader) {
    return std::string(kHandedOver) + "{\n  begin\n  block_barrier\n  role \"writer\" {\n    loop \"chunks\" {\n" +
           writes + "    }\n  }\n" + reader + "}\n";
}

std::vector<Rule> rules() {
    const std::string write = "compute \"w\" writes \"scratch\"[0:64]\n",
                      read = "compute \"r\" reads \"scratch\"[0:64]\n";
    const std::string product = "issue \"p\" reads \"scratch\"[0:64] writes %p\n", end = "finish of \"p\"\n";
    const std::string copy = "copy \"c\" writes \"scratch\"[0:64]\n";
    const std::string copies = "copy \"c\" writes \"scratch\"[0:64 + 64 * chunk % 2]\n",
                      uses = "compute \"r\" reads \"scratch\"[0:64 + 64 * chunk % 2]\n";
    const std::string fill =
        "wait full.empty\n move \"m\" writes full \"scratch\"[0:64 + 64 * chunk % 2]\n fence\n arrive full.filled\n";
    return {
        {"ReadsAfterABarrier", alone(write + "barrier\n" + read), ""},
        {"ReadsWithoutABarrier", alone(write + read), "reads scratch, which compute 'w' of a thread may still write"},
        {"WritesWithoutABarrier", alone(read + write), "which compute 'w' of a thread may still write"},
        {"WritesTwice", alone(write + "compute \"v\" writes \"scratch\"[32:40]\n"), "may still write"},
        {"WritesBesideOneAnother", alone(write + "compute \"v\" writes \"scratch\"[64:80]\n"), ""},
        {"WritesInOtherBuffers", alone(write + "compute \"v\" writes \"other\"[0:64]\n"), ""},
        {"FindsWhatTheNextChunkDoes", alone("loop \"chunks\" {\n" + write + "barrier\n" + read + "}\n"),
         "which compute 'w' of a thread may still write"},
        {"IsContentWithTwoBarriers", alone("loop \"chunks\" {\n" + write + "barrier\n" + read + "barrier\n}\n"), ""},
        {"WaitsForProducts", alone("issue \"p\" writes %p\n finish of \"p\"\n compute \"r\" reads %p\n"), ""},
        {"KnowsProductsThatAreOver", alone("issue \"p\" over writes %p\n compute \"r\" reads %p\n"), ""},
        {"KnowsProductsBeforeThose",
         alone("issue \"p\" writes %p\n issue \"q\" over writes %q\n compute \"r\" reads %p, %q\n"), ""},
        {"MissesProducts", alone("issue \"p\" writes %p\n compute \"r\" reads %p\n"), "reads p, which issue 'p'"},
        {"CountsProducts",
         alone("issue \"p\" writes %p\n issue \"q\" writes %q\n finish pending 1 of \"p\"\n compute \"r\" reads %q\n"),
         "reads q, which issue 'q'"},
        {"KeepsOperandsOfProducts", alone(product + write + end), "writes scratch, which issue 'p'"},
        {"WantsAFence", alone(write + "barrier\n" + product + end), "without a fence"},
        {"WantsTheFenceBeforeTheBarrier", alone(write + "barrier\n fence\n" + product + end), "without a fence"},
        {"HasAFence", alone(write + "fence\n barrier\n" + product + end), ""},
        {"WaitsForCopies", alone(copy + "commit\n copy_wait\n barrier\n" + read), ""},
        {"MissesCopies", alone(copy + "commit\n barrier\n" + read + "copy_wait\n"), "which copy 'c'"},
        {"MissesCopiesNotCommitted", alone(copy + "copy_wait\n barrier\n" + read), "which copy 'c'"},
        {"WantsAFenceAfterCopies", alone(copy + "commit\n fence\n copy_wait\n barrier\n" + product + end),
         "without a fence"},
        {"WaitsForStores",
         alone(write + "fence\n barrier\n store \"s\" reads \"scratch\"[0:64]\n stores_read\n barrier\n" + write +
               "barrier\n"),
         ""},
        {"MissesStores",
         alone(write + "fence\n barrier\n store \"s\" reads \"scratch\"[0:64]\n barrier\n" + write + "stores_read\n"),
         "writes scratch, which store 's'"},
        {"LeavesNoStoreBehind", alone("store \"s\" reads \"scratch\"[0:64]\n"), "under way when the kernel ends"},
        {"WantsTheKernelBefore", "kernel \"k\" overlaps\n{\n compute \"r\" reads global \"x\"[0:1]\n}\n",
         "does not wait for the kernel before"},
        {"HasTheKernelBefore", "kernel \"k\" overlaps\n{\n wait_kernel\n compute \"r\" reads global \"x\"[0:1]\n}\n",
         ""},
        {"CountsEachTasksChunks",
         alone("function \"start\" {\n" + copies +
               "}\nloop \"tasks\" of_tasks {\n use \"start\"\n commit\n loop "
               "\"chunks\" {\n copy_wait\n barrier\n" +
               uses + "barrier\n use \"start\" ahead 1\n commit\n}\n}\n"),
         ""},
        {"LeavesTasksNothing", alone("loop \"tasks\" of_tasks {\n" + write + "barrier\n" + read + "}\n"),
         "which compute 'w' of a thread may still write"},
        {"HandsOver", handed_over(fill), ""},
        {"WaitsForEmptyBuffers",
         handed_over("move \"m\" writes full \"scratch\"[0:64 + 64 * chunk % 2]\n fence\n arrive full.filled\n"),
         "reader: issue 'p' reads scratch, which move 'm' of writer may still write"},
        {"AnnouncesAfterWriting",
         handed_over("wait full.empty\n fence\n arrive full.filled\n move \"m\" writes full \"scratch\"[0:64 + 64 * "
                     "chunk % 2]\n"),
         "may still write"},
        {"NeverAnnounces", handed_over("wait full.empty\n"), "waits for what never comes: wait full.filled"},
        {"HasAsManyBuffersAsItSays",
         handed_over("wait full.empty\n move \"m\" writes full \"scratch\"[0:64]\n fence\n arrive full.filled\n"),
         "reader: issue 'p' reads scratch, which move 'm' of writer may still write"},
        {"WaitsForTheRightRound",
         handed_over("wait full.empty ahead 1\n move \"m\" writes full \"scratch\"[0:64 + 64 * chunk % 2]\n fence\n "
                     "arrive full.filled\n"),
         "waits for what never comes"},
        {"ArrivesInItsPhase", handed_over(fill + "arrive full.filled\n"), "may come in the phase before"},
    };
}

INSTANTIATE_TEST_SUITE_P(Each, HazardRules, testing::ValuesIn(rules()),
                         [](const auto& test) { return test.param.name; });

// The barriers of a channel must have begun, for all threads, before any arrives.
TEST(Hazards, AreThereIfAChannelHasNotBegun) {
    const std::string text = handed_over(
        "wait full.empty\n move \"m\" writes full \"scratch\"[0:64 + 64 * chunk % 2]\n fence\n arrive full.filled\n");
    std::string without = text;
    without.replace(without.find("  block_barrier\n"), 16, "");
    EXPECT_NE(hazards(without).find("begin"), std::string::npos) << hazards(without);
    without = text;
    without.replace(without.find("  begin\n"), 8, "");
    EXPECT_NE(hazards(without).find("has no barriers yet"), std::string::npos) << hazards(without);
}

TEST(Hazards, AreOneInternalError) {
    const kernel::Kernel racy =
        kernel::parse(alone("compute \"w\" writes \"s\"[0:4]\n compute \"r\" reads \"s\"[0:4]\n"));
    EXPECT_THROW(kernel::verify(racy), InternalError);
}

// All programs, engines, strategies, types and sizes; and what is read back from the text is the same.
class EmittedKernels : public testing::TestWithParam<Entry> {};

TEST_P(EmittedKernels, HaveNoHazards) {
    int kernels = 0;
    const auto check = [&](const std::string& name, const plan::Plan& plan) {
        for (const kernel::Kernel& kernel : emit::kernels_of(emit::cuda_source(plan))) {
            ++kernels;
            EXPECT_EQ(kernel::find_hazards(kernel), std::vector<std::string>{}) << name << ", " << kernel.name;
            const std::string text = kernel::print(kernel);
            EXPECT_TRUE(same_text(text, kernel::print(kernel::parse(text)))) << name;
        }
    };
    if (has_turn(GetParam(), 4)) each_portable_plan(GetParam(), check);
    each_warp_group_plan(GetParam(), check), each_channel_plan(GetParam(), check);
    EXPECT_GT(kernels, 0);
}

INSTANTIATE_TEST_SUITE_P(All, EmittedKernels, testing::ValuesIn(all_programs()), name_of);

// Barriers stand where operations depend on one another, and only there.
TEST(Synchronise, PutsBarriersBetweenDependentOperations) {
    kernel::Kernel k = kernel::parse(
        "kernel \"k\"\n{\n"
        "compute \"a\" writes \"s\"[0:8]\n"
        "compute \"b\" writes \"s\"[8:16]\n"
        "compute \"c of a\" reads \"s\"[0:8] writes \"s\"[16:24]\n"
        "compute \"d of b\" reads \"s\"[8:16] writes \"s\"[24:32]\n"
        "compute \"e over a\" writes \"s\"[4:6]\n"
        "rest\n"
        "rest\n}\n");
    kernel::synchronise(k);
    std::string order;
    for (const kernel::Statement& s : k.body) order += s.kind == kernel::Kind::Barrier ? "| " : s.what + " ";
    EXPECT_EQ(order, "a b | c of a d of b | e over a | ");
}

// A loop may have no turn: barriers within it are none for what stands before and after.
TEST(Synchronise, PutsABarrierBehindALoopThatMayHaveNoTurn) {
    kernel::Kernel k = kernel::parse(
        "kernel \"k\"\n{\n"
        "compute \"load\" writes \"s\"[0:8]\n"
        "loop \"chunks\" {\n"
        "compute \"next\" reads \"s\"[0:8] writes \"s\"[8:16]\n"
        "compute \"state\" reads \"s\"[8:16] writes \"s\"[0:8]\n"
        "compute \"other\" reads \"s\"[0:8]\n}\n"
        "compute \"store\" reads \"s\"[0:8]\n}\n");
    kernel::synchronise(k);
    ASSERT_EQ(k.body.size(), 4U);
    EXPECT_EQ(k.body[2].kind, kernel::Kind::Barrier);
    EXPECT_TRUE(kernel::find_hazards(k).empty()) << kernel::print(k);
}

TEST(KernelText, SaysWhereItIsWrong) {
    for (const auto& [text, wanted] : std::vector<std::pair<std::string, std::string>>{
             {"", "kernel"},
             {"kernel x", "a name in quotes"},
             {"kernel \"x\"\n{\n jump\n}", "a statement"},
             {"kernel \"x\"\n{\n compute reads \"s\"[0:y]\n}", "a number"},
             {"kernel \"x\"\n{\n compute reads \"s\"[0:8 + 8 * chunk % 0]\n}", "a number of buffers"},
             {"kernel \"x\"\n{\n", "a word"},
             {"kernel \"x\"\n{\n}\n}", "the end"},
             {"kernel \"x", "a closing quote"}}) {
        try {
            static_cast<void>(kernel::parse(text));
            ADD_FAILURE() << "accepted: " << text;
        } catch (const CompileError& e) {
            EXPECT_NE(std::string(e.what()).find(wanted), std::string::npos) << text << "\n" << e.what();
        }
    }
}

}  // namespace
}  // namespace forge::tests
