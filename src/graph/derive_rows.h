/// Values of `step` for all tokens of a chunk. A value that reads no state needs no algebra: its operation is done for
/// every token, with the tokens as a first axis. Axes of size 1 are left out, so that there is one form of everything.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "ir/definition.h"
#include "ir/known.h"

namespace forge::graph {

/// A value of `step` in the chunk's function: [C, axes of a size other than 1], or without C if it is the same for all.
struct TokenRow {
    ir::ValueId v = ir::kNoValue;
    bool tokens = false;
};

/// The axes of a shape that are not of size 1.
std::vector<int> wide_axes(const Shape& shape);

/// Writes the chunk's function. Equal operations are one; -(-x), x * 1 and x + 0 leave none.
class ChunkWriter {
  public:
    explicit ChunkWriter(const ir::Definition& def) : def_(def) { fn.name = def.name; }

    ir::Function fn;

    ir::ValueId emit(ir::Opcode code, std::vector<ir::ValueId> args, ir::Attrs attrs = {}, const Location& where = {});
    ir::ValueId param(const std::string& name, ir::Role role, const ir::Type& type, const Location& where);
    ir::ValueId constant(double value) { return constant_at(value, {}); }
    ir::ValueId expand(ir::ValueId v, const Shape& shape);
    ir::ValueId identity(const Dim& n);
    ir::ValueId mask();  ///< [C]: 1 for tokens, 0 for padding

    ir::ValueId neg(ir::ValueId v) { return emit(ir::Opcode::Neg, {v}); }
    ir::ValueId exp(ir::ValueId v) { return emit(ir::Opcode::Exp, {v}); }
    ir::ValueId add(ir::ValueId a, ir::ValueId b);  ///< either may be kNoValue, which is 0
    ir::ValueId sub(ir::ValueId a, ir::ValueId b);
    ir::ValueId mul(ir::ValueId a, ir::ValueId b);  ///< either may be kNoValue, which is 1
    ir::ValueId at(ir::Opcode code, ir::ValueId v, std::int64_t dim, std::int64_t start = 0, std::int64_t step = 1);
    ir::ValueId unsqueeze(ir::ValueId v, std::int64_t dim) { return at(ir::Opcode::Unsqueeze, v, dim); }
    ir::ValueId sum(ir::ValueId v, std::int64_t dim = 0) { return at(ir::Opcode::Sum, v, dim); }
    ir::ValueId cumsum(ir::ValueId v, bool exclusive = false);
    ir::ValueId tril(ir::ValueId v, bool strict);
    ir::ValueId transpose(ir::ValueId v);
    ir::ValueId matmul(ir::ValueId a, ir::ValueId b) { return emit(ir::Opcode::Matmul, {a, b}); }
    /// Each row `count` times, and rows of the operands by turns: [C, …] to [count * C, …]. Rows that were taken apart
    /// find together again.
    ir::ValueId repeat(ir::ValueId v, std::int64_t count, std::int64_t dim = 0);
    ir::ValueId interleave(const std::vector<ir::ValueId>& parts, std::int64_t dim = 0);

    [[nodiscard]] const ir::Type& type(ir::ValueId v) const { return fn.op(v).type; }
    [[nodiscard]] bool is_number(ir::ValueId v, double value) const {
        return fn.op(v).code == ir::Opcode::Constant && fn.op(v).attrs.value == value;
    }
    /// What rows of padding hold, where that is one number.
    [[nodiscard]] std::optional<double> padding(ir::ValueId v) const;
    /// Rows of padding replaced by `value`.
    TokenRow masked(TokenRow x, double value);
    /// The row with a token axis.
    ir::ValueId per_token(TokenRow x);

    [[nodiscard]] const ir::Definition& definition() const { return def_; }

  private:
    ir::ValueId constant_at(double value, const Location& where);
    ir::ValueId known_or_added(ir::Op op);
    ir::ValueId merged(const std::vector<ir::ValueId>& parts);
    ir::ValueId merged_anew(const std::vector<ir::ValueId>& parts);
    std::optional<double> padding(ir::ValueId v, ir::Known<std::optional<double>>& known) const;
    std::optional<double> padding_of(const ir::Op& op, ir::Known<std::optional<double>>& known) const;

    const ir::Definition& def_;
    std::map<std::vector<ir::ValueId>, ir::ValueId> merged_;
};

/// Does operations of `step` for all tokens.
class TokenRows {
  public:
    TokenRows(const ir::Function& step, ChunkWriter& out) : step_(step), out_(out) {}

    /// A parameter that is no state.
    TokenRow parameter(const ir::Op& op);
    /// An operation whose operands are there. CompileError where tokens have no axis in it.
    TokenRow operation(ir::ValueId v, const std::vector<TokenRow>& args);
    /// a * b and so on of rows whose values in `step` have the given shapes.
    TokenRow pointwise(ir::Opcode code, const std::vector<TokenRow>& args, const std::vector<Shape>& shapes,
                       const Shape& result, const ir::Attrs& attrs = {}, const Location& where = {});

  private:
    TokenRow along(const ir::Op& op, TokenRow x, const Shape& shape);
    TokenRow rearranged(const ir::Op& op, const std::vector<TokenRow>& args);
    TokenRow joined(const ir::Op& op, const std::vector<TokenRow>& args);
    TokenRow product(const ir::Op& op, TokenRow a, TokenRow b);
    [[nodiscard]] const Shape& shape(ir::ValueId v) const { return step_.op(v).type.shape; }
    [[noreturn]] void refuse(const ir::Op& op) const;
    [[noreturn]] void refuse_rows(const ir::Op& op) const;

    const ir::Function& step_;
    ChunkWriter& out_;
};

}  // namespace forge::graph
