#include "graph/norm_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/text.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Linear;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

ValueId reduced(Function& fn, Opcode code, ValueId v) {
    Attrs first;
    first.dim = 0;
    while (fn.op(v).type.rank() > 0) v = ir::emit(fn, code, {v}, first);
    return v;
}

ValueId largest(Function& fn, ValueId v) { return reduced(fn, Opcode::Amax, ir::emit(fn, Opcode::Abs, {v})); }
ValueId squared_length(Function& fn, ValueId v) { return reduced(fn, Opcode::Sum, ir::emit(fn, Opcode::Mul, {v, v})); }
ValueId length(Function& fn, ValueId v) { return ir::emit(fn, Opcode::Sqrt, {squared_length(fn, v)}); }
ValueId product(Function& fn, ValueId a, ValueId b) { return ir::emit(fn, Opcode::Mul, {a, b}); }

/// The value under views and conversions: two operands that are one vector in different clothes.
ValueId stripped(const Function& fn, ValueId v) {
    for (;;) {
        const Op& op = fn.op(v);
        const bool clothes = op.code == Opcode::Unsqueeze || op.code == Opcode::Squeeze || op.code == Opcode::To ||
                             op.code == Opcode::CacheResult;
        if (!clothes) return v;
        v = op.args[0];
    }
}

bool is_single(const ir::Type& type) {
    return std::all_of(type.shape.begin(), type.shape.end(), [](const Dim& d) { return d == Dim(1); });
}

/// How the linear part of a value is made from the state.
struct Form {
    enum class Kind : std::uint8_t {
        Map,      ///< anything, of norm `norm`
        Read,     ///< factor * bᵀ base, or base b: what a vector reads from `base`
        RankOne,  ///< factor * a bᵀ base, or base b aᵀ
    } kind = Kind::Map;
    ValueId norm = ir::kNoValue;
    ValueId base = ir::kNoValue, a = ir::kNoValue, b = ir::kNoValue, factor = ir::kNoValue;
    bool left = true;  ///< bᵀ base rather than base b
};

/// Bounds the linear part of the values of one token's recurrence; norms are ops appended to the
/// function.
class TokenBound {
  public:
    TokenBound(Function& fn, const std::string& state) : fn_(fn), varies_(fn.ops.size(), false) {
        for (ValueId v = 0; v < fn.size(); ++v) {
            const Op& op = fn.op(v);
            const bool param = op.code == Opcode::Param && op.attrs.role == Role::State && op.attrs.name == state;
            varies_[static_cast<std::size_t>(v)] =
                param || std::any_of(op.args.begin(), op.args.end(), [&](ValueId a) { return varies(a); });
        }
    }

    /// The norm of v as a map of the state; nullopt where an op stands in the way (`obstacle`).
    std::optional<ValueId> norm(ValueId v) {
        if (!varies(v)) return number(0);
        const auto form = form_of(v);
        return form ? norm(*form) : std::nullopt;
    }
    [[nodiscard]] ValueId obstacle() const { return obstacle_; }

  private:
    [[nodiscard]] bool varies(ValueId v) const {
        return static_cast<std::size_t>(v) < varies_.size() && varies_[static_cast<std::size_t>(v)];
    }
    ValueId number(double x) { return ir::emit_constant(fn_, x); }

    std::optional<ValueId> norm(const Form& f) {
        if (f.kind == Form::Kind::Map) return f.norm;
        const auto base = norm(f.base);
        if (!base) return std::nullopt;
        const ValueId read =
            product(fn_, product(fn_, *base, length(fn_, f.b)), ir::emit(fn_, Opcode::Abs, {f.factor}));
        return f.kind == Form::Kind::Read ? read : product(fn_, read, length(fn_, f.a));
    }

    std::optional<Form> form_of(ValueId v) {
        if (const auto it = known_.find(v); it != known_.end()) return it->second;
        const auto form = derive(v);
        if (!form && obstacle_ == ir::kNoValue) obstacle_ = v;
        return known_[v] = form;
    }

