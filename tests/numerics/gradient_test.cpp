/// Gradients in float64: those of `step` against finite differences, and those of the program of a chunk against those
/// of `step`.
#include "graph/gradient.h"

#include <cmath>
#include <random>

#include "check/kept_states.h"
#include "interp/recurrence.h"
#include "package/build.h"
#include "program/backward.h"
#include "program/entry_point.h"
#include "tests/numerics/numerics.h"

namespace forge::tests {
namespace {

using interp::Outcome;
using interp::Sequence;
using interp::Sizes;
using interp::Value;

class Gradients : public testing::TestWithParam<Entry> {
  protected:
    void SetUp() override {
        check::Problem problem;
        problem.T = 11, problem.H = 1, problem.HV = 1, problem.sizes = {{"K", 4}, {"V", 6}},
        problem.initial_state = true;
        for (const auto& [name, size] : check::sizes_for(def_, problem)) sizes_[name] = size;
        const check::Buffers buffers(def_, problem);
        sequence_ = buffers.sequence(0, 0);
        std::mt19937 random(7);
        std::normal_distribution<double> normal;
        given_ = forwards(sequence_, 4);
        for (auto* results : {&given_.outputs, &given_.states})
            for (auto& [name, value] : *results)
                for (double& x : value.data) x = normal(random);
    }

    [[nodiscard]] Outcome forwards(const Sequence& sequence, std::int64_t chunk) const {
        Sizes sizes = sizes_;
        sizes["C"] = def_.fixed_chunk ? def_.fixed_chunk : chunk;
        return def_.step ? interp::run_steps(def_, sequence, sizes) : interp::run_phases(def_, sequence, sizes);
    }

    /// The number of which gradients are taken: all results, weighted by what is given.
    [[nodiscard]] double loss(const Sequence& sequence) const {
        const Outcome outcome = forwards(sequence, 4);
        double total = 0;
        const auto add = [&](const interp::Bindings& values, const interp::Bindings& weights) {
            for (const auto& [name, value] : values)
                for (std::size_t i = 0; i < value.data.size(); ++i) total += value.data[i] * weights.at(name).data[i];
        };
        add(outcome.outputs, given_.outputs);
        add(outcome.states, given_.states);
        return total;
    }

    /// The inputs and states of the backward pass.
    [[nodiscard]] Sequence with_given() const {
        Sequence all = sequence_;
        for (const auto& [name, value] : given_.outputs) all.inputs["grad_" + name] = value;
        for (const auto& [name, value] : given_.states) all.initial_states["grad_" + name] = value;
        return all;
    }
    [[nodiscard]] Outcome by_step() const {
        const program::Backward b = program::step_backward(def_);
        return interp::run_step_gradient({def_, b.interface, b.program, b.adjoint}, with_given(), sizes_);
    }
    [[nodiscard]] Outcome by_chunks(std::int64_t chunk) const {
        const program::Backward b = program::backward_of(def_);
        Sizes sizes = sizes_;
        sizes["C"] = def_.fixed_chunk ? def_.fixed_chunk : chunk;
        return interp::run_program_gradient({def_, b.interface, b.program, b.adjoint}, with_given(), sizes);
    }

    /// d loss / d step along a direction in one tensor, by differences and by the gradient.
    void expect_derivative(const std::string& name, Value& tensor, const Value& gradient) {
        std::mt19937 random(11);
        std::normal_distribution<double> normal;
        ASSERT_EQ(tensor.data.size(), gradient.data.size()) << name;
        const Value at = tensor;
        std::vector<double> direction(tensor.data.size());
        double expected = 0, length = 0;
        for (std::size_t i = 0; i < direction.size(); ++i) {
            direction[i] = normal(random);
            expected += direction[i] * gradient.data[i];
            length += std::abs(direction[i] * gradient.data[i]);
        }
        const auto moved = [&](double by) {
            for (std::size_t i = 0; i < direction.size(); ++i) tensor.data[i] = at.data[i] + by * direction[i];
            const double l = loss(sequence_);
            tensor = at;
            return l;
        };
        constexpr double kStep = 1e-5;
        const double by_differences = (moved(kStep) - moved(-kStep)) / (2 * kStep);
        EXPECT_NEAR(by_differences, expected, 1e-6 * (1 + length)) << name;
    }

