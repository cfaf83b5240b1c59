/// Numbers and words that nobody means, on the command line: one line that says what is wrong, and no signal.
#include <gtest/gtest.h>

#include "tests/command/command.h"

namespace forge::tests {
namespace {

TEST(CommandExtremes, AreRefusedInWords) {
    struct Refused {
        std::vector<std::string> words;
        int status;
        std::string message;
    };
    const std::string large = "1152921504606846976", most = "9223372036854775807";
    for (const auto& [words, status, message] : std::initializer_list<Refused>{
             {{"run", "gla", "--segments", most}, 1, "segments: expected 0 to 1048576, got " + most},
             {{"run", "gla", "--tiles", most}, 1, "tiles: expected 0 to 4096, got " + most},
             {{"run", "gla", "--threads", "100000"}, 1, "threads: expected 0 to 65536, got 100000"},
             {{"run", "gla", "--T", large}, 1, "does not fit into this machine's memory"},
             {{"run", "gla", "--B", most, "--T", most}, 1, "does not fit into this machine's memory"},
             {{"run", "gla", "--B", most, "--T", "0"}, 1, "does not fit into this machine's memory"},
             {{"run", "gla", "--H", most}, 1, "does not fit into this machine's memory"},
             {{"check", "gla", "--T", large}, 1, "does not fit into this machine's memory"},
             {{"check", "gla", "--K", most}, 1, "does not fit into this machine's memory"},
             {{"explain", "gla", "--K", most}, 1, "sizes: expected 1 to 2147483647 for K, got " + most},
             {{"explain", "gla", "--K", "2000000000"}, 1, "sizes: expected values of at most 1073741824 numbers, got"},
             {{"run", "gla", "--size", "D=9223372036854775808"}, 1, "--size: expected SYMBOL=NUMBER"},
             {{"run", "gla", "--T", "9223372036854775808"}, 2, "expected a whole number of at least 0"},
             {{"tune", "gla", "--entry", "decode"}, 1, "--entry: expected forward, got 'decode'"},
             {{"check", "gla", "--device", "cuda:99999999999999999999"}, 1, "expected cpu, cuda or cuda:<number>"}}) {
        const auto done = forge_command(words, false);
        EXPECT_EQ(done.status, status) << done.output;
        EXPECT_TRUE(contains(done.output, message)) << done.output << "wanted: " << message;
    }
}

TEST(CommandExtremes, DoNotMatterWhereNothingIsAllocated) {
    for (const char* option : {"--T", "--B", "--H"}) {
        const auto done = forge_command({"explain", "gla", "--on", "h200", option, "9223372036854775807"}, false);
        EXPECT_EQ(done.status, 0) << done.output;
    }
}

}  // namespace
}  // namespace forge::tests
