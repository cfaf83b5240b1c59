/// Which kernels programs get on an H200, as docs/performance.md lists them.
#include "tests/record/engines.h"

#include <gtest/gtest.h>

#include "tests/support/expected.h"

namespace forge::tests {
namespace {

constexpr int kGroups = 8;

/// Every eighth program each: planning them all takes a minute.
class Engines : public testing::TestWithParam<int> {};

TEST_P(Engines, AreThoseOfTheTable) {
    std::vector<variants::Entry> programs;
    int next = 0;
    for (const auto* all : {&variants::all(), &novel::recurrences()})
        for (const variants::Entry& program : *all)
            if (next++ % kGroups == GetParam()) programs.push_back(program);
    const std::string page = read_file(root() / "docs/performance.md");
    for (const std::string& row : engine_rows(programs))
        EXPECT_NE(page.find("\n" + row + "\n"), std::string::npos)
            << "not in docs/performance.md (build/record_engines prints the table): " << row;
}

INSTANTIATE_TEST_SUITE_P(Some, Engines, testing::Range(0, kGroups));

}  // namespace
}  // namespace forge::tests
