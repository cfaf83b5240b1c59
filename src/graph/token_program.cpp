#include "graph/token_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "forge/error.h"
#include "graph/channel_maps.h"
#include "graph/passes.h"
#include "graph/saved_states.h"
#include "graph/slice.h"
#include "graph/transition.h"
#include "ir/definition.h"
#include "ir/infer.h"
#include "ir/rebuild.h"
#include "support/reasons.h"

namespace forge::graph {
namespace {

using ir::Along;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

bool is_chunk(const Dim& d) { return d.symbol == ir::kChunkSymbol; }

/// An axis of tokens: of one, where the program is that of one.
bool is_tokens(const Dim& d) { return is_chunk(d) || d == Dim(1); }

/// An axis with one element in a chunk of one token.
bool is_one(const Dim& d) { return d == Dim(1) || (is_chunk(d) && d.factor == 1); }

class TokenProgram {
  public:
    explicit TokenProgram(const Function& program)
        : backwards_(has_saved_states(program)), program_(backwards_ ? with_contributions(program) : program) {}

    Function run() {
        find_axes();
        for (ValueId v = 0; v < program_.size(); ++v) {
            const Op& op = program_.op(v);
            if (!has_axes(op))
                refuse(Reason::OtherAxes, ir::described(program_, v), to_string(op.type.shape), channels_);
            if (!admits(op)) refuse(Reason::MixedChannels, ir::described(program_, v));
        }
        for (const ir::Result& r : program_.results)
            if (!admits(r)) refuse(Reason::OtherOutput, r.name, to_string(program_.op(r.value).type.shape));
        const Function token = dce(cse(canonicalize(dce(cse(canonicalize(collapsed()))))));
        check_maps(token);
        if (rows_) check_sums(token);
        return backwards_ ? with_spread_contributions(token) : token;
    }

  private:
    /// The channels are the last axis of the states, or the heads if those are numbers; the rows the one before.
    void find_axes() {
        std::vector<const ir::Result*> states;
        for (const ir::Result& r : program_.results)
            if (r.role == Role::State || r.role == Role::After) states.push_back(&r);
        const auto shape_of = [&](const ir::Result* r) -> const Shape& { return program_.op(r->value).type.shape; };
        const auto is_number = [&](const ir::Result* r) {
            return std::all_of(shape_of(r).begin(), shape_of(r).end(), [](const Dim& d) { return d == Dim(1); });
        };
        if (!states.empty() && std::all_of(states.begin(), states.end(), is_number)) {
            channels_ = kHeadChannels;
            return;
        }
        for (const ir::Result* r : states) find_axes(r->name, shape_of(r));
        // Other matrices decay by rows or columns, or as wholes: products of matrices are faster.
        if (!rows_) return;
        for (const Transition& t : transitions(program_))
            if (t.cls != TransitionClass::Elementwise)
                refuse(Reason::NotVectors, t.state,
                       to_string(program_.op(program_.result(t.state, Role::State)).type.shape));
    }
    void find_axes(const std::string& state, const Shape& shape) {
        const bool rows = shape.size() == 2;
        if ((shape.size() != 1 && !rows) || is_chunk(shape.back()) || is_chunk(shape[0]))
            refuse(Reason::NotVectors, state, to_string(shape));
        const Dim& axis = shape.back();
        if (axis.is_constant()) refuse(Reason::NumberedChannels, state, axis.factor);
        if (axis.factor != 1) refuse(Reason::NotVectors, state, to_string(shape));
        if (!channels_.empty() && channels_ != axis.symbol) refuse(Reason::SeveralChannels, channels_, axis.symbol);
        const std::optional<Dim> before = rows ? std::optional(shape[0]) : std::nullopt;
        const bool square = rows && shape[0].symbol == axis.symbol, other = !channels_.empty() && rows_ != before;
        if (square || other || before == Dim(1)) refuse(Reason::NotVectors, state, to_string(shape));
        channels_ = axis.symbol, rows_ = before;
    }

