/// Kernels for warp groups, run: the emitted source, compiled for the CPU with fibers for threads (emulated/), against
/// the float64 recurrence. Warps run, and copies and products end, in orders that differ from seed to seed and must
/// leave the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "check/check.h"
#include "check/suite.h"
#include "dist/fold.h"
#include "emit/cuda/emit_cuda.h"
#include "forge/error.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "graph/derive.h"
#include "graph/passes.h"
#include "graph/pipeline.h"
#include "graph/summary.h"
#include "interp/recurrence.h"
#include "runtime/device_call.h"
#include "runtime/named_arguments.h"
#include "target/hopper/warp_groups.h"
#include "target/simt/shared_memory.h"
#include "tests/cuda/emulated/program.h"
#include "tests/cuda/float_forms.h"
#include "tests/cuda/in_place.h"
#include "tests/random/program.h"
#include "tests/support/turns.h"

namespace forge::tests {
namespace {

constexpr target::SharedMemory kHopper{220 * 1024, 132, 227 * 1024};
constexpr std::int64_t kFewTasks = 32, kManyTasks = 512;  ///< several warp groups per task, or one

struct Example {
    std::string program;
    DType dtype = BF16;
    std::int64_t k = 128, v = 128;

    [[nodiscard]] std::map<std::string, std::int64_t> sizes() const { return {{"K", k}, {"V", v}}; }
};

void PrintTo(const Example& e, std::ostream* out) {
    *out << e.program << ", " << to_string(e.dtype) << ", " << e.k << " x " << e.v;
}

/// Nothing if the strategy is not for the program, or it has no kernels for warp groups.
std::optional<plan::Plan> plan_for(const ir::Definition& def, const Example& example,
                                   std::optional<plan::Strategy> strategy, std::int64_t tasks, std::int64_t tiles = 0,
                                   plan::Engine fragments = plan::Engine::WarpGroups) {
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes sizes = check::sizes_for(def, {.sizes = example.sizes()});
    target::FitWishes wishes;
    wishes.strategy = strategy;
    wishes.expected_tasks = tasks;
    wishes.expected_tokens = 32768;
    wishes.tiles = tiles, wishes.fragments = fragments;
    try {
        return plan::make_plan(def, program, sizes, target::fit_warp_groups(def, program, sizes, kHopper, wishes));
    } catch (const plan::NotForWarpGroups&) {
    } catch (const CompileError&) {}
    return {};
}

/// Its place among examples: programs, then their sizes.
std::size_t turn_of(const Example& example) {
    return tests::turn_of(example.program) + static_cast<std::size_t>(example.k + example.v) / 64;
}

bool has_roles(const plan::Plan& plan) {
    return std::any_of(plan.kernels.begin(), plan.kernels.end(),
                       [](const plan::Kernel& k) { return k.tiles.roles.has_value(); });
}

bool has_kernels(const ir::Definition& def, const Example& example) {
    const auto all = plan::all_strategies();
    return std::any_of(all.begin(), all.end(), [&](plan::Strategy strategy) {
        return plan_for(def, example, strategy, kFewTasks) || plan_for(def, example, strategy, kManyTasks);
    });
}

/// Strategies for few tasks and for many, each source once.
std::vector<std::pair<std::string, plan::Plan>> plans_for(const ir::Definition& def, const Example& example) {
    std::vector<std::pair<std::string, plan::Plan>> plans;
    std::set<std::string> sources;
    for (const plan::Strategy strategy : plan::all_strategies())
        for (const std::int64_t tasks : {kFewTasks, kManyTasks})
            if (const auto plan = plan_for(def, example, strategy, tasks);
                plan && sources.insert(emit::emit_cuda(*plan)).second)
                plans.emplace_back(fmt::format("{}, {} tasks", plan::to_string(strategy), tasks), *plan);
    return plans;
}

/// A problem with what the recurrence makes of it.
struct Solved {
    std::string name;
    unsigned orders;  ///< how many are tried, where warp groups have roles
    check::Buffers buffers;
    check::Reference reference;
};

std::vector<Solved> problems_for(const ir::Definition& declared, const Example& example) {
    std::vector<Solved> solved;
    const auto add = [&](const std::string& name, unsigned orders, check::Problem problem) {
        problem.sizes = example.sizes(), problem.dtype = example.dtype;
        check::Buffers buffers(declared, problem);
        check::Reference reference = check::reference(buffers, 64);
        solved.push_back({name, orders, std::move(buffers), std::move(reference)});
    };
    add("ragged", 2, {.T = 150, .H = 1, .initial_state = true});
    add("more chunks than buffers", 2, {.T = 330, .H = 1, .initial_state = true});
    add("short", 1, {.B = 2, .T = 20, .H = 1});
    add("one chunk", 1, {.T = 64, .H = 1});
    add("packed", 2, {.H = 1, .lengths = {70, 0, 1, 130}});
    add("packed, initial states", 1, {.H = 1, .lengths = {0, 66, 128}, .initial_state = true});
    add("not aligned", 1, {.T = 100, .H = 1, .initial_state = true, .strided = true});
    if (check::has_keys(declared)) add("correlated keys, beta near 1", 1, {.T = 130, .H = 1, .correlated_keys = true});
    if (check::has_gates(declared)) add("steep gates", 1, {.T = 70, .H = 1, .gate = -5.0});
    if (check::has_grouped_heads(declared)) add("grouped heads", 1, {.T = 70, .H = 1, .HV = 2});
    return solved;
}

std::vector<std::vector<std::byte>> results(const check::Buffers& buffers) {
    std::vector<std::vector<std::byte>> all;
    for (const auto* list : {&buffers.outputs, &buffers.final_states})
        for (const auto& [name, x] : *list) all.push_back(x.storage);
    return all;
}

void expect_solved(const emulated::Program& program, Solved& problem, unsigned orders) {
    std::vector<std::vector<std::byte>> first;
    for (unsigned seed = 1; seed <= orders; ++seed) {
        SCOPED_TRACE(fmt::format("{}, seed {}", problem.name, seed));
        check::clear_results(problem.buffers);
        ASSERT_NO_THROW(program.run(problem.buffers.call(), seed));
        for (const check::Difference& d : check::compare(problem.buffers, problem.reference).differences)
            EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
        if (first.empty()) first = results(problem.buffers);
        EXPECT_EQ(first, results(problem.buffers)) << "other bits";
    }
}

class WarpGroupKernels : public testing::TestWithParam<Example> {};

TEST_P(WarpGroupKernels, DoWhatTheRecurrenceSays) {
    const Example& example = GetParam();
    const ir::Definition declared = graph::with_phases(program_named(example.program).make().define());
    std::vector<Solved> problems = problems_for(declared, example);
    const auto plans = plans_for(frontend::with_dtype(declared, example.dtype), example);
    const std::size_t ways = is_variant(program_named(example.program)) ? 2 : 1;
    const std::size_t each = (problems.size() + 2) / 3;
    int count = 0;
    for (const auto& [name, plan] : in_turn(turn_of(example), plans, ways)) {
        SCOPED_TRACE(name);
        const emulated::Program program(fmt::format("{}_{}", example.program, count++), plan);
        std::vector<Solved*> all;
        for (Solved& problem : problems) all.push_back(&problem);
        for (Solved* problem : in_turn(turn_of(example), all, each, each * static_cast<std::size_t>(count)))
            expect_solved(program, *problem, has_roles(plan) ? problem->orders : 1);
    }
    EXPECT_GT(count, 0);
}

/// The summaries of a sequence's state s, in the workspace of a call.
dist::detail::Fold fold_of(const plan::Plan& plan, const runtime::SummaryPlaces& places, std::int64_t heads) {
    const auto sized = [&](const Shape& shape) {
        std::vector<std::int64_t> sizes;
        for (const Dim& d : shape) sizes.push_back(d.is_constant() ? d.factor : d.factor * plan.sizes.at(d.symbol));
        return sizes;
    };
    const auto input = static_cast<std::size_t>(plan.spill(graph::input_spill("s"))),
               map = static_cast<std::size_t>(plan.spill(graph::transition_spill("s")));
    const graph::Transition transition = graph::transitions(plan.program).at(0);
    dist::detail::Fold fold;
    fold.field = {transition.is_matrix() ? Carried::Map::Left : Carried::Map::Factors,
                  sized(plan.spills[input].type.shape), sized(plan.spills[map].type.shape), heads};
    fold.added = places.spills[input], fold.map = places.spills[map];
    fold.added_block = plan.spills[input].floats, fold.added_strides = plan.spills[input].strides;
    fold.map_block = plan.spills[map].floats, fold.map_strides = plan.spills[map].strides;
    fold.heads = places.heads, fold.first = places.first, fold.count = places.count;
    return fold;
}

/// How far what a sequence's summaries do to its initial state is from its final one.
double distance_of_fold(dist::detail::Fold fold, const check::Buffers& buffers, std::int64_t n) {
    const check::OwnedTensor &initial = buffers.initial_states.at("s"), &final = buffers.final_states.at("s");
    const std::int64_t count = fold.field.lanes * fold.field.block();
    std::vector<float> begun, after(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) begun.push_back(static_cast<float>(initial.at(n * count + i)));
    fold.begun = begun.data(), fold.state = after.data();
    dist::detail::fold_on_host(fold);
    double error = 0, norm = 1e-12;
    for (std::int64_t i = 0; i < count; ++i) {
        const double x = final.at(n * count + i), d = after[static_cast<std::size_t>(i)] - x;
        error += d * d, norm += x * x;
    }
    return std::sqrt(error / norm);
}

/// What ranks ask for, the summaries of last segments too, whose last chunk may have few tokens: joined, those of all
/// segments are what the call does to its states.
TEST(SegmentsOfRanks, SumUpToTheFinalStates) {
    constexpr plan::Engine kGroups = plan::Engine::WarpGroups, kWarps = plan::Engine::Warps;
    for (const auto& [example, engine] : {std::pair{Example{"scalar_gla", BF16, 64, 64}, kGroups},
                                          {Example{"gated_delta_net", BF16, 64, 64}, kGroups},
                                          {Example{"scalar_gla", F32, 64, 64}, kGroups},
                                          {Example{"gated_norm", BF16, 64, 64}, kGroups},
                                          {Example{"scalar_gla", BF16, 64, 64}, kWarps},
                                          {Example{"gated_delta_net", BF16, 64, 64}, kWarps}}) {
        const std::string& name = example.program;
        const ir::Definition def = graph::with_phases(program_named(name).make().define());
        const plan::Plan plan =
            plan_for(frontend::with_dtype(def, example.dtype), example, plan::Strategy::Segmented, kFewTasks, 0, engine)
                .value();
        const std::string folder =
            fmt::format("ranks_{}_{}_{}", name, to_string(example.dtype), plan::to_string(engine));
        const emulated::Program program(folder, plan, [](std::string& source) {
            const std::string flag = "call.every_summary";
            ASSERT_NE(source.find(flag), std::string::npos);
            for (std::size_t at = 0; (at = source.find(flag, at)) != std::string::npos;)
                source.replace(at, flag.size(), "true");
        });
        for (check::Problem problem : {check::Problem{.T = 330, .H = 1, .initial_state = true},
                                       check::Problem{.H = 1, .lengths = {70, 0, 1, 200}, .initial_state = true}}) {
            problem.sizes = example.sizes(), problem.dtype = example.dtype;
            check::Buffers buffers(def, problem);
            std::vector<std::int64_t> offsets{0};
            for (const std::int64_t n : problem.lengths) offsets.push_back(offsets.back() + n);
            program.run(buffers.call(), 1, 1, [&](const runtime::Callable& callable, const Call& call) {
                const runtime::NamedArguments arguments(callable, call);
                for (std::int64_t n = 0; n < problem.sequences(); ++n) {
                    const runtime::SummaryPlaces places = runtime::device_summaries(callable, arguments, n, offsets);
                    EXPECT_LT(distance_of_fold(fold_of(plan, places, problem.H), buffers, n), 0.005)
                        << name << ", sequence " << n << ", " << places.count << " summaries";
                }
            });
        }
    }
}

// Segments of delta rules, whose transitions are matrices: where the norm of a segment's transition falls below float's
// last bit, its summary begins late and it has no transition; elsewhere transitions are made column by column.
class ForgettingSegments : public testing::TestWithParam<std::string> {
  protected:
    const Example example_{GetParam(), BF16, 64, 128};
    const ir::Definition def_ = graph::with_phases(program_named(example_.program).make().define());
    const plan::Plan plan_ =
        plan_for(frontend::with_dtype(def_, BF16), example_, plan::Strategy::Segmented, kFewTasks).value();

