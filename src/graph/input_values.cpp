#include "graph/input_values.h"

#include <algorithm>
#include <optional>
#include <set>

#include "frontend/join.h"
#include "ir/known.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Linear;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Values = InputValues::Kind;

bool is_positive(Opcode code) {
    return code == Opcode::Sigmoid || code == Opcode::Softplus || code == Opcode::Exp || code == Opcode::Exp2;
}

/// What is read off the joined program.
class Reader {
  public:
    explicit Reader(const Function& program) : fn_(program) {
        for (const Op& op : fn_.ops) {
            if (op.code == Opcode::Exp || op.code == Opcode::Exp2) exponent(op.args[0], false);
            if (op.code == Opcode::LinearScan) scan_decay(op.args[0]);
            if (ir::is_matmul(op.code)) product(op);
        }
    }

    [[nodiscard]] std::optional<InputValues> of(const std::string& name) const {
        if (const auto gate = gates_.find(name); gate != gates_.end()) {
            const int sign = gate->second.decisive != 0 ? gate->second.decisive : 1;
            return InputValues{Values::Gate, sign > 0 ? kLogDecays : Range{0, kAnyNumber.high}, false, false};
        }
        if (decays_.contains(name)) return InputValues{Values::Numbers, kZeroToOne, false, false};
        const auto row = rows_.find(name);
        if (row == rows_.end()) return std::nullopt;
        return InputValues{row->second ? Values::Keys : Values::Rows, kAnyNumber, false, false};
    }

  private:
    /// An input in an exponent: with which sign, and through which sums over the tokens.
    struct Found {
        std::string name;
        int sign;
        bool total, prefix, logarithm;
        auto operator<=>(const Found&) const = default;
    };
    using Seen = std::set<std::pair<ValueId, Found>>;  ///< each way to a value is followed once
    struct Gate {
        int decisive = 0;  ///< the sign in an exponent that is a decay beyond doubt
    };

    /// The inputs that a value is a signed sum of, each perhaps times something that is not negative.
    void trace(ValueId v, Found so_far, std::vector<Found>& found, Seen& seen) {
        if (!seen.emplace(v, so_far).second) return;
        const Op& op = fn_.op(v);
        const auto go_on = [&](std::size_t i, int sign = 1) {
            Found next = so_far;
            next.sign *= sign;
            trace(op.args[i], next, found, seen);
        };
        switch (ir::linear(op.code)) {
            case Linear::Summed:
                if (op.attrs.dim == 0) (op.code == Opcode::Sum ? so_far.total : so_far.prefix) = true;
                return go_on(0);
            case Linear::Sum:
                return go_on(0), go_on(1);
            case Linear::Difference:
                return go_on(0), go_on(1, -1);
            case Linear::Negated:
                return go_on(0, -1);
            case Linear::Product:
                for (const std::size_t i : {0U, 1U})
                    if (const int sign = sign_of(op.args[1 - i]); sign != 0) go_on(i, sign);
                return;
            case Linear::Same:
            case Linear::Rearranged:
                return go_on(0);
            case Linear::Opaque:
                if (op.code == Opcode::Log) {
                    so_far.logarithm = true;
                    go_on(0);
                } else if (op.code == Opcode::Param) {
                    so_far.name = op.attrs.name;
                    if (op.attrs.role == Role::Input || op.attrs.role == Role::Head) found.push_back(so_far);
                }
                return;
            case Linear::Quotient:
            case Linear::Selected:
            case Linear::Joined:
            case Linear::Masked:
            case Linear::Second:
            case Linear::Contraction:
            case Linear::Weighted:
            case Linear::Accumulated:
            case Linear::Subtracted:
                return;
        }
    }

    /// 1 or -1 for a factor of that sign (or 0) whatever the inputs are; else 0.
    int sign_of(ValueId v) {
        return signs_.at(v, [&] { return sign_of_op(fn_.op(v)); });
    }
    int sign_of_op(const Op& op) {
        if (op.code == Opcode::Constant) return op.attrs.value < 0 ? -1 : 1;
        if (op.code == Opcode::Param) return op.attrs.role == Role::Mask ? 1 : 0;
        if (is_positive(op.code)) return 1;
        if (op.code == Opcode::Neg) return -sign_of(op.args[0]);
        if (ir::is_view(op.code) || op.code == Opcode::To || op.code == Opcode::CacheResult) return sign_of(op.args[0]);
        if (op.code == Opcode::Mul) return sign_of(op.args[0]) * sign_of(op.args[1]);
        return 0;
    }

