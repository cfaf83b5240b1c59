#include "tests/cuda/channel_forms.h"

#include "forge/forge.h"
#include "frontend/trace.h"
#include "graph/derive.h"

namespace forge::tests {
namespace {

const Dim T("T"), H("H"), D("D");

}  // namespace

ir::Definition numbers() {
    LinearAttention a("numbers");
    a.input("x", BF16, {T, H}).input("g", F32, {T, H}, kLogDecays).head_input("lambda", F32, {H});
    a.state("m", F32, {}).state("n", F32, {});
    a.output("o", BF16, {T, H});
    a.step({"x", "g", "lambda", "prev_m", "prev_n"},
           [](Tensor x, Tensor g, Tensor lambda, Tensor m, Tensor n) -> Results {
               Tensor next_m = maximum(m + g, x.to(F32)), next_n = n * exp(g * sigmoid(lambda)) + prev_token(x).to(F32);
               return {{"m", next_m}, {"n", next_n}, {"o", next_n + exp(x.to(F32) - next_m)}};
           });
    return graph::with_phases(a.define());
}

ir::Definition selective() {
    const Dim K("K");
    LinearAttention a("selective");
    a.input("b", BF16, {T, H, K}).input("c", BF16, {T, H, K}).input("x", BF16, {T, H, D}).input("z", BF16, {T, H, D});
    a.input("delta", F32, {T, H, D}).head_input("log_a", F32, {H, K, D}).head_input("d", F32, {H, D});
    a.state("s", F32, {K, D}).output("o", BF16, {T, H, D});
    a.step({"b", "c", "x", "z", "delta", "log_a", "d", "prev_s"},
           [](Tensor b, Tensor c, Tensor x, Tensor z, Tensor delta, Tensor log_a, Tensor d, Tensor s) -> Results {
               Tensor pace = softplus(delta);
               Tensor next = exp(-exp(log_a) * unsqueeze(pace, 0)) * s + outer(b, pace * x);
               return {{"s", next}, {"o", (matmul(c, next) + d * x) * silu(z)}};
           });
    return graph::with_phases(a.define());
}

ir::Definition three_rows() {
    LinearAttention a("three_rows");
    a.input("q", BF16, {T, H, 3}).input("x", BF16, {T, H, D}).input("g", F32, {T, H, 3, D}, kLogDecays);
    a.state("s", F32, {3, D}).state("w", F32, {3, D});
    a.output("o", BF16, {T, H, D}).output("r", F32, {T, H, 3});
    a.step({"q", "x", "g", "prev_s", "prev_w"}, [](Tensor q, Tensor x, Tensor g, Tensor s, Tensor w) -> Results {
        Tensor next = exp(g) * s + unsqueeze(x, 0), slower = exp(g * 0.5) * w + unsqueeze(q.to(F32), 1);
        return {{"s", next}, {"w", slower}, {"o", sum(unsqueeze(q, 1) * next + slower, 0)}, {"r", sigmoid(q.to(F32))}};
    });
    return graph::with_phases(a.define());
}

ir::Definition counts() {
    LinearAttention a("counts");
    a.input("x", F32, {T, H}).input("g", F32, {T, H}, kLogDecays).state("n", F32, {});
    a.output("o", F32, {T, H});
    a.step({"x", "g", "prev_n"}, [](Tensor x, Tensor g, Tensor n) -> Results {
        Tensor next = n * exp(g) + x;
        return {{"n", next}, {"o", next}};
    });
    return graph::with_phases(a.define());
}

ir::Definition norms() {
    LinearAttention a("norms");
    a.input("x", BF16, {T, H, D}).input("g", F32, {T, H}, kLogDecays).state("h", F32, {D});
    a.output("o", F32, {2 * T, H, D});
    a.chunk({"x", "g", "token_mask"}, [](Tensor x, Tensor g, Tensor token_mask) -> Results {
        Tensor wide = x.to(F32);
        Tensor weights = exp(wide - unsqueeze(amax(wide, 1), 1)) * unsqueeze(token_mask, 1);
        Tensor within = linear_scan(exp(unsqueeze(g, 1) + 0.0 * wide), weights);
        return {{"h", select(cache_result(within, "within"), 0, -1)}};
    });
    a.decay({"prev_h", "chunk_state", "g"},
            [](Tensor h, Tensor chunk, Tensor g) { return h * exp(sum(g, 0)) + chunk; });
    a.merge({"within", "g", "prev_h"}, [](Tensor within, Tensor g, Tensor h) {
        return repeat_interleave(l2norm(within + unsqueeze(exp(cumsum(g, 0)), 1) * h, 1e-3), 2, 0);
    });
    return a.define();
}

ir::Definition lengths() {
    LinearAttention a("lengths");
    a.input("x", BF16, {T, H, D}).input("g", F32, {T, H}, kLogDecays).head_input("lambda", F32, {H}).scalar("b");
    a.state("h", F32, {D}).output("o", BF16, {T, H, D}).output("p", F32, {T, H});
    a.step({"x", "g", "lambda", "b", "prev_h"}, [](Tensor x, Tensor g, Tensor lambda, Tensor b, Tensor h) -> Results {
        Tensor next = h * exp(g) + sigmoid(lambda) * x.to(F32) + b;
        return {{"h", next}, {"o", next}, {"p", sum(next * next, 0)}};
    });
    return graph::with_phases(a.define());
}

ir::Definition gains() {
    LinearAttention a("gains");
    a.input("x", BF16, {T, H, D}).input("g", F32, {T, H}, kLogDecays);
    a.head_input("w", F32, {H, D}).head_input("u", F32, {H, D}).state("h", F32, {D}).output("o", BF16, {T, H, D});
    a.step({"x", "g", "w", "u", "prev_h"}, [](Tensor x, Tensor g, Tensor w, Tensor u, Tensor h) -> Results {
        Tensor next = h * exp(g) + x.to(F32);
        return {{"h", next}, {"o", next * sum(w, 0) + u}};
    });
    return graph::with_phases(a.define());
}

ir::Definition beside() {
    LinearAttention a("beside");
    a.input("x", BF16, {T, H, D}).input("g", F32, {T, H}, kLogDecays).state("h", F32, {D});
    a.output("o", BF16, {T, H, D}).output("p", F32, {T, H});
    a.step({"x", "g", "prev_h"}, [](Tensor x, Tensor g, Tensor h) -> Results {
        Tensor next = h * exp(g) + x.to(F32);
        return {{"h", next}, {"o", next}, {"p", exp(g)}};
    });
    return graph::with_phases(a.define());
}

ir::Definition clamped() {
    LinearAttention a("clamped");
    a.input("x", BF16, {T, H, D}).input("g", F32, {T, H}, kLogDecays).state("h", F32, {D}).output("o", BF16, {T, H, D});
    a.step({"x", "g", "prev_h"}, [](Tensor x, Tensor g, Tensor h) -> Results {
        Tensor next = h + maximum(x.to(F32), g);
        return {{"h", next}, {"o", next}};
    });
    return graph::with_phases(a.define());
}

ir::Definition sequential() {
    LinearAttention a("sequential");
    a.fixed_chunk(1);
    a.input("x", BF16, {T, H, D}).input("g", F32, {T, H}, kLogDecays).state("h", F32, {D});
    a.output("o", BF16, {T, H, D});
    a.step({"x", "g", "prev_h"}, [](Tensor x, Tensor g, Tensor h) -> Results {
        Tensor next = maximum(h + g, x.to(F32));
        return {{"h", next}, {"o", next - x.to(F32)}};
    });
    return a.define();
}

ir::Definition maxima() {
    constexpr double kLowest = -1e30;
    LinearAttention a("maxima");
    a.input("x", F32, {T, H, D}, kLowest, kAnyNumber).input("y", BF16, {T, H, D}).input("g", F32, {T, H}, kLogDecays);
    a.state("h", F32, {D}).state("w", F32, {D});
    a.chunk({"x", "y", "g"}, [](Tensor x, Tensor y, Tensor g) -> Results {
        return {{"h", amax(x + unsqueeze(sum(g, 0) - cumsum(g, 0), 1), 0)}, {"w", sum(y.to(F32), 0)}};
    });
    a.decay({"prev_h", "chunk_h", "prev_w", "chunk_w", "g"},
            [](Tensor h, Tensor chunk_h, Tensor w, Tensor chunk_w, Tensor g) -> Results {
                return {{"h", maximum(h + sum(g, 0), chunk_h)}, {"w", w + chunk_w}};
            });
    a.merge({"x", "y", "prev_w"}, [](Tensor x, Tensor y, Tensor w) {
        return (cumsum(y.to(F32), 0) + w) * unsqueeze(sum(y.to(F32) * x, 1), 1);
    });
    a.step({"x", "y", "g", "prev_h", "prev_w"}, [](Tensor x, Tensor y, Tensor g, Tensor h, Tensor w) -> Results {
        Tensor next_w = w + y;
        return {{"h", maximum(h + g, x)}, {"w", next_w}, {"o", next_w * sum(y * x, 0)}};
    });
    return a.define();
}

}  // namespace forge::tests