    /// With a text of the source, wherever it stands, replaced by another.
    [[nodiscard]] emulated::Program program(const std::string& text = "", const std::string& by = "") const {
        return {"forgetting_" + GetParam() + std::to_string(by.size()), plan_, [&](std::string& source) {
                    EXPECT_NE(source.find(text), std::string::npos) << text;
                    for (std::size_t at = 0; !text.empty() && (at = source.find(text, at)) != std::string::npos;
                         at += by.size())
                        source.replace(at, text.size(), by);
                }};
    }
    /// Segments of two chunks; many more would replace what a state of 64 keys holds.
    [[nodiscard]] check::Problem problem(double gate) const {
        return {.T = 190, .H = 2, .sizes = example_.sizes(), .dtype = BF16, .initial_state = true, .gate = gate};
    }
    [[nodiscard]] bool is_right(const emulated::Program& program, const check::Problem& problem) const {
        check::Buffers buffers(def_, problem);
        const check::Reference reference = check::reference(buffers, 64);
        program.run(buffers.call(), 1);
        return check::compare(buffers, reference).ok;
    }
    static constexpr double kForgets = -0.2, kRemembers = -1e-3;
};

TEST_P(ForgettingSegments, AreRightWhateverTheyForget) {
    ASSERT_TRUE(plan_.schedule.forgetting);
    const emulated::Program kernels = program();
    for (const double gate : {0.0, kRemembers, -0.1, kForgets, -5.0, -std::numeric_limits<double>::infinity()})
        EXPECT_TRUE(is_right(kernels, problem(gate))) << gate;
    for (const double gate : {kRemembers, kForgets}) {
        check::Problem packed = problem(gate);
        packed.lengths = {200, 0, 1, 530, 64};
        EXPECT_TRUE(is_right(kernels, packed)) << gate;
    }
}

// More segments than a warp has lanes and than places for their transitions; which of them forget is drawn.
class ManySegments : public testing::TestWithParam<DType> {};

TEST_P(ManySegments, AreRightWhicheverForget) {
    const Example example{"gated_delta_net", GetParam(), 64, 64};
    const ir::Definition def = graph::with_phases(program_named(example.program).make().define());
    const auto plan = plan_for(frontend::with_dtype(def, example.dtype), example, plan::Strategy::Segmented, 1);
    ASSERT_TRUE(plan && plan->schedule.forgetting);
    constexpr std::int64_t kSegment = 128;
    check::Buffers buffers(
        def, {.T = 36 * kSegment + 1, .H = 1, .sizes = example.sizes(), .dtype = example.dtype, .initial_state = true});
    std::mt19937 draw(7);
    for (std::int64_t t = 0, forgets = 0; t < buffers.problem().T; ++t) {
        if (t % kSegment == 0) forgets = draw() % 3 == 0;
        buffers.inputs.at("g").set(t, forgets ? -0.2 : -1e-3);
    }
    const check::Reference reference = check::reference(buffers, 64);
    emulated::Program(fmt::format("many_segments_{}", forge::to_string(example.dtype)), *plan).run(buffers.call(), 1);
    for (const check::Difference& d : check::compare(buffers, reference).differences)
        EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
}

INSTANTIATE_TEST_SUITE_P(Halves, ManySegments, testing::Values(BF16, F16),
                         [](const auto& test) { return forge::to_string(test.param); });

TEST_P(ForgettingSegments, HaveTransitionsWhereTheyRemember) {
    const emulated::Program kernels = program("if (at.forgets && at.tile >= 2) return;", "if (at.tile >= 2) return;");
    EXPECT_TRUE(is_right(kernels, problem(kForgets)));
    EXPECT_FALSE(is_right(kernels, problem(kRemembers)));
}

TEST_P(ForgettingSegments, StartFromTheCarriedStateWhereTheyRemember) {
    const emulated::Program kernels =
        program("starts_anew(call, call.spills[0], at.segment, at.row == 0)", "at.row > 0");
    EXPECT_TRUE(is_right(kernels, problem(kForgets)));
    EXPECT_FALSE(is_right(kernels, problem(kRemembers)));
}

// Asked for in one tile, values are wider than what a tile has of a transition's 64 columns: these are then no tiles.
TEST(SegmentsOfWideTiles, HaveAllColumnsOfTheirTransitions) {
    for (const std::int64_t keys : {64, 128, 192}) {
        const Example example{"gated_delta_net", BF16, keys, 128};
        const ir::Definition def = graph::with_phases(program_named(example.program).make().define());
        const auto plan = plan_for(frontend::with_dtype(def, BF16), example, plan::Strategy::Segmented, kFewTasks, 1);
        if (!plan) continue;
        EXPECT_EQ(plan->schedule.transition_columns, keys % 128 == 0) << keys;
        check::Buffers buffers(def, {.T = 190, .H = 1, .sizes = example.sizes(), .dtype = BF16, .gate = -1e-3});
        const check::Reference reference = check::reference(buffers, 64);
        emulated::Program(fmt::format("wide_tiles_{}", keys), *plan).run(buffers.call(), 1);
        for (const check::Difference& d : check::compare(buffers, reference).differences)
            EXPECT_TRUE(d.ok) << keys << " " << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
    }
}

INSTANTIATE_TEST_SUITE_P(Some, ForgettingSegments, testing::Values("gated_delta_net", "delta_product"),
                         [](const auto& test) { return test.param; });

// Every segment reads the initial state, and the last one stores the final state, in the same memory, whichever begins
// first: here the last one (an even seed).
class SegmentsInPlace : public testing::Test {
  protected:
    const Example example_{"scalar_gla", BF16, 64, 64};
    const ir::Definition def_ = graph::with_phases(program_named(example_.program).make().define());
    const plan::Plan plan_ =
        plan_for(frontend::with_dtype(def_, BF16), example_, plan::Strategy::Segmented, kFewTasks).value();

