/// Why programs have no channels, no warp groups, or no roles: a program for every row of src/support/reasons.def, and
/// where the row names a way out, the program that takes it. All are planned for GPUs that are not there. Whoever adds
/// a row adds a program here.
#include "support/reasons.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "forge/forge.h"
#include "frontend/trace.h"
#include "graph/derive.h"
#include "ir/definition.h"
#include "tests/cuda/float_forms.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

const Dim T("T"), H("H"), K("K"), V("V"), D("D"), E("E");

struct Asked {
    CompileOptions options;

    Asked() {
        options.device = "cuda", options.on = "h200", options.tuned = false;
        options.sizes = {{"K", 128}, {"V", 128}, {"D", 128}, {"E", 128}};
    }
    Asked& on(const char* gpu) { return options.on = gpu, *this; }
    Asked& dtype(DType dtype) { return options.dtype = dtype, *this; }
    Asked& strategy(const char* name) { return options.strategy = name, *this; }
    Asked& chunk(std::int64_t tokens) { return options.chunk = tokens, *this; }
    Asked& tiles(std::int64_t parts) { return options.tiles = parts, *this; }
    Asked& entry(const char* name) { return options.entry = name, *this; }
    Asked& threads(int threads) { return options.threads = threads, *this; }
    Asked& heads(std::int64_t count) { return options.expected_heads = count, *this; }
    Asked& size(const char* symbol, std::int64_t size) { return options.sizes[symbol] = size, *this; }
};

/// h = e^g h + x, o = h: what has channels.
struct Vectors {
    Shape x = {T, H, D}, state = {D};
    std::function<Tensor(Tensor h)> after = [](Tensor h) { return h; };
    std::function<Tensor(Tensor x)> factor = [](Tensor x) { return x; };
    bool step = true;
    std::int64_t chunk = 0;  ///< fixed, if not 0

    [[nodiscard]] ir::Definition define() const {
        LinearAttention a("vectors");
        if (chunk != 0) a.fixed_chunk(chunk);
        a.input("x", BF16, x).input("g", F32, {T, H}).state("h", F32, state);
        a.chunk({"x", "g"}, [*this](Tensor x, Tensor g) {
            return sum(factor(x) * unsqueeze(exp(sum(g, 0) - cumsum(g, 0)), 1), 0);
        });
        a.decay({"prev_h", "chunk_state", "g"},
                [*this](Tensor h, Tensor chunk, Tensor g) { return after(h) * exp(sum(g, 0)) + chunk; });
        a.merge({"x", "g", "chunk_state"}, [](Tensor x, Tensor g, Tensor before) {
            return x + unsqueeze(exp(cumsum(g, 0)), 1) * unsqueeze(before, 0);
        });
        if (step)
            a.step({"x", "g", "prev_h"}, [*this](Tensor x, Tensor g, Tensor h) -> Results {
                Tensor next = after(h) * exp(g) + x;
                return {{"h", next}, {"o", next}};
            });
        return a.define();
    }
};

/// Sums of x and of y: two vector states, of the axes that are given.
ir::Definition two_vectors(const Dim& second) {
    LinearAttention a("two_vectors");
    a.input("x", BF16, {T, H, D}).input("y", BF16, {T, H, second});
    a.state("h", F32, {D}).state("w", F32, {second});
    a.output("o", BF16, {T, H, D}).output("p", BF16, {T, H, second});
    a.chunk({"x", "y"}, [](Tensor x, Tensor y) -> Results { return {{"h", sum(x, 0)}, {"w", sum(y, 0)}}; });
    a.decay({"prev_h", "chunk_h", "prev_w", "chunk_w"},
            [](Tensor h, Tensor x, Tensor w, Tensor y) -> Results { return {{"h", h + x}, {"w", w + y}}; });
    a.merge({"x", "y", "chunk_h", "chunk_w"}, [](Tensor x, Tensor y, Tensor h, Tensor w) -> Results {
        return {{"o", cumsum(x, 0) + unsqueeze(h, 0)}, {"p", cumsum(y, 0) + unsqueeze(w, 0)}};
    });
    a.step({"x", "y", "prev_h", "prev_w"}, [](Tensor x, Tensor y, Tensor h, Tensor w) -> Results {
        return {{"h", h + x}, {"w", w + y}, {"o", h + x}, {"p", w + y}};
    });
    return a.define();
}