    void exponent(ValueId v, bool decay) {
        std::vector<Found> found;
        Seen seen;
        trace(v, {"", 1, false, false, false}, found, seen);
        for (const Found& f : found) {
            if (!decay && !f.total && !f.prefix) continue;  // exp(x) of a token alone may be anything
            if (f.logarithm) {
                decays_[f.name] = true;
                continue;
            }
            Gate& gate = gates_[f.name];
            // Sums to and from the chunk's start are subtracted from one another; a total alone is what a state decays
            // by.
            const bool alone =
                std::none_of(found.begin(), found.end(), [&](const Found& o) { return o.name == f.name && o.prefix; });
            if (decay || (f.total && alone)) gate.decisive = f.sign;
        }
    }

    void scan_decay(ValueId v) {
        const Op* op = &fn_.op(v);
        while (ir::is_view(op->code) || op->code == Opcode::To || op->code == Opcode::CacheResult)
            op = &fn_.op(op->args[0]);
        if (op->code == Opcode::Exp || op->code == Opcode::Exp2) return exponent(op->args[0], true);
        if (op->code == Opcode::Param && op->attrs.role == Role::Input) decays_[op->attrs.name] = true;
    }

    /// Rows in both factors of a product over an axis that is not the tokens'.
    void product(const Op& op) {
        const Shape& shape = fn_.op(op.args[0]).type.shape;
        const Dim& axis = op.attrs.trans_a && shape.size() > 1 ? shape[shape.size() - 2] : shape.back();
        if (axis.symbol == ir::kChunkSymbol) return;
        const std::vector<std::string> left = rows_in(op.args[0]), right = rows_in(op.args[1]);
        if (left.empty() || right.empty()) return;
        for (const auto* side : {&left, &right})
            for (const std::string& name : *side) {
                const auto& other = side == &left ? right : left;
                bool& key = rows_[name];
                key = key || std::count(other.begin(), other.end(), name) > 0;
            }
    }

    [[nodiscard]] std::vector<std::string> rows_in(ValueId v) const {
        std::vector<std::string> names;
        const std::vector<bool> needed = ir::needed_for(fn_, {v});
        for (ValueId p = 0; p < fn_.size(); ++p) {
            const Op& op = fn_.op(p);
            if (needed[static_cast<std::size_t>(p)] && op.code == Opcode::Param && op.type.rank() == 2 &&
                (op.attrs.role == Role::Input || op.attrs.role == Role::Shifted))
                names.push_back(op.attrs.name);
        }
        return names;
    }

    const Function& fn_;
    ir::Known<int> signs_;
    std::map<std::string, Gate> gates_;
    std::map<std::string, bool> decays_;
    std::map<std::string, bool> rows_;  ///< and whether they are multiplied with themselves
};

InputValues guess(const ir::InputDecl& in) {
    if (in.role == Role::Scalar) return {Values::Numbers, {0.5, 1}, false, false};
    const bool number_per_token = in.role == Role::Input && in.type.rank() == 2;
    return {Values::Numbers, number_per_token ? kZeroToOne : kAnyNumber, false, true};
}

/// A declaration settles the range; what the program does with such numbers still counts.
InputValues declared(const ir::InputDecl& in, const std::optional<InputValues>& read) {
    InputValues values{Values::Numbers, *in.range, true, false};
    const bool one_sided = in.range->high == 0 || in.range->low == 0;
    if (in.range == kLogDecays || (read && read->is_gate() && one_sided)) values.kind = Values::Gate;
    return values;
}

}  // namespace

std::map<std::string, InputValues> input_values(const ir::Definition& def) {
    const Function program = frontend::join(def);
    const Reader reader(program);
    std::map<std::string, InputValues> values;
    for (const ir::InputDecl& in : def.inputs) {
        const auto read = reader.of(in.name);
        values[in.name] = in.range ? declared(in, read) : read ? *read : guess(in);
    }
    return values;
}

}  // namespace forge::graph
