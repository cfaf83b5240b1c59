/// When the inputs of a task of a single chunk arrive: as early as the shared memory that is held allows.
#include <algorithm>
#include <utility>

#include "ir/rebuild.h"
#include "tile/decay_group.h"
#include "tile/fragment_steps.h"
#include "tile/order.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Space = ir::Layout::Space;

/// Inputs of a task of a single chunk come when there is room for them: at the beginning, or as soon afterwards as two
/// tasks fit on a multiprocessor, or as many floats as are held at once anyway. If two, or one, fit only so, inputs
/// make room between their readers and come again.
class Arrivals {
  public:
    Arrivals(Function fn, const FragmentRules& rules)
        : fn_(std::move(fn)),
          far_(rules.has_far_tiles()),
          two_tasks_(rules.processor_bytes / 8 - (rules.narrow ? kFewest : kFew)),
          one_task_(std::min(kMostOfOne, rules.processor_bytes / 4 - kFew)) {}

    Arrived run(bool split) {
        find_inputs();
        find_held();
        const bool two = most_held() <= two_tasks_ || divide(two_tasks_);
        if (!two && split && most_held() > one_task_) divide(one_task_);
        std::stable_sort(inputs_.begin(), inputs_.end(), [](const In& a, const In& b) { return a.at < b.at; });
        const std::int64_t most = std::max(two_tasks_, most_held());
        for (In& in : inputs_)
            while (in.at > 0 && held_[index(in.at - 1)] + floats(in.value) <= most)
                held_[index(--in.at)] += floats(in.value);
        std::int64_t again = 0;
        for (const In& in : inputs_)
            if (index(in.value) >= held_.size()) again += floats(in.value);
        return {in_order(), most_held() <= two_tasks_ ? 2 : most_held() <= one_task_ ? 1 : 0, again};
    }

  private:
    static constexpr std::int64_t kFew = 14 * 256,  ///< floats of a task's vectors, addresses, and gaps
        kFewest = 6 * 256,                          ///< … where there are hardly any
        kMostOfOne = std::int64_t{168} * 256;       ///< what one task may fill, however much there is
    /// What is read by `users`, from `at` on, up to `last`; the operations that they are part of.
    struct In {
        ValueId value, at, last;
        std::vector<ValueId> users;
    };
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    [[nodiscard]] bool arrives(ValueId v) const {
        const Op& op = fn_.op(v);
        const bool shifted = op.attrs.role == Role::Shifted && op.layout->space == Space::Operand;
        return op.code == Opcode::Param && in_memory(op.layout->space) && is_block_matrix(op.type) &&
               (op.attrs.role == Role::Input || op.attrs.role == Role::Spill || shifted);
    }
    [[nodiscard]] bool is_run(ValueId v) const {
        return fn_.op(v).layout->space != Space::Reg && !ir::is_view(fn_.op(v).code);
    }
    /// The last operation that works each value out, in its loop.
    void find_last_runs() {
        last_run_.resize(fn_.ops.size());
        for (ValueId v = fn_.size() - 1; v >= 0; --v) last_run_[index(v)] = is_run(v) ? v : last_reader(v);
    }
    [[nodiscard]] ValueId last_reader(ValueId v) const {
        ValueId last = v;
        for (const ValueId u : users_[index(v)]) last = std::max(last, last_run_[index(u)]);
        return last;
    }
    [[nodiscard]] std::int64_t floats(ValueId v) const {
        const Op& op = fn_.op(v);
        if (!in_memory(op.layout->space) || op.type.rank() != 2 || op.code == Opcode::DecayMask) return 0;
        if (far_ && op.layout->space == Space::Tile && !arrives(v)) return 0;
        const std::int64_t size = size_of(op.type, 0) * size_of(op.type, 1);
        return op.layout->space == Space::Operand ? op.layout->parts * size / 2 : size + size_of(op.type, 0) * 4;
    }

