#include "graph/exponent.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "ir/infer.h"
#include "ir/known.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Linear;
using ir::Op;
using ir::Opcode;
using ir::ValueId;
using Kind = Term::Kind;

std::vector<int> counting(int n, int first = 0) {
    std::vector<int> axes(static_cast<std::size_t>(n));
    std::iota(axes.begin(), axes.end(), first);
    return axes;
}

void shift_axes(Terms& terms, int from, int by) {
    for (Term& t : terms)
        for (int& a : t.axes)
            if (a >= from) a += by;
}

/// Axes of what is unsqueezed or permuted.
void rearrange(std::vector<int>& axes, const Op& op) {
    for (int& a : axes) {
        if (op.code == Opcode::Unsqueeze) a += a >= op.attrs.dim ? 1 : 0;
        else a = static_cast<int>(std::find(op.attrs.perm.begin(), op.attrs.perm.end(), a) - op.attrs.perm.begin());
    }
}

void scale(Terms& terms, double by) {
    for (Term& t : terms) t.coefficient *= by;
}

void append(Terms& into, Terms terms) {
    for (Term& t : terms) add_term(into, std::move(t));
}

Terms scan_terms(const Function& fn, const Op& op) {
    const ValueId g = op.args[0];
    const int rank = fn.op(g).type.rank();
    const Term prefix{Kind::Prefix, 1, g, 1, counting(rank)}, plain{Kind::Plain, 1, g, 1, counting(rank)},
        total{Kind::Total, 1, g, 1, counting(rank - 1, 1)};
    if (op.code == Opcode::Sum) return {{Kind::Total, 1, g, 1, counting(rank - 1)}};
    Terms terms;
    if (!op.attrs.reverse) {
        terms = {prefix};
        if (op.attrs.exclusive) add_term(terms, {Kind::Plain, -1, g, 1, plain.axes});
    } else {
        terms = {total, {Kind::Prefix, -1, g, 1, prefix.axes}};
        if (!op.attrs.exclusive) add_term(terms, plain);
    }
    return terms;
}

Terms opaque(const Function& fn, ValueId v) { return {{Kind::Plain, 1, v, 1, counting(fn.op(v).type.rank())}}; }

/// Whether a running sum or a total of v is taken: then v is an atom, so that its own term cancels against its sum's.
bool is_summed(const Function& fn, ValueId v) {
    return std::any_of(fn.ops.begin(), fn.ops.end(), [v](const Op& op) {
        return (op.code == Opcode::Cumsum || op.code == Opcode::Sum) && op.attrs.dim == 0 && op.args[0] == v;
    });
}

bool is_number(const Function& fn, ValueId v) { return fn.op(v).code == Opcode::Constant; }

/// The atom of a term as a value of rank `rank`.
ValueId emit_atom(Function& fn, const Term& term, int rank, const Location& where) {
    ValueId v = term.g;
    Attrs attrs;
    if (term.kind == Kind::Prefix) v = ir::emit(fn, Opcode::Cumsum, {v}, attrs, where);
    if (term.kind == Kind::Total) v = ir::emit(fn, Opcode::Sum, {v}, attrs, where);
    if (term.repeat != 1) {
        attrs.count = term.repeat;
        v = ir::emit(fn, Opcode::RepeatInterleave, {v}, attrs, where);
    }
    if (term.axes.size() == 2 && term.axes[0] > term.axes[1]) {
        Attrs swap;
        swap.perm = {1, 0};
        v = ir::emit(fn, Opcode::Permute, {v}, swap, where);
    }
    for (int axis = 0; axis < rank; ++axis) {
        if (term.axes.empty() || std::count(term.axes.begin(), term.axes.end(), axis)) continue;
        Attrs at;
        at.dim = axis;
        v = ir::emit(fn, Opcode::Unsqueeze, {v}, at, where);
    }
    return v;
}

/// Replaces `total - prefix [+ plain]` and `prefix - plain` of one gate by the running sum that they equal.
void make_safe(Function& fn, Terms& terms, const Location& where) {
    for (std::size_t i = 0; i < terms.size(); ++i) {
        const Term t = terms[i];
        if (t.kind != Kind::Prefix) continue;
        const double c = std::fabs(t.coefficient);
        const bool reverse = t.coefficient < 0;
        Terms rest = terms;
        const double plain = take(rest, Kind::Plain, t.g, t.repeat, t.axes);
        Attrs scan;
        scan.reverse = reverse;
        if (reverse) {
            const double total = take(rest, Kind::Total, t.g, 1, {t.axes.begin() + 1, t.axes.end()});
            if (total != c || (plain != 0 && plain != c)) continue;
            scan.exclusive = plain == 0;
        } else {
            if (plain != -c) continue;
            scan.exclusive = true;
        }
        take(rest, Kind::Prefix, t.g, t.repeat, t.axes);
        rest.push_back({Kind::Plain, c, ir::emit(fn, Opcode::Cumsum, {t.g}, scan, where), t.repeat, t.axes});
        terms = std::move(rest);
        i = static_cast<std::size_t>(-1);  // start over: indices have moved
    }
}

}  // namespace

