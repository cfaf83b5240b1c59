// Mistakes in how a definition is put together: declarations, arguments and results of phases, and what only running
// the definition shows.
#include "ir/definition.h"

#include "forge/runtime.h"
#include "tests/diag/expect_errors.h"

namespace forge::tests {
namespace {

TEST(Declarations, AreNeeded) {
    LinearAttention a("empty");
    expect_errors(a, {{"'empty' has no state", "at least one state(name, dtype, shape)"},
                      {"'empty' has no token input", "at least one input(name, dtype, {T, heads, …})"}});
}

TEST(Declarations, HaveNamesOfTheirOwn) {
    auto [T, H, K] = dims("T", "H", "K");
    LinearAttention a = declared();
    a.input("k", BF16, {T, H, K});
    a.state("v", F32, {K});
    a.input("token_mask", F32, {T, H});
    expect_errors(a,
                  {{"'k' is declared twice", "a name of its own", "", "a.input(\"k\", BF16, {T, H, K})"},
                   {"'token_mask' is declared twice", "a name of its own", "", "a.input(\"token_mask\", F32, {T, H})"},
                   {"'v' is declared twice", "a name of its own", "", "a.state(\"v\", F32, {K})"}});
}

TEST(Declarations, HaveTokensAndHeadsFirst) {
    auto [T, H, K] = dims("T", "H", "K");
    LinearAttention a = declared();
    a.input("x", BF16, {H, K});
    a.head_input("y", F32, {4});
    expect_errors(
        a, {{"input 'x': not a token input", "{T, heads, …}", "[H, K]", "a.input(\"x\", BF16, {H, K})", "head_input"},
            {"head input 'y': not per head", "{heads, …}", "[4]", "a.head_input(\"y\", F32, {4})"}});
}

TEST(Declarations, HaveTypesOfTensors) {
    auto [T, H, K] = dims("T", "H", "K");
    LinearAttention a = declared();
    a.input("x", DType::F64, {T, H, K});
    expect_errors(a, {{"input 'x': not of a type that tensors of a call have", "BF16, F16 or F32", "f64",
                       "a.input(\"x\", DType::F64, {T, H, K})"}});
}

TEST(Phases, AreNeeded) {
    LinearAttention a = declared("partial");
    add_decay(a);
    expect_errors(a, {{"'partial' has no chunk phase", "chunk(names, function)"},
                      {"'partial' has no merge phase", "merge(names, function)"}});
}

TEST(Phases, TakeOneParameterPerName) {
    LinearAttention a = declared();
    a.chunk({"k", "v", "g"}, [](Tensor k, Tensor v) { return matmul_out_fp32(transpose(k), v); });
    add_decay(a);
    add_merge(a);
    expect_errors(a, {{"chunk: the function's parameters do not match the names", "3 parameters, one per name", "2",
                       "a.chunk({\"k\", \"v\", \"g\"}"}});
}

TEST(Phases, KnowTheirInputs) {
    LinearAttention a = declared();
    a.chunk({"key", "v", "prev_s"}, [](Tensor k, Tensor v, Tensor) { return matmul_out_fp32(transpose(k), v); });
    add_decay(a);
    add_merge(a);
    expect_errors(a,
                  {{"chunk: unknown input 'key'", "one of: q, k, v, beta, g, token_mask", "'key'", "a.chunk({\"key\"",
                    "declare it with input"},
                   {"chunk: 'prev_s' is a state, which this phase does not see", "one of: q, k, v, beta, g, token_mask",
                    "'prev_s'", "a.chunk({\"key\"", "take it in decay or merge"}});
}

TEST(Phases, KnowWhatWasCached) {
    LinearAttention a = declared();
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(transpose(cache_result(k, "kept")), v); });
    add_decay(a);
    a.merge({"q", "v", "chunk_state", "kepd"},
            [](Tensor q, Tensor, Tensor before, Tensor) { return matmul(q.to(F32), before); });
    expect_errors(a, {{"merge: unknown input 'kepd'", "one of: q, k, v, beta, g, token_mask, prev_s, chunk_state, kept",
                       "'kepd'", "a.merge({\"q\", \"v\", \"chunk_state\", \"kepd\"}", "cache_result"}});
}

TEST(Phases, OfAStepSeeNothingCached) {
    LinearAttention a = declared();
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(transpose(cache_result(k, "kept")), v); });
    add_decay(a);
    add_merge(a);
    a.step({"q", "kept", "v", "prev_s", "chunk_state"}, [](Tensor q, Tensor k, Tensor v, Tensor s, Tensor) -> Results {
        Tensor next = s + outer(k, v);
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    expect_errors(a, {{"step: 'kept' was cached in a phase of chunks, which a token does not see",
                       "one of: q, k, v, beta, g, token_mask, prev_s", "'kept'"},
                      {"step: 'chunk_state' is a state, which this phase does not see",
                       "one of: q, k, v, beta, g, token_mask, prev_s", "'chunk_state'"}});
}

TEST(States, HaveOneShapeInChunkAndDecay) {
    LinearAttention first = declared();
    first.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(transpose(v), k); });
    add_decay(first);
    add_merge(first);
    expect_errors(first, {{"chunk: state 's' has another shape than declared", "[K, V]", "[V, K]",
                           "matmul_out_fp32(transpose(v), k)", "declared at "}});

    LinearAttention second = declared();
    add_chunk(second);
    second.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return sum(prev + chunk, 0); });
    add_merge(second);
    expect_errors(second, {{"decay: state 's' has another shape than declared", "[K, V]", "[V]", "sum(prev + chunk, 0)",
                            "declared at "}});
}

