#include "tile/fragments.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"
#include "tile/arena.h"
#include "tile/layout.h"
#include "tile/order.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Space = Layout::Space;

struct Obstacle {
    std::string what;
};

[[noreturn]] void refuse(const Function& fn, ValueId v, const char* why) {
    const Op& op = fn.op(v);
    throw Obstacle{fmt::format("{}{}: {}", op.name.empty() ? "" : op.name + " = ", ir::info(op.code).name, why)};
}

bool is_fragment(Space space) { return space == Space::Fragment || space == Space::Transposed; }
bool in_memory(Space space) { return space == Space::Tile || space == Space::Operand; }

/// The form of every value of a function whose types are sizes.
class Forms {
 public:
    Forms(const Function& symbolic, const Function& fn, const FragmentRules& rules)
        : symbolic_(symbolic), fn_(fn), rules_(rules), users_(ir::users_of(fn)), results_(ir::result_uses(fn)), form_(fn.ops.size(), Space::Reg), decided_(fn.ops.size(), false) {
        for (ValueId v = 0; v < fn.size(); ++v) decide(v);
        for (ValueId v = fn.size() - 1; v >= 0; --v)
            if (!decided_[index(v)]) form_[index(v)] = wanted(v);
    }

    [[nodiscard]] Space operator[](ValueId v) const { return form_[index(v)]; }

    /// The form in which an elementwise value is evaluated: its own, or that of the loop it stands in.
    [[nodiscard]] Space evaluated(ValueId v) const {
        while (form_[index(v)] == Space::Reg && !users_[index(v)].empty()) v = users_[index(v)][0];
        return form_[index(v)];
    }

    /// Of a matrix whose columns run along the value axis, or of any other.
    [[nodiscard]] Space fragment(ValueId v) const {
        const Shape& shape = symbolic_.op(v).type.shape;
        return !rules_.value_axis.empty() && shape[1].symbol == rules_.value_axis && shape[0].symbol != rules_.value_axis ? Space::Transposed : Space::Fragment;
    }