    [[nodiscard]] check::Buffers buffers(check::Problem problem) const {
        problem.sizes = example_.sizes(), problem.dtype = BF16, problem.initial_state = true;
        return {def_, problem};
    }
};

TEST_F(SegmentsInPlace, AreRightWhicheverBeginsFirst) {
    const emulated::Program program("segments_in_place", plan_);
    for (const check::Problem& problem :
         {check::Problem{.B = 2, .T = 330, .H = 1}, check::Problem{.H = 1, .lengths = {70, 0, 1, 200}}}) {
        check::Buffers given = buffers(problem);
        const check::Reference reference = check::reference(given, 64);
        program.run(given.call(), 2);
        EXPECT_TRUE(check::compare(given, reference).ok);
        const auto apart = results(given);
        check::clear_results(given);
        run_in_place(program, given, 2);
        EXPECT_EQ(apart, results(given)) << "other bits";
    }
}

// The final states are those of a pool from its second slot on: the addresses differ, and what is written is read.
TEST_F(SegmentsInPlace, AreFoundWherePoolsOverlap) {
    const emulated::Program program("segments_in_pools", plan_);
    check::Buffers given = buffers({.T = 330, .H = 1});
    const check::Reference reference = check::reference(given, 64);
    Call call = given.call();
    const TensorView first = call.initial_states.at("s");
    const std::size_t bytes = given.initial_states.at("s").storage.size();
    std::vector<std::byte> memory(2 * bytes);
    std::copy_n(static_cast<const std::byte*>(first.data), bytes, memory.data() + bytes);
    std::int32_t second = 1, none = 0;
    TensorView pool = first, last = first;
    pool.data = memory.data(), pool.shape[0] = 2, last.data = memory.data() + bytes;
    call.initial_states["s"] = pool, call.final_states["s"] = last;
    call.initial_slots = TensorView{&second, DType::I32, {1}, {}},
    call.final_slots = TensorView{&none, DType::I32, {1}, {}};
    program.run(call, 2);
    std::copy_n(memory.data() + bytes, bytes, given.final_states.at("s").storage.data());
    EXPECT_TRUE(check::compare(given, reference).ok);
}

// What these tests rest on: stored at once, the state is there before others have read the initial one.
TEST_F(SegmentsInPlace, WouldOtherwiseBeWrong) {
    const emulated::Program program("segments_at_once", plan_, [](std::string& source) {
        const std::string late = "if (call.in_place) {";
        const std::size_t at = source.find(late);
        ASSERT_NE(at, std::string::npos);
        source.replace(at, late.size(), "if (false) {");
        const std::string end = "if (call.in_place) store_late_state";
        const std::size_t stored = source.find(end);
        ASSERT_NE(stored, std::string::npos);
        source.replace(stored, end.size(), "if (false) store_late_state");
    });
    check::Buffers given = buffers({.T = 330, .H = 1});
    const check::Reference reference = check::reference(given, 64);
    run_in_place(program, given, 1);
    EXPECT_TRUE(check::compare(given, reference).ok) << "the first segment began first";
    given = buffers({.T = 330, .H = 1});
    run_in_place(program, given, 2);
    EXPECT_FALSE(check::compare(given, reference).ok) << "the last segment began first";
}

/// Linear attention beside two states that need no others: a normaliser, of which every tile of values makes all, and a
/// mean of values, of which each has its part.
LinearAttention normaliser_beside_mean() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("normaliser_beside_mean");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.input("g", F32, {T, H}, Range{-INFINITY, 0});
    a.state("s", F32, {K, V}).state("z", F32, {K}).state("h", F32, {V});
    a.step({"q", "k", "v", "g", "prev_s", "prev_z", "prev_h"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s, Tensor z, Tensor h) -> Results {
               Tensor next_s = s * exp(g) + outer(k, v), next_z = z * exp(g) + k, next_h = h * exp(g) + v;
               return {{"s", next_s},
                       {"z", next_z},
                       {"h", next_h},
                       {"o", matmul(q, next_s) + next_h * sigmoid(sum(q * next_z, 0))}};
           });
    return a;
}

// Each tile's task reads all of the normaliser, and its final state lies in the same memory: here the last tile begins
// first, or the first one.
TEST(EarlyStatesInPlace, AreRightWhicheverTileBeginsFirst) {
    const Example example{"normaliser_beside_mean", BF16, 64, 128};
    const ir::Definition def = graph::with_phases(normaliser_beside_mean().define());
    const plan::Plan plan = plan_for(def, example, std::nullopt, kFewTasks).value();
    EXPECT_EQ(plan.schedule.early, (std::set<std::string>{"h", "z"}));
    const emulated::Program program("early_in_place", plan);
    for (const unsigned seed : {1U, 2U}) {
        check::Buffers buffers(def, {.T = 150, .H = 1, .sizes = example.sizes(), .dtype = BF16, .initial_state = true});
        const check::Reference reference = check::reference(buffers, 64);
        run_in_place(program, buffers, seed);
        for (const check::Difference& d : check::compare(buffers, reference).differences)
            EXPECT_TRUE(d.ok) << seed << " " << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
    }
}

// By what would be chosen: states and outputs without the value axis, of which each of two tiles of it makes all;
// products with vectors; matrices of the token before; kernels that only fit by another strategy.
class OpenedForms : public testing::TestWithParam<std::string> {};

/// Side by side and packed, beside the states that they start from and in place of them.
void expect_right_by(const Example& example, const ir::Definition& def, const plan::Plan& plan) {
    SCOPED_TRACE(plan::to_string(plan.schedule));
    const emulated::Program program("opened_" + example.program, plan);
    for (check::Problem problem : {check::Problem{.B = 2, .T = 150, .H = 1, .initial_state = true},
                                   check::Problem{.H = 1, .lengths = {70, 0, 130}, .strided = true}}) {
        problem.sizes = example.sizes(), problem.dtype = example.dtype;
        check::Buffers buffers(def, problem);
        const check::Reference reference = check::reference(buffers, 64);
        const auto expect_right = [&](const char* how) {
            for (const check::Difference& d : check::compare(buffers, reference).differences)
                EXPECT_TRUE(d.ok) << how << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
        };
        program.run(buffers.call(), 1);
        expect_right("");
        if (!problem.initial_state) continue;
        check::clear_results(buffers);
        run_in_place(program, buffers);
        expect_right("in place: ");
    }
}

TEST_P(OpenedForms, DoWhatTheRecurrenceSays) {
    const Example example{GetParam(), BF16, 64, 128};
    const ir::Definition def = graph::with_phases(program_named(example.program).make().define());
    expect_right_by(example, def, plan_for(def, example, std::nullopt, kManyTasks).value());
}

INSTANTIATE_TEST_SUITE_P(Some, OpenedForms,
                         testing::Values("normalised", "mesa_diagonal", "precision_weighted", "preconditioned_delta",
                                         "heavy_ball", "momentum_delta", "rwkv7", "trapezoidal", "shifted_pairs",
                                         "paired_keys", "rotary", "temporal_difference"),
                         [](const auto& test) { return test.param; });

// Operands of floats have bf16 parts, of which the first is what such an output is.
TEST(FloatInputs, MayHaveOutputsOf16Bits) {
    const ir::Definition def = floats_to_halves();
    const Example example{"floats_to_halves", BF16, 64, 100};
    for (const std::int64_t tasks : {kFewTasks, kManyTasks}) {
        const auto plan = plan_for(def, example, std::nullopt, tasks);
        ASSERT_TRUE(plan.has_value());
        EXPECT_GT(plan->schedule.operand_parts, 1);
        expect_right_by(example, def, *plan);
    }
}

/// Values scaled by a vector per head.
ir::Definition scaled_values() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("scaled_values");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}).head_input("u", F32, {H, V});
    a.state("s", F32, {K, V}).output("o", BF16, {T, H, V});
    a.step({"q", "k", "v", "u", "prev_s"},
           [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& u, const Tensor& s) -> Results {
               const Tensor next = s + outer(k, v * u);
               return {{"s", next}, {"o", matmul(q, next)}};
           });
    return graph::with_phases(a.define());
}

