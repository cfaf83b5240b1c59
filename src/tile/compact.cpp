#include "tile/compact.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "ir/text.h"
#include "tile/order.h"
#include "tile/search.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Space = ir::Layout::Space;

/// What the order of a function's operations decides about: which values take tiles, of what size, and what reads them.
class Tiles {
  public:
    Tiles(const Function& fn, const Rules& rules) : fn_(fn) {
        for (ValueId v = 0; v < fn.size(); ++v) {
            floats_.push_back(has_tile(v) ? tile_floats(fn.op(v).type, rules) : 0);
            work_.push_back(work_floats(fn, v, rules));
            reads_.push_back(is_made(v) ? distinct(tiles_read_by(fn, v)) : std::vector<ValueId>{});
            again_.push_back(can_come_again(v) ? 1 : 0);
        }
    }

    [[nodiscard]] bool has_tile(ValueId v) const {
        return fn_.op(v).layout->space == Space::Tile && !ir::is_view(fn_.op(v).code);
    }
    /// Whether something is done for it where it stands: it is no view, and no number of its readers' loops.
    [[nodiscard]] bool is_made(ValueId v) const {
        return !ir::is_view(fn_.op(v).code) && fn_.op(v).layout->space != Space::Reg;
    }
    /// What is there before the first operation: of a call, a head, or the chunks before.
    [[nodiscard]] bool is_given(ValueId v) const {
        const Op& op = fn_.op(v);
        return op.code == Opcode::Param && (op.attrs.role == Role::Head || is_carried(op.attrs.role));
    }
    /// Whether it may be given up and made again: an input, or what one elementwise operation makes of inputs.
    [[nodiscard]] bool comes_again(ValueId v) const { return again_[index(v)] != 0; }
    [[nodiscard]] std::int64_t floats(ValueId v) const { return floats_[index(v)]; }
    [[nodiscard]] std::int64_t work(ValueId v) const { return work_[index(v)]; }
    [[nodiscard]] const std::vector<ValueId>& reads(ValueId v) const { return reads_[index(v)]; }
    /// Whether v may take the place of an operand that nothing reads afterwards.
    [[nodiscard]] bool takes_place_of(ValueId v, ValueId operand) const {
        const Op& op = fn_.op(v);
        if (is_given(operand) || floats(operand) != floats(v)) return false;
        if (op.code == Opcode::MatmulAdd || op.code == Opcode::MatmulSub) return buffer_of(fn_, op.args[2]) == operand;
        return ir::is_elementwise(op.code);
    }

    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

  private:
    static std::vector<ValueId> distinct(std::vector<ValueId> values) {
        std::sort(values.begin(), values.end());
        values.erase(std::unique(values.begin(), values.end()), values.end());
        return values;
    }
    [[nodiscard]] bool can_come_again(ValueId v) const {
        constexpr std::int64_t kSmall = 1024;  // floats that are kept anyway
        const Op& op = fn_.op(v);
        if (!has_tile(v) || is_given(v) || floats(v) <= kSmall) return false;
        if (op.code == Opcode::Param)
            return op.attrs.role == Role::Input || op.attrs.role == Role::Shifted || op.attrs.role == Role::Spill ||
                   op.attrs.role == Role::Before;
        if (!ir::is_elementwise(op.code) || costly(op.code)) return false;
        return std::all_of(reads(v).begin(), reads(v).end(), [&](ValueId a) {
            return floats(a) <= kSmall || (fn_.op(a).code == Opcode::Param && comes_again(a));
        });
    }

    const Function& fn_;
    std::vector<std::int64_t> floats_, work_;
    std::vector<std::vector<ValueId>> reads_;
    std::vector<char> again_;
};

/// Orders of a function's operations: one result or sum after the other, each with what it needs and is not there yet.
class Orders {
  public:
    Orders(const Function& fn, const Tiles& tiles, std::int64_t most) : fn_(fn), tiles_(tiles), most_(most) {
        for (ValueId v = 0; v < fn.size(); ++v) {
            sorted_.push_back(fn.op(v).args);
            std::stable_sort(sorted_.back().begin(), sorted_.back().end(), [&](ValueId a, ValueId b) {
                return need_[index(a)] - tiles.floats(a) > need_[index(b)] - tiles.floats(b);
            });
            need_.push_back(need(v));
        }
    }