 private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }
    [[nodiscard]] bool is_matrix(ValueId v) const { return is_block_matrix(fn_.op(v).type); }

    void decide(ValueId v) {
        const Op& op = fn_.op(v);
        decided_[index(v)] = true;
        if (op.code == Opcode::Param) form_[index(v)] = parameter(v);
        else if (op.code == Opcode::Constant || op.code == Opcode::Identity) form_[index(v)] = Space::Reg;
        else if (ir::is_view(op.code)) form_[index(v)] = form_[index(op.args[0])] == Space::Reg ? Space::Reg : Space::Tile;
        else if (ir::is_matmul(op.code)) form_[index(v)] = product(v);
        else if (op.code == Opcode::DecayMatmul) form_[index(v)] = decay_product(v);
        else if (!ir::is_elementwise(op.code)) form_[index(v)] = Space::Tile;
        else elementwise(v);
    }

    [[nodiscard]] Space parameter(ValueId v) const {
        const Op& op = fn_.op(v);
        switch (op.attrs.role) {
            case Role::Scalar: return Space::Reg;
            case Role::Head: return op.type.rank() == 0 ? Space::Reg : Space::Tile;
            case Role::State:
            case Role::Ones:
            case Role::Eye:
                return is_matrix(v) ? fragment(v) : Space::Tile;
            case Role::Spill: return is_matrix(v) ? Space::Operand : Space::Tile;
            case Role::Input: return input(v);
            case Role::Shifted:
                if (op.type.rank() != 1) refuse(fn_, v, "rows one token earlier");
                return Space::Tile;
            default: return Space::Tile;
        }
    }

    [[nodiscard]] Space input(ValueId v) const {
        const Op& op = fn_.op(v);
        if (op.type.rank() == 1) return Space::Tile;
        const FragmentRules::Input& in = rules_.inputs.at(op.attrs.name);
        if (op.type.rank() != 2 || !is_matrix(v)) refuse(fn_, v, "an input that is no matrix of 64 x 64 blocks");
        if (in.pad != 0) refuse(fn_, v, "an input that is not padded by 0");
        if (in.dtype == rules_.half) return Space::Operand;
        if (in.dtype != DType::F32) refuse(fn_, v, "an input of another 16-bit type");
        return Space::Tile;
    }

    [[nodiscard]] Space product(ValueId v) const {
        const Op& op = fn_.op(v);
        for (std::size_t i = 0; i < 2; ++i)
            if (!is_matrix(op.args[i])) refuse(fn_, v, "an operand that is no matrix of 64 x 64 blocks");
        return fragment(v);
    }

    [[nodiscard]] Space decay_product(ValueId v) const {
        const Op& op = fn_.op(v);
        const bool fits = is_matrix(op.args[0]) && is_matrix(op.args[1]) && op.type.shape[0].factor == kBlock;
        return fits ? Space::Fragment : Space::Tile;
    }

    /// Numbers and vectors are tiles or stand in their user's loop, matrices that are computed from fragments fragments;
    /// for other matrices their users decide.
    void elementwise(ValueId v) {
        if (stands_in_loop(v)) return;
        form_[index(v)] = is_matrix(v) ? from_fragment(v) : Space::Tile;
        decided_[index(v)] = form_[index(v)] != Space::Reg;
    }

    [[nodiscard]] bool stands_in_loop(ValueId v) const {
        const auto& users = users_[index(v)];
        if (results_[index(v)] > 0 || users.empty()) return false;
        if (!std::all_of(users.begin(), users.end(), [&](ValueId u) { return ir::is_elementwise(fn_.op(u).code); })) return false;
        const std::set<ValueId> distinct(users.begin(), users.end());
        const bool bool_valued = fn_.op(v).type.dtype == DType::Bool;
        if (distinct.size() > 1 && !bool_valued) return false;
        return bool_valued || fn_.op(*distinct.begin()).type.shape == fn_.op(v).type.shape || !costly(fn_.op(v).code);
    }

    /// The fragment form of the first fragment that the value's loop reads; Reg if it reads none.
    [[nodiscard]] Space from_fragment(ValueId v) const {
        for (const ValueId a : fn_.op(v).args) {
            const Space form = form_[index(a)];
            if (is_fragment(form)) return form;
            if (form == Space::Reg && ir::is_elementwise(fn_.op(a).code))
                if (const Space inner = from_fragment(a); inner != Space::Reg) return inner;
        }
        return Space::Reg;
    }

    /// The form that suits the users of an elementwise matrix.
    [[nodiscard]] Space wanted(ValueId v) const {
        bool operand = false;
        Space as_fragment = Space::Reg;
        for (const ir::Result& r : fn_.results) {
            if (r.value != v) continue;
            if (is_carried(r.role)) as_fragment = fragment(v);
            else operand = true;
        }
        for (const ValueId u : users_[index(v)]) {
            const Op& user = fn_.op(u);
            if (ir::is_matmul(user.code)) {
                for (std::size_t i = 0; i < user.args.size(); ++i) {
                    if (user.args[i] != v) continue;
                    const Space first = first_operand_form(fn_, u, form_[index(u)]);
                    if (i == 2) as_fragment = form_[index(u)];
                    else if (i == first_operand(form_[index(u)])) as_fragment = first;
                    else operand = true;
                }
            } else if (user.code == Opcode::DecayMatmul && is_fragment(form_[index(u)]) && user.args[2] != v) {
                operand = true;
            } else if (!ir::is_elementwise(user.code) || !is_fragment(evaluated(u))) {
                return Space::Tile;
            } else if (users_[index(v)].size() > 1) {
                return Space::Tile;
            }
        }
        return operand || as_fragment == Space::Reg ? Space::Operand : as_fragment;
    }

 public:
    /// Which operand of a product shares its result's rows as the fragment has them, and the form it would have in registers.
    static std::size_t first_operand(Space result) { return result == Space::Transposed ? 1 : 0; }
    static Space first_operand_form(const Function& fn, ValueId v, Space result) {
        const Op& op = fn.op(v);
        if (result == Space::Transposed) return op.attrs.trans_b ? Space::Fragment : Space::Transposed;
        return op.attrs.trans_a ? Space::Transposed : Space::Fragment;
    }

 private:
    const Function& symbolic_;
    const Function& fn_;
    const FragmentRules& rules_;
    std::vector<std::vector<ValueId>> users_;
    std::vector<int> results_;
    std::vector<Space> form_;
    std::vector<bool> decided_;
};

