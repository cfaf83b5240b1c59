/// Phases derived from `step` alone: right for every program that has a step and is affine, the same program as the
/// zoo's hand-written phases after the passes, and refused in words where there is no form over chunks.
#include "graph/derive.h"

#include <map>
#include <random>
#include <set>

#include "frontend/join.h"
#include "graph/pipeline.h"
#include "interp/recurrence.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "program/backward.h"
#include "program/entry_point.h"
#include "tests/novel/recurrences.h"
#include "tests/numerics/numerics.h"
#include "tests/support/turns.h"

namespace forge::tests {
namespace {

using interp::Outcome;

/// Novel programs without a derived form, and what the refusal says.
const std::map<std::string, std::string> kRefused = {
    {"squashed", "has no step"}, {"mamba3", "is not affine in it, or mixes its axes"},  // rows of its state turn
};

ir::Definition step_alone(ir::Definition def) {
    def.chunk = def.decay = def.merge = {};
    return def;
}

void expect_same(const Outcome& got, const Outcome& expected, const std::string& what) {
    const auto compare = [&](const interp::Bindings& a, const interp::Bindings& b) {
        for (const auto& [name, value] : b) {
            ASSERT_TRUE(a.contains(name)) << name;
            EXPECT_LT(interp::relative_difference(value, a.at(name)), 1e-9) << what << ": " << name;
        }
    };
    compare(got.outputs, expected.outputs);
    compare(got.states, expected.states);
}

/// Phases and the optimised program in float64, on chunks of several lengths, against the recurrence.
void expect_right(const ir::Definition& derived) {
    for (const Diagnostic& d : interp::check_semantics(derived)) ADD_FAILURE() << to_string(d);
    const ir::Function program = graph::optimize(frontend::join(derived));
    for (const std::int64_t chunk : {1, 5, 8}) {
        const interp::Sizes sizes = interp::small_sizes(derived, chunk);
        const interp::Sequence sequence = interp::random_sequence(derived, sizes, 13, 7);
        const Outcome expected = interp::run_steps(derived, sequence, sizes);
        expect_same(interp::run_phases(derived, sequence, sizes), expected, "phases");
        expect_same(interp::run_program(program, derived, sequence, sizes), expected, "program");
    }
}

void expect_right_gradients(const ir::Definition& derived) {
    const program::Backward by_step = program::step_backward(derived), by_chunks = program::backward_of(derived);
    const interp::Sizes sizes = interp::small_sizes(derived, 4);
    interp::Sequence all = interp::random_sequence(derived, sizes, 11, 3);
    const Outcome forwards = interp::run_steps(derived, all, sizes);
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    const auto given = [&](const interp::Bindings& values, interp::Bindings& into) {
        for (auto [name, value] : values) {
            for (double& x : value.data) x = normal(random);
            into["grad_" + name] = value;
        }
    };
    given(forwards.outputs, all.inputs), given(forwards.states, all.initial_states);
    const Outcome expected =
        interp::run_step_gradient({derived, by_step.interface, by_step.program, by_step.adjoint}, all, sizes);
    expect_same(
        interp::run_program_gradient({derived, by_chunks.interface, by_chunks.program, by_chunks.adjoint}, all, sizes),
        expected, "gradients");
}

class Derived : public testing::TestWithParam<Entry> {};

TEST_P(Derived, IsRight) {
    const ir::Definition def = GetParam().make().define();
    if (const auto refused = kRefused.find(def.name); refused != kRefused.end()) {
        try {
            graph::derive(def);
            ADD_FAILURE() << "was derived";
        } catch (const CompileError& error) {
            EXPECT_NE(std::string(error.what()).find(refused->second), std::string::npos) << error.what();
        }
        return;
    }
    const ir::Definition derived = graph::with_phases(step_alone(def));
    EXPECT_EQ(ir::print(ir::parse_definition(ir::print(derived))), ir::print(derived));
    expect_right(derived);
    expect_right_gradients(derived);
}

INSTANTIATE_TEST_SUITE_P(All, Derived, testing::ValuesIn(all_programs()), name_of);

// An addend that lacks an axis of the state, whichever: a row for all rows, a column for all columns, a number for
// both.
TEST(DerivedElementwise, AddendsMayLackAnAxis) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("broadcast");
    a.input("q", BF16, {T, H, K}).input("x", BF16, {T, H, V}).input("w", BF16, {T, H, K}).input("y", BF16, {T, H});
    a.input("g", F32, {T, H, K, V}, kLogDecays).state("s", F32, {K, V}).output("o", BF16, {T, H, V});
    for (const int form : {0, 1, 2, 3}) {
        LinearAttention b = a;
        b.step({"q", "x", "w", "y", "g", "prev_s"},
               [form](Tensor q, Tensor x, Tensor w, Tensor y, Tensor g, Tensor s) -> Results {
                   Tensor row = unsqueeze(x.to(F32), 0), column = unsqueeze(w.to(F32), 1), decayed = exp(g) * s;
                   Tensor next = form == 0   ? decayed + row
                                 : form == 1 ? decayed - column
                                 : form == 2 ? y.to(F32) + decayed
                                             : row + decayed + column;
                   return {{"s", next}, {"o", matmul(q, next)}};
               });
        const ir::Definition derived = graph::with_phases(b.define());
        expect_right(derived);
        expect_right_gradients(derived);
    }
}

/// A program without names and order: every value by what it is made of. Chains of products and sums have no order.
class Signature {
  public:
    explicit Signature(const ir::Function& fn) : fn_(fn) {}

    std::string text() {
        std::string all;
        std::map<std::string, std::string> results;
        for (const ir::Result& r : fn_.results) results[r.name + ir::to_string(r.role)] = of(r.value);
        for (const auto& [name, value] : results) all += name + " = " + value + "\n";
        return all;
    }

