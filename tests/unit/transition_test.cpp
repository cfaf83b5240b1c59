/// Transitions: their classes, bounds of their norms, and the property that makes segments exact: the summaries of two
/// segments, applied one after the other, do what the summary of both together does, which is what the program does
/// token by token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "frontend/join.h"
#include "graph/log_norm.h"
#include "graph/norm_bound.h"
#include "graph/pipeline.h"
#include "graph/summary.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "tests/novel/novel.h"

namespace forge {
namespace {

using graph::TransitionClass;
using interp::Bindings;
using interp::Value;
using ir::Role;

constexpr std::int64_t kChunk = 4;

std::vector<variants::Entry> programs() {
    std::vector<variants::Entry> all = variants::all();
    all.insert(all.end(), novel::all().begin(), novel::all().end());
    return all;
}

struct Compiled {
    ir::Definition def;
    ir::Function program;
    interp::Sizes sizes;
};

Compiled compile(const variants::Entry& entry) {
    Compiled c{entry.make().define(), {}, {}};
    c.program = graph::optimize(frontend::join(c.def));
    c.sizes = interp::small_sizes(c.def, kChunk);
    return c;
}

/// The chunk's rows of a sequence's inputs, as `evaluate` binds them.
Bindings chunk_inputs(const Compiled& c, const interp::Sequence& sequence, std::int64_t chunk) {
    Bindings bound;
    bound[ir::kTokenMaskName] = Value{{kChunk}, std::vector<double>(kChunk, 1.0)};
    for (const ir::InputDecl& in : c.def.inputs) {
        const Value& all = sequence.inputs.at(in.name);
        if (in.role != Role::Input) {
            bound[interp::binding_name(in.name, in.role)] = all;
            continue;
        }
        const std::int64_t rows = kChunk * in.type.shape[0].factor,
                           row = static_cast<std::int64_t>(all.data.size()) / all.shape[0];
        for (const Role role : {Role::Input, Role::Shifted}) {
            Value part{all.shape, {}};
            part.shape[0] = rows;
            for (std::int64_t i = 0; i < rows * row; ++i) {
                const std::int64_t from =
                    (chunk * rows - (role == Role::Shifted ? in.type.shape[0].factor : 0)) * row + i;
                part.data.push_back(from < 0 ? in.pad : all.data[static_cast<std::size_t>(from)]);
            }
            bound[interp::binding_name(in.name, role)] = part;
        }
    }
    return bound;
}

Value filled(const Shape& shape, const interp::Sizes& sizes, Role role) {
    Value v{interp::concrete(shape, sizes), {}};
    std::int64_t count = 1;
    for (const auto n : v.shape) count *= n;
    v.data.assign(static_cast<std::size_t>(count), role == Role::Ones ? 1.0 : 0.0);
    for (std::int64_t i = 0; role == Role::Eye && i < v.shape[0]; ++i)
        v.data[static_cast<std::size_t>(i * (v.shape[0] + 1))] = 1.0;
    return v;
}

/// D and B of the chunks [from, to), as the spills that `carry` reads.
Bindings summarize(const Compiled& c, const interp::Sequence& sequence, std::int64_t from, std::int64_t to) {
    const ir::Function fn = graph::summary(c.program);
    Bindings carried;
    for (const ir::Op& op : fn.ops)
        if (op.code == ir::Opcode::Param &&
            (op.attrs.role == Role::State || op.attrs.role == Role::Ones || op.attrs.role == Role::Eye))
            carried[interp::binding_name(op.attrs.name, op.attrs.role)] = filled(op.type.shape, c.sizes, op.attrs.role);
    for (std::int64_t chunk = from; chunk < to; ++chunk) {
        Bindings bound = chunk_inputs(c, sequence, chunk);
        bound.insert(carried.begin(), carried.end());
        const auto values = interp::evaluate(fn, bound, c.sizes);
        for (std::size_t i = 0; i < values.size(); ++i)
            carried[interp::binding_name(fn.results[i].name, fn.results[i].role)] = values[i];
    }
    Bindings spills;
    for (const ir::Result& r : fn.results)
        spills[interp::binding_name(
            r.role == Role::State ? graph::input_spill(r.name) : graph::transition_spill(r.name), Role::Spill)] =
            carried.at(interp::binding_name(r.name, r.role));
    return spills;
}

Bindings apply(const Compiled& c, Bindings states, const Bindings& summary) {
    const ir::Function fn = graph::carry(c.program);
    states.insert(summary.begin(), summary.end());
    const auto values = interp::evaluate(fn, states, c.sizes);
    Bindings after;
    for (std::size_t i = 0; i < values.size(); ++i)
        if (fn.results[i].role == Role::State) after[fn.results[i].name] = values[i];
    return after;
}

class Transitions : public testing::TestWithParam<variants::Entry> {};

void expect_composition(const Compiled& c) {
    const bool linear = c.def.input("alpha") != nullptr;
    const interp::Sequence sequence =
        interp::random_sequence(c.def, c.sizes, 5 * kChunk, 11, linear ? Range{0.3, 0.95} : Range{-0.9, -0.1});
    const Bindings once = apply(c, sequence.initial_states, summarize(c, sequence, 0, 5));
    const Bindings twice =
        apply(c, apply(c, sequence.initial_states, summarize(c, sequence, 0, 2)), summarize(c, sequence, 2, 5));
    const auto whole = interp::run_program(c.program, c.def, sequence, c.sizes);
    for (const ir::StateDecl& state : c.def.states) {
        const Value& value = whole.states.at(state.name);
        EXPECT_LE(interp::relative_difference(value, once.at(state.name)), 1e-10) << state.name;
        EXPECT_LE(interp::relative_difference(value, twice.at(state.name)), 1e-10) << state.name;
    }
}

TEST_P(Transitions, SummariesOfSegmentsCompose) {
    const Compiled c = compile(GetParam());
    for (const auto& t : graph::transitions(c.program))
        if (!t.composable()) GTEST_SKIP() << to_string(t.cls);
    expect_composition(c);
}

/// S -= k (p S) of each token, where one p per head reads the state for all tokens of a chunk. (As a recurrence it is
/// another in chunks of other sizes; its transitions are what is of interest.)
LinearAttention common_read() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("common_read");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.head_input("p", F32, {H, K});
    a.state("s", F32, {K, V});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul(transpose(k.to(F32)), v.to(F32)); });
    a.decay({"prev_s", "chunk_state", "p", "k", "v"}, [](Tensor prev, Tensor chunk, Tensor p, Tensor k, Tensor v) {
        Tensor rest = v.to(F32) * 0.1 - matmul(unsqueeze(p, 0), prev);
        return prev + chunk + matmul(transpose(k.to(F32)), rest) * 0.1;
    });
    a.merge({"q", "chunk_state"}, [](Tensor q, Tensor before) { return matmul(q.to(F32), before); });
    return a;
}