/// The function with a copy wherever a value is wanted in another form.
class Copies {
 public:
    Copies(const Function& fn, const Forms& forms, const FragmentRules& rules) : fn_(fn), forms_(forms), rules_(rules) { out_.name = fn.name; }

    Function run() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            Op op = fn_.op(v);
            for (std::size_t i = 0; i < op.args.size(); ++i) op.args[i] = in_form(op.args[i], operand_form(v, i));
            map_.push_back(add(std::move(op), forms_[v]));
        }
        for (ir::Result r : fn_.results) {
            r.value = stored(r);
            out_.results.push_back(r);
        }
        return std::move(out_);
    }

 private:
    ValueId add(Op op, Space form) {
        op.layout = Layout{};
        op.layout->space = form;
        if (form == Space::Operand) {
            Function probe = out_;  // parts follow from how the value is made
            const ValueId v = probe.add(op);
            op.layout->parts = parts_of(probe, v, rules_.parts);
        }
        return out_.add(std::move(op));
    }

    [[nodiscard]] Space operand_form(ValueId v, std::size_t i) const {
        const Op& op = fn_.op(v);
        const Space now = forms_[op.args[i]];
        if (ir::is_matmul(op.code)) {
            if (i == 2) return forms_[v];
            if (i != Forms::first_operand(forms_[v])) return Space::Operand;
            return now == Forms::first_operand_form(fn_, v, forms_[v]) ? now : Space::Operand;
        }
        if (op.code == Opcode::DecayMatmul && is_fragment(forms_[v]) && i < 2) return Space::Operand;
        if (now == Space::Reg) return now;
        if (!ir::is_elementwise(op.code)) {
            if (fn_.op(op.args[i]).code == Opcode::DecayMask) refuse(fn_, v, "a decay mask as a whole");
            return Space::Tile;
        }
        const Space loop = forms_.evaluated(v);
        if (is_fragment(loop)) return now == Space::Tile || now == loop ? now : now == Space::Operand ? loop : Space::Tile;
        return is_fragment(now) ? Space::Tile : now;
    }

    ValueId in_form(ValueId v, Space form) {
        const ValueId mapped = map_[static_cast<std::size_t>(v)];
        if (forms_[v] == form) return mapped;
        if (const auto it = made_.find({v, form}); it != made_.end()) return it->second;
        const Op& from = out_.op(mapped);
        if (is_fragment(form) && from.layout->space == Space::Operand && from.layout->parts != 1) refuse(fn_, v, "a precise operand that is read elementwise");
        Op copy{Opcode::Copy, from.type, {mapped}, {}, from.name, from.where, std::nullopt};
        return made_[{v, form}] = add(std::move(copy), form);
    }

    /// Results are stored from operands and tiles of their own, states kept as fragments.
    ValueId stored(const ir::Result& r) {
        const Op& op = fn_.op(r.value);
        const bool matrix = is_block_matrix(op.type);
        if (is_carried(r.role)) return matrix ? in_form(r.value, forms_.fragment(r.value)) : fresh(r.value);
        return matrix ? in_form(r.value, Space::Operand) : fresh(r.value);
    }

    ValueId fresh(ValueId v) {
        const ValueId mapped = in_form(v, Space::Tile);
        const Op& op = out_.op(mapped);
        if (op.code != Opcode::Param && !ir::is_view(op.code)) return mapped;
        return add(Op{Opcode::Copy, op.type, {mapped}, {}, op.name, op.where, std::nullopt}, Space::Tile);
    }

    const Function& fn_;
    const Forms& forms_;
    const FragmentRules& rules_;
    Function out_;
    std::vector<ValueId> map_;
    std::map<std::pair<ValueId, Space>, ValueId> made_;
};

/// Vectors of tokens arrive as they lie in memory; everybody reads a copy.
Function with_copied_vectors(const Function& fn) {
    return ir::rebuild(fn, [](Function& out, const Op& op, std::vector<ValueId> args) {
        const ValueId v = ir::keep(out, op, std::move(args));
        const bool vector = op.code == Opcode::Param && op.attrs.role == Role::Input && op.type.rank() == 1;
        return vector ? ir::emit(out, Opcode::Copy, {v}, {}, op.where, op.name) : v;
    });
}

