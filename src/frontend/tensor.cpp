// The recording side of the language: every function of forge/language.h becomes one op (or a short sequence of them).
#include <fmt/format.h>

#include "frontend/trace.h"
#include "ir/infer.h"
#include "ir/triangular.h"

namespace forge {

using frontend::Trace;
using ir::Attrs;
using ir::Opcode;

namespace frontend {

Tensor Trace::error(Diagnostic diagnostic) {
    diagnostics.push_back(std::move(diagnostic));
    return {shared_from_this(), ir::kNoValue};
}

const ir::Type* Trace::type(const Tensor& t) const { return t.id() < 0 ? nullptr : &fn.op(t.id()).type; }

Tensor Trace::record(Opcode code, const std::vector<Tensor>& args, Attrs attrs, const Location& where,
                     const ir::Type& own) {
    std::vector<ir::ValueId> ids;
    std::vector<ir::Type> types;
    for (const Tensor& t : args) {
        if (t.id() < 0) return {shared_from_this(), ir::kNoValue};
        if (t.trace().get() != this)
            return error({fmt::format("{}: a tensor of another phase", ir::info(code).name),
                          "tensors that this phase was given", "", where,
                          "name the value with cache_result and take it as an argument"});
        ids.push_back(t.id());
        types.push_back(fn.op(t.id()).type);
    }
    const ir::Inferred inferred = ir::infer(code, types, attrs, own);
    if (const auto* fault = std::get_if<ir::TypeFault>(&inferred))
        return error({fault->what, fault->expected, fault->got, where, fault->hint});
    return {shared_from_this(),
            fn.add({code, std::get<ir::Type>(inferred), ids, std::move(attrs), "", where, std::nullopt})};
}

Tensor Trace::constant(double value, const Location& where) {
    Attrs attrs;
    attrs.value = value;
    return record(Opcode::Constant, {}, attrs, where, ir::Type{DType::F32, {}});
}

}  // namespace frontend

namespace {

Tensor record(Opcode code, const std::vector<Tensor>& args, Attrs attrs, const Here& here) {
    for (const Tensor& t : args)
        if (t.trace()) return t.trace()->record(code, args, std::move(attrs), here);
    throw CompileError(Diagnostic{fmt::format("{}: an empty Tensor", ir::info(code).name),
                                  "a tensor given to the phase", "Tensor()", here, ""});
}

Tensor with_dim(Opcode code, const Tensor& x, std::int64_t dim, const Here& here) {
    Attrs attrs;
    attrs.dim = dim;
    return record(code, {x}, attrs, here);
}

/// Numbers become rank-0 constants in the trace of the other operand.
Tensor binary(Opcode code, const Operand& a, const Operand& b) {
    const auto& trace = a.is_number ? b.tensor.trace() : a.tensor.trace();
    if (!trace)
        throw CompileError(Diagnostic{fmt::format("{}: no tensor operand", ir::info(code).name), "", "", a.here, ""});
    const auto operand = [&](const Operand& x) { return x.is_number ? trace->constant(x.number, x.here) : x.tensor; };
    const Tensor left = operand(a);
    return trace->record(code, {left, operand(b)}, {}, a.here);
}

Tensor product(Opcode code, const Tensor& a, const Tensor& b, const Here& here) {
    const bool row = a.rank() == 1, column = b.rank() == 1;
    Tensor p = record(code, {row ? unsqueeze(a, 0, here) : a, column ? unsqueeze(b, 1, here) : b}, {}, here);
    if (column) p = squeeze(p, -1, here);
    return row ? squeeze(p, 0, here) : p;
}

}  // namespace

DType Tensor::dtype() const {
    const ir::Type* t = trace_ ? trace_->type(*this) : nullptr;
    return t ? t->dtype : DType::F32;
}

int Tensor::rank() const {
    const ir::Type* t = trace_ ? trace_->type(*this) : nullptr;
    return t ? t->rank() : 2;
}

Dim Tensor::size(int dim) const {
    const ir::Type* t = trace_ ? trace_->type(*this) : nullptr;
    const auto axis = t ? ir::normal_axis(dim, t->shape.size()) : std::nullopt;
    return axis ? t->shape[static_cast<std::size_t>(*axis)] : Dim(1);
}

Tensor Tensor::to(DType dtype, Here here) const {
    Attrs attrs;
    attrs.dtype = dtype;
    return record(Opcode::To, {*this}, attrs, here);
}

Tensor Tensor::T(Here here) const { return transpose(*this, here); }

#define FORGE_UNARY(Enum, name, formula, linear, cost, doc) \
    Tensor name(const Tensor& x, Here here) { return record(Opcode::Enum, {x}, {}, here); }
#define FORGE_BINARY(Enum, name, formula, linear, cost, doc) \
    Tensor name(const Operand& a, const Operand& b) { return binary(Opcode::Enum, a, b); }
#define FORGE_COMPARE(Enum, name, formula, cost, doc) \
    Tensor name(const Operand& a, const Operand& b) { return binary(Opcode::Enum, a, b); }
#include "forge/ops.def"

Tensor operator+(const Operand& a, const Operand& b) { return binary(Opcode::Add, a, b); }
Tensor operator-(const Operand& a, const Operand& b) { return binary(Opcode::Sub, a, b); }
Tensor operator*(const Operand& a, const Operand& b) { return binary(Opcode::Mul, a, b); }
Tensor operator/(const Operand& a, const Operand& b) { return binary(Opcode::Div, a, b); }
Tensor operator-(const Operand& x) { return neg(x.tensor, x.here); }
Tensor square(const Tensor& x, Here here) { return binary(Opcode::Mul, {x, here}, {x, here}); }

Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
    const auto operand = [&](const Operand& x) {
        return x.is_number ? condition.trace()->constant(x.number, x.here) : x.tensor;
    };
    const Tensor left = operand(a);
    return record(Opcode::Where, {condition, left, operand(b)}, {}, a.here);
}