// Without the values that are added, what is read has one row.
TEST(TransitionSegments, OfWhatAllTokensReadCompose) {
    expect_composition(compile({"common_read", "", "", common_read}));
}

/// The largest singular value of a square matrix, by power iteration on MᵀM.
double spectral_norm(const Value& m) {
    const auto n = static_cast<std::size_t>(m.shape[0]);
    std::vector<double> x(n, 1.0), y(n);
    for (std::size_t i = 0; i < n; ++i) x[i] += 0.1 * static_cast<double>(i);
    double norm = 0;
    for (int round = 0; round < 500; ++round) {
        double length = 0;
        for (const double e : x) length += e * e;
        for (double& e : x) e /= std::sqrt(length) + 1e-300;
        for (std::size_t i = 0; i < n; ++i) {
            y[i] = 0;
            for (std::size_t j = 0; j < n; ++j) y[i] += m.data[i * n + j] * x[j];
        }
        norm = 0;
        for (const double e : y) norm += e * e;
        std::fill(x.begin(), x.end(), 0.0);
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < n; ++j) x[j] += m.data[i * n + j] * y[i];
    }
    return std::sqrt(norm);
}

/// The norm of a chunk's transition, from its summary. No transition: the identity.
double measured_norm(const graph::Transition& t, const Bindings& summary) {
    if (t.cls == TransitionClass::Identity) return 1;
    const Value& d = summary.at(interp::binding_name(graph::transition_spill(t.state), Role::Spill));
    if (t.is_matrix()) return spectral_norm(d);
    double most = 0;
    for (const double e : d.data) most = std::max(most, std::abs(e));
    return most;
}