// Of what heads have along the axis of values, tiles of a block would each need their own part.
TEST(PerHeadInputs, AreThoseOfTheTile) {
    const ir::Definition def = scaled_values();
    const Example example{"scaled_values", BF16, 64, 128};
    for (const std::int64_t tasks : {kFewTasks, kManyTasks}) {
        const auto plan = plan_for(def, example, plan::Strategy::OnePass, tasks);
        ASSERT_TRUE(plan.has_value());
        EXPECT_EQ(plan->schedule.block_tiles, 1);
        expect_right_by(example, def, *plan);
    }
}

std::string name_of_example(const testing::TestParamInfo<Example>& test) {
    return fmt::format("{}_{}_{}x{}", test.param.program, to_string(test.param.dtype), test.param.k, test.param.v);
}

/// For few tasks and for many there is a plan of which `expect` holds, and its kernels do what the recurrence says.
void expect_right_plans(const Example& example, const std::function<void(const plan::Plan&)>& expect) {
    const ir::Definition def =
        frontend::with_dtype(graph::with_phases(program_named(example.program).make().define()), example.dtype);
    for (const std::int64_t tasks : {kFewTasks, kManyTasks}) {
        const auto plan = plan_for(def, example, std::nullopt, tasks);
        ASSERT_TRUE(plan.has_value()) << tasks << " tasks";
        SCOPED_TRACE(plan::to_string(plan->schedule));
        expect(*plan);
        expect_right_by(example, def, *plan);
    }
}

