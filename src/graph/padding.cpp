#include "graph/padding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace forge::graph {
namespace {

using ir::Along;
using ir::Function;
using ir::Linear;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What a value may be behind the axis's end, or everywhere if it has no such axis.
struct Range {
    double least = -kInfinity, most = kInfinity;
    bool scaled = false;    ///< zeros times numbers that may be infinite, where the program's own results are
    bool wild = false;      ///< it may be no number
    bool infinite = false;  ///< it may be infinite where no number of the program is: what is no maximum stands there

    [[nodiscard]] bool is_zero() const { return least == 0 && most == 0 && !wild; }
    [[nodiscard]] bool is_lowest() const { return most == -kInfinity && !wild; }
    [[nodiscard]] bool has_zero() const { return least <= 0 && most >= 0; }
    [[nodiscard]] bool is_point() const { return least == most && std::isfinite(least); }
    [[nodiscard]] bool is_bounded() const { return std::isfinite(least) && std::isfinite(most); }
};
using Ranges = std::vector<Range>;

constexpr Range kZero{0, 0}, kUnit{0, 1}, kZeroScaled{0, 0, true}, kLowestRange{-kInfinity, -kInfinity},
    kWild{-kInfinity, kInfinity, false, true};

Range hull(const Range& a, const Range& b) {
    return {std::min(a.least, b.least), std::max(a.most, b.most), a.scaled || b.scaled, a.wild || b.wild,
            a.infinite || b.infinite};
}

/// Of sums of any number of such numbers.
Range summed(const Range& x) {
    return {x.least < 0 ? -kInfinity : 0, x.most > 0 ? kInfinity : 0, x.scaled, false, x.infinite};
}

double times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

Range product(const Range& a, const Range& b) {
    const auto ends = {times(a.least, b.least), times(a.least, b.most), times(a.most, b.least), times(a.most, b.most)};
    return {std::min(ends), std::max(ends)};
}

/// Where an op is defined that is not so everywhere, or does not overflow.
struct Domain {
    double least = -kInfinity, most = kInfinity;
    bool open = false;  ///< without `least`
    [[nodiscard]] bool has(const Range& x) const {
        return (open ? x.least > least : x.least >= least) && x.most <= most;
    }
};

/// Of ops that grow, or fall, with their operand.
struct Monotone {
    Domain domain;
    bool falls = false;
};

std::optional<Monotone> monotone(Opcode code) {
    constexpr double kMost = 80;  // e^80 is far from fp32's largest number
    const Domain positive{0, kInfinity, true};
    if (code == Opcode::Exp || code == Opcode::Exp2 || code == Opcode::Expm1) return Monotone{{-kInfinity, kMost}};
    if (code == Opcode::Log) return Monotone{positive};
    if (code == Opcode::Log1p) return Monotone{{-1, kInfinity, true}};
    if (code == Opcode::Sqrt) return Monotone{{0, kInfinity}};
    if (code == Opcode::Rsqrt || code == Opcode::Reciprocal) return Monotone{positive, true};
    if (code == Opcode::Sigmoid || code == Opcode::Logsigmoid || code == Opcode::Softplus || code == Opcode::Tanh)
        return Monotone{};
    return std::nullopt;
}

using Formula = double (*)(double x);
constexpr std::array kFormulasOfOne = {
#define FORGE_OP(Enum, name, arity, attributes, along, linear, cost, doc) static_cast<Formula>(nullptr),
#define FORGE_UNARY(Enum, name, formula, linear, cost, doc) \
    static_cast<Formula>([](double x) -> double { return formula; }),
#include "forge/ops.def"
};

/// `data`: of a value without the axis, which may overflow as it does anywhere.
std::optional<Range> unary(Opcode code, const Range& x, bool data) {
    const Formula at = kFormulasOfOne[static_cast<std::size_t>(code)];
    if (!at) return std::nullopt;
    if (const auto m = monotone(code)) {
        if (!m->domain.has(x))
            return data && m->domain.most < kInfinity ? std::optional(Range{at(x.least), kInfinity}) : std::nullopt;
        return m->falls ? Range{at(x.most), at(x.least)} : Range{at(x.least), at(x.most)};
    }
    if (code == Opcode::Neg) return Range{-x.most, -x.least};
    if (code == Opcode::Relu) return Range{std::max(x.least, 0.0), std::max(x.most, 0.0)};
    if (code == Opcode::Abs) return Range{0, std::max(std::fabs(x.least), std::fabs(x.most))};
    if (x.is_point() && std::isfinite(at(x.least))) return Range{at(x.least), at(x.least)};
    if (code == Opcode::Sin || code == Opcode::Cos || code == Opcode::Sign) return Range{-1, 1};
    const bool finite = code == Opcode::Silu || code == Opcode::Floor || code == Opcode::Ceil || code == Opcode::Round;
    return finite ? std::optional(Range{}) : std::nullopt;
}

std::optional<Range> binary(Opcode code, const Range& a, const Range& b) {
    if (code == Opcode::Add)
        return a.is_lowest() || b.is_lowest() ? kLowestRange : Range{a.least + b.least, a.most + b.most};
    if (code == Opcode::Sub) return a.is_lowest() ? kLowestRange : Range{a.least - b.most, a.most - b.least};
    if (code == Opcode::Mul) return product(a, b);
    if (code == Opcode::Maximum) return Range{std::max(a.least, b.least), std::max(a.most, b.most)};
    if (code == Opcode::Minimum) return Range{std::min(a.least, b.least), std::min(a.most, b.most)};
    if (code == Opcode::Div && (b.least > 0 || b.most < 0)) {
        if (a.is_zero()) return kZero;
        return product(a, b.least > 0 ? Range{0, 1 / b.least} : Range{1 / b.most, 0});
    }
    if (code == Opcode::Lt && a.least >= b.most) return kZero;
    if (ir::info(code).kind == ir::OpInfo::Kind::Compare) return kUnit;
    return std::nullopt;
}

/// Whether a product may be one of 0 and what may be infinite, or a quotient of two zeros or two infinities.
bool may_be_undefined(Opcode code, const Range& a, const Range& b) {
    if (code == Opcode::Mul) return (a.has_zero() && !b.is_bounded()) || (b.has_zero() && !a.is_bounded());
    return code == Opcode::Div && ((a.has_zero() && b.has_zero()) || (!a.is_bounded() && !b.is_bounded()));
}

/// Whether an infinity that stands behind the end, and not in the program, may pass through.
bool stays_infinite(Opcode code, const Range& a, const Range& b) {
    if (code == Opcode::Maximum)
        return (a.infinite && b.infinite) || (a.infinite && a.most > 0) || (b.infinite && b.most > 0);
    if (code == Opcode::Minimum)
        return (a.infinite && b.infinite) || (a.infinite && a.least < 0) || (b.infinite && b.least < 0);
    return a.infinite || b.infinite;
}
/// … or become no number: beside another one, or multiplied by what may be zero.
bool is_spoilt_by_infinity(Opcode code, const Range& a, const Range& b) {
    if (code == Opcode::Mul) return (a.infinite && b.has_zero()) || (b.infinite && a.has_zero());
    return a.infinite && b.infinite && (code == Opcode::Add || code == Opcode::Sub || code == Opcode::Div);
}

class Padding {
  public:
    Padding(const Function& fn, const std::string& axis, std::int64_t size)
        : fn_(fn), axis_(axis), size_(static_cast<double>(size)) {}

