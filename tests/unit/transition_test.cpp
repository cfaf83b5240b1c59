/// Transitions: their classes, and the property that makes segments exact: the summaries of two segments, applied one
/// after the other, do what the summary of both together does, which is what the program does token by token.
#include "graph/transition.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "frontend/join.h"
#include "graph/pipeline.h"
#include "interp/semantics.h"
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
        const std::int64_t rows = kChunk * in.type.shape[0].factor, row = static_cast<std::int64_t>(all.data.size()) / all.shape[0];
        for (const Role role : {Role::Input, Role::Shifted}) {
            Value part{all.shape, {}};
            part.shape[0] = rows;
            for (std::int64_t i = 0; i < rows * row; ++i) {
                const std::int64_t from = (chunk * rows - (role == Role::Shifted ? in.type.shape[0].factor : 0)) * row + i;
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
    for (std::int64_t i = 0; role == Role::Eye && i < v.shape[0]; ++i) v.data[static_cast<std::size_t>(i * (v.shape[0] + 1))] = 1.0;
    return v;
}

/// D and B of the chunks [from, to), as the spills that `carry` reads.
Bindings summarize(const Compiled& c, const interp::Sequence& sequence, std::int64_t from, std::int64_t to) {
    const ir::Function fn = graph::summary(c.program);
    Bindings carried;
    for (const ir::Op& op : fn.ops)
        if (op.code == ir::Opcode::Param && (op.attrs.role == Role::State || op.attrs.role == Role::Ones || op.attrs.role == Role::Eye))
            carried[interp::binding_name(op.attrs.name, op.attrs.role)] = filled(op.type.shape, c.sizes, op.attrs.role);
    for (std::int64_t chunk = from; chunk < to; ++chunk) {
        Bindings bound = chunk_inputs(c, sequence, chunk);
        bound.insert(carried.begin(), carried.end());
        const auto values = interp::evaluate(fn, bound, c.sizes);
        for (std::size_t i = 0; i < values.size(); ++i) carried[interp::binding_name(fn.results[i].name, fn.results[i].role)] = values[i];
    }
    Bindings spills;
    for (const ir::Result& r : fn.results)
        spills[interp::binding_name(r.role == Role::State ? graph::input_spill(r.name) : graph::transition_spill(r.name), Role::Spill)] =
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

TEST_P(Transitions, SummariesOfSegmentsCompose) {
    const Compiled c = compile(GetParam());
    for (const auto& t : graph::transitions(c.program))
        if (!t.composable()) GTEST_SKIP() << to_string(t.cls);
    const bool linear = c.def.input("alpha") != nullptr;
    const interp::Sequence sequence = interp::random_sequence(c.def, c.sizes, 5 * kChunk, 11, linear ? interp::Range{0.3, 0.95} : interp::Range{-0.9, -0.1});
    const Bindings once = apply(c, sequence.initial_states, summarize(c, sequence, 0, 5));
    const Bindings twice = apply(c, apply(c, sequence.initial_states, summarize(c, sequence, 0, 2)), summarize(c, sequence, 2, 5));
    const auto whole = interp::run_program(c.program, c.def, sequence, c.sizes);
    for (const auto& [state, value] : whole.states) {
        EXPECT_LE(interp::relative_difference(value, once.at(state)), 1e-10) << state;
        EXPECT_LE(interp::relative_difference(value, twice.at(state)), 1e-10) << state;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Transitions, testing::ValuesIn(programs()), [](const auto& program) { return program.param.name; });

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
        {"two_states", "s", Identity, false},
        {"two_states", "m", Scalar, true},
        {"normalised", "s", Scalar, true},
        {"normalised", "z", Scalar, true},
        {"linear_gate", "s", Scalar, true},
        {"token_shift", "s", Identity, false},
        {"paired_keys", "s", Identity, false},
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
            const auto e = std::find_if(std::begin(expected), std::end(expected), [&](const Expected& x) { return entry.name == x.program && t.state == x.state; });
            ASSERT_NE(e, std::end(expected)) << entry.name << ", state " << t.state << ": " << to_string(t.cls);
            EXPECT_EQ(to_string(t.cls), std::string(to_string(e->cls))) << entry.name << ", state " << t.state;
            EXPECT_EQ(t.data_dependent, e->data_dependent) << entry.name << ", state " << t.state;
        }
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