    [[nodiscard]] bool is_channels(const Dim& d) const { return d.symbol == channels_ && d.factor == 1; }
    [[nodiscard]] bool is_rows(const Dim& d) const { return rows_ == d; }
    [[nodiscard]] bool is_kept(const Dim& d) const { return is_channels(d) || is_rows(d); }
    [[nodiscard]] bool has_channels(const ir::Type& type) const {
        return std::any_of(type.shape.begin(), type.shape.end(), [&](const Dim& d) { return is_channels(d); });
    }
    [[nodiscard]] bool has_rows(const ir::Type& type) const {
        return std::any_of(type.shape.begin(), type.shape.end(), [&](const Dim& d) { return is_rows(d); });
    }
    /// What a thread has of a value: a number, its channels, a number of each row, or its channels of each row.
    [[nodiscard]] Shape shape_with(bool rows, bool channels) const {
        const Dim last = channels ? Dim(channels_) : Dim(1);
        return rows ? Shape{*rows_, last} : channels ? Shape{last} : Shape{};
    }

    /// At most one axis of channels and one of rows; all others have one element in a chunk of one token, or the same
    /// one several times.
    [[nodiscard]] bool has_axes(const Op& op) const {
        const bool copies = ir::along(op.code) == Along::Repeated || ir::along(op.code) == Along::Pointwise;
        int channels = 0, rows = 0;
        return std::all_of(op.type.shape.begin(), op.type.shape.end(), [&](const Dim& d) {
            return is_one(d) || (is_channels(d) && ++channels == 1) || (is_rows(d) && ++rows == 1) ||
                   (copies && is_chunk(d));
        });
    }

    /// Whether there is a rule for the op on a chunk of one token, of which each thread has a few channels.
    [[nodiscard]] bool admits(const Op& op) const {
        switch (ir::along(op.code)) {
            case Along::Leaf:
                return op.code != Opcode::Param || admits_param(op);
            case Along::Pointwise:
            case Along::Copied:
            case Along::Permuted:
            case Along::Inserted:
            case Along::Removed:
            case Along::Broadcast:
                return true;
            case Along::Reduced:
                return is_one(operand_axis(op)) || is_channels(operand_axis(op)) ||
                       (op.code == Opcode::Sum && is_rows(operand_axis(op)));
            case Along::Scanned:
                return !is_channels(operand_axis(op)) && !is_rows(operand_axis(op));
            case Along::Repeated:
                return is_chunk(operand_axis(op));
            case Along::Selected:
                return !is_channels(operand_axis(op)) && !is_rows(operand_axis(op)) &&
                       (is_end(op.attrs.start) || operand_axis(op) == Dim(1));
            case Along::RowScan:
                return op.code == Opcode::LinearScan && is_one(program_.op(op.args[0]).type.shape[0]);
            case Along::Triangle:
                return !has_channels(op.type) && !has_rows(op.type);
            case Along::Contracted:
                return is_one(contracted_axis(op)) || is_channels(contracted_axis(op)) || is_rows(contracted_axis(op));
            case Along::Pairs:
                return op.code == Opcode::DecayMask;
            case Along::Place:
            case Along::Shifted:
            case Along::Normalised:
            case Along::Cut:
            case Along::Joined:
            case Along::Matrix:
            case Along::Rows:
                return false;
        }
        return false;
    }

    /// Rows of the token before are those of vectors.
    [[nodiscard]] bool admits_param(const Op& op) const {
        const bool rows = has_rows(op.type);
        if (op.attrs.role == Role::Spill || (op.attrs.role == Role::Shifted && rows)) return false;
        return op.type.rank() <= (has_tokens(op) ? 2 : 1) + (rows && has_channels(op.type) ? 1 : 0);
    }

    /// Whether it is the token that the states, or those that are carried from behind, come to last.
    [[nodiscard]] bool is_end(std::int64_t start) const { return start == -1 || (backwards_ && start == 0); }

