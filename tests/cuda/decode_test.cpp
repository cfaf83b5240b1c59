/// The portable kernels that decode on a GPU, run on a CPU (emulated/) against the float64 recurrence; states in place.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "check/check.h"
#include "emit/cuda/emit_cuda.h"
#include "emit/cuda/launch.h"
#include "forge/error.h"
#include "frontend/axes.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "kernel/hazards.h"
#include "program/entry_point.h"
#include "target/simt/shared_memory.h"
#include "tests/cuda/emulated/program.h"
#include "tests/support/turns.h"
#include "tile/held.h"

namespace forge::tests {
namespace {

constexpr target::SharedMemory kHopper{220 * 1024, 132, 227 * 1024};

/// A definition's program of one token, planned for tensors of bf16.
struct Decode {
    ir::Definition declared, definition;
    program::EntryPoint entry;

    explicit Decode(const Entry& program) : Decode(program.make().define()) {}
    explicit Decode(ir::Definition def)
        : declared(std::move(def)),
          definition(frontend::with_own_axes(frontend::with_dtype(declared, BF16))),
          entry(program::decode(definition)) {}

    [[nodiscard]] plan::Plan plan(const check::Problem& problem, const target::FitWishes& wishes) const {
        const tile::Sizes sizes = frontend::own_sizes(definition, check::sizes_for(declared, problem));
        return plan::make_plan(definition, entry.optimised, sizes,
                               target::fit_shared_memory(definition, entry.optimised, sizes, kHopper, wishes));
    }
    /// `tasks`: few, and scans take parts of an axis. `states`: those of 16 bits come ahead.
    [[nodiscard]] target::FitWishes wishes(std::int64_t tasks, bool hold, DType states = F32) const {
        target::FitWishes wishes;
        wishes.state_dtype = states;
        wishes.strategy = plan::Strategy::OnePass, wishes.chunk = entry.chunk, wishes.hold = hold;
        wishes.expected_tasks = tasks, wishes.expected_tokens = 1;
        return wishes;
    }
};

bool holds(const plan::Plan& plan) { return tile::held_floats(plan.kernels.front().tiles.fn, 128) > 0; }

/// Runs a plan on a problem, and again in place, where states are given.
void check_plan(const std::string& name, const plan::Plan& plan, const ir::Definition& declared,
                const std::vector<check::Problem>& problems) {
    EXPECT_EQ(plan.kernels.size(), 1U) << "one launch";
    for (const kernel::Kernel& k : emit::kernels_of(emit::cuda_source(plan))) kernel::verify(k);
    const emulated::Program program(name, plan);
    for (const check::Problem& problem : problems) {
        check::Buffers buffers(declared, problem);
        const check::Reference reference = check::reference(buffers, 1);
        Call call = buffers.call();
        program.run(call, 1);
        for (const check::Difference& d : check::compare(buffers, reference).differences)
            EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << ", " << plan::to_string(plan.schedule);
        if (!problem.initial_state) continue;
        const auto apart = buffers.final_states;
        for (auto& [state, view] : call.final_states) view.data = call.initial_states.at(state).data;
        program.run(call, 2);
        for (const auto& [state, x] : apart)
            EXPECT_EQ(buffers.initial_states.at(state).storage, x.storage) << state << " in place";
    }
}

std::vector<check::Problem> problems_of(std::int64_t K, std::int64_t V) {
    const check::Problem several{.B = 3, .T = 5, .H = 2, .HV = 2, .sizes = {{"K", K}, {"V", V}}, .dtype = BF16};
    check::Problem one = several, packed = several;
    one.T = 1, one.initial_state = true;
    packed.lengths = {2, 0, 1, 16}, packed.initial_state = true;
    return {one, several, packed};
}

class DecodeKernels : public testing::TestWithParam<Entry> {};

// States in registers, where threads can hold them, and in shared memory.
TEST_P(DecodeKernels, DoWhatTheRecurrenceSays) {
    if (!program::has_decode(GetParam().make().define())) GTEST_SKIP() << "defined per chunk";
    const Decode decode(GetParam());
    const std::vector<check::Problem> problems = problems_of(36, 64);
    const plan::Plan held = decode.plan(problems[0], decode.wishes(4096, true)),
                     ahead = decode.plan(problems[0], decode.wishes(4096, true, BF16)),
                     in_memory = decode.plan(problems[0], decode.wishes(1, false));
    EXPECT_EQ(held.schedule.holds_states, holds(held));
    EXPECT_FALSE(held.schedule.states_ahead);
    EXPECT_EQ(ahead.schedule.states_ahead, holds(ahead));
    EXPECT_FALSE(holds(in_memory));
    using Named = std::pair<const char*, const plan::Plan*>;
    std::vector<Named> plans = {{"decode_", &held}, {"decode_in_memory_", &in_memory}};
    if (holds(ahead)) plans.insert(plans.begin() + 1, Named{"decode_ahead_", &ahead});
    for (const auto& [name, plan] : in_turn(GetParam(), plans, 1))
        check_plan(name + decode.definition.name, *plan, decode.declared, problems);
}

// Whose states stay in registers: all but those that something else than products with vectors mixes.
TEST(DecodeKernelStates, AreHeldOrItIsSaidWhyNot) {
    std::set<std::string> in_memory;
    for (const Entry& entry : all_programs()) {
        const ir::Definition declared = entry.make().define();
        const bool matrices = std::any_of(declared.states.begin(), declared.states.end(),
                                          [](const auto& s) { return s.type.rank() > 1; });
        if (!matrices || !program::has_decode(declared)) continue;
        const Decode decode(entry);
        const plan::Plan plan = decode.plan(problems_of(128, 128)[0], decode.wishes(4096, true));
        if (holds(plan)) continue;
        in_memory.insert(entry.name);
        ASSERT_FALSE(plan.schedule.refused.empty()) << entry.name;
        EXPECT_FALSE(plan.schedule.refused.front().why.empty()) << entry.name;
    }
    EXPECT_EQ(in_memory, std::set<std::string>());
}

// Of a state that turns by halves, threads have rows of both, if their halves are as they have the whole; what would
// not leave two blocks their registers is held by one of 512 threads.
TEST(DecodeKernelStates, OfHalvesAndOfWholeMultiprocessorsAreHeld) {
    struct Case {
        const char* program;
        std::int64_t K, V;
        int threads;
    };
    for (const Case& c : {Case{"mamba3", 64, 64, 128}, Case{"mamba3", 32, 128, 128}, Case{"rotary", 128, 128, 512}}) {
        SCOPED_TRACE(c.program);
        const Decode decode(program_named(c.program));
        const std::vector<check::Problem> problems = problems_of(c.K, c.V);
        const plan::Plan plan = decode.plan(problems[0], decode.wishes(4096, true));
        ASSERT_TRUE(holds(plan));
        EXPECT_EQ(plan.schedule.block_threads, c.threads);
        check_plan(fmt::format("decode_{}_{}x{}", c.program, c.K, c.V), plan, decode.declared, problems);
    }
    const Decode odd(program_named("mamba3"));  // whose halves are no whole runs of rows
    EXPECT_FALSE(holds(odd.plan(problems_of(36, 64)[0], odd.wishes(4096, true))));
}

/// A state of two halves that turn, of which a token reads one: all of it, or a sum of it and the other.
LinearAttention half_read(bool alone) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("half_read");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, 2 * K}).input("v", BF16, {T, H, V}).input("x", F32, {T, H});
    a.state("s", F32, {2 * K, V}).output("o", BF16, {T, H, V}).sequential();
    a.step({"q", "k", "v", "x", "prev_s"},
           [=](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& x, const Tensor& s) -> Results {
               const Tensor first = part(s, 0, 0, 2), second = part(s, 0, 1, 2);
               const Tensor next =
                   concat({first * cos(x) - second * sin(x), first * sin(x) + second * cos(x)}, 0) + outer(k, v);
               const Tensor read = part(next, 0, 1, 2);
               return {{"s", next}, {"o", matmul(q, alone ? read : read + part(next, 0, 0, 2) * 0.5)}};
           });
    return a;
}

