#include <algorithm>
#include <set>

#include "forge/error.h"
#include "tile/arena.h"
#include "tile/decay_group.h"
#include "tile/far.h"
#include "tile/fragment_steps.h"
#include "tile/layout.h"
#include "tile/order.h"
#include "tile/stays.h"
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

/// Memory for tiles and operands: what arrives from global memory in stages, the rest by its lives. Operands begin at
/// multiples of 1024 bytes, so they and all that is large share one arena, and vectors another. Groups that take
/// have arenas of their own.
class Memory {
  public:
    Memory(JoinedLoops loops, std::optional<Roles> roles, const FragmentRules& rules)
        : fn_(std::move(loops.fn)),
          joined_(std::move(loops.values)),
          stages_(rules.stages),
          roles_(std::move(roles)),
          vectors_(vectors_alone(fn_)),
          groups_(decay_groups(fn_)) {
        kernel_.processor_bytes = rules.processor_bytes;
        if (!are_gathered(fn_)) throw InternalError("tile: a group of decays has been taken apart: " + fn_.name);
        keep_in_registers();
        find_loops();
        find_lives();
    }

    /// Gives everything its place, these tiles in global memory. Returns the floats of shared memory.
    std::int64_t place_all(std::set<ValueId> far) {
        forget_places();
        far_ = std::move(far);
        for (const ValueId v : vectors_) place(v);  // they are made before anything else
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const DecayGroup* const group = group_of(v);
            if (group && group->head() == v) place_group(*group);
            if (!is_vector(v) && !group) place(v);
            const std::int64_t work = group ? 0 : fragment_work_floats(fn_, v);
            if (work > 0)
                work_[v] = others_.large.take(rounded(work)), stays_.push_back({rounded(work), v, v, {}, {v}});
            release(v);
            if (work > 0) others_.large.give(work_[v], rounded(work));
            if (group && group->members().back() == v)
                others_.large.give(work_[group->head()], rounded(group_floats(fn_, *group)));
        }
        large_floats_ = others_.large.size();
        if (is_settled()) settle();
        kernel_.summed = already_summed();
        join_regions(kernel_);
        return kernel_.scratch_floats;
    }

    [[nodiscard]] const Function& function() const { return fn_; }
    /// All in the places that it was given last.
    TileKernel kernel() && {
        kernel_.fn = std::move(fn_);
        kernel_.work = std::move(work_);
        kernel_.stages = stages_;
        kernel_.vectors = std::move(vectors_);
        kernel_.roles = std::move(roles_);
        kernel_.joined = std::move(joined_);
        return std::move(kernel_);
    }

  private:
    static constexpr std::int64_t kOperandFloats = 256;  ///< of 1024 bytes
    static constexpr std::int64_t kAddressFloats = 2, kBoxFloats = 4, kBarrierFloats = 2;
    /// With which, beside what is small, two tasks fit on a multiprocessor.
    [[nodiscard]] std::int64_t two_tasks() const {
        constexpr std::int64_t kAddresses = 64;
        const std::int64_t half = (kernel_.processor_bytes - 2 * 1024) / 2 / 4;  // a block has 1 KB beside its own
        return (half - kAddresses - others_.small.size()) / kOperandFloats * kOperandFloats;
    }
    static std::int64_t rounded(std::int64_t floats) {
        return (floats + kOperandFloats - 1) / kOperandFloats * kOperandFloats;
    }

    [[nodiscard]] bool owns_buffer(ValueId v) const {
        return in_memory(fn_.op(v).layout->space) && !ir::is_view(fn_.op(v).code) && !is_passed(v);
    }
    [[nodiscard]] bool is_passed(ValueId v) const { return roles_ && roles_->find(v); }
    [[nodiscard]] bool is_param(ValueId v, Role role) const {
        return fn_.op(v).code == Opcode::Param && fn_.op(v).attrs.role == role;
    }
    [[nodiscard]] bool is_vector(ValueId v) const {
        return std::find(vectors_.begin(), vectors_.end(), v) != vectors_.end();
    }
    [[nodiscard]] bool is_staged(ValueId v) const {
        return stages_ > 1 && ((arrives(v) && !arrives_late(fn_, v)) || is_vector(v));
    }
    /// By copies that run beside computation.
    [[nodiscard]] bool arrives(ValueId v) const {
        const bool shifted = is_param(v, Role::Shifted) && fn_.op(v).layout->space == Space::Operand;
        return is_param(v, Role::Input) || is_param(v, Role::Spill) || shifted;
    }
    /// Filled before the chunks, or, like what one warp makes ahead, before the first operation of one.
    [[nodiscard]] bool is_permanent(ValueId v) const {
        return is_vector(v) ||
               (fn_.op(v).code == Opcode::Param && !arrives_late(fn_, v) && (stages_ > 1 || !arrives(v)));
    }

    void forget_places() {
        distant_ = Arena(true), others_ = {}, takers_ = {};
        stays_.clear(), work_.clear(), moved_.clear();
        large_floats_ = stage_large_ = stage_small_ = 0;
    }

    /// Vectors that only other vectors are made from need no memory; all others do, those too that would otherwise be
    /// computed in their users' loops, which could not make what they are made from.
    void keep_in_registers() {
        const auto users = ir::users_of(fn_);
        const auto results = ir::result_uses(fn_);
        for (const ValueId v : vectors_) {
            const auto& readers = users[static_cast<std::size_t>(v)];
            if (is_param(v, Role::Input) && !roles_)
                continue;  // as it lies in global memory; with roles it comes in registers
            const bool inside = results[static_cast<std::size_t>(v)] == 0 &&
                                std::all_of(readers.begin(), readers.end(), [&](ValueId u) { return is_vector(u); });
            fn_.op(v).layout->space = inside ? Space::Reg : Space::Tile;
        }
    }

    [[nodiscard]] std::int64_t floats(ValueId v) const {
        const Op& op = fn_.op(v);
        if (op.code == Opcode::DecayMask) return op.layout->parts * (size_of(op.type, 0) + 4);
        if (op.layout->space == Space::Operand) return op.layout->parts * size_of(op.type, 0) * size_of(op.type, 1) / 2;
        return tile_floats(op.type, kFragmentRules);
    }
    [[nodiscard]] bool is_large(ValueId v) const {
        return fn_.op(v).layout->space == Space::Operand || floats(v) >= kOperandFloats;
    }

    /// Of one kind of warp groups: matrices, and numbers.
    struct Arenas {
        Arena large{true}, small{true};
        Arena& of(bool is_large) { return is_large ? large : small; }
    };
    [[nodiscard]] bool is_takers(ValueId v) const {
        return roles_ && fn_.op(v).code != Opcode::Param && !roles_->does(Roles::kGives, v);
    }
    Arenas& arenas(ValueId v) { return is_takers(v) ? takers_ : others_; }

    void find_lives() {
        last_read_.assign(fn_.ops.size(), -1);
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (fn_.op(v).layout->space == Space::Reg || ir::is_view(fn_.op(v).code)) continue;
            const ValueId end = end_of(v);
            for (const ValueId t : tiles_read_by(fn_, v)) last_read_[static_cast<std::size_t>(t)] = end;
            last_read(v, end);
        }
        const bool images_apart = roles_ && roles_->images_apart;
        for (const ir::Result& r : fn_.results)
            if (is_carried(r.role) || (images_apart && r.role == Role::Spill))
                last_read_[static_cast<std::size_t>(buffer_of(fn_, r.value))] = fn_.size();
            else if (ir::is_view(fn_.op(r.value).code)) last_read(buffer_of(fn_, r.value), r.value);
        read_last_by_.resize(fn_.ops.size() + 1);
        viewed_.assign(fn_.ops.size(), 0);
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const ValueId reader = last_read_[static_cast<std::size_t>(v)];
            if (reader >= 0) read_last_by_[static_cast<std::size_t>(reader)].push_back(v);
            if (ir::is_view(fn_.op(v).code)) viewed_[static_cast<std::size_t>(fn_.op(v).args[0])] = 1;
            else if (const auto beside = rows_beside(fn_, v)) viewed_[static_cast<std::size_t>(beside->of)] = 1;
        }
    }

    void last_read(ValueId t, ValueId by) {
        ValueId& last = last_read_[static_cast<std::size_t>(t)];
        last = std::max(last, by);
    }

    /// The last of what is made together with a value: by products of what decays, or in a loop.
    [[nodiscard]] ValueId end_of(ValueId v) const {
        const DecayGroup* const group = group_of(v);
        return group ? group->members().back() : end_of_loop_[static_cast<std::size_t>(v)];
    }
    void find_loops() {
        ValueId first = ir::kNoValue;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            first_in_loop_.push_back(joined_.contains(v) ? first : v);
            end_of_loop_.push_back(v);
            const bool made = owns_buffer(v) || is_fragment(fn_.op(v).layout->space);
            if (!joined_.contains(v) && made && !is_vector(v)) first = v;
            for (ValueId u = first; joined_.contains(v) && u < v; ++u)
                if (u == first || joined_.contains(u)) end_of_loop_[static_cast<std::size_t>(u)] = v;
        }
    }
    /// The group that a value is made with.
    [[nodiscard]] const DecayGroup* group_of(ValueId v) const {
        for (const DecayGroup& group : groups_) {
            const auto members = group.members();
            if (std::find(members.begin(), members.end(), v) != members.end()) return &group;
        }
        return nullptr;
    }

    /// All that is made together is written while all that it is made from is read.
    void place_group(const DecayGroup& group) {
        for (const ValueId v : group.members()) place(v);
        const std::int64_t size = rounded(group_floats(fn_, group));
        work_[group.head()] = others_.large.take(size);
        stays_.push_back({size, group.head(), group.members().back(), {}, {group.head()}});
    }

    /// Whether orders of placing are tried: for what comes and goes, or where a second task would not fit else.
    [[nodiscard]] bool is_settled() const {
        if (stages_ == 1 && !roles_ && large_floats_ > two_tasks() && most_at_once(stays_) <= two_tasks()) return true;
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (arrives_late(fn_, v)) return true;
        return false;
    }
    /// All that is large, where it takes the least memory: what comes and goes at different times in different sizes
    /// would else leave gaps.
    void settle() {
        settle_stays();
        join_gate_sums();
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (ir::is_view(fn_.op(v).code)) place(v);
    }
    void settle_stays() {
        const std::int64_t floats = packed(stays_, large_floats_, two_tasks());
        if (floats == large_floats_) return;
        large_floats_ = floats;
        for (const Stay& stay : stays_) {
            for (const ValueId v : stay.values) fn_.op(v).layout->offset = stay.offset;
            for (const ValueId v : stay.works) work_[v] = stay.offset;
        }
    }
    /// Decays by the same gates have one work area, from the first to the last, if there is room for it.
    void join_gate_sums() {
        ValueId before = ir::kNoValue;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!applies_decay(v)) continue;
            if (before != ir::kNoValue && have_same_gates(before, v)) join_gate_sums(before, v);
            before = v;
        }
    }
    void join_gate_sums(ValueId first, ValueId second) {
        const auto with = [&](ValueId v) {
            return std::find_if(stays_.begin(), stays_.end(), [&](const Stay& s) {
                return std::find(s.works.begin(), s.works.end(), v) != s.works.end();
            });
        };
        const std::vector<Stay> apart = stays_;
        const std::int64_t floats = large_floats_;
        Stay joined = *with(first);
        joined.to = second, joined.works.push_back(second);
        stays_.erase(with(first)), stays_.erase(with(second));
        stays_.push_back(std::move(joined));
        const std::int64_t none = std::max(large_floats_, two_tasks()) + 1;
        large_floats_ = none;
        settle_stays();
        if (large_floats_ == none) stays_ = apart, large_floats_ = floats;
    }
    [[nodiscard]] bool applies_decay(ValueId v) const {
        return fn_.op(v).code == Opcode::DecayApply && is_fragment(fn_.op(v).layout->space);
    }
    [[nodiscard]] bool have_same_gates(ValueId a, ValueId b) const {
        return fn_.op(a).args[2] == fn_.op(b).args[2] && fn_.op(a).type == fn_.op(b).type;
    }

    /// Decays that find the sums of their gates where others have left them.
    [[nodiscard]] std::set<ValueId> already_summed() const {
        std::set<ValueId> found;
        for (ValueId v = 0; v < fn_.size() && stages_ == 1; ++v)
            for (ValueId u = v - 1; u >= 0 && applies_decay(v) && !writes_over(u, v); --u)
                if (applies_decay(u) && have_same_gates(u, v) && work_.at(u) == work_.at(v)) {
                    found.insert(v);
                    break;
                }
        return found;
    }
    /// Whether making `u` changes the work area of `v`, but for the same sums.
    [[nodiscard]] bool writes_over(ValueId u, ValueId v) const {
        const std::int64_t begin = work_.at(v), end = begin + fragment_work_floats(fn_, v);
        const auto meets = [&](std::int64_t at, std::int64_t floats) { return at < end && at + floats > begin; };
        if (owns_buffer(u) && is_large(u) && meets(fn_.op(u).layout->offset, rounded(floats(u)))) return true;
        const auto work = work_.find(u);
        if (work == work_.end() || (applies_decay(u) && have_same_gates(u, v) && work->second == begin)) return false;
        const DecayGroup* const group = group_of(u);
        return meets(work->second, rounded(group ? group_floats(fn_, *group) : fragment_work_floats(fn_, u)));
    }
    void place(ValueId v) {
        Op& op = fn_.op(v);
        if (ir::is_view(op.code) && op.layout->space == Space::Tile) {
            const Op& base = fn_.op(op.args[0]);
            if (base.layout->space != Space::Tile)
                throw InternalError("tile: a view of a matrix: " + ir::described(fn_, v));
            op.layout = view_layout(op, base.type, *base.layout);
            op.layout->staged = base.layout->staged;
            return;
        }
        if (!owns_buffer(v)) return;
        if (op.layout->space == Space::Tile && op.code != Opcode::DecayMask)
            op.layout->strides = tile_strides(op.type, kFragmentRules);
        const bool large = is_large(v);
        const std::int64_t size = large ? rounded(floats(v)) : (floats(v) + 3) / 4 * 4;
        if (const ValueId from = taken_over(v); from != ir::kNoValue) {
            op.layout->offset = fn_.op(from).layout->offset;
            moved_.insert(from);
            for (Stay& stay : stays_)
                if (std::find(stay.values.begin(), stay.values.end(), from) != stay.values.end())
                    stay.values.push_back(v), stay.to = std::max(stay.to, last(v));
        } else if (is_staged(v)) {
            op.layout->staged = true;
            op.layout->offset = large ? stage_large_ : stage_small_;
            (large ? stage_large_ : stage_small_) += size * (roles_ ? roles_->beside(v) : 1);
        } else if (far_.contains(v)) {
            op.layout->offset = distant_.take(size);
        } else {
            op.layout->offset = arenas(v).of(large).take(size);
            if (large) stays_.push_back({size, is_permanent(v) ? 0 : v, last(v), {v}, {}});
        }
    }
    [[nodiscard]] ValueId last(ValueId v) const {
        return is_permanent(v) ? fn_.size() : last_read_[static_cast<std::size_t>(v)];
    }

    /// Whether each element is written by the thread that has read the same of an operand last.
    [[nodiscard]] static bool is_made_in_place(const Op& op) {
        const bool scan = op.code == Opcode::LinearScan && !op.attrs.reverse && op.type.rank() == 2,
                   down_columns = (op.code == Opcode::Cumsum || scan) && op.attrs.dim == 0;  // a thread has a column
        return ir::is_elementwise(op.code) || down_columns || op.code == Opcode::DecayRows;
    }

    /// A matrix that another of the same shape and form may be written over: each element is read last, and by the
    /// thread that writes it. Not one of several parts that arrives: it may lie there as floats, in other places.
    [[nodiscard]] ValueId taken_over(ValueId v) const {
        const Op& op = fn_.op(v);
        if (!in_memory(op.layout->space) || !is_block_matrix(op.type) || !is_made_in_place(op)) return ir::kNoValue;
        for (const ValueId t : tiles_read_by(fn_, v)) {
            const Op& from = fn_.op(t);
            const bool dies = last_read_[static_cast<std::size_t>(t)] == end_of(v) &&
                              t < first_in_loop_[static_cast<std::size_t>(v)] && !is_permanent(t) && !is_staged(t) &&
                              !moved_.contains(t) && !viewed_[static_cast<std::size_t>(t)];
            const bool may_be_floats = from.code == Opcode::Param && from.layout->parts > 1;
            if (dies && !may_be_floats && from.code != Opcode::DecayMask && from.layout->space == op.layout->space &&
                from.type.shape == op.type.shape && from.layout->parts == op.layout->parts &&
                far_.contains(t) == far_.contains(v))
                return t;
        }
        return ir::kNoValue;
    }

    void release(ValueId v) {
        for (const ValueId t : read_last_by_[static_cast<std::size_t>(v)]) {
            if (t > v || !owns_buffer(t) || is_permanent(t) || moved_.contains(t)) continue;
            const bool large = is_large(t);
            if (far_.contains(t)) distant_.give(fn_.op(t).layout->offset, rounded(floats(t)));
            else
                arenas(t).of(large).give(fn_.op(t).layout->offset,
                                         large ? rounded(floats(t)) : (floats(t) + 3) / 4 * 4);
        }
    }

    [[nodiscard]] std::int64_t stages() const { return stages_ > 1 ? stages_ : 0; }

    /// All stages' matrices, matrices of the group that gives (or of all), what each of those that take has, what is
    /// passed between them; then numbers: those in no stage, those of all stages, barriers.
    void join_regions(TileKernel& kernel) {
        const std::int64_t large = stages() * stage_large_;
        std::int64_t end = large + rounded(large_floats_), takers = end;
        if (roles_) {
            roles_->taker_floats = rounded(takers_.large.size() + takers_.small.size());
            end += roles_->takers * roles_->taker_floats;
            for (Roles::Passed& p : roles_->passed) {
                p.floats = rounded(floats(p.value));
                fn_.op(p.value).layout->offset = p.offset = end;
                end += roles_->buffers * p.floats;
            }
        }
        const std::int64_t small = end;
        end += (others_.small.size() + 3) / 4 * 4;
        kernel.stage_floats = stage_large_, kernel.number_floats = (stage_small_ + 3) / 4 * 4,
        kernel.stage_numbers = end;
        end += stages() * kernel.number_floats;
        if (roles_) {
            roles_->barriers = end;
            end += Roles::kHandoverFloats *
                   (stages() + roles_->buffers * static_cast<std::int64_t>(roles_->passed.size()));
        }
        if (stages_ == 1 && !roles_) {
            kernel.addresses = end;
            end += (kAddressFloats * token_tensors() + 3) / 4 * 4;
            kernel.boxes = end;
            end += kBoxFloats * token_tensors();
            kernel.arrivals = end, kernel.arriving_groups = arriving_groups();
            end += kBarrierFloats * kernel.arriving_groups;
        }
        kernel.scratch_floats = (end + 3) / 4 * 4;
        kernel.far_floats = distant_.size();
        for (auto& [v, offset] : work_) offset += large;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            Op& op = fn_.op(v);
            if (!in_memory(op.layout->space) || is_passed(v)) continue;
            const ValueId base = buffer_of(fn_, v);
            const bool is_matrix = is_large(base);
            if (far_.contains(base)) op.layout->offset += kernel.scratch_floats;
            else if (op.layout->staged) op.layout->offset += is_matrix ? 0 : stage_large_;
            else if (is_takers(base)) op.layout->offset += takers + (is_matrix ? 0 : takers_.large.size());
            else op.layout->offset += is_matrix ? large : small;
        }
    }

    /// Vectors, what is there from the beginning, and each input that comes later.
    [[nodiscard]] int arriving_groups() const {
        int late = 0;
        bool vectors = false;
        for (ValueId v = 0; v < fn_.size(); ++v) late += arrives_late(fn_, v), vectors = vectors || is_vector(v);
        return (vectors ? 2 : 1) + late;
    }
    [[nodiscard]] std::int64_t token_tensors() const {
        std::set<std::string> inputs, outputs;
        for (const Op& op : fn_.ops)
            if (op.code == Opcode::Param && (op.attrs.role == Role::Input || op.attrs.role == Role::Shifted))
                inputs.insert(op.attrs.name);
        for (const ir::Result& r : fn_.results)
            if (r.role == Role::Input) outputs.insert(r.name);
        return static_cast<std::int64_t>(inputs.size() + outputs.size());
    }

    Function fn_;
    std::set<ValueId> joined_;
    int stages_;
    std::optional<Roles> roles_;
    std::vector<ValueId> vectors_;
    std::vector<DecayGroup> groups_;
    std::set<ValueId> far_;  ///< tiles in global memory
    Arena distant_{true};
    Arenas others_, takers_;
    std::vector<Stay> stays_;
    std::int64_t large_floats_ = 0;
    std::int64_t stage_large_ = 0, stage_small_ = 0;
    std::vector<ValueId> first_in_loop_, end_of_loop_;  ///< by value: itself where it has a loop of its own
    std::vector<int> last_read_;
    std::vector<std::vector<ValueId>> read_last_by_;  ///< by reader: what nothing after it reads
    std::vector<char> viewed_;                        ///< by value: whether there is a view of it
    std::map<ValueId, std::int64_t> work_;
    std::set<ValueId> moved_;  ///< whose buffer another value has taken over
    TileKernel kernel_;        ///< what is known of it
};

}  // namespace

TileKernel with_memory(const JoinedLoops& loops, const std::optional<Roles>& roles, const FragmentRules& rules) {
    Memory memory(loops, roles, rules);
    const std::int64_t shared_floats = rules.shared_floats;
    const std::int64_t near = memory.place_all({});
    if (shared_floats == 0 || near <= shared_floats || roles) return std::move(memory).kernel();
    const auto place_all = [&](const std::set<BufferName>& far) {
        std::set<ValueId> values;
        for (const BufferName& name : far) values.insert(name.value);
        return memory.place_all(std::move(values));
    };
    place_all(far_buffers(may_be_far(memory.function()), shared_floats, place_all));
    return std::move(memory).kernel();
}

}  // namespace forge::tile