Tensor sum(const Tensor& x, int dim, Here here) { return with_dim(Opcode::Sum, x, dim, here); }
Tensor amax(const Tensor& x, int dim, Here here) { return with_dim(Opcode::Amax, x, dim, here); }
Tensor cumsum(const Tensor& x, int dim, Here here) { return with_dim(Opcode::Cumsum, x, dim, here); }
Tensor cumsum(const Tensor& x, int dim, CumsumOptions options, Here here) {
    Attrs attrs;
    attrs.dim = dim;
    attrs.reverse = options.reverse;
    attrs.exclusive = options.exclusive;
    return record(Opcode::Cumsum, {x}, attrs, here);
}

Tensor cumprod(const Tensor& x, int dim, Here here) { return with_dim(Opcode::Cumprod, x, dim, here); }

Tensor mean(const Tensor& x, int dim, Here here) {
    const Tensor total = sum(x, dim, here);
    return total.id() < 0 ? total : record(Opcode::Div, {total, size(x, dim, here)}, {}, here);
}

Tensor linear_scan(const Tensor& decay, const Tensor& x, Here here) {
    return record(Opcode::LinearScan, {decay, x}, {}, here);
}
Tensor softmax(const Tensor& x, int dim, Here here) { return with_dim(Opcode::Softmax, x, dim, here); }

Tensor l2norm(const Tensor& x, double eps, Here here) {
    Attrs attrs;
    attrs.dim = -1;
    attrs.value = eps;
    return record(Opcode::L2norm, {x}, attrs, here);
}

Tensor transpose(const Tensor& x, Here here) { return permute(x, {1, 0}, here); }

Tensor permute(const Tensor& x, std::vector<std::int64_t> axes, Here here) {
    Attrs attrs;
    attrs.perm = std::move(axes);
    return record(Opcode::Permute, {x}, attrs, here);
}