    std::optional<Form> derive(ValueId v) {
        const Op op = fn_.op(v);  // a copy: the function grows
        switch (ir::linear(op.code)) {
            case Linear::Negated:
                return scaled(form_of(op.args[0]), number(-1));
            case Linear::Same:
                return form_of(op.args[0]);
            case Linear::Rearranged:
                if (op.code == Opcode::Permute || op.code == Opcode::Unsqueeze || op.code == Opcode::Squeeze)
                    return form_of(op.args[0]);
                return std::nullopt;
            case Linear::Sum:
            case Linear::Difference:
                return sum(op);
            case Linear::Product:
                return varies(op.args[0]) ? multiplied(op, op.args[0], op.args[1])
                                          : multiplied(op, op.args[1], op.args[0]);
            case Linear::Contraction:
                return read(op);
            case Linear::Opaque:
                return op.code == Opcode::Param ? std::optional(Form{Form::Kind::Map, number(1)}) : std::nullopt;
            case Linear::Quotient:
            case Linear::Selected:
            case Linear::Joined:
            case Linear::Summed:
            case Linear::Masked:
            case Linear::Second:
            case Linear::Weighted:
            case Linear::Accumulated:
            case Linear::Subtracted:
                return std::nullopt;
        }
        return std::nullopt;
    }

    std::optional<Form> scaled(std::optional<Form> f, ValueId number) {
        if (!f) return std::nullopt;
        if (f->kind == Form::Kind::Map) f->norm = product(fn_, f->norm, ir::emit(fn_, Opcode::Abs, {number}));
        else f->factor = product(fn_, f->factor, number);
        return f;
    }

    /// x times what does not depend on the state: a number, factors, or the vector of an outer
    /// product.
    std::optional<Form> multiplied(const Op& op, ValueId x, ValueId factors) {
        if (varies(factors)) return std::nullopt;
        const auto form = form_of(x);
        if (!form) return std::nullopt;
        const ir::Type type = fn_.op(factors).type;
        if (is_single(type)) return scaled(form, reduced(fn_, Opcode::Sum, factors));
        const ir::Type from = fn_.op(x).type;
        const bool outer = form->kind == Form::Kind::Read && from.rank() == 2 && op.type.rank() == 2 &&
                           type.rank() == 2 && type.shape[form->left ? 1 : 0] == Dim(1) &&
                           from.shape[form->left ? 0 : 1] == Dim(1);
        if (outer) {
            Form out = *form;
            out.kind = Form::Kind::RankOne;
            out.a = factors;
            return out;
        }
        const auto of_x = norm(*form);
        if (!of_x) return std::nullopt;
        const bool spreads = from.shape != op.type.shape;  // an entry of x meets several factors
        return Form{Form::Kind::Map, product(fn_, *of_x, spreads ? length(fn_, factors) : largest(fn_, factors))};
    }

    std::optional<Form> read(const Op& op) {
        const bool left = !varies(op.args[0]);
        const ValueId x = op.args[left ? 1 : 0], m = op.args[left ? 0 : 1];
        if (varies(m) || op.attrs.trans_a || op.attrs.trans_b) return std::nullopt;
        const auto form = form_of(x);
        if (!form) return std::nullopt;
        const bool vector = fn_.op(m).type.rank() == 2 && fn_.op(m).type.shape[left ? 0 : 1] == Dim(1);
        if (vector) return Form{Form::Kind::Read, ir::kNoValue, x, ir::kNoValue, m, number(1), left};
        const auto of_x = norm(*form);
        if (!of_x) return std::nullopt;
        return Form{Form::Kind::Map,
                    product(fn_, *of_x, length(fn_, m))};  // Frobenius' norm is no less than the operator's
    }

    std::optional<Form> sum(const Op& op) {
        const bool minus = op.code == Opcode::Sub;
        if (!varies(op.args[1])) return form_of(op.args[0]);
        const auto second = minus ? scaled(form_of(op.args[1]), number(-1)) : form_of(op.args[1]);
        if (!varies(op.args[0])) return second;
        const auto first = form_of(op.args[0]);
        if (!first || !second) return std::nullopt;
        if (second->kind == Form::Kind::RankOne && second->base == op.args[0]) return updated(*first, *second);
        if (!minus && first->kind == Form::Kind::RankOne && first->base == op.args[1]) return updated(*second, *first);
        const auto a = norm(*first), b = norm(*second);
        if (!a || !b) return std::nullopt;
        return Form{Form::Kind::Map, ir::emit(fn_, Opcode::Add, {*a, *b})};
    }