/// What an operation costs, in cycles: of the threads, and of the matrix units beside them.
struct Cost {
    double threads = 0, units = 0;
};

Cost cost_of(const Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    constexpr double kLatency = 60, kBarrier = 40, kPerRegister = 4, kPerInstruction = 4;
    if (op.code == Opcode::Param || ir::is_view(op.code) || op.layout->space == Space::Reg) return {};
    const double elements = op.type.rank() == 2 ? static_cast<double>(size_of(op.type, 0) * size_of(op.type, 1)) : 64;
    if (ir::is_matmul(op.code)) {
        const Op& a = fn.op(op.args[0]);
        const double depth = static_cast<double>(size_of(a.type, op.attrs.trans_a ? 0 : 1)), parts = a.layout->parts * fn.op(op.args[1]).layout->parts;
        return {kPerInstruction * elements * depth * parts / (64 * 64 * 16), kLatency + elements * depth * parts / (64 * 2 * 16)};
    }
    if (!is_block_matrix(op.type)) return {kBarrier + 60, 0};
    if (op.code == Opcode::Inverse) return {6000, 0};
    if (op.code == Opcode::DecayMatmul) return {5000, 0};
    const double registers = elements / 128;
    return {kPerRegister * registers + (in_memory(op.layout->space) ? kBarrier : 0), 0};
}

/// The operations in an order that keeps the matrix units busy while the threads do other work: what lies on the longest
/// way to the end first, and nothing that must wait while something else need not.
class Overlapping {
 public:
    explicit Overlapping(const Function& fn) : fn_(fn), left_(fn.ops.size(), 0), done_(fn.ops.size(), -1) {
        constexpr double kNextChunk = 1000;  // waits for the carried states, and for nothing else
        const auto users = ir::users_of(fn);
        std::vector<bool> carried(fn.ops.size(), false);
        for (const ir::Result& r : fn.results)
            if (is_carried(r.role)) carried[index(r.value)] = true;
        for (ValueId v = fn.size() - 1; v >= 0; --v) {
            double after = carried[index(v)] ? kNextChunk : 0;
            for (const ValueId u : users[index(v)]) after = std::max(after, left_[index(u)]);
            const Cost c = cost_of(fn, v);
            left_[index(v)] = after + c.threads + c.units;
        }
    }

    Function run() {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (fn_.op(v).code == Opcode::Param) take(v);
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (from_carried(v)) take_with_operands(v);
        while (static_cast<int>(order_.size()) < fn_.size()) take(next());
        Function out;
        out.name = fn_.name;
        std::vector<ValueId> position(fn_.ops.size());
        for (const ValueId v : order_) {
            Op op = fn_.op(v);
            for (ValueId& a : op.args) a = position[index(a)];
            position[index(v)] = out.add(std::move(op));
        }
        for (ir::Result r : fn_.results) {
            r.value = position[index(r.value)];
            out.results.push_back(r);
        }
        return out;
    }

 private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    /// What follows from a carried fragment, vectors and numbers comes before all products: the compiler does not see that
    /// the last chunk's have ended once others are under way.
    [[nodiscard]] bool from_carried(ValueId v) const {
        if (!ir::is_elementwise(fn_.op(v).code) || !is_fragment(fn_.op(v).layout->space)) return false;
        const auto read = tiles_read_by(fn_, v);
        return std::all_of(read.begin(), read.end(), [&](ValueId t) { return fn_.op(t).code == Opcode::Param; }) &&
               std::any_of(read.begin(), read.end(), [&](ValueId t) { return is_fragment(fn_.op(t).layout->space); });
    }
    void take_with_operands(ValueId v) {
        for (const ValueId a : fn_.op(v).args)
            if (done_[index(a)] < 0) take_with_operands(a);
        if (done_[index(v)] < 0) take(v);
    }

    /// When the operands are there; negative if one has not been asked for.
    [[nodiscard]] double ready(ValueId v) const {
        double at = 0;
        for (const ValueId a : fn_.op(v).args) {
            if (done_[index(a)] < 0) return -1;
            at = std::max(at, done_[index(a)]);
        }
        return at;
    }