  private:
    void chain(ir::Opcode code, ir::ValueId v, std::multiset<std::string>& parts) {
        for (const ir::ValueId a : fn_.op(v).args)
            if (fn_.op(a).code == code) chain(code, a, parts);
            else parts.insert(of(a));
    }

    std::string of(ir::ValueId v) {
        if (const auto known = made_.find(v); known != made_.end()) return known->second;
        ir::Op op = fn_.op(v);
        std::string text = ir::info(op.code).name;
        if (op.code == ir::Opcode::Mul || op.code == ir::Opcode::Add) {
            std::multiset<std::string> parts;
            chain(op.code, v, parts);
            for (const std::string& p : parts) text += "(" + p + ")";
        } else {
            for (const ir::ValueId a : op.args) text += "(" + of(a) + ")";
            ir::Function alone;
            op.args.clear();
            op.name.clear();
            text += ir::print_op({"", {op}, {}}, 0);
        }
        // Long texts of shared values would grow without end: each has a number.
        const auto [it, fresh] = numbers_.try_emplace(text, std::to_string(std::hash<std::string>{}(text)));
        return made_[v] = it->second;
    }

    const ir::Function& fn_;
    std::map<ir::ValueId, std::string> made_;
    std::map<std::string, std::string> numbers_;
};

/// Engines of those that have no products of matrices; all others have kernels for Hopper's matrix units.
const std::map<std::string, std::string> kEngines = {{"selective_scan", "channels"}, {"min_gru", "channels"}};

class Recurrence : public testing::TestWithParam<Entry> {};

TEST_P(Recurrence, NeedsNothingButItsStep) {
    const ir::Definition derived = graph::with_phases(GetParam().make().define());
    expect_right(derived);
    expect_right_gradients(derived);
}

TEST_P(Recurrence, HasKernels) {
    const ir::Definition def = GetParam().make().define();
    const std::vector<check::Case> cases = few_cases(F32, {{"K", 24}, {"V", 16}});
    std::vector<Prepared> prepared = prepare(graph::with_phases(def), cases);
    CompileOptions options;
    options.dtype = F32;
    options.sizes = check::sizes_for(graph::with_phases(def), cases[0].problem);
    const Attention attention = compile(def, options);
    for (Prepared& p : prepared) expect_agreement(attention, p);
}

TEST_P(Recurrence, HasKernelsOfGradients) {
    const char* const strategies[] = {"one-pass", "fused", "decoupled"};
    const ir::Definition def = GetParam().make().define();
    const std::vector<check::Case> cases = few_cases(F32, {{"K", 24}, {"V", 16}});
    CompileOptions options;
    options.entry = "backward", options.dtype = F32, options.strategy = strategies[turn_of(GetParam()) % 3];
    options.sizes = check::sizes_for(graph::with_phases(def), cases[0].problem);
    const Attention attention = compile(def, options);
    for (const check::Case& c : cases) {
        check::Buffers buffers(program::tensors_of("backward", def), c.problem);
        check::Reference reference = check::backward_reference(buffers, def, attention.chunk());
        Prepared prepared{c.name, std::move(buffers), std::move(reference)};
        expect_agreement(attention, prepared);
    }
}

TEST_P(Recurrence, TakesTheFastPath) {
    const ir::Definition def = GetParam().make().define();
    check::Problem problem;
    problem.sizes = {{"K", 64}, {"V", 128}, {"M", 64}};
    CompileOptions options{.device = "cuda", .on = "h200", .load = false};
    options.sizes = check::sizes_for(graph::with_phases(def), problem);
    const Attention attention = compile(def, options);
    const auto expected = kEngines.find(def.name);
    EXPECT_EQ(attention.engine(), expected == kEngines.end() ? "warp-groups" : expected->second);
}

INSTANTIATE_TEST_SUITE_P(All, Recurrence, testing::ValuesIn(novel::recurrences()), name_of);

class DerivedVariant : public testing::TestWithParam<Entry> {};

TEST_P(DerivedVariant, IsTheProgramWrittenByHand) {
    const ir::Definition def = frontend::with_dtype(GetParam().make().define(), BF16);
    const ir::Function by_hand = graph::optimize(frontend::join(def)),
                       derived = graph::optimize(frontend::join(graph::derive(def)));
    EXPECT_EQ(Signature(derived).text(), Signature(by_hand).text()) << ir::print(derived) << ir::print(by_hand);
}

TEST_P(DerivedVariant, TakesTheSameKernels) {
    const ir::Definition def = GetParam().make().define();
    for (const std::string on : {"", "h200"}) {
        CompileOptions options{.on = on, .load = false};
        if (on.empty()) options.dtype = F32;
        else options.device = "cuda";
        check::Problem problem;
        problem.sizes = {{"K", 128}, {"V", 128}};
        options.sizes = check::sizes_for(def, problem);
        const Attention by_hand = compile(def, options), derived = compile(graph::derive(def), options);
        EXPECT_EQ(derived.schedule(), by_hand.schedule());
        EXPECT_EQ(derived.engine(), by_hand.engine());
        EXPECT_EQ(derived.kernels(), by_hand.kernels());
        EXPECT_EQ(derived.refused().size(), by_hand.refused().size());
    }
}

std::vector<Entry> derived_variants() {
    std::vector<Entry> list = variants::all();
    std::erase_if(list, [](const Entry& e) { return kRefused.contains(e.name); });
    return list;
}

INSTANTIATE_TEST_SUITE_P(All, DerivedVariant, testing::ValuesIn(derived_variants()), name_of);

}  // namespace
}  // namespace forge::tests