Tensor unsqueeze(const Tensor& x, int dim, Here here) { return with_dim(Opcode::Unsqueeze, x, dim, here); }
Tensor squeeze(const Tensor& x, int dim, Here here) { return with_dim(Opcode::Squeeze, x, dim, here); }

Tensor select(const Tensor& x, int dim, std::int64_t index, Here here) {
    Attrs attrs;
    attrs.dim = dim;
    attrs.start = index;
    return record(Opcode::Select, {x}, attrs, here);
}

Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t step, Here here) {
    Attrs attrs;
    attrs.dim = dim;
    attrs.start = start;
    attrs.step = step;
    return record(Opcode::Slice, {x}, attrs, here);
}

Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length, std::int64_t step, Here here) {
    Attrs attrs;
    attrs.dim = dim;
    attrs.start = start;
    attrs.step = step;
    attrs.length = length;
    if (length == 0 && x.trace())
        return x.trace()->error({"narrow: no elements", "a length of at least 1", "0", here, ""});
    return record(Opcode::Slice, {x}, attrs, here);
}

Tensor part(const Tensor& x, int dim, std::int64_t index, std::int64_t count, Here here) {
    Attrs attrs;
    attrs.dim = dim;
    attrs.start = index;
    attrs.count = count;
    return record(Opcode::Part, {x}, attrs, here);
}

namespace {
Tensor joined(Opcode code, const std::vector<Tensor>& parts, std::int64_t dim, const Here& here) {
    Attrs attrs;
    attrs.dim = dim;
    return record(code, parts, attrs, here);
}
}  // namespace

Tensor concat(const std::vector<Tensor>& parts, int dim, Here here) { return joined(Opcode::Concat, parts, dim, here); }

Tensor interleave(const std::vector<Tensor>& parts, int dim, Here here) {
    return joined(Opcode::Interleave, parts, dim, here);
}

Tensor stack(const std::vector<Tensor>& parts, int dim, Here here) {
    std::vector<Tensor> with_axis;
    for (const Tensor& x : parts) with_axis.push_back(unsqueeze(x, dim, here));
    return joined(Opcode::Concat, with_axis, dim, here);
}

Tensor repeat_interleave(const Tensor& x, std::int64_t count, int dim, Here here) {
    Attrs attrs;
    attrs.dim = dim;
    attrs.count = count;
    return record(Opcode::RepeatInterleave, {x}, attrs, here);
}

Tensor lookup(const Tensor& table, const Tensor& index, Here here) {
    constexpr std::int64_t kMost = 256;
    const ir::Type* type = table.trace() ? table.trace()->type(table) : nullptr;
    if (!type || !index.trace()) return record(Opcode::Select, {table}, {}, here);
    if (type->rank() != 1 || !type->shape[0].is_constant() || type->shape[0].factor > kMost)
        return table.trace()->error({"lookup: a table whose size is no number", fmt::format("[n] of n <= {}", kMost),
                                     ir::to_string(*type), here, "declare its axis as a number: {H, 16}"});
    Tensor found = table.trace()->constant(0, here);
    for (std::int64_t n = type->shape[0].factor; n-- > 0;)
        found = record(Opcode::Where,
                       {record(Opcode::Eq, {index, index.trace()->constant(static_cast<double>(n), here)}, {}, here),
                        select(table, 0, n, here), found},
                       {}, here);
    return found;
}

Tensor expand(const Tensor& x, const Shape& shape, Here here) {
    if (!x.trace()) return record(Opcode::Expand, {x}, {}, here);
    return x.trace()->record(Opcode::Expand, {x}, {}, here, ir::Type{x.dtype(), shape});
}

Tensor prev_token(const Tensor& x, Here here) {
    const Tensor result = record(Opcode::PrevToken, {x}, {}, here);
    if (x.id() < 0) return result;
    const ir::Op& source = x.trace()->fn.op(x.id());
    if (source.code == Opcode::Param && source.attrs.role == ir::Role::Input) return result;
    return x.trace()->error({"prev_token: only of an input", "an input of the phase", ir::info(source.code).name, here,
                             "shift the inputs first, then compute"});
}

