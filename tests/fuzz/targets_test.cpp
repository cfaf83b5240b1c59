/// Every target on inputs from fixed seeds, and on those that once were faults. `scripts/fuzz` runs them for longer.
#include "tests/fuzz/targets.h"

#include <gtest/gtest.h>

#include "tests/support/expected.h"

namespace forge::fuzz {
namespace {

struct Row {
    const char* name;
    int inputs;
};

class Targets : public testing::TestWithParam<Row> {};

TEST_P(Targets, AcceptOrRefuse) {
    const auto target = make_target(GetParam().name);
    int accepted = 0;
    for (int i = 0; i < GetParam().inputs; ++i) {
        const Input input = target->input(20240607 + static_cast<std::uint64_t>(i));
        try {
            if (examine(*target, input) == Outcome::Accepted) ++accepted;
        } catch (const Fault& fault) {
            FAIL() << fault.what() << "\n" << to_string(input);
        }
    }
    EXPECT_GT(accepted, GetParam().inputs / 50) << "hardly anything gets far";
    EXPECT_LT(accepted, GetParam().inputs) << "the mutations hardly change anything";
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Targets,
                         testing::Values(Row{"parser", 6000}, Row{"passes", 140}, Row{"pipeline", 40}, Row{"capi", 200},
                                         Row{"package", 500}),
                         [](const auto& test) { return std::string(test.param.name); });

// tests/fuzz/found/KIND-what.txt
TEST(Found, AreFaultsNoMore) {
    for (const auto& entry : std::filesystem::directory_iterator(tests::root() / "tests/fuzz/found")) {
        const std::string name = entry.path().filename();
        const auto target = make_target(name.substr(0, name.find('-')));
        try {
            examine(*target, parse_input(tests::read_file(entry.path())));
        } catch (const Fault& fault) {
            ADD_FAILURE() << name << ": " << fault.what();
        }
    }
}

}  // namespace
}  // namespace forge::fuzz
