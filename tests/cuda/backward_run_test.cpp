/// Backward passes in kernels for warp groups, run: the emitted source, compiled for the CPU with fibers for threads
/// (emulated/), against the adjoint of `step` in float64. Warps run, and copies and products end, in orders that differ
/// from seed to seed and must leave the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "check/check.h"
#include "check/operands.h"
#include "check/suite.h"
#include "compile/driver.h"
#include "forge/compose.h"
#include "forge/language.h"
#include "graph/derive.h"
#include "program/entry_point.h"
#include "tests/cuda/emulated/blocks.h"
#include "tests/cuda/emulated/program.h"
#include "tests/cuda/in_place.h"
#include "tests/support/turns.h"

namespace forge::tests {
namespace {

struct Example {
    std::string program;
    DType dtype = BF16;
    std::int64_t k = 64, v = 64;
    std::string strategy = "fused", entry = "backward";
    bool coarse = false;  ///< terms of some gradients cancel: those may be as wrong as operands of 16 bits make them
};

void PrintTo(const Example& e, std::ostream* out) {
    *out << e.program << ", " << to_string(e.dtype) << ", " << e.k << " x " << e.v << ", " << e.strategy;
}

std::map<std::string, std::int64_t> sizes_of(const Example& e) { return {{"K", e.k}, {"V", e.v}, {"M", 64}}; }

/// Packed sequences, and one of the others in this example's turn.
std::vector<check::Problem> problems_for(const ir::Definition& def, const Example& example) {
    std::vector<check::Problem> problems = {
        {.T = 150, .H = 1, .initial_state = true}, {.B = 2, .T = 330, .H = 1}, {.T = 100, .H = 1, .strided = true}};
    if (check::has_gates(def)) problems.push_back({.T = 70, .H = 1, .gate = -5.0});
    if (check::has_grouped_heads(def)) problems.push_back({.T = 70, .H = 1, .HV = 2});
    const std::size_t turn = turn_of(example.program) + static_cast<std::size_t>(example.k + example.v) / 64;
    problems = in_turn(turn, std::move(problems), 1);
    problems.push_back({.H = 1, .lengths = {70, 0, 1, 130}, .initial_state = true});
    for (check::Problem& p : problems) p.dtype = example.dtype, p.sizes = sizes_of(example);
    return problems;
}

std::vector<std::vector<std::byte>> results(const check::Buffers& buffers) {
    std::vector<std::vector<std::byte>> all;
    for (const auto* list : {&buffers.outputs, &buffers.final_states})
        for (const auto& [name, x] : *list) all.push_back(x.storage);
    return all;
}

/// Of outputs with the length 1, as a norm behind them makes: gradients get from the scan forwards through sums over
/// values to the scan back.
ir::Definition with_normed_outputs() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("normed_outputs");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.input("g", F32, {T, H}, kLogDecays).state("s", F32, {K, V});
    a.step({"q", "k", "v", "g", "prev_s"},
           [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& s) -> Results {
               Tensor next = s * exp(g) + outer(k, v);
               return {{"s", next}, {"o", l2norm(matmul(q, next), 1e-3)}};
           });
    return graph::with_phases(a.define());
}

/// Of a program, or of a composition: one whose features choose between two expressions, so that truth values of
/// matrices are kept, and pass from kernel to kernel; one of whose matrices, kept by an earlier kernel, a product takes
/// the transpose.
ir::Definition definition_of(const std::string& program) {
    const std::map<std::string, Composition> compositions = {
        {"elu_delta", {.features = "elu", .update = "delta"}},
        {"turned_delta", {.decay = "scalar", .features = "rotary-data", .update = "delta"}},
        {"placed_delta", {.features = "rotary", .update = "delta", .read = "before"}},
        {"cosine_dplr", {.decay = "scalar", .features = "cosine", .update = "dplr", .read = "before"}}};
    if (program == "normed_outputs") return with_normed_outputs();
    const auto found = compositions.find(program);
    return (found == compositions.end() ? program_named(program).make() : compose(found->second)).define();
}

std::vector<check::Difference> differences(const check::Buffers& buffers, const Example& example,
                                           const ir::Definition& def, std::int64_t chunk,
                                           const check::Reference& reference) {
    std::vector<check::Difference> found = check::compare(buffers, reference).differences;
    const bool all = std::all_of(found.begin(), found.end(), [](const check::Difference& d) { return d.ok; });
    if (all || !example.coarse) return found;
    const auto rounded = check::with_rounded_operands(buffers, def, "backward", chunk, reference).differences;
    for (std::size_t i = 0; i < found.size(); ++i) found[i].of_operands = rounded.at(i).relative_rms;
    return found;
}

class BackwardKernels : public testing::TestWithParam<Example> {};

TEST_P(BackwardKernels, AreTheAdjointOfTheRecurrence) {
    const Example& example = GetParam();
    const ir::Definition def = definition_of(example.program);
    CompileOptions options{.device = "cuda", .dtype = example.dtype, .sizes = sizes_of(example)};
    options.entry = example.entry, options.on = "h200", options.engine = "warp-groups", options.tuned = false;
    options.strategy = example.strategy;
    const auto made = compiler::emitted(program::Module(def, example.dtype), options);
    plan::Plan plan = made->plan;
    if (plan.schedule.far_blocks > 0) plan.schedule.far_blocks = 2;  // blocks with far tiles take several tasks
    const emulated::Program emulated("backward_" + example.program + std::to_string(example.v), plan);
    for (const check::Problem& problem : problems_for(def, example)) {
        check::Buffers buffers(program::tensors_of(example.entry, def), problem);
        const check::Reference reference = check::backward_reference(buffers, def, made->plan.schedule.chunk);
        std::vector<std::vector<std::byte>> first;
        for (const unsigned seed : {1U, 2U}) {
            check::clear_results(buffers);
            ASSERT_NO_THROW(emulated.run(buffers.call(), seed));
            for (const check::Difference& d : differences(buffers, example, def, plan.schedule.chunk, reference))
                EXPECT_TRUE(d.ok || d.coarse()) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token
                                                << ", T " << problem.T << ", by operands " << d.of_operands;
            if (first.empty()) first = results(buffers);
            EXPECT_EQ(first, results(buffers)) << "other bits";
        }
        if (!problem.initial_state) continue;
        check::clear_results(buffers);
        run_in_place(emulated, buffers);
        EXPECT_EQ(first, results(buffers)) << "other bits in place";
    }
}

TEST(FarTiles, LieInGlobalMemory) {
    CompileOptions options{.device = "cuda", .dtype = BF16, .sizes = {{"K", 128}, {"V", 128}}};
    options.entry = "backward", options.on = "h200", options.engine = "warp-groups", options.tuned = false;
    const auto made = compiler::emitted(program::Module(program_named("mamba3").make().define(), BF16), options);
    std::set<plan::Loop> loops;
    for (const plan::Kernel& kernel : made->plan.kernels)
        if (kernel.tiles.far_floats > 0) loops.insert(kernel.graph.loop);
    EXPECT_EQ(loops, (std::set<plan::Loop>{plan::Loop::Chunks, plan::Loop::Scan}));
}

// Its matrices fit only in an order of placing them that has to be looked for.
TEST(BackwardMemory, LeavesRoomForASecondTask) {
    CompileOptions options{.device = "cuda", .dtype = BF16, .sizes = {{"K", 128}, {"V", 128}}};
    options.entry = "backward of q, k, v, g, beta", options.on = "h200", options.engine = "warp-groups";
    options.strategy = "fused", options.tuned = false;
    const auto made = compiler::emitted(program::Module(program_named("kda").make().define(), BF16), options);
    constexpr std::int64_t kHalf = 228 * 1024 / 2 - 1024;  // bytes of a multiprocessor for each of two tasks
    EXPECT_LE(made->plan.kernels.back().tiles.scratch_floats * 4, kHalf);
}

/// The delta rule with gates of raw values and a bias per head and channel, and keys of unit length that the program
/// makes.
ir::Definition with_biased_gates() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("biased_gates");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.input("x", F32, {T, H, K}).input("beta", BF16, {T, H}, kZeroToOne).head_input("bias", F32, {H, K});
    a.state("s", F32, {K, V});
    a.step({"q", "k", "v", "x", "beta", "bias", "prev_s"},
           [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& x, const Tensor& beta,
              const Tensor& bias, const Tensor& s) -> Results {
               Tensor key = l2norm(k), decayed = s * unsqueeze(exp(-softplus(x + bias)), 1);
               Tensor next = decayed + outer(key, (v - matmul(key, decayed)) * beta);
               return {{"s", next}, {"o", matmul(l2norm(q), next)}};
           });
    return a.define();
}