// Features of keys of 256 numbers, halves of which are turned, or of 128, whose halves are blocks: made ahead, block by
// block.
class SplitFeatures : public testing::TestWithParam<Example> {};

TEST_P(SplitFeatures, DoWhatTheRecurrenceSays) {
    expect_right_plans(GetParam(), [](const plan::Plan& plan) { EXPECT_FALSE(plan.schedule.split.empty()); });
}

INSTANTIATE_TEST_SUITE_P(Some, SplitFeatures,
                         testing::Values(Example{"rotary", BF16, 128, 128}, Example{"rotary_retention", F16, 128, 128},
                                         Example{"mamba3", BF16, 128, 128}, Example{"rotary", F16, 128, 64},
                                         Example{"rotary_retention", BF16, 64, 64}, Example{"mamba3", BF16, 64, 64}),
                         name_of_example);

// Keys whose pairs of neighbours are turned: one loop reads every other number where it lies, and writes both by turns.
class TurnedPairs : public testing::TestWithParam<Example> {};

TEST_P(TurnedPairs, AreMadeInOneLoop) {
    using Space = ir::Layout::Space;
    expect_right_plans(GetParam(), [](const plan::Plan& plan) {
        int by_turns = 0, tiles = 0;
        for (const plan::Kernel& kernel : plan.kernels)
            for (const ir::Op& op : kernel.tiles.fn.ops) {
                by_turns += op.code == ir::Opcode::Interleave && op.layout->space == Space::Operand;
                tiles += op.code == ir::Opcode::Copy && op.type.rank() == 2 && op.layout->space == Space::Tile;
            }
        EXPECT_GT(by_turns, 0);
        EXPECT_EQ(tiles, 0);
    });
}

INSTANTIATE_TEST_SUITE_P(Some, TurnedPairs,
                         testing::Values(Example{"turned_pairs", BF16, 128, 128}, Example{"turned_pairs", F16, 64, 64}),
                         name_of_example);

// Random programs of 128 keys and values, several states each, whose kernels of outputs or states only fit with axes in
// blocks, or with matrices of one chunk at a time.
class LargeRandomPrograms : public testing::TestWithParam<std::uint64_t> {};

