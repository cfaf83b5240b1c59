/// What checks draw for inputs: declared ranges, else what the program does with them; never their names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "check/check.h"
#include "check/suite.h"
#include "check/tolerance.h"
#include "interp/semantics.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

using graph::InputValues;
using Kind = InputValues::Kind;

void rename(ir::Function& fn, const ir::Definition& def) {
    for (ir::Op& op : fn.ops)
        if (op.code == ir::Opcode::Param && def.input(op.attrs.name) && op.attrs.role == def.input(op.attrs.name)->role)
            op.attrs.name = "renamed_" + op.attrs.name;
}

/// Every input under another name, which begins with the same letter for all.
ir::Definition renamed(const ir::Definition& def) {
    ir::Definition result = def;
    for (ir::Function* fn : {&result.chunk, &result.decay, &result.merge}) rename(*fn, def);
    if (result.step) rename(*result.step, def);
    for (ir::InputDecl& in : result.inputs) in.name = "renamed_" + in.name;
    return result;
}

ir::Definition undeclared(ir::Definition def) {
    for (ir::InputDecl& in : def.inputs) in.range.reset();
    return def;
}

class Inputs : public testing::TestWithParam<Entry> {
  protected:
    ir::Definition def_ = GetParam().make().define();
};

TEST_P(Inputs, AreDrawnWhateverTheirNames) {
    for (const ir::Definition& def : {def_, undeclared(def_)}) {
        const ir::Definition other = renamed(def);
        const auto values = check::values_of(def), others = check::values_of(other);
        check::Problem problem;
        problem.T = 20, problem.initial_state = true, problem.sizes = {{"K", 8}, {"V", 4}};
        const check::Buffers buffers(def, problem), renamed(other, problem);
        for (const ir::InputDecl& in : def.inputs) {
            const std::string name = "renamed_" + in.name;
            EXPECT_EQ(values.at(in.name), others.at(name)) << in.name;
            if (in.role == ir::Role::Scalar) EXPECT_EQ(buffers.scalars.at(in.name), renamed.scalars.at(name));
            else EXPECT_EQ(buffers.inputs.at(in.name).storage, renamed.inputs.at(name).storage) << in.name;
        }
        const auto cases = check::awkward_cases(def, F32, problem.sizes, 1),
                   other_cases = check::awkward_cases(other, F32, problem.sizes, 1);
        ASSERT_EQ(cases.size(), other_cases.size());
        for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(cases[i].name, other_cases[i].name);
    }
}

/// Where ranges are declared, the program alone says as much, or nothing that contradicts them.
TEST_P(Inputs, AreWhatTheProgramSaysTheyAre) {
    const auto declared = graph::input_values(def_), read = graph::input_values(undeclared(def_));
    for (const auto& [name, values] : declared) {
        if (!values.declared || read.at(name).guessed) continue;
        EXPECT_EQ(values.kind, read.at(name).kind) << name;
        EXPECT_EQ(values.range, read.at(name).range) << name;
    }
}

TEST_P(Inputs, AdmitTheGatesThatTheirRangesContain) {
    const auto cases = check::awkward_cases(def_, F32, {{"K", 8}, {"V", 4}}, 1);
    const bool closed = std::any_of(cases.begin(), cases.end(), [](const auto& c) { return c.name == "gate -inf"; });
    EXPECT_EQ(closed, check::has_gates(def_, true));
}

INSTANTIATE_TEST_SUITE_P(All, Inputs, testing::ValuesIn(all_programs()), name_of);