// A part has no registers of its own, which a product could take; what is made of parts has.
TEST(DecodeKernelStates, OfWhichProductsReadAPartAreNotHeld) {
    for (const bool alone : {true, false}) {
        SCOPED_TRACE(alone);
        const Decode decode(half_read(alone).define());
        const std::vector<check::Problem> problems = problems_of(64, 64);
        const plan::Plan plan = decode.plan(problems[0], decode.wishes(4096, true));
        EXPECT_EQ(holds(plan), !alone);
        check_plan(fmt::format("decode_half_{}", alone), plan, decode.declared, problems);
    }
}

// Rows that no thread has, columns that lanes have twice, whole states in 256 threads, a part for each of many tasks.
TEST(DecodeKernelStates, OfAnySizeAreHeld) {
    const Decode decode(program_named("gated_delta_net"));
    struct Size {
        std::int64_t K, V, tiles;
        int threads;
        DType states;
    };
    for (const Size& size : {Size{60, 100, 1, 128, F32}, Size{60, 100, 1, 128, BF16}, Size{100, 60, 5, 128, F32},
                             Size{128, 128, 1, 256, F32}, Size{128, 128, 1, 256, BF16}}) {
        const std::vector<check::Problem> problems = problems_of(size.K, size.V);
        target::FitWishes wishes = decode.wishes(1, true, size.states);
        wishes.tiles = size.tiles, wishes.threads = size.threads;
        const plan::Plan plan = decode.plan(problems[0], wishes);
        EXPECT_TRUE(plan.schedule.holds_states) << size.K << " x " << size.V;
        EXPECT_EQ(plan.schedule.states_ahead, size.states == BF16);
        check_plan(fmt::format("decode_{}_{}_{}", size.K, size.V, to_string(size.states)), plan, decode.declared,
                   {problems[0], problems[2]});
    }
}