    static bool has_tokens(const Op& param) {
        const bool input = param.attrs.role == Role::Input || param.attrs.role == Role::Shifted;
        return param.type.rank() > 0 && (is_chunk(param.type.shape[0]) || (input && is_tokens(param.type.shape[0])));
    }

    [[nodiscard]] const Dim& operand_axis(const Op& op) const {
        return program_.op(op.args[0]).type.shape[static_cast<std::size_t>(op.attrs.dim)];
    }
    [[nodiscard]] const Dim& contracted_axis(const Op& op) const {
        return program_.op(op.args[0]).type.shape[op.attrs.trans_a ? 0 : 1];
    }

    [[nodiscard]] bool admits(const ir::Result& r) const {
        const Shape& shape = program_.op(r.value).type.shape;
        if (r.role == Role::State || r.role == Role::After || r.role == Role::Chunk) return true;
        const bool numbers = shape.size() == 1 && is_tokens(shape[0]);
        if (numbers && channels_ != kHeadChannels) return true;
        if (channels_ == kHeadChannels)
            return !shape.empty() && is_tokens(shape[0]) &&
                   std::all_of(shape.begin() + 1, shape.end(), [](const Dim& d) { return d == Dim(1); });
        if (shape.size() == 3) return is_tokens(shape[0]) && is_rows(shape[1]) && is_channels(shape[2]);
        return shape.size() == 2 && is_tokens(shape[0]) && (is_channels(shape[1]) || is_rows(shape[1]));
    }

    /// What a thread has of a parameter: its channels, or a number. Numbers of heads are channels where heads are.
    [[nodiscard]] Shape collapsed(const Op& param) const {
        const Role role = param.attrs.role;
        const bool of_head =
            channels_ == kHeadChannels && (role == Role::Input || role == Role::Shifted || role == Role::Head ||
                                           role == Role::State || role == Role::Before);
        return shape_with(has_rows(param.type), of_head || has_channels(param.type));
    }

    /// A sum or maximum over channels or rows.
    ValueId reduced(Function& out, const Op& op, const Dim& axis, Opcode code, ValueId v) const {
        const ir::Type type = out.op(v).type;
        const bool rows = graph::has_rows(type), channels = graph::has_channels(type), of_rows = is_rows(axis);
        if (of_rows ? rows : channels) {
            if (rows && !of_rows) {  // a number of each row has an axis of one channel
                ir::Attrs attrs;
                attrs.dim = 2;
                v = ir::emit(out, Opcode::Unsqueeze, {v}, attrs, op.where);
            }
            Op sum{code, {type.dtype, shape_with(rows && !of_rows, channels && of_rows)}, {v}, {}, op.name, op.where,
                   {}};
            sum.attrs.dim = rows && !of_rows ? 1 : 0;
            return out.add(std::move(sum));
        }
        if (code == Opcode::Amax) return v;
        refuse(Reason::MixedChannels, ir::described(program_, static_cast<ValueId>(&op - program_.ops.data())));
    }

    /// Of values that are combined number by number.
    [[nodiscard]] Shape shape_of_all(const Function& out, const std::vector<ValueId>& args) const {
        const auto any = [&](bool (*has)(const ir::Type&)) {
            return std::any_of(args.begin(), args.end(), [&](ValueId a) { return has(out.op(a).type); });
        };
        return shape_with(any(graph::has_rows), any(graph::has_channels));
    }
    ValueId multiplied(Function& out, const Op& op, ValueId a, ValueId b) const {
        return out.add({Opcode::Mul, {op.type.dtype, shape_of_all(out, {a, b})}, {a, b}, {}, op.name, op.where, {}});
    }

    /// What a comparison of numbers says, or a triangle by one of the places of tokens, of which there is one.
    static std::optional<bool> truth(const Function& out, ValueId v) {
        const Op& op = out.op(v);
        if (op.args.size() != 2) return std::nullopt;
        const Op &a = out.op(op.args[0]), &b = out.op(op.args[1]);
        const bool numbers = a.code == Opcode::Constant && b.code == Opcode::Constant,
                   place = op.args[0] == op.args[1] && a.code == Opcode::Param && a.attrs.role == Role::Mask;
        if (!numbers && !place) return std::nullopt;
        const auto value = ir::formula_of(op.code, a.attrs.value, b.attrs.value);
        return value ? std::optional(*value != 0) : std::nullopt;
    }

