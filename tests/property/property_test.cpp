/// Properties of random functions: what prints parses; no pass changes what the interpreter computes; products that are
/// marked as having structural zeros have them. RapidCheck prints the seed; RC_PARAMS="seed=…" repeats a run.
#include <gtest/gtest.h>
// RapidCheck's header needs GoogleTest's before it.
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/passes.h"
#include "graph/pipeline.h"
#include "ir/infer.h"
#include "ir/rebuild.h"
#include "ir/text.h"
#include "tests/property/generator.h"

namespace forge::tests {
namespace {

using Choices = std::vector<std::uint32_t>;
using Pass = ir::Function (*)(const ir::Function&);

constexpr double kTolerance = 1e-9;  ///< of float64, relative to the largest value that takes part

/// |a - b| within the bound for every result.
void assert_same_results(const RandomFunction& random, const ir::Function& changed) {
    const interp::Bindings arguments = random_arguments(random.fn, 17);
    const auto wanted = interp::evaluate(random.fn, arguments, property_sizes());
    const auto got = interp::evaluate(changed, arguments, property_sizes());
    const double bound = kTolerance * *std::max_element(random.bounds.begin(), random.bounds.end());
    RC_ASSERT(wanted.size() == got.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        RC_ASSERT(random.fn.results[i] ==
                  (ir::Result{changed.results[i].name, changed.results[i].role, random.fn.results[i].value}));
        RC_ASSERT(wanted[i].shape == got[i].shape);
        for (std::size_t e = 0; e < wanted[i].data.size(); ++e)
            if (!(std::fabs(wanted[i].data[e] - got[i].data[e]) <= bound))
                RC_FAIL("result " + random.fn.results[i].name + " changes from " + std::to_string(wanted[i].data[e]) +
                        " to " + std::to_string(got[i].data[e]) + "\nbefore:\n" + ir::print(random.fn) + "after:\n" +
                        ir::print(changed));
    }
}

void assert_preserves(const Choices& choices, Pass pass) {
    const RandomFunction random = random_function(choices);
    assert_same_results(random, pass(random.fn));
}

ir::Function simplified(const ir::Function& fn) {
    return graph::dce(graph::cse(graph::canonicalize(graph::widen(fn))));
}

RC_GTEST_PROP(Text, PrintsWhatItParses, (const Choices& choices)) {
    const std::string text = ir::print(random_function(choices).fn);
    RC_ASSERT(ir::print(ir::parse_function(text)) == text);
}

RC_GTEST_PROP(Widen, KeepsResults, (const Choices& choices)) { assert_preserves(choices, graph::widen); }
RC_GTEST_PROP(Canonicalize, KeepsResults, (const Choices& choices)) { assert_preserves(choices, graph::canonicalize); }
RC_GTEST_PROP(Cse, KeepsResults, (const Choices& choices)) { assert_preserves(choices, graph::cse); }
RC_GTEST_PROP(Dce, KeepsResults, (const Choices& choices)) { assert_preserves(choices, graph::dce); }
RC_GTEST_PROP(Decompose, KeepsResults, (const Choices& choices)) { assert_preserves(choices, graph::decompose); }

// These work on canonical functions.
RC_GTEST_PROP(Stabilize, KeepsResults, (const Choices& choices)) {
    assert_preserves(choices, [](const ir::Function& fn) { return graph::stabilize(simplified(fn)); });
}
RC_GTEST_PROP(Reassociate, KeepsResults, (const Choices& choices)) {
    assert_preserves(choices, [](const ir::Function& fn) { return graph::reassociate(simplified(fn)); });
}
RC_GTEST_PROP(FuseProducts, KeepsResults, (const Choices& choices)) {
    assert_preserves(choices, [](const ir::Function& fn) { return graph::fuse_products(simplified(fn)); });
}
RC_GTEST_PROP(Pipeline, KeepsResults, (const Choices& choices)) {
    assert_preserves(choices, [](const ir::Function& fn) { return graph::optimize(fn); });
}
// Of an operand under a triangle a number is left, when decays have been taken out of it. Found by the above.
TEST(Pipeline, KeepsTheShapeOfAnOperandThatIsANumber) {
    assert_preserves({449, 1220, 0, 519, 149}, [](const ir::Function& fn) { return graph::optimize(fn); });
}
// A safe exponent took a comparison away, which it negated as it was. Found by the above.
TEST(Pipeline, NegatesComparisons) {
    const RandomFunction compared{ir::parse_function(R"(func @compared {
  %g: f32[C] = param() {name="g", role=input}
  %scale: f32[] = param() {name="scale", role=scalar}
  %2: f32[] = sum(%g) {dim=0}
  %3: f32[C] = cumsum(%g) {dim=0}
  %4: f32[C] = sub(%2, %3)
  %5: bool[C] = lt(%scale, %g)
  %6: f32[C] = sub(%4, %5)
  %7: f32[C] = exp(%6)
  return input "r" = %7
}
)"),
                                  {60}};
    assert_same_results(compared, graph::optimize(compared.fn));
}

// What plans for warp groups run after the pipeline, with each axis as the value axis, and without one.
RC_GTEST_PROP(VectorProducts, KeepsResults, (const Choices& choices)) {
    assert_preserves(choices, [](const ir::Function& fn) { return graph::vector_products(graph::optimize(fn)); });
}
RC_GTEST_PROP(LateFactors, KeepsResults, (const Choices& choices)) {
    assert_preserves(choices, [](const ir::Function& fn) { return graph::late_factors(graph::optimize(fn)); });
}
RC_GTEST_PROP(DeepestLast, KeepsResults, (const Choices& choices)) {
    assert_preserves(choices, [](const ir::Function& fn) { return graph::deepest_last(graph::optimize(fn)); });
}
RC_GTEST_PROP(SumApart, KeepsResults, (const Choices& choices)) {
    assert_preserves(choices, [](const ir::Function& fn) { return graph::sum_apart(graph::optimize(fn)); });
}
RC_GTEST_PROP(HoistScales, KeepsResults, (const Choices& choices)) {
    const RandomFunction random = random_function(choices);
    for (const char* axis : {"V", "K", ""})
        assert_same_results(random, graph::hoist_scales(graph::optimize(random.fn), axis));
}
RC_GTEST_PROP(MergeScales, KeepsResults, (const Choices& choices)) {
    const RandomFunction random = random_function(choices);
    for (const char* axis : {"V", "K", ""})
        assert_same_results(random, graph::merge_scales(graph::optimize(random.fn), axis));
}
RC_GTEST_PROP(FoldFactors, KeepsResults, (const Choices& choices)) {
    const RandomFunction random = random_function(choices);
    for (const char* axis : {"V", "K", ""})
        assert_same_results(random, graph::fold_factors(graph::optimize(random.fn), axis));
}

ir::Function for_warp_groups(const ir::Function& fn) {
    return graph::deepest_last(
        graph::merge_scales(graph::hoist_scales(graph::late_factors(graph::optimize(fn)), "V"), "V"));
}

RC_GTEST_PROP(ForWarpGroups, KeepsResults, (const Choices& choices)) { assert_preserves(choices, for_warp_groups); }

/// What a back end may make of the marks: NaN above the diagonal of OutLower results, nothing read above that of
/// triangular first operands.
ir::Function with_zeros_used(const ir::Function& fn) {
    return ir::rebuild(fn, [](ir::Function& out, const ir::Op& op, std::vector<ir::ValueId> args) -> ir::ValueId {
        const ir::Tri tri = ir::is_matmul(op.code) ? op.attrs.tri : ir::Tri::None;
        if (tri == ir::Tri::ALower || tri == ir::Tri::AUpper) args[0] = ir::emit(out, ir::Opcode::Tril, {args[0]});
        const ir::ValueId v = ir::keep(out, op, std::move(args));
        if (tri != ir::Tri::OutLower) return v;
        ir::Attrs above;
        above.diagonal = 1;
        const ir::ValueId nan =
            out.add({ir::Opcode::Expand, op.type, {ir::emit_constant(out, NAN)}, {}, "", {}, std::nullopt});
        return ir::emit(out, ir::Opcode::Add, {v, ir::emit(out, ir::Opcode::Triu, {nan}, above)});
    });
}

RC_GTEST_PROP(FuseProducts, MarksTrueZeros, (const Choices& choices)) {
    assert_preserves(choices, [](const ir::Function& fn) { return with_zeros_used(graph::optimize(fn)); });
}
RC_GTEST_PROP(ForWarpGroups, MarksTrueZeros, (const Choices& choices)) {
    assert_preserves(choices, [](const ir::Function& fn) { return with_zeros_used(for_warp_groups(fn)); });
}

}  // namespace
}  // namespace forge::tests