    /// The best to be found.
    std::vector<ValueId> searched() {
        constexpr std::int64_t kOperations = 400'000, kMostTries = 4000, kInVain = 400;
        std::vector<ValueId> goals = greedy();
        std::int64_t least = excess_of(order_of(goals));
        if (const std::vector<ValueId> plain = ends(); excess_of(order_of(plain)) < least)
            goals = plain, least = excess_of(order_of(goals));
        goals = with_products(goals);
        const std::int64_t tries = std::min(kMostTries, kOperations / fn_.size());
        std::uint32_t seed = 1;
        std::int64_t in_vain = 0;
        for (std::int64_t n = 0; n < tries && least > 0 && in_vain < kInVain; ++n) {
            std::vector<ValueId> moved = goals;
            for (std::int64_t moves = 1 + n % 2; moves > 0; --moves) move_one(moved, seed);
            const std::int64_t excess = excess_of(order_of(moved));
            in_vain = excess < least ? 0 : in_vain + 1;
            if (excess <= least) goals = std::move(moved), least = excess;
        }
        return order_of(goals);
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    [[nodiscard]] bool is_result(ValueId v) const {
        return std::any_of(fn_.results.begin(), fn_.results.end(), [&](const ir::Result& r) { return r.value == v; });
    }
    [[nodiscard]] std::vector<ValueId> ends() const {
        std::vector<ValueId> found;
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (is_result(v) || (fn_.op(v).code == Opcode::Sum && tiles_.has_tile(v))) found.push_back(v);
        return found;
    }
    [[nodiscard]] std::vector<ValueId> with_products(const std::vector<ValueId>& goals) const {
        const std::set<ValueId> known(goals.begin(), goals.end());
        std::vector<ValueId> found;
        for (const ValueId v : order_of(goals))
            if (known.contains(v) || ir::is_matmul(fn_.op(v).code)) found.push_back(v);
        return found;
    }

    /// Floats at once for a value alone (Sethi and Ullman's number, of a tree).
    [[nodiscard]] std::int64_t need(ValueId v) const {
        std::int64_t held = 0, most = tiles_.floats(v);
        for (const ValueId a : sorted_[index(v)])
            most = std::max(most, held + need_[index(a)]), held += tiles_.floats(a);
        return most;
    }

    /// Each time the end after which least is kept beyond the most.
    [[nodiscard]] std::vector<ValueId> greedy() const {
        std::vector<ValueId> left = ends(), goals;
        while (!left.empty()) {
            std::vector<std::array<std::int64_t, 2>> needs;
            for (const ValueId end : left) {
                goals.push_back(end);
                std::vector<ValueId> way = given();
                std::vector<char> made = flags(way);
                for (const ValueId goal : goals) go(goal, made, way);
                const Peak peak = peak_of(way);
                needs.push_back({peak.excess, peak.left});
                goals.pop_back();
            }
            const auto best = std::min_element(needs.begin(), needs.end()) - needs.begin();
            goals.push_back(left[static_cast<std::size_t>(best)]);
            left.erase(left.begin() + best);
        }
        return goals;
    }

    [[nodiscard]] std::vector<ValueId> given() const {
        std::vector<ValueId> order;
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (tiles_.is_given(v)) order.push_back(v);
        return order;
    }
    [[nodiscard]] std::vector<char> flags(const std::vector<ValueId>& made) const {
        std::vector<char> flags(fn_.ops.size(), 0);
        for (const ValueId v : made) flags[index(v)] = 1;
        return flags;
    }
    [[nodiscard]] std::vector<ValueId> order_of(const std::vector<ValueId>& goals) const {
        std::vector<ValueId> order = given();
        std::vector<char> made = flags(order);
        for (const ValueId goal : goals) go(goal, made, order);
        for (ValueId v = 0; v < fn_.size(); ++v) go(v, made, order);
        return order;
    }
    void go(ValueId v, std::vector<char>& made, std::vector<ValueId>& order) const {
        if (made[index(v)] != 0) return;
        made[index(v)] = 1;
        for (const ValueId a : sorted_[index(v)]) go(a, made, order);
        order.push_back(v);
    }

    struct Peak {
        std::int64_t excess = 0;  ///< floats beyond the most, of all operations
        std::int64_t left = 0;    ///< … that are wanted after the last one of an order that is not whole
    };
    [[nodiscard]] std::int64_t excess_of(const std::vector<ValueId>& order) const { return peak_of(order).excess; }

    /// What can come again takes memory only where it is read.
    [[nodiscard]] Peak peak_of(const std::vector<ValueId>& order) const {
        std::vector<int> readers(fn_.ops.size(), 0);
        for (ValueId v = 0; v < fn_.size(); ++v)
            for (const ValueId a : tiles_.reads(v)) ++readers[index(a)];
        Peak peak;
        std::int64_t kept = 0;
        for (const ValueId v : order) {
            if (!tiles_.is_made(v)) continue;
            std::int64_t now = kept + tiles_.floats(v) + tiles_.work(v), freed = 0;
            bool in_place = false;
            for (const ValueId a : tiles_.reads(v)) {
                const bool again = tiles_.comes_again(a), last = --readers[index(a)] == 0 && !tiles_.is_given(a);
                if (again) now += tiles_.floats(a);
                else if (last) freed += tiles_.floats(a);
                if (!in_place && (again || last) && tiles_.takes_place_of(v, a))
                    in_place = true, now -= tiles_.floats(v);
            }
            peak.excess += std::max<std::int64_t>(0, now - most_);
            const bool wanted = readers[index(v)] > 0 || tiles_.is_given(v);
            kept += (tiles_.comes_again(v) || !wanted ? 0 : tiles_.floats(v)) - freed;
        }
        peak.left = kept;
        return peak;
    }

    const Function& fn_;
    const Tiles& tiles_;
    std::int64_t most_;
    std::vector<std::vector<ValueId>> sorted_;  ///< operands, those first that need more than they leave
    std::vector<std::int64_t> need_;
};

/// A function in a given order, in which what can come again is given up where memory is short, if it is read again
/// later than all else (Belady 1966), and made again where it is read next.
class Reloading {
  public:
    Reloading(const Function& fn, const Tiles& tiles, std::int64_t most, std::vector<ValueId> order)
        : fn_(fn),
          tiles_(tiles),
          most_(most),
          order_(std::move(order)),
          current_(fn.ops.size(), ir::kNoValue),
          last_(current_) {
        readers_.resize(fn.ops.size());
        for (std::size_t at = order_.size(); at-- > 0;)
            for (const ValueId a : tiles_.reads(order_[at])) readers_[index(a)].push_back(static_cast<int>(at));
    }

