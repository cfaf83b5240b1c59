/// Every program over ranks, forwards and backwards, against the float64 recurrence of the whole sequences.
#include "program/entry_point.h"
#include "tests/dist/ranks.h"

namespace forge::tests {
namespace {

using dist::Scheme;
using Shards = std::vector<std::int64_t>;

struct Cut {
    int size;
    Shards shards;
    dist::Options options = {};
};

/// B sequences over all ranks, uneven and with an empty part, and packed ones that cross borders.
check::Problem batch(std::int64_t K, std::int64_t V) {
    return {.B = 2, .T = 150, .H = 2, .sizes = {{"K", K}, {"V", V}}, .dtype = F32, .initial_state = true};
}
check::Problem packed(std::int64_t K, std::int64_t V) {
    check::Problem problem = batch(K, V);
    problem.B = 1, problem.lengths = {17, 0, 90, 1, 42};
    return problem;
}

class RanksOf : public testing::TestWithParam<Entry> {
  protected:
    Attention compiled(const std::string& entry, const check::Problem& problem) const {
        CompileOptions options{.entry = entry, .dtype = F32, .sizes = check::sizes_for(def_, problem)};
        options.tuned = false;
        if (!def_.step) options.chunk = 64;
        if (entry == "forward") return compile(def_, options);  // kernels that tests/numerics has, too
        const char* const strategies[] = {"one-pass", "fused", "decoupled"};
        options.strategy = strategies[GetParam().name.size() % 3], options.chunk = def_.step ? 32 : 64;
        return compile(def_, options);
    }

    /// Where a definition depends on its chunks, parts are whole ones.
    [[nodiscard]] bool by_chunks() const { return !def_.step || def_.fixed_chunk > 0; }

    void expect_agreement(const std::string& entry, check::Problem problem, const std::vector<Cut>& cuts) {
        if (by_chunks() && problem.lengths.empty()) problem.T = 256;
        expect_agreement(compiled(entry, problem), problem, cuts);
    }

    void expect_agreement(const Attention& attention, const check::Problem& problem, const std::vector<Cut>& cuts) {
        const std::string& entry = attention.entry();
        const bool back = entry != "forward";
        check::Buffers buffers(program::tensors_of(entry, def_), problem);
        const check::Reference reference = back ? check::backward_reference(buffers, def_, attention.chunk())
                                                : check::reference(buffers, attention.chunk());
        for (const Cut& cut : cuts) {
            Shards shards = cut.shards;
            if (by_chunks()) {  // every part of a sequence that goes on is whole chunks
                if (!problem.lengths.empty()) continue;
                shards = {0, 64, 64, 192, 256};
            }
            check::clear_results(buffers);
            const int size = by_chunks() ? 4 : cut.size;
            run_on_ranks(attention, buffers, def_, size, cut.options, shards);
            const check::Report report = check::compare(buffers, reference);
            for (const check::Difference& d : report.differences)
                EXPECT_TRUE(d.ok) << entry << " on " << size << " ranks, " << to_string(cut.options.scheme) << ", "
                                  << (problem.lengths.empty() ? "batch" : "packed") << ": " << d.name
                                  << ": relative RMS " << d.relative_rms << " > " << report.tolerance
                                  << "; first at token " << d.first_bad_token << ", head " << d.head << " of sequence "
                                  << d.sequence;
        }
    }

