#include "graph/stabilisers.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "ir/function.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

/// What becomes of a value x if the maximum, or the states before the token, are shifted by e.
struct Change {
    enum class Kind : std::uint8_t {
        Scaled,   ///< exp(by e) x; by 0: x
        Greater,  ///< x + by e
        Zero,     ///< 0, which is both scaled by anything and itself
        Lowest,   ///< -inf, which is greater by anything and itself
        Unknown
    } kind = Kind::Unknown;
    double by = 0;

    [[nodiscard]] bool scaled() const { return kind == Kind::Scaled || kind == Kind::Zero; }
    [[nodiscard]] bool same() const {
        return (kind == Kind::Scaled && by == 0) || kind == Kind::Zero || kind == Kind::Lowest;
    }
    friend bool operator==(const Change&, const Change&) = default;
};

constexpr Change kSame{Change::Kind::Scaled, 0}, kUnknown{};
Change scaled(double by) { return {Change::Kind::Scaled, by}; }
Change greater(double by) { return by == 0 ? kSame : Change{Change::Kind::Greater, by}; }

/// By how much it is greater; nothing where it is neither that nor the same.
std::optional<double> shift(const Change& x) {
    if (x.kind == Change::Kind::Greater) return x.by;
    return x.same() ? std::optional(0.0) : std::nullopt;
}

/// Of values of which one or the other is taken.
Change either(const Change& a, const Change& b) {
    using enum Change::Kind;
    if (a == b) return a;
    if (a.kind == Zero && b.scaled()) return b;
    if (b.kind == Zero && a.scaled()) return a;
    const auto joins_lowest = [](const Change& x) { return x.kind == Greater || x.same(); };
    if (a.kind == Lowest && joins_lowest(b)) return b;
    if (b.kind == Lowest && joins_lowest(a)) return a;
    return kUnknown;
}

Change added(const Change& a, const Change& b, double sign) {
    const auto x = shift(a), y = shift(b);
    if (x && y && (*x != 0 || *y != 0)) return greater(*x + sign * *y);
    return a.scaled() && b.scaled() ? either(a, b) : a.same() && b.same() ? kSame : kUnknown;
}

Change multiplied(const Change& a, const Change& b, double sign) {
    if (a.kind == Change::Kind::Zero || (b.kind == Change::Kind::Zero && sign > 0)) return {Change::Kind::Zero};
    if (b.kind == Change::Kind::Zero) return kUnknown;
    return a.scaled() && b.scaled() ? scaled(a.by + sign * b.by) : kUnknown;
}

/// How values of a step change with one of its maxima, or with the states before it.
class Changes {
  public:
    Changes(const Function& step, ValueId maximum) : step_(step), maximum_(maximum) {}

    /// `before`: of states; `shifted`: whether the maximum is greater by e, and not what follows from its operands.
    std::vector<Change> run(const std::function<Change(const std::string& state)>& before, double maximum) {
        made_.clear();
        for (ValueId v = 0; v < step_.size(); ++v)
            made_.push_back(v == maximum_ ? greater(maximum) : of(step_.op(v), before));
        return made_;
    }

  private:
    [[nodiscard]] Change of(const Op& op, const std::function<Change(const std::string&)>& before) const {
        if (op.code == Opcode::Param) return op.attrs.role == Role::State ? before(op.attrs.name) : kSame;
        if (op.code == Opcode::Constant)
            return op.attrs.value == 0                                ? Change{Change::Kind::Zero}
                   : std::isinf(op.attrs.value) && op.attrs.value < 0 ? Change{Change::Kind::Lowest}
                                                                      : kSame;
        std::vector<Change> args;
        bool all_same = true;
        for (const ValueId a : op.args) {
            args.push_back(made_[static_cast<std::size_t>(a)]);
            all_same = all_same && args.back().same();
        }
        if (const Change found = changed(op, args); found.kind != Change::Kind::Unknown) return found;
        return all_same ? kSame : kUnknown;
    }

