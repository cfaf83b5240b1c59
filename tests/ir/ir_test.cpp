/// Graph passes on IR text. A file tests/ir/*.ir says which passes run, gives a function, and after `// CHECK:` the
/// function that must come out, to the letter; scripts/update-tests writes that part.
#include <algorithm>
#include <sstream>
#include <vector>

#include "graph/pipeline.h"
#include "tests/support/expected.h"

namespace forge::tests {
namespace {

const std::string kRun = "// RUN: ", kCheck = "// CHECK:\n";

std::vector<std::string> files() {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(root() / "tests/ir"))
        if (entry.path().extension() == ".ir") found.push_back(entry.path().stem());
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<std::string> passes_of(const std::string& text) {
    std::istringstream line(text.substr(kRun.size(), text.find('\n') - kRun.size()));
    std::vector<std::string> passes;
    for (std::string pass; std::getline(line, pass, ',');) passes.push_back(pass);
    return passes;
}

class IrFile : public testing::TestWithParam<std::string> {};

TEST_P(IrFile, IsRewrittenAsItSays) {
    const auto path = root() / "tests/ir" / (GetParam() + ".ir");
    const std::string text = read_file(path);
    ASSERT_EQ(text.rfind(kRun, 0), 0U) << path << " does not start with " << kRun;
    const std::string input = text.substr(0, text.find(kCheck));
    const std::string output = graph::run_passes(input, passes_of(text), path);
    EXPECT_TRUE(same_as_file(path, input + kCheck + output));
}

INSTANTIATE_TEST_SUITE_P(Pass, IrFile, testing::ValuesIn(files()), [](const auto& name) { return name.param; });

}  // namespace
}  // namespace forge::tests