// The gradient of a gate is a difference of sums, small where hardly anything of the tokens before is left, that of its
// bias a sum over all tokens: keys must be the same numbers in all terms, and their products as precise as the inputs.
TEST(BackwardSums, OverTokensAreAsPreciseAsTheirTerms) {
    constexpr double kBound = 1e-3;
    const ir::Definition def = with_biased_gates();
    check::Problem problem{.T = 128, .H = 1, .sizes = {{"K", 64}, {"V", 64}}, .initial_state = true};
    problem.dtype = F16, problem.correlated_keys = true;
    CompileOptions options{.device = "cuda", .dtype = F16, .sizes = problem.sizes};
    options.entry = "backward", options.on = "h200", options.engine = "warp-groups", options.tuned = false;
    const auto made = compiler::emitted(program::Module(def, F16), options);
    check::Buffers buffers(program::tensors_of(options.entry, def), problem);
    check::OwnedTensor& x = buffers.inputs.at("x");
    for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, i % 11 == 0 ? 8 + x.at(i) : -8 + x.at(i));  // few forget
    emulated::Program("backward_sums", made->plan).run(buffers.call(), 1);
    const check::Reference reference = check::backward_reference(buffers, def, made->plan.schedule.chunk);
    const interp::Value got = buffers.final_state("grad_bias", 0, 0);
    const interp::Value& wanted = reference.outcomes[0].states.at("grad_bias");
    double squares = 0, all = 0;
    for (std::size_t i = 0; i < wanted.data.size(); ++i)
        squares += std::pow(got.data[i] - wanted.data[i], 2), all += std::pow(wanted.data[i], 2);
    EXPECT_LE(std::sqrt(squares / all), kBound);
}