TEST_P(LargeRandomPrograms, DoWhatTheRecurrenceSays) {
    fuzz::Decisions decisions(GetParam(), {{"wide", 0}, {"axes", 0}});
    fuzz::Program random = fuzz::make_program(decisions);
    const Example example{fmt::format("random_{}", GetParam()), BF16, 128, 128};
    random.sizes = example.sizes();
    const auto plan = plan_for(random.def, example, std::nullopt, kFewTasks);
    ASSERT_TRUE(plan.has_value());
    SCOPED_TRACE(plan::to_string(plan->schedule));
    const emulated::Program program(example.program, *plan);
    for (check::Problem problem : {check::Problem{.T = 230, .H = 2, .initial_state = true},
                                   check::Problem{.H = 1, .lengths = {70, 0, 130}, .strided = true}}) {
        problem.sizes = random.sizes, problem.dtype = BF16;
        check::Buffers buffers = fuzz::make_buffers(random, problem);
        const check::Reference reference = check::reference(buffers, 64);
        program.run(buffers.call(), 1);
        for (const check::Difference& d : check::compare(buffers, reference).differences)
            EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
    }
}

INSTANTIATE_TEST_SUITE_P(Some, LargeRandomPrograms, testing::Values(15, 20, 21));

// Axes that are no multiples of 64 are held as such: with zeros behind their ends, whatever lies there in memory. Rows
// begin at multiples of 16, 8, 4 or 2 bytes; with roles, matrices come by tensor copies.
class PaddedAxes : public testing::TestWithParam<Example> {};

bool expect_padded(const Example& example, const ir::Definition& def, std::optional<plan::Strategy> strategy,
                   std::int64_t tasks) {
    const auto plan = plan_for(def, example, strategy, tasks);
    if (!plan) return false;
    EXPECT_FALSE(plan->schedule.padded.empty());
    SCOPED_TRACE(plan::to_string(plan->schedule));
    const emulated::Program program("padded_" + example.program, *plan);
    for (check::Problem problem : {check::Problem{.B = 2, .T = 150, .H = 2, .initial_state = true},
                                   check::Problem{.H = 1, .lengths = {70, 0, 130}, .strided = true}}) {
        problem.sizes = example.sizes(), problem.dtype = example.dtype;
        check::Buffers buffers(def, problem);
        const check::Reference reference = check::reference(buffers, 64);
        const auto expect_right = [&](const char* how) {
            for (const check::Difference& d : check::compare(buffers, reference).differences)
                EXPECT_TRUE(d.ok) << how << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
        };
        check::clear_results(buffers);
        program.run(buffers.call(), 1);
        expect_right("");
        if (!problem.initial_state) continue;
        check::clear_results(buffers);
        run_in_place(program, buffers);
        expect_right("in place: ");
    }
    return true;
}

TEST_P(PaddedAxes, DoWhatTheRecurrenceSays) {
    const Example& example = GetParam();
    const ir::Definition def =
        frontend::with_dtype(graph::with_phases(program_named(example.program).make().define()), example.dtype);
    for (const std::int64_t tasks : {kFewTasks, kManyTasks})
        EXPECT_TRUE(expect_padded(example, def, std::nullopt, tasks)) << tasks << " tasks";
}

INSTANTIATE_TEST_SUITE_P(Some, PaddedAxes,
                         testing::Values(Example{"gated_delta_net", BF16, 96, 96}, Example{"normalised", BF16, 64, 33},
                                         Example{"shifted_pairs", BF16, 20, 96}, Example{"rwkv6", F16, 100, 33},
                                         // of which features of zeros are no zeros
                                         Example{"normalised", BF16, 96, 60}, Example{"two_readings", BF16, 96, 96},
                                         Example{"longhorn", F16, 60, 100}, Example{"gated_slots", BF16, 96, 96},
                                         Example{"turned_pairs", BF16, 48, 96}),
                         [](const auto& test) {
                             return fmt::format("{}_{}_{}x{}", test.param.program, to_string(test.param.dtype),
                                                test.param.k, test.param.v);
                         });

// Work beside a scan is over before it, or goes on beside it on all multiprocessors or some: the same bits.
TEST(WorkBesideScans, IsTheSameWhereverItRuns) {
    const Example example{"gated_delta_net", BF16, 64, 64};
    const ir::Definition def = program_named(example.program).make().define();
    const emulated::Program program("beside", plan_for(def, example, plan::Strategy::OnePass, kFewTasks).value());
    for (check::Problem problem : {check::Problem{.B = 2, .T = 700, .H = 2, .initial_state = true},
                                   check::Problem{.H = 2, .lengths = {400, 0, 70, 330}}}) {
        problem.sizes = example.sizes(), problem.dtype = BF16;
        check::Buffers buffers(def, problem);
        const check::Reference reference = check::reference(buffers, 64);
        std::vector<std::vector<std::byte>> first;
        for (const int multiprocessors : {1, 5, 7, 100}) {
            SCOPED_TRACE(multiprocessors);
            check::clear_results(buffers);
            program.run(buffers.call(), 1, multiprocessors);
            EXPECT_TRUE(check::compare(buffers, reference).ok);
            if (first.empty()) first = results(buffers);
            EXPECT_EQ(first, results(buffers)) << "other bits";
        }
    }
}

// What takes values apart and puts them together, by the portable kernels; sizes are no multiples of vectors.
class PortableKernels : public testing::TestWithParam<const char*> {};

TEST_P(PortableKernels, DoWhatTheRecurrenceSays) {
    const Example example{GetParam(), F32, 7, 10};
    const ir::Definition declared = program_named(example.program).make().define();
    const ir::Definition def = frontend::with_dtype(declared, example.dtype);
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes sizes = check::sizes_for(def, {.sizes = example.sizes()});
    const plan::Schedule schedule =
        target::fit_shared_memory(def, program, sizes, kHopper, {.strategy = {}, .chunk = 16});
    const emulated::Program emulated("portable_" + example.program, plan::make_plan(def, program, sizes, schedule));
    for (check::Problem problem :
         {check::Problem{.T = 50, .H = 2, .initial_state = true}, check::Problem{.H = 1, .lengths = {17, 0, 1, 33}}}) {
        problem.sizes = example.sizes(), problem.dtype = example.dtype;
        check::Buffers buffers(declared, problem);
        emulated.run(buffers.call(), 1);
        for (const check::Difference& d : check::compare(buffers, check::reference(buffers, 16)).differences)
            EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
    }
}

INSTANTIATE_TEST_SUITE_P(Some, PortableKernels, testing::Values("rotary", "turned_pairs", "two_readings"));

