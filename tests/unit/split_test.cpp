/// Long axes in blocks (tile/split.h): the same numbers in as many parts, and no value that still has a long axis
/// unless an operation takes it whole.
#include "tile/split.h"

#include <gtest/gtest.h>

#include "interp/interp.h"
#include "ir/text.h"

namespace forge::tile {
namespace {

const Sizes kSizes = {{"C", 64}, {"K", 128}, {"V", 192}};

/// Numbers that differ from place to place and from parameter to parameter.
interp::Value numbers(const std::vector<std::int64_t>& shape, std::size_t which) {
    interp::Value value = interp::zeros(shape);
    for (std::size_t i = 0; i < value.data.size(); ++i)
        value.data[i] = static_cast<double>((i * 7919 + which * 104729) % 1009) / 1009 - 0.75;
    return value;
}

interp::Bindings bindings_of(const ir::Function& fn) {
    interp::Bindings bound;
    for (const ir::Op& op : fn.ops)
        if (op.code == ir::Opcode::Param)
            bound[interp::binding_name(op.attrs.name, op.attrs.role)] =
                numbers(interp::concrete(op.type.shape, kSizes), bound.size());
    return bound;
}

/// The part of `whole` with the shape of `part` that begins at `at`, against it.
void expect_part(const interp::Value& whole, const interp::Value& part, std::vector<std::int64_t> at) {
    at.resize(part.shape.size(), 0);
    const std::int64_t columns = part.shape.empty() ? 1 : part.shape.back();
    for (std::size_t i = 0; i < part.data.size(); ++i) {
        const auto n = static_cast<std::int64_t>(i), row = n / columns, column = n % columns;
        std::int64_t from = at.empty() ? 0 : at.back() + column;
        if (part.rank() == 2) from += (at[0] + row) * whole.shape[1];
        ASSERT_NEAR(whole.data[static_cast<std::size_t>(from)], part.data[i], 1e-9);
    }
}

ir::Function expect_same_in_parts(const std::string& text) {
    const ir::Function fn = ir::parse_function(text), split = split_axes(fn, kSizes);
    EXPECT_EQ(ir::print(ir::parse_function(ir::print(split))), ir::print(split));
    const interp::Bindings bound = bindings_of(fn);
    const auto whole = interp::evaluate(fn, bound, kSizes), parts = interp::evaluate(split, bound, kSizes);
    std::size_t numbers_whole = 0, numbers_in_parts = 0;
    for (const interp::Value& value : whole) numbers_whole += value.data.size();
    for (std::size_t r = 0; r < split.results.size(); ++r) {
        const ir::Result& result = split.results[r];
        numbers_in_parts += parts[r].data.size();
        for (std::size_t w = 0; w < fn.results.size(); ++w)
            if (fn.results[w].name == result.name) expect_part(whole[w], parts[r], result.at);
    }
    EXPECT_EQ(numbers_whole, numbers_in_parts);
    return split;
}

bool has_long_axis(const ir::Function& fn) {
    return std::any_of(fn.ops.begin(), fn.ops.end(), [](const ir::Op& op) {
        return std::any_of(op.type.shape.begin(), op.type.shape.end(),
                           [](const Dim& d) { return d.symbol == "K" || d.symbol == "V"; });
    });
}

TEST(Split, ProductsAreSumsOfProducts) {
    const ir::Function split = expect_same_in_parts(R"(func @f {
  %q: f32[C, K] = param() {name="q", role=input}
  %k: f32[C, K] = param() {name="k", role=input}
  %v: f32[C, V] = param() {name="v", role=input}
  %s: f32[K, V] = param() {name="s", role=spill}
  %p: f32[C, C] = matmul(%q, %k) {trans_b=true, tri=out_lower}
  %t: f32[C, C] = tril(%p) {diagonal=0}
  %a: f32[C, V] = matmul(%q, %s)
  %b: f32[C, V] = matmul_add(%t, %v, %a) {tri=a_lower}
  %d: f32[C, K] = matmul(%v, %s) {trans_b=true}
  %e: f32[C, K] = matmul_sub(%t, %k, %d) {trans_a=true, tri=a_upper}
  %z: f32[K, V] = matmul_sub(%k, %v, %s) {trans_a=true}
  return input "b" = %b, input "e" = %e, spill "z" = %z, spill "t" = %t
})");
    EXPECT_FALSE(has_long_axis(split));
}

TEST(Split, SumsAreSumsOfThoseOfBlocks) {
    const ir::Function split = expect_same_in_parts(R"(func @f {
  %s: f32[K, V] = param() {name="s", role=spill}
  %k: f32[C, K] = param() {name="k", role=input}
  %u: f32[K] = param() {name="u", role=head}
  %g: f32[C] = param() {name="g", role=input}
  %r: f32[K] = sum(%s) {dim=1}
  %m: f32[K] = amax(%s) {dim=1}
  %n: f32[] = sum(%r) {dim=0}
  %a: f32[K] = mul(%m, %u)
  %row: f32[1, K] = unsqueeze(%a) {dim=0}
  %all: f32[C, K] = expand(%row)
  %c: f32[C, K] = cumsum(%k) {dim=0, reverse=true}
  %w: f32[C, 1] = unsqueeze(%g) {dim=1}
  %x: f32[C, K] = mul(%c, %w)
  %y: f32[C, K] = add(%x, %all)
  %z: f32[C, K] = mul(%y, %n)
  %zero: f32[] = constant() {value=0}
  %is: bool[C, K] = lt(%z, %zero)
  %o: f32[C, K] = where(%is, %k, %z)
  %t: f32[K, C] = permute(%o) {perm=[1, 0]}
  return input "o" = %o, spill "r" = %r, spill "t" = %t, spill "n" = %n
})");
    EXPECT_FALSE(has_long_axis(split));
}