// Gradients of gates so steep that 5e-5 of a token is left at the next one: e^-10 of the other gradients' size, and
// held against their own. What a token has of itself, which no gate touches, must not come into them.
class SteepGates : public testing::TestWithParam<std::string> {};

TEST_P(SteepGates, HaveRightGradientsForTheirSize) {
    constexpr double kGate = -10;
    const ir::Definition def = program_named(GetParam()).make().define();
    check::Problem problem{.T = 150, .H = 1, .sizes = {{"K", 64}, {"V", 64}}, .dtype = BF16, .gate = kGate};
    CompileOptions options{.device = "cuda", .dtype = BF16, .sizes = problem.sizes};
    options.entry = "backward", options.on = "h200", options.engine = "warp-groups", options.tuned = false;
    const auto made = compiler::emitted(program::Module(def, BF16), options);
    const check::Buffers buffers(program::tensors_of(options.entry, def), problem);
    check::Reference reference = check::backward_reference(buffers, def, made->plan.schedule.chunk);
    reference.least_scale = 0;
    reference.least_scales.clear();
    emulated::Program("steep_" + GetParam(), made->plan).run(buffers.call(), 1);
    for (const check::Difference& d : check::compare(buffers, reference).differences)
        if (d.name == "grad_g") {
            EXPECT_TRUE(d.ok) << d.relative_rms << ", allowed " << reference.tolerance;
        }
}

INSTANTIATE_TEST_SUITE_P(Some, SteepGates,
                         testing::Values("gla", "kda", "rwkv6", "value_decay", "gated_delta_net", "shifted_gates"),
                         [](const auto& test) { return test.param; });

/// A matrix that keeps all, and a vector of which a token forgets as good as nothing.
ir::Definition with_lasting_vector() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("lasting_vector");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.input("g", F32, {T, H, V}, kLogDecays).state("s", F32, {K, V}).state("h", F32, {V});
    a.step({"q", "k", "v", "g", "prev_s", "prev_h"},
           [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& s,
              const Tensor& h) -> Results {
               Tensor next = s + outer(k, v), vector = h * exp(g) + tanh(v);
               return {{"s", next}, {"h", vector}, {"o", matmul(q, next) * vector}};
           });
    return graph::with_phases(a.define());
}

