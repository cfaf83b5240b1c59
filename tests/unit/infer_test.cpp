/// The type rule of every op: a result type, and what the rule refuses.
#include "ir/infer.h"

#include <gtest/gtest.h>

#include <set>

#include "forge/error.h"

namespace forge::ir {
namespace {

const Dim C("C"), K("K"), V("V");
constexpr DType Bool = DType::Bool;

Attrs dim(std::int64_t d, std::int64_t start = 0, std::int64_t step = 1, std::int64_t count = 1) {
    Attrs attrs;
    attrs.dim = d, attrs.start = start, attrs.step = step, attrs.count = count;
    return attrs;
}

/// Of a slice with so many elements.
Attrs stretch(std::int64_t d, std::int64_t start, std::int64_t length, std::int64_t step = 1) {
    Attrs attrs = dim(d, start, step);
    attrs.length = length;
    return attrs;
}

Attrs multiple(std::int64_t count, const char* symbol) {
    Attrs attrs;
    attrs.count = count, attrs.name = symbol;
    return attrs;
}

Attrs perm(std::vector<std::int64_t> axes) {
    Attrs attrs;
    attrs.perm = std::move(axes);
    return attrs;
}

Attrs trans(bool a, bool b) {
    Attrs attrs;
    attrs.trans_a = a, attrs.trans_b = b;
    return attrs;
}

Attrs to(DType dtype) {
    Attrs attrs;
    attrs.dtype = dtype;
    return attrs;
}

struct Rule {
    Opcode code;
    std::vector<Type> operands;
    Attrs attrs;
    std::string result;  ///< the type, or the fault
    Type own = {};
};

const std::vector<Rule> kRules = {
    // Leaves state their own type.
    {Opcode::Param, {}, {}, "bf16[C, K]", {BF16, {C, K}}},
    {Opcode::Constant, {}, {}, "f32[]", {F32, {}}},
    {Opcode::Identity, {}, {}, "f32[C, C]", {F32, {C, C}}},
    {Opcode::Arange, {}, {}, "bf16[2*K]", {BF16, {2 * K}}},
    {Opcode::Arange, {}, {}, "arange: a token's place in its chunk is the compiler's choice", {F32, {2 * C}}},
    {Opcode::Arange, {}, {}, "arange: not a vector of numbers", {F32, {K, V}}},
    {Opcode::Size, {}, multiple(2, "K"), "f32[]", {F32, {}}},
    {Opcode::Size, {}, multiple(0, "K"), "size: not of an axis", {F32, {}}},
    {Opcode::Size,
     {},
     multiple(1, "C"),
     "size: the number of tokens in a chunk is the compiler's choice, and the last chunk is padded",
     {F32, {}}},
    // Elementwise: the type stays; PyTorch's promotion and broadcasting.
    {Opcode::Exp, {{BF16, {C, K}}}, {}, "bf16[C, K]"},
    {Opcode::Exp, {{Bool, {C}}}, {}, "exp: needs a floating-point operand"},
    {Opcode::Add, {{BF16, {C, K}}, {F32, {K}}}, {}, "f32[C, K]"},
    {Opcode::Add, {{BF16, {C, K}}, {F32, {}}}, {}, "bf16[C, K]"},
    {Opcode::Add, {{BF16, {C}}, {F16, {C}}}, {}, "f32[C]"},
    {Opcode::Add, {{Bool, {C}}, {BF16, {}}}, {}, "bf16[C]"},
    {Opcode::Add, {{F32, {C, 1}}, {F32, {1, K}}}, {}, "f32[C, K]"},
    {Opcode::Add, {{F32, {C, K}}, {F32, {C}}}, {}, "add: shapes do not broadcast"},
    {Opcode::Add, {{F32, {C}}, {F32, {2 * C}}}, {}, "add: shapes do not broadcast"},
    {Opcode::Add, {{F32, {C}}}, {}, "add: takes 2 operands"},
    {Opcode::Lt, {{BF16, {C, 1}}, {F32, {K}}}, {}, "bool[C, K]"},
    {Opcode::To, {{BF16, {C, K}}}, to(F32), "f32[C, K]"},
    {Opcode::CacheResult, {{BF16, {C}}}, {}, "bf16[C]"},
    {Opcode::Where, {{Bool, {C, 1}}, {BF16, {K}}, {F32, {}}}, {}, "bf16[C, K]"},
    {Opcode::Where, {{F32, {C}}, {F32, {C}}, {F32, {C}}}, {}, "where: the condition must be bool"},
    {Opcode::Where, {{Bool, {K}}, {F32, {C}}, {F32, {C}}}, {}, "where: shapes do not broadcast"},
    // Reductions and scans.
    {Opcode::Sum, {{F32, {C, K}}}, dim(0), "f32[K]"},
    {Opcode::Sum, {{F32, {C, K}}}, dim(-1), "f32[C]"},
    {Opcode::Sum, {{F32, {C, K}}}, dim(2), "sum: dim 2 is out of range"},
    {Opcode::Sum, {{F32, {}}}, dim(0), "sum: dim 0 is out of range"},
    {Opcode::Amax, {{BF16, {C, K}}}, dim(1), "bf16[C]"},
    {Opcode::Amax, {{Bool, {C}}}, dim(0), "amax: needs a floating-point operand"},
    {Opcode::Cumsum, {{F32, {C, K}}}, dim(-2), "f32[C, K]"},
    {Opcode::Cumprod, {{BF16, {C, K}}}, dim(1), "bf16[C, K]"},
    {Opcode::Softmax, {{F32, {C, C}}}, dim(1), "f32[C, C]"},
    {Opcode::L2norm, {{BF16, {C, K}}}, dim(-1), "bf16[C, K]"},
    {Opcode::LinearScan, {{F32, {C, K}}, {BF16, {C, K}}}, {}, "f32[C, K]"},
    {Opcode::LinearScan, {{F32, {C}}, {F32, {C, K}}}, {}, "linear_scan: decay and x differ in shape"},
    {Opcode::LinearScan, {{F32, {}}, {F32, {}}}, {}, "linear_scan: decay and x differ in shape"},
    {Opcode::LinearScanFrom, {{F32, {C, K}}, {F32, {C, K}}, {F32, {K}}}, {}, "f32[C, K]"},
    {Opcode::LinearScanFrom, {{F32, {C, K}}, {F32, {C, K}}, {F32, {C}}}, {}, "linear_scan_from: operand shapes"},
    // Shape.
    {Opcode::Permute, {{F32, {C, K, V}}}, perm({2, 0, 1}), "f32[V, C, K]"},
    {Opcode::Permute, {{F32, {C, K}}}, perm({0, 0}), "permute: not a permutation of the axes"},
    {Opcode::Permute, {{F32, {C, K}}}, perm({0}), "permute: not a permutation of the axes"},
    {Opcode::Unsqueeze, {{F32, {C}}}, dim(-1), "f32[C, 1]"},
    {Opcode::Unsqueeze, {{F32, {C}}}, dim(2), "unsqueeze: dim 2 is out of range"},
    {Opcode::Squeeze, {{F32, {1, C}}}, dim(0), "f32[C]"},
    {Opcode::Squeeze, {{F32, {1, C}}}, dim(1), "squeeze: the axis is not of size 1"},
    {Opcode::Select, {{F32, {C, K}}}, dim(0, -1), "f32[K]"},
    {Opcode::Select, {{F32, {4, K}}}, dim(0, 4), "select: index out of range"},
    {Opcode::Slice, {{F32, {2 * C, K}}}, dim(0, 1, 2), "f32[C, K]"},
    {Opcode::Slice, {{F32, {C, K}}}, dim(0, 0, 2), "slice: the step must divide the axis, and start lie in [0, step)"},
    {Opcode::Slice, {{F32, {2 * C}}}, dim(0, 2, 2), "slice: the step must divide the axis, and start lie in [0, step)"},
    {Opcode::Slice, {{F32, {C, 10}}}, stretch(1, 2, 4, 2), "f32[C, 4]"},
    {Opcode::Slice, {{F32, {C, 10}}}, stretch(1, 2, 5, 2), "slice: not within the axis"},
    {Opcode::Slice, {{F32, {C, 10}}}, stretch(1, -10, 10), "f32[C, 10]"},
    {Opcode::Slice, {{F32, {C, 10}}}, stretch(1, -11, 2), "slice: not within the axis"},
    {Opcode::Slice, {{F32, {C, 10}}}, stretch(1, -2, 3), "slice: not within the axis"},
    {Opcode::Slice, {{F32, {C, K}}}, stretch(-1, -16, 16), "f32[C, 16]"},
    {Opcode::Slice, {{F32, {C, K}}}, stretch(1, 0, 16, 0), "slice: not within the axis"},
    {Opcode::Slice, {{F32, {C, K}}}, stretch(0, 0, 16), "slice: so many tokens of a chunk"},
    {Opcode::Part, {{F32, {C, 2 * K}}}, dim(1, 1, 1, 2), "f32[C, K]"},
    {Opcode::Part, {{F32, {C, K}}}, dim(1, 1, 1, 2), "part: the axis has no such part"},
    {Opcode::Part, {{F32, {6}}}, dim(0, 3, 1, 3), "part: the axis has no such part"},
    {Opcode::Concat, {{BF16, {C, K}}, {F32, {C, 2 * K}}}, dim(-1), "f32[C, 3*K]"},
    {Opcode::Concat, {{F32, {C, 3}}, {F32, {C, 4}}, {F32, {C, 1}}}, dim(1), "f32[C, 8]"},
    {Opcode::Concat, {{F32, {C, K}}, {F32, {C, V}}}, dim(1), "concat: the sizes K and V have no sum"},
    {Opcode::Concat, {{F32, {C, K}}, {F32, {K, C}}}, dim(1), "concat: shapes differ"},
    {Opcode::Concat, {{F32, {C, K}}, {F32, {C, K}}}, dim(0), "concat: along the tokens"},
    {Opcode::Concat, {{F32, {C, K}}, {Bool, {C, K}}}, dim(1), "concat: truth values beside numbers"},
    {Opcode::Concat, {}, dim(0), "concat: no operands"},
    {Opcode::Interleave, {{F32, {C, K}}, {F32, {C, K}}}, dim(0), "f32[2*C, K]"},
    {Opcode::Interleave, {{F32, {C, K}}, {F32, {C, 2 * K}}}, dim(1), "interleave: shapes differ"},
    {Opcode::RepeatInterleave, {{F32, {C, K}}}, dim(0, 0, 1, 2), "f32[2*C, K]"},
    {Opcode::RepeatInterleave, {{F32, {C, K}}}, dim(0, 0, 1, 0), "repeat_interleave: needs a positive count"},
    {Opcode::Expand, {{BF16, {1, K}}}, {}, "bf16[C, K]", {BF16, {C, K}}},
    {Opcode::Expand, {{F32, {C}}}, {}, "expand: cannot broadcast to the wanted shape", {F32, {C, K}}},
    {Opcode::Copy, {{F32, {C, K}}}, {}, "f32[C, K]"},
    {Opcode::PrevToken, {{BF16, {C, K}}}, {}, "bf16[C, K]"},
    // Triangles.
    {Opcode::Tril, {{F32, {C, C}}}, {}, "f32[C, C]"},
    {Opcode::Triu, {{F32, {C}}}, {}, "triu: needs a matrix"},
    {Opcode::Inverse, {{F32, {C, C}}}, {}, "f32[C, C]"},
    {Opcode::Inverse, {{F32, {C, K}}}, {}, "inverse: needs a square matrix"},
    {Opcode::Inverse, {{BF16, {C, C}}}, {}, "inverse: needs float32"},
    // Products.
    {Opcode::Matmul, {{BF16, {C, K}}, {BF16, {K, V}}}, {}, "bf16[C, V]"},
    {Opcode::Matmul, {{F32, {C, K}}, {F32, {C, V}}}, trans(true, false), "f32[K, V]"},
    {Opcode::Matmul, {{F32, {C, K}}, {F32, {V, K}}}, trans(false, true), "f32[C, V]"},
    {Opcode::Matmul, {{F32, {C, K}}, {F32, {C, V}}}, {}, "matmul: inner sizes differ: K and C"},
    {Opcode::Matmul, {{BF16, {C, K}}, {F32, {K, V}}}, {}, "matmul: operands have different types"},
    {Opcode::Matmul, {{F32, {K}}, {F32, {K, V}}}, {}, "matmul: needs two matrices"},
    {Opcode::Matmul, {{Bool, {C, K}}, {Bool, {K, V}}}, {}, "matmul: needs a floating-point operand"},
    {Opcode::MatmulOutFp32, {{BF16, {C, K}}, {BF16, {K, V}}}, {}, "f32[C, V]"},
    {Opcode::MatmulAdd, {{F32, {C, K}}, {F32, {K, V}}, {F32, {C, V}}}, {}, "f32[C, V]"},
    {Opcode::MatmulSub, {{F32, {C, K}}, {F32, {K, V}}, {F32, {K, V}}}, {}, "matmul_add: the addend's shape differs"},
    // Made by stabilisation.
    {Opcode::DecayMask, {{F32, {C}}}, {}, "f32[C, C]"},
    {Opcode::DecayMask, {{F32, {C, K}}}, {}, "decay_mask: operand shapes"},
    {Opcode::DecayMatmul, {{F32, {C, K}}, {F32, {C, K}}, {F32, {C, K}}}, {}, "f32[C, C]"},
    {Opcode::DecayMatmul, {{F32, {C, K}}, {F32, {C, V}}, {F32, {C, K}}}, {}, "decay_matmul: operand shapes"},
    {Opcode::DecayRows, {{F32, {C, K}}, {F32, {C, K}}, {F32, {}}}, {}, "f32[C, K]"},
    {Opcode::DecayRows, {{F32, {C, K}}, {F32, {C, K}}, {F32, {K}}}, {}, "decay_rows: operand shapes"},
    {Opcode::DecayApply, {{F32, {C, C}}, {F32, {C, V}}, {F32, {C, V}}}, {}, "f32[C, V]"},
    {Opcode::DecayApply, {{F32, {C, K}}, {F32, {C, V}}, {F32, {C, V}}}, {}, "decay_apply: operand shapes"},
};

std::string shown(const Inferred& inferred) {
    if (const auto* fault = std::get_if<TypeFault>(&inferred)) return fault->what;
    return to_string(std::get<Type>(inferred));
}

TEST(Infer, GivesTheTypeOrTheFault) {
    for (const Rule& rule : kRules)
        EXPECT_EQ(shown(infer(rule.code, rule.operands, rule.attrs, rule.own)), rule.result) << info(rule.code).name;
}

TEST(Infer, IsTestedForEveryOp) {
    std::set<Opcode> tested;
    for (const Rule& rule : kRules) tested.insert(rule.code);
    for (const Opcode code : all_opcodes())
        if (info(code).kind == OpInfo::Kind::Other) {
            EXPECT_TRUE(tested.contains(code)) << info(code).name;
        }
}

TEST(Infer, ElementwiseOpsShareARule) {
    const Type matrix{F32, {C, K}}, number{F32, {}};
    for (const Opcode code : all_opcodes()) {
        const OpInfo::Kind kind = info(code).kind;
        if (kind == OpInfo::Kind::Unary) {
            EXPECT_EQ(shown(infer(code, {{matrix}}, {})), "f32[C, K]");
        }
        if (kind == OpInfo::Kind::Binary) {
            EXPECT_EQ(shown(infer(code, {{matrix, number}}, {})), "f32[C, K]");
        }
        if (kind == OpInfo::Kind::Compare) {
            EXPECT_EQ(shown(infer(code, {{number, matrix}}, {})), "bool[C, K]");
        }
    }
}

TEST(Infer, AFaultInAPassIsAnInternalError) {
    Function fn;
    const ValueId x = fn.add({Opcode::Param, {F32, {C, K}}, {}, {}, "x", {}, std::nullopt});
    EXPECT_THROW(emit(fn, Opcode::Matmul, {x, x}), InternalError);
    EXPECT_EQ(to_string(fn.op(emit(fn, Opcode::Matmul, {x, x}, trans(true, false))).type), "f32[K, K]");
}

}  // namespace
}  // namespace forge::ir
