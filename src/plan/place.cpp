#include "plan/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "forge/error.h"
#include "graph/early_states.h"
#include "graph/epilogue.h"
#include "graph/saved_states.h"
#include "graph/slice.h"
#include "graph/state_groups.h"
#include "graph/summary.h"
#include "graph/trailing_states.h"
#include "ir/text.h"
#include "plan/stages.h"

namespace forge::plan {
namespace {

using graph::has_axis;
using graph::Slice;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

using Ahead = Stage::Ahead;
using Carries = Stage::Carries;

constexpr int kEverywhere = -1, kNone = -2;

class Placement {
  public:
    Placement(const Function& program, Strategy strategy, const std::string& tile_axis, const PlaceRules& rules)
        : program_(program),
          strategy_(strategy),
          tile_axis_(tile_axis),
          rules_(rules),
          given_(graph::has_given_states(program)),
          early_groups_(graph::early_groups(program, rules.early)),
          saved_groups_(groups_of(Role::Before)),
          carried_groups_(groups_of(Role::State)),
          stages_(stages_of(strategy, graph::has_saved_states(program), !tile_axis.empty(), rules,
                            {early_groups_.size(), saved_groups_.size(), carried_groups_.size()})),
          names_(ir::value_names(program)) {
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            const int at = static_cast<int>(s);
            if (stages_[s].joint) joint_ = at;
            else if (stages_[s].ahead == Ahead::OfTiles) tiles_ = at;
            else if (stages_[s].ahead == Ahead::Between) between_ = at;
            else if (!in_order(stages_[s].loop)) last_ = at;
            else if (stages_[s].carries == Carries::Early) ahead_ = at + 1;
            else if (stages_[s].carries == Carries::Before) befores_.push_back(at);
            else if (stages_[s].carries == Carries::Trailing) trailing_ = at;
            else if (stages_[s].carries == Carries::Sums) sums_ = at;
            else scans_.push_back(last_ = at);
        }
        if (sums_ != kNone) sums_of_ = graph::summed_states(program);
        if (has_epilogue()) epilogue_ = graph::epilogue(program, rules.epilogue_axis).value();
        roots_.resize(stages_.size());
        for (const ir::Result& r : program.results) roots_[static_cast<std::size_t>(stage_of(r))].push_back(r);
        for (std::size_t s = 0; s < stages_.size(); ++s) find_states_of(s);
        find_homes();
        store_outputs_ahead();
        if (joint_ != kNone) find_joint();
    }

    std::vector<KernelGraph> kernels() {
        std::vector<KernelGraph> made(stages_.size());
        for (int s = static_cast<int>(stages_.size()) - 1; s >= 0; --s) {  // later stages ask earlier ones for values
            const Stage& stage = stages_[static_cast<std::size_t>(s)];
            const bool apart = stage.carries == Carries::Early || stage.carries == Carries::Trailing;
            const bool backwards = goes_back() && in_order(stage.loop) && stage.carries != Carries::Before;
            KernelGraph& kernel = made[static_cast<std::size_t>(s)];
            kernel = {fmt::format("{}_{}", program_.name, stage.name),
                      stage.loop,
                      extract(s),
                      (stage.loop == Loop::Scan || stage.loop == Loop::Relay ||
                       (has_epilogue() && stage.loop == Loop::Segments)) &&
                          stage.carries != Carries::Sums && !apart,
                      backwards,
                      apart};
            kernel.joint = stage.joint, kernel.epilogue = has_epilogue() && s == last_;
            if (joint_ != kNone && (s == last_ || (stage.ahead == Ahead::Shared && is_by_parts(kernel.fn))))
                kernel.own_axis = rules_.outputs_axis;
            const bool cut = kernel.tiled && in_order(kernel.loop) && !tile_axis_.empty() && goes_back();
            if (!kernel.own_axis.empty()) check_parallel(kernel, kernel.own_axis);
            else if (cut) check_parallel(kernel, tile_axis_);
        }
        std::erase_if(made, [](const KernelGraph& k) { return k.fn.results.empty(); });
        return made;
    }

