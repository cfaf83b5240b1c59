/// The order of a kernel whose tasks are a chunk each, where registers are short.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "ir/rebuild.h"
#include "ir/text.h"
#include "tile/fragment_steps.h"
#include "tile/order.h"
#include "tile/search.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;
using Space = ir::Layout::Space;

/// What of a function has been made, one value after the other, and what of that is still wanted: something that is yet
/// to be made reads it, if only from within a loop.
class Progress {
  public:
    Progress(const Function& fn, bool far) : fn_(fn), readers_(fn.ops.size(), 0) {
        const auto users = ir::users_of(fn);
        feeds_.resize(fn.ops.size());
        for (ValueId v = 0; v < fn.size(); ++v) {
            const Op& op = fn.op(v);
            const std::int64_t numbers = is_block_matrix(op.type) ? size_of(op.type, 0) * size_of(op.type, 1) : 0;
            const Space space = op.layout->space;
            registers_of_.push_back(is_fragment(space) ? numbers / 128 : 0);
            const bool near = space == Space::Operand || (space == Space::Tile && (!far || op.code == Opcode::Param));
            floats_of_.push_back(near ? numbers / (space == Space::Operand ? 2 : 1) : 0);
            if (registers_of_.back() == 0 && floats_of_.back() == 0) continue;
            std::set<ValueId> readers;
            add_readers(users, v, readers);
            readers_[index(v)] = static_cast<int>(readers.size());
            for (const ValueId u : readers) feeds_[index(u)].push_back(v);
        }
        restart();
    }

    void restart() {
        made_.assign(fn_.ops.size(), 0);
        left_ = readers_;
        registers_ = floats_ = floats_given_ = 0;
    }

    [[nodiscard]] bool is_made(ValueId v) const { return made_[index(v)] != 0; }
    [[nodiscard]] std::int64_t registers_of(ValueId v) const { return registers_of_[index(v)]; }
    /// Of all that is wanted, a thread's registers and a task's floats of shared memory.
    [[nodiscard]] std::int64_t registers() const { return registers_; }
    [[nodiscard]] std::int64_t floats() const { return floats_; }
    [[nodiscard]] std::int64_t floats_made() const { return floats_ - floats_given_; }  ///< … but for parameters

    void make(ValueId v) {
        made_[index(v)] = 1;
        if (left_[index(v)] > 0) count(v, 1);
        for (const ValueId a : feeds_[index(v)])
            if (--left_[index(a)] == 0 && is_made(a)) count(a, -1);
    }
    void undo(ValueId v) {
        for (const ValueId a : feeds_[index(v)])
            if (left_[index(a)]++ == 0 && is_made(a)) count(a, 1);
        if (left_[index(v)] > 0) count(v, -1);
        made_[index(v)] = 0;
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }
    void add_readers(const std::vector<std::vector<ValueId>>& users, ValueId v, std::set<ValueId>& readers) const {
        for (const ValueId u : users[index(v)])
            if (readers.insert(u).second && fn_.op(u).layout->space == Space::Reg) add_readers(users, u, readers);
    }
    void count(ValueId v, int sign) {
        registers_ += sign * registers_of_[index(v)];
        floats_ += sign * floats_of_[index(v)];
        if (fn_.op(v).code == Opcode::Param) floats_given_ += sign * floats_of_[index(v)];
    }

    const Function& fn_;
    std::vector<int> readers_;                 ///< how many there are of a value
    std::vector<int> left_;                    ///< … and are yet to be made
    std::vector<char> made_;                   ///< flags, which are read all the time
    std::vector<std::vector<ValueId>> feeds_;  ///< what a value reads
    std::vector<std::int64_t> registers_of_, floats_of_;
    std::int64_t registers_ = 0, floats_ = 0, floats_given_ = 0;
};