    std::optional<Spoilt> run() {
        const auto results = std::ssize(fn_.results);
        for (ValueId v = 0; v < fn_.size(); ++v) {
            std::optional<Range> range = range_of(v);
            if (range && !has_axis(v)) range->wild = false;
            const bool touched = has_axis(v) || any_has_axis(fn_.op(v));
            if (touched && !range) return Spoilt{v, results + fn_.size() - v};
            ranges_.push_back(range.value_or(Range{}));
        }
        for (std::int64_t i = 0; i < results; ++i) {
            const ir::Result& r = fn_.results[static_cast<std::size_t>(i)];
            const bool stays = r.role == Role::Input || at(r.value).is_zero();
            if (has_axis(r.value) && (fn_.op(r.value).type.rank() > 2 || !stays)) return Spoilt{r.value, results - i};
        }
        return std::nullopt;
    }

  private:
    [[nodiscard]] const Range& at(ValueId v) const { return ranges_[static_cast<std::size_t>(v)]; }
    [[nodiscard]] bool is_axis(ValueId v, std::int64_t dim) const {
        const Shape& shape = fn_.op(v).type.shape;
        return shape[static_cast<std::size_t>(dim < 0 ? dim + std::ssize(shape) : dim)].symbol == axis_;
    }
    [[nodiscard]] std::int64_t count(ValueId v) const {
        const Shape& shape = fn_.op(v).type.shape;
        return std::count_if(shape.begin(), shape.end(), [&](const Dim& d) { return d.symbol == axis_; });
    }
    [[nodiscard]] bool has_axis(ValueId v) const { return count(v) > 0; }
    [[nodiscard]] bool any_has_axis(const Op& op) const {
        return std::any_of(op.args.begin(), op.args.end(), [&](ValueId a) { return has_axis(a); });
    }
    /// nullopt: it may spoil what lies before the end.
    [[nodiscard]] std::optional<Range> range_of(ValueId v) const {
        const Op& op = fn_.op(v);
        const bool wild = std::any_of(op.args.begin(), op.args.end(), [&](ValueId a) { return at(a).wild; });
        auto range = ir::along(op.code) == Along::Pointwise ? pointwise(v) : of_places(v);
        if (range && wild && op.code != Opcode::Where) range->wild = true;
        return range;
    }