// A block per task: few threads. Tasks in turn: whole states, where there are enough of them.
TEST(DecodeKernelStates, AreHeldByFewThreadsOrWhole) {
    const Decode decode(program_named("gated_delta_net"));
    const check::Problem problem = problems_of(128, 128)[0];
    const auto shape = [&](std::int64_t tasks, DType states) {
        const plan::Schedule s = decode.plan(problem, decode.wishes(tasks, true, states)).schedule;
        return std::array<std::int64_t, 3>{s.block_threads, s.tiles, s.resident_blocks};
    };
    EXPECT_EQ(shape(1024, F32), (std::array<std::int64_t, 3>{128, 2, 4}));
    EXPECT_EQ(shape(1024, BF16), (std::array<std::int64_t, 3>{256, 1, 2}));
    EXPECT_EQ(shape(100, BF16), (std::array<std::int64_t, 3>{128, 2, 4}));
}

// The next kernel may start beside blocks of one task; beside those that take tasks in turn when they have come to the
// last ones.
TEST(DecodeKernelStates, LetTheNextKernelStart) {
    const Decode decode(program_named("gated_delta_net"));
    const check::Problem problem = problems_of(128, 128)[0];
    for (const DType states : {F32, BF16}) {
        const plan::Plan plan = decode.plan(problem, decode.wishes(1024, true, states));
        EXPECT_TRUE(emit::launch_of(plan, plan.kernels.front()).early);
        const std::string source = emit::emit_cuda(plan), start = "ptx::let_next_kernel_start();";
        const std::size_t at = source.find(start), wait = source.find("ptx::wait_for_kernel_before();");
        ASSERT_NE(at, std::string::npos);
        EXPECT_EQ(source.find(start, at + 1), std::string::npos);
        EXPECT_EQ(at > wait, states == BF16);
        EXPECT_EQ(source.find("if (task + gridDim.x >= call.tasks) " + start) != std::string::npos, states == BF16);
    }
}

// Outputs are stored from where they are made.
TEST(DecodeKernelStates, LeaveNoCopyOfTheOutput) {
    for (const char* name : {"gated_delta_net", "kda", "gla", "scalar_gla"}) {
        const Decode decode(program_named(name));
        const plan::Plan plan = decode.plan(problems_of(128, 128)[0], decode.wishes(4096, true));
        for (const ir::Op& op : plan.kernels.front().tiles.fn.ops) EXPECT_NE(op.code, ir::Opcode::Copy) << name;
    }
}

// States of 16 bits are read, computed with and rounded: what float32 ones would have been. So are those without the
// axis of values, which no plan of one token stores late: it takes no parts of an axis that a state lacks.
class StatesOfSixteenBits : public testing::TestWithParam<std::tuple<const char*, bool, bool>> {};

/// Of this shape; `transposed`: the last axis but one is dense, as in pools of engines that keep states value by key.
check::OwnedTensor states_of(const std::vector<std::int64_t>& shape, bool transposed) {
    check::OwnedTensor x(BF16, shape, -1, false);
    const std::size_t last = shape.size() - 1;
    if (transposed) x.dense = false, x.strides[last - 1] = 1, x.strides[last] = shape[last - 1];
    return x;
}

