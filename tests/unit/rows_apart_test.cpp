/// Work on rows of which every other is read (tile/rows_apart.h): the same numbers, from slices of what there is.
#include "tile/rows_apart.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "interp/interp.h"
#include "ir/text.h"

namespace forge::tile {
namespace {

using ir::Opcode;

interp::Bindings bindings_of(const ir::Function& fn, const interp::Sizes& sizes) {
    interp::Bindings bound;
    for (const ir::Op& op : fn.ops) {
        if (op.code != Opcode::Param) continue;
        interp::Value value = interp::zeros(interp::concrete(op.type.shape, sizes));
        for (std::size_t i = 0; i < value.data.size(); ++i)
            value.data[i] = static_cast<double>((i * 7919 + bound.size() * 104729) % 1009) / 1009 - 0.75;
        bound[interp::binding_name(op.attrs.name, op.attrs.role)] = std::move(value);
    }
    return bound;
}

/// After the pass, which must not change results.
ir::Function apart(const std::string& text) {
    const ir::Function fn = ir::parse_function(text), made = with_rows_apart(fn);
    const interp::Sizes sizes = {{"C", 5}, {"K", 3}};
    const interp::Bindings bound = bindings_of(fn, sizes);
    const auto wanted = interp::evaluate(fn, bound, sizes), found = interp::evaluate(made, bound, sizes);
    EXPECT_EQ(wanted.size(), found.size());
    for (std::size_t r = 0; r < wanted.size(); ++r) EXPECT_EQ(wanted[r].data, found[r].data) << r;
    return made;
}

/// Whether slices are of parameters alone.
bool slices_come_first(const ir::Function& fn) {
    return std::all_of(fn.ops.begin(), fn.ops.end(), [&](const ir::Op& op) {
        return op.code != Opcode::Slice || fn.op(op.args[0]).code == Opcode::Param;
    });
}

TEST(RowsApart, WorkOnRowsAndTheirSumsIsDoneOnThoseThatAreRead) {
    const ir::Function made = apart(R"(func @f {
      %k: f32[2*C, K] = param() {name="k", role=input}
      %u: f32[K] = param() {name="u", role=head}
      %m: f32[2*C] = param() {name="m", role=input}
      %0: f32[2*C, K] = mul(%k, %u)
      %1: f32[2*C, K] = mul(%0, %0)
      %2: f32[2*C] = sum(%1) {dim=1}
      %3: f32[2*C] = mul(%2, %m)
      %4: f32[2*C, 1] = unsqueeze(%3) {dim=1}
      %5: f32[2*C, K] = mul(%0, %4)
      %6: f32[C, K] = slice(%5) {dim=0, start=0, step=2}
      %7: f32[C, K] = slice(%5) {dim=0, start=1, step=2}
      return input "a" = %6, input "b" = %7
    })");
    EXPECT_TRUE(slices_come_first(made)) << ir::print(made);
}

TEST(RowsApart, OneOfThreeRowsTakesAThirdOfTheWork) {
    const ir::Function made = apart(R"(func @f {
      %k: f32[3*C, K] = param() {name="k", role=input}
      %0: f32[3*C, K] = exp(%k)
      %1: f32[C, K] = slice(%0) {dim=0, start=2, step=3}
      return input "a" = %1
    })");
    EXPECT_TRUE(slices_come_first(made)) << ir::print(made);
    EXPECT_EQ(made.size(), 3);
}

TEST(RowsApart, WhatIsReadAsAWholeStaysWhole) {
    const std::string text = R"(func @f {
      %k: f32[2*C, K] = param() {name="k", role=input}
      %0: f32[2*C, K] = exp(%k)
      %1: f32[C, K] = slice(%0) {dim=0, start=0, step=2}
      %2: f32[K, K] = matmul(%0, %k) {trans_a=true}
      return input "a" = %1, input "b" = %2
    })";
    EXPECT_FALSE(slices_come_first(apart(text)));
}

TEST(RowsApart, TrianglesKeepTheirPlaces) {
    EXPECT_FALSE(slices_come_first(apart(R"(func @f {
      %p: f32[2*C, C] = param() {name="p", role=input}
      %0: f32[2*C, C] = tril(%p) {diagonal=0}
      %1: f32[C, C] = slice(%0) {dim=0, start=1, step=2}
      return input "a" = %1
    })")));
}

// A vector stands along the columns of a matrix, whatever its rows are; that one of these is read says nothing of it.
TEST(RowsApart, VectorsAlongColumnsStayWhole) {
    apart(R"(func @f {
      %p: f32[2*C, 2*C] = param() {name="p", role=input}
      %b: f32[2*C] = param() {name="b", role=input}
      %0: f32[2*C] = exp(%b)
      %1: f32[2*C, 2*C] = mul(%p, %0)
      %2: f32[C, 2*C] = slice(%1) {dim=0, start=1, step=2}
      return input "a" = %2
    })");
}

TEST(RowsApart, RowsOfOneValueMayBeReadInSeveralSteps) {
    const ir::Function made = apart(R"(func @f {
      %k: f32[6*C, K] = param() {name="k", role=input}
      %0: f32[6*C, K] = exp(%k)
      %1: f32[6*C, K] = abs(%k)
      %2: f32[3*C, K] = slice(%0) {dim=0, start=1, step=2}
      %3: f32[2*C, K] = slice(%1) {dim=0, start=1, step=3}
      return input "a" = %2, input "b" = %3
    })");
    EXPECT_TRUE(slices_come_first(made)) << ir::print(made);
}

}  // namespace
}  // namespace forge::tile