    void find_inputs() {
        users_ = ir::users_of(fn_);
        find_last_runs();
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!arrives(v)) continue;
            std::vector<ValueId> users = users_[index(v)];
            std::sort(users.begin(), users.end());
            if (!users.empty()) inputs_.push_back({v, users[0], last_reader(v), users});
        }
    }

    /// Floats that are held while each operation runs, inputs from their first readers on.
    void find_held() {
        held_.assign(fn_.ops.size(), 0);
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!is_run(v)) continue;
            held_[index(v)] += work(v);
            if (!arrives(v)) hold(v, last_reader(v), floats(v));
        }
        for (const In& in : inputs_) hold(in.at, in.last, floats(in.value));
        hold_gate_sums();
    }
    /// Decays find the sums of their gates where the last ones by the same gates have left them, if two tasks fit then
    /// (fragment_memory).
    void hold_gate_sums() {
        ValueId before = ir::kNoValue;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if (op.code != Opcode::DecayApply || !is_fragment(op.layout->space)) continue;
            const ValueId last = std::exchange(before, v);
            if (last == ir::kNoValue || fn_.op(last).args[2] != op.args[2] || fn_.op(last).type != op.type) continue;
            hold(last + 1, v - 1, work(v));
            if (most_held() > two_tasks_) hold(last + 1, v - 1, -work(v));
        }
    }
    [[nodiscard]] std::int64_t work(ValueId v) const {
        const Op& op = fn_.op(v);
        const bool decays = op.code == Opcode::DecayMatmul && is_fragment(op.layout->space);
        return decays ? gate_sums_floats(fn_.op(op.args[1]).type, true) : fragment_work_floats(fn_, v);
    }
    void hold(ValueId from, ValueId to, std::int64_t count) {
        for (ValueId v = from; v <= to; ++v) held_[index(v)] += count;
    }
    [[nodiscard]] std::int64_t most_held() const { return *std::max_element(held_.begin(), held_.end()); }

    /// Inputs twice, or more often, if all then fits into the room; whether it does.
    bool divide(std::int64_t room) {
        room_ = room;
        const std::vector<In> whole = std::exchange(inputs_, {});
        const std::vector<std::int64_t> held = held_;
        for (const In& in : whole) divide(in);
        if (most_held() > room) {
            inputs_ = whole, held_ = held;
            return false;
        }
        for (In& in : inputs_) {
            if (std::none_of(whole.begin(), whole.end(), [&](const In& w) { return w.value == in.value; })) continue;
            if (!first_of_value(in)) in.value = again(in);
        }
        return true;
    }
    void divide(const In& in) {
        In part{in.value, in.at, in.at, {}};
        for (const ValueId u : in.users) {
            if (!part.users.empty() && is_crowded(part.last, u)) {
                hold(part.last + 1, u - 1, -floats(in.value));
                inputs_.push_back(std::exchange(part, {in.value, u, u, {}}));
            }
            part.users.push_back(u);
            part.last = std::max(part.last, last_run_[index(u)]);
        }
        inputs_.push_back(part);
    }
    /// Whether more is held between two operations than there is room for.
    [[nodiscard]] bool is_crowded(ValueId after, ValueId before) const {
        for (ValueId v = after + 1; v < before; ++v)
            if (held_[index(v)] > room_) return true;
        return false;
    }
    [[nodiscard]] bool first_of_value(const In& in) const {
        return std::none_of(inputs_.begin(), inputs_.end(),
                            [&](const In& other) { return other.value == in.value && other.at < in.at; });
    }
    /// The same input once more, for its later readers.
    ValueId again(const In& in) {
        const ValueId copy = fn_.add(Op(fn_.op(in.value)));
        for (const ValueId u : in.users) std::replace(fn_.op(u).args.begin(), fn_.op(u).args.end(), in.value, copy);
        return copy;
    }

    [[nodiscard]] Function in_order() const {
        const auto count = static_cast<ValueId>(held_.size());
        std::vector<ValueId> order;
        for (ValueId v = 0; v < count; ++v) {
            for (const In& in : inputs_)
                if (in.at == v && !is_first(in)) order.push_back(in.value);
            const bool late = std::any_of(inputs_.begin(), inputs_.end(),
                                          [&](const In& in) { return in.value == v && !is_first(in); });
            if (!late) order.push_back(v);
        }
        return ir::permuted(fn_, order);
    }
    /// Whether it comes before anything is computed; what comes again does not.
    [[nodiscard]] bool is_first(const In& in) const {
        if (index(in.value) >= held_.size()) return false;
        for (ValueId v = 0; v < in.at; ++v)
            if (fn_.op(v).code != Opcode::Param) return false;
        return true;
    }

    Function fn_;
    bool far_;  ///< tiles may lie in global memory
    std::vector<std::vector<ValueId>> users_;
    std::vector<ValueId> last_run_;
    std::vector<In> inputs_;
    std::vector<std::int64_t> held_;     ///< while an operation runs
    std::int64_t two_tasks_, one_task_;  ///< floats of a task's matrices, of which so many fit
    std::int64_t room_ = two_tasks_;
};

}  // namespace

Arrived with_arrivals(Function fn, const FragmentRules& rules) {
    return Arrivals(std::move(fn), rules).run(rules.split);
}

Function with_wide_inputs_late(const Function& fn, bool all) {
    const auto users = ir::users_of(fn);
    const auto first_reader = [&](ValueId v) {
        const auto& readers = users[static_cast<std::size_t>(v)];
        return readers.empty() ? fn.size() : *std::min_element(readers.begin(), readers.end());
    };
    const auto numbers = [&](ValueId v) { return size_of(fn.op(v).type, 0) * size_of(fn.op(v).type, 1); };
    std::vector<ValueId> wide;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        const bool arrives = op.code == Opcode::Param && (op.attrs.role == Role::Input || op.attrs.role == Role::Spill);
        if (arrives && op.layout->space == Space::Operand && numbers(v) > kBlock * kBlock) wide.push_back(v);
    }
    const auto before = [&](ValueId a, ValueId b) {
        return std::make_pair(first_reader(a), numbers(a)) < std::make_pair(first_reader(b), numbers(b));
    };
    std::stable_sort(wide.begin(), wide.end(), before);
    if (!all && !wide.empty()) wide.erase(wide.begin());
    if (wide.empty()) return fn;
    const auto is_late = [&](ValueId v) { return std::find(wide.begin(), wide.end(), v) != wide.end(); };
    const std::vector<bool> waits = ir::depends_on(fn, wide);
    const auto waits_not = [&](ValueId v) { return !waits[static_cast<std::size_t>(v)]; };
    std::vector<ValueId> order, work;
    for (ValueId v = 0; v < fn.size(); ++v)
        if (!is_late(v)) (fn.op(v).code == Opcode::Param && work.empty() ? order : work).push_back(v);
    if (work.empty() || !std::any_of(work.begin(), work.end(), waits_not)) return fn;
    if (waits[static_cast<std::size_t>(work.front())])  // what need not wait comes first
        std::stable_partition(work.begin(), work.end(), waits_not);
    order.push_back(work.front());
    order.insert(order.end(), wide.begin(), wide.end());
    order.insert(order.end(), work.begin() + 1, work.end());
    return ir::permuted(fn, order);
}

}  // namespace forge::tile