  private:
    using Groups = std::vector<std::set<std::string>>;

    [[nodiscard]] bool has_epilogue() const { return !rules_.epilogue_axis.empty(); }
    [[nodiscard]] bool goes_back() const { return !befores_.empty(); }
    static bool is_one_of(const std::vector<int>& stages, int stage) {
        return std::find(stages.begin(), stages.end(), stage) != stages.end();
    }
    static std::size_t index_of(const Groups& groups, const std::string& state) {
        const auto has = [&](const std::set<std::string>& group) { return group.contains(state); };
        return static_cast<std::size_t>(std::find_if(groups.begin(), groups.end(), has) - groups.begin());
    }

    /// The states of one kind, by the scans that carry them: one of all of them, unless they are apart.
    [[nodiscard]] Groups groups_of(Role role) const {
        const bool outputs_apart = strategy_ == Strategy::Fused || strategy_ == Strategy::Decoupled;
        if (rules_.scans_apart && outputs_apart)
            if (Groups groups = graph::state_groups(program_, role); !groups.empty()) return groups;
        std::set<std::string> all;
        for (const Op& op : program_.ops)
            if (op.code == Opcode::Param && op.attrs.role == role) all.insert(op.attrs.name);
        for (const ir::Result& r : program_.results) all.insert(r.name);
        return {all};
    }

    static bool is_before(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::Before; }
    [[nodiscard]] bool is_made_before(const Op& op) const { return is_before(op) && !given_; }

    [[nodiscard]] int stage_of(const ir::Result& r) const {
        if (r.role == Role::After) return befores_[index_of(saved_groups_, r.name)];
        if (r.role == Role::Spill) return ahead_;  // what is asked for beside the results
        if (rules_.early.contains(r.name) && (r.role == Role::State || r.role == Role::Before))
            return early_scan(index_of(early_groups_, r.name));
        if (r.role == Role::State && rules_.trailing.contains(r.name)) return trailing_;
        if (r.role == Role::State && sums_of_.contains(r.name)) return sums_;
        if (r.role == Role::State || r.role == Role::Before) return scan_of(r.name);
        if (has_epilogue() && !epilogue_[static_cast<std::size_t>(r.value)]) return scans_.back();
        return joint_ == kNone || has_axis(program_.op(r.value).type, rules_.outputs_axis) ? last_ : joint_;
    }

    /// What a stage's states are needed for, and what they need.
    void find_states_of(std::size_t stage) {
        std::vector<ValueId> states;
        for (ValueId v = 0; v < program_.size(); ++v) {
            const Op& op = program_.op(v);
            if (op.code != Opcode::Param) continue;
            const bool its = is_made_before(op)
                                 ? home_of_saved(op) == static_cast<int>(stage)
                                 : op.attrs.role == Role::State && scan_of(op.attrs.name) == static_cast<int>(stage);
            if (its) states.push_back(v);
        }
        reads_.push_back(ir::depends_on(program_, states));
        std::vector<ValueId> made = carried_by(static_cast<int>(stage));
        if (has_epilogue() && is_one_of(scans_, static_cast<int>(stage))) append_outputs_of_scan(made);
        needed_by_.push_back(ir::needed_for(program_, made));
    }

    /// What a scan makes besides its states where the outputs' epilogue has a kernel.
    void append_outputs_of_scan(std::vector<ValueId>& values) const {
        for (const ValueId v : graph::read_by_epilogue(program_, epilogue_)) values.push_back(v);
        for (const ir::Result& r : program_.results)
            if (!epilogue_[static_cast<std::size_t>(r.value)]) values.push_back(r.value);
    }