/// The operations of a task of a single chunk whose inputs are there, in an order that needs few registers: one result
/// or sum after the other, each time one that leaves little behind, and of what it is made from the larger part first.
/// If that takes too many, other orders of the results are looked for.
class Frugal {
  public:
    Frugal(const Function& fn, const FragmentRules& rules)
        : fn_(fn), rules_(rules), progress_(fn, rules.has_far_tiles()) {
        for (ValueId v = 0; v < fn.size(); ++v) work_floats_.push_back(fragment_work_floats(fn, v));
        for (const Op& op : fn.ops) {
            sorted_args_.push_back(op.args);
            const auto needs_more = [&](ValueId a, ValueId b) { return need_[index(a)] > need_[index(b)]; };
            std::stable_sort(sorted_args_.back().begin(), sorted_args_.back().end(), needs_more);
            need_.push_back(need(static_cast<ValueId>(need_.size())));
        }
        for (ValueId v = 0; v < fn.size(); ++v) {
            if (is_end(v)) ends_.push_back(v);
        }
        find_freeing();
    }

    /// The best to be found: if it fits, one in which copies to shared memory free registers.
    Function searched() {
        const Order plain = order_of_room();
        if (plain.excess == 0) return arranged(with_fewer_loads(plain)).fn;
        copies_early_ = true;
        if (const Order early = order_of_room(); early.excess < plain.excess)
            if (const Arrived arrived = arranged(with_fewer_loads(improved(early))); arrived.tasks > 0)
                return arrived.fn;
        copies_early_ = false;
        return arranged(with_fewer_loads(improved(plain))).fn;
    }

  private:
    static constexpr std::int64_t kEnough = 192;  ///< registers
    /// … beside the addresses of many copies of blocks, or beside a product of whole matrices that is under way: with
    /// more, compilers make each product wait for the one before.
    [[nodiscard]] std::int64_t most() const { return rules_.split ? 160 : 128; }
    struct Order {
        std::vector<ValueId> ends, operations;
        std::int64_t excess = 0;  ///< registers beyond the most, of all operations
        std::int64_t floats = 0;  ///< of shared memory at a time, beside inputs
    };
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    [[nodiscard]] Arrived arranged(const Order& order) const {
        return with_arrivals(ir::permuted(fn_, order.operations), rules_);
    }

    void begin(Order& order) {
        progress_.restart();
        std::fill(may_free_.begin(), may_free_.end(), 0), first_free_ = 0;
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (fn_.op(v).code == Opcode::Param) take(v, order);
    }

    /// Each time the end that needs the least room.
    Order order_of_room() {
        Order order;
        begin(order);
        std::vector<ValueId> ends = ends_;
        while (!ends.empty()) {
            std::vector<std::array<std::int64_t, 3>> rooms;
            for (const ValueId end : ends) rooms.push_back(room(end));
            const auto best = std::min_element(rooms.begin(), rooms.end()) - rooms.begin();
            finish(ends[static_cast<std::size_t>(best)], order);
            ends.erase(ends.begin() + best);
        }
        take_rest(order);
        return order;
    }

    /// Given up, and not whole, where it takes more beyond the most than that.
    Order in_order(const std::vector<ValueId>& ends, std::int64_t most_excess) {
        Order order;
        begin(order);
        for (const ValueId end : ends) {
            finish(end, order);
            if (order.excess > most_excess) return order;
        }
        take_rest(order);
        return order;
    }

    /// The best order with one of its ends moved, many times.
    Order improved(Order best) {
        const int tasks = arranged(best).tasks;
        constexpr std::int64_t kOperations = 600'000, kMostTries = 4000, kInVain = 1000, kMostVisits = 3'000'000;
        const std::int64_t tries = std::min(kMostTries, kOperations / fn_.size());
        std::uint32_t seed = 1;
        std::int64_t in_vain = 0;
        visits_ = 0;
        for (std::int64_t n = 0; n < tries && in_vain < kInVain && visits_ < kMostVisits && best.excess > 0; ++n) {
            std::vector<ValueId> ends = best.ends;
            move_one(ends, seed);
            Order tried = in_order(ends, best.excess);
            const bool less = tried.excess < best.excess, equal = tried.excess == best.excess;
            in_vain = less ? 0 : in_vain + 1;
            if (less ? arranged(tried).tasks >= tasks : equal && tried.floats <= best.floats) best = std::move(tried);
        }
        return best;
    }