// A state that does not depend on what was before, in matrices of the hardware: all of it a number, or the chunk's own.
TEST(ReplacedStates, AreRightInEveryStrategy) {
    const Example example{"replaced", BF16, 64, 64};
    const auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("replaced");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {K, V}).state("level", F32, {K, V});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) -> Results {
        Tensor own = matmul_out_fp32(transpose(k), v);
        return {{"s", own}, {"level", own}};
    });
    a.decay({"chunk_s", "chunk_level"}, [](Tensor own, Tensor like) -> Results {
        return {{"s", own}, {"level", full(like, {like.size(0), like.size(1)}, 0.25)}};
    });
    a.merge({"q", "k", "v", "prev_s", "prev_level"}, [](Tensor q, Tensor k, Tensor v, Tensor s, Tensor level) {
        return matmul(tril(matmul_out_fp32(q, transpose(k))), v.to(F32)) + matmul(q.to(F32), s + level);
    });
    const ir::Definition def = a.define();
    const auto plans = plans_for(def, example);
    EXPECT_GE(plans.size(), 3U);
    int count = 0;
    for (const auto& [name, plan] : plans) {
        SCOPED_TRACE(name);
        const emulated::Program emulated(fmt::format("replaced_{}", count++), plan);
        check::Buffers buffers(def, {.T = 150, .H = 1, .sizes = example.sizes(), .dtype = BF16, .initial_state = true});
        emulated.run(buffers.call(), 1);
        for (const check::Difference& d : check::compare(buffers, check::reference(buffers, 64)).differences)
            EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
    }
}

// The states before every chunk, of sequences side by side and of packed ones: what comes before them, run alone, ends
// in these. By several warp groups, by one, in segments, beside a vector state, in two tiles of an axis that one state
// lacks, and by the portable kernels.
struct Kept {
    std::string program;
    plan::Strategy strategy;
    std::int64_t tasks;  ///< 0: portable
    std::int64_t values = 64;
};

class StatesBeforeChunks : public testing::TestWithParam<Kept> {};

TEST_P(StatesBeforeChunks, AreWhatTheTokensBeforeThemEndIn) {
    constexpr std::int64_t kChunk = 64, kSize = 64;
    const Example example{GetParam().program, BF16, kSize, GetParam().values};
    const ir::Definition declared = program_named(example.program).make().define();
    const ir::Definition def = frontend::with_dtype(declared, example.dtype);
    const ir::Function program = graph::with_chunk_states(graph::optimize(frontend::join(def)));
    const tile::Sizes sizes = check::sizes_for(def, {.sizes = example.sizes()});
    target::FitWishes wishes;
    wishes.strategy = GetParam().strategy, wishes.chunk = kChunk;
    wishes.expected_tasks = std::max<std::int64_t>(1, GetParam().tasks), wishes.expected_tokens = 32768;
    const plan::Schedule schedule = GetParam().tasks > 0
                                        ? target::fit_warp_groups(def, program, sizes, kHopper, wishes)
                                        : target::fit_shared_memory(def, program, sizes, kHopper, wishes);
    const emulated::Program emulated(fmt::format("kept_{}_{}", example.program, GetParam().tasks),
                                     plan::make_plan(def, program, sizes, schedule));

    const check::Problem alone{
        .B = 2, .T = 150, .H = 2, .sizes = example.sizes(), .dtype = BF16, .initial_state = true},
        packed{.H = 2, .sizes = example.sizes(), .dtype = BF16, .lengths = {70, 0, 130, 64}};
    for (const check::Problem& problem : {alone, packed}) {
        const bool is_packed = !problem.lengths.empty();
        const check::Buffers buffers(declared, problem);
        std::map<std::string, check::OwnedTensor> kept;
        Call call = buffers.call();
        for (const auto& [name, final] : buffers.final_states) {
            std::vector<std::int64_t> shape = final.shape;
            shape.insert(shape.begin() + 1, 3);
            if (is_packed) shape.erase(shape.begin()), shape[0] = 6;
            const check::OwnedTensor& x = kept.emplace(name, check::OwnedTensor(F32, shape, -1, false)).first->second;
            call.chunk_states[name] = x.view();
        }
        emulated.run(call, 1);
        const std::vector<std::int64_t> lengths = is_packed ? problem.lengths : std::vector<std::int64_t>{150, 150};
        std::int64_t chunk = 0;
        for (std::size_t n = 0; n < lengths.size(); ++n)
            for (std::int64_t token = 0; token < lengths[n]; token += kChunk, ++chunk)
                for (std::int64_t head = 0; head < problem.H; ++head) {
                    interp::Sequence before = buffers.sequence(static_cast<std::int64_t>(n), head);
                    before.tokens = token;
                    const interp::Outcome wanted = interp::run_steps(declared, before, sizes);
                    for (const auto& [name, state] : wanted.states) {
                        double error = 0, square = 0;
                        const auto count = static_cast<std::int64_t>(state.data.size());
                        for (std::int64_t i = 0; i < count; ++i) {
                            const double x = kept.at(name).at((chunk * problem.H + head) * count + i),
                                         exact = state.data[static_cast<std::size_t>(i)];
                            error += (x - exact) * (x - exact), square += exact * exact;
                        }
                        EXPECT_LE(std::sqrt(error), 8e-3 * std::sqrt(square)) << name << " before chunk " << chunk;
                    }
                }
        EXPECT_EQ(chunk, 6);
    }
}

INSTANTIATE_TEST_SUITE_P(Some, StatesBeforeChunks,
                         testing::Values(Kept{"gated_delta_net", plan::Strategy::OnePass, kFewTasks},
                                         Kept{"scalar_gla", plan::Strategy::Segmented, kManyTasks},
                                         Kept{"two_states", plan::Strategy::Fused, kManyTasks},
                                         Kept{"retnet", plan::Strategy::OnePass, kManyTasks},
                                         Kept{"running_maximum", plan::Strategy::OnePass, kFewTasks, 128},
                                         Kept{"normalised", plan::Strategy::Decoupled, 0}),
                         [](const auto& test) { return test.param.program; });

// Kernels of the portable library whose tiles do not all fit into shared memory: blocks with tiles in global memory,
// fewer than there are tasks, take one task after the other.
class FarTiles : public testing::TestWithParam<std::pair<const char*, plan::Strategy>> {};