    void find_homes() {
        const auto marks = graph::slices(graph::without_early_states(program_, rules_.early));
        const auto again =
            rules_.again == Again::Cheap || ahead() == Ahead::Nothing ? graph::cheap(program_) : leaves_and_views();
        const auto between = between_ == kNone ? std::vector<bool>() : graph::made_between(program_);
        const auto by_scan = needed_past(between);
        for (ValueId v = 0; v < program_.size(); ++v) {
            const auto i = static_cast<std::size_t>(v);
            const Op& op = program_.op(v);
            const bool param = op.code == Opcode::Param, state = is_carried(op);
            const int scan = first_that_needs(scans_, i), before = first_that_needs(befores_, i),
                      saved = last_read(befores_, v);
            const bool for_states = scan != kNone, forwards = before != kNone;
            int home = last_;
            if (state) home = scan_of(op.attrs.name);
            else if (is_before(op)) home = given_ ? kEverywhere : home_of_saved(op);
            else if (is_sum(v)) home = sums_;
            else if ((again[i] && !is_row_of_what_is_made(op)) || is_found_by_all(op) ||
                     (param && op.attrs.role == Role::Spill))
                home = kEverywhere;
            else if (marks[i] == Slice::StateBound && for_states) home = last_read(scans_, v);
            else if (marks[i] == Slice::OutputOnly && for_states) home = std::max(scan, last_read(scans_, v));
            else if (marks[i] == Slice::StateFree && saved == kNone && runs_ahead(i, for_states || forwards))
                home = ahead_;
            else if (forwards) home = saved != kNone ? saved : before;
            else if (between_ != kNone && between[i] && for_states) home = between_;
            else if (marks[i] == Slice::StateFree && for_states)
                home = by_scan[i] || between_ == kNone ? scan : between_;
            homes_.push_back(home);
        }
        if (tiles_ != kNone) find_tiles(marks);
        if (trailing_ != kNone) find_trailing(needed_by_[static_cast<std::size_t>(trailing_)]);
        for (std::size_t g = early_groups_.size(); g > 0; --g)
            find_early(g - 1, needed_by_[static_cast<std::size_t>(early_scan(g - 1))]);
    }

    [[nodiscard]] std::vector<ValueId> carried_by(int stage) const {
        std::vector<ValueId> values;
        for (const ir::Result& r : roots_[static_cast<std::size_t>(stage)])
            if (r.role == Role::State || r.role == Role::After) values.push_back(r.value);
        return values;
    }

    /// kNone if there is none.
    [[nodiscard]] int first_that_needs(const std::vector<int>& scans, std::size_t value) const {
        const auto needs = [&](int scan) { return needed_by_[static_cast<std::size_t>(scan)][value]; };
        const auto it = std::find_if(scans.begin(), scans.end(), needs);
        return it == scans.end() ? kNone : *it;
    }
    /// The last scan whose states a value reads; kNone if there is none.
    [[nodiscard]] int last_read(const std::vector<int>& scans, ValueId v) const {
        int last = kNone;
        for (const int scan : scans)
            if (reads_[static_cast<std::size_t>(scan)][static_cast<std::size_t>(v)]) last = scan;
        return last;
    }

    /// What is needed for the states of the scans other than for what is made between the scans.
    [[nodiscard]] std::vector<bool> needed_past(const std::vector<bool>& between) const {
        std::vector<bool> needed(program_.ops.size());
        for (const int scan : scans_)
            for (const ValueId v : carried_by(scan)) needed[static_cast<std::size_t>(v)] = true;
        for (ValueId v = program_.size() - 1; v >= 0; --v)
            if (const auto i = static_cast<std::size_t>(v); needed[i] && (between.empty() || !between[i]))
                for (const ValueId a : program_.op(v).args) needed[static_cast<std::size_t>(a)] = true;
        return needed;
    }

