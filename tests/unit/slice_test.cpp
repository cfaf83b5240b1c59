/// Recurrence slicing: for every variant, the sequential work that is left, and the axes along which it can be cut.
#include "graph/slice.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "frontend/join.h"
#include "graph/pipeline.h"
#include "ir/text.h"
#include "tests/novel/novel.h"

namespace forge::graph {
namespace {

ir::Function program_of(const variants::Entry& entry) { return optimize(frontend::join(entry.make().define())); }

std::vector<variants::Entry> programs() {
    std::vector<variants::Entry> all = variants::all();
    all.insert(all.end(), novel::all().begin(), novel::all().end());
    return all;
}

/// The ops of one slice, without parameters and views.
std::string ops_in(const ir::Function& program, Slice slice) {
    const auto marks = slices(program);
    std::vector<std::string> names;
    for (ir::ValueId v = 0; v < program.size(); ++v)
        if (marks[static_cast<std::size_t>(v)] == slice && program.op(v).code != ir::Opcode::Param &&
            !ir::is_view(program.op(v).code))
            names.emplace_back(ir::info(program.op(v).code).name);
    return fmt::format("{}", fmt::join(names, " "));
}

struct Expected {
    std::string state_bound, output_only;
    std::vector<std::string> axes;  ///< along which the program is parallel
};

const std::map<std::string, Expected> kExpected = {
    {"linear_attention", {"matmul_add", "matmul_add mul", {"V"}}},
    {"retnet", {"mul matmul_add", "matmul mul matmul_add mul", {"V"}}},
    {"lightning_attention", {"mul matmul_add", "matmul mul matmul_add mul", {"V"}}},
    {"scalar_gla", {"mul matmul_add", "matmul mul matmul_add mul", {"V"}}},
    {"gla", {"mul matmul_add", "matmul_add mul", {"V"}}},
    {"hgrn2", {"mul matmul_add", "matmul_add mul", {"V"}}},
    {"rwkv6", {"mul matmul_add", "matmul_add mul", {"V"}}},
    {"hgrn", {"mul add", "mul add mul", {"D"}}},
    {"hawk", {"mul add", "mul add", {"D"}}},
    {"delta_net", {"matmul_sub matmul_add", "matmul matmul_add mul", {"V"}}},  // w s, then one update: two products
    {"gated_delta_net", {"mul matmul_sub matmul_add", "matmul mul matmul_add mul", {"V"}}},
    {"delta_product", {"mul matmul_sub matmul_add", "matmul mul matmul_add mul", {"V"}}},
    {"kda", {"mul matmul_sub matmul_add", "matmul matmul_add mul", {"V"}}},
    {"mamba3", {"mul mul sub mul mul add concat mul add", "matmul mul add mul", {"V"}}},  // its rows turn
    {"two_states", {"matmul_add mul add", "mul matmul matmul_add add", {"V"}}},
    {"normalised", {"mul matmul_add mul add", "matmul mul matmul_add matmul mul add div", {}}},  // z has no V
    {"running_maximum", {"matmul_add maximum", "maximum sub exp matmul_add mul", {}}},
    {"squashed", {"tanh matmul_add", "matmul matmul_add", {"V"}}},
    {"value_decay", {"mul matmul_add", "matmul mul add", {"V"}}},
    {"two_sided", {"mul mul matmul_add", "matmul mul add", {"V"}}},
    {"elementwise_decay", {"mul add", "mul add mul sum", {"V"}}},
    {"linear_gate", {"mul matmul_add", "matmul mul matmul_add", {"V"}}},
    {"last_rows", {"mul matmul_add", "matmul mul matmul_add", {"V"}}},
    {"closed_loop", {"mul matmul_sub matmul_add", "matmul mul matmul_add", {"V"}}},
    {"token_shift", {"matmul_add", "matmul matmul_add", {"V"}}},
    {"leaky_averages", {"mul add add", "add add mul add div", {"D"}}},
    {"shifted_pairs", {"matmul_add", "matmul matmul_add", {"V"}}},
    {"shifted_gates", {"mul matmul_add", "matmul mul matmul_add", {"V"}}},
    {"paired_keys", {"matmul_add", "matmul matmul_add", {}}},  // the output "pair" has no V
    {"weighted_tokens", {"mul add", "matmul_add", {"V"}}},
    {"several_rows", {"mul matmul_add", "matmul mul matmul_add", {"V"}}},
    {"rotary",
     {"add div floor mul sub mul cos sin mul mul sub mul mul add concat matmul_add add",  // keys wait for their place
      "mul mul sub mul mul add concat matmul matmul tril matmul_add",
      {}}},  // n has no V
    {"turned_pairs", {"matmul_add", "matmul matmul_add", {"V"}}},
    {"two_readings",
     {"mul matmul_add", "matmul mul matmul_add where where mul add sum div sub interleave", {}}},  // the mean is over V
};

TEST(Slices, AreTheLeastSequentialWork) {
    for (const auto& entry : programs()) {
        ASSERT_TRUE(kExpected.contains(entry.name)) << entry.name;
        const Expected& expected = kExpected.at(entry.name);
        const ir::Function program = program_of(entry);
        EXPECT_EQ(ops_in(program, Slice::StateBound), expected.state_bound) << entry.name;
        EXPECT_EQ(ops_in(program, Slice::OutputOnly), expected.output_only) << entry.name;
        EXPECT_EQ(parallel_axes(program), expected.axes) << entry.name;
    }
}

// The mean over V is the outputs' alone: scans may take parts of V, which the kernel after them sees whole.
TEST(Slices, HaveAxesThatOutputsMix) {
    const auto entry = std::find_if(novel::all().begin(), novel::all().end(),
                                    [](const variants::Entry& e) { return e.name == "two_readings"; });
    const ir::Function program = program_of(*entry);
    EXPECT_TRUE(parallel_axes(program, Whole::Some).empty());
    EXPECT_EQ(scan_axes(program), std::vector<std::string>{"V"});
}

TEST(Slices, FollowFromTheStateAlone) {
    const ir::Function program = ir::parse_function(R"(func @f {
        %k: f32[C, K] = param() {name="k", role=input}
        %v: f32[C, V] = param() {name="v", role=input}
        %s: f32[K, V] = param() {name="s", role=state}
        %kv: f32[K, V] = matmul(%k, %v) {trans_a=true}
        %next: f32[K, V] = add(%s, %kv)
        %o: f32[C, V] = matmul(%k, %s)
        return input "o" = %o, state "s" = %next
    })");
    using enum Slice;
    EXPECT_EQ(slices(program), (std::vector{StateFree, StateFree, StateBound, StateFree, StateBound, OutputOnly}));
    EXPECT_EQ(cheap(program), (std::vector{true, true, false, false, false, false}));
}

}  // namespace
}  // namespace forge::graph