    [[nodiscard]] ValueId next() const {
        ValueId best = ir::kNoValue;
        double best_start = 0;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (done_[index(v)] >= 0) continue;
            const double at = ready(v);
            if (at < 0) continue;
            const double start = std::max(at, now_);
            const bool better = best == ir::kNoValue || start < best_start || (start == best_start && urgency(v) > urgency(best));
            if (better) best = v, best_start = start;
        }
        return best;
    }

    /// The way that is left, but before all else what puts idle matrix units to work.
    [[nodiscard]] double urgency(ValueId v) const {
        constexpr double kFirst = 1e6;
        return left_[index(v)] + (units_ <= now_ && ir::is_matmul(fn_.op(v).code) ? kFirst : 0);
    }

    void take(ValueId v) {
        const Cost c = cost_of(fn_, v);
        const double start = std::max(std::max(0.0, ready(v)), c.threads > 0 ? now_ : 0.0);
        if (c.threads > 0) now_ = start + c.threads;
        done_[index(v)] = c.threads > 0 ? now_ : start;
        if (c.units > 0) units_ = done_[index(v)] = std::max(units_, now_) + c.units;
        order_.push_back(v);
    }

    const Function& fn_;
    std::vector<double> left_;  ///< cycles from an operation's start to the end
    std::vector<double> done_;  ///< when a value is there
    std::vector<ValueId> order_;
    double now_ = 0, units_ = 0;
};

Function overlapped(const Function& fn) { return Overlapping(fn).run(); }

/// The operations of a task of a single chunk, in an order that needs little memory, so that many tasks are in flight:
/// products of what has arrived first, then one result after the other, each time the one that leaves least behind.
class Thrifty {
 public:
    explicit Thrifty(const Function& fn) : fn_(fn), users_(ir::users_of(fn)), done_(fn.ops.size(), false) {}

    Function run() {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (fn_.op(v).code == Opcode::Param) take(v);
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (early_product(v)) take_all(needed(v));
        std::vector<ValueId> results;
        for (const ir::Result& r : fn_.results) results.push_back(r.value);
        while (!results.empty()) {
            const auto best = std::min_element(results.begin(), results.end(), [&](ValueId a, ValueId b) { return room(a) < room(b); });
            take_all(needed(*best));
            results.erase(best);
        }
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (!done_[index(v)]) take(v);
        return reordered();
    }

 private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }
    void take(ValueId v) {
        done_[index(v)] = true;
        order_.push_back(v);
    }
    void take_all(const std::vector<ValueId>& values) {
        for (const ValueId v : values) take(v);
    }

    /// A product of what is made from parameters by neither products nor long steps.
    [[nodiscard]] bool early_product(ValueId v) const {
        const auto product = [](const Op& op) { return ir::is_matmul(op.code) || op.code == Opcode::DecayMatmul; };
        if (!product(fn_.op(v)) || done_[index(v)]) return false;
        const auto values = needed(v);
        return std::none_of(values.begin(), values.end(), [&](ValueId u) { return u != v && (product(fn_.op(u)) || fn_.op(u).code == Opcode::Inverse); });
    }

    /// What is yet to be made for a value, itself last.
    [[nodiscard]] std::vector<ValueId> needed(ValueId v) const {
        std::vector<ValueId> values;
        const auto flags = ir::needed_for(fn_, {v});
        for (ValueId u = 0; u <= v; ++u)
            if (flags[index(u)] && !done_[index(u)]) values.push_back(u);
        return values;
    }

    /// The most floats that are held while this result is made, and those still wanted once it has been stored. What is
    /// computed in the place of an operand that is wanted no more is taken to need no room.
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> room(ValueId result) const {
        std::vector<bool> made = done_;
        std::int64_t most = 0;
        for (const ValueId v : needed(result)) {
            const std::int64_t before = wanted(made);
            made[index(v)] = true;
            most = std::max(most, before + (in_place(v, made) ? 0 : floats(v)));
        }
        return {std::max(most, wanted(made)), wanted(made)};
    }
    [[nodiscard]] std::int64_t wanted(const std::vector<bool>& made) const {
        std::int64_t sum = 0;
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (made[index(v)] && is_wanted(v, made)) sum += floats(v);
        return sum;
    }
    /// Whether something that is yet to be made reads the value, if only from within a loop.
    [[nodiscard]] bool is_wanted(ValueId v, const std::vector<bool>& made) const {
        return std::any_of(users_[index(v)].begin(), users_[index(v)].end(),
                           [&](ValueId u) { return !made[index(u)] || (fn_.op(u).layout->space == Space::Reg && is_wanted(u, made)); });
    }
    [[nodiscard]] std::int64_t floats(ValueId v) const {
        const Op& op = fn_.op(v);
        if (!in_memory(op.layout->space) || !is_block_matrix(op.type)) return 0;
        return size_of(op.type, 0) * size_of(op.type, 1) / (op.layout->space == Space::Operand ? 2 : 1);
    }
    [[nodiscard]] bool in_place(ValueId v, const std::vector<bool>& made) const {
        if (!ir::is_elementwise(fn_.op(v).code) && fn_.op(v).code != Opcode::Cumsum) return false;
        const auto read = tiles_read_by(fn_, v);
        return std::any_of(read.begin(), read.end(), [&](ValueId t) {
            return floats(t) == floats(v) && fn_.op(t).layout->space == fn_.op(v).layout->space && !is_wanted(t, made);
        });
    }

    [[nodiscard]] Function reordered() const {
        std::vector<ValueId> position(fn_.ops.size());
        Function out;
        out.name = fn_.name;
        for (const ValueId v : order_) {
            Op op = fn_.op(v);
            for (ValueId& a : op.args) a = position[index(a)];
            position[index(v)] = out.add(std::move(op));
        }
        for (ir::Result r : fn_.results) {
            r.value = position[index(r.value)];
            out.results.push_back(r);
        }
        return out;
    }

    const Function& fn_;
    std::vector<std::vector<ValueId>> users_;
    std::vector<bool> done_;
    std::vector<ValueId> order_;
};