    /// Outputs that are made ahead need not pass through a later kernel.
    void store_outputs_ahead() {
        if (ahead_ == last_ || in_order(stages_[static_cast<std::size_t>(ahead_)].loop)) return;
        auto &late = roots_[static_cast<std::size_t>(last_)], &early = roots_[static_cast<std::size_t>(ahead_)];
        const auto is_early = [&](const ir::Result& r) {
            return r.role == Role::Input && homes_[static_cast<std::size_t>(r.value)] == ahead_;
        };
        std::copy_if(late.begin(), late.end(), std::back_inserter(early), is_early);
        std::erase_if(late, is_early);
    }

    /// A gradient goes to the numbers that equal their maximum: every kernel makes it of the numbers that it has
    /// itself, as those that others have may be rounded otherwise, and none of them equal a maximum from there.
    [[nodiscard]] bool is_found_again(const Op& op) const { return op.code == Opcode::Amax && goes_back(); }
    /// But scans that have parts of what it is the maximum of read it, and do not look for it there.
    [[nodiscard]] bool is_found_by_all(const Op& op) const { return is_found_again(op) && is_along(op, tile_axis_); }
    [[nodiscard]] bool is_found_by(const Op& op, int stage) const {
        return is_found_again(op) && !in_order(stages_[static_cast<std::size_t>(stage)].loop) &&
               is_along(op, rules_.outputs_axis);
    }
    /// Whether parts of an axis, if there is one, do.
    [[nodiscard]] bool is_along(const Op& op, const std::string& axis) const {
        return axis.empty() || graph::is_parallel(program_, op, axis);
    }

    /// What follows, without any state, from functions of the tokens in a column of the axis.
    void find_tiles(const std::vector<Slice>& marks) {
        std::vector<ValueId> functions;
        for (ValueId v = 0; v < program_.size(); ++v) {
            const Op& op = program_.op(v);
            const bool simple = op.args.empty() || ir::is_view(op.code) || ir::is_elementwise(op.code) ||
                                ir::is_matmul(op.code) || op.code == Opcode::Copy;
            if (!simple && has_axis(op.type, tile_axis_)) functions.push_back(v);
        }
        const auto follows = ir::depends_on(program_, functions);
        for (std::size_t i = 0; i < homes_.size(); ++i)
            if (follows[i] && marks[i] == Slice::StateFree && is_one_of(scans_, homes_[i])) homes_[i] = tiles_;
    }

    /// A scan of some states makes what reads them. Of all else that is needed, `place(v, made, given)` finds the home:
    /// whether it is made by an operation, and given to the scan, which reads it or a view of it.
    template <class Place>
    void find_apart(int scan, const std::vector<bool>& reads, const std::vector<bool>& needed, Place place) {
        std::vector<bool> given(program_.ops.size());
        for (ValueId v = program_.size() - 1; v >= 0; --v) {
            const auto i = static_cast<std::size_t>(v);
            const Op& op = program_.op(v);
            if (!needed[i]) continue;
            const bool made = !op.args.empty() && (!ir::is_view(op.code) || is_row_of_what_is_made(op));
            if (reads[i]) homes_[i] = scan;
            else place(v, made, given[i]);
            if (reads[i] || (given[i] && !made))
                for (const ValueId a : op.args) given[static_cast<std::size_t>(a)] = true;
        }
    }
    [[nodiscard]] std::vector<bool> reads_states(const std::set<std::string>& names) const {
        std::vector<ValueId> states;
        for (ValueId v = 0; v < program_.size(); ++v)
            if (is_carried(program_.op(v)) && names.contains(program_.op(v).attrs.name)) states.push_back(v);
        return ir::depends_on(program_, states);
    }

    /// The stage before the scan of early states makes what that is given. What is costly is stored for later kernels
    /// too.
    void find_early(std::size_t group, const std::vector<bool>& needed) {
        const int scan = early_scan(group), additions = scan - 1;
        const auto reads = reads_states(early_groups_[group]), cheap = graph::cheap(program_);
        find_apart(scan, reads, needed, [&](ValueId v, bool made, bool given) {
            const auto i = static_cast<std::size_t>(v);
            if (made && (given || !cheap[i])) homes_[i] = additions;
        });
        for (const ir::Result& r : roots_[static_cast<std::size_t>(scan)])
            if (const auto i = static_cast<std::size_t>(r.value); !reads[i]) homes_[i] = additions;
    }