TEST_P(FarTiles, HoldTheSameNumbers) {
    const Example example{GetParam().first, F32, 60, 36};
    const ir::Definition declared = program_named(example.program).make().define();
    const ir::Definition def = frontend::with_dtype(declared, example.dtype);
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes sizes = check::sizes_for(def, {.sizes = example.sizes()});
    target::FitWishes wishes;
    wishes.strategy = GetParam().second;
    const target::SharedMemory memory{10 * 1024, 3};
    const plan::Plan plan =
        plan::make_plan(def, program, sizes, target::fit_shared_memory(def, program, sizes, memory, wishes));
    EXPECT_TRUE(std::any_of(plan.kernels.begin(), plan.kernels.end(),
                            [](const plan::Kernel& k) { return k.tiles.far_floats > 0; }));
    const emulated::Program emulated("far_tiles", plan);
    for (check::Problem problem : {check::Problem{.B = 2, .T = 150, .H = 2, .initial_state = true},
                                   check::Problem{.H = 2, .lengths = {70, 0, 1, 130}}}) {
        problem.sizes = example.sizes(), problem.dtype = example.dtype;
        check::Buffers buffers(declared, problem);
        const check::Reference reference = check::reference(buffers, 64);
        check::clear_results(buffers);
        emulated.run(buffers.call(), 1);
        for (const check::Difference& d : check::compare(buffers, reference).differences)
            EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
    }
}

INSTANTIATE_TEST_SUITE_P(Some, FarTiles,
                         testing::Values(std::pair("normalised", plan::Strategy::OnePass),
                                         std::pair("kda", plan::Strategy::Decoupled),
                                         std::pair("paired_keys", plan::Strategy::Segmented)),
                         [](const auto& test) { return std::string(test.param.first); });

// What the runs above rest on: a wait, a fence or a barrier that is missing shows as NaN, wrong numbers, threads that
// wait for ever or an error.
struct Fault {
    std::string name, from, to;
    std::string program = "scalar_gla";
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

class WarpGroupFaults : public testing::TestWithParam<Fault> {};

TEST_P(WarpGroupFaults, AreFound) {
    const Example example{GetParam().program, BF16, 64, 64};
    const ir::Definition def = program_named(example.program).make().define();
    const plan::Plan plan = plan_for(def, example, plan::Strategy::OnePass, kFewTasks).value();
    const emulated::Program program(GetParam().name, plan, [](std::string& source) {
        const std::size_t at = source.find(GetParam().from);
        ASSERT_NE(at, std::string::npos);
        source.replace(at, GetParam().from.size(), GetParam().to);
    });
    check::Buffers buffers(def, {.T = 530, .H = 1, .sizes = example.sizes(), .dtype = BF16});
    const check::Reference reference = check::reference(buffers, 64);
    bool found = false;
    for (unsigned seed = 1; seed <= 20 && !found; ++seed) {
        check::clear_results(buffers);
        try {
            program.run(buffers.call(), seed);
            found = !check::compare(buffers, reference).ok;
        } catch (const std::runtime_error&) {
            found = true;
        }
    }
    EXPECT_TRUE(found);
}

INSTANTIATE_TEST_SUITE_P(Some, WarpGroupFaults,
                         testing::Values(Fault{"buffers_not_empty", "stages.wait_empty(stage);", ""},
                                         Fault{"inputs_not_there", "stages.wait_filled(stage);", ""},
                                         Fault{"states_not_there", "t_prev_s_2_passing.wait_filled(to);", ""},
                                         Fault{"not_fenced", "settle(), t_prev_s_2_passing", "t_prev_s_2_passing"},
                                         Fault{"product_under_way", "finish<1>(v17);", ""},
                                         Fault{"stores_under_way", "stores_read(), stages", "stages"},
                                         Fault{"not_published", "publish();", ""},
                                         Fault{"too_many_registers", "more_registers<184>", "more_registers<192>"},
                                         Fault{"work_beside_not_awaited", "if (lane() == 0) wait_until_made",
                                               "if (false) wait_until_made", "gated_delta_net"},
                                         Fault{"work_beside_not_announced", "is_made(call", "// is_made(call",
                                               "gated_delta_net"}),
                         [](const auto& test) { return test.param.name; });

/// Whatever has such kernels, in bf16, but for what is among the opened forms.
std::vector<Example> all_examples() {
    const std::set<std::string> others = {"normalised", "shifted_pairs", "paired_keys", "several_rows"};
    std::vector<Example> found;
    for (const Entry& entry : all_programs())
        if (!others.contains(entry.name) &&
            has_kernels(frontend::with_dtype(entry.make().define(), BF16), {entry.name}))
            found.push_back({entry.name});
    return found;
}

INSTANTIATE_TEST_SUITE_P(All, WarpGroupKernels, testing::ValuesIn(all_examples()), name_of_example);
INSTANTIATE_TEST_SUITE_P(OfOtherSizes, WarpGroupKernels,
                         testing::Values(Example{"linear_attention", F16, 64, 64}, Example{"gla", F16, 64, 64},
                                         Example{"gated_delta_net", F16, 64, 64},
                                         Example{"linear_attention", BF16, 192, 64},
                                         Example{"scalar_gla", BF16, 256, 64}, Example{"retnet", BF16, 256, 256},
                                         Example{"gated_delta_net", BF16, 192, 128},
                                         Example{"delta_product", BF16, 64, 64}, Example{"delta_product", F16, 64, 128},
                                         Example{"delta_product", F16, 128, 128}, Example{"several_rows", F16, 64, 64},
                                         Example{"turned_pairs", BF16, 64, 64}),
                         name_of_example);
// Operands of three parts, in which all of a float's bits are.
INSTANTIATE_TEST_SUITE_P(OfFloats, WarpGroupKernels,
                         testing::Values(Example{"linear_attention", F32, 128, 128},
                                         Example{"scalar_gla", F32, 64, 128}, Example{"gated_delta_net", F32, 64, 64},
                                         Example{"delta_net", F32, 128, 128}, Example{"several_rows", F32, 64, 64},
                                         Example{"comba", F32, 96, 60}),
                         name_of_example);

}  // namespace
}  // namespace forge::tests