    [[nodiscard]] Function collapsed() const {
        std::set<ValueId> nothing;  // sums over no tokens, and what they are multiplied by
        return ir::rebuild(program_, [&](Function& out, const Op& op, std::vector<ValueId> args) {
            const auto zero = [&] {
                const ValueId v = ir::emit_constant(out, 0, op.where);
                nothing.insert(v);
                return v;
            };
            const auto emit = [&](Opcode code, std::vector<ValueId> of) {
                return ir::emit(out, code, std::move(of), {}, op.where, op.name);
            };
            switch (ir::along(op.code)) {
                case Along::Copied:
                case Along::Permuted:
                case Along::Inserted:
                case Along::Removed:
                case Along::Broadcast:
                case Along::Repeated:
                case Along::Selected:
                    return args[0];
                case Along::Reduced:
                    if (op.code == Opcode::Sum && nothing.contains(args[0])) return zero();
                    return is_kept(operand_axis(op)) ? reduced(out, op, operand_axis(op), op.code, args[0]) : args[0];
                case Along::Scanned:
                    return op.attrs.exclusive ? zero() : args[0];
                case Along::RowScan:
                    return op.attrs.exclusive ? zero() : args[1];
                case Along::Triangle:
                    return (op.code == Opcode::Tril ? op.attrs.diagonal >= 0 : op.attrs.diagonal <= 0) ? args[0]
                                                                                                       : zero();
                case Along::Pairs:
                    return ir::emit_constant(out, op.attrs.exclusive ? 0 : 1, op.where);
                case Along::Contracted: {
                    ValueId product = multiplied(out, op, args[0], args[1]);
                    if (is_kept(contracted_axis(op)))
                        product = reduced(out, op, contracted_axis(op), Opcode::Sum, product);
                    if (args.size() == 2) return product;
                    return emit(op.code == Opcode::MatmulAdd ? Opcode::Add : Opcode::Sub, {args[2], product});
                }
                case Along::Leaf: {
                    const ValueId v = ir::keep(out, op, std::move(args));
                    out.op(v).type.shape = op.code == Opcode::Param ? collapsed(op) : Shape{};
                    return v;
                }
                case Along::Pointwise: {
                    if (op.code == Opcode::Where)
                        if (const auto known = truth(out, args[0])) return args[*known ? 1 : 2];
                    if (op.code == Opcode::Exp &&
                        out.op(args[0]).code == Opcode::Constant)  // what decays within a token
                        return ir::emit_constant(out, std::exp(out.op(args[0]).attrs.value), op.where);
                    if (op.code == Opcode::Mul && (nothing.contains(args[0]) || nothing.contains(args[1])))
                        return zero();
                    if (op.code == Opcode::Mul || op.code == Opcode::Add) std::sort(args.begin(), args.end());
                    const Shape shape = shape_of_all(out, args);
                    const ValueId v = ir::keep(out, op, std::move(args));
                    out.op(v).type.shape = shape;
                    return v;
                }
                case Along::Place:
                case Along::Shifted:
                case Along::Normalised:
                case Along::Cut:
                case Along::Joined:
                case Along::Matrix:
                case Along::Rows:
                    break;  // not admitted
            }
            throw InternalError(fmt::format("token_program: no rule for {}", ir::info(op.code).name));
        });
    }

    /// Rows are gone through one after another, so that sums over them come late: no row reads one.
    static void check_sums(const Function& token) {
        std::vector<ValueId> sums;
        for (ValueId v = 0; v < token.size(); ++v)
            if (sums_rows(token, token.op(v))) sums.push_back(v);
        const std::vector<bool> late = ir::depends_on(token, sums);
        for (ValueId v = 0; v < token.size(); ++v)
            if (late[static_cast<std::size_t>(v)] && graph::has_rows(token.op(v).type))
                refuse(Reason::SummedRows, ir::described(token, v), to_string(token.op(v).type.shape[0]));
    }

