#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>

#include "ir/rebuild.h"
#include "tile/fragment_steps.h"
#include "tile/order.h"
#include "tile/warp_vectors.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Space = Layout::Space;

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
        const double depth = static_cast<double>(size_of(a.type, op.attrs.trans_a ? 0 : 1)),
                     parts = products_of_parts(a.layout->parts, fn.op(op.args[1]).layout->parts);
        return {kPerInstruction * elements * depth * parts / (64 * 64 * 16),
                kLatency + elements * depth * parts / (64 * 2 * 16)};
    }
    if (!is_block_matrix(op.type)) return {kBarrier + 60, 0};
    if (op.code == Opcode::Inverse) return {6000, 0};
    if (op.code == Opcode::DecayMatmul) return {5000, 0};
    if (op.code == Opcode::DecayApply && is_fragment(op.layout->space)) return {5000, 0};
    const double registers = elements / 128;
    return {kPerRegister * registers + (in_memory(op.layout->space) ? kBarrier : 0), 0};
}

/// When copies of what registers hold are stored: with what else there is to do; those of carried states as soon as a
/// product is under way; or those of all that is made as soon as it is, of carried states before anything else, so that
/// what follows may have their registers.
enum class Stores { InTurn, EarlyStates, AtOnce };

/// The operations in an order that keeps the matrix units busy while the threads do other work: what lies on the
/// longest way to the end first, and nothing that must wait while something else need not. Groups with roles of their
/// own have threads of their own.
class Overlapping {
  public:
    Overlapping(const Function& fn, bool alone, const Roles* roles, Stores stores = Stores::InTurn)
        : fn_(fn),
          alone_(alone),
          stores_(stores),
          roles_(roles),
          vectors_(vectors_alone(fn)),
          left_(fn.ops.size(), 0),
          done_(fn.ops.size(), -1),
          taken_(fn.ops.size(), false) {
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
        // States do not wait for outputs: those of the chunk before are there when the outputs' groups come to ask for
        // them.
        if (roles_)
            for (const Roles::Passed& p : roles_->passed)
                if (fn.op(fn.op(p.value).args[0]).code == Opcode::Param) done_[index(p.value)] = 0;
    }

