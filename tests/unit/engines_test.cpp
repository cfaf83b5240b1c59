/// Which kernels programs get on an H200, as docs/performance.md lists them.
#include "tests/record/engines.h"

#include <gtest/gtest.h>

#include "tests/support/expected.h"

namespace forge::tests {
namespace {

TEST(Engines, AreThoseOfTheTable) {
    const std::string page = read_file(root() / "docs/performance.md");
    for (const auto* programs : {&variants::all(), &novel::recurrences()})
        for (const std::string& row : engine_rows(*programs))
            EXPECT_NE(page.find("\n" + row + "\n"), std::string::npos)
                << "not in docs/performance.md (build/record_engines prints the table): " << row;
}

}  // namespace
}  // namespace forge::tests