TEST(States, AreAllReturned) {
    auto [V] = dims("V");
    LinearAttention a = declared();
    a.state("m", F32, {V});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) -> Results { return {{"s", matmul_out_fp32(transpose(k), v)}}; });
    add_decay(a);
    add_merge(a);
    expect_errors(a, {{"chunk: 'm' is not returned", "a value for state 'm'", "nothing", "a.chunk({\"k\", \"v\"}"}});
}

TEST(States, NeedNamesIfThereAreSeveral) {
    auto [V] = dims("V");
    LinearAttention a = declared();
    a.state("m", F32, {V});
    add_chunk(a);
    add_decay(a);
    add_merge(a);
    expect_errors(a,
                  {{"chunk: returns several values, so they need names", "Results{{\"name\", value}, …}", "one tensor"},
                   {"chunk: 'm' is not returned", "a value for state 'm'", "nothing"}});
}

TEST(Results, AreDeclared) {
    LinearAttention a = declared();
    a.chunk({"k", "v"},
            [](Tensor k, Tensor v) -> Results { return {{"s", matmul_out_fp32(transpose(k), v)}, {"extra", k}}; });
    add_decay(a);
    add_merge(a);
    expect_errors(a, {{"chunk: returns 'extra', which is not declared", "the name of a state", "'extra'",
                       "a.chunk({\"k\", \"v\"}"}});
}

TEST(Results, AreNotEmptyTensors) {
    LinearAttention a = declared();
    a.chunk({"k", "v"}, [](Tensor, Tensor) { return Tensor(); });
    add_decay(a);
    add_merge(a);
    expect_errors(a, {{"chunk: returns an empty Tensor as 's'", "", "", "a.chunk({\"k\", \"v\"}"}});
}

TEST(Outputs, HaveTheirDeclaredShape) {
    auto [T, H, V] = dims("T", "H", "V");
    LinearAttention a = declared();
    a.output("o", BF16, {T, H, V});
    add_chunk(a);
    add_decay(a);
    a.merge({"q", "k"}, [](Tensor q, Tensor k) { return tril(matmul(q, transpose(k))); });
    expect_errors(a, {{"merge: output 'o' has another shape than declared", "[C, V]", "[C, C]",
                       "tril(matmul(q, transpose(k)))", "declared at "}});
}

TEST(Outputs, HaveATokenAxis) {
    LinearAttention a = declared();
    add_chunk(a);
    add_decay(a);
    a.merge({"chunk_state"}, [](Tensor before) { return before * 2.0; });
    expect_errors(a, {{"merge: the output has no token axis", "[C, …]", "[K, V]", "before * 2.0"}});
}

TEST(Outputs, OfAStepHaveNames) {
    LinearAttention a = declared();
    add_chunk(a);
    add_decay(a);
    add_merge(a);
    a.step({"k", "v", "prev_s"}, [](Tensor k, Tensor v, Tensor s) { return s + outer(k, v); });
    expect_errors(a,
                  {{"step: returns several values, so they need names", "Results{{\"name\", value}, …}", "one tensor"},
                   {"step: 'o' is not returned", "a value for output 'o'", "nothing"}});
}

void expect_compile_errors(const LinearAttention& a, const std::vector<Wanted>& wanted) {
    expect_errors([&] { compile(a, {.dtype = F32, .sizes = {{"K", 16}, {"V", 16}}}); }, wanted);
}

TEST(Causality, OutputsReadNoLaterToken) {
    LinearAttention a = declared();
    add_chunk(a);
    add_decay(a);
    a.merge({"q", "k", "v", "chunk_state"}, [](Tensor q, Tensor k, Tensor v, Tensor before) {
        return matmul_out_fp32(matmul(q, transpose(k)), v) + matmul(q.to(F32), before);
    });
    expect_compile_errors(
        a, {{"merge reads a later token: output 'o' at token 0 changes when input 'k' changes at token 1",
             "outputs that depend on their own token and earlier ones", "", "matmul(q.to(F32), before)", "tril"},
            {"merge reads a later token: output 'o' at token 0 changes when input 'v' changes at token 1"}});
}

TEST(Padding, MustBeNeutralForTheState) {
    LinearAttention a = declared();
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul(transpose(k.to(F32) + 1.0), v.to(F32) + 1.0); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return prev + chunk; });
    add_merge(a);
    expect_compile_errors(
        a, {{"padding changes the final state 's'", "the same result from 5 tokens in a chunk of 8 and in a chunk of 5",
             "", "prev + chunk", "token_mask"}});
}

}  // namespace
}  // namespace forge::tests