/// Vectors of one number per token, and what follows from them alone: one warp can make them ahead, in its registers.
std::vector<ValueId> vectors_alone(const Function& fn) {
    std::vector<bool> alone(fn.ops.size(), false);
    std::vector<ValueId> found;
    const auto small = [](const ir::Type& type) { return type.rank() == 0 || (type.rank() == 1 && type.shape[0].factor == kBlock); };
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        const auto i = static_cast<std::size_t>(v);
        const bool from_numbers = std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) {
            const Op& arg = fn.op(a);
            return alone[static_cast<std::size_t>(a)] || (arg.layout->space == Space::Reg && arg.type.rank() == 0);
        });
        const bool from_vectors = std::any_of(op.args.begin(), op.args.end(), [&](ValueId a) { return alone[static_cast<std::size_t>(a)]; });
        if (op.code == Opcode::Param) alone[i] = op.attrs.role == Role::Input && op.type.rank() == 1 && small(op.type);
        else if (op.code == Opcode::DecayMask) alone[i] = from_vectors && small(fn.op(op.args[0]).type);
        else if (op.code == Opcode::Cumsum || op.code == Opcode::Sum) alone[i] = from_vectors && small(fn.op(op.args[0]).type);
        else if (ir::is_elementwise(op.code) || op.code == Opcode::Copy) alone[i] = from_vectors && from_numbers && small(op.type) && op.type.dtype != DType::Bool;
        if (alone[i]) found.push_back(v);
    }
    return found;
}

/// Memory for tiles and operands: what arrives from global memory in stages, the rest by its lives. Operands begin at
/// multiples of 1024 bytes, so they and all that is large share one arena, and vectors another.
class Memory {
 public:
    Memory(Function fn, int stages) : fn_(std::move(fn)), stages_(stages), vectors_(vectors_alone(fn_)) {}