    /// The stage before the scan of trailing states makes what that is given; vectors of tokens, such as sums along the
    /// axis that scans are cut along, are stored for the outputs too, and each kernel makes the matrices that it needs
    /// for itself.
    void find_trailing(const std::vector<bool>& needed) {
        const int additions = trailing_ - 1;
        const auto reads = reads_states(rules_.trailing);
        find_apart(trailing_, reads, needed, [&](ValueId v, bool made, bool given) {
            const Op& op = program_.op(v);
            int& home = homes_[static_cast<std::size_t>(v)];
            const bool again = is_found_again(op), late = home == last_ || home == kEverywhere;
            if (made && late && given && !again) home = additions;
            else if (home == last_) home = op.type.rank() < 2 && !again ? additions : kEverywhere;
        });
        for (const ir::Result& r : roots_[static_cast<std::size_t>(trailing_)])
            if (const auto i = static_cast<std::size_t>(r.value); !reads[i] && homes_[i] == kEverywhere)
                homes_[i] = additions;
    }

    /// The scan of a group of early states; the stage before it makes what they add.
    static int early_scan(std::size_t group) { return 2 * static_cast<int>(group) + 1; }
    static bool is_carried(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::State; }
    /// The scan of a state that is not early.
    [[nodiscard]] int scan_of(const std::string& state) const {
        if (rules_.trailing.contains(state)) return trailing_;
        if (sums_of_.contains(state)) return sums_;
        return scans_[index_of(carried_groups_, state)];
    }
    [[nodiscard]] int home_of_saved(const Op& op) const { return befores_[index_of(saved_groups_, op.attrs.name)]; }
    [[nodiscard]] Ahead ahead() const { return stages_[static_cast<std::size_t>(ahead_)].ahead; }

    /// What lacks the axis along which outputs are cut, or needs all of it, is made for all parts at once, and so is
    /// what that needs; what every kernel makes only if it needs all of it. But products over tokens alone are made
    /// again from operands rather than rounded to 16 bits on the way.
    void find_joint() {
        std::vector<ValueId> joint;
        for (ValueId v = 0; v < program_.size(); ++v) {
            const Op& op = program_.op(v);
            const bool needs_all = !graph::is_parallel(program_, op, rules_.outputs_axis),
                       whole = needs_all || !has_axis(op.type, rules_.outputs_axis);
            int& home = homes_[static_cast<std::size_t>(v)];
            if (home == kEverywhere && needs_all) home = joint_;
            else if (whole && home == last_) joint.push_back(v);
        }
        const auto needed = ir::needed_for(program_, joint);
        for (ValueId v = 0; v < program_.size(); ++v) {
            int& home = homes_[static_cast<std::size_t>(v)];
            if (home != last_ || !needed[static_cast<std::size_t>(v)]) continue;
            home = is_product_of_tokens(program_.op(v)) ? kEverywhere : joint_;
        }
    }

    /// Whether all operations can be done part by part of an axis.
    static bool are_parallel(const Function& fn, const std::string& axis) {
        return std::all_of(fn.ops.begin(), fn.ops.end(),
                           [&](const Op& op) { return graph::is_parallel(fn, op, axis); });
    }
    static void check_parallel(const KernelGraph& kernel, const std::string& axis) {
        if (!are_parallel(kernel.fn, axis))
            throw InternalError(fmt::format("place: {} is not made by parts of {}", kernel.name, axis));
    }

    /// Whether all of a kernel can be made part by part of the axis along which outputs are cut.
    [[nodiscard]] bool is_by_parts(const Function& fn) const {
        return are_parallel(fn, rules_.outputs_axis) &&
               std::all_of(fn.results.begin(), fn.results.end(),
                           [&](const ir::Result& r) { return has_axis(fn.op(r.value).type, rules_.outputs_axis); });
    }

