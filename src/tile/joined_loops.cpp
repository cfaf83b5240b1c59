/// Elementwise loops over the same rows and columns that stand in one: what they read in common is loaded, and what
/// they compute in common is computed, once, and their threads meet at one barrier. So it is with loops over what
/// threads hold, in kernels of single chunks.
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "ir/known.h"
#include "ir/rebuild.h"
#include "ir/triangular.h"
#include "tile/fragment_steps.h"
#include "tile/warp_vectors.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;
using Space = ir::Layout::Space;

/// One loop as it grows: operations after its first one are visited in order.
class JoinedLoop {
  public:
    /// `made`: what is there before the loop.
    JoinedLoop(const Function& fn, const std::vector<bool>& loops, ValueId first, std::vector<bool> made)
        : fn_(fn), loops_(loops), ready_(std::move(made)) {
        add(first);
    }

    /// Whether a later operation now stands in the loop.
    bool visit(ValueId v) {
        const Op& op = fn_.op(v);
        if (stands_in_loops(op)) ready_[index(v)] = may_come_now(v);
        else if (joins(v)) return add(v), true;
        return false;
    }
    [[nodiscard]] const std::vector<ValueId>& members() const { return members_; }

    static bool stands_in_loops(const Op& op) { return op.layout->space == Space::Reg || ir::is_view(op.code); }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    void add(ValueId v) {
        members_.push_back(v);
        const auto read = tiles_read_by(fn_, v);
        tiles_.insert(read.begin(), read.end());
        tiles_.insert(v);
    }
    [[nodiscard]] bool is_member(ValueId v) const {
        return std::find(members_.begin(), members_.end(), v) != members_.end();
    }
    [[nodiscard]] bool may_come_now(ValueId v) const {
        const Op& op = fn_.op(v);
        return std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) {
            if (!is_member(a)) return ready_[index(a)];
            // At the same place, and not as an operand, which is rounded to 16 bits.
            const Space space = fn_.op(a).layout->space;
            return (space == Space::Tile || is_fragment(space)) &&
                   (ir::is_elementwise(op.code) || op.code == Opcode::Copy || op.code == Opcode::Interleave);
        });
    }
    /// Whether loops go over the same places: those of fragments leave out what lies above a diagonal.
    [[nodiscard]] bool is_alike(ValueId v) const {
        const Op &a = fn_.op(v), &b = fn_.op(members_[0]);
        if (shape_of_loop(v) != shape_of_loop(members_[0])) return false;
        const Space in_a = a.layout->space, in_b = b.layout->space;
        if (!is_fragment(in_a) && !is_fragment(in_b)) return true;
        const auto is_full = [&](ValueId u) { return ir::triangle_of(fn_, u) == ir::Triangle::Full; };
        return in_a == in_b && is_full(v) == is_full(members_[0]);
    }
    [[nodiscard]] const Shape& shape_of_loop(ValueId v) const {
        const Op& op = fn_.op(v);
        return op.code == Opcode::Interleave ? fn_.op(op.args[0]).type.shape : op.type.shape;
    }
    [[nodiscard]] bool joins(ValueId v) const {
        constexpr std::size_t kMost = 12;  // results of a thread, four numbers of each, before the first is stored
        if (members_.size() == kMost || !loops_[index(v)] || !is_alike(v) || !may_come_now(v)) return false;
        const auto read = tiles_read_by(fn_, v);
        const bool short_loop = fn_.op(v).type.rank() == 1;  // it costs hardly more than the barrier after it
        return short_loop || std::any_of(read.begin(), read.end(), [&](ValueId t) { return tiles_.contains(t); });
    }

    const Function& fn_;
    const std::vector<bool>& loops_;
    std::vector<ValueId> members_;
    std::set<ValueId> tiles_;  ///< that the loop reads or makes
    std::vector<bool> ready_;  ///< what is there before the loop, or can be evaluated in it
};