    /// Of orders that take no more registers, one for which fewer inputs come again: products, too, are moved. Worse
    /// ones are gone on from, ever less so, as the way to a better order often leads through them.
    Order with_fewer_loads(Order best) {
        constexpr std::int64_t kOperations = 200'000, kMostTries = 1500, kRounds = 3, kMostWorse = 4096;  // floats
        Arrived arrived = arranged(best);
        const int tasks = arrived.tasks;
        const std::int64_t most_excess = best.excess, tries = std::min(kMostTries, kOperations / fn_.size()) / kRounds;
        std::int64_t least = arrived.again;
        std::vector<ValueId> ends = with_products(best);
        if (in_order(ends, most_excess).excess > most_excess) ends = best.ends;
        std::uint32_t seed = 1;
        for (std::int64_t round = 0; round < kRounds; ++round) {
            if (round > 0) ends = best.ends;
            std::int64_t now = least;
            for (std::int64_t n = 0; n < tries && least > 0; ++n) {
                std::vector<ValueId> moved = ends;
                for (std::int64_t moves = 1 + n % 2; moves > 0; --moves) move_one(moved, seed);
                Order tried = in_order(moved, most_excess);
                if (tried.excess > most_excess) continue;
                arrived = arranged(tried);
                if (arrived.tasks < tasks || arrived.again > now + kMostWorse * (tries - n) / tries) continue;
                ends = std::move(moved), now = arrived.again;
                if (now < least) best = std::move(tried), least = now;
            }
        }
        return best;
    }
    [[nodiscard]] std::vector<ValueId> with_products(const Order& order) const {
        std::vector<ValueId> ends;
        for (const ValueId v : order.operations)
            if (is_end(v) || ir::is_matmul(fn_.op(v).code)) ends.push_back(v);
        return ends;
    }
    void finish(ValueId end, Order& order) {
        order.ends.push_back(end);
        way_to(end, way_);
        for (const ValueId v : way_) {
            take(v, order);
            take_freeing(order);
        }
    }
    void take_rest(Order& order) {
        for (ValueId v = 0; v < fn_.size(); ++v) take(v, order);
    }
    void take(ValueId v, Order& order) {
        if (progress_.is_made(v)) return;
        progress_.make(v);
        order.operations.push_back(v);
        for (const ValueId u : affected_[index(v)]) may_free_[index(u)] = 1, first_free_ = std::min(first_free_, u);
        order.floats = std::max(order.floats, progress_.floats_made() + work_floats_[index(v)]);
        order.excess += std::max<std::int64_t>(0, progress_.registers() - most());
    }

    /// What takes the place of the fragments that it is made from, which are all there, and results.
    void take_freeing(Order& order) {
        for (ValueId v = next_free(); v != ir::kNoValue; v = next_free()) {
            if (progress_.is_made(v)) continue;
            if (is_copied(v) && !is_end(v) && !copies_early_) continue;
            std::vector<ValueId>& way = way_to_free_;
            way_to(v, way);
            if (std::any_of(way.begin(), way.end(), [&](ValueId u) { return u != v && !in_loop(u); })) continue;
            const std::int64_t before = progress_.registers();
            for (const ValueId u : way) progress_.make(u);
            const std::int64_t more = progress_.registers() - before;
            std::for_each(way.rbegin(), way.rend(), [&](ValueId u) { progress_.undo(u); });
            if (is_copied(v) ? more >= 0 : more > 0) continue;
            for (const ValueId u : way) take(u, order);
        }
    }

    /// The first of what may free registers, which is taken from there.
    [[nodiscard]] ValueId next_free() {
        const auto first = std::find(may_free_.begin() + first_free_, may_free_.end(), 1);
        first_free_ = static_cast<ValueId>(first - may_free_.begin());
        if (first == may_free_.end()) return ir::kNoValue;
        *first = 0;
        return first_free_;
    }

