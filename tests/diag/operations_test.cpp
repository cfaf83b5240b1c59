// Mistakes in the use of one operation: the message, and the place of the user's own expression.
#include "ir/definition.h"
#include "tests/diag/expect_errors.h"

namespace forge::tests {
namespace {

TEST(Matmul, InnerSizesDiffer) {
    expect_chunk_errors(
        [](Tensor, Tensor k, Tensor v, Tensor) { return matmul(k, v); },
        {{"matmul: inner sizes differ: K and C", "[M, N] @ [N, P]", "[C, K] @ [C, V]", "matmul(k, v)", "transpose"}});
}

TEST(Matmul, ElementTypesDiffer) {
    expect_chunk_errors([](Tensor, Tensor k, Tensor v, Tensor) { return matmul(transpose(k), v.to(F32)); },
                        {{"matmul: operands have different types", "one element type, as in PyTorch",
                          "bf16[K, C] @ f32[C, V]", "matmul(transpose(k), v.to(F32))", "to(x, "}});
}

TEST(Matmul, TakesNoTensorOfRankThree) {
    expect_chunk_errors([](Tensor, Tensor k, Tensor v, Tensor) { return matmul_out_fp32(unsqueeze(k, 0), v); },
                        {{"matmul_out_fp32: needs two matrices", "operands of rank 2", "bf16[1, C, K] and bf16[C, V]",
                          "matmul_out_fp32(unsqueeze(k, 0), v)", "unsqueeze"}});
}

TEST(Matmul, TakesNoBooleans) {
    expect_chunk_errors(
        [](Tensor, Tensor k, Tensor v, Tensor) { return matmul(transpose(gt(k, 0.0)), v); },
        {{"matmul: needs a floating-point operand", "a float type", "bool[K, C]", "matmul(transpose(gt(k, 0.0)), v)"}});
}

TEST(Elementwise, ShapesDoNotBroadcast) {
    expect_chunk_errors([](Tensor, Tensor k, Tensor v, Tensor) { return transpose(k * v); },
                        {{"mul: shapes do not broadcast", "equal sizes, or 1, from the right", "[C, K] and [C, V]",
                          "k * v", "unsqueeze"}});
}

TEST(Elementwise, AVectorOfTokensDoesNotBroadcastOverRows) {
    expect_chunk_errors(
        [](Tensor, Tensor k, Tensor v, Tensor g) { return matmul(transpose(k + g), v); },
        {{"add: shapes do not broadcast", "", "[C, K] and [C]", "k + g", "add an axis with unsqueeze(x, dim)"}});
}

TEST(Elementwise, NeedsFloats) {
    expect_chunk_errors([](Tensor, Tensor k, Tensor, Tensor) { return exp(lt(k, 1.0)); },
                        {{"exp: needs a floating-point operand", "a float type", "bool[C, K]", "exp(lt(k, 1.0))"}});
}

TEST(Where, NeedsABooleanCondition) {
    expect_chunk_errors([](Tensor, Tensor k, Tensor, Tensor) { return where(k, k, 0.0); },
                        {{"where: the condition must be bool", "bool", "bf16[C, K]", "where(k, k, 0.0)", "gt(x, 0)"}});
}

TEST(Axes, AreInRange) {
    expect_chunk_errors(
        [](Tensor, Tensor k, Tensor v, Tensor g) {
            sum(k, 2);
            cumsum(g, -2);
            unsqueeze(k, 4);
            select(v, 3, 0);
            return k;
        },
        {{"sum: dim 2 is out of range", "a dim in [-2, 2)", "bf16[C, K]", "sum(k, 2)"},
         {"cumsum: dim -2 is out of range", "a dim in [-1, 1)", "f32[C]", "cumsum(g, -2)"},
         {"unsqueeze: dim 4 is out of range", "", "bf16[C, K]", "unsqueeze(k, 4)"},
         {"select: dim 3 is out of range", "", "bf16[C, V]", "select(v, 3, 0)"},
         {"chunk: state 's' has another shape than declared", "[K, V]", "[C, K]"}});
}

TEST(Views, AreOfWhatIsThere) {
    expect_chunk_errors(
        [](Tensor, Tensor k, Tensor v, Tensor g) {
            permute(k, {0, 0});
            squeeze(v, 0);
            slice(k, 0, 0, 2);
            repeat_interleave(g, 0, 0);
            expand(k, {Dim("V")});
            return matmul_out_fp32(transpose(k), v);
        },
        {{"permute: not a permutation of the axes", "the axes 0..1 in some order", "[0, 0] for bf16[C, K]",
          "permute(k, {0, 0})"},
         {"squeeze: the axis is not of size 1", "1", "C", "squeeze(v, 0)"},
         {"slice: the step must divide the axis, and start lie in [0, step)", "x[start::step]",
          "start=0 step=2 of bf16[C, K]", "slice(k, 0, 0, 2)"},
         {"repeat_interleave: needs a positive count", "", "0", "repeat_interleave(g, 0, 0)"},
         {"expand: cannot broadcast to the wanted shape", "[V]", "bf16[C, K]", "expand(k, {Dim(\"V\")})"}});
}

TEST(LinearScan, WantsTheDecayInFullShape) {
    expect_chunk_errors([](Tensor, Tensor k, Tensor, Tensor g) { return linear_scan(exp(g), k); },
                        {{"linear_scan: decay and x differ in shape", "equal shapes [C, …]", "f32[C] and bf16[C, K]",
                          "linear_scan(exp(g), k)", "expand"}});
}

TEST(Inverse, MustBeProvablyUnitLowerTriangular) {
    expect_chunk_errors(
        [](Tensor, Tensor k, Tensor v, Tensor) {
            return matmul(transpose(k.to(F32)), matmul(inverse(matmul_out_fp32(k, transpose(k))), v.to(F32)));
        },
        {{"inverse: the matrix is not provably unit lower-triangular",
          "identity(x, n) + tril(a, -1), or - instead of +", "f32[C, C]", "inverse(matmul_out_fp32(k, transpose(k)))",
          "tril(…, -1)"}});
    // tril with the diagonal is triangular, but its diagonal is not known to be one.
    expect_chunk_errors(
        [](Tensor, Tensor k, Tensor, Tensor) {
            Tensor a = tril(matmul_out_fp32(k, transpose(k)));
            return inverse(identity(a, a.size(0)) + a);
        },
        {{"inverse: the matrix is not provably unit lower-triangular", "", "", "inverse(identity(a, a.size(0)) + a)"}});
}

TEST(Inverse, NeedsASquareMatrixInFloat32) {
    expect_chunk_errors([](Tensor, Tensor k, Tensor, Tensor) { return inverse(k); },
                        {{"inverse: needs a square matrix", "[N, N]", "bf16[C, K]", "inverse(k)"}});
    expect_chunk_errors([](Tensor, Tensor k, Tensor, Tensor) { return inverse(tril(matmul(k, transpose(k)), -1)); },
                        {{"inverse: needs float32", "f32[N, N]", "bf16[C, C]",
                          "inverse(tril(matmul(k, transpose(k)), -1))", "matmul_out_fp32"}});
}

TEST(Parts, AreOfWhatHasThem) {
    expect_chunk_errors(
        [](Tensor, Tensor k, Tensor v, Tensor g) {
            part(k, 1, 0, 2);
            narrow(k, 0, 0, 16);
            concat({k, v}, 1);
            concat({g, g}, 0);
            mean(v, 0);
            arange(g, g.size(0));
            return matmul_out_fp32(transpose(k), v);
        },
        {{"part: the axis has no such part", "start in [0, count), and a count that divides the axis",
          "start=0 count=2 of dim 1 of bf16[C, K]", "part(k, 1, 0, 2)", "2*D"},
         {"slice: so many tokens of a chunk", "an axis that is not the tokens'", "dim 0 of bf16[C, K]",
          "narrow(k, 0, 0, 16)", "token_mask"},
         {"concat: the sizes K and V have no sum", "numbers, or multiples of one symbol", "bf16[C, K], bf16[C, V]",
          "concat({k, v}, 1)", "2*D"},
         {"concat: along the tokens", "an axis that is not the tokens'", "f32[C], f32[C]", "concat({g, g}, 0)",
          "interleave"},
         {"size: the number of tokens in a chunk is the compiler's choice, and the last chunk is padded",
          "an axis that is not the tokens'", "C", "mean(v, 0)", "sum(token_mask, 0)"},
         {"arange: a token's place in its chunk is the compiler's choice", "an axis that is not the tokens'", "f32[C]",
          "arange(g, g.size(0))", "prev_n + cumsum(token_mask, 0)"}});
}

TEST(PrevToken, ShiftsInputsOnly) {
    expect_chunk_errors(
        [](Tensor, Tensor k, Tensor v, Tensor) { return matmul_out_fp32(transpose(prev_token(exp(k))), v); },
        {{"prev_token: only of an input", "an input of the phase", "exp", "prev_token(exp(k))",
          "shift the inputs first"}});
}

TEST(CacheResult, TakesEachNameOnce) {
    expect_chunk_errors(
        [](Tensor, Tensor k, Tensor v, Tensor) {
            cache_result(k, "x");
            cache_result(v, "x");
            return matmul_out_fp32(transpose(k), v);
        },
        {{"cache_result: 'x' is cached twice", "a name of its own for each value", "", "cache_result(v, \"x\")"}});
}

TEST(Tensor, OfAnotherPhaseIsRefused) {
    LinearAttention a = declared();
    Tensor kept;
    a.chunk({"k", "v"}, [&kept](Tensor k, Tensor v) {
        kept = k;
        return matmul_out_fp32(transpose(k), v);
    });
    a.decay({"prev_s", "chunk_state"}, [&kept](Tensor prev, Tensor chunk) { return prev + chunk * kept; });
    add_merge(a);
    expect_errors(a, {{"mul: a tensor of another phase", "tensors that this phase was given", "", "chunk * kept",
                       "cache_result"}});
}

TEST(Tensor, EmptyOnesAreRefused) {
    expect_chunk_errors([](Tensor, Tensor, Tensor, Tensor) { return exp(Tensor()); },
                        {{"exp: an empty Tensor", "a tensor given to the phase", "", "exp(Tensor())"}});
}

// A mistake is reported once: what follows from it stays silent, and what does not is reported too.
TEST(Mistakes, OfAPhaseAreReportedTogether) {
    expect_chunk_errors(
        [](Tensor q, Tensor k, Tensor v, Tensor g) {
            Tensor wrong = matmul(k, v);
            Tensor follows = exp(wrong) + wrong * 2.0;
            Tensor second = q + v;
            return follows * second + sum(g, 1);
        },
        {{"matmul: inner sizes differ: K and C", "", "", "matmul(k, v)"},
         {"add: shapes do not broadcast", "", "", "q + v"},
         {"sum: dim 1 is out of range", "", "", "sum(g, 1)"}});
}

TEST(Mistakes, AreWrittenWithPlaceExpectationAndHint) {
    const unsigned line = __LINE__ + 2;
    LinearAttention a = declared();
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul(k, v); });
    add_decay(a);
    add_merge(a);
    try {
        static_cast<void>(a.define());
        FAIL();
    } catch (const CompileError& error) {
        EXPECT_EQ(error.what(), std::string(__FILE__) + ":" + std::to_string(line) +
                                    ":63: error: matmul: inner sizes differ: K and C\n"
                                    "    expected: [M, N] @ [N, P]\n"
                                    "    got:      [C, K] @ [C, V]\n"
                                    "    hint:     transpose one operand");
    }
}

}  // namespace
}  // namespace forge::tests