void add_term(Terms& terms, Term term) {
    for (auto it = terms.begin(); it != terms.end(); ++it) {
        if (!it->same_atom(term)) continue;
        it->coefficient += term.coefficient;
        if (it->coefficient == 0) terms.erase(it);
        return;
    }
    terms.push_back(std::move(term));
}

double take(Terms& terms, Kind kind, ValueId g, std::int64_t repeat, const std::vector<int>& axes) {
    for (auto it = terms.begin(); it != terms.end(); ++it)
        if (it->kind == kind && it->g == g && it->repeat == repeat && it->axes == axes) {
            const double c = it->coefficient;
            terms.erase(it);
            return c;
        }
    return 0;
}

namespace {

/// The terms of values, each worked out once.
class LinearTerms {
  public:
    explicit LinearTerms(const Function& fn) : fn_(fn) {}

    Terms of(ValueId v) {
        return known_.at(v, [&] { return work_out(v); });
    }

  private:
    Terms work_out(ValueId v) {
        const Op& op = fn_.op(v);
        const int rank = op.type.rank();
        if (is_summed(fn_, v)) return opaque(fn_, v);
        switch (ir::linear(op.code)) {
            case Linear::Sum:
            case Linear::Difference: {
                Terms terms = operand_terms(op.args[0], rank), right = operand_terms(op.args[1], rank);
                if (op.code == Opcode::Sub) scale(right, -1);
                append(terms, std::move(right));
                return terms;
            }
            case Linear::Negated: {
                Terms terms = of(op.args[0]);
                scale(terms, -1);
                return terms;
            }
            case Linear::Product:
                return product_terms(op, v);
            case Linear::Summed:
                return op.attrs.dim == 0 ? scan_terms(fn_, op) : opaque(fn_, v);
            case Linear::Rearranged:
                return rearranged_terms(op, v);
            case Linear::Opaque:
            case Linear::Same:
            case Linear::Quotient:
            case Linear::Selected:
            case Linear::Joined:
            case Linear::Masked:
            case Linear::Second:
            case Linear::Contraction:
            case Linear::Weighted:
            case Linear::Accumulated:
            case Linear::Subtracted:
                return opaque(fn_, v);
        }
        return opaque(fn_, v);
    }

    /// Terms of an operand, laid into the (maybe larger) rank of the op by right alignment.
    Terms operand_terms(ValueId v, int rank) {
        Terms terms = of(v);
        shift_axes(terms, 0, rank - fn_.op(v).type.rank());
        return terms;
    }

    Terms product_terms(const Op& op, ValueId v) {
        for (const int c : {0, 1}) {
            if (!is_number(fn_, op.args[static_cast<std::size_t>(c)])) continue;
            Terms terms = operand_terms(op.args[static_cast<std::size_t>(1 - c)], op.type.rank());
            scale(terms, fn_.op(op.args[static_cast<std::size_t>(c)]).attrs.value);
            return terms;
        }
        return opaque(fn_, v);
    }

    /// Of a view: its operand's terms with other axes.
    Terms rearranged_terms(const Op& op, ValueId v) {
        if (op.code == Opcode::Expand) return operand_terms(op.args[0], op.type.rank());
        if (op.code == Opcode::RepeatInterleave) return op.attrs.dim == 0 ? repeated_terms(op, v) : opaque(fn_, v);
        if (op.code != Opcode::Unsqueeze && op.code != Opcode::Permute) return opaque(fn_, v);
        Terms terms = of(op.args[0]);
        for (Term& t : terms) rearrange(t.axes, op);
        return terms;
    }

    Terms repeated_terms(const Op& op, ValueId v) {
        Terms terms = of(op.args[0]);
        for (Term& t : terms) {
            if (t.kind == Kind::Total) continue;
            if (t.repeat != 1 || t.axes.empty() || t.axes[0] != 0) return opaque(fn_, v);
            t.repeat = op.attrs.count;
        }
        return terms;
    }

    const Function& fn_;
    ir::Known<Terms> known_;
};

}  // namespace

Terms linear_terms(const Function& fn, ValueId v) { return LinearTerms(fn).of(v); }

namespace {

/// Views of a product that are products of views.
bool carries_factors(Opcode code) {
    return code == Opcode::Unsqueeze || code == Opcode::Permute || code == Opcode::RepeatInterleave;
}

}  // namespace

bool has_exponential(const Function& fn, ValueId v) {
    return ir::comes_from(
        fn, v, [&](ValueId u) { return fn.op(u).code == Opcode::Exp || fn.op(u).code == Opcode::Exp2; },
        [&](ValueId u) {
            const Opcode code = fn.op(u).code;
            const Linear kind = ir::linear(code);
            return kind == Linear::Product || kind == Linear::Quotient || kind == Linear::Negated ||
                   carries_factors(code);
        });
}

