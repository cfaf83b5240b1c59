/// Every program, strategy, element type, instruction set, chunk size and shape against the float64 recurrence, on the
/// awkward problems of src/check/suite.h. What a variant does not admit (its recurrence itself is not finite) is
/// skipped by the suite. In float32 each variant goes through all strategies; otherwise programs take turns.
#include <cmath>

#include "frontend/join.h"
#include "graph/pipeline.h"
#include "graph/slice.h"
#include "program/entry_point.h"
#include "support/environment.h"
#include "tests/numerics/numerics.h"

namespace forge::tests {
namespace {

using Sizes = std::map<std::string, std::int64_t>;

class Program : public testing::TestWithParam<Entry> {
  protected:
    /// Runs all cases in each of the ways, and says which one failed.
    void expect_all(const std::vector<check::Case>& cases, const std::vector<CompileOptions>& ways) {
        std::vector<Prepared> prepared = prepare(def_, cases);
        const auto built = compile_all(def_, cases.at(0).problem, ways);
        for (const auto& attention : built) {
            if (!attention) continue;
            SCOPED_TRACE(attention->strategy() + ", " + attention->isa() + ", chunks of " +
                         std::to_string(attention->chunk()) + ", " + to_string(cases.at(0).problem.dtype));
            for (Prepared& p : prepared) expect_agreement(*attention, p);
        }
    }

    /// The whole suite, in these strategies.
    void expect_suite(DType dtype, const Sizes& sizes, const std::vector<std::string>& strategies) {
        std::vector<check::Case> cases = check::awkward_cases(def_, dtype, sizes, 1);
        cases.push_back(every_length(dtype, sizes));
        std::vector<CompileOptions> ways;
        for (const std::string& strategy : strategies) ways.push_back({.strategy = strategy});
        if (dtype != F16 && program::has_decode(def_)) ways.push_back({.entry = "decode"});
        expect_all(cases, ways);
    }

    /// Some of these, in this program's turn.
    template <class Way>
    std::vector<Way> in_turn(std::vector<Way> ways, std::size_t count, std::size_t shift = 0) {
        return tests::in_turn(GetParam(), std::move(ways), count, shift);
    }

    ir::Definition def_ = GetParam().make().define();
};

TEST_P(Program, HoldsInFloat32) {
    const std::vector<std::string> all = all_strategies();
    expect_suite(F32, {{"K", 60}, {"V", 100}}, is_variant(GetParam()) ? all : in_turn(all, 2));
}
TEST_P(Program, HoldsIn16Bits) {
    for (const DType half : in_turn(std::vector<DType>{BF16, F16}, 1))
        expect_suite(half, {{"K", 64}, {"V", 64}}, in_turn(all_strategies(), 1, half == F16 ? 2 : 0));
}

TEST_P(Program, HoldsForEveryShape) {
    const std::vector<Sizes> shapes = {{{"K", 64}, {"V", 64}},
                                       {{"K", 8}, {"V", 256}},
                                       {{"K", 128}, {"V", 64}},
                                       {{"K", 17}, {"V", 9}},
                                       {{"K", 100}, {"V", 60}}};
    for (const Sizes& sizes : in_turn(shapes, 1)) {
        SCOPED_TRACE("K = " + std::to_string(sizes.at("K")) + ", V = " + std::to_string(sizes.at("V")));
        expect_all(few_cases(F32, sizes), {{.strategy = "auto"}});
    }
}

TEST_P(Program, HoldsForEveryChunkSize) {
    if (!def_.step) GTEST_SKIP() << "defined per chunk";
    const std::vector<CompileOptions> ways = {{.strategy = "one-pass", .chunk = 16},
                                              {.strategy = "one-pass", .chunk = 32},
                                              {.strategy = "one-pass", .chunk = 128},
                                              {.strategy = "decoupled", .chunk = 32}};
    expect_all(few_cases(F32, {{"K", 60}, {"V", 40}}), in_turn(ways, 1));
}

TEST_P(Program, HoldsForEveryInstructionSet) {
    const std::string wide = support::machine_isa() == "plain" ? "plain" : "avx2";
    for (const DType dtype : in_turn(std::vector<DType>{F32, BF16}, 1)) {
        std::vector<CompileOptions> ways = {{.strategy = "one-pass", .isa = "plain"},
                                            {.strategy = "one-pass", .isa = wide}};
        if (dtype == F32)
            ways.insert(ways.begin() + 1,
                        {{.strategy = "decoupled", .isa = wide}, {.strategy = "decoupled", .isa = "plain"}});
        ways = in_turn(ways, 1, tests::turn_of(GetParam()) / 2);  // types take turns, too
        std::vector<check::Case> cases = few_cases(dtype, {{"K", 60}, {"V", 36}});
        if (check::has_gates(def_, true)) {
            check::Problem closed = cases[0].problem;
            closed.gate = -HUGE_VAL;
            cases.push_back({"gate -inf", closed});
        }
        expect_all(cases, ways);
    }
}

// A long sequence of one head leaves threads idle unless the value axis is cut or the sequence is.
TEST_P(Program, HoldsInTilesAndSegments) {
    std::vector<check::Case> cases = few_cases(F32, {{"K", 32}, {"V", 64}});
    std::vector<CompileOptions> ways = {{.strategy = "segmented", .segments = 3}};
    const std::vector<std::string> axes = graph::parallel_axes(graph::optimize(frontend::join(def_)));
    const std::vector<std::string> strategies = {"one-pass", "fused", "decoupled"};
    for (const std::string& strategy : in_turn(strategies, 1))
        if (!axes.empty()) ways.push_back({.strategy = strategy, .threads = 4, .tiles = 2});
    expect_all(cases, in_turn(ways, 1, tests::turn_of(GetParam()) / 3));
}

INSTANTIATE_TEST_SUITE_P(All, Program, testing::ValuesIn(programs_in_every_way()), name_of);

}  // namespace
}  // namespace forge::tests
