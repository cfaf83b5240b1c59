/// Which states of a backward pass have a scan of their own behind the others', and what kernels there are then.
#include "graph/trailing_states.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "compile/driver.h"
#include "forge/language.h"
#include "program/entry_point.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

using Names = std::set<std::string>;

plan::Plan backward_of(const char* program, const char* engine) {
    CompileOptions options{.device = "cuda", .dtype = BF16, .sizes = {{"K", 64}, {"V", 128}, {"M", 64}}};
    options.entry = "backward", options.on = "h200", options.engine = engine, options.tuned = false;
    return compiler::emitted(program::Module(program_named(program).make().define(), BF16), options)->plan;
}

std::optional<Names> trailing(const char* program, const char* axis) {
    return graph::trailing_states(backward_of(program, "portable").program, axis);
}

TEST(TrailingStates, LackTheAxisAndAreReadByNoOthers) {
    EXPECT_EQ(trailing("linear_attention", "V"), Names());
    EXPECT_EQ(trailing("mlstm", "V"), Names{"grad_n"});
    EXPECT_EQ(trailing("trapezoidal", "V"), Names{"grad_last_k"});
    // What m does to the outputs cancels, and what rounding leaves of it would be summed over all tokens.
    EXPECT_EQ(trailing("stabilised_mlstm", "V"), std::nullopt);
    // Nothing cancels where no other state is made with the maximum.
    EXPECT_EQ(trailing("running_maximum", "V"), Names{"grad_m"});
    // The gradients of its keys sum over the states' rows, as the read that they are of does.
    EXPECT_EQ(trailing("delta_net", "K"), std::nullopt);
}

// A maximum whose gradient sums over no values is as precise as any other.
TEST(TrailingStates, MayBeMaximaThatSumOverNoValues) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("greatest_gate");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}).input("x", F32, {T, H}, -1e4);
    a.state("s", F32, {K, V}).state("m", F32, {}).output("o", BF16, {T, H, V}).output("p", F32, {T, H});
    a.step({"q", "k", "v", "x", "prev_s", "prev_m"},
           [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& x, const Tensor& s,
              const Tensor& m) -> Results {
               Tensor next = s + outer(k, v), greatest = maximum(m, x);
               return {{"s", next}, {"m", greatest}, {"o", matmul(q, next)}, {"p", greatest}};
           });
    const program::Module module(a.define(), BF16);
    EXPECT_EQ(graph::trailing_states(module.entry("backward").optimised, "V"), Names{"grad_m"});
}

TEST(TrailingStates, AreCarriedBehindTheOthersAndBeforeTheOutputs) {
    const plan::Plan plan = backward_of("mlstm", "warp-groups");
    EXPECT_EQ(plan.schedule.trailing, Names{"grad_n"});
    const auto at = [&](const std::string& stage) {
        const auto is_it = [&](const plan::Kernel& k) { return k.graph.name == "mlstm_gradient_" + stage; };
        return std::find_if(plan.kernels.begin(), plan.kernels.end(), is_it) - plan.kernels.begin();
    };
    EXPECT_LT(at("before"), at("states"));
    EXPECT_LT(at("states"), at("trailing_additions"));
    EXPECT_LT(at("trailing_additions"), at("trailing"));
    EXPECT_LT(at("trailing"), at("outputs"));
    EXPECT_LT(at("outputs"), static_cast<std::ptrdiff_t>(plan.kernels.size()));
    const plan::Kernel& scan = plan.kernels[static_cast<std::size_t>(at("trailing"))];
    EXPECT_TRUE(scan.graph.apart && scan.graph.reverse && !scan.graph.tiled);
}

// A maximum is compared with the numbers that it is of, and made in the same kernel as they are.
TEST(TrailingStates, HaveTheirMaximaFromTheirOwnNumbers) {
    const plan::Plan plan = backward_of("gated_slots", "warp-groups");
    for (const plan::Kernel& kernel : plan.kernels)
        for (const ir::Result& r : kernel.graph.fn.results)
            EXPECT_TRUE(r.role != ir::Role::Spill || kernel.graph.fn.op(r.value).code != ir::Opcode::Amax) << r.name;
}

}  // namespace
}  // namespace forge::tests