    Function run() {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (fn_.op(v).code == Opcode::Param) take(v);
        if (stores_ == Stores::AtOnce) take_copies_and_heirs();
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (from_carried(v)) take_with_operands(v);
        while (static_cast<int>(order_.size()) < fn_.size()) take(next());
        // One group's text after the other's: outputs may come before a state that they take from the chunk before.
        if (roles_)
            std::stable_partition(order_.begin(), order_.end(), [&](ValueId v) {
                return fn_.op(v).code == Opcode::Param || roles_->does(Roles::kGives, v);
            });
        return ir::permuted(fn_, order_);
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    /// The copies of carried states, and then what follows from them, each time from the state from which the least
    /// still does: the last that follows from a state may have its registers.
    void take_copies_and_heirs() {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (copies_carried(v)) take_with_operands(v);
        std::map<ValueId, std::vector<ValueId>> heirs;  // of each state
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (!taken_[index(v)] && is_heir(v))
                for (const ValueId t : tiles_read_by(fn_, v))
                    if (is_carried_fragment(t)) heirs[t].push_back(v);
        while (!heirs.empty()) {
            const auto fewest = std::min_element(heirs.begin(), heirs.end(), [](const auto& a, const auto& b) {
                return a.second.size() < b.second.size();
            });
            const ValueId heir = fewest->second[0];
            take_with_operands(heir);
            for (auto& [state, values] : heirs) std::erase(values, heir);
            std::erase_if(heirs, [](const auto& h) { return h.second.empty(); });
        }
    }
    /// Follows from carried fragments, vectors, and matrices that are loaded for it.
    [[nodiscard]] bool is_heir(ValueId v) const {
        return follows_states(v, [&](ValueId t) {
            return fn_.op(t).code == Opcode::Copy && fn_.op(fn_.op(t).args[0]).code == Opcode::Param;
        });
    }

    /// What follows from a carried fragment, vectors and numbers comes before all products: the compiler does not see
    /// that the last chunk's have ended once others are under way.
    [[nodiscard]] bool from_carried(ValueId v) const {
        if (roles_ && roles_->find(v)) return is_accumulated_onto(fn_.op(v).args[0]);
        return follows_states(v, [&](ValueId t) { return is_made_ahead(t); });
    }
    /// Work on fragments that reads carried ones, other parameters, and what `is_there`.
    template <class IsThere>
    [[nodiscard]] bool follows_states(ValueId v, IsThere is_there) const {
        if (!ir::is_elementwise(fn_.op(v).code) || !is_fragment(fn_.op(v).layout->space)) return false;
        const auto read = tiles_read_by(fn_, v);
        return std::all_of(read.begin(), read.end(),
                           [&](ValueId t) { return fn_.op(t).code == Opcode::Param || is_there(t); }) &&
               std::any_of(read.begin(), read.end(), [&](ValueId t) { return is_carried_fragment(t); });
    }
    /// By the producer of a block of tiles, whose groups have no registers to spare for a state and what follows from
    /// it.
    [[nodiscard]] bool is_made_ahead(ValueId v) const {
        return roles_ && roles_->by_tiles && std::find(vectors_.begin(), vectors_.end(), v) != vectors_.end();
    }
    [[nodiscard]] bool is_accumulated_onto(ValueId carried) const {
        return fn_.op(carried).code == Opcode::Param && std::any_of(fn_.ops.begin(), fn_.ops.end(), [&](const Op& op) {
                   return ir::is_matmul(op.code) && op.args.size() == 3 && op.args[2] == carried;
               });
    }
    void take_with_operands(ValueId v) {
        for (const ValueId a : fn_.op(v).args)
            if (!taken_[index(a)]) take_with_operands(a);
        if (!taken_[index(v)]) take(v);
    }

    /// When the operands are available; negative if one has not been scheduled.
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
            if (taken_[index(v)]) continue;
            const double at = ready(v);
            if (at < 0) continue;
            if (stores_ == Stores::EarlyStates && units_ > 0 && copies_carried(v)) return v;
            if (stores_ == Stores::AtOnce && copies_fragment(v) && !ir::is_matmul(fn_.op(fn_.op(v).args[0]).code))
                return v;
            const double start = std::max(at, clock(v));
            const bool better =
                best == ir::kNoValue || start < best_start || (start == best_start && urgency(v) > urgency(best));
            if (better) best = v, best_start = start;
        }
        return best;
    }

    /// Packed as the first product takes it, a carried state has no registers to wait in for the second.
    [[nodiscard]] bool copies_carried(ValueId v) const {
        return copies_fragment(v) && fn_.op(fn_.op(v).args[0]).code == Opcode::Param;
    }
    [[nodiscard]] bool copies_fragment(ValueId v) const {
        const Op& op = fn_.op(v);
        return op.code == Opcode::Copy && op.layout->space == Space::Operand &&
               is_fragment(fn_.op(op.args[0]).layout->space);
    }
    [[nodiscard]] bool is_carried_fragment(ValueId v) const {
        return fn_.op(v).code == Opcode::Param && is_fragment(fn_.op(v).layout->space);
    }

    /// The way that is left; but before all else what puts idle matrix units to work, if no other task does.
    [[nodiscard]] double urgency(ValueId v) const {
        constexpr double kFirst = 1e6;
        return left_[index(v)] + (alone_ && units_ <= clock(v) && ir::is_matmul(fn_.op(v).code) ? kFirst : 0);
    }

    void take(ValueId v) {
        const Cost c = cost_of(fn_, v);
        double& now = now_[threads_of(v)];
        const double start = std::max(std::max(0.0, ready(v)), c.threads > 0 ? now : 0.0);
        if (c.threads > 0) now = start + c.threads;
        done_[index(v)] = c.threads > 0 ? now : start;
        if (c.units > 0) units_ = done_[index(v)] = std::max(units_, now) + c.units;
        taken_[index(v)] = true;
        order_.push_back(v);
    }

    /// When the threads that compute the value are done with all that they have been given.
    [[nodiscard]] double clock(ValueId v) const { return now_[threads_of(v)]; }
    [[nodiscard]] std::size_t threads_of(ValueId v) const { return roles_ && !roles_->does(Roles::kGives, v) ? 1 : 0; }

    const Function& fn_;
    bool alone_;
    Stores stores_;
    const Roles* roles_;
    std::vector<ValueId> vectors_;
    std::vector<double> left_;  ///< cycles from an operation's start to the end
    std::vector<double> done_;  ///< when a value is available
    std::vector<bool> taken_;   ///< whether it has its place in the order
    std::vector<ValueId> order_;
    std::array<double, 2> now_ = {};
    double units_ = 0;
};