    /// What may free registers, and by which operations it comes to do so: those that it reads, and others that do.
    void find_freeing() {
        std::vector<std::set<ValueId>> reads(fn_.ops.size());
        for (ValueId v = 0; v < fn_.size(); ++v)
            for (const ValueId a : fn_.op(v).args) {
                reads[index(v)].insert(a);
                if (in_loop(a)) reads[index(v)].insert(reads[index(a)].begin(), reads[index(a)].end());
            }
        std::vector<std::vector<ValueId>> of(fn_.ops.size());  // what may free, by what it reads
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const bool in_place = progress_.registers_of(v) > 0 && ir::is_elementwise(fn_.op(v).code);
            if (!in_place && !is_copied(v)) continue;
            for (const ValueId a : reads[index(v)]) of[index(a)].push_back(v);
        }
        for (ValueId v = 0; v < fn_.size(); ++v) {
            std::set<ValueId> found(of[index(v)].begin(), of[index(v)].end());
            for (const ValueId a : reads[index(v)]) found.insert(of[index(a)].begin(), of[index(a)].end());
            affected_.emplace_back(found.begin(), found.end());
        }
    }
    [[nodiscard]] bool in_loop(ValueId v) const {
        return fn_.op(v).layout->space == Space::Reg || ir::is_view(fn_.op(v).code);
    }

    [[nodiscard]] bool is_end(ValueId v) const {
        return is_fragment_sum(fn_, v) ||
               std::any_of(fn_.results.begin(), fn_.results.end(), [&](const ir::Result& r) { return r.value == v; });
    }
    /// From registers to shared memory.
    [[nodiscard]] bool is_copied(ValueId v) const {
        return fn_.op(v).code == Opcode::Copy && is_block_matrix(fn_.op(v).type) &&
               (is_end(v) || (in_memory(fn_.op(v).layout->space) && progress_.registers_of(fn_.op(v).args[0]) > 0));
    }

    /// What is yet to be made for a value, itself last.
    void way_to(ValueId end, std::vector<ValueId>& way) {
        way.clear();
        go(end, way);
        for (const ValueId v : way) on_way_[index(v)] = 0;
        visits_ += static_cast<std::int64_t>(way.size());
    }
    void go(ValueId v, std::vector<ValueId>& way) {
        if (progress_.is_made(v) || on_way_[index(v)]) return;
        on_way_[index(v)] = 1;
        for (const ValueId a : sorted_args_[index(v)]) go(a, way);
        way.push_back(v);
    }

    /// Registers at once for a value alone (Sethi and Ullman's number, of a tree).
    [[nodiscard]] std::int64_t need(ValueId v) const {
        std::int64_t held = 0, most = progress_.registers_of(v);
        for (const ValueId a : sorted_args_[index(v)])
            most = std::max(most, held + need_[index(a)]), held += progress_.registers_of(a);
        return most;
    }

    /// The most registers on the way to an end, if there are too many, the most memory, and the registers that are
    /// left.
    [[nodiscard]] std::array<std::int64_t, 3> room(ValueId end) {
        std::int64_t most = kEnough, memory = 0;
        way_to(end, way_);
        for (const ValueId v : way_) {
            progress_.make(v);
            most = std::max(most, progress_.registers());
            memory = std::max(memory, progress_.floats() + work_floats_[index(v)]);
        }
        const std::int64_t left = progress_.registers();
        std::for_each(way_.rbegin(), way_.rend(), [&](ValueId v) { progress_.undo(v); });
        return {most, memory, left};
    }

    const Function& fn_;
    const FragmentRules& rules_;
    Progress progress_;
    std::vector<std::vector<ValueId>> sorted_args_;  ///< what needs more registers first
    std::vector<std::int64_t> need_;
    std::vector<ValueId> ends_;
    std::vector<std::int64_t> work_floats_;
    std::vector<std::vector<ValueId>> affected_;  ///< what may free registers once a value is made
    bool copies_early_ = false;  ///< for products, as soon as that frees registers; else as they are read
    std::int64_t visits_ = 0;    ///< of operations, which long ways to one make many
    /// Flags of what may free registers so far, of which there are none before the first.
    std::vector<char> may_free_ = std::vector<char>(fn_.ops.size(), 0);
    ValueId first_free_ = 0;
    std::vector<char> on_way_ = std::vector<char>(fn_.ops.size(), 0);
    std::vector<ValueId> way_, way_to_free_;  ///< found last, by those that take their time with them
};

}  // namespace

Function frugal(const Function& fn, const FragmentRules& rules) {
    const std::string key = fmt::format("{} {} {} {} {}", rules.has_far_tiles(), rules.split, rules.narrow,
                                        rules.processor_bytes, ir::print(fn, {.locations = true}));
    return found_before<Function>(key, [&] { return Frugal(fn, rules).searched(); });
}

}  // namespace forge::tile