TEST_P(StatesOfSixteenBits, AreThoseOfFloatsRounded) {
    const auto [name, hold, transposed] = GetParam();
    const Decode decode(program_named(name));
    const check::Problem problem{
        .B = 2, .T = 3, .H = 2, .sizes = {{"K", 36}, {"V", 64}}, .dtype = BF16, .initial_state = true};
    plan::Plan plan = decode.plan(problem, decode.wishes(1, hold, BF16));
    EXPECT_EQ(plan.schedule.holds_states, hold);
    EXPECT_TRUE(plan.late_states.empty());
    check::Buffers buffers(decode.declared, problem), wanted(decode.declared, problem);
    std::map<std::string, check::OwnedTensor> stored;
    for (auto& [state, given] : wanted.initial_states) {
        check::OwnedTensor& x = stored.emplace(state, states_of(given.shape, transposed)).first->second;
        for (std::int64_t i = 0; i < given.count(); ++i) x.set(i, given.at(i)), given.set(i, x.at(i));
    }
    const std::string tag = fmt::format("{}_{}_{}", name, hold, transposed);
    emulated::Program("decode_floats_" + tag, plan).run(wanted.call(), 1);
    plan.state_dtype = BF16;
    Call call = buffers.call();
    for (auto& [state, x] : stored) call.initial_states[state] = call.final_states[state] = x.view();
    emulated::Program("decode_halves_" + tag, plan).run(call, 1);
    EXPECT_EQ(buffers.outputs.at("o").storage, wanted.outputs.at("o").storage);
    for (const auto& [state, x] : stored) {
        check::OwnedTensor rounded = states_of(x.shape, transposed);
        for (std::int64_t i = 0; i < x.count(); ++i) rounded.set(i, wanted.final_states.at(state).at(i));
        EXPECT_EQ(x.storage, rounded.storage) << state;
    }
}

INSTANTIATE_TEST_SUITE_P(All, StatesOfSixteenBits,
                         testing::Values(std::tuple{"gated_delta_net", true, false},
                                         std::tuple{"gated_delta_net", true, true},
                                         std::tuple{"gated_delta_net", false, false},
                                         std::tuple{"normalised", true, false}));

// States in a pool: sequences that read one slot and write another, that start from zeros, that are skipped.
struct Pooled {
    const char* program;
    bool hold, ahead, in_place, wide;  ///< wide: slots of 64 bits
    bool packed = false;
};

std::string to_string(const Pooled& how) {
    return fmt::format("{}_{}{}{}{}", how.program,
                       !how.hold   ? "in_memory"
                       : how.ahead ? "ahead"
                                   : "held",
                       how.in_place ? "_in_place" : "", how.wide ? "_wide" : "", how.packed ? "_packed" : "");
}

class StatesInSlots : public testing::TestWithParam<Pooled> {
  protected:
    static constexpr int kSlots = 9;
    static constexpr std::array<std::int64_t, 5> kFrom{4, 0, 2, -1, 8}, kTo{4, 1, 7, 6, -1};
    static constexpr std::array<bool, 5> kHasState{true, true, false, true, true};

    static bool is_skipped(std::size_t n) { return kFrom[n] < 0 || kTo[n] < 0; }

    /// A pool whose unused slots hold what would spoil any result.
    static std::vector<std::byte> pool_of(const check::OwnedTensor& states) {
        const std::size_t bytes = states.storage.size() / kFrom.size();
        std::vector<std::byte> pool(kSlots * bytes, std::byte{0xff});
        for (std::size_t n = 0; n < kFrom.size(); ++n)
            if (kFrom[n] >= 0)
                std::copy_n(states.storage.data() + n * bytes, bytes,
                            pool.data() + static_cast<std::size_t>(kFrom[n]) * bytes);
        return pool;
    }
    /// What a pool holds after the call.
    static std::vector<std::byte> after(std::vector<std::byte> pool, const check::OwnedTensor& final_states) {
        const std::size_t bytes = final_states.storage.size() / kTo.size();
        for (std::size_t n = 0; n < kTo.size(); ++n)
            if (!is_skipped(n))
                std::copy_n(final_states.storage.data() + n * bytes, bytes,
                            pool.data() + static_cast<std::size_t>(kTo[n]) * bytes);
        return pool;
    }
    template <class T>
    static std::vector<T> slots(const std::array<std::int64_t, 5>& numbers) {
        return {numbers.begin(), numbers.end()};
    }
    /// Sequences without a state start from zeros; outputs of those that are skipped are zeros.
    static void clear(check::OwnedTensor& x, std::size_t n) {
        const std::size_t bytes = x.storage.size() / kFrom.size();
        std::fill_n(x.storage.data() + n * bytes, bytes, std::byte{});
    }
};