    [[nodiscard]] std::optional<Range> of_places(ValueId v) const {
        const Op& op = fn_.op(v);
        switch (ir::along(op.code)) {
            case Along::Leaf:
                return leaf(v);
            case Along::Place:
                return op.code == Opcode::Identity ? kUnit
                                                   : Range{has_axis(v) ? end_of(op.type.shape[0]) : 0, kInfinity};
            case Along::Pointwise:
                break;
            case Along::Triangle:
                return hull(at(op.args[0]), kZero);
            case Along::Copied:
            case Along::Shifted:
            case Along::Permuted:
            case Along::Inserted:
            case Along::Removed:
            case Along::Broadcast:
                return count(v) > 1 && count(v) != count(op.args[0]) ? std::nullopt : std::optional(at(op.args[0]));
            case Along::Selected:  // an element at a fixed place lies before the end
                if (is_axis(op.args[0], op.attrs.dim))
                    return op.attrs.start < 0 ? std::nullopt : std::optional(Range{});
                return at(op.args[0]);
            case Along::Cut:
                return is_axis(op.args[0], op.attrs.dim) && !takes_turns(op) ? std::nullopt
                                                                             : std::optional(at(op.args[0]));
            case Along::Repeated:
                return at(op.args[0]);
            case Along::Joined:
                return joined(op);
            case Along::Reduced:
                return reduced(op);
            case Along::Scanned:
                return scanned(op);
            case Along::RowScan:
                return rows_stay_zero(v);
            case Along::Contracted:
                return contracted(v);
            case Along::Pairs:
            case Along::Rows:
                return weighted(v);
            case Along::Normalised:
            case Along::Matrix:
                return std::nullopt;
        }
        return std::nullopt;
    }

    [[nodiscard]] std::optional<Range> leaf(ValueId v) const {
        const Op& op = fn_.op(v);
        if (op.code == Opcode::Constant)
            return Range{op.attrs.value, op.attrs.value, false, false, std::isinf(op.attrs.value)};
        if (op.code != Opcode::Param || op.type.rank() > 2) return std::nullopt;
        if (op.attrs.role == Role::Mask) return kUnit;
        return has_axis(v) ? kZero : Range{};
    }

    /// What may be no number stays where it is.
    [[nodiscard]] std::optional<Range> pointwise(ValueId v) const {
        const Op& op = fn_.op(v);
        bool scaled = false;
        for (const ValueId a : op.args) {
            if (has_axis(a) && count(a) != count(v)) return std::nullopt;  // along one of two such axes
            if (has_axis(a) && at(a).scaled) scaled = true;
        }
        if (op.code == Opcode::Where) return where(op);
        const Linear linear = ir::linear(op.code);
        if (scaled && linear == Linear::Opaque) return kWild;
        if (op.args.size() == 1) {
            Range range =
                linear == Linear::Same ? at(op.args[0]) : unary(op.code, at(op.args[0]), !has_axis(v)).value_or(kWild);
            range.scaled = scaled;
            range.infinite = at(op.args[0]).infinite && !range.is_bounded();
            return range;
        }
        const bool zero = op.code == Opcode::Div && !has_axis(op.args[1]) && at(op.args[0]).is_zero();
        Range range = zero ? kZero : binary(op.code, at(op.args[0]), at(op.args[1])).value_or(kWild);
        range.scaled = scaled || may_be_undefined(op.code, at(op.args[0]), at(op.args[1]));
        range.infinite = stays_infinite(op.code, at(op.args[0]), at(op.args[1])) && !range.is_bounded();
        range.wild = range.wild || is_spoilt_by_infinity(op.code, at(op.args[0]), at(op.args[1]));
        return range;
    }

    [[nodiscard]] Range where(const Op& op) const {
        const bool never = has_axis(op.args[0]) && at(op.args[0]).is_zero();
        return never ? at(op.args[2]) : hull(at(op.args[1]), at(op.args[2]));
    }