    Function run() {
        out_.name = fn_.name;
        for (now_ = 0; now_ < static_cast<int>(order_.size()); ++now_) {
            const ValueId v = order_[static_cast<std::size_t>(now_)];
            if (!tiles_.is_made(v) || waits(v)) continue;
            make(v);
        }
        for (ir::Result r : fn_.results) {
            const ValueId made = last_[index(r.value)];
            r.value = made == ir::kNoValue ? value_of(r.value) : made;
            out_.results.push_back(std::move(r));
        }
        return std::move(out_);
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    /// Inputs are loaded where they are read.
    [[nodiscard]] bool waits(ValueId v) const {
        return fn_.op(v).code == Opcode::Param && tiles_.comes_again(v) && !readers_[index(v)].empty();
    }

    /// Reads what is there, or comes again for it; then what is read no more gives its tile back.
    void make(ValueId v) {
        for (const ValueId a : tiles_.reads(v)) needed_.insert(a);
        for (const ValueId a : tiles_.reads(v))
            if (current_[index(a)] == ir::kNoValue) make_again(a);
        give_room(room_for(v));
        current_[index(v)] = copied(v);
        hold(v);
        needed_.clear();
        for (const ValueId a : tiles_.reads(v)) {
            if (!readers_[index(a)].empty() && readers_[index(a)].back() == now_) readers_[index(a)].pop_back();
            if (readers_[index(a)].empty()) release(a);
        }
        if (readers_[index(v)].empty()) release(v);
    }

    void make_again(ValueId v) {
        needed_.insert(v);
        for (const ValueId a : tiles_.reads(v))
            if (current_[index(a)] == ir::kNoValue) make_again(a);
        give_room(room_for(v));
        current_[index(v)] = copied(v);
        hold(v);
        for (const ValueId a : tiles_.reads(v))
            if (readers_[index(a)].empty()) release(a);
    }

    [[nodiscard]] std::int64_t room_for(ValueId v) const {
        const std::int64_t room = tiles_.floats(v) + tiles_.work(v);
        for (const ValueId a : tiles_.reads(v))
            if (tiles_.takes_place_of(v, a) && (readers_[index(a)].empty() || readers_[index(a)].front() <= now_))
                return tiles_.work(v);
        return room;
    }

    void give_room(std::int64_t floats) {
        while (held_floats_ + floats > most_) {
            ValueId latest = ir::kNoValue;
            for (const ValueId a : held_)
                if (!needed_.contains(a) && tiles_.comes_again(a) &&
                    (latest == ir::kNoValue || next_reader(a) > next_reader(latest)))
                    latest = a;
            if (latest == ir::kNoValue) return;
            release(latest);
        }
    }
    [[nodiscard]] int next_reader(ValueId v) const {
        return readers_[index(v)].empty() ? 1 << 30 : readers_[index(v)].back();
    }

    void hold(ValueId v) {
        if (tiles_.has_tile(v) && held_.insert(v).second) held_floats_ += tiles_.floats(v);
    }
    /// What may come again does if it is read once more, as it is, through views, or for what it makes.
    void release(ValueId v) {
        if (tiles_.is_given(v) || held_.erase(v) == 0) return;
        held_floats_ -= tiles_.floats(v);
        if (tiles_.comes_again(v)) forget(v);
    }
    void forget(ValueId v) {
        current_[index(v)] = ir::kNoValue;
        for (ValueId u = v + 1; u < fn_.size(); ++u) {
            const auto& args = fn_.op(u).args;
            if (!tiles_.is_made(u) && current_[index(u)] != ir::kNoValue &&
                std::any_of(args.begin(), args.end(), [&](ValueId a) { return current_[index(a)] == ir::kNoValue; }))
                current_[index(u)] = ir::kNoValue;
        }
    }

    ValueId copied(ValueId v) {
        Op op = fn_.op(v);
        for (ValueId& a : op.args) a = value_of(a);
        op.layout.reset();
        return last_[index(v)] = out_.add(std::move(op));
    }
    /// What stands for it now: views, and what is made within loops, where they are first read.
    ValueId value_of(ValueId v) {
        ValueId& value = current_[index(v)];
        if (value == ir::kNoValue) value = copied(v);
        return current_[index(v)];
    }

    const Function& fn_;
    const Tiles& tiles_;
    std::int64_t most_;
    std::vector<ValueId> order_;
    Function out_;
    std::vector<ValueId> current_;           ///< what stands for a value, if it is there
    std::vector<ValueId> last_;              ///< … or stood for it last
    std::vector<std::vector<int>> readers_;  ///< of each, places in the order, the next one last
    std::set<ValueId> held_, needed_;        ///< values with tiles; those that the operation under way reads
    std::int64_t held_floats_ = 0;
    int now_ = 0;
};

}  // namespace

Function compact(const Function& fn, const Rules& rules, std::int64_t most) {
    const Tiles tiles(fn, rules);
    const auto& order = found_before<std::vector<ValueId>>(fmt::format("{} {}", most, ir::print(fn)),
                                                           [&] { return Orders(fn, tiles, most).searched(); });
    return Reloading(fn, tiles, most, order).run();
}

}  // namespace forge::tile