/// S = e^g (S + k vᵀ), whose scores divide by a running product: right for moderate gates only.
LinearAttention late_decay(bool naive, std::optional<Range> range = {}) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("late_decay");
    a.input("one", F32, {T, H, K}).input("two", F32, {T, H, K}).input("three", F32, {T, H, V});
    a.input("four", F32, {T, H}, 0, range);
    a.state("s", F32, {K, V});
    a.chunk({"two", "three", "four"}, [](Tensor k, Tensor v, Tensor g) {
        return matmul(transpose(k * unsqueeze(exp(sum(g, 0) - cumsum(g, 0) + g), 1)), v);
    });
    a.decay({"prev_s", "chunk_state", "four"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * exp(sum(g, 0)) + chunk; });
    a.merge({"one", "two", "three", "four", "chunk_state"},
            [naive](Tensor q, Tensor k, Tensor v, Tensor g, Tensor before) {
                Tensor G = cumsum(g, 0), from = unsqueeze(exp(G), 1);
                Tensor scores =
                    naive ? from * unsqueeze(reciprocal(exp(G - g)), 0) : exp(unsqueeze(G, 1) - unsqueeze(G - g, 0));
                return matmul(tril(matmul(q, transpose(k)) * scores), v) + matmul(q, before) * from;
            });
    a.step({"one", "two", "three", "four", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s) -> Results {
        Tensor next = (s + outer(k, v)) * exp(g);
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a;
}

TEST(Gates, AreInfiniteOnlyWhereTheDefinitionAdmitsIt) {
    const ir::Definition naive = late_decay(true).define(), safe = late_decay(false).define();
    EXPECT_EQ(graph::input_values(naive).at("four").kind, Kind::Gate);
    EXPECT_EQ(graph::input_values(naive).at("two").kind, Kind::Rows);
    EXPECT_TRUE(interp::admits_gates(safe, -HUGE_VAL));
    EXPECT_TRUE(interp::admits_gates(naive, -1));
    EXPECT_FALSE(interp::admits_gates(naive, -HUGE_VAL));
    EXPECT_FALSE(interp::admits_gates(naive, -1000));
    EXPECT_TRUE(interp::admits_gates(late_decay(true, kLogDecays).define(), -HUGE_VAL))
        << "what is declared is held to";
    const ir::Definition bounded = late_decay(false, Range{-5, 0}).define();
    EXPECT_TRUE(interp::admits_gates(bounded, -5));
    EXPECT_FALSE(interp::admits_gates(bounded, -100));
}

/// Gates of -100 leave states of e^-100, which float32 holds with few bits, and gates of -1000 none at all.
TEST(Comparison, AllowsWhatFloat32CannotHold) {
    const ir::Definition def = late_decay(false).define();
    const Attention attention = compile(def, {.dtype = F32, .sizes = {{"K", 8}, {"V", 8}}});
    for (const double gate : {-50.0, -90.0, -100.0, -500.0, -1000.0}) {
        const check::Report report =
            check::check(attention, def, {.T = 100, .H = 1, .sizes = {{"K", 8}, {"V", 8}}, .gate = gate});
        EXPECT_TRUE(report.admitted && report.ok) << gate << ": " << report.worst();
    }
    EXPECT_EQ(check::error_scale(1, F32, 1e-5), 1);
    EXPECT_EQ(check::error_scale(1e-25, F32, 1e-5), 1e-25) << "as far as float32 holds all bits, errors are relative";
    EXPECT_GT(check::error_scale(1e-40, F32, 1e-5), 1e-32);
}

TEST(Comparison, FindsNumbersThatAreNone) {
    const ir::Definition def = late_decay(true, kLogDecays).define();
    const Attention attention = compile(def, {.dtype = F32, .sizes = {{"K", 8}, {"V", 8}}});
    const check::Report report =
        check::check(attention, def, {.T = 100, .H = 1, .sizes = {{"K", 8}, {"V", 8}}, .gate = -1000});
    ASSERT_FALSE(report.ok);
    EXPECT_TRUE(std::isinf(report.differences.at(0).relative_rms));
    EXPECT_TRUE(std::isnan(report.differences.at(0).max_abs));
    EXPECT_GE(report.differences.at(0).first_bad_token, 0);
}

}  // namespace
}  // namespace forge::tests