    TileKernel run() {
        keep_in_registers();
        find_lives();
        for (const ValueId v : vectors_) place(v);  // they are made before anything else
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!is_vector(v)) place(v);
            if (const std::int64_t work = work_floats(fn_, v, rules()); work > 0) work_[v] = large_.take(rounded(work));
            release(v);
            if (work_.contains(v)) large_.give(work_[v], rounded(work_floats(fn_, v, rules())));
        }
        join_regions();
        TileKernel kernel{std::move(fn_), 0, std::move(work_)};
        kernel.stage_floats = stage_;
        kernel.stages = stages_;
        kernel.vectors = vectors_;
        kernel.scratch_floats = stages() * stage_ + rounded(large_.size()) + rounded(small_.size());
        return kernel;
    }

    static Rules rules() { return {4, true}; }

 private:
    static constexpr std::int64_t kOperandFloats = 256;  ///< of 1024 bytes
    static std::int64_t rounded(std::int64_t floats) { return (floats + kOperandFloats - 1) / kOperandFloats * kOperandFloats; }

    [[nodiscard]] bool owns_buffer(ValueId v) const { return in_memory(fn_.op(v).layout->space) && !ir::is_view(fn_.op(v).code); }
    [[nodiscard]] bool is_param(ValueId v, Role role) const { return fn_.op(v).code == Opcode::Param && fn_.op(v).attrs.role == role; }
    [[nodiscard]] bool is_vector(ValueId v) const { return std::find(vectors_.begin(), vectors_.end(), v) != vectors_.end(); }
    [[nodiscard]] bool is_staged(ValueId v) const { return stages_ > 1 && (is_param(v, Role::Input) || is_param(v, Role::Spill) || is_vector(v)); }
    /// Filled before the chunks, or, like what one warp makes ahead, before the first operation of one.
    [[nodiscard]] bool is_permanent(ValueId v) const {
        return is_vector(v) || (fn_.op(v).code == Opcode::Param && (stages_ > 1 || !(is_param(v, Role::Input) || is_param(v, Role::Spill))));
    }

    /// Vectors that only other vectors are made from need no memory.
    void keep_in_registers() {
        const auto users = ir::users_of(fn_);
        const auto results = ir::result_uses(fn_);
        for (const ValueId v : vectors_) {
            const auto& readers = users[static_cast<std::size_t>(v)];
            if (fn_.op(v).code == Opcode::Param) continue;  // as it lies in global memory
            const bool inside = results[static_cast<std::size_t>(v)] == 0 && std::all_of(readers.begin(), readers.end(), [&](ValueId u) { return is_vector(u); });
            if (inside) fn_.op(v).layout->space = Space::Reg;
        }
    }

    [[nodiscard]] std::int64_t floats(ValueId v) const {
        const Op& op = fn_.op(v);
        if (op.code == Opcode::DecayMask) return size_of(op.type, 0) + 4;
        if (op.layout->space == Space::Operand) return op.layout->parts * size_of(op.type, 0) * size_of(op.type, 1) / 2;
        return tile_floats(op.type, rules());
    }
    [[nodiscard]] bool is_large(ValueId v) const { return fn_.op(v).layout->space == Space::Operand || floats(v) >= kOperandFloats; }

    void find_lives() {
        last_read_.assign(fn_.ops.size(), -1);
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (fn_.op(v).layout->space == Space::Reg || ir::is_view(fn_.op(v).code)) continue;
            for (const ValueId t : tiles_read_by(fn_, v)) last_read_[static_cast<std::size_t>(t)] = v;
            last_read_[static_cast<std::size_t>(v)] = std::max(last_read_[static_cast<std::size_t>(v)], v);
        }
        for (const ir::Result& r : fn_.results)
            if (is_carried(r.role)) last_read_[static_cast<std::size_t>(buffer_of(fn_, r.value))] = fn_.size();
    }

    void place(ValueId v) {
        Op& op = fn_.op(v);
        if (ir::is_view(op.code) && op.layout->space == Space::Tile) {
            const Op& base = fn_.op(op.args[0]);
            if (base.layout->space != Space::Tile) refuse(fn_, v, "a view of a matrix");
            op.layout = view_layout(op, base.type, *base.layout);
            op.layout->staged = base.layout->staged;
            return;
        }
        if (!owns_buffer(v)) return;
        if (op.layout->space == Space::Tile && op.code != Opcode::DecayMask) op.layout->strides = tile_strides(op.type, rules());
        const bool large = is_large(v);
        const std::int64_t size = large ? rounded(floats(v)) : (floats(v) + 3) / 4 * 4;
        if (const ValueId from = taken_over(v); from != ir::kNoValue) {
            op.layout->offset = fn_.op(from).layout->offset;
            moved_.insert(from);
        } else if (is_staged(v)) {
            op.layout->staged = true;
            op.layout->offset = large ? stage_large_ : stage_small_;
            (large ? stage_large_ : stage_small_) += size;
        } else {
            op.layout->offset = (large ? large_ : small_).take(size);
        }
    }

    /// A matrix that another of the same shape and form may be written over: each element is read last, and by the thread that
    /// writes it.
    [[nodiscard]] ValueId taken_over(ValueId v) const {
        const Op& op = fn_.op(v);
        const bool down_columns = op.code == Opcode::Cumsum && op.attrs.dim == 0;  // a thread has a column
        if (!in_memory(op.layout->space) || !is_block_matrix(op.type) || !(ir::is_elementwise(op.code) || down_columns)) return ir::kNoValue;
        for (const ValueId t : tiles_read_by(fn_, v)) {
            const Op& from = fn_.op(t);
            const bool dies = last_read_[static_cast<std::size_t>(t)] == v && !is_permanent(t) && !is_staged(t) && !moved_.contains(t) && !viewed(t);
            if (dies && from.code != Opcode::DecayMask && from.layout->space == op.layout->space && from.type.shape == op.type.shape && from.layout->parts == op.layout->parts) return t;
        }
        return ir::kNoValue;
    }

    [[nodiscard]] bool viewed(ValueId t) const {
        return std::any_of(fn_.ops.begin(), fn_.ops.end(), [&](const Op& op) { return ir::is_view(op.code) && op.args[0] == t; });
    }

    void release(ValueId v) {
        for (ValueId t = 0; t <= v; ++t) {
            if (last_read_[static_cast<std::size_t>(t)] != v || !owns_buffer(t) || is_permanent(t) || moved_.contains(t)) continue;
            const bool large = is_large(t);
            (large ? large_ : small_).give(fn_.op(t).layout->offset, large ? rounded(floats(t)) : (floats(t) + 3) / 4 * 4);
        }
    }

    [[nodiscard]] std::int64_t stages() const { return stages_ > 1 ? stages_ : 0; }

    /// A stage: its large buffers, then its small ones. All stages, then the large arena, then the small one.
    void join_regions() {
        stage_ = stage_large_ + rounded(stage_small_);
        const std::int64_t large = stages() * stage_, small = large + rounded(large_.size());
        for (auto& [v, offset] : work_) offset += large;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            Op& op = fn_.op(v);
            if (!in_memory(op.layout->space)) continue;
            const ValueId base = buffer_of(fn_, v);
            if (op.layout->staged) op.layout->offset += is_large(base) ? 0 : stage_large_;
            else op.layout->offset += is_large(base) ? large : small;
        }
    }

    Function fn_;
    int stages_;
    std::vector<ValueId> vectors_;
    Arena large_{true}, small_{true};
    std::int64_t stage_large_ = 0, stage_small_ = 0, stage_ = 0;
    std::vector<int> last_read_;
    std::map<ValueId, std::int64_t> work_;
    std::set<ValueId> moved_;  ///< whose buffer another value has taken over
};

}  // namespace