TEST_P(StatesInSlots, AreThoseOfTheCallWithoutAPool) {
    const Pooled& how = GetParam();
    const Decode decode(program_named(how.program));
    check::Problem problem{
        .B = 5, .T = 2, .H = 2, .sizes = {{"K", 36}, {"V", 64}}, .dtype = BF16, .initial_state = true};
    if (how.packed) problem.lengths.assign(kFrom.size(), problem.T);
    const plan::Plan plan = decode.plan(problem, decode.wishes(4096, how.hold, how.ahead ? BF16 : F32));
    EXPECT_EQ(plan.schedule.holds_states, how.hold);
    EXPECT_EQ(plan.schedule.states_ahead, how.ahead);
    const emulated::Program program("decode_slots_" + to_string(how), plan);

    check::Buffers wanted(decode.declared, problem), buffers(decode.declared, problem);
    for (auto& [state, x] : wanted.initial_states)
        for (std::size_t n = 0; n < kFrom.size(); ++n)
            if (!kHasState[n]) clear(x, n);
    program.run(wanted.call(), 1);
    for (std::size_t n = 0; n < kFrom.size(); ++n) {
        if (!is_skipped(n)) continue;
        clear(wanted.outputs.at("o"), n);
        if (!how.hold) clear(buffers.outputs.at("o"), n);  // as launches do
    }

    std::map<std::string, std::vector<std::byte>> read, written;
    Call call = buffers.call();
    for (auto& [state, x] : buffers.initial_states) {
        read[state] = pool_of(x), written[state].assign(read[state].size(), std::byte{0xff});
        call.initial_states[state].shape[0] = call.final_states[state].shape[0] = kSlots;
        call.initial_states[state].data = read[state].data();
        call.final_states[state].data = (how.in_place ? read : written)[state].data();
    }
    const auto pools_before = how.in_place ? read : written;
    auto narrow_from = slots<std::int32_t>(kFrom), narrow_to = slots<std::int32_t>(kTo);
    auto wide_from = slots<std::int64_t>(kFrom), wide_to = slots<std::int64_t>(kTo);
    call.initial_slots = how.wide ? TensorView{wide_from.data(), DType::I64, {5}, {}}
                                  : TensorView{narrow_from.data(), DType::I32, {5}, {}};
    call.final_slots =
        how.wide ? TensorView{wide_to.data(), DType::I64, {5}, {}} : TensorView{narrow_to.data(), DType::I32, {5}, {}};
    std::array<bool, 5> has_state = kHasState;
    call.has_initial_state = TensorView{has_state.data(), DType::Bool, {5}, {}};
    program.run(call, 2);
    EXPECT_TRUE(buffers.outputs.at("o").storage == wanted.outputs.at("o").storage);
    for (const auto& [state, pool] : how.in_place ? read : written) {
        const auto right = after(pools_before.at(state), wanted.final_states.at(state));
        for (std::size_t slot = 0, bytes = pool.size() / kSlots; slot < kSlots; ++slot)
            EXPECT_TRUE(std::equal(&pool[slot * bytes], &pool[slot * bytes] + bytes, &right[slot * bytes]))
                << state << ", slot " << slot;
    }
}

INSTANTIATE_TEST_SUITE_P(All, StatesInSlots,
                         testing::Values(Pooled{"gated_delta_net", true, false, true, false},
                                         Pooled{"gated_delta_net", true, false, false, true},
                                         Pooled{"gated_delta_net", true, true, true, true},
                                         Pooled{"gated_delta_net", true, true, false, false},
                                         Pooled{"gated_delta_net", true, true, true, false, true},
                                         Pooled{"gated_delta_net", true, false, true, false, true},
                                         Pooled{"gated_delta_net", false, false, true, true},
                                         Pooled{"normalised", true, true, true, false},
                                         Pooled{"normalised", true, false, false, false}),
                         [](const auto& test) { return to_string(test.param); });

INSTANTIATE_TEST_SUITE_P(All, DecodeKernels, testing::ValuesIn(all_programs()), name_of);

}  // namespace
}  // namespace forge::tests