    [[nodiscard]] bool is_product_of_tokens(const Op& op) const {
        if (op.code != Opcode::Matmul || !has_axis(op.type, rules_.outputs_axis)) return false;
        return program_.op(op.args[0]).type.shape[op.attrs.trans_a ? 0 : 1].symbol == ir::kChunkSymbol;
    }

    /// What is added to a sum.
    [[nodiscard]] bool is_sum(ValueId v) const {
        return std::any_of(program_.results.begin(), program_.results.end(), [&](const ir::Result& r) {
            return r.value == v && r.role == Role::State && sums_of_.contains(r.name);
        });
    }

    /// What no kernel stores for another even if all work is to be done ahead.
    [[nodiscard]] std::vector<bool> leaves_and_views() const {
        std::vector<bool> found;
        for (const Op& op : program_.ops) {
            const bool leaf = op.args.empty() && !(op.code == Opcode::Param && op.attrs.role == Role::State);
            // Of gates that are read anyway the matrix units' kernels make sums, from which each loop takes its decays.
            const bool mask = rules_.again == Again::Inputs && op.code == Opcode::DecayMask &&
                              program_.op(op.args[0]).code == Opcode::Param;
            found.push_back(ir::is_view(op.code) || mask ||
                            (leaf && !(rules_.again == Again::Vectors && is_shared_matrix(op))));
        }
        return found;
    }

    /// A row of what is no constant or input, which takes far less room between kernels than the matrix that it is of.
    [[nodiscard]] bool is_row_of_what_is_made(const Op& op) const {
        if (op.code != Opcode::Select) return false;
        ValueId of = op.args[0];
        while (ir::is_view(program_.op(of).code) || program_.op(of).code == Opcode::Expand)
            of = program_.op(of).args[0];
        return !program_.op(of).args.empty();
    }

    /// An input of which every tile reads all.
    [[nodiscard]] bool is_shared_matrix(const Op& op) const {
        const bool matrix = op.code == Opcode::Param && op.attrs.role == Role::Input && op.type.rank() > 1;
        return matrix && ahead() == Ahead::Shared && !has_axis(op.type, tile_axis_);
    }

    /// Whether a state-free value is made by the first kernel, for all chunks at once. What only the outputs need is
    /// left to a kernel that makes outputs for all chunks at once, if there is one, unless all its tiles would make it.
    [[nodiscard]] bool runs_ahead(std::size_t value, bool for_states) const {
        const bool shared = !has_axis(program_.ops[value].type, tile_axis_);
        const bool wanted = for_states || last_ == scans_.back() || (rules_.outputs_cut && shared);
        switch (ahead()) {
            case Ahead::Nothing:
                return false;
            case Ahead::Shared:
            case Ahead::OfTiles:
                return wanted && shared;
            case Ahead::StateFree:
                return wanted;
            case Ahead::Between:
                break;
        }
        return false;
    }

    /// The stage's function: its roots and what they need, up to values that live in an earlier stage.
    Function extract(int stage) {
        Function fn;
        fn.name = fmt::format("{}_{}", program_.name, stages_[static_cast<std::size_t>(stage)].name);
        std::vector<ValueId> roots;
        for (const ir::Result& r : roots_[static_cast<std::size_t>(stage)]) roots.push_back(r.value);
        remade_.assign(program_.ops.size(), false);
        if (!in_order(stages_[static_cast<std::size_t>(stage)].loop))
            remade_ = made_of_what_is_read(needed_here(roots, stage), stage);
        const auto needed = needed_here(roots, stage);
        std::map<ValueId, ValueId> map;
        for (ValueId v = 0; v < program_.size(); ++v) {
            if (!needed[static_cast<std::size_t>(v)]) continue;
            Op op = foreign(v, stage) ? spilled(v) : program_.op(v);
            if (is_made_before(op)) op.attrs.role = Role::State;  // here it is carried
            for (ValueId& a : op.args) a = map.at(a);
            map[v] = fn.add(std::move(op));
        }
        for (const ir::Result& r : roots_[static_cast<std::size_t>(stage)])
            fn.results.push_back({r.name, r.role == Role::After ? Role::State : r.role, map.at(r.value)});
        return fn;
    }

