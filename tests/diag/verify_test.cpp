// Definitions in text form that do not hang together.
#include "ir/text.h"
#include "tests/diag/expect_errors.h"

namespace forge::tests {
namespace {

/// A whole definition; tests replace parts of it.
const std::string kWhole = R"(linear_attention @plain {
  input q: f32[T, H, K]
  input k: f32[T, H, K]
  input v: f32[T, H, V]
  state s: f32[K, V]
  output o: f32[T, H, V]
  func @chunk {
    %k: f32[C, K] = param() {name="k", role=input}
    %v: f32[C, V] = param() {name="v", role=input}
    %c: f32[C, K] = cache_result(%k) {name="kept"}
    %kv: f32[K, V] = matmul(%c, %v) {trans_a=true}
    return chunk "s" = %kv, cached "kept" = %c
  }
  func @decay {
    %before: f32[K, V] = param() {name="s", role=state}
    %made: f32[K, V] = param() {name="s", role=chunk}
    %after: f32[K, V] = add(%before, %made)
    return state "s" = %after
  }
  func @merge {
    %q: f32[C, K] = param() {name="q", role=input}
    %kept: f32[C, K] = param() {name="kept", role=cached}
    %before: f32[K, V] = param() {name="s", role=state}
    %o: f32[C, V] = matmul(%q, %before)
    return input "o" = %o
  }
}
)";

void expect_refused(const std::string& from, const std::string& to, const std::vector<Wanted>& wanted) {
    std::string text = kWhole;
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    expect_errors([&] { ir::parse_definition(text, "plain.ir"); }, wanted);
}

TEST(Verify, TakesAWholeDefinition) { EXPECT_NO_THROW(ir::parse_definition(kWhole)); }

TEST(Verify, KnowsParameters) {
    expect_refused("{name=\"k\", role=input}", "{name=\"key\", role=input}",
                   {{"chunk: input 'key' is not known here", "", "'key'"}});
    expect_refused("{name=\"v\", role=input}", "{name=\"v\", role=head}", {{"chunk: head 'v' is not known here"}});
    expect_refused("{name=\"v\", role=input}", "{name=\"s\", role=state}", {{"chunk: state 's' is not known here"}});
    expect_refused("{name=\"kept\", role=cached}", "{name=\"lost\", role=cached}",
                   {{"merge: cached 'lost' is not known here"}});
    expect_refused("{name=\"kept\", role=cached}", "{name=\"kept\", role=spill}",
                   {{"merge: spill 'kept' is not known here"}});
}

TEST(Verify, WantsDeclaredTypes) {
    expect_refused("%q: f32[C, K] = param", "%q: bf16[C, K] = param", {{"matmul: operands have different types"}});
    expect_refused("%kept: f32[C, K] = param", "%kept: f32[C, V] = param",
                   {{"merge: cached 'kept' has another type than declared", "f32[C, K]", "f32[C, V]"}});
    expect_refused("input q: f32[T, H, K]", "input q: bf16[T, H, K]",
                   {{"merge: input 'q' has another type than declared", "bf16[C, K]", "f32[C, K]"}});
}

TEST(Verify, KnowsSizes) {
    const std::string where = "  func @chunk {\n";
    const auto with = [&](const std::string& op) { return where + "    %n: " + op + "\n"; };
    expect_refused(where, with("f32[] = size() {name=\"D\", count=1}"), {{"chunk: size: no axis has the size 'D'"}});
    expect_refused(where, with("f32[] = size() {name=\"H\", count=1}"), {{"chunk: size: no axis has the size 'H'"}});
    expect_refused(where, with("f32[K] = constant() {value=1}"), {{"constant: not a number", "no axes", "f32[K]"}});
    expect_refused(where, with("f32[D] = arange()"), {{"chunk: arange: no axis has the size 'D'"}});
    expect_refused(
        where, with("f32[C, K] = identity()"),
        {{"identity: not a square matrix", "as many rows as columns, of floating-point numbers", "'f32[C, K]'"}});
    expect_refused(where, with("f32[D, D] = identity()"), {{"chunk: identity: no axis has the size 'D'"}});
}

TEST(Verify, WantsEveryStateAndOutput) {
    expect_refused("return chunk \"s\" = %kv, cached", "return cached",
                   {{"chunk: chunk 's' is not returned", "a result", "nothing"}});
    expect_refused("return state \"s\" = %after", "return state \"t\" = %after",
                   {{"decay: state 's' is not returned"}, {"decay: returns state 't', which is not declared"}});
    expect_refused("return input \"o\" = %o", "return input \"o\" = %before",
                   {{"merge: input 'o' has another shape than declared", "[C, V]", "[K, V]"}});
}

// The inverse of other matrices would be a wrong number, not an error.
TEST(Verify, WantsUnitTrianglesInverted) {
    expect_refused("%kv: f32[K, V] = matmul(%c, %v) {trans_a=true}",
                   "%kk: f32[C, C] = matmul(%c, %c) {trans_b=true}\n %i: f32[C, C] = inverse(%kk)\n %x: f32[C, V] = "
                   "matmul(%i, %v)\n"
                   "%kv: f32[K, V] = matmul(%c, %x) {trans_a=true}",
                   {{"chunk: inverse: the matrix is not provably unit lower-triangular",
                     "identity(x, n) + tril(a, -1), or - instead of +", "f32[C, C]"}});
}

// Two of one name would be one tensor of a call.
TEST(Verify, WantsNamesOfTheirOwn) {
    for (const std::string name : {"k", "s", "o", "token_mask"})
        expect_refused("input q: f32[T, H, K]", "input " + name + ": f32[T, H, K]",
                       {{"'" + name + "' is declared twice", "a name of its own"}});
}

TEST(Verify, KnowsHowManyAxesACallHasRoomFor) {
    expect_refused("q: f32[T, H, K]", "q: f32[T, H, 2, 2, 2, 2, K]",
                   {{"'q': too many axes", "at most 4 beside tokens and heads", "[T, H, 2, 2, 2, 2, K]"}});
    expect_refused("k: f32[T, H, K]", "k: f32[2*T, H, 2, 2, 2, K]", {{"'k': too many axes"}});
    expect_refused("s: f32[K, V]", "s: f32[K, V, 2, 2, 2]", {{"'s': too many axes"}});
}

TEST(Verify, WantsDeclarationsOfTheirKind) {
    expect_refused("input q: f32[T, H, K]", "input q: f32[H, K]",
                   {{"input 'q': not a token input", "[T, heads, …]", "[H, K]"}});
    expect_refused("input q: f32[T, H, K]", "head q: f32[]", {{"head 'q': not per head", "[heads, …]", "[]"}});
    expect_refused("output o: f32[T, H, V]", "", {{"'plain' has no output", "at least one output", "none"}});
}

}  // namespace
}  // namespace forge::tests