    /// Elements at even distances, as many as there are in what lies before the end for each that lies behind it.
    [[nodiscard]] bool takes_turns(const Op& slice) const {
        const ir::Attrs& attrs = slice.attrs;
        const Shape& from = fn_.op(slice.args[0]).type.shape;
        const Dim& whole = from[static_cast<std::size_t>(attrs.dim < 0 ? attrs.dim + std::ssize(from) : attrs.dim)];
        return slice.code == Opcode::Slice && attrs.step > 1 && whole.factor % attrs.step == 0 && attrs.start >= 0 &&
               attrs.start < attrs.step && attrs.length == 0;
    }
    [[nodiscard]] double end_of(const Dim& d) const { return static_cast<double>(d.factor) * size_; }

    [[nodiscard]] std::optional<Range> joined(const Op& op) const {
        Range all = at(op.args[0]);
        for (const ValueId a : op.args) {
            if (op.code != Opcode::Interleave && is_axis(a, op.attrs.dim)) return std::nullopt;
            all = hull(all, at(a));
        }
        return all;
    }

    [[nodiscard]] std::optional<Range> reduced(const Op& op) const {
        const Range& x = at(op.args[0]);
        const bool along = is_axis(op.args[0], op.attrs.dim);
        if (op.code == Opcode::Sum) {
            if (!along) return summed(x);
            return x.is_zero() ? std::optional(has_axis_but(op) ? x : Range{}) : std::nullopt;
        }
        if (x.scaled || (along && !x.is_lowest())) return std::nullopt;
        return along ? Range{} : x;
    }
    /// Of h = decay h + x, row by row.
    [[nodiscard]] std::optional<Range> rows_stay_zero(ValueId v) const {
        const Op& op = fn_.op(v);
        const bool zeros = std::all_of(op.args.begin() + 1, op.args.end(), [&](ValueId a) { return at(a).is_zero(); });
        return zeros && !at(op.args[0]).wild && !is_axis(v, 0) ? std::optional(kZeroScaled) : std::nullopt;
    }

    /// Whether what is reduced has the axis twice.
    [[nodiscard]] bool has_axis_but(const Op& op) const { return count(op.args[0]) > 1; }

    [[nodiscard]] std::optional<Range> scanned(const Op& op) const {
        if (op.code != Opcode::Cumsum || is_axis(op.args[0], op.attrs.dim)) return std::nullopt;
        return summed(at(op.args[0]));
    }

    [[nodiscard]] std::optional<Range> contracted(ValueId v) const {
        const Op& op = fn_.op(v);
        const ValueId a = op.args[0], b = op.args[1];
        const int inner_a = op.attrs.trans_a ? 0 : 1, inner_b = op.attrs.trans_b ? 1 : 0;
        const bool zero_a = has_axis(a) && at(a).is_zero(), zero_b = has_axis(b) && at(b).is_zero();
        if (is_axis(a, inner_a) && !(zero_a && multiplies_zeros(b)) && !(zero_b && multiplies_zeros(a)))
            return std::nullopt;
        Range sum;  // rows behind the end are zeros, and so are columns
        sum.infinite = at(a).infinite || at(b).infinite;
        if ((!is_axis(a, 1 - inner_a) || zero_a) && (!is_axis(b, 1 - inner_b) || zero_b) && has_axis(v))
            sum = kZeroScaled;
        if (op.args.size() < 3) return sum;
        const Range& c = at(op.args[2]);
        return Range{sum.least + c.least, sum.most + c.most, sum.scaled || c.scaled, false, sum.infinite || c.infinite};
    }
    /// Whether zeros times what it may be are zeros.
    [[nodiscard]] bool multiplies_zeros(ValueId v) const { return !at(v).wild && !at(v).infinite; }

    /// Sums that have the axis, or are taken over it, of zeros; gates, the last operand, let nothing grow.
    [[nodiscard]] std::optional<Range> weighted(ValueId v) const {
        const Op& op = fn_.op(v);
        if (!any_has_axis(op)) return Range{};
        const bool matrix = op.code == Opcode::DecayMatmul;
        if ((!matrix && op.code != Opcode::DecayApply) || is_axis(op.args[1], 0)) return std::nullopt;
        const Range &x = at(op.args[0]), &y = at(op.args[1]), &gates = at(op.args[2]);
        if (gates.most > 0 || gates.scaled || !multiplies_zeros(op.args[0]) || !multiplies_zeros(op.args[1]) ||
            gates.wild)
            return std::nullopt;
        if (matrix) return x.is_zero() || y.is_zero() ? std::optional(Range{}) : std::nullopt;
        return y.is_zero() ? std::optional(kZeroScaled) : std::nullopt;
    }

    const Function& fn_;
    const std::string& axis_;
    double size_;
    Ranges ranges_;
};

}  // namespace

std::optional<Spoilt> spoils_padding(const Function& program, const std::string& axis, std::int64_t size) {
    return Padding(program, axis, size).run();
}

}  // namespace forge::graph
