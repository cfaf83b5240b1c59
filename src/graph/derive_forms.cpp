#include "graph/derive_forms.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "ir/infer.h"

namespace forge::graph {
namespace {

using ir::Op;
using ir::Opcode;
using ir::ValueId;
using Axis = Decay::Axis;

Shape core_shape(const ChunkWriter& out, TokenRow x) {
    const Shape& shape = out.type(x.v).shape;
    return {shape.begin() + (x.tokens ? 1 : 0), shape.end()};
}

TokenRow combined(ChunkWriter& out, Opcode code, TokenRow a, TokenRow b) {
    const Shape left = core_shape(out, a), right = core_shape(out, b);
    const Shape& result = left.size() >= right.size() ? left : right;
    const ir::Function none;
    const Location where = out.fn.op(a.v).where;  // operations are added
    return TokenRows(none, out).pointwise(code, {a, b}, {left, right}, result, {}, where);
}

/// A key without factors of whole rows, and those.
std::pair<TokenRow, TokenRow> without_numbers(ChunkWriter& out, TokenRow key) {
    const Op op = out.fn.op(key.v);
    if (op.code != Opcode::Mul) return {key, {}};
    for (const std::size_t i : {0U, 1U}) {
        const ValueId factor = op.args[i], rest = op.args[1 - i];
        const Op f = out.fn.op(factor);
        if (out.type(rest).shape != op.type.shape) continue;
        const bool number = f.type.rank() == 0, row = f.code == Opcode::Unsqueeze && f.type.rank() == 2 &&
                                                      out.type(f.args[0]).rank() == 1 && f.attrs.dim == 1;
        if (!number && !row) continue;
        const auto [core, others] = without_numbers(out, {rest, key.tokens});
        const TokenRow own = number ? TokenRow{factor, false} : TokenRow{f.args[0], true};
        return {core, times(out, own, others)};
    }
    return {key, {}};
}

}  // namespace

TokenRow times(ChunkWriter& out, TokenRow a, TokenRow b) {
    if (a.v == ir::kNoValue || b.v == ir::kNoValue) return a.v == ir::kNoValue ? b : a;
    if (out.is_number(a.v, 1)) return b;
    if (out.is_number(b.v, 1)) return a;
    if (out.is_number(a.v, -1)) return {out.neg(b.v), b.tokens};
    if (out.is_number(b.v, -1)) return {out.neg(a.v), a.tokens};
    return combined(out, Opcode::Mul, a, b);
}

TokenRow plus(ChunkWriter& out, TokenRow a, TokenRow b, bool minus) {
    if (b.v == ir::kNoValue) return a;
    if (a.v == ir::kNoValue) return minus ? TokenRow{out.neg(b.v), b.tokens} : b;
    if (!minus && out.fn.op(b.v).code == Opcode::Neg) return plus(out, a, {out.fn.op(b.v).args[0], b.tokens}, true);
    return combined(out, minus ? Opcode::Sub : Opcode::Add, a, b);
}

StateForms::StateForms(const ir::Function& step, ChunkWriter& out, KnownValues& known, std::string name,
                       const Shape& shape, int key_axis, std::map<ValueId, std::string> others)
    : step_(step),
      out_(out),
      known_(known),
      name_(std::move(name)),
      rank_(wide_axes(shape).size()),
      key_axis_(key_axis),
      others_(std::move(others)) {}

void StateForms::refuse(const Op& op, const std::string& why) const {
    throw CompileError(
        Diagnostic{fmt::format("derive: the state '{}' has no chunk form: {}", name_, why),
                   "S' = D * S + sum of outer(a, u): D scalar, per row or per column; u affine in reads matmul(b, S)",
                   ir::info(op.code).name, op.where,
                   "write the phases chunk, decay and merge by hand, or a step of that form, or have it run token by "
                   "token (sequential)"});
}

void StateForms::refuse_sign(const Op& op) const {
    throw NegativeFactor(
        Diagnostic{fmt::format("derive: the state '{}' is multiplied by a factor that may be negative", name_),
                   "a factor that is not negative: exp(g), sigmoid(x), an input, or one whose range is declared",
                   ir::info(op.code).name, op.where, "write decays as exp(g), or declare the ranges of inputs"});
}

/// Sums of more terms than are worth a product each are refused, before sums of them have too many to write down.
void StateForms::check_terms(std::size_t terms, const Op& op) const {
    constexpr std::size_t kMostTerms = 64;
    if (terms > kMostTerms) refuse(op, fmt::format("a sum of more than {} terms", kMostTerms));
}

bool StateForms::is_state(ValueId v) const { return wide_axes(shape(v)).size() == rank_; }

/// The wide axes of v, as axes of the state; `of`: the shape that v is aligned with.
std::vector<int> StateForms::axes_in(ValueId v, const Shape& of) const {
    const std::vector<int> all = wide_axes(of);
    std::vector<int> axes = wide_axes(shape(v));
    for (int& axis : axes) {
        axis += static_cast<int>(of.size() - shape(v).size());
        axis = static_cast<int>(std::find(all.begin(), all.end(), axis) - all.begin());
    }
    return axes;
}

std::shared_ptr<const StateForm> StateForms::state(ValueId v) {
    const auto found = forms_.find(v);
    if (found != forms_.end()) return found->second;
    auto form = std::make_shared<StateForm>(made(v));
    form->where = step_.op(v).where;
    return forms_[v] = std::move(form);
}

StateForm StateForms::made(ValueId v) {
    const Op& op = step_.op(v);
    if (known_.is_known(v)) return of_known(v);
    const auto known = [&](std::size_t i) { return known_.is_known(op.args[i]); };
    const auto whole = [&](std::size_t i) { return !known(i) && is_state(op.args[i]); };
    if (const auto other = others_.find(v); other != others_.end()) return {"", {}, {}, {{other->second, true, {}}}};
    switch (op.code) {
        case Opcode::Param:
            if (op.attrs.name != name_) return {"", {}, {}, {{op.attrs.name, false, {}}}};
            return {name_, {}, {}};
        case Opcode::Add:
        case Opcode::Sub:
            if (is_state(op.args[0]) && is_state(op.args[1]))
                return summed(*state(op.args[0]), *state(op.args[1]), op.code == Opcode::Sub, op);
            break;
        case Opcode::Neg:
            return summed({}, *state(op.args[0]), true, op);
        case Opcode::Mul:
            for (const std::size_t i : {0U, 1U}) {
                if (!known(1 - i)) continue;
                if (whole(i)) return scaled(*state(op.args[i]), op.args[1 - i], op, false);
                return outer_of(op.args[1 - i], op.args[i], op);
            }
            refuse(op, "a product of two values that read it");
        case Opcode::Div:
            if (known(1) && whole(0)) return scaled(*state(op.args[0]), op.args[1], op, true);
            break;
        case Opcode::Matmul:
            if (known(0) == known(1)) refuse(op, "a product of two values that read it");
            if (shape(op.args[0])[1] == Dim(1))
                return outer_of(op.args[known(0) ? 0 : 1], op.args[known(0) ? 1 : 0], op);
            if (whole(known(0) ? 1 : 0) && rank_ == 2 && key_axis_ == (known(0) ? 0 : 1))
                return transformed(op.args[known(0) ? 0 : 1], state(op.args[known(0) ? 1 : 0]), op);
            break;
        case Opcode::Unsqueeze:
        case Opcode::Squeeze:
            return *state(op.args[0]);
        default:
            break;
    }
    refuse(op, fmt::format("{} is not affine in it, or mixes its axes", ir::info(op.code).name));
}

Outer StateForms::outer(TokenRow key, ReadForm value) {
    const auto [core, numbers] = without_numbers(out_, key);
    if (numbers.v != ir::kNoValue) {
        value.known = value.known.v == ir::kNoValue ? value.known : times(out_, value.known, numbers);
        for (Read& read : value.reads) read.coefficient = times(out_, read.coefficient, numbers);
    }
    return {core, std::make_shared<const ReadForm>(std::move(value))};
}

std::vector<std::pair<TokenRow, TokenRow>> StateForms::outers_of(ValueId v, const Op& user) {
    const Op& op = step_.op(v);
    const auto first = [&] { return outers_of(op.args[0], user); };
    switch (op.code) {
        case Opcode::Add:
        case Opcode::Sub: {
            if (wide_axes(shape(op.args[0])).size() != 2 || wide_axes(shape(op.args[1])).size() != 2) break;
            auto all = first();
            for (auto [x, y] : outers_of(op.args[1], user))
                all.emplace_back(op.code == Opcode::Sub ? TokenRow{out_.neg(x.v), x.tokens} : x, y);
            check_terms(all.size(), op);
            return all;
        }
        case Opcode::Neg: {
            auto all = first();
            for (auto& [x, y] : all) x = {out_.neg(x.v), x.tokens};
            return all;
        }
        case Opcode::Mul: {
            for (const std::size_t i : {0U, 1U}) {
                const std::vector<int> axes = axes_in(op.args[1 - i], op.type.shape);
                if (axes.size() == 2) continue;
                const TokenRow factor = known_.known(op.args[1 - i]);
                if (axes == std::vector<int>{1} && axes_in(op.args[i], op.type.shape) == std::vector<int>{0})
                    return {{known_.known(op.args[i]), factor}};
                if (wide_axes(shape(op.args[i])).size() != 2) continue;
                auto all = outers_of(op.args[i], user);
                for (auto& [x, y] : all)
                    (axes == std::vector<int>{1} ? y : x) = times(out_, axes == std::vector<int>{1} ? y : x, factor);
                return all;
            }
            break;
        }
        case Opcode::Matmul:
            if (shape(op.args[0])[1] == Dim(1)) return {{known_.known(op.args[0]), known_.known(op.args[1])}};
            break;
        case Opcode::Unsqueeze:
        case Opcode::Squeeze:
            return first();
        case Opcode::Permute: {
            auto all = first();
            for (auto& [x, y] : all) std::swap(x, y);
            return all;
        }
        default:
            break;
    }
    refuse(op.code == Opcode::Param ? user : op,
           "a matrix that is no sum of outer products is added to it or multiplied with it");
}

StateForm StateForms::of_known(ValueId v) {
    const Op& op = step_.op(v);
    StateForm form;
    if (out_.is_number(known_.known(v).v, 0)) return form;
    if (op.code == Opcode::Expand && step_.op(op.args[0]).code == Opcode::Constant &&
        step_.op(op.args[0]).attrs.value == 0)
        return form;
    if (rank_ == 1) {
        form.outers.push_back(outer(known_.known(v), {{out_.constant(1), false}, {}}));
        return form;
    }
    for (auto [x, y] : outers_of(v, op)) {
        if (key_axis_ == 1) std::swap(x, y);
        append(form.outers, outer(x, {y, {}}), false);
    }
    return form;
}

/// key ⊗ vector, of which the vector reads the state.
StateForm StateForms::outer_of(ValueId key, ValueId vector, const Op& op) {
    const Shape& result = op.type.shape;
    if (op.code == Opcode::Mul) {
        const std::vector<int> key_axes = axes_in(key, result), own = axes_in(vector, result);
        if (key_axes != std::vector<int>{key_axis_} || (!own.empty() && (rank_ == 1 || own[0] == key_axis_)))
            refuse(op, "what reads it is written along the axis that is read");
    } else if (rank_ == 2) {
        const bool left = op.args[0] == key;
        if (key_axis_ != (left ? 0 : 1)) refuse(op, "what reads it is written along the axis that is read");
    }
    StateForm form;
    form.outers.push_back(outer(known_.known(key), read(vector)));
    return form;
}

Decay StateForms::decay(ValueId factor, const Op& op, bool inverse) {
    TokenRow f = known_.known(factor);
    if (inverse) f = {out_.emit(Opcode::Reciprocal, {f.v}, {}, op.where), f.tokens};
    const std::vector<int> axes = axes_in(factor, op.type.shape);
    if (axes.size() == 2 || (rank_ == 2 && axes.size() > 1)) refuse(op, "it decays by a factor for every element");
    const auto log = logarithm(out_, f);
    if (!log) refuse_sign(op);
    return {axes.empty() ? Axis::None : axes[0] == key_axis_ ? Axis::Key : Axis::Value, f, *log};
}

StateForm StateForms::scaled(StateForm form, ValueId factor, const Op& op, bool inverse) {
    TokenRow f = known_.known(factor);
    if (out_.is_number(f.v, 1)) return form;
    if (inverse) f = {out_.emit(Opcode::Reciprocal, {f.v}, {}, op.where), f.tokens};
    const std::vector<int> axes = axes_in(factor, op.type.shape);
    if (axes.size() == 2) refuse(op, "it decays by a factor for every element");
    if (!form.state.empty()) form.scale.push_back(decay(factor, op, inverse));
    for (Coupling& c : form.couplings) {
        if (!axes.empty()) refuse(op, "another matrix is added to it with a factor per row or column");
        c.coefficient = times(out_, c.coefficient, f);
    }
    for (Outer& o : form.outers) {
        if (axes.empty() || axes[0] == key_axis_) {
            o.key = times(out_, o.key, f);
        } else {
            if (!o.is_known()) refuse(op, "what reads it decays by columns within the token");
            o.value = std::make_shared<const ReadForm>(ReadForm{times(out_, o.value->known, f), {}});
        }
    }
    return form;
}

void StateForms::append(std::vector<Outer>& outers, const Outer& added, bool minus) {
    const auto one = [&](const ReadForm& x) {
        ReadForm value = x;
        if (minus && value.known.v != ir::kNoValue) value.known = {out_.neg(value.known.v), value.known.tokens};
        for (Read& r : value.reads)
            if (minus) r.coefficient = times(out_, r.coefficient, {out_.constant(-1), false});
        return value;
    };
    const auto free = [&](const Outer& o) { return !solved_.contains(o.value.get()); };
    for (Outer& o : outers) {
        if (o.key.v != added.key.v || !free(o) || !free(added)) continue;
        ReadForm sum = *o.value;
        const ReadForm more = one(*added.value);
        sum.known = plus(out_, sum.known, more.known);
        sum.reads.insert(sum.reads.end(), more.reads.begin(), more.reads.end());
        o.value = std::make_shared<const ReadForm>(std::move(sum));
        return;
    }
    if (!minus) return outers.push_back(added);
    if (!free(added)) return outers.push_back({{out_.neg(added.key.v), added.key.tokens}, added.value});
    outers.push_back({added.key, std::make_shared<const ReadForm>(one(*added.value))});
}

StateForm StateForms::summed(StateForm a, const StateForm& b, bool minus, const Op& op) {
    for (const Outer& o : b.outers) append(a.outers, o, minus);
    for (Coupling c : b.couplings) {
        if (minus) c.coefficient = times(out_, c.coefficient, {out_.constant(-1), false});
        a.couplings.push_back(std::move(c));
    }
    std::size_t terms = a.couplings.size();
    for (const Outer& o : a.outers) terms += 1 + o.value->reads.size();
    check_terms(terms, op);
    if (b.state.empty()) return a;
    if (a.state.empty()) {
        if (minus) refuse_sign(op);
        a.state = b.state;
        a.scale = b.scale;
        return a;
    }
    // f S ± g S: the factors are added.
    const auto whole = [&](const Scale& scale) {
        Decay all{Axis::None, {out_.constant(1), false}, {}};
        for (const Decay& d : scale) {
            if (all.axis != Axis::None && d.axis != Axis::None && d.axis != all.axis)
                refuse(op, "it is added to itself with factors of both axes");
            all.axis = std::max(all.axis, d.axis);
            all.factor = times(out_, all.factor, d.factor);
        }
        return all;
    };
    const Decay x = whole(a.scale), y = whole(b.scale);
    if (x.axis != Axis::None && y.axis != Axis::None && x.axis != y.axis)
        refuse(op, "it is added to itself with factors of both axes");
    Decay sum{std::max(x.axis, y.axis), plus(out_, x.factor, y.factor, minus), {}};
    const auto log = logarithm(out_, sum.factor);
    if (!log) refuse_sign(op);
    sum.log = *log;
    a.scale = {sum};
    return a;
}

/// (Σ c I + Σ x yᵀ) @ S, or S @ (…) where keys have axis 1.
StateForm StateForms::transformed(ValueId matrix, const std::shared_ptr<const StateForm>& form, const Op& op) {
    if (const auto it = transformed_.find({matrix, form}); it != transformed_.end()) return it->second;
    StateForm made = transformed_anew(matrix, form, op);
    return transformed_.emplace(std::pair(matrix, form), std::move(made)).first->second;
}

StateForm StateForms::transformed_anew(ValueId matrix, const std::shared_ptr<const StateForm>& form, const Op& op) {
    const Op& m = step_.op(matrix);
    if (m.code == Opcode::Identity) return *form;
    if (m.code == Opcode::Add || m.code == Opcode::Sub) {
        const bool wide = wide_axes(shape(m.args[0])).size() == 2 && wide_axes(shape(m.args[1])).size() == 2;
        if (wide)
            return summed(transformed(m.args[0], form, op), transformed(m.args[1], form, op), m.code == Opcode::Sub, m);
    }
    if (m.code == Opcode::Mul)
        for (const std::size_t i : {0U, 1U}) {
            const bool identity = step_.op(m.args[i]).code == Opcode::Identity;
            if (wide_axes(shape(m.args[1 - i])).size() > (identity ? 1U : 0U) ||
                wide_axes(shape(m.args[i])).size() != 2)
                continue;
            if (!identity) return scaled(transformed(m.args[i], form, op), m.args[1 - i], m, false);
            // A diagonal of factors: rows of the state decay by them, whichever axis of the identity they lie along.
            StateForm diagonal = *form;
            const TokenRow f = known_.known(m.args[1 - i]);
            const auto log = logarithm(out_, f);
            if (!log) refuse_sign(m);
            const bool number = wide_axes(shape(m.args[1 - i])).empty();
            if (!number && !diagonal.couplings.empty())
                refuse(m, "another matrix is added to it with a factor per row or column");
            for (Coupling& c : diagonal.couplings) c.coefficient = times(out_, c.coefficient, f);
            if (!diagonal.state.empty()) diagonal.scale.push_back({number ? Axis::None : Axis::Key, f, *log});
            for (Outer& o : diagonal.outers) o.key = times(out_, o.key, f);
            return diagonal;
        }
    StateForm low_rank;
    for (auto [x, y] : outers_of(matrix, op)) {
        if (key_axis_ == 1) std::swap(x, y);
        const auto [core, numbers] = without_numbers(out_, x);
        Read r = read_of(y, form);
        r.coefficient = numbers;
        append(low_rank.outers, outer(core, {{}, {r}}), false);
    }
    return low_rank;
}

Read StateForms::read_of(TokenRow key, std::shared_ptr<const StateForm> of) {
    for (const Outer& o : of->outers)
        if (!o.is_known()) solved_.insert(o.value.get());
    return {{}, key, std::move(of)};
}

std::optional<std::pair<ValueId, ValueId>> StateForms::read_operands(ValueId v, int axis) const {
    const Op& op = step_.op(v);
    const auto is_whole = [&](ValueId x) { return !known_.is_known(x) && is_state(x); };
    if (op.code == Opcode::Matmul) {
        for (const std::size_t i : {0U, 1U}) {
            const ValueId s = op.args[i], key = op.args[1 - i];
            const bool contracts = rank_ == 1 || axis == (i == 0 ? 1 : 0);
            if (is_whole(s) && known_.is_known(key) && contracts && wide_axes(shape(key)).size() == 1 &&
                !(shape(op.args[0])[1] == Dim(1)))
                return std::pair{s, key};
        }
        return std::nullopt;
    }
    if (op.code != Opcode::Sum) return std::nullopt;
    const Op& product = step_.op(op.args[0]);
    if (product.code != Opcode::Mul) return std::nullopt;
    const std::vector<int> all = wide_axes(product.type.shape);
    const auto dim = static_cast<int>(op.attrs.dim < 0 ? op.attrs.dim + product.type.rank() : op.attrs.dim);
    if (static_cast<std::size_t>(std::find(all.begin(), all.end(), dim) - all.begin()) !=
        static_cast<std::size_t>(axis))
        return std::nullopt;
    for (const std::size_t i : {0U, 1U}) {
        const ValueId s = product.args[i], key = product.args[1 - i];
        if (is_whole(s) && known_.is_known(key) && all.size() == rank_ &&
            axes_in(key, product.type.shape) == std::vector<int>{axis})
            return std::pair{s, key};
    }
    return std::nullopt;
}

bool StateForms::is_read(ValueId v) const { return read_operands(v, key_axis_).has_value(); }

bool StateForms::is_read_across(ValueId v) const { return rank_ == 2 && read_operands(v, 1 - key_axis_).has_value(); }

Read StateForms::across(ValueId v) {
    const auto operands = read_operands(v, 1 - key_axis_);
    if (!operands) throw InternalError("derive: no read of values");
    return {{}, known_.known(operands->second), state(operands->first)};
}

ReadForm StateForms::times_known(ReadForm form, TokenRow factor, const Op& op) {
    const bool number = out_.type(factor.v).rank() == (factor.tokens ? 1 : 0);
    if (!number && !form.reads.empty()) refuse(op, "what reads it is multiplied by a vector before it is written");
    if (form.known.v != ir::kNoValue) form.known = times(out_, form.known, factor);
    for (Read& r : form.reads) r.coefficient = times(out_, r.coefficient, factor);
    return form;
}

ReadForm StateForms::read(ValueId v) {
    if (known_.is_known(v)) return {known_.known(v), {}};
    const Op& op = step_.op(v);
    if (const auto operands = read_operands(v, key_axis_)) {
        auto form = state(operands->first);
        return {{}, {read_of(known_.known(operands->second), std::move(form))}};
    }
    switch (op.code) {
        case Opcode::Add:
        case Opcode::Sub: {
            ReadForm a = read(op.args[0]);
            ReadForm b = read(op.args[1]);
            if (op.code == Opcode::Sub) b = times_known(std::move(b), {out_.constant(-1), false}, op);
            a.known = plus(out_, a.known, b.known);
            a.reads.insert(a.reads.end(), b.reads.begin(), b.reads.end());
            check_terms(a.reads.size(), op);
            return a;
        }
        case Opcode::Neg:
            return times_known(read(op.args[0]), {out_.constant(-1), false}, op);
        case Opcode::Mul:
            for (const std::size_t i : {0U, 1U})
                if (known_.is_known(op.args[i])) return times_known(read(op.args[1 - i]), known_.known(op.args[i]), op);
            refuse(op, "a product of two values that read it");
        case Opcode::Div: {
            if (!known_.is_known(op.args[1])) break;
            const TokenRow f = known_.known(op.args[1]);
            return times_known(read(op.args[0]), {out_.emit(Opcode::Reciprocal, {f.v}, {}, op.where), f.tokens}, op);
        }
        case Opcode::Unsqueeze:
        case Opcode::Squeeze:
            return read(op.args[0]);
        default:
            break;
    }
    refuse(op, fmt::format("what is written to it is not affine in it ({})", ir::info(op.code).name));
}

}  // namespace forge::graph
