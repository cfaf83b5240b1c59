/// Every program, strategy, element type, instruction set, chunk size and shape against the float64 recurrence, on the
/// awkward problems of src/check/suite.h. What a variant does not admit (its recurrence itself is not finite) is
/// skipped by the suite.
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

    /// The whole suite, in every strategy.
    void expect_suite(DType dtype, const Sizes& sizes) {
        std::vector<check::Case> cases = check::awkward_cases(def_, dtype, sizes, 1);
        cases.push_back(every_length(dtype, sizes));
        std::vector<CompileOptions> ways;
        for (const std::string& strategy : all_strategies()) ways.push_back({.strategy = strategy});
        if (dtype != F16 && program::has_decode(def_)) ways.push_back({.entry = "decode"});
        expect_all(cases, ways);
    }

    ir::Definition def_ = GetParam().make().define();
};

TEST_P(Program, HoldsInFloat32) { expect_suite(F32, {{"K", 60}, {"V", 100}}); }
TEST_P(Program, HoldsInBfloat16) { expect_suite(BF16, {{"K", 64}, {"V", 64}}); }
TEST_P(Program, HoldsInFloat16) { expect_suite(F16, {{"K", 64}, {"V", 64}}); }

TEST_P(Program, HoldsForEveryShape) {
    for (const Sizes& sizes : std::vector<Sizes>{{{"K", 64}, {"V", 64}},
                                                 {{"K", 8}, {"V", 256}},
                                                 {{"K", 128}, {"V", 64}},
                                                 {{"K", 100}, {"V", 60}},
                                                 {{"K", 17}, {"V", 9}}}) {
        SCOPED_TRACE("K = " + std::to_string(sizes.at("K")) + ", V = " + std::to_string(sizes.at("V")));
        expect_all(few_cases(F32, sizes), {{.strategy = "auto"}});
    }
}

TEST_P(Program, HoldsForEveryChunkSize) {
    if (!def_.step) GTEST_SKIP() << "defined per chunk";
    std::vector<CompileOptions> ways;
    for (const std::int64_t chunk : {16, 32, 128}) ways.push_back({.strategy = "one-pass", .chunk = chunk});
    ways.push_back({.strategy = "decoupled", .chunk = 32});
    expect_all(few_cases(F32, {{"K", 60}, {"V", 40}}), ways);
}

TEST_P(Program, HoldsForEveryInstructionSet) {
    std::vector<std::string> sets = {"plain"};
    if (support::machine_isa() != "plain") sets.emplace_back("avx2");
    for (const DType dtype : {F32, BF16}) {
        std::vector<CompileOptions> ways;
        for (const std::string& isa : sets)
            for (const char* strategy : {"one-pass", "decoupled"})
                if (dtype == F32 || strategy == std::string("one-pass"))
                    ways.push_back({.strategy = strategy, .isa = isa});
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
    for (const char* strategy : {"one-pass", "fused", "decoupled"})
        if (!axes.empty()) ways.push_back({.strategy = strategy, .threads = 4, .tiles = 2});
    expect_all(cases, ways);
}

INSTANTIATE_TEST_SUITE_P(All, Program, testing::ValuesIn(programs_in_every_way()), name_of);

}  // namespace
}  // namespace forge::tests