/// Sums of x, weighted by sums of another axis; or with an output that has no channels.
ir::Definition beside_channels(bool other_axis) {
    LinearAttention a("beside_channels");
    a.input("x", BF16, {T, H, D}).input("y", BF16, {T, H, E}).input("g", F32, {T, H}).state("h", F32, {D});
    a.output("o", BF16, {T, H, D}).output("p", F32, {T, H, 1});
    a.chunk({"x", "y"},
            [=](Tensor x, Tensor y) { return sum(other_axis ? x * unsqueeze(sum(y, 1), 1) : x.to(F32), 0); });
    a.decay({"prev_h", "chunk_state"}, [](Tensor h, Tensor x) { return h + x; });
    a.merge({"x", "g", "chunk_state"}, [](Tensor x, Tensor g, Tensor h) -> Results {
        return {{"o", x + unsqueeze(h, 0)}, {"p", exp(unsqueeze(g, 1))}};
    });
    return a.define();
}

/// So many averages of the same tokens, added up.
ir::Definition averages(int count) {
    LinearAttention a("averages");
    a.input("x", BF16, {T, H, D}).input("g", F32, {T, H});
    std::vector<std::string> arguments = {"x", "g"};
    for (int i = 0; i < count; ++i)
        a.state(fmt::format("h{}", i), F32, {D}), arguments.push_back(fmt::format("prev_h{}", i));
    a.step(arguments, LinearAttention::PhaseFn([count](const std::vector<Tensor>& given) -> Results {
               Results results({});
               Tensor sum = given[0].to(F32);
               for (int i = 0; i < count; ++i) {
                   const auto n = static_cast<std::size_t>(i);
                   Tensor next = given[n + 2] * exp(given[1] * (i + 1.0)) + given[0].to(F32);
                   results.named.emplace_back(fmt::format("h{}", i), next);
                   sum = sum + next;
               }
               results.named.emplace_back("o", sum);
               return results;
           }));
    return graph::with_phases(a.define());
}

/// h = h + x, o = h / |h|: channels meet.
ir::Definition length_of_state() {
    LinearAttention a("length_of_state");
    a.input("x", BF16, {T, H, D}).state("h", F32, {D});
    a.step({"x", "prev_h"}, [](Tensor x, Tensor h) -> Results {
        Tensor next = h + x;
        return {{"h", next}, {"o", l2norm(next)}};
    });
    return graph::with_phases(a.define());
}

/// S = e^g ⊙ S + w xᵀ / (1 + Σ w): every number decays by itself.
ir::Definition weighted_rows() {
    LinearAttention a("weighted_rows");
    a.input("w", BF16, {T, H, K}).input("x", BF16, {T, H, D}).input("g", F32, {T, H, K, D}).state("s", F32, {K, D});
    a.output("o", BF16, {T, H, D});
    a.step({"w", "x", "g", "prev_s"}, [](Tensor w, Tensor x, Tensor g, Tensor s) -> Results {
        Tensor next = exp(g) * s + outer(w / (1.0 + sum(w.to(F32), 0)), x.to(F32));
        return {{"s", next}, {"o", sum(next, 0)}};
    });
    return graph::with_phases(a.define());
}

/// n = n + x + y, numbers of which y has heads of its own.
ir::Definition counts(const Shape& second) {
    LinearAttention a("counts");
    a.input("x", F32, {T, H}).input("y", F32, second).state("n", F32, {});
    a.output("o", F32, {T, H});
    a.step({"x", "y", "prev_n"},
           [](Tensor x, Tensor y, Tensor n) -> Results { return {{"n", n + x + y}, {"o", n + x + y}}; });
    return graph::with_phases(a.define());
}

