/// What must not change a result: running twice, more threads, another call at the same time, later tokens, the
/// caller's workspace; and a sequence in two calls, joined by the state, is the sequence in one.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "check/tolerance.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "graph/slice.h"
#include "tests/numerics/numerics.h"

namespace forge::tests {
namespace {

constexpr std::int64_t kTokens = 150, kHeads = 2;

class Invariance : public testing::TestWithParam<Entry> {
  protected:
    [[nodiscard]] static check::Problem problem(std::int64_t tokens = kTokens) {
        check::Problem p;
        p.B = 1, p.T = tokens, p.H = kHeads, p.initial_state = true;
        p.sizes = {{"K", 60}, {"V", 100}};  // of suite_test.cpp, whose kernels these are
        return p;
    }
    [[nodiscard]] Attention compiled(const std::string& strategy, int threads = 2) const {
        const auto attention = compile_as(
            def_, {.dtype = F32, .sizes = check::sizes_for(def_, problem()), .strategy = strategy, .threads = threads});
        return attention.value();
    }
    /// Of the strategies that every program admits, whose chunks start at the same tokens in all calls, this
    /// program's: another one for each test.
    [[nodiscard]] static std::vector<std::string> strategies(std::size_t shift) {
        return in_turn(GetParam(), std::vector<std::string>{"one-pass", "fused", "decoupled"}, 1, shift);
    }
    /// A third of the programs have this test, another third the next one.
    [[nodiscard]] static bool is_for_others(std::size_t test) { return !has_turn(GetParam(), 3, test); }
    ir::Definition def_ = GetParam().make().define();
};

void expect_same_bits(const check::Buffers& a, const check::Buffers& b, const std::string& what) {
    for (const auto& [name, x] : a.outputs)
        EXPECT_EQ(x.storage, b.outputs.at(name).storage) << what << ": output " << name;
    for (const auto& [name, x] : a.final_states)
        EXPECT_EQ(x.storage, b.final_states.at(name).storage) << what << ": state " << name;
}

TEST_P(Invariance, OfBitsFromRunToRunAndForAnyThreads) {
    if (is_for_others(0)) GTEST_SKIP();
    for (const std::string& strategy : strategies(0)) {
        const check::Buffers first(def_, problem()), again(def_, problem()), more(def_, problem());
        const Attention attention = compiled(strategy, 1), on_three = compiled(strategy, 3);
        attention(first.call());
        attention(again.call());
        expect_same_bits(first, again, strategy + ", again");
        on_three(more.call());
        if (on_three.sources()[0].text == attention.sources()[0].text)
            expect_same_bits(first, more, strategy + ", on three threads");
    }
}

TEST_P(Invariance, OfCallsAtTheSameTime) {
    if (is_for_others(1)) GTEST_SKIP();
    const Attention attention = compiled("one-pass");
    const check::Buffers alone(def_, problem());
    attention(alone.call());
    std::vector<check::Buffers> buffers(4, check::Buffers(def_, problem()));
    std::vector<std::thread> callers;
    for (const check::Buffers& b : buffers)
        callers.emplace_back([&] {
            for (int i = 0; i < 5; ++i) attention(b.call());
        });
    for (std::thread& caller : callers) caller.join();
    for (const check::Buffers& b : buffers) expect_same_bits(alone, b, "at the same time");
}

TEST_P(Invariance, OfTheCallersWorkspace) {
    if (is_for_others(2)) GTEST_SKIP();
    for (const std::string& strategy : strategies(1)) {
        const Attention attention = compiled(strategy);
        const check::Buffers own(def_, problem()), given(def_, problem());
        attention(own.call());
        Call call = given.call();
        const std::size_t bytes = attention.workspace_bytes(call), guard = 256;
        const std::unique_ptr<unsigned char, decltype(&std::free)> memory(
            static_cast<unsigned char*>(std::aligned_alloc(64, (bytes + guard + 63) / 64 * 64)), &std::free);
        std::memset(memory.get(), 0xFF, bytes + guard);  // NaN everywhere
        call.workspace = memory.get();
        attention(call);
        expect_same_bits(own, given, strategy + ", with a workspace");
        for (std::size_t i = bytes; i < bytes + guard; ++i)
            ASSERT_EQ(memory.get()[i], 0xFF) << strategy << " writes past its workspace";
    }
}

/// Many heads of packed sequences go through their kernels in stretches of a few chunks, on few threads; with the
/// caches of many threads, all chunks at once.
TEST_P(Invariance, OfStretches) {
    if (is_for_others(3)) GTEST_SKIP();
    check::Problem several = problem();
    several.H = 8, several.lengths = {600, 0, 1, 256, 257, 300}, several.sizes = {{"K", 32}, {"V", 32}};
    CompileOptions options{.dtype = F32, .sizes = check::sizes_for(def_, several), .chunk = def_.step ? 16 : 0};
    const bool has_axis = !graph::parallel_axes(graph::optimize(frontend::join(def_))).empty();
    for (const std::string& strategy : in_turn(GetParam(), std::vector<std::string>{"one-pass", "decoupled"}, 1)) {
        options.strategy = strategy, options.tiles = has_axis ? 2 : 0;
        options.threads = 1;
        const Attention in_stretches = compile_as(def_, options).value();
        options.threads = 256;
        const Attention at_once = compile_as(def_, options).value();
        ASSERT_EQ(in_stretches.sources()[0].text, at_once.sources()[0].text);
        const check::Buffers a(def_, several), b(def_, several);
        std::size_t loops = 0;
        const auto run = [&loops](const Attention& attention, Call call) {
            loops = 0;
            call.parallel_for = [&loops](std::int64_t tasks, int, const ParallelBody& body) {
                for (std::int64_t t = 0; t < tasks; ++t) body(t, 0);
                ++loops;
            };
            attention(call);
        };
        run(at_once, b.call());
        EXPECT_EQ(loops, at_once.kernels().size()) << strategy;
        run(in_stretches, a.call());
        const std::size_t last_rows = ir::last_rows(def_).empty() ? 0 : 1;  // one kernel, once
        if (def_.step && in_stretches.kernels().size() > 1 + last_rows) {
            EXPECT_GT(loops, in_stretches.kernels().size()) << strategy;
        }
        expect_same_bits(a, b, strategy + ", in stretches");
    }
}

/// Replaces the rows of the tokens from `first` on in every token input.
void change_from(check::Buffers& buffers, std::int64_t first) {
    for (const ir::InputDecl& in : buffers.definition().inputs) {
        if (in.role != ir::Role::Input) continue;
        check::OwnedTensor& x = buffers.inputs.at(in.name);
        const std::int64_t per_token = x.count() / kTokens;
        for (std::int64_t i = first * per_token; i < x.count(); ++i) x.set(i, 0.5 * x.at(i));
    }
}

TEST_P(Invariance, OfOutputsToLaterTokens) {
    if (is_for_others(4)) GTEST_SKIP();
    for (const std::string& strategy : strategies(2)) {
        const Attention attention = compiled(strategy);
        check::Buffers whole(def_, problem());
        attention(whole.call());
        for (const std::int64_t first : {1, 40, 64, 149}) {
            check::Buffers changed(def_, problem());
            change_from(changed, first);
            attention(changed.call());
            for (const auto& [name, x] : whole.outputs) {
                const std::int64_t per_token = x.count() / kTokens;
                for (std::int64_t i = 0; i < first * per_token; ++i)
                    ASSERT_EQ(x.at(i), changed.outputs.at(name).at(i))
                        << strategy << ": output " << name << " at token " << i / per_token << " changes with token "
                        << first;
            }
        }
    }
}

/// The tokens [first, first + count) of a problem as a problem of their own.
check::Buffers part(const check::Buffers& whole, std::int64_t first, std::int64_t count) {
    check::Problem problem = whole.problem();
    problem.T = count;
    check::Buffers result(whole.definition(), problem);
    for (const ir::InputDecl& in : whole.definition().inputs) {
        if (in.role == ir::Role::Scalar) continue;
        const check::OwnedTensor& from = whole.inputs.at(in.name);
        check::OwnedTensor& to = result.inputs.at(in.name);
        const std::int64_t offset = in.role == ir::Role::Input ? first * (from.count() / kTokens) : 0;
        for (std::int64_t i = 0; i < to.count(); ++i) to.set(i, from.at(offset + i));
    }
    return result;
}

double relative_rms(const check::OwnedTensor& want, std::int64_t offset, const check::OwnedTensor& got) {
    double error = 0, size = 0;
    for (std::int64_t i = 0; i < got.count(); ++i) {
        error += std::pow(got.at(i) - want.at(offset + i), 2);
        size += std::pow(want.at(offset + i), 2);
    }
    return got.count() == 0 ? 0 : std::sqrt(error / size);
}

TEST_P(Invariance, OfASequenceCutInTwo) {
    const double bound = check::tolerance(F32);
    for (const std::string& strategy : strategies(3)) {
        const Attention attention = compiled(strategy);
        const check::Buffers whole(def_, problem());
        attention(whole.call());
        for (const std::int64_t cut : {0, 1, 37, 64, 149, 150}) {
            if (def_.fixed_chunk != 0 && cut % def_.fixed_chunk != 0) continue;  // a call begins a chunk
            const check::Buffers head = part(whole, 0, cut);
            check::Buffers tail = part(whole, cut, kTokens - cut);
            attention(head.call());
            for (auto& [name, x] : tail.initial_states) x.storage = head.final_states.at(name).storage;
            attention(tail.call());
            for (const auto& [name, x] : whole.outputs) {
                EXPECT_LE(relative_rms(x, 0, head.outputs.at(name)), bound)
                    << strategy << ", cut at " << cut << ": output " << name;
                EXPECT_LE(relative_rms(x, cut * (x.count() / kTokens), tail.outputs.at(name)), bound)
                    << strategy << ", after " << cut << ": output " << name;
            }
            for (const auto& [name, x] : whole.final_states)
                EXPECT_LE(relative_rms(x, 0, tail.final_states.at(name)), bound) << strategy << ": state " << name;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Invariance, testing::ValuesIn(programs_in_every_way()), name_of);

}  // namespace
}  // namespace forge::tests