TEST(Split, DecaysAreBlockByBlock) {
    const ir::Function split = expect_same_in_parts(R"(func @f {
  %q: f32[C, K] = param() {name="q", role=input}
  %k: f32[C, K] = param() {name="k", role=input}
  %g: f32[C, K] = param() {name="g", role=input}
  %p: f32[C, C] = decay_matmul(%q, %k, %g)
  %a: f32[C, K] = decay_apply(%p, %k, %g)
  %b: f32[C, K] = decay_apply(%p, %q, %g) {reverse=true, exclusive=true}
  return input "a" = %a, input "b" = %b
})");
    EXPECT_FALSE(has_long_axis(split));
}

// Halves of an axis, and what is joined of them, are blocks that there are.
TEST(Split, HalvesAreBlocks) {
    const ir::Function split = expect_same_in_parts(R"(func @f {
  %q: f32[C, 2*K] = param() {name="q", role=input}
  %s: f32[2*K, V] = param() {name="s", role=state}
  %n: f32[2*K] = arange()
  %a: f32[C, K] = part(%q) {dim=1, start=0, count=2}
  %b: f32[C, K] = part(%q) {dim=1, start=1, count=2}
  %c: f32[C, K] = mul(%a, %b)
  %d: f32[C, K] = sub(%a, %b)
  %e: f32[C, 2*K] = concat(%c, %d) {dim=1}
  %f: f32[C, 2*K] = mul(%e, %n)
  %o: f32[C, V] = matmul(%f, %s)
  %r: f32[K, V] = part(%s) {dim=0, start=1, count=2}
  return input "o" = %o, spill "f" = %f, spill "r" = %r
})");
    EXPECT_FALSE(has_long_axis(split));
    for (const ir::Op& op : split.ops) EXPECT_NE(op.code, ir::Opcode::Concat);
}

// Pairs within blocks: of half as many numbers where one of two was taken.
TEST(Split, PairsStayInTheirBlocks) {
    const ir::Function split = expect_same_in_parts(R"(func @f {
  %q: f32[C, 2*K] = param() {name="q", role=input}
  %s: f32[2*K, V] = param() {name="s", role=state}
  %n: f32[K] = arange()
  %a: f32[C, K] = slice(%q) {dim=1, start=0, step=2}
  %b: f32[C, K] = slice(%q) {dim=1, start=1, step=2}
  %c: f32[C, K] = mul(%a, %n)
  %e: f32[C, 2*K] = interleave(%b, %c) {dim=1}
  %o: f32[C, V] = matmul(%e, %s)
  return input "o" = %o, spill "e" = %e
})");
    EXPECT_FALSE(has_long_axis(split));
}

// Rows that are repeated lie across the axis that is split.
TEST(Split, RepeatedRowsAreBlockByBlock) {
    const ir::Function split = expect_same_in_parts(R"(func @f {
  %t: f32[C, K] = param() {name="t", role=input}
  %k: f32[2*C, K] = param() {name="k", role=input}
  %r: f32[2*C, K] = repeat_interleave(%t) {dim=0, count=2}
  %o: f32[2*C, K] = mul(%k, %r)
  return input "o" = %o
})");
    EXPECT_FALSE(has_long_axis(split));
}

// So do rows that a scan over tokens passes on, and those that are taken one by one.
TEST(Split, ScannedRowsAreBlockByBlock) {
    const ir::Function split = expect_same_in_parts(R"(func @f {
  %k: f32[C, K] = param() {name="k", role=input}
  %d: f32[C, K] = param() {name="d", role=input}
  %last: f32[2, K] = param() {name="last", role=spill}
  %scan: f32[C, K] = linear_scan(%d, %k) {reverse=true, exclusive=true}
  %row: f32[K] = select(%last) {dim=0, start=1}
  %rows: f32[1, K] = unsqueeze(%row) {dim=0}
  %o: f32[C, K] = add(%scan, %rows)
  return input "o" = %o
})");
    EXPECT_FALSE(has_long_axis(split));
}

// Half as many numbers would be blocks of half the columns, which no product takes.
TEST(Split, PairsThatAreMultipliedKeepTheirAxisWhole) {
    const ir::Function split = expect_same_in_parts(R"(func @f {
  %q: f32[C, 2*K] = param() {name="q", role=input}
  %s: f32[K, C] = param() {name="s", role=spill}
  %a: f32[C, K] = slice(%q) {dim=1, start=0, step=2}
  %o: f32[C, C] = matmul(%a, %s)
  return spill "o" = %o
})");
    EXPECT_TRUE(has_long_axis(split));
}

// Another axis is split all the same.
TEST(Split, WhatTakesAnAxisApartKeepsItWhole) {
    const ir::Function split = expect_same_in_parts(R"(func @f {
  %k: f32[C, K] = param() {name="k", role=input}
  %s: f32[K, V] = param() {name="s", role=spill}
  %c: f32[C, K] = cumsum(%k) {dim=1}
  %o: f32[C, V] = matmul(%c, %s)
  return input "o" = %o
})");
    for (const ir::Op& op : split.ops)
        for (const Dim& d : op.type.shape) EXPECT_NE(d.symbol, "V");
    EXPECT_EQ(split.op(split.results.back().value).type.shape, (Shape{Dim("C"), Dim(64)}));
    EXPECT_TRUE(has_long_axis(split));
}

}  // namespace
}  // namespace forge::tile
