/// States of decoding in numbers of 16 bits: every command that runs calls gives them such.
#include <gtest/gtest.h>

#include "tests/command/command.h"

namespace forge::tests {
namespace {

TEST(CommandStates, OfDecodingMayHaveSixteenBits) {
    for (const char* type : {"bf16", "f16"})
        for (const char* command : {"check", "run", "bench"}) {
            const auto done = forge_command({command, "scalar_gla", "--entry", "decode", "--state-dtype", type,
                                             "--dtype", "bf16", "--B", "3", "--T", "2", "--K", "32", "--V", "48"},
                                            false);
            EXPECT_EQ(done.status, 0) << done.output;
        }
}

}  // namespace
}  // namespace forge::tests