namespace {

/// Factors of equal rank to the view's operand only: right alignment must not hide a missing axis.
bool full_rank(const Function& fn, ValueId v) {
    const auto product = [&](ValueId u) { return fn.op(u).code == Opcode::Mul || fn.op(u).code == Opcode::Div; };
    const auto broadcasts = [&](ValueId u) {
        const std::vector<ValueId>& args = fn.op(u).args;
        return product(u) && std::any_of(args.begin(), args.end(), [&](ValueId a) {
                   const int rank = fn.op(a).type.rank();
                   return rank != 0 && rank != fn.op(u).type.rank();
               });
    };
    return !ir::comes_from(fn, v, broadcasts, product);
}

/// The factors of values, each worked out once.
class Factoring {
  public:
    explicit Factoring(Function& fn) : fn_(fn) {}

    Factored of(ValueId v) {
        return known_.at(v, [&] {
            const Factored f = has_exponential(fn_, v) ? work_out(v) : Factored{{v}, {}};
            return f.factors.size() <= kMostFactors ? f : Factored{{v}, {}};
        });
    }

  private:
    Factored work_out(ValueId v) {
        const Op op = fn_.op(v);  // a copy: the function grows
        switch (op.code) {
            case Opcode::Exp:
            case Opcode::Exp2: {
                Terms terms = linear_terms(fn_, op.args[0]);
                if (op.code == Opcode::Exp2) scale(terms, std::numbers::ln2);
                return {{}, std::move(terms)};
            }
            case Opcode::Mul: {
                Factored a = operand(op, 0), b = operand(op, 1);
                a.factors.insert(a.factors.end(), b.factors.begin(), b.factors.end());
                append(a.exponent, std::move(b.exponent));
                return a;
            }
            case Opcode::Div: {
                Factored a = operand(op, 0), b = operand(op, 1);
                if (!b.factors.empty()) return {{v}, {}};
                scale(b.exponent, -1);
                append(a.exponent, std::move(b.exponent));
                return a;
            }
            case Opcode::Neg: {
                Factored f = operand(op, 0);
                f.factors.push_back(ir::emit_constant(fn_, -1, op.where));
                return f;
            }
            case Opcode::Unsqueeze:
            case Opcode::Permute:
                return full_rank(fn_, op.args[0]) ? view(op) : Factored{{v}, {}};
            default:
                return {{v}, {}};
        }
    }

    Factored operand(const Op& op, std::size_t i) {
        Factored f = of(op.args[i]);
        shift_axes(f.exponent, 0, op.type.rank() - fn_.op(op.args[i]).type.rank());
        return f;
    }

    Factored view(const Op& op) {
        Factored f = of(op.args[0]);
        for (ValueId& x : f.factors)
            if (fn_.op(x).type.rank() > 0) x = ir::emit(fn_, op.code, {x}, op.attrs, op.where);
        for (Term& t : f.exponent) rearrange(t.axes, op);
        return f;
    }

    Function& fn_;
    ir::Known<Factored> known_;
};

}  // namespace

Factored factor(Function& fn, ValueId v) { return Factoring(fn).of(v); }

namespace {

ValueId emit_terms(Function& fn, const Terms& terms, int rank, const Location& where) {
    ValueId sum = ir::kNoValue;
    for (const Term& t : terms) {
        ValueId x = emit_atom(fn, t, rank, where);
        if (std::fabs(t.coefficient) != 1)
            x = ir::emit(fn, Opcode::Mul, {x, ir::emit_constant(fn, std::fabs(t.coefficient), where)}, {}, where);
        if (sum == ir::kNoValue) sum = t.coefficient < 0 ? ir::emit(fn, Opcode::Neg, {x}, {}, where) : x;
        else sum = ir::emit(fn, t.coefficient < 0 ? Opcode::Sub : Opcode::Add, {sum, x}, {}, where);
    }
    return sum;
}

}  // namespace

ValueId emit_exp(Function& fn, Terms terms, int rank, const Location& where) {
    if (terms.empty()) return ir::kNoValue;
    make_safe(fn, terms, where);
    return ir::emit(fn, Opcode::Exp, {emit_terms(fn, terms, rank, where)}, {}, where);
}

ValueId with_safe_sums(Function& fn, ValueId v) {
    const Op op = fn.op(v);
    const Terms terms = linear_terms(fn, v);
    if (std::none_of(terms.begin(), terms.end(), [](const Term& t) { return t.kind == Kind::Total; })) return v;
    Terms safe = terms;
    make_safe(fn, safe, op.where);
    if (safe.size() == terms.size()) return v;
    const ValueId made = emit_terms(fn, safe, op.type.rank(), op.where);
    if (fn.op(made).type != op.type) return v;
    fn.op(made).name = op.name;
    return made;
}

ValueId emit_product(Function& fn, const Factored& product, int rank, const Location& where) {
    ValueId v = emit_exp(fn, product.exponent, rank, where);
    for (auto it = product.factors.rbegin(); it != product.factors.rend(); ++it)
        v = v == ir::kNoValue ? *it : ir::emit(fn, Opcode::Mul, {*it, v}, {}, where);
    return v;
}

}  // namespace forge::graph