    [[nodiscard]] static Change changed(const Op& op, const std::vector<Change>& args) {
        using enum Change::Kind;
        if (ir::is_view(op.code)) return args[0];
        switch (op.code) {
            case Opcode::To:
                return op.type.dtype != DType::Bool ? args[0] : args[0].scaled() ? kSame : kUnknown;
            case Opcode::Copy:
            case Opcode::Expand:
            case Opcode::RepeatInterleave:
            case Opcode::CacheResult:
                return args[0];
            case Opcode::Add:
            case Opcode::Sub:
                return added(args[0], args[1], op.code == Opcode::Add ? 1 : -1);
            case Opcode::Neg:
                return args[0].kind == Greater ? greater(-args[0].by) : args[0].scaled() ? args[0] : kUnknown;
            case Opcode::Mul:
            case Opcode::Matmul:
            case Opcode::MatmulOutFp32:
                return multiplied(args[0], args[1], 1);
            case Opcode::Div:
                return multiplied(args[0], args[1], -1);
            case Opcode::Exp:
                return args[0].kind == Greater ? scaled(args[0].by) : kUnknown;
            case Opcode::Abs:
            case Opcode::Relu:
            case Opcode::Sum:
                return args[0].scaled() ? args[0] : kUnknown;
            case Opcode::Sqrt:
                return args[0].kind == Scaled ? scaled(args[0].by / 2) : kUnknown;
            case Opcode::Rsqrt:
                return args[0].kind == Scaled ? scaled(-args[0].by / 2) : kUnknown;
            case Opcode::Sign:
                return args[0].scaled() ? kSame : kUnknown;
            case Opcode::Maximum:
            case Opcode::Minimum:
                return either(args[0], args[1]);
            case Opcode::Gt:
            case Opcode::Ge:
            case Opcode::Eq:
                return either(args[0], args[1]).kind != Unknown ? kSame : kUnknown;
            case Opcode::Where:
                return args[0].same() ? either(args[1], args[2]) : kUnknown;
            default:
                return kUnknown;
        }
    }

    const Function& step_;
    ValueId maximum_;
    std::vector<Change> made_;
};

/// The maximum that the state's next value is, perhaps through views.
ValueId maximum_of(const Function& step, ValueId v) {
    while (ir::is_view(step.op(v).code)) v = step.op(v).args[0];
    return step.op(v).code == Opcode::Maximum ? v : ir::kNoValue;
}

bool is_stabiliser(const Function& step, const std::string& state) {
    const ValueId next = step.result(state, Role::State), maximum = maximum_of(step, next);
    if (maximum == ir::kNoValue || !step.op(next).type.shape.empty()) return false;
    Changes changes(step, maximum);
    const auto unchanged = [](const std::string&) { return kSame; };
    const std::vector<Change> by_maximum = changes.run(unchanged, 1);
    std::map<std::string, Change> states;
    for (const ir::Result& r : step.results) {
        const Change& change = by_maximum[static_cast<std::size_t>(r.value)];
        if (r.role == Role::State ? change.kind == Change::Kind::Unknown : !change.same()) return false;
        if (r.role == Role::State) states[r.name] = r.name == state ? greater(1) : change;
    }
    // Of these only scaled ones are right for all numbers, and the maximum itself.
    for (const auto& [name, change] : states)
        if (name != state && !change.scaled() && !change.same()) return false;
    const std::vector<Change> by_states = changes.run([&](const std::string& name) { return states.at(name); }, 0);
    return std::all_of(step.results.begin(), step.results.end(),
                       [&](const ir::Result& r) { return by_states[static_cast<std::size_t>(r.value)].same(); });
}

}  // namespace

std::set<std::string> stabilisers(const ir::Definition& def) {
    std::set<std::string> found;
    if (!def.step) return found;
    for (const ir::StateDecl& state : def.states)
        if (is_stabiliser(*def.step, state.name)) found.insert(state.name);
    return found;
}

std::vector<bool> stabilising_maxima(const Function& program, const std::set<std::string>& states) {
    std::vector<bool> adds(program.ops.size()), found(program.ops.size());  // the state and what does not read it
    for (std::size_t v = 0; v < program.ops.size(); ++v) {
        const Op& op = program.ops[v];
        const auto reads = [&](std::size_t i) {
            return i < op.args.size() && adds[static_cast<std::size_t>(op.args[i])];
        };
        const bool passes = ir::is_view(op.code) || op.code == Opcode::Expand || op.code == Opcode::Add ||
                            (op.code == Opcode::Sub && !reads(1));
        const bool one = reads(0) != reads(1);
        if (op.code == Opcode::Param) adds[v] = op.attrs.role == Role::State && states.contains(op.attrs.name);
        else if (op.code == Opcode::Maximum) found[v] = one;
        else adds[v] = passes && one;
        const auto is_read = [&](ValueId a) { return adds[static_cast<std::size_t>(a)]; };
        if (!adds[v] && !found[v] && std::any_of(op.args.begin(), op.args.end(), is_read)) return {};
    }
    const bool is_result = std::any_of(program.results.begin(), program.results.end(),
                                       [&](const ir::Result& r) { return adds[static_cast<std::size_t>(r.value)]; });
    return is_result ? std::vector<bool>() : found;
}

}  // namespace forge::graph