    ir::Definition def_ = GetParam().make().define();
};

TEST_P(RanksOf, HaveTheForwardPass) {
    if (!is_variant(GetParam()) && !has_turn(GetParam(), 2)) GTEST_SKIP() << "not its turn";
    dist::Options messages;
    messages.shared_memory = false;
    expect_agreement("forward", batch(17, 9),
                     {{2, {}}, {3, {0, 40, 40, 150}}, {4, {}, messages}, {8, {0, 0, 1, 30, 31, 90, 100, 150, 150}}});
    expect_agreement("forward", packed(17, 9), {{2, {0, 17, 150}}, {3, {}}, {4, {0, 40, 41, 41, 150}}, {8, {}}});
}

/// Where a rank's pass is in segments, its summary is that of its segments: kernels that tests/numerics has, too.
TEST_P(RanksOf, SumUpTheirSegments) {
    if (!has_turn(GetParam(), 5) && GetParam().name != "gated_delta_net" && GetParam().name != "shifted_pairs")
        GTEST_SKIP() << "not its turn";
    check::Problem problem = batch(32, 64);
    problem.H = 1, problem.T = by_chunks() ? 256 : 400;
    CompileOptions options{.dtype = F32, .strategy = "segmented", .segments = 3};
    options.sizes = check::sizes_for(def_, problem);
    const std::optional<Attention> attention = compile_as(def_, options);
    if (!attention) GTEST_SKIP() << "its decay is not affine";
    EXPECT_EQ(attention->summarised_segments(), 3);
    dist::Options messages, gathered;
    messages.shared_memory = false, gathered.scheme = Scheme::ScatterScanGather;
    expect_agreement(*attention, problem,
                     {{2, {}}, {3, {0, 130, 130, 400}, messages}, {4, {0, 1, 200, 390, 400}, gathered}});
    problem.B = 1, problem.lengths = {17, 0, 260, 1, 122};
    expect_agreement(*attention, problem, {{2, {0, 150, 400}}, {3, {0, 17, 140, 400}}});
}

/// The sizes and strategies of tests/numerics/gradient_test, in float32.
TEST_P(RanksOf, HaveTheBackwardPass) {
    if (!has_turn(GetParam(), 3)) GTEST_SKIP() << "not its turn";
    expect_agreement("backward", batch(20, 12), {{3, {0, 40, 40, 150}}, {4, {}}});
    expect_agreement("backward", packed(20, 12), {{2, {}}, {4, {0, 40, 41, 41, 150}}});
}

/// Rows that prev_token reads cross borders as the numbers that they are.
TEST(Ranks, HoldIn16Bits) {
    const ir::Definition def = program_named("shifted_pairs").make().define();
    for (const DType dtype : {BF16, F16}) {
        check::Problem problem = batch(17, 9);
        problem.dtype = dtype, problem.strided = true;
        const Attention attention = compile(def, {.dtype = dtype, .sizes = check::sizes_for(def, problem)});
        check::Buffers buffers(def, problem);
        const check::Reference reference = check::reference(buffers, attention.chunk());
        check::clear_results(buffers);
        run_on_ranks(attention, buffers, def, 3, {}, {0, 40, 40, 150});
        const check::Report report = check::compare(buffers, reference);
        EXPECT_TRUE(report.ok) << to_string(dtype) << ": " << report.worst();
    }
}

/// What ranks do not have is refused before anything is exchanged: the group stays whole.
TEST(Ranks, RefuseInWords) {
    const ir::Definition def = program_named("gla").make().define();
    check::Problem problem = batch(17, 9);
    const Attention attention = compile(def, {.dtype = F32, .sizes = check::sizes_for(def, problem)});
    check::Buffers buffers(def, problem);
    const auto message = [&](const Attention& of, const Call& call, const dist::Part& part) -> std::string {
        dist::Group group(dist::threads(1)[0]);
        try {
            dist::run(of, call, group, part);
        } catch (const RuntimeError& error) {
            group.check();
            return error.what();
        }
        return "";
    };
    Call call = buffers.call();
    EXPECT_EQ(message(attention, call, {}), "");
    EXPECT_EQ(message(attention, call, {.has_prev = true}),
              "gla: argument 'has_prev': expected no borders with one rank, got some");
    EXPECT_EQ(message(attention.entry("decode"), call, {}),
              "gla: argument 'entry': expected forward or backward, which ranks share, got decode");
    EXPECT_EQ(message(attention.entry("backward to inputs"), call, {}),
              "gla: argument 'entry': expected forward or backward, which ranks share, got backward to inputs");
    call.initial_slots = dense(nullptr, DType::I32, {2});
    EXPECT_EQ(message(attention, call, {}),
              "gla: argument 'initial_slots': expected states of the call's own over ranks, got slots of a pool");
    const Attention planned =
        compile(def, {.device = "cuda", .on = "h200", .dtype = F32, .sizes = check::sizes_for(def, problem)});
    call.initial_slots.reset();
    EXPECT_NE(message(planned, call, {}).find("H200"), std::string::npos) << message(planned, call, {});
}

INSTANTIATE_TEST_SUITE_P(All, RanksOf, testing::ValuesIn(all_programs()), name_of);

}  // namespace
}  // namespace forge::tests