/// S = S + k vᵀ, o = weights(q kᵀ) v + q S: what has warp groups with roles.
struct Matrices {
    double pad = 0;
    bool transposed = false;  ///< the state is [V, K]
    bool scores = true;       ///< else o = q S
    std::function<Tensor(Tensor k)> key = [](Tensor k) { return k; };
    std::function<Tensor(Tensor scores, Tensor g)> weights = [](Tensor scores, Tensor) { return scores; };

    [[nodiscard]] ir::Definition define() const {
        LinearAttention a("matrices");
        a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}, pad).input("v", BF16, {T, H, V});
        a.input("g", F32, {T, H}).state("s", F32, transposed ? Shape{V, K} : Shape{K, V});
        a.chunk({"k", "v", "token_mask"}, [*this](Tensor k, Tensor v, Tensor mask) {
            Tensor kept = (key(k) * unsqueeze(mask, 1)).to(BF16);
            return transposed ? matmul_out_fp32(v.T(), kept) : matmul_out_fp32(kept.T(), v);
        });
        a.decay({"prev_s", "chunk_state"}, [](Tensor s, Tensor chunk) { return s + chunk; });
        a.merge({"q", "k", "v", "g", "prev_s"}, [*this](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s) {
            Tensor before = matmul_out_fp32(q, (transposed ? s.T() : s).to(BF16));
            if (!scores) return before;
            Tensor within = weights(tril(matmul_out_fp32(q, key(k).T())), g);
            return matmul_out_fp32(within.to(BF16), v) + before;
        });
        return a.define();
    }
};

/// A vector state that counts what a matrix state has, which no scan of its own can carry.
ir::Definition sums_of_state() {
    LinearAttention a("sums_of_state");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {K, V}).state("z", F32, {V});
    a.output("o", BF16, {T, H, V});
    a.chunk({"k", "v"},
            [](Tensor k, Tensor v) -> Results { return {{"s", matmul_out_fp32(k.T(), v)}, {"z", sum(v, 0)}}; });
    a.decay({"prev_s", "chunk_s", "prev_z", "chunk_z"},
            [](Tensor s, Tensor chunk_s, Tensor z, Tensor chunk_z) -> Results {
                return {{"s", s + chunk_s}, {"z", z + sum(s, 0) + chunk_z}};
            });
    a.merge({"q", "prev_s", "prev_z"}, [](Tensor q, Tensor s, Tensor z) -> Results {
        return {{"o", matmul_out_fp32(q, s.to(BF16)) + unsqueeze(z, 0)}};
    });
    return a.define();
}

/// What keys read of the state is written to it, and an output.
ir::Definition residuals() {
    LinearAttention a("residuals");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}).state("s", F32, {K, V});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(k.T(), v); });
    a.decay({"prev_s", "chunk_state", "k"}, [](Tensor s, Tensor chunk, Tensor k) {
        return s - matmul_out_fp32(k.T(), matmul_out_fp32(k, s.to(BF16)).to(BF16)) + chunk;
    });
    a.merge({"q", "k", "prev_s"}, [](Tensor q, Tensor k, Tensor s) {
        return matmul_out_fp32(q, s.to(BF16)) * matmul_out_fp32(k, s.to(BF16));
    });
    return a.define();
}

/// Values of length 1, whose sums of squares only a kernel ahead of tiles can make.
ir::Definition values_of_length_one() {
    LinearAttention a("values_of_length_one");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}).state("s", F32, {K, V});
    a.step({"q", "k", "v", "prev_s"},
           [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& s) -> Results {
               Tensor next = s + outer(k, l2norm(v));
               return {{"s", next}, {"o", matmul(q, next)}};
           });
    return a.define();
}

/// Outputs that decay as often, each time by factors of their own, and are squashed between.
ir::Definition decays_of_outputs(int times) {
    LinearAttention a("decays_of_outputs");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}).input("g", F32, {T, H});
    a.state("s", F32, {K, V});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(k.T(), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor s, Tensor chunk) { return s + chunk; });
    a.merge({"q", "g", "prev_s"}, [times](Tensor q, Tensor g, Tensor s) {
        Tensor o = matmul_out_fp32(q, s.to(BF16));
        for (int i = 0; i < times; ++i) o = tanh(o * unsqueeze(exp(cumsum(g, 0) * (1.0 / (1 + i))), 1));
        return o;
    });
    return a.define();
}