/// One token's rows of a sequence's inputs, as `step` sees them.
Bindings token_inputs(const Compiled& c, const interp::Sequence& sequence, std::int64_t token) {
    Bindings bound;
    for (const ir::InputDecl& in : c.def.inputs) {
        const Value& all = sequence.inputs.at(in.name);
        if (in.role != Role::Input) {
            bound[in.name] = all;
            continue;
        }
        Value row{interp::concrete(ir::step_type(in).shape, c.sizes), {}};
        const std::int64_t n = interp::element_count(row.shape);
        row.data.assign(all.data.begin() + token * n, all.data.begin() + (token + 1) * n);
        bound[in.name] = row;
    }
    return bound;
}

double bound_over_chunk(const Compiled& c, const graph::NormBound& bound, const interp::Sequence& sequence) {
    if (bound.over == graph::NormBound::Over::Chunk) {
        Bindings inputs = chunk_inputs(c, sequence, 0);
        for (const ir::Op& op : bound.fn.ops)
            if (op.attrs.role == Role::Ones)
                inputs[interp::binding_name(op.attrs.name, Role::Ones)] = filled(op.type.shape, c.sizes, Role::Ones);
        return interp::evaluate(bound.fn, inputs, c.sizes).at(0).data.at(0);
    }
    double product = 1;
    for (std::int64_t token = 0; token < kChunk; ++token)
        product *= interp::evaluate(bound.fn, token_inputs(c, sequence, token), c.sizes).at(0).data.at(0);
    return product;
}

TEST_P(Transitions, AreNotLargerThanTheirBounds) {
    const Compiled c = compile(GetParam());
    const auto transitions = graph::transitions(c.program);
    const auto bounds = graph::norm_bounds(c.program, c.def);
    ASSERT_EQ(bounds.size(), transitions.size());
    for (std::size_t i = 0; i < bounds.size(); ++i) {
        const graph::Transition& t = transitions[i];
        const bool all_composable =
            std::all_of(transitions.begin(), transitions.end(), [](const auto& other) { return other.composable(); });
        EXPECT_EQ(bounds[i].over == graph::NormBound::Over::Nothing, !t.composable())
            << t.state << ": " << bounds[i].obstacle;
        if (!all_composable) continue;
        for (const Range range : {Range{-0.9, -0.1}, Range{-6, 0}, Range{0.1, 0.9}, Range{-0.5, 2.5}})
            for (const std::uint64_t seed : {1, 2, 3}) {
                if (c.def.input("alpha") != nullptr && range.low < 0) continue;  // a gate whose logarithm is taken
                const interp::Sequence sequence = interp::random_sequence(c.def, c.sizes, kChunk, seed, range);
                const double norm = measured_norm(t, summarize(c, sequence, 0, 1)),
                             bound = bound_over_chunk(c, bounds[i], sequence);
                EXPECT_GE(bound * (1 + 1e-9), norm)
                    << t.state << ", inputs in [" << range.low << ", " << range.high << "]";
                if (!t.is_matrix()) {
                    EXPECT_LE(bound, norm * (1 + 1e-9)) << t.state << ": factors have their norm exactly";
                }
            }
    }
}