/// The operations of a task of a single chunk, in an order that needs little memory, so that many tasks are in flight:
/// products of what has arrived first, then one result after the other, each time the one that leaves least behind.
class Thrifty {
  public:
    explicit Thrifty(const Function& fn) : fn_(fn), users_(ir::users_of(fn)), done_(fn.ops.size(), 0) {}

    Function run() {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (fn_.op(v).code == Opcode::Param) take(v);
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (early_product(v)) take_all(needed(v));
        std::vector<ValueId> results;
        for (const ir::Result& r : fn_.results) results.push_back(r.value);
        while (!results.empty()) {
            auto best = results.begin();
            Room least = kNoBound;
            for (auto it = results.begin(); it != results.end(); ++it)
                if (const Room it_takes = room(*it, least.first); it_takes < least) best = it, least = it_takes;
            take_all(needed(*best));
            results.erase(best);
        }
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (!done_[index(v)]) take(v);
        return ir::permuted(fn_, order_);
    }

  private:
    using Flags = std::vector<char>;  // read all the time
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }
    void take(ValueId v) {
        done_[index(v)] = 1;
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
        return std::none_of(values.begin(), values.end(), [&](ValueId u) {
            return u != v && (product(fn_.op(u)) || fn_.op(u).code == Opcode::Inverse);
        });
    }

    /// What is yet to be made for a value, itself last.
    [[nodiscard]] std::vector<ValueId> needed(ValueId v) const {
        std::vector<ValueId> values;
        const auto flags = ir::needed_for(fn_, {v});
        for (ValueId u = 0; u <= v; ++u)
            if (flags[index(u)] && !done_[index(u)]) values.push_back(u);
        return values;
    }

    /// The most floats that are held while a result is made, and those still wanted once it has been stored.
    using Room = std::pair<std::int64_t, std::int64_t>;
    static constexpr Room kNoBound = {std::numeric_limits<std::int64_t>::max(), 0};

    /// What is computed in place of an operand that is dead afterwards is taken to need no memory. Where it is more
    /// than `bound` floats, only that is told.
    [[nodiscard]] Room room(ValueId result, std::int64_t bound) const {
        Flags made = done_;
        Flags held = wanted(made);
        std::int64_t most = 0;
        for (const ValueId v : needed(result)) {
            const std::int64_t before = floats(held);
            made[index(v)] = 1;
            held = wanted(made);
            most = std::max(most, before + fragment_work_floats(fn_, v) + (in_place(v, held) ? 0 : floats(v)));
            if (most > bound) return {most, 0};
        }
        return {std::max(most, floats(held)), floats(held)};
    }
    /// Which values there are that something yet to be made reads, if only from within a loop.
    [[nodiscard]] Flags wanted(const Flags& made) const {
        Flags wanted(made.size(), 0);
        for (ValueId v = fn_.size() - 1; v >= 0; --v)
            wanted[index(v)] =
                made[index(v)] && std::any_of(users_[index(v)].begin(), users_[index(v)].end(), [&](ValueId u) {
                    return !made[index(u)] || (fn_.op(u).layout->space == Space::Reg && wanted[index(u)]);
                });
        return wanted;
    }
    [[nodiscard]] std::int64_t floats(const Flags& values) const {
        std::int64_t sum = 0;
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (values[index(v)]) sum += floats(v);
        return sum;
    }
    [[nodiscard]] std::int64_t floats(ValueId v) const {
        const Op& op = fn_.op(v);
        if (!in_memory(op.layout->space) || !is_block_matrix(op.type)) return 0;
        return size_of(op.type, 0) * size_of(op.type, 1) / (op.layout->space == Space::Operand ? 2 : 1);
    }
    [[nodiscard]] bool in_place(ValueId v, const Flags& held) const {
        if (!ir::is_elementwise(fn_.op(v).code) && fn_.op(v).code != Opcode::Cumsum) return false;
        const auto read = tiles_read_by(fn_, v);
        return std::any_of(read.begin(), read.end(), [&](ValueId t) {
            return floats(t) == floats(v) && fn_.op(t).layout->space == fn_.op(v).layout->space && !held[index(t)];
        });
    }

    const Function& fn_;
    std::vector<std::vector<ValueId>> users_;
    Flags done_;
    std::vector<ValueId> order_;
};

