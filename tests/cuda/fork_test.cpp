/// A child that is forked while another thread plans finds no lock held, and plans too.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "compile/driver.h"
#include "ir/text.h"
#include "program/module.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

/// Gradients, whose operations are put into an order that is looked for, of a definition that is traced and read anew.
std::size_t plan() {
    const ir::Definition traced = program_named("kda").make().define();
    const ir::Definition def = ir::parse_definition(ir::print(traced));
    CompileOptions options{.device = "cuda", .dtype = BF16, .sizes = {{"K", 128}, {"V", 128}}};
    options.entry = "backward", options.on = "h200", options.tuned = false;
    return compiler::emitted(program::Module(def, BF16), options)->plan.kernels.size();
}

TEST(Fork, WhileAnotherThreadPlans) {
    constexpr int kChildren = 24;
    const std::size_t kernels = plan();
    std::atomic<bool> stop{false};
    std::thread other([&] {
        while (!stop) plan();
    });
    for (int round = 0; round < kChildren; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(30);  // a child that hangs is ended, and seen
            _exit(plan() == kernels ? 0 : 1);
        }
        int status = 1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    stop = true;
    other.join();
}

}  // namespace
}  // namespace forge::tests