/// The number that the work ahead of segments makes of a chunk is the sum of its tokens' bounds, as logarithms.
TEST_P(Transitions, HaveTheLogarithmOfTheirBounds) {
    const Compiled c = compile(GetParam());
    const auto program = graph::with_log_norm(c.program, c.def);
    if (!program) GTEST_SKIP() << "no number";
    for (const Range range : {Range{-0.9, -0.1}, Range{0.1, 0.9}, Range{-0.5, 2.5}}) {
        const interp::Sequence sequence = interp::random_sequence(c.def, c.sizes, kChunk, 5, range);
        double most = 0;  // of the states, token by token
        for (std::int64_t token = 0; token < kChunk; ++token) {
            double largest = 0;
            for (const graph::NormBound& bound : graph::norm_bounds(c.program, c.def)) {
                const auto norm = interp::evaluate(bound.fn, token_inputs(c, sequence, token), c.sizes);
                largest = std::max(largest, norm.at(0).data.at(0));
            }
            most += std::log(largest);
        }
        Bindings inputs = chunk_inputs(c, sequence, 0);
        for (const ir::StateDecl& state : c.def.states)
            inputs[state.name] = filled(state.type.shape, c.sizes, Role::State);
        const auto values = interp::evaluate(*program, inputs, c.sizes);
        for (std::size_t i = 0; i < values.size(); ++i)
            if (program->results[i].name == graph::kLogNorm) {
                EXPECT_NEAR(values[i].data.at(0), most, 1e-9);
            }
    }
}