    static void expect_same(const Outcome& got, const Outcome& expected) {
        const auto compare = [](const interp::Bindings& a, const interp::Bindings& b) {
            ASSERT_EQ(a.size(), b.size());
            for (const auto& [name, value] : b) {
                ASSERT_TRUE(a.contains(name)) << name;
                ASSERT_EQ(a.at(name).shape, value.shape) << name;
                double scale = 1e-3;
                for (const double x : value.data) scale = std::max(scale, std::abs(x));
                for (std::size_t i = 0; i < value.data.size(); ++i)
                    ASSERT_NEAR(a.at(name).data[i], value.data[i], 1e-9 * scale) << name << "[" << i << "]";
            }
        };
        compare(got.outputs, expected.outputs);
        compare(got.states, expected.states);
    }

    ir::Definition def_ = GetParam().make().define();
    Sizes sizes_;
    Sequence sequence_;
    Outcome given_;
};

TEST_P(Gradients, AgreeWithFiniteDifferences) {
    const Outcome gradients = def_.step ? by_step() : by_chunks(4);
    for (auto& [name, tensor] : sequence_.inputs) {
        const auto& where = def_.input(name)->role == ir::Role::Input ? gradients.outputs : gradients.states;
        expect_derivative(name, tensor, where.at("grad_" + name));
    }
    for (auto& [name, tensor] : sequence_.initial_states)
        expect_derivative(name, tensor, gradients.states.at("grad_" + name));
}

TEST_P(Gradients, OfChunksAreThoseOfTokens) {
    if (!def_.step) GTEST_SKIP() << "no step";
    const Outcome expected = by_step();
    for (const std::int64_t chunk : {1, 4, 8, 16}) expect_same(by_chunks(chunk), expected);
}

/// Kernels in float32 or in an element type of 16 bits, by one of the strategies: programs take turns. `forge check
/// --all
/// --backward` tries everything with everything.
TEST_P(Gradients, OfKernels) {
    const char* const strategies[] = {"one-pass", "fused", "decoupled"};
    const ir::Definition tensors = graph::gradient_interface(def_);
    std::size_t turn = turn_of(GetParam());
    for (const DType dtype : in_turn(GetParam(), std::vector<DType>{F32, BF16}, 1)) {
        const std::vector<CompileOptions> ways = {
            {.entry = "backward", .strategy = strategies[turn++ % 3], .chunk = dtype == F32 ? 32 : 64}};
        const std::vector<check::Case> cases = few_cases(dtype, {{"K", 20}, {"V", 12}});
        const auto built = compile_all(def_, cases[0].problem, ways);
        for (const check::Case& c : cases) {
            check::Buffers buffers(tensors, c.problem);
            check::Reference reference = check::backward_reference(buffers, def_, built[0]->chunk());
            Prepared prepared{c.name, std::move(buffers), std::move(reference)};
            for (const auto& attention : built) {
                SCOPED_TRACE(attention->strategy());
                expect_agreement(*attention, prepared);
            }
        }
    }
}

/// Of calls without gradients of states, which are those with such as are zero.
TEST_P(Gradients, ToInputs) {
    if (!has_turn(GetParam(), 3, 1)) GTEST_SKIP() << "not its turn";
    const std::size_t turn = turn_of(GetParam()) / 2;
    const std::string entry =
        "backward to inputs" + (turn % 4 < 2 ? "" : " of " + def_.inputs.front().name + ", " + def_.inputs.back().name);
    const DType dtype = turn % 2 == 0 ? F32 : BF16;
    const std::vector<CompileOptions> ways = {{.entry = entry, .strategy = turn % 3 == 0 ? "decoupled" : "fused"}};
    const std::vector<check::Case> cases = few_cases(dtype, {{"K", 20}, {"V", 12}});
    const auto built = compile_all(def_, cases[0].problem, ways);
    for (const check::Case& c : cases) {
        if (c.problem.cut != 0) continue;
        check::Buffers buffers(program::tensors_of(entry, def_), c.problem);
        check::Reference reference = check::backward_reference(buffers, def_, built[0]->chunk());
        SCOPED_TRACE(c.name);
        Prepared prepared{c.name, std::move(buffers), std::move(reference)};
        expect_agreement(*built[0], prepared);
    }
}

TEST(GradientsToInputs, TakeNoneOfStates) {
    const ir::Definition def = program_named("stabilised_mlstm").make().define();
    const check::Problem problem{.T = 20, .H = 1, .sizes = {{"K", 8}, {"V", 8}}, .dtype = F32, .initial_state = true};
    const Attention attention =
        compile(def, {.entry = "backward to inputs", .dtype = F32, .sizes = check::sizes_for(def, problem)});
    check::Buffers buffers(program::tensors_of("backward to inputs", def), problem);
    Call call = buffers.call();
    attention(call);
    call.initial_states["grad_s"] = call.initial_states.at("s");
    try {
        attention(call);
        ADD_FAILURE() << "taken";
    } catch (const RuntimeError& error) {
        EXPECT_NE(std::string(error.what()).find("initial_states.grad_s': expected nothing"), std::string::npos)
            << error.what();
    }
}

/// Gradients from the states that the forward pass has left before its chunks, rather than from those made again.
TEST_P(Gradients, OfKernelsFromKeptStates) {
    const char* const strategies[] = {"fused", "decoupled", "one-pass"};
    const std::string entry = "backward from states";
    if (!has_turn(GetParam(), 3)) GTEST_SKIP() << "not its turn";
    const ir::Definition tensors = graph::gradient_interface(def_);
    const std::size_t turn = turn_of(GetParam()) / 2;
    const DType dtype = turn % 2 == 0 ? F32 : BF16;
    const std::int64_t chunk = def_.fixed_chunk ? def_.fixed_chunk : dtype == F32 ? 32 : 64;
    const std::vector<CompileOptions> ways = {{.entry = "forward", .chunk = chunk, .chunk_states = true},
                                              {.entry = entry, .strategy = strategies[turn % 3], .chunk = chunk}};
    const std::vector<check::Case> cases = few_cases(dtype, {{"K", 20}, {"V", 12}});
    const auto built = compile_all(def_, cases[0].problem, ways);
    ASSERT_TRUE(built[0] && built[1]);
    for (const check::Case& c : cases) {
        if (c.problem.cut != 0) continue;
        SCOPED_TRACE(c.name + ", " + std::string(built[1]->strategy()));
        check::Buffers buffers(tensors, c.problem);
        const auto kept = check::kept_states(*built[0], def_, buffers);
        const check::Reference reference = check::backward_reference(buffers, def_, chunk);
        for (const ir::StateDecl& s : def_.states)
            buffers.initial_states.erase(s.name), buffers.final_states.erase(s.name);
        Call call = buffers.call();
        EXPECT_THROW((*built[1])(call), RuntimeError);  // without them
        for (const auto& [name, x] : kept) call.chunk_states[name] = x.view();
        (*built[1])(call);
        for (const check::Difference& d : check::compare(buffers, reference).differences)
            EXPECT_TRUE(d.ok) << d.name << ": relative RMS " << d.relative_rms;
    }
}

// What is not asked for is not among the results, and the rest is the same.
TEST(SomeGradients, AreThoseOfAll) {
    const ir::Definition def = program_named("gated_delta_net").make().define();
    const check::Problem problem{.T = 50, .H = 2, .sizes = {{"K", 20}, {"V", 12}}, .dtype = F32, .initial_state = true};
    const auto gradients = [&](const std::string& entry, const std::string& strategy) {
        check::Buffers buffers(program::tensors_of(entry, def), problem);
        const Attention attention =
            compile(def, {.entry = entry, .dtype = F32, .sizes = check::sizes_for(def, problem), .strategy = strategy});
        attention(buffers.call());
        return buffers;
    };
    // From given states, whichever of them are read.
    for (const char* of : {"q", "k", "v", "g", "beta"})
        EXPECT_NO_THROW(compile(def, {.entry = std::string("backward from states of ") + of,
                                      .dtype = F32,
                                      .sizes = check::sizes_for(def, problem)}))
            << of;
    for (const char* const strategy : {"one-pass", "fused"}) {
        SCOPED_TRACE(strategy);
        const check::Buffers some = gradients("backward of k, g", strategy), all = gradients("backward", strategy);
        EXPECT_EQ(some.outputs.size(), 2U);
        EXPECT_FALSE(some.final_states.contains("grad_scale"));
        const auto expect_same = [](const auto& part, const auto& whole) {
            for (const auto& [name, x] : part)
                for (std::int64_t i = 0; i < x.count(); ++i)
                    ASSERT_NEAR(x.at(i), whole.at(name).at(i), 1e-4) << name << " " << i;
        };
        expect_same(some.outputs, all.outputs);
        expect_same(some.final_states, all.final_states);
    }
    try {
        compile(def, {.entry = "backward of k, w", .dtype = F32, .sizes = check::sizes_for(def, problem)});
        ADD_FAILURE();
    } catch (const RuntimeError& error) {
        EXPECT_STREQ(error.what(),
                     "gated_delta_net: entry: expected 'backward of' some of q, k, v, g, beta, scale, got 'w'");
    }
}

// Where nothing leaves the states, or chunks are chosen call by call, the entry is refused in words.
TEST(KeptStates, AreRefusedWhereNobodyKeepsThem) {
    const ir::Definition def = program_named("gla").make().define();
    const auto message = [](const auto& run) -> std::string {
        try {
            run();
        } catch (const RuntimeError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(message([&] { check::tensors_of("backward from states of q", def); }),
              "gla: entry: expected one whose calls need nothing of another's, got 'backward from states of q', which "
              "begins with the states that a forward pass leaves; take backward, which makes them again");
    EXPECT_EQ(
        message([&] {
            compile(
                def,
                {.entry = "backward from states", .dtype = F32, .sizes = {{"K", 4}, {"V", 4}}, .chunk_states = true});
        }),
        "gla: chunk_states: expected them of forward, got entry = backward from states");
    package::Request request;
    request.definitions = {def}, request.name = "kept", request.entries = {"backward from states"};
    request.targets = {"x86-64-v3"}, request.dtypes = {F32};
    EXPECT_EQ(message([&] { package::build(request); }),
              "build: entries: expected forward, decode, backward or 'backward of' inputs, got 'backward from states', "
              "whose chunks are those of another call");
    request.entries = {"backward to inputs of q"};
    EXPECT_EQ(message([&] { package::build(request); }),
              "build: entries: expected forward, decode, backward or 'backward of' inputs, got 'backward to inputs of "
              "q', whose calls have no gradients of states; take backward, without them");
}

// Gradients of what has no tokens alone: no output of the pass says how many heads there are.
TEST(SomeGradients, OfHeadsAndStatesAlone) {
    for (const auto& [name, entry] : {std::pair{"rwkv6", "backward of u"}, {"gla", "backward of "}}) {
        const ir::Definition def = program_named(name).make().define();
        for (const char* const strategy : {"one-pass", "fused", "decoupled"}) {
            SCOPED_TRACE(std::string(entry) + ", " + strategy);
            const check::Problem problem{
                .B = 2, .T = 50, .H = 3, .sizes = {{"K", 20}, {"V", 12}}, .dtype = F32, .initial_state = true};
            const Attention attention = compile(
                def, {.entry = entry, .dtype = F32, .sizes = check::sizes_for(def, problem), .strategy = strategy});
            const check::Report report = check::check(attention, def, problem, entry);
            EXPECT_TRUE(report.ok) << report.worst();
            EXPECT_GT(report.differences.size(), 0U);
        }
    }
}

// A gradient that is summed over tokens is held against its terms; a token that is left out is still found.
TEST(SummedGradients, MissNoToken) {
    const ir::Definition def = program_named("gated_delta_net").make().define();
    const check::Problem problem{.T = 200, .H = 2, .sizes = {{"K", 20}, {"V", 12}}, .dtype = F32};
    check::Buffers whole(program::tensors_of("backward", def), problem);
    const check::Reference reference = check::backward_reference(whole, def, 64);
    const Attention attention =
        compile(def, {.entry = "backward", .dtype = F32, .sizes = check::sizes_for(def, problem), .strategy = "fused"});
    attention(whole.call());
    EXPECT_TRUE(check::compare(whole, reference).ok);
    check::Buffers without(program::tensors_of("backward", def), problem);
    for (std::int64_t i = 0; i < 12; ++i) without.inputs.at("grad_o").set((100 * 2 + 1) * 12 + i, 0);
    attention(without.call());
    whole.final_states.at("grad_scale") = without.final_states.at("grad_scale");
    for (const check::Difference& d : check::compare(whole, reference).differences)
        EXPECT_EQ(d.ok, d.name != "grad_scale") << d.name;
}

INSTANTIATE_TEST_SUITE_P(All, Gradients, testing::ValuesIn(programs_in_every_way()),
                         [](const testing::TestParamInfo<Entry>& entry) { return entry.param.name; });

}  // namespace
}  // namespace forge::tests