/// Keys are every second column of wider ones: no blocks of 64 if K is 32.
ir::Definition halves_of_keys() {
    LinearAttention a("halves_of_keys");
    a.input("q", BF16, {T, H, 2 * K})
        .input("k", BF16, {T, H, 2 * K})
        .input("v", BF16, {T, H, V})
        .state("s", F32, {K, V});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(part(k, 1, 0, 2).T(), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor s, Tensor chunk) { return s + chunk; });
    a.merge({"q", "chunk_state"}, [](Tensor q, Tensor s) { return matmul_out_fp32(part(q, 1, 1, 2), s.to(BF16)); });
    return a.define();
}

/// Keys are every `count`-th of 64 numbers.
ir::Definition some_of_keys(std::int64_t count) {
    LinearAttention a("some_of_keys");
    a.input("q", BF16, {T, H, 64}).input("k", BF16, {T, H, 64}).input("v", BF16, {T, H, V});
    a.state("s", F32, {64 / count, V});
    const auto some = [=](const Tensor& x) { return slice(x, 1, 0, count); };
    a.chunk({"k", "v"}, [=](Tensor k, Tensor v) { return matmul_out_fp32(some(k).T(), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor s, Tensor chunk) { return s + chunk; });
    a.merge({"q", "chunk_state"}, [=](Tensor q, Tensor s) { return matmul_out_fp32(some(q), s.to(BF16)); });
    return a.define();
}

/// Two rows of keys and values per token, and decays between tokens repeated for all of them.
ir::Definition two_rows() {
    LinearAttention a("two_rows");
    a.input("q", BF16, {T, H, K})
        .input("k", BF16, {2 * T, H, K})
        .input("v", BF16, {2 * T, H, V})
        .input("g", F32, {T, H});
    a.state("s", F32, {K, V});
    const auto twice = [](const Tensor& x, int dim) { return repeat_interleave(x, 2, dim); };
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(k.T(), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor s, Tensor chunk) { return s + chunk; });
    a.merge({"q", "k", "v", "g", "chunk_state"}, [=](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s) {
        Tensor G = cumsum(g, 0), decays = exp(unsqueeze(G, 1) - unsqueeze(G, 0));
        Tensor mask = twice(twice(decays, 1), 0);
        Tensor within = matmul(tril(matmul_out_fp32(k, k.T()) * mask), v.to(F32));
        return slice(within, 0, 1, 2) + matmul_out_fp32(q, s.to(BF16));
    });
    return a.define();
}

/// Two rows of keys, values and gates per token.
ir::Definition rows_with_gates() {
    LinearAttention a("rows_with_gates");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {2 * T, H, K}).input("v", BF16, {2 * T, H, V});
    a.input("g", F32, {2 * T, H}).state("s", F32, {K, V});
    a.chunk({"k", "v", "g"}, [](Tensor k, Tensor v, Tensor g) {
        return matmul_out_fp32((k * unsqueeze(exp(sum(g, 0) - cumsum(g, 0)), 1)).to(BF16).T(), v);
    });
    a.decay({"prev_s", "chunk_state", "g"},
            [](Tensor s, Tensor chunk, Tensor g) { return s * exp(sum(g, 0)) + chunk; });
    a.merge({"q", "k", "v", "g", "chunk_state"}, [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s) {
        Tensor G = cumsum(g, 0), mask = exp(unsqueeze(G, 1) - unsqueeze(G, 0));
        Tensor within = matmul(tril(matmul_out_fp32(k, k.T()) * mask), v.to(F32));
        return slice(within, 0, 1, 2) + matmul_out_fp32(q, s.to(BF16));
    });
    return a.define();
}

