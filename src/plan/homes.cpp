#include "plan/homes.h"

#include <algorithm>

#include "graph/early_states.h"
#include "graph/epilogue.h"
#include "graph/saved_states.h"
#include "graph/state_groups.h"
#include "graph/trailing_states.h"
#include "ir/definition.h"
#include "tile/order.h"

namespace forge::plan {

using graph::has_axis;

Homes::Homes(const Function& program, Strategy strategy, const std::string& tile_axis, const PlaceRules& rules)
    : program_(program),
      strategy_(strategy),
      tile_axis_(tile_axis),
      rules_(rules),
      given_(graph::has_given_states(program)),
      early_groups_(graph::early_groups(program, rules.early)),
      saved_groups_(groups_of(Role::Before)),
      carried_groups_(groups_of(Role::State)),
      stages_(stages_of(strategy, graph::has_saved_states(program), !tile_axis.empty(), rules,
                        {early_groups_.size(), saved_groups_.size(), carried_groups_.size()})) {
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

bool Homes::is_one_of(const std::vector<int>& stages, int stage) {
    return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

std::size_t Homes::index_of(const Groups& groups, const std::string& state) {
    const auto has = [&](const std::set<std::string>& group) { return group.contains(state); };
    return static_cast<std::size_t>(std::find_if(groups.begin(), groups.end(), has) - groups.begin());
}

int Homes::scan_of(const std::string& state) const {
    if (rules_.trailing.contains(state)) return trailing_;
    if (sums_of_.contains(state)) return sums_;
    return scans_[index_of(carried_groups_, state)];
}

int Homes::scan_of_saved(const std::string& state) const {
    if (rules_.early.contains(state)) return early_scan(index_of(early_groups_, state));
    return befores_[index_of(saved_groups_, state)];
}

int Homes::stage_of(const ir::Result& r) const {
    if (r.role == Role::After) return scan_of_saved(r.name);
    if (r.role == Role::Spill) return ahead_;  // what is asked for beside the results
    if (rules_.early.contains(r.name) && (r.role == Role::State || r.role == Role::Before))
        return early_scan(index_of(early_groups_, r.name));
    if (r.role == Role::State && rules_.trailing.contains(r.name)) return trailing_;
    if (r.role == Role::State && sums_of_.contains(r.name)) return sums_;
    if (r.role == Role::State || r.role == Role::Before) return scan_of(r.name);
    if (has_epilogue() && !epilogue_[static_cast<std::size_t>(r.value)]) return scans_.back();
    return joint_ == kNone || has_axis(program_.op(r.value).type, rules_.outputs_axis) ? last_ : joint_;
}

void Homes::find_states_of(std::size_t stage) {
    std::vector<ValueId> states;
    for (ValueId v = 0; v < program_.size(); ++v) {
        const Op& op = program_.op(v);
        if (op.code != Opcode::Param) continue;
        const bool its = is_made_before(op)
                             ? scan_of_saved(op.attrs.name) == static_cast<int>(stage)
                             : op.attrs.role == Role::State && scan_of(op.attrs.name) == static_cast<int>(stage);
        if (its) states.push_back(v);
    }
    reads_.push_back(ir::depends_on(program_, states));
    needed_by_.push_back(ir::needed_for(program_, made_by_scan(static_cast<int>(stage))));
}

Homes::Groups Homes::groups_of(Role role) const {
    const bool outputs_apart = strategy_ == Strategy::Fused || strategy_ == Strategy::Decoupled;
    if (rules_.scans_apart && outputs_apart)
        if (Groups groups = graph::state_groups(program_, role); !groups.empty()) return groups;
    std::set<std::string> all;
    for (const Op& op : program_.ops)
        if (op.code == Opcode::Param && op.attrs.role == role) all.insert(op.attrs.name);
    for (const ir::Result& r : program_.results) all.insert(r.name);
    return {all};
}

void Homes::find_homes() {
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
        else if (is_before(op)) home = given_ ? kEverywhere : scan_of_saved(op.attrs.name);
        else if (is_sum(v)) home = sums_;
        else if ((again[i] && !is_row_of_what_is_made(op)) || is_found_by_all(op) ||
                 (param && op.attrs.role == Role::Spill))
            home = kEverywhere;
        else if (marks[i] == Slice::StateBound && for_states) home = last_read(scans_, v);
        else if (marks[i] == Slice::OutputOnly && for_states) home = std::max(scan, last_read(scans_, v));
        else if (marks[i] == Slice::StateFree && saved == kNone && runs_ahead(i, for_states || forwards)) home = ahead_;
        else if (forwards) home = saved != kNone ? saved : before;
        else if (between_ != kNone && between[i] && for_states) home = between_;
        else if (marks[i] == Slice::StateFree && for_states) home = by_scan[i] ? scan : between_;
        homes_.push_back(home);
    }
    if (tiles_ != kNone) find_tiles(marks);
    if (trailing_ != kNone) find_trailing(needed_by_[static_cast<std::size_t>(trailing_)]);
    for (std::size_t g = early_groups_.size(); g > 0; --g)
        find_early(g - 1, needed_by_[static_cast<std::size_t>(early_scan(g - 1))]);
}

std::vector<ir::ValueId> Homes::made_by_scan(int stage) const {
    std::vector<ValueId> values;
    const bool outputs = has_epilogue() && is_one_of(scans_, stage);
    if (outputs) values = graph::read_by_epilogue(program_, epilogue_);
    for (const ir::Result& r : roots_[static_cast<std::size_t>(stage)])
        if (outputs || r.role == Role::State || r.role == Role::After) values.push_back(r.value);
    return values;
}

int Homes::first_that_needs(const std::vector<int>& scans, std::size_t value) const {
    const auto needs = [&](int scan) { return needed_by_[static_cast<std::size_t>(scan)][value]; };
    const auto it = std::find_if(scans.begin(), scans.end(), needs);
    return it == scans.end() ? kNone : *it;
}

int Homes::last_read(const std::vector<int>& scans, ValueId v) const {
    int last = kNone;
    for (const int scan : scans)
        if (reads_[static_cast<std::size_t>(scan)][static_cast<std::size_t>(v)]) last = scan;
    return last;
}

std::vector<bool> Homes::needed_past(const std::vector<bool>& between) const {
    std::vector<bool> needed(program_.ops.size());
    for (const int scan : scans_)
        for (const ValueId v : made_by_scan(scan)) needed[static_cast<std::size_t>(v)] = true;
    for (ValueId v = program_.size() - 1; v >= 0; --v)
        if (const auto i = static_cast<std::size_t>(v); needed[i] && (between.empty() || !between[i]))
            for (const ValueId a : program_.op(v).args) needed[static_cast<std::size_t>(a)] = true;
    return needed;
}

void Homes::store_outputs_ahead() {
    if (ahead_ == last_ || in_order(stages_[static_cast<std::size_t>(ahead_)].loop)) return;
    auto &late = roots_[static_cast<std::size_t>(last_)], &early = roots_[static_cast<std::size_t>(ahead_)];
    const auto is_early = [&](const ir::Result& r) {
        return r.role == Role::Input && homes_[static_cast<std::size_t>(r.value)] == ahead_;
    };
    std::copy_if(late.begin(), late.end(), std::back_inserter(early), is_early);
    std::erase_if(late, is_early);
}

bool Homes::is_found_by(const Op& op, int stage) const {
    return is_found_again(op) && !in_order(stages_[static_cast<std::size_t>(stage)].loop) &&
           is_along(op, rules_.outputs_axis);
}

bool Homes::is_along(const Op& op, const std::string& axis) const {
    return axis.empty() || graph::is_parallel(program_, op, axis);
}

void Homes::find_tiles(const std::vector<Slice>& marks) {
    std::vector<ValueId> functions;
    for (ValueId v = 0; v < program_.size(); ++v) {
        const Op& op = program_.op(v);
        const bool simple = op.args.empty() || ir::is_view(op.code) || ir::is_elementwise(op.code) ||
                            ir::is_matmul(op.code) || op.code == Opcode::Copy;
        if (!simple && has_axis(op.type, tile_axis_)) functions.push_back(v);
    }
    const auto follows = ir::depends_on(program_, functions), operands = functions_for_products(marks);
    for (std::size_t i = 0; i < homes_.size(); ++i)
        if ((follows[i] || operands[i]) && marks[i] == Slice::StateFree && is_one_of(scans_, homes_[i]))
            homes_[i] = tiles_;
}

std::vector<bool> Homes::functions_for_products(const std::vector<Slice>& marks) const {
    const auto users = ir::users_of(program_);
    const auto results = ir::result_uses(program_);
    // Nothing makes more of what rounding to 16 bits, in which values pass between kernels, takes from them.
    std::vector<bool> rounded(program_.ops.size()), multiplied(program_.ops.size()), found(program_.ops.size());
    for (ValueId v = program_.size() - 1; v >= 0; --v) {
        const auto i = static_cast<std::size_t>(v);
        const Op& op = program_.op(v);
        const auto multiplies = [&](ValueId u) -> bool {
            const Op& user = program_.op(u);
            if (ir::is_matmul(user.code)) return user.args[0] == v || user.args[1] == v;
            return multiplied[static_cast<std::size_t>(u)];
        };
        const auto may_be_rounded = [&](ValueId u) {
            const Op& user = program_.op(u);
            if (ir::is_matmul(user.code)) return true;
            return ir::is_elementwise(user.code) && ir::linear(user.code) != ir::Linear::Opaque &&
                   rounded[static_cast<std::size_t>(u)];
        };
        rounded[i] = std::all_of(users[i].begin(), users[i].end(), may_be_rounded);
        multiplied[i] = (ir::is_elementwise(op.code) || op.code == Opcode::Copy) && op.type.rank() == 2 &&
                        has_axis(op.type, tile_axis_) && marks[i] == Slice::StateFree && results[i] == 0 &&
                        std::any_of(users[i].begin(), users[i].end(), multiplies) &&
                        (rounded[i] || std::all_of(users[i].begin(), users[i].end(), multiplies));
    }
    for (ValueId v = 0; v < program_.size(); ++v) {
        const auto i = static_cast<std::size_t>(v);
        const Op& op = program_.op(v);
        const auto is_function = [&](ValueId a) { return found[static_cast<std::size_t>(a)]; };
        found[i] = multiplied[i] && (tile::costly(op.code) || std::any_of(op.args.begin(), op.args.end(), is_function));
    }
    return found;
}

template <class Place>
void Homes::find_apart(int scan, const std::vector<bool>& reads, const std::vector<bool>& needed, Place place) {
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

std::vector<bool> Homes::reads_states(const std::set<std::string>& names) const {
    std::vector<ValueId> states;
    for (ValueId v = 0; v < program_.size(); ++v)
        if ((is_carried(program_.op(v)) || is_before(program_.op(v))) && names.contains(program_.op(v).attrs.name))
            states.push_back(v);
    return ir::depends_on(program_, states);
}

void Homes::find_early(std::size_t group, const std::vector<bool>& needed) {
    const int scan = early_scan(group), additions = scan - 1;
    const auto reads = reads_states(early_groups_[group]), cheap = graph::cheap(program_);
    find_apart(scan, reads, needed, [&](ValueId v, bool made, bool given) {
        const auto i = static_cast<std::size_t>(v);
        if (made && (given || !cheap[i])) homes_[i] = additions;
    });
    for (const ir::Result& r : roots_[static_cast<std::size_t>(scan)])
        if (const auto i = static_cast<std::size_t>(r.value); !reads[i]) homes_[i] = additions;
}

void Homes::find_trailing(const std::vector<bool>& needed) {
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

void Homes::find_joint() {
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

bool Homes::is_product_of_tokens(const Op& op) const {
    if (op.code != Opcode::Matmul || !has_axis(op.type, rules_.outputs_axis)) return false;
    return program_.op(op.args[0]).type.shape[op.attrs.trans_a ? 0 : 1].symbol == ir::kChunkSymbol;
}

bool Homes::is_sum(ValueId v) const {
    return std::any_of(program_.results.begin(), program_.results.end(), [&](const ir::Result& r) {
        return r.value == v && r.role == Role::State && sums_of_.contains(r.name);
    });
}

std::vector<bool> Homes::leaves_and_views() const {
    std::vector<bool> found;
    const auto decays = rules_.again == Again::Inputs ? decays_of_scans() : std::vector<bool>(program_.ops.size());
    for (const Op& op : program_.ops) {
        const bool leaf = op.args.empty() && !is_carried(op),
                   shared = rules_.again == Again::Vectors && is_shared_matrix(op);
        // Of gates that are read anyway the matrix units' kernels make sums, from which each loop takes its decays.
        const bool mask = rules_.again == Again::Inputs && op.code == Opcode::DecayMask &&
                          program_.op(op.args[0]).code == Opcode::Param;
        const bool decay = decays[found.size()] && std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) {
                               return found[static_cast<std::size_t>(a)];
                           });
        found.push_back(ir::is_view(op.code) || mask || decay || (leaf && !shared));
    }
    return found;
}

std::vector<bool> Homes::decays_of_scans() const {
    std::vector<bool> found(program_.ops.size());
    const auto find = [&](ValueId v) {
        if (ir::is_elementwise(program_.op(v).code)) found[static_cast<std::size_t>(v)] = true;
    };
    for (ValueId v = program_.size() - 1; v >= 0; --v) {
        const Op& op = program_.op(v);
        if (op.code == Opcode::LinearScan) find(op.args[0]);
        if (found[static_cast<std::size_t>(v)]) std::for_each(op.args.begin(), op.args.end(), find);
    }
    return found;
}

bool Homes::is_row_of_what_is_made(const Op& op) const {
    if (op.code != Opcode::Select) return false;
    ValueId of = op.args[0];
    while (ir::is_view(program_.op(of).code) || program_.op(of).code == Opcode::Expand) of = program_.op(of).args[0];
    return !program_.op(of).args.empty();
}

bool Homes::is_shared_matrix(const Op& op) const {
    const bool matrix = op.code == Opcode::Param && op.attrs.role == Role::Input && op.type.rank() > 1;
    return matrix && ahead() == Ahead::Shared && !has_axis(op.type, tile_axis_);
}

bool Homes::runs_ahead(std::size_t value, bool for_states) const {
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

}  // namespace forge::plan