    /// What is summed over channels may as well be summed over tokens first: contributions to states that are numbers
    /// become vectors, of which whoever adds them up takes the sum. A number for each of a vector's channels stays one.
    [[nodiscard]] Function with_spread_contributions(const Function& token) const {
        Function out = token;
        for (ir::Result& r : out.results) {
            const ir::Type& type = out.op(r.value).type;
            if (r.role == Role::Chunk && graph::has_rows(type) && !graph::has_channels(type))
                refuse(Reason::NotVectors, r.name, to_string(type.shape));
            const bool number = r.role == Role::Chunk && type.rank() == 0;
            if (!number || has_channels(program_.op(program_.result(r.name, Role::Chunk)).type)) continue;
            const auto spread = spread_out(out, r.value);
            if (!spread) refuse(Reason::NotVectors, r.name, to_string(out.op(r.value).type.shape));
            r.value = *spread;
        }
        return dce(cse(out));
    }

    /// A vector of channels whose sum is the number v, or channels of each row whose sums are those of v.
    static std::optional<ValueId> spread_out(Function& out, ValueId v) {
        const Op op = out.op(v);
        const auto with = [&](std::vector<ValueId> args) {
            return ir::emit(out, op.code, std::move(args), {}, op.where);
        };
        const auto part = [&](std::size_t i) { return spread_out(out, op.args[i]); };
        switch (op.code) {
            case Opcode::Sum:
                return sums_rows(out, op) ? summed_rows(out, part(0)) : summed_channels(out, op.args[0]);
            case Opcode::Neg:
                if (const auto x = part(0)) return with({*x});
                return std::nullopt;
            case Opcode::Add:
            case Opcode::Sub:
                if (const auto a = part(0), b = a ? part(1) : std::nullopt; b) return with({*a, *b});
                return std::nullopt;
            case Opcode::Mul:
                if (const auto a = part(0)) return with({*a, op.args[1]});
                if (const auto b = part(1)) return with({op.args[0], *b});
                return std::nullopt;
            case Opcode::Div:
                if (const auto a = part(0)) return with({*a, op.args[1]});
                return std::nullopt;
            default:
                return std::nullopt;
        }
    }

    /// What a sum over channels is of, which has rows where it has an axis of one channel.
    static ValueId summed_channels(const Function& out, ValueId v) {
        return out.op(v).code == Opcode::Unsqueeze ? out.op(v).args[0] : v;
    }
    static std::optional<ValueId> summed_rows(Function& out, std::optional<ValueId> of_rows) {
        if (!of_rows) return std::nullopt;
        return ir::emit(out, Opcode::Sum, {*of_rows}, {});
    }

    bool backwards_;  ///< the states are carried from the last token to the first
    const Function program_;
    std::string channels_;
    std::optional<Dim> rows_;
};

}  // namespace

void check_maps(const Function& token) {
    for (const Transition& t : transitions(token))
        if (!has_map(token, t)) refuse(Reason::NotAffine, t.state);
}

bool sums_rows(const Function& token, const Op& op) {
    return ir::along(op.code) == Along::Reduced && op.attrs.dim == 0 && has_rows(token.op(op.args[0]).type);
}

bool mixes_channels(const Function& token) {
    return std::any_of(token.ops.begin(), token.ops.end(),
                       [&](const Op& op) { return ir::along(op.code) == Along::Reduced && !sums_rows(token, op); });
}

std::optional<Dim> rows_of(const Function& token) {
    for (const Op& op : token.ops)
        if (has_rows(op.type)) return op.type.shape[0];
    return std::nullopt;
}

Function token_program(const Function& program) { return TokenProgram(program).run(); }

}  // namespace forge::graph