/// A thread's registers for fragments, those that carry states to the next chunk included, and for what is packed of
/// them from the first product that takes it to the last, or to the copy that stores it.
std::int64_t most_registers(const Function& fn) {
    const auto users = ir::users_of(fn);
    const auto in_loop = [&](ValueId v) { return fn.op(v).layout->space == Space::Reg || ir::is_view(fn.op(v).code); };
    std::vector<ValueId> last(fn.ops.size());  // where each value is read last, by loops and views too
    for (ValueId v = fn.size() - 1; v >= 0; --v) {
        last[static_cast<std::size_t>(v)] = v;
        for (const ValueId u : users[static_cast<std::size_t>(v)])
            last[static_cast<std::size_t>(v)] =
                std::max(last[static_cast<std::size_t>(v)], in_loop(u) ? last[static_cast<std::size_t>(u)] : u);
    }
    std::vector<std::int64_t> held(fn.ops.size() + 1, 0);
    const auto hold = [&](ValueId from, ValueId to, std::int64_t count) {
        for (ValueId v = from; v <= to; ++v) held[static_cast<std::size_t>(v)] += count;
    };
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        if (!is_fragment(op.layout->space)) continue;
        const std::int64_t registers = size_of(op.type, 0) * size_of(op.type, 1) / 128;
        hold(v, last[static_cast<std::size_t>(v)], registers);
        ValueId first = fn.size(), packed = -1;
        for (const ValueId u : users[static_cast<std::size_t>(v)]) {
            if (!ir::is_matmul(fn.op(u).code) && fn.op(u).layout->space != Space::Operand) continue;
            if (fn.op(u).args.size() == 3 && fn.op(u).args[2] == v) continue;
            first = std::min(first, u), packed = std::max(packed, u);
        }
        hold(first, packed, registers / 2);
    }
    return *std::max_element(held.begin(), held.end());
}

/// The same with what the next chunk's states need first, of what tiles have in common last: what comes after has the
/// registers that the other has taken.
Function with_states_first(const Function& fn, const Roles& roles) {
    std::vector<ValueId> carried, order;
    for (const ir::Result& r : fn.results)
        if (is_carried(r.role)) carried.push_back(r.value);
    const auto needed = ir::needed_for(fn, carried);
    for (ValueId v = 0; v < fn.size(); ++v) order.push_back(v);
    std::stable_partition(order.begin(), order.end(), [&](ValueId v) {
        const bool first = needed[static_cast<std::size_t>(v)] == roles.does(Roles::kTakes, v);
        return fn.op(v).code == Opcode::Param || first;
    });
    return ir::permuted(fn, order);
}