    std::vector<bool> needed_here(const std::vector<ValueId>& roots, int stage) const {
        std::vector<bool> needed(program_.ops.size(), false);
        for (const ValueId r : roots) needed[static_cast<std::size_t>(r)] = true;
        for (ValueId v = program_.size() - 1; v >= 0; --v)
            if (needed[static_cast<std::size_t>(v)] && !foreign(v, stage))
                for (const ValueId a : program_.op(v).args) needed[static_cast<std::size_t>(a)] = true;
        return needed;
    }

    [[nodiscard]] bool foreign(ValueId v, int stage) const {
        const int home = homes_[static_cast<std::size_t>(v)];
        return home != kEverywhere && home < stage && !remade_[static_cast<std::size_t>(v)] &&
               !is_made_by_each(v, home, stage) && !is_found_by(program_.op(v), stage);
    }

    /// Of scans beside each other, each makes what none of their states is needed for.
    [[nodiscard]] bool is_made_by_each(ValueId v, int home, int stage) const {
        const auto both = [&](const std::vector<int>& scans) {
            return is_one_of(scans, home) && is_one_of(scans, stage);
        };
        return (both(scans_) && last_read(scans_, v) == kNone) || (both(befores_) && last_read(befores_, v) == kNone);
    }

    [[nodiscard]] bool is_input(ValueId v) const {
        const Op& op = program_.op(v);
        return op.code == Opcode::Param && op.attrs.role == Role::Input;
    }

    /// Whether a later kernel reads it in any case.
    [[nodiscard]] bool is_spilled(ValueId v) const {
        const int home = homes_[static_cast<std::size_t>(v)];
        const auto is_it = [&](const ir::Result& r) { return r.role == Role::Spill && r.value == v; };
        return home >= 0 && std::any_of(roots_[static_cast<std::size_t>(home)].begin(),
                                        roots_[static_cast<std::size_t>(home)].end(), is_it);
    }

    /// What a kernel for all chunks at once makes again rather than read it too: what light elementwise operations make
    /// of what it has (`needed`), or of what is stored, anyway. A scan, whose steps wait for each other, reads it.
    [[nodiscard]] std::vector<bool> made_of_what_is_read(const std::vector<bool>& needed, int stage) const {
        std::vector<bool> remade(program_.ops.size()), at_hand(program_.ops.size());
        for (ValueId v = 0; v < program_.size(); ++v) {
            const auto i = static_cast<std::size_t>(v);
            const Op& op = program_.op(v);
            const auto is_at_hand = [&](ValueId a) { return at_hand[static_cast<std::size_t>(a)]; };
            const auto is_read_input = [&](ValueId a) { return needed[static_cast<std::size_t>(a)] && is_input(a); };
            const bool light = ir::is_elementwise(op.code) && ir::cost(op.code).again,
                       product = rules_.products_again && op.code == Opcode::Matmul &&
                                 std::all_of(op.args.begin(), op.args.end(), is_read_input);
            const bool by_parts =
                joint_ == kNone || stage != last_ || graph::is_parallel(program_, op, rules_.outputs_axis);
            remade[i] = foreign(v, stage) && (light || product) && by_parts &&
                        std::all_of(op.args.begin(), op.args.end(), is_at_hand);
            at_hand[i] = needed[i] || remade[i] || homes_[i] == kEverywhere || is_spilled(v);
        }
        return remade;
    }