// A decay of 0.999, rounded to 16 bits, forgets twice as much, or nothing: over a chunk a tenth of the state.
TEST(DecaysOfScans, AreNotRoundedBetweenKernels) {
    const ir::Definition def = with_lasting_vector();
    check::Problem problem{.T = 150, .H = 1, .sizes = {{"K", 64}, {"V", 64}}, .dtype = BF16, .gate = -1e-3};
    for (const std::string strategy : {"fused", "decoupled"}) {
        CompileOptions options{.device = "cuda", .dtype = BF16, .sizes = problem.sizes};
        options.entry = "backward", options.on = "h200", options.engine = "warp-groups", options.tuned = false;
        options.strategy = strategy;
        const auto made = compiler::emitted(program::Module(def, BF16), options);
        const check::Buffers buffers(program::tensors_of(options.entry, def), problem);
        const check::Reference reference = check::backward_reference(buffers, def, made->plan.schedule.chunk);
        emulated::Program("lasting_vector_" + strategy, made->plan).run(buffers.call(), 1);
        for (const check::Difference& d : check::compare(buffers, reference).differences)
            EXPECT_TRUE(d.ok) << strategy << ": " << d.name << " " << d.relative_rms;
    }
}

/// A matrix whose values are weighted by a number of the token before, and a number that decays.
ir::Definition with_numbers_of_tokens() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("numbers_of_tokens");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.input("g", F32, {T, H}, kLogDecays).input("x", F32, {T, H});
    a.input("d", F32, {T, H}, kLogDecays).input("y", F32, {T, H});
    a.state("s", F32, {K, V}).state("n", F32, {});
    a.output("o", BF16, {T, H, V}).output("p", F32, {T, H});
    a.step({"q", "k", "v", "g", "x", "d", "y", "prev_s", "prev_n"},
           [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& x, const Tensor& d,
              const Tensor& y, const Tensor& s, const Tensor& n) -> Results {
               Tensor next = s * exp(g) + outer(k, v * tanh(prev_token(x))), number = n * exp(d) + y;
               return {{"s", next}, {"n", number}, {"o", matmul(q, next)}, {"p", number}};
           });
    return a.define();
}

/// Which gradients are wrong if this stands in the kernels' text in place of that, which it must have.
std::vector<std::string> wrong_gradients(const ir::Definition& def, const std::string& that, const std::string& with) {
    check::Problem problem{.H = 1, .sizes = {{"K", 64}, {"V", 64}}, .lengths = {70, 0, 1, 130}, .initial_state = true};
    problem.dtype = BF16;
    CompileOptions options{.device = "cuda", .dtype = BF16, .sizes = problem.sizes};
    options.entry = "backward", options.on = "h200", options.engine = "warp-groups", options.tuned = false;
    options.strategy = "fused";
    const auto made = compiler::emitted(program::Module(def, BF16), options);
    static int count = 0;
    const emulated::Program program(fmt::format("{}_{}", def.name, count++), made->plan, [&](std::string& text) {
        std::size_t at = text.find(that);
        EXPECT_NE(at, std::string::npos) << that;
        for (; at != std::string::npos; at = text.find(that, at + with.size())) text.replace(at, that.size(), with);
    });
    const check::Buffers buffers(program::tensors_of(options.entry, def), problem);
    const check::Reference reference = check::backward_reference(buffers, def, made->plan.schedule.chunk);
    program.run(buffers.call(), 1);
    std::vector<std::string> wrong;
    for (const check::Difference& d : check::compare(buffers, reference).differences)
        if (!d.ok) wrong.push_back(d.name);
    return wrong;
}

// Gradients scan numbers of tokens from behind, and what comes before each token: by one warp where they follow from
// others alone, else in a tile. Those of numbers of the token before are the next one's, from behind and without the
// token itself.
TEST(NumbersOfTokens, AreScannedFromBehindAndBeforeThemselves) {
    const ir::Definition def = with_numbers_of_tokens();
    using Names = std::vector<std::string>;
    const std::string before = "running_map<false, true>", next = "linear_scan_vector<64, true, true>";
    EXPECT_EQ(wrong_gradients(def, before, before), Names());
    EXPECT_EQ(wrong_gradients(def, next, next), Names());
    EXPECT_EQ(wrong_gradients(def, before, "running_map<false, false>"), Names{"grad_d"});
    EXPECT_EQ(wrong_gradients(def, next, "linear_scan_vector<64, false, true>"), Names{"grad_x"});
    EXPECT_EQ(wrong_gradients(def, next, "linear_scan_vector<64, true, false>"), Names{"grad_x"});
}