/// Two rows of output per token, which are alike: in chunks derived from such a step matrices of two rows per token.
ir::Definition rows_of_output() {
    LinearAttention a("rows_of_output");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {K, V}).output("o", BF16, {2 * T, H, V});
    a.step({"q", "k", "v", "prev_s"},
           [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& s) -> Results {
               const Tensor next = s + outer(k, v);
               return {{"s", next}, {"o", repeat_interleave(unsqueeze(matmul(q, next), 0), 2, 0)}};
           });
    return a.define();
}

Tensor first_column(const Tensor& scores, const Tensor&) {
    return scores + unsqueeze(select(identity(scores, scores.size(0)), 1, 0), 0);
}
Tensor diagonal(const Tensor& scores, const Tensor&) { return scores + identity(scores, scores.size(0)); }

ir::Definition named(const char* name) { return program_named(name).make().define(); }

struct Try {
    ir::Definition definition;
    Asked asked = {};

    [[nodiscard]] Attention plan() const { return compile(definition, asked.options); }
};

struct Case {
    Reason reason;
    Try refused;
    const char* why;                 ///< a part of what is said
    std::optional<Try> mended = {};  ///< by the way out
};

std::vector<Case> cases() {
    const ir::Definition vectors = Vectors{}.define(), matrices = Matrices{}.define();
    return {
        {Reason::NotVectors, {matrices}, "the state 's' is [K, V], no vector of channels"},
        {Reason::NumberedChannels, {two_vectors(1)}, "the axis of the state 'w' is the number 1", Try{two_vectors(D)}},
        {Reason::SeveralChannels, {two_vectors(E)}, "the states have different axes, D and E", Try{two_vectors(D)}},
        {Reason::OtherAxes, {beside_channels(true)}, "the input 'y' is [C, E], with other axes than tokens and D"},
        {Reason::MixedChannels,
         {Vectors{.factor = [](Tensor x) { return cumsum(x, 1); }}.define()},
         "reasons_test.cpp"},
        {Reason::SummedRows, {weighted_rows()}, "needs a sum over K first"},
        {Reason::ManyChannels, {length_of_state(), Asked().size("D", 256)}, "there are 256, of which a task has 128"},
        {Reason::SeveralHeads, {counts({T, E})}, "there are H and E", Try{counts({T, H})}},
        {Reason::NumberedHeads, {counts({T, 1})}, "the channels are heads, of which there are 1", Try{counts({T, H})}},
        {Reason::OtherOutput,
         {beside_channels(false)},
         "the output 'p' is [C, 1], not one number per token and channel, nor per token"},
        {Reason::NotAffine,
         {Vectors{.after = [](Tensor h) { return tanh(h); }}.define()},
         "the state 'h' after a token"},
        {Reason::NoStep,
         {Vectors{.after = [](Tensor h) { return h * 0.5; }, .step = false}.define()},
         "chunks of one token give other results",
         Try{Vectors{.after = [](Tensor h) { return h * 0.5; }}.define()}},
        {Reason::FixedChunk, {Vectors{.chunk = 32}.define()}, "the definition fixes chunks of 32 tokens", Try{vectors}},
        {Reason::OtherStrategy, {vectors, Asked().strategy("fused")}, "the strategy fused was asked for", Try{vectors}},
        {Reason::OtherTiles, {vectors, Asked().tiles(2)}, "2 tiles were asked for", Try{vectors}},
        {Reason::SharedMemoryOfChannels,
         {averages(12), Asked().on("rtx4090")},
         "bytes of shared memory, a block has 101376",
         Try{averages(6), Asked().on("rtx4090")}},
        {Reason::GivenVectors,
         {vectors, Asked().entry("backward from states")},
         "come with the call",
         Try{vectors, Asked().entry("backward")}},
        {Reason::Capability, {matrices, Asked().on("a100")}, "the GPU has compute capability 8.0, they need 9.0"},
        {Reason::OtherThreads, {matrices, Asked().threads(256)}, "256 threads per task were asked for", Try{matrices}},
        {Reason::NoProducts, {Vectors{.step = false}.define()}, "there are no products"},
        {Reason::NoHalves,
         {named("gla"), Asked().dtype(F32)},
         "all inputs are of 32 bits, and channels decay by themselves",
         Try{named("gla")}},
        {Reason::NoHalves,
         {floats_to_halves(), Asked().dtype(F16)},
         "all inputs are of 32 bits, and an output is float16",
         Try{floats_to_halves(), Asked().dtype(BF16)}},
        {Reason::OtherChunk, {matrices, Asked().chunk(32)}, "chunks of 32 tokens", Try{matrices, Asked().chunk(64)}},
        {Reason::NoValueAxis,
         {named("two_readings"), Asked().strategy("one-pass")},
         "no axis of the states",
         Try{named("two_readings")}},
        {Reason::SizeOfValueAxis,
         {matrices, Asked().size("V", 12)},
         "the size 12 of axis V is no multiple of 64; way out: pad it to 64",
         Try{matrices, Asked().size("V", 64)}},
        {Reason::SpoiltPadding,
         {halves_of_keys(), Asked().size("K", 32)},
         "behind the end of axis K, whose 32 numbers are held as 64",
         Try{halves_of_keys(), Asked().size("K", 64)}},
        {Reason::SharedMemory,
         {matrices, Asked().strategy("fused").size("K", 4096)},
         "bytes of shared memory, a block has 226304",
         Try{matrices, Asked().strategy("fused").size("K", 128)}},
        {Reason::SumsOfParts,
         {values_of_length_one(), Asked().heads(512)},
         "needs all of axis V, of which each task would have a part"},
        {Reason::ManySpills,
         {decays_of_outputs(100), Asked().strategy("decoupled")},
         "would leave each other 101 values, a call has room for 96"},
        {Reason::CutSpill,
         {Matrices{.transposed = true}.define(), Asked().strategy("fused")},
         "the state 's' is stored by one kernel for the next",
         Try{Matrices{.transposed = true}.define(), Asked().strategy("one-pass")}},
        {Reason::SizeOfInput,
         {matrices, Asked().size("K", 12)},
         "is [64, 12], no matrix of 64 x 64 blocks",
         Try{matrices, Asked().size("K", 64)}},
        {Reason::PaddedInput,
         {Matrices{.pad = 1, .key = [](Tensor k) { return k + prev_token(k); }}.define()},
         "the input 'k' is padded by 1",
         Try{Matrices{.pad = 1}.define()}},
        {Reason::ManyAxes, {rows_of_output(), Asked().entry("backward")}, "has 3 axes"},
        {Reason::SizeOfOperand,
         {some_of_keys(8)},
         "multiplies [64, 8], no matrix of 64 x 64 blocks",
         Try{some_of_keys(1)}},
        {Reason::SeveralRows,
         {rows_with_gates(), Asked().size("K", 64).size("V", 64)},
         "decays between several rows per token",
         Try{two_rows(), Asked().size("K", 64).size("V", 64)}},
        {Reason::GivenStates,
         {matrices, Asked().entry("backward from states")},
         "come with the call",
         Try{matrices, Asked().entry("backward")}},
        {Reason::PartOfIdentity,
         {Matrices{.weights = first_column}.define()},
         "is a part of the identity matrix",
         Try{Matrices{.weights = diagonal}.define()}},
        {Reason::SharedMemoryOfRoles,
         {named("delta_net"), Asked().size("K", 256).size("V", 256)},
         "bytes of shared memory, a block has 232448"},
        {Reason::StoredForLater, {matrices, Asked().strategy("fused")}, "later kernels read "},
        {Reason::OneGroupAtATime, {named("gated_slots"), Asked().size("M", 64)}, "the decay_matmul"},
        {Reason::SharedParameter, {sums_of_state()}, "the state 'z' lies in memory"},
        {Reason::SharedValue, {residuals()}, "would pass between warp groups"},
        {Reason::RegistersOfStates, {named("heavy_ball")}, "would hold matrices in 384 registers of a thread, of 352"},
        {Reason::OddTiles, {matrices, Asked().heads(512).size("V", 64)}, "there are 1 tiles"},
        {Reason::RegistersOfTiles,
         {matrices, Asked().heads(512).size("K", 256)},
         "would hold matrices in 272 registers of a thread, of 160"},
        {Reason::NothingInCommon,
         {Matrices{.scores = false}.define(), Asked().heads(512)},
         "tiles have nothing in common"},
        {Reason::NotHeld,
         {named("gated_delta_net"), Asked().size("V", 30).entry("decode")},
         "the state 's' is f32[128, 30]"},
    };
}