    /// (I + c a bᵀ) base.
    std::optional<Form> updated(const Form& base, const Form& change) {
        const auto of_base = norm(base);
        if (!of_base) return std::nullopt;
        ValueId of_update;
        if (stripped(fn_, change.a) == stripped(fn_, change.b)) {
            const ValueId along =
                ir::emit(fn_, Opcode::Add, {product(fn_, change.factor, squared_length(fn_, change.a)), number(1)});
            of_update = ir::emit(fn_, Opcode::Maximum, {ir::emit(fn_, Opcode::Abs, {along}), number(1)});
        } else {
            const ValueId lengths = product(fn_, length(fn_, change.a), length(fn_, change.b));
            of_update = ir::emit(fn_, Opcode::Add,
                                 {product(fn_, ir::emit(fn_, Opcode::Abs, {change.factor}), lengths), number(1)});
        }
        return Form{Form::Kind::Map, product(fn_, *of_base, of_update)};
    }

    Function& fn_;
    std::vector<bool> varies_;
    std::map<ValueId, std::optional<Form>> known_;
    ValueId obstacle_ = ir::kNoValue;
};

Function with_result(Function fn, const std::string& state, ValueId value) {
    fn.name = state + "_norm";
    fn.results = {{state, Role::Cached, value}};
    return dce(cse(canonicalize(std::move(fn))));
}

NormBound over_chunk(const Function& program, const Transition& t) {
    NormBound bound{t.state, NormBound::Over::Chunk, {}, ""};
    if (t.cls == TransitionClass::Identity) {
        Function one;
        const ValueId value = ir::emit_constant(one, 1);
        bound.fn = with_result(std::move(one), t.state, value);
        return bound;
    }
    Function fn = summary(program);
    bound.fn = with_result(fn, t.state, largest(fn, fn.result(t.state, Role::Ones)));
    return bound;
}

NormBound over_token(const ir::Definition& def, const Transition& t) {
    NormBound bound{t.state, NormBound::Over::Nothing, {}, "there is no step to read it from"};
    if (!def.step) return bound;
    Function fn = *def.step;
    const ValueId next = fn.result(t.state, Role::State);
    TokenBound token(fn, t.state);
    if (const auto norm = token.norm(next)) {
        bound.over = NormBound::Over::Token;
        bound.obstacle.clear();
        bound.fn = with_result(fn, t.state, *norm);
    } else {
        bound.obstacle = ir::print_op(*def.step, token.obstacle());
    }
    return bound;
}

}  // namespace

std::vector<NormBound> norm_bounds(const Function& program, const ir::Definition& def) {
    const auto all = transitions(program);
    const bool composable = std::all_of(all.begin(), all.end(), [](const Transition& t) { return t.composable(); });
    std::vector<NormBound> bounds;
    for (const Transition& t : all) {
        if (!t.composable()) bounds.push_back({t.state, NormBound::Over::Nothing, {}, t.obstacle});
        else if (t.is_matrix()) bounds.push_back(over_token(def, t));
        else if (t.cls == TransitionClass::Identity || composable) bounds.push_back(over_chunk(program, t));
        else bounds.push_back({t.state, NormBound::Over::Nothing, {}, "another state has no summary"});
    }
    return bounds;
}

std::string to_string(const NormBound& bound) {
    switch (bound.over) {
        case NormBound::Over::Nothing:
            return fmt::format("{}: no bound, because of {}\n", bound.state, bound.obstacle);
        case NormBound::Over::Chunk:
            return fmt::format("{}: over a chunk at most\n{}", bound.state, ir::print(bound.fn));
        case NormBound::Over::Token:
            return fmt::format("{}: over each token at most\n{}", bound.state, ir::print(bound.fn));
    }
    return "";
}

}  // namespace forge::graph