/// One warp's scan, two numbers per lane, in each of its four ways.
TEST(NumbersOfTokens, AreScannedByOneWarpInAllFourWays) {
    constexpr std::size_t kTokens = 64, kWays = 4;
    const std::string source = R"(
#define FORGE_TENSORS 1
#define FORGE_THREADS 32
#include "cuda/warpgroup/kernel.h"
using namespace forge::cuda;
extern "C" void forge_scans(const float* decay, const float* x, float* maps, float* sums) {
    const int j = 2 * lane();
    const pair a{{decay[j], decay[j + 1]}}, b{{x[j], x[j + 1]}};
    store_pair(maps + j, running_map<false, false>(a, b)), store_pair(sums + j, running_sum<false, false>(b));
    store_pair(maps + 64 + j, running_map<false, true>(a, b)), store_pair(sums + 64 + j, running_sum<false, true>(b));
    store_pair(maps + 128 + j, running_map<true, false>(a, b)), store_pair(sums + 128 + j, running_sum<true, false>(b));
    store_pair(maps + 192 + j, running_map<true, true>(a, b)), store_pair(sums + 192 + j, running_sum<true, true>(b));
})";
    const emulated::Device device;
    const emulated::Library library(device.build("scans", source));
    std::vector<float> decay(kTokens), x(kTokens), maps(kWays * kTokens), sums(kWays * kTokens);
    for (std::size_t i = 0; i < kTokens; ++i)
        decay[i] = 0.5F + 0.4F * std::sin(3.0F * static_cast<float>(i)), x[i] = std::cos(5.0F * static_cast<float>(i));
    const auto scans = reinterpret_cast<void (*)(const float*, const float*, float*, float*)>(  // NOLINT: dlsym
        library.kernel("forge_scans"));
    emulated::run(library.machine(), {.blocks = 1, .threads = 32},
                  [&] { scans(decay.data(), x.data(), maps.data(), sums.data()); });
    for (const bool reverse : {false, true})
        for (const bool exclusive : {false, true}) {
            double map = 0, sum = 0, factor = 0;  // what decays when it comes to the next token
            for (std::size_t n = 0; n < kTokens; ++n) {
                const std::size_t i = reverse ? kTokens - 1 - n : n,
                                  at = ((reverse ? 2U : 0U) + (exclusive ? 1U : 0U)) * kTokens + i;
                const double into = reverse ? factor : decay[i], map_before = map, sum_before = sum;
                map = into * map + x[i], sum += x[i], factor = decay[i];
                EXPECT_NEAR(maps[at], exclusive ? map_before : map, 1e-5) << reverse << exclusive << " at " << i;
                EXPECT_NEAR(sums[at], exclusive ? sum_before : sum, 1e-5) << reverse << exclusive << " at " << i;
            }
        }
}

std::string name_of(const testing::TestParamInfo<Example>& test) {
    return fmt::format("{}_{}_{}", test.param.program, to_string(test.param.dtype), test.param.v);
}

INSTANTIATE_TEST_SUITE_P(
    Some, BackwardKernels,
    testing::Values(Example{"linear_attention"}, Example{"scalar_gla", BF16, 128, 128},
                    Example{"scalar_gla", F16, 64, 128, "decoupled"}, Example{"gla"}, Example{"gla", F16, 128, 128},
                    Example{"hgrn2"}, Example{"kda"}, Example{"delta_net"}, Example{"gated_delta_net"},
                    Example{"gated_delta_net", BF16, 128, 128}, Example{"rwkv6"}, Example{"kda", BF16, 96, 50},
                    Example{"longhorn"}, Example{"delta_product"}, Example{"elu_delta"}, Example{"cosine_dplr"},
                    Example{"delta_product", BF16, 128, 128}, Example{"rwkv7", BF16, 128, 128},
                    Example{"scalar_gla", BF16, 256, 256}, Example{"gla", F16, 256, 192},
                    Example{"gated_delta_net", BF16, 200, 256}, Example{"kda", BF16, 256, 256},
                    Example{"kda", F16, 136, 128}, Example{"gla", BF16, 100, 128}, Example{"delta_net", BF16, 256, 192},
                    Example{"rwkv6", BF16, 128, 128}, Example{"hgrn2", F16, 128, 64}),
    name_of);

// Of calls without gradients of states, maxima that only keep exponents small have none.
INSTANTIATE_TEST_SUITE_P(ToInputs, BackwardKernels,
                         testing::Values(Example{"stabilised_mlstm", BF16, 64, 128, "fused", "backward to inputs"},
                                         Example{"stabilised_mlstm", F16, 60, 100, "fused", "backward to inputs"}),
                         name_of);