bool is_block_matrix(const ir::Type& type) {
    return type.rank() == 2 && std::all_of(type.shape.begin(), type.shape.end(), [](const Dim& d) { return d.is_constant() && d.factor % kBlock == 0; });
}

int parts_of(const Function& fn, ValueId v, const std::map<std::string, int>& spill_parts) {
    const Op& op = fn.op(v);
    if (op.code == Opcode::Inverse) return 2;
    if (op.code == Opcode::Param && op.attrs.role == Role::Spill) {
        const auto it = spill_parts.find(op.attrs.name);
        return it == spill_parts.end() ? 1 : it->second;
    }
    if (op.code != Opcode::Copy && op.code != Opcode::Mul) return 1;
    int parts = 1;
    for (const ValueId a : op.args) parts = std::max(parts, parts_of(fn, a, spill_parts));
    return parts;
}

std::variant<TileKernel, std::string> lower_to_fragments(const Function& kernel, const Sizes& sizes, const FragmentRules& rules) {
    try {
        const Function symbolic = ordered(with_copied_vectors(kernel));
        Function fn = symbolic;
        for (Op& op : fn.ops) op.type = with_sizes(std::move(op.type), sizes);
        const Forms forms(symbolic, fn, rules);
        Function copied = Copies(fn, forms, rules).run();
        return Memory(rules.stages > 1 ? overlapped(copied) : Thrifty(copied).run(), rules.stages).run();  // where tasks abound, they hide each other's waits
    } catch (const Obstacle& obstacle) {
        return obstacle.what;
    }
}

}  // namespace forge::tile