/// Where they act on columns, each column is what the states' program makes of the identity's, values being zero.
TEST_P(Transitions, AreMadeByColumns) {
    const Compiled c = compile(GetParam());
    const Shape& state = c.def.states.front().type.shape;
    if (state.size() != 2 || !graph::acts_on_columns(c.program, state[1].symbol)) GTEST_SKIP() << "not by columns";
    const std::string axis = state[1].symbol;
    const interp::Sequence sequence = interp::random_sequence(c.def, c.sizes, kChunk, 7, {-0.9, -0.1});
    const ir::Function fn = graph::input_summary(c.program);
    const Bindings whole = summarize(c, sequence, 0, 1);
    Bindings inputs = chunk_inputs(c, sequence, 0);
    for (const ir::InputDecl& in : c.def.inputs)
        if (in.role == Role::Input && in.type.shape.back().symbol == axis)
            std::fill(inputs.at(in.name).data.begin(), inputs.at(in.name).data.end(), 0.0);
    const std::int64_t rows = interp::concrete(state, c.sizes)[0], width = interp::concrete(state, c.sizes)[1];
    for (std::int64_t column = 0; column < rows; ++column) {
        for (const ir::StateDecl& s : c.def.states) {
            Value start = filled(s.type.shape, c.sizes, Role::State);
            start.data[static_cast<std::size_t>(column * width)] = 1;
            inputs[s.name] = start;
        }
        const auto values = interp::evaluate(fn, inputs, c.sizes);
        for (std::size_t i = 0; i < values.size(); ++i) {
            const Value& d = whole.at(interp::binding_name(graph::transition_spill(fn.results[i].name), Role::Spill));
            for (std::int64_t row = 0; row < rows; ++row)
                EXPECT_NEAR(values[i].data[static_cast<std::size_t>(row * width)],
                            d.data[static_cast<std::size_t>(row * rows + column)], 1e-12);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Transitions, testing::ValuesIn(programs()),
                         [](const auto& program) { return program.param.name; });

TEST(TransitionColumns, AreOfMatricesFromTheLeftToWhichNothingIsAdded) {
    const auto by_columns = [](const char* name) {
        for (const variants::Entry& entry : programs())
            if (name == entry.name) return graph::acts_on_columns(compile(entry).program, "V");
        ADD_FAILURE() << name;
        return false;
    };
    for (const char* name : {"delta_net", "gated_delta_net", "kda", "delta_product"})
        EXPECT_TRUE(by_columns(name)) << name;
    for (const char* name : {"linear_attention", "scalar_gla", "gla", "two_states", "two_sided"})
        EXPECT_FALSE(by_columns(name)) << name;
}

struct Expected {
    const char* program;
    const char* state;
    TransitionClass cls;
    bool data_dependent;
};

TEST(TransitionClasses, AreDerivedFromTheDecay) {
    using enum TransitionClass;
    const Expected expected[] = {
        {"linear_attention", "s", Identity, false},
        {"retnet", "s", Scalar, false},
        {"lightning_attention", "s", Scalar, false},
        {"scalar_gla", "s", Scalar, true},
        {"gla", "s", DiagonalRows, true},
        {"hgrn2", "s", DiagonalRows, true},
        {"rwkv6", "s", DiagonalRows, true},
        {"hgrn", "h", Elementwise, true},
        {"hawk", "h", Elementwise, true},
        {"delta_net", "s", DiagonalMinusLowRankLeft, true},
        {"gated_delta_net", "s", DiagonalMinusLowRankLeft, true},
        {"delta_product", "s", DiagonalMinusLowRankLeft, true},
        {"kda", "s", DiagonalMinusLowRankLeft, true},
        {"mamba3", "s", Coupled, true},  // rows turn
        {"two_states", "s", Identity, false},
        {"two_states", "m", Scalar, true},
        {"normalised", "s", Scalar, true},
        {"normalised", "z", Scalar, true},
        {"linear_gate", "s", Scalar, true},
        {"last_rows", "s", Scalar, true},
        {"token_shift", "s", Identity, false},
        {"shifted_pairs", "s", Identity, false},
        {"shifted_gates", "s", Scalar, true},
        {"leaky_averages", "h", Elementwise, true},
        {"leaky_averages", "w", Identity, false},
        {"paired_keys", "s", Identity, false},
        {"weighted_tokens", "s", Scalar, true},
        {"several_rows", "s", Scalar, true},
        {"rotary", "s", NotAffine, false},  // keys are turned by the other state
        {"rotary", "n", Identity, false},
        {"turned_pairs", "s", Identity, false},
        {"two_readings", "s", Scalar, true},
        {"two_readings", "last", Scalar, false},  // by 0
        {"two_readings", "level", Scalar, false},
        {"running_maximum", "s", Identity, false},
        {"value_decay", "s", DiagonalColumns, true},
        {"two_sided", "s", Elementwise, true},
        {"elementwise_decay", "s", Elementwise, true},
        {"closed_loop", "s", DiagonalMinusLowRankLeft, true},
        {"running_maximum", "m", NotAffine, false},
        {"squashed", "s", NotAffine, false},
    };
    for (const variants::Entry& entry : programs())
        for (const auto& t : graph::transitions(compile(entry).program)) {
            const auto e = std::find_if(std::begin(expected), std::end(expected), [&](const Expected& x) {
                return entry.name == x.program && t.state == x.state;
            });
            ASSERT_NE(e, std::end(expected)) << entry.name << ", state " << t.state << ": " << to_string(t.cls);
            EXPECT_EQ(to_string(t.cls), std::string(to_string(e->cls))) << entry.name << ", state " << t.state;
            EXPECT_EQ(t.data_dependent, e->data_dependent) << entry.name << ", state " << t.state;
        }
}

/// The bound of a delta rule with keys of length 1: the gate alone, however long the recurrence forgets nothing else.
TEST(NormBounds, AreTightForOneToken) {
    for (const char* name : {"delta_net", "gated_delta_net"}) {
        const Compiled c = compile(*variants::find(name));
        interp::Sequence sequence = interp::random_sequence(c.def, c.sizes, kChunk, 5);
        Value& k = sequence.inputs.at("k");
        std::fill(k.data.begin(), k.data.end(), 0.0);
        for (std::int64_t token = 0; token < kChunk; ++token)
            k.data[static_cast<std::size_t>(token * k.shape[1] + token % k.shape[1])] = 1.0;
        std::fill(sequence.inputs.at("beta").data.begin(), sequence.inputs.at("beta").data.end(), 0.5);
        double gates = 0;
        if (const auto g = sequence.inputs.find("g"); g != sequence.inputs.end())
            for (const double x : g->second.data) gates += x;
        EXPECT_NEAR(bound_over_chunk(c, graph::norm_bounds(c.program, c.def).at(0), sequence), std::exp(gates), 1e-12)
            << name;
    }
}

/// The class of a map of a [K, V] state, given as what makes %next of %s.
TransitionClass class_of(const std::string& map) {
    const ir::Function fn = ir::parse_function(R"(func @f {
        %s: f32[K, V] = param() {name="s", role=state}
        %left: f32[K, K] = param() {name="left", role=input}
        %right: f32[V, V] = param() {name="right", role=input}
        %row: f32[1, K] = param() {name="row", role=input}
        %rows: f32[K, 1] = param() {name="rows", role=input}
        %columns: f32[1, V] = param() {name="columns", role=input}
        %all: f32[K, V] = param() {name="all", role=input}
        )" + map + R"(
        return state "s" = %next
    })");
    return graph::transitions(fn).at(0).cls;
}

// A sum or a product of a map from the left and one from the right is neither: segments would be joined wrongly.
TEST(TransitionClasses, AreOfOneSideOrCoupled) {
    using Class = TransitionClass;
    const std::string read = "%x: f32[1, V] = matmul(%row, %s) %y: f32[K, V] = mul(%x, %rows) ",
                      of_left = "%m: f32[K, V] = matmul(%left, %s) ", of_right = "%n: f32[K, V] = matmul(%s, %right) ";
    const std::vector<std::pair<std::string, Class>> expected = {
        {"%next: f32[K, V] = mul(%s, %rows)", Class::DiagonalRows},
        {"%r: f32[K, V] = mul(%s, %rows) %next: f32[K, V] = mul(%r, %columns)", Class::Elementwise},
        {"%next: f32[K, V] = matmul(%left, %s)", Class::DenseLeft},
        {read + "%next: f32[K, V] = sub(%s, %y)", Class::DiagonalMinusLowRankLeft},
        {read + "%r: f32[K, V] = mul(%s, %rows) %next: f32[K, V] = sub(%r, %y)", Class::DiagonalMinusLowRankLeft},
        {read + "%r: f32[K, V] = mul(%s, %columns) %next: f32[K, V] = sub(%r, %y)", Class::Coupled},
        {read + "%r: f32[K, V] = sub(%s, %y) %next: f32[K, V] = mul(%r, %rows)", Class::DiagonalMinusLowRankLeft},
        {read + "%r: f32[K, V] = sub(%s, %y) %next: f32[K, V] = mul(%r, %columns)", Class::Coupled},
        {read + "%r: f32[K, V] = sub(%s, %y) %next: f32[K, V] = mul(%r, %all)", Class::Coupled},
        {of_left + "%next: f32[K, V] = mul(%m, %columns)", Class::Coupled},
        {of_left + "%next: f32[K, V] = matmul(%m, %right)", Class::Coupled},
        {of_left + "%next: f32[K, V] = matmul(%left, %m)", Class::DenseLeft},
        {of_right + "%next: f32[K, V] = mul(%n, %columns)", Class::DenseRight},
        {of_right + "%next: f32[K, V] = mul(%n, %rows)", Class::Coupled},
        {of_left + of_right + "%next: f32[K, V] = add(%m, %n)", Class::Coupled},
        {of_left + "%next: f32[K, V] = matmul_add(%s, %right, %m)", Class::Coupled},
        {of_left + "%next: f32[K, V] = matmul_add(%left, %s, %m)", Class::DenseLeft},
    };
    for (const auto& [map, cls] : expected) EXPECT_STREQ(to_string(class_of(map)), to_string(cls)) << map;
    EXPECT_STREQ(to_string(class_of("%t: f32[V, K] = matmul(%right, %s) {trans_b=true} "
                                    "%next: f32[K, V] = permute(%t) {perm=[1, 0]}")),
                 to_string(Class::Coupled));
}

TEST(TransitionClasses, NameTheOpThatIsNotAffine) {
    for (const variants::Entry& entry : novel::all()) {
        if (entry.name != "squashed") continue;
        const auto t = graph::transitions(compile(entry).program).at(0);
        EXPECT_NE(t.obstacle.find("tanh"), std::string::npos) << t.obstacle;
        EXPECT_NE(t.where.file.find("states.cpp"), std::string::npos);
        EXPECT_THROW((void)graph::summary(compile(entry).program), CompileError);
    }
}

}  // namespace
}  // namespace forge