// Features of the zeros behind an axis's end are no zeros, and are replaced.
INSTANTIATE_TEST_SUITE_P(MaskedEnds, BackwardKernels,
                         testing::Values(Example{"normalised", BF16, 96, 60}, Example{"longhorn", BF16, 60, 100},
                                         Example{"mesa_diagonal", BF16, 96, 96}, Example{"two_readings", F16, 96, 96}),
                         name_of);

// Operands of two parts, 16 bits of each float.
INSTANTIATE_TEST_SUITE_P(OfFloats, BackwardKernels,
                         testing::Values(Example{"linear_attention", F32, 128, 128},
                                         Example{"scalar_gla", F32, 64, 128}, Example{"delta_net", F32, 60, 100},
                                         Example{"gated_delta_net", F32, 128, 128}, Example{"normalised", F32},
                                         Example{"shifted_pairs", F32}),
                         name_of);

// Tiles that shared memory is too small for, in kernels of a chunk per task and in scans, which blocks of threads take
// one after the other.
INSTANTIATE_TEST_SUITE_P(FarTiles, BackwardKernels, testing::Values(Example{"turned_pairs", BF16, 128, 128}), name_of);

// Gradients of normalisers, of slots and of earlier keys, which sum over values, are carried after those of matrices.
INSTANTIATE_TEST_SUITE_P(TrailingStates, BackwardKernels,
                         testing::Values(Example{"normalised", F16, 128, 128}, Example{"rebased"}, Example{"mlstm"},
                                         Example{"mlstm", F16, 64, 128}, Example{"shifted_gates", BF16, 64, 128},
                                         Example{"shifted_pairs", F16, 64, 128},
                                         Example{"shifted_pairs", BF16, 128,
                                                 128},  // of whose last rows kernels read parts
                                         Example{"trapezoidal", BF16, 128, 128}, Example{"two_readings", BF16, 64, 128},
                                         Example{"gated_slots", F16, 64, 64}, Example{"mesa_diagonal", BF16, 64, 128},
                                         Example{"running_maximum", BF16, 64, 128}),
                         name_of);

// Angles and places are carried ahead of the states whose keys they turn.
INSTANTIATE_TEST_SUITE_P(EarlyStates, BackwardKernels,
                         testing::Values(Example{"turned_delta", BF16, 64, 64, "fused", "backward", true},
                                         Example{"turned_delta", F16, 64, 96, "fused", "backward", true},
                                         Example{"placed_delta", BF16, 64, 64},
                                         Example{"rotary", F16, 64, 64, "fused", "backward", true},
                                         Example{"rotary_retention", BF16, 32, 128, "fused", "backward", true},
                                         Example{"mamba3", BF16, 64, 64, "fused", "backward", true}),
                         name_of);

// Gradients of outputs that sum over values take a kernel between the two scans.
INSTANTIATE_TEST_SUITE_P(Between, BackwardKernels,
                         testing::Values(Example{"normed_outputs"}, Example{"normed_outputs", F16, 128, 128},
                                         Example{"normed_outputs", BF16, 96, 60}),
                         name_of);

TEST(BackwardStages, BetweenTheScansMakeWhatSumsOverValues) {
    CompileOptions options{.device = "cuda", .dtype = BF16, .sizes = {{"K", 128}, {"V", 128}}};
    options.entry = "backward", options.on = "h200", options.tuned = false;
    const auto kernels = [&](const ir::Definition& def) {
        std::vector<std::string> names;
        const auto made = compiler::emitted(program::Module(def, BF16), options);
        for (const plan::Kernel& k : made->plan.kernels) {
            std::string_view name = k.graph.name;
            for (const std::string_view half : {"_first", "_second"})  // of a kernel whose text was too long
                if (name.ends_with(half)) name.remove_suffix(half.size());
            name.remove_prefix(name.rfind('_') + 1);
            if (names.empty() || names.back() != name) names.emplace_back(name);
        }
        return names;
    };
    EXPECT_EQ(kernels(with_normed_outputs()),
              (std::vector<std::string>{"shared", "before", "between", "states", "outputs"}));
    EXPECT_EQ(kernels(definition_of("turned_delta")),
              (std::vector<std::string>{"additions", "early", "shared", "before", "states", "additions", "trailing",
                                        "outputs"}));
    EXPECT_EQ(kernels(program_named("scalar_gla").make().define()),
              (std::vector<std::string>{"shared", "before", "states", "outputs", "sums"}));
}

}  // namespace
}  // namespace forge::tests