namespace {
Tensor triangle(Opcode code, const Tensor& x, std::int64_t diagonal, const Here& here) {
    Attrs attrs;
    attrs.diagonal = diagonal;
    return record(code, {x}, attrs, here);
}
}  // namespace

Tensor tril(const Tensor& x, std::int64_t diagonal, Here here) { return triangle(Opcode::Tril, x, diagonal, here); }
Tensor triu(const Tensor& x, std::int64_t diagonal, Here here) { return triangle(Opcode::Triu, x, diagonal, here); }
Tensor matmul(const Tensor& a, const Tensor& b, Here here) { return product(Opcode::Matmul, a, b, here); }
Tensor matmul_out_fp32(const Tensor& a, const Tensor& b, Here here) {
    return product(Opcode::MatmulOutFp32, a, b, here);
}

Tensor outer(const Tensor& a, const Tensor& b, Here here) {
    return record(Opcode::Mul, {unsqueeze(a, 1, here), unsqueeze(b, 0, here)}, {}, here);
}

Tensor identity(const Tensor& like, const Dim& n, Here here) {
    if (!like.trace()) return record(Opcode::Identity, {like}, {}, here);
    return like.trace()->record(Opcode::Identity, {}, {}, here, ir::Type{like.dtype(), {n, n}});
}

Tensor arange(const Tensor& like, const Dim& n, Here here) {
    if (!like.trace()) return record(Opcode::Arange, {like}, {}, here);
    return like.trace()->record(Opcode::Arange, {}, {}, here, ir::Type{like.dtype(), {n}});
}

Tensor size(const Tensor& x, int dim, Here here) {
    const ir::Type* type = x.trace() ? x.trace()->type(x) : nullptr;
    const auto axis = type ? ir::normal_axis(dim, type->shape.size()) : std::nullopt;
    if (!axis) return with_dim(Opcode::Sum, x, dim, here);  // which reports what is wrong
    const Dim& d = type->shape[static_cast<std::size_t>(*axis)];
    if (d.is_constant()) return x.trace()->constant(static_cast<double>(d.factor), here);
    Attrs attrs;
    attrs.name = d.symbol;
    attrs.count = d.factor;
    return x.trace()->record(Opcode::Size, {}, attrs, here, ir::Type{DType::F32, {}});
}

Tensor full(const Tensor& like, const Shape& shape, double value, Here here) {
    if (!like.trace()) return record(Opcode::Expand, {like}, {}, here);
    return expand(like.trace()->constant(value, here).to(like.dtype(), here), shape, here);
}

Tensor inverse(const Tensor& x, Here here) {
    const Tensor result = record(Opcode::Inverse, {x}, {}, here);
    if (result.id() < 0 || ir::triangle_of(x.trace()->fn, x.id()) == ir::Triangle::UnitLower) return result;
    return x.trace()->error({"inverse: the matrix is not provably unit lower-triangular",
                             "identity(x, n) + tril(a, -1), or - instead of +",
                             ir::to_string(x.trace()->fn.op(x.id()).type), here,
                             "write the mask with tril(…, -1) around the whole product and add the identity"});
}

Tensor cache_result(const Tensor& x, const std::string& name, Here here) {
    Attrs attrs;
    attrs.name = name;
    Tensor result = record(Opcode::CacheResult, {x}, attrs, here);
    if (result.id() < 0) return result;
    Trace& trace = *x.trace();
    if (trace.fn.result(name, ir::Role::Cached) != ir::kNoValue)
        return trace.error({fmt::format("cache_result: '{}' is cached twice", name), "a name of its own for each value",
                            "", here, ""});
    trace.fn.op(result.id()).name = name;
    trace.fn.results.push_back({name, ir::Role::Cached, result.id()});
    return result;
}

}  // namespace forge