    /// The value as a parameter here, and as a result where it lives.
    Op spilled(ValueId v) {
        const Op& op = program_.op(v);
        Op param{Opcode::Param, op.type, {}, {}, op.name, op.where, std::nullopt};
        param.attrs.name = names_[static_cast<std::size_t>(v)];
        param.attrs.role = Role::Spill;
        auto& results = roots_[static_cast<std::size_t>(homes_[static_cast<std::size_t>(v)])];
        const ir::Result wanted{param.attrs.name, Role::Spill, v};
        if (std::find(results.begin(), results.end(), wanted) == results.end()) results.push_back(wanted);
        return param;
    }

    const Function& program_;
    Strategy strategy_;
    const std::string& tile_axis_;
    const PlaceRules& rules_;
    bool given_;  ///< the states before chunks are the caller's
    Groups early_groups_, saved_groups_, carried_groups_;
    std::vector<Stage> stages_;
    std::vector<std::string> names_;
    std::vector<std::vector<ir::Result>> roots_;
    std::vector<int> homes_;
    std::set<std::string> sums_of_;
    std::vector<bool> epilogue_;                        ///< which values belong to it
    std::vector<bool> remade_;                          ///< in the stage that is being extracted
    std::vector<std::vector<bool>> needed_by_, reads_;  ///< by stage: for its states, and of them
    std::vector<int> befores_, scans_;                  ///< stages, one for each group
    int ahead_ = 0, tiles_ = kNone, between_ = kNone, trailing_ = kNone, joint_ = kNone, last_ = 0, sums_ = kNone;
};

}  // namespace

namespace {

[[noreturn]] void refuse_segments(const Function& program) {
    throw RuntimeError(fmt::format(
        "{}: strategy: expected one-pass, fused or decoupled, which a backward pass has, got segmented", program.name));
}

}  // namespace

std::vector<std::string> cut_axes(const Function& program, Strategy strategy) {
    if (strategy == Strategy::OnePass || !graph::has_saved_states(program)) return graph::parallel_axes(program);
    return graph::scan_axes(program);
}

bool cuts_chunks(const Function& program, const std::string& axis) {
    const std::vector<std::string> axes = graph::parallel_axes(program);
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

bool cuts_outputs(const Function& program, const std::string& axis) {
    return std::all_of(program.ops.begin(), program.ops.end(), [&](const Op& op) {
        const auto is_along = [&](const Dim& d) { return d.symbol == axis; };
        const Shape& shape = op.type.shape;
        const bool stretched =
            std::any_of(shape.begin(), shape.end(), [&](const Dim& d) { return is_along(d) && d.factor != 1; });
        if (stretched || std::count_if(shape.begin(), shape.end(), is_along) > 1) return false;
        return !ir::is_view(op.code) || graph::is_parallel(program, op, axis);  // every kernel makes views itself
    });
}

std::vector<KernelGraph> place(const Function& program, Strategy strategy, const std::string& tile_axis,
                               const PlaceRules& rules) {
    if (strategy == Strategy::Segmented && graph::has_saved_states(program)) refuse_segments(program);
    std::vector<KernelGraph> kernels = Placement(program, strategy, tile_axis, rules).kernels();
    if (strategy != Strategy::Segmented) return kernels;
    const std::string name = program.name;
    const auto scan =  // what was made ahead, summaries read as it does
        std::find_if(kernels.begin(), kernels.end(), [](const KernelGraph& k) { return k.loop == Loop::Segments; });
    const bool columns = rules.transition_columns;
    KernelGraph summaries{name + "_summaries",
                          Loop::Summaries,
                          columns ? graph::input_summary(scan->fn) : graph::summary(scan->fn),
                          columns || scan->tiled,
                          false,
                          false,
                          columns},
        carries{name + "_carries", Loop::Carries, graph::carry(graph::without_early_states(program, rules.early)),
                scan->tiled};
    const auto place = kernels.insert(scan, std::move(summaries));
    if (!rules.joined_at_start) kernels.insert(place + 1, std::move(carries));
    return kernels;
}

}  // namespace forge::plan