std::string row_of(Reason reason) { return reasons()[static_cast<std::size_t>(reason)].name; }

/// The refusal for a reason in a plan, which shows it in words.
std::optional<Refusal> found(const Attention& attention, Reason reason) {
    const std::vector<Refusal>& all = attention.refused();
    const auto it = std::find_if(all.begin(), all.end(), [&](const Refusal& r) { return r.reason == row_of(reason); });
    if (it == all.end()) return std::nullopt;
    EXPECT_NE(attention.explain().find("not " + to_string(*it)), std::string::npos) << to_string(*it);
    return *it;
}

TEST(Reasons, EachHasAProgramAndItsWayOut) {
    std::set<std::string> seen;
    for (const Case& c : cases()) {
        seen.insert(row_of(c.reason));
        const Attention attention = c.refused.plan();
        const auto refusal = found(attention, c.reason);
        ASSERT_TRUE(refusal) << row_of(c.reason) << " is not why " << attention.schedule();
        EXPECT_NE(to_string(*refusal).find(c.why), std::string::npos) << to_string(*refusal);
        EXPECT_NE(attention.engine(), refusal->engine);
        EXPECT_EQ(c.mended.has_value(), !refusal->way_out.empty()) << to_string(*refusal);
        if (c.mended) {
            EXPECT_EQ(c.mended->plan().engine(), refusal->engine) << to_string(*refusal);
        }
    }
    for (const ReasonRow& row : reasons()) EXPECT_TRUE(seen.contains(row.name)) << "no program for " << row.name;
}