/// The same with what is loaded into registers as late as can be: right before the operation that reads it.
Function with_late_loads(const Function& fn) {
    const auto waits = [&](ValueId v) {
        const Op& op = fn.op(v);
        const bool load = op.code == Opcode::Copy && is_fragment(op.layout->space) &&
                          fn.op(op.args[0]).layout->space == Space::Operand;
        return load || op.layout->space == Space::Reg || ir::is_view(op.code);
    };
    std::vector<ValueId> order;
    std::vector<bool> taken(fn.ops.size(), false);
    const std::function<void(ValueId)> take = [&](ValueId v) {
        if (taken[static_cast<std::size_t>(v)]) return;
        for (const ValueId a : fn.op(v).args) take(a);
        taken[static_cast<std::size_t>(v)] = true;
        order.push_back(v);
    };
    for (ValueId v = 0; v < fn.size(); ++v)
        if (fn.op(v).code == Opcode::Param || !waits(v)) take(v);
    for (ValueId v = 0; v < fn.size(); ++v) take(v);
    return ir::permuted(fn, order);
}

/// How the operations of a chunk stand to the states before it.
struct StateReaders {
    std::vector<ValueId> products;     ///< that take a state as their first operand
    std::vector<ValueId> overwriters;  ///< whose results may have a state's registers
};
StateReaders readers_of_states(const Function& fn) {
    StateReaders readers;
    const auto is_state = [&](ValueId v) {
        return fn.op(v).code == Opcode::Param && is_fragment(fn.op(v).layout->space);
    };
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        const bool product = ir::is_matmul(op.code);
        if (product && is_state(op.args[op.layout->space == Space::Transposed ? 1 : 0])) readers.products.push_back(v);
        else if (std::any_of(op.args.begin(), op.args.end(), is_state)) readers.overwriters.push_back(v);
    }
    return readers;
}

/// Whether a kernel has more to do than to carry states and to store them for others.
bool makes_outputs(const Function& fn) {
    return std::any_of(fn.results.begin(), fn.results.end(), [](const ir::Result& r) { return r.role == Role::Input; });
}

}  // namespace

Function overlapped(const Function& fn, bool alone, const Roles* roles, bool stores_first) {
    constexpr std::int64_t kEnough = 224, kAll = 255;
    Function order = Overlapping(fn, alone, roles, stores_first ? Stores::AtOnce : Stores::InTurn).run();
    if (roles) return order;
    const auto try_with = [&](Stores stores) {
        Function other = Overlapping(fn, alone, roles, stores).run();
        if (most_registers(other) < most_registers(order)) order = std::move(other);
    };
    if (most_registers(order) > kEnough) try_with(Stores::EarlyStates);
    if (most_registers(order) > kAll && !makes_outputs(fn)) try_with(Stores::AtOnce);
    return order;
}
Function with_few_registers(const Function& fn, const Roles& roles) {
    return with_late_loads(with_states_first(fn, roles));
}
Function with_states_read_first(const Function& fn) {
    std::vector<ValueId> carried, first, order;
    for (const ir::Result& r : fn.results)
        if (is_carried(r.role)) carried.push_back(r.value);
    const StateReaders readers = readers_of_states(fn);
    const std::vector<bool> next = ir::needed_for(fn, carried), follows = ir::depends_on(fn, readers.products),
                            overwrites = ir::depends_on(fn, readers.overwriters);
    for (ValueId v = 0; v < fn.size(); ++v) {
        const auto i = static_cast<std::size_t>(v);
        if (next[i] && follows[i] && !overwrites[i]) first.push_back(v);
    }
    const std::vector<bool> chain = ir::needed_for(fn, first), reads = ir::needed_for(fn, readers.products);
    const auto turn = [&](ValueId v) {
        const auto i = static_cast<std::size_t>(v);
        return fn.op(v).code == Opcode::Param ? 0 : chain[i] ? 1 : reads[i] ? 2 : next[i] ? 3 : 4;
    };
    for (ValueId v = 0; v < fn.size(); ++v) order.push_back(v);
    std::stable_sort(order.begin(), order.end(), [&](ValueId a, ValueId b) { return turn(a) < turn(b); });
    return with_late_loads(ir::permuted(fn, order));
}
Function thrifty(const Function& fn) { return Thrifty(fn).run(); }

}  // namespace forge::tile
