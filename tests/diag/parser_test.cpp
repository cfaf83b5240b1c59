// Mistakes in IR text: what was expected, what stands there, and at which line and column.
#include "graph/pipeline.h"
#include "ir/text.h"
#include "tests/diag/expect_errors.h"

namespace forge::tests {
namespace {

void expect_parse_error(const std::string& text, unsigned line, unsigned column, const std::string& what,
                        const std::string& got) {
    try {
        ir::is_definition(text) ? static_cast<void>(ir::parse_definition(text, "file.ir"))
                                : static_cast<void>(ir::parse_function(text, "file.ir"));
        FAIL() << "no CompileError; wanted: " << what;
    } catch (const CompileError& error) {
        ASSERT_EQ(error.diagnostics().size(), 1U);
        const Diagnostic& d = error.diagnostics()[0];
        EXPECT_EQ(d.what, what);
        EXPECT_EQ(d.got, got);
        EXPECT_EQ(to_string(d.where), "file.ir:" + std::to_string(line) + ":" + std::to_string(column));
    }
}

/// A function with one line between its parameter and its result.
std::string with_line(const std::string& line) {
    return "func @f {\n  %x: f32[C, K] = param() {name=\"x\", role=input}\n  " + line +
           "\n  return input \"y\" = %x\n}\n";
}

TEST(Parser, PointsAtTheMistake) {
    expect_parse_error(with_line("%y: f32[C, K] = expo(%x)"), 3, 19, "unknown operation", "'expo'");
    expect_parse_error(with_line("%y: f32[C, K] = exp(%z)"), 3, 23, "%z is not defined", "'%z'");
    expect_parse_error(with_line("%x: f32[C, K] = exp(%x)"), 3, 3, "%x is defined twice", "'%x'");
    expect_parse_error(with_line("%y: f33[C, K] = exp(%x)"), 3, 7, "unknown word", "'f33'");
    expect_parse_error(with_line("%y: f32[C, ] = exp(%x)"), 3, 14, "not a dimension", "']'");
    expect_parse_error(with_line("%y: f32[C, K] exp(%x)"), 3, 17, "expected '='", "'exp'");
    expect_parse_error(with_line("%y: f32[C, K] = exp(%x"), 4, 3, "expected ')'", "'return'");
    expect_parse_error(with_line("%y: f32[C] = sum(%x) {axis=1}"), 3, 25, "unknown attribute", "'axis'");
    expect_parse_error(with_line("%y: f32[C] = sum(%x) {dim=one}"), 3, 29, "not an integer", "'one'");
    expect_parse_error(with_line("y: f32[C] = sum(%x) {dim=1}"), 3, 3, "not a name", "'y'");
}

TEST(Parser, ChecksTypes) {
    expect_parse_error(with_line("%y: f32[K, C] = exp(%x)"), 3, 19, "exp has type f32[C, K], not f32[K, C]", "'exp'");
    expect_parse_error(with_line("%y: f32[C, C] = matmul(%x, %x)"), 3, 3, "matmul: inner sizes differ: K and C",
                       "[C, K] @ [C, K]");
    expect_parse_error(with_line("%y: f32[C, K] = add(%x)"), 3, 3, "add: takes 2 operands", "1");
}

TEST(Parser, WantsAWholeFunction) {
    expect_parse_error("", 1, 1, "expected 'func'", "end of text");
    expect_parse_error("func f {", 1, 6, "not a name", "'f'");
    expect_parse_error("func @f {\n", 2, 1, "not a name", "end of text");
    expect_parse_error("func @f {\n  %c: f32[] = constant() {value=1}\n  return input \"y\" = %c\n}\nmore", 5, 1,
                       "text after the end", "'more'");
    expect_parse_error("func @f {\n  %x: f32[] = param() {name=\"x", 2, 29, "unterminated string", "'x'");
}

TEST(Parser, WantsTheDeclarationsOfADefinition) {
    expect_parse_error("linear_attention @a {\n  inputs k: f32[T, H]\n", 2, 3, "not a declaration", "'inputs'");
    expect_parse_error(
        "linear_attention @a {\n  state s: f32[K, V]\n  func @merge {\n    %c: f32[] = constant() {value=1}\n    "
        "return input \"y\" = %c\n  }\n}\n",
        3, 3, "function @merge stands where @chunk should", "'func'");
}

TEST(Passes, AreKnownByName) {
    try {
        graph::run_passes("func @f {\n  %c: f32[] = constant() {value=1}\n  return input \"y\" = %c\n}\n",
                          {"cse", "csee"});
        FAIL();
    } catch (const CompileError& error) {
        EXPECT_EQ(error.diagnostics()[0].what, "unknown pass 'csee'");
        EXPECT_NE(error.diagnostics()[0].expected.find("canonicalize"), std::string::npos);
    }
}

}  // namespace
}  // namespace forge::tests