// What was asked for is not refused; and whoever asks for what cannot be had reads why.
TEST(Reasons, StandInTheErrorWhereAnEngineWasAskedFor) {
    Asked asked;
    asked.options.engine = "portable";
    EXPECT_TRUE((Try{Matrices{}.define(), asked}.plan().refused().empty()));
    asked.options.engine = "warp-groups";
    EXPECT_TRUE((Try{Matrices{}.define(), asked}.plan().refused().empty()));
    try {
        static_cast<void>(Try{Matrices{}.define(), asked.size("V", 12)}.plan());
        FAIL() << "no error";
    } catch (const RuntimeError& error) {
        EXPECT_STREQ(error.what(),
                     "matrices: engine: expected a program for warp groups; warp-groups: the size 12 of axis V is no "
                     "multiple of 64; way out: pad it to 64");
    }
}

// As on the CPU, and by no engine ignored.
TEST(Tiles, ThatCannotBeHadAreRefused) {
    const auto refusal = [](const Try& tried) -> std::string {
        try {
            static_cast<void>(tried.plan());
            return "";
        } catch (const RuntimeError& error) {
            return error.what();
        }
    };
    EXPECT_EQ(refusal({two_vectors(E), Asked().tiles(2)}),
              "two_vectors: tiles: expected 1, as the states and outputs have no axis that could be cut, got 2; leave "
              "the option out");
    EXPECT_EQ(refusal({two_vectors(E), Asked().tiles(1)}), "");
    EXPECT_EQ(refusal({Vectors{}.define(), Asked().tiles(3).size("D", 16)}),
              "vectors: tiles: expected one of 1, 2, 4, which cut the 16 of D into parts of whole vectors of 4, got 3; "
              "leave the option out");
    EXPECT_EQ(refusal({Vectors{}.define(), Asked().tiles(4).size("D", 16)}), "");
}

}  // namespace
}  // namespace forge::tests