/// Which operations are loops over memory, or `fragments`.
std::vector<bool> loops_of(const Function& fn, const std::vector<bool>& ahead, bool fragments) {
    std::vector<bool> found;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        const bool copy = op.code == Opcode::Copy && !is_fragment(fn.op(op.args[0]).layout->space),
                   elementwise = ir::is_elementwise(op.code), held = is_fragment(op.layout->space),
                   by_turns = op.layout->space == Space::Operand && is_made_by_turns(fn, v);
        const bool loop = held ? fragments && elementwise
                               : in_memory(op.layout->space) && op.type.rank() > 0 && (copy || elementwise || by_turns);
        found.push_back(loop && !ahead[static_cast<std::size_t>(v)]);
    }
    return found;
}

/// Every loop with what may join it, from the first operation to the last.
class Joining {
  public:
    Joining(const Function& fn, bool moved, bool fragments)
        : fn_(fn),
          users_(ir::users_of(fn)),
          results_(ir::result_uses(fn)),
          moved_(moved),
          ahead_(fn.ops.size(), false),
          taken_(fn.ops.size(), false) {
        for (const ValueId v : vectors_alone(fn)) ahead_[index(v)] = true;
        loops_ = loops_of(fn, ahead_, fragments);
    }

    JoinedLoops run() {
        JoinedLoops made;
        std::vector<ValueId> inside;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (taken_[index(v)]) continue;
            take(v);
            if (!loops_[index(v)]) continue;
            const std::vector<ValueId> members = members_of(v);
            for (const ValueId u : members) take(u);
            made.any = made.any || members.size() > 1;
            bool first = true;
            ir::Known<bool> known;
            for (const ValueId u : members) {
                if (stays_inside(u, members, known)) inside.push_back(place(u));
                else if (!std::exchange(first, false)) made.values.insert(place(u));
            }
        }
        made.fn = ir::permuted(fn_, order_);
        for (const ValueId v : inside) made.fn.op(v).layout->space = Space::Reg;
        return made;
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    void take(ValueId v) {
        if (taken_[index(v)]) return;
        taken_[index(v)] = true;
        for (const ValueId a : fn_.op(v).args) take(a);
        order_.push_back(v);
    }

    [[nodiscard]] ValueId place(ValueId v) const {
        return static_cast<ValueId>(std::find(order_.begin(), order_.end(), v) - order_.begin());
    }

    /// Whether nothing else reads what a loop makes.
    [[nodiscard]] bool stays_inside(ValueId v, const std::vector<ValueId>& members, ir::Known<bool>& known) const {
        return known.at(v, [&] {
            const auto is_inside = [&](ValueId u) {
                if (std::find(members.begin(), members.end(), u) != members.end()) return true;
                const Op& op = fn_.op(u);
                return op.layout->space == Space::Reg && !ir::is_view(op.code) && stays_inside(u, members, known);
            };
            const auto& users = users_[index(v)];
            return results_[index(v)] == 0 && std::all_of(users.begin(), users.end(), is_inside);
        });
    }

    [[nodiscard]] std::vector<ValueId> members_of(ValueId first) const {
        std::vector<bool> made = taken_;
        for (ValueId v = 0; v < fn_.size(); ++v) made[index(v)] = made[index(v)] || ahead_[index(v)];
        JoinedLoop loop(fn_, loops_, first, std::move(made));
        const bool moved = moved_ && !is_fragment(fn_.op(first).layout->space);  // registers are held in this order
        for (ValueId v = first + 1; v < fn_.size(); ++v) {
            const bool aside = taken_[index(v)] || ahead_[index(v)] || JoinedLoop::stands_in_loops(fn_.op(v));
            if (!taken_[index(v)] && !loop.visit(v) && !aside && !moved) break;
        }
        return loop.members();
    }

    const Function& fn_;
    std::vector<std::vector<ValueId>> users_;
    std::vector<int> results_;
    bool moved_;
    std::vector<bool> ahead_;  ///< what one warp makes before everything else
    std::vector<bool> loops_, taken_;
    std::vector<ValueId> order_;
};

}  // namespace

JoinedLoops with_joined_loops(const Function& fn, Moved moved, bool fragments) {
    if (moved != Moved::InputsToo) return Joining(fn, moved == Moved::Loops, fragments).run();
    std::vector<ValueId> order(fn.ops.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_partition(order.begin(), order.end(), [&](ValueId v) { return fn.op(v).code == Opcode::Param; });
    return Joining(ir::permuted(fn, order), true, fragments).run();
}

}  // namespace forge::tile
