#include "plan/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "forge/error.h"
#include "graph/early_states.h"
#include "graph/saved_states.h"
#include "graph/slice.h"
#include "graph/summary.h"
#include "ir/text.h"

namespace forge::plan {
namespace {

using graph::Slice;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

constexpr int kEverywhere = -1, kNone = -2;

struct Stage {
    std::string name;
    Loop loop;
    enum class Ahead : std::uint8_t {
        Nothing,
        Shared,
        OfTiles,  ///< … of every tile, beside what they share
        StateFree
    } ahead = Ahead::Nothing;  ///< what a first kernel makes for all chunks
    /// Of a scan: the states that it carries.
    enum class Carries : std::uint8_t {
        All,
        Early,   ///< those that need no others
        Before,  ///< those that go forwards in a program that goes backwards
        Sums,    ///< those to which every chunk only adds
    } carries = Carries::All;
    bool joint = false;  ///< makes what kernels that are cut along another axis have in common
};
using Ahead = Stage::Ahead;
using Carries = Stage::Carries;

std::vector<Stage> stages_of(Strategy strategy, bool tiled) {
    const std::vector<Stage> shared =
        tiled ? std::vector<Stage>{{"shared", Loop::Chunks, Ahead::Shared}} : std::vector<Stage>{};
    const auto with_shared = [&](std::vector<Stage> stages) {
        stages.insert(stages.begin(), shared.begin(), shared.end());
        return stages;
    };
    switch (strategy) {
        case Strategy::OnePass:
            return with_shared({{"scan", Loop::Scan}});
        case Strategy::Fused:
            return with_shared({{"states", Loop::Scan}, {"outputs", Loop::Chunks}});
        case Strategy::Decoupled:
            return {{"chunks", Loop::Chunks, Ahead::StateFree}, {"states", Loop::Scan}, {"outputs", Loop::Chunks}};
        case Strategy::Segmented:
            return with_shared({{"scan", Loop::Segments}});
    }
    throw InternalError("place: unknown strategy");
}

/// With a kernel ahead of the scan for what only tiles make (PlaceRules::tiles_ahead).
std::vector<Stage> with_tiles_ahead(std::vector<Stage> stages) {
    const auto scan = std::find_if(stages.begin(), stages.end(), [](const Stage& s) { return in_order(s.loop); });
    stages.insert(scan, {"tiles", Loop::Chunks, Ahead::OfTiles});
    return stages;
}

/// With a scan of each group of states that need no others, and a kernel for what they add, ahead of all else.
std::vector<Stage> with_early_states(std::vector<Stage> stages, std::size_t groups) {
    for (std::size_t g = groups; g > 0; --g) {
        const std::string number = g == 1 ? "" : fmt::format("_{}", g);
        const std::vector<Stage> early = {{"additions" + number, Loop::Chunks},
                                          {"early" + number, Loop::Scan, Ahead::Nothing, Carries::Early}};
        stages.insert(stages.begin(), early.begin(), early.end());
    }
    return stages;
}

/// With a kernel ahead of the outputs' own for what these have in common.
std::vector<Stage> with_joint_outputs(std::vector<Stage> stages) {
    const auto outputs = std::find_if(stages.rbegin(), stages.rend(), [](const Stage& s) { return !in_order(s.loop); });
    if (outputs == stages.rend() || outputs->ahead != Ahead::Nothing) return stages;
    stages.insert(outputs.base() - 1, {"joint", Loop::Chunks, Ahead::Nothing, Carries::All, true});
    return stages;
}

/// With a scan forwards, for the states before all chunks, ahead of the one that goes backwards, and at the end, if
/// outputs have a kernel of their own, one for the sums of what these leave.
std::vector<Stage> stages_backwards(Strategy strategy, bool tiled) {
    std::vector<Stage> stages = stages_of(strategy, tiled);
    const auto scan = std::find_if(stages.begin(), stages.end(), [](const Stage& s) { return s.loop == Loop::Scan; });
    const bool outputs_apart = scan + 1 != stages.end();
    stages.insert(scan, {"before", Loop::Scan, Ahead::Nothing, Carries::Before});
    if (outputs_apart) stages.push_back({"sums", Loop::Scan, Ahead::Nothing, Carries::Sums});
    return stages;
}

class Placement {
  public:
    Placement(const Function& program, std::vector<Stage> stages, std::string tile_axis, const PlaceRules& rules)
        : program_(program),
          stages_(std::move(stages)),
          tile_axis_(std::move(tile_axis)),
          again_(rules.again),
          outputs_cut_(rules.outputs_cut),
          products_again_(rules.products_again),
          outputs_axis_(rules.outputs_axis),
          early_states_(rules.early),
          early_groups_(graph::early_groups(program, rules.early)),
          names_(ir::value_names(program)) {
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            const int at = static_cast<int>(s);
            if (stages_[s].joint) joint_ = at;
            else if (stages_[s].ahead == Ahead::OfTiles) tiles_ = at;
            else if (!in_order(stages_[s].loop)) last_ = at;
            else if (stages_[s].carries == Carries::Early) ahead_ = at + 1;
            else if (stages_[s].carries == Carries::Before) before_ = at;
            else if (stages_[s].carries == Carries::Sums) sums_ = at;
            else last_ = scan_ = at;
        }
        if (sums_ != kNone) sums_of_ = graph::summed_states(program);
        roots_.resize(stages_.size());
        for (const ir::Result& r : program.results) roots_[static_cast<std::size_t>(stage_of(r))].push_back(r);
        std::vector<ValueId> saved;
        for (ValueId v = 0; v < program.size(); ++v)
            if (is_before(program.op(v))) saved.push_back(v);
        reads_before_ = ir::depends_on(program, saved);
        find_homes();
        if (joint_ != kNone) find_joint();
    }

    std::vector<KernelGraph> kernels() {
        std::vector<KernelGraph> made(stages_.size());
        for (int s = static_cast<int>(stages_.size()) - 1; s >= 0; --s) {  // later stages ask earlier ones for values
            const Stage& stage = stages_[static_cast<std::size_t>(s)];
            const bool early = stage.carries == Carries::Early;
            const bool backwards = before_ != kNone && in_order(stage.loop) && stage.carries != Carries::Before;
            KernelGraph& kernel = made[static_cast<std::size_t>(s)];
            kernel = {fmt::format("{}_{}", program_.name, stage.name),
                      stage.loop,
                      extract(s),
                      stage.loop == Loop::Scan && stage.carries != Carries::Sums && !early,
                      backwards,
                      early};
            kernel.joint = stage.joint;
            if (joint_ != kNone && (s == last_ || (stage.ahead == Ahead::Shared && is_by_parts(kernel.fn))))
                kernel.own_axis = outputs_axis_;
        }
        std::erase_if(made, [](const KernelGraph& k) { return k.fn.results.empty(); });
        return made;
    }

  private:
    static bool is_before(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::Before; }

    [[nodiscard]] int stage_of(const ir::Result& r) const {
        if (r.role == Role::After) return before_;
        if (r.role == Role::Spill) return ahead_;  // what is asked for beside the results
        if (early_states_.contains(r.name) && (r.role == Role::State || r.role == Role::Before))
            return scan_of(group_of(r.name));
        if (r.role == Role::State && sums_of_.contains(r.name)) return sums_;
        if (r.role == Role::State || r.role == Role::Before) return scan_;
        return joint_ == kNone || has_axis(program_.op(r.value).type, outputs_axis_) ? last_ : joint_;
    }

    void find_homes() {
        const auto marks = graph::slices(graph::without_early_states(program_, early_states_));
        const auto again =
            again_ == Again::Cheap || ahead() == Ahead::Nothing ? graph::cheap(program_) : leaves_and_views();
        const auto needed_by = [&](int stage) {
            std::vector<ValueId> values;
            for (const ir::Result& r : roots_[static_cast<std::size_t>(stage)])
                if (r.role == Role::State || r.role == Role::After) values.push_back(r.value);
            return ir::needed_for(program_, values);
        };
        const auto for_states = needed_by(scan_);
        const auto forwards = before_ == kNone ? std::vector<bool>(program_.ops.size()) : needed_by(before_);
        for (ValueId v = 0; v < program_.size(); ++v) {
            const auto i = static_cast<std::size_t>(v);
            const Op& op = program_.op(v);
            const bool param = op.code == Opcode::Param, state = param && op.attrs.role == Role::State;
            int home = last_;
            if (state) home = sums_of_.contains(op.attrs.name) ? sums_ : scan_;
            else if (is_before(op)) home = before_;
            else if (is_sum(v)) home = sums_;
            else if (again[i] || (param && op.attrs.role == Role::Spill)) home = kEverywhere;
            else if (marks[i] == Slice::StateBound && for_states[i]) home = scan_;
            else if (marks[i] == Slice::StateFree && !reads_before_[i] && runs_ahead(i, for_states[i] || forwards[i]))
                home = ahead_;
            else if (forwards[i]) home = before_;
            else if (marks[i] == Slice::StateFree && for_states[i]) home = scan_;
            homes_.push_back(home);
        }
        if (tiles_ != kNone) find_tiles(marks);
        for (std::size_t g = early_groups_.size(); g > 0; --g) find_early(g - 1, needed_by(scan_of(g - 1)));
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
            if (follows[i] && marks[i] == Slice::StateFree && homes_[i] == scan_) homes_[i] = tiles_;
    }

    /// The scan of early states makes what reads them, and is given all else that it needs. What is costly is stored
    /// for later kernels too.
    void find_early(std::size_t group, const std::vector<bool>& needed) {
        const int scan = scan_of(group), additions = scan - 1;
        std::vector<ValueId> states;
        for (ValueId v = 0; v < program_.size(); ++v)
            if (is_early(program_.op(v)) && group_of(program_.op(v).attrs.name) == group) states.push_back(v);
        const auto reads = ir::depends_on(program_, states), cheap = graph::cheap(program_);
        std::vector<bool> given(program_.ops.size());  // read by the scan, or by a view of it
        for (ValueId v = program_.size() - 1; v >= 0; --v) {
            const auto i = static_cast<std::size_t>(v);
            const Op& op = program_.op(v);
            if (!needed[i]) continue;
            const bool leaf = op.args.empty(), view = ir::is_view(op.code);
            if (reads[i]) homes_[i] = scan;
            else if (!leaf && !view && (given[i] || !cheap[i])) homes_[i] = additions;
            if (reads[i] || (given[i] && view))
                for (const ValueId a : op.args) given[static_cast<std::size_t>(a)] = true;
        }
        for (const ir::Result& r : roots_[static_cast<std::size_t>(scan)])
            if (const auto i = static_cast<std::size_t>(r.value); !reads[i]) homes_[i] = additions;
    }

    /// The scan of a group of early states; the stage before it makes what they add.
    static int scan_of(std::size_t group) { return 2 * static_cast<int>(group) + 1; }
    [[nodiscard]] std::size_t group_of(const std::string& state) const {
        std::size_t group = 0;
        while (!early_groups_[group].contains(state)) ++group;
        return group;
    }
    [[nodiscard]] bool is_early(const Op& op) const {
        return op.code == Opcode::Param && op.attrs.role == Role::State && early_states_.contains(op.attrs.name);
    }
    [[nodiscard]] Ahead ahead() const { return stages_[static_cast<std::size_t>(ahead_)].ahead; }

    /// What lacks the axis along which outputs are cut, or needs all of it, is made for all parts at once, and so is
    /// what that needs. But products over tokens alone are made again from operands rather than rounded to 16 bits on
    /// the way.
    void find_joint() {
        std::vector<ValueId> joint;
        for (ValueId v = 0; v < program_.size(); ++v) {
            const Op& op = program_.op(v);
            const bool whole = !has_axis(op.type, outputs_axis_) || !graph::is_parallel(program_, op, outputs_axis_);
            if (whole && homes_[static_cast<std::size_t>(v)] == last_) joint.push_back(v);
        }
        const auto needed = ir::needed_for(program_, joint);
        for (ValueId v = 0; v < program_.size(); ++v) {
            int& home = homes_[static_cast<std::size_t>(v)];
            if (home != last_ || !needed[static_cast<std::size_t>(v)]) continue;
            home = is_product_of_tokens(program_.op(v)) ? kEverywhere : joint_;
        }
    }

    /// Whether all of a kernel can be made part by part of the axis along which outputs are cut.
    [[nodiscard]] bool is_by_parts(const Function& fn) const {
        return std::all_of(fn.ops.begin(), fn.ops.end(),
                           [&](const Op& op) { return graph::is_parallel(fn, op, outputs_axis_); }) &&
               std::all_of(fn.results.begin(), fn.results.end(),
                           [&](const ir::Result& r) { return has_axis(fn.op(r.value).type, outputs_axis_); });
    }

    [[nodiscard]] bool is_product_of_tokens(const Op& op) const {
        if (op.code != Opcode::Matmul || !has_axis(op.type, outputs_axis_)) return false;
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
            const bool mask = again_ == Again::Inputs && op.code == Opcode::DecayMask &&
                              program_.op(op.args[0]).code == Opcode::Param;
            found.push_back(ir::is_view(op.code) || mask ||
                            (leaf && !(again_ == Again::Vectors && is_shared_matrix(op))));
        }
        return found;
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
        const bool wanted = for_states || last_ == scan_ || (outputs_cut_ && shared);
        switch (ahead()) {
            case Ahead::Nothing:
                return false;
            case Ahead::Shared:
            case Ahead::OfTiles:
                return wanted && shared;
            case Ahead::StateFree:
                return wanted;
        }
        return false;
    }

    static bool has_axis(const ir::Type& type, const std::string& axis) {
        return std::any_of(type.shape.begin(), type.shape.end(), [&](const Dim& d) { return d.symbol == axis; });
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
            if (is_before(op)) op.attrs.role = Role::State;  // here it is carried
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
        return home != kEverywhere && home < stage && !remade_[static_cast<std::size_t>(v)];
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
                       product = products_again_ && op.code == Opcode::Matmul &&
                                 std::all_of(op.args.begin(), op.args.end(), is_read_input);
            remade[i] =
                foreign(v, stage) && (light || product) && std::all_of(op.args.begin(), op.args.end(), is_at_hand);
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
    std::vector<Stage> stages_;
    std::string tile_axis_;
    Again again_;
    bool outputs_cut_, products_again_;
    std::string outputs_axis_;
    std::set<std::string> early_states_;
    std::vector<std::set<std::string>> early_groups_;
    std::vector<std::string> names_;
    std::vector<std::vector<ir::Result>> roots_;
    std::vector<int> homes_;
    std::set<std::string> sums_of_;
    std::vector<bool> remade_;        ///< in the stage that is being extracted
    std::vector<bool> reads_before_;  ///< whether a value depends on states before the chunk
    int ahead_ = 0, tiles_ = kNone, before_ = kNone, scan_ = 0, joint_ = kNone, last_ = 0, sums_ = kNone;
};

}  // namespace

const char* to_string(Strategy strategy) {
    switch (strategy) {
        case Strategy::OnePass:
            return "one-pass";
        case Strategy::Fused:
            return "fused";
        case Strategy::Decoupled:
            return "decoupled";
        case Strategy::Segmented:
            return "segmented";
    }
    return "?";
}

std::vector<Strategy> all_strategies() {
    return {Strategy::OnePass, Strategy::Fused, Strategy::Decoupled, Strategy::Segmented};
}

Strategy strategy_named(const std::string& name) {
    std::vector<std::string> names;
    for (const Strategy s : all_strategies()) {
        if (name == to_string(s)) return s;
        names.emplace_back(to_string(s));
    }
    throw RuntimeError(fmt::format("strategy: expected one of {}, got '{}'", fmt::join(names, ", "), name));
}

const char* to_string(Loop loop) {
    switch (loop) {
        case Loop::Scan:
            return "chunks in order, one task per sequence, head and tile";
        case Loop::Chunks:
            return "one task per chunk and head";
        case Loop::Summaries:
            return "summaries of segments, one task per segment and head";
        case Loop::Carries:
            return "segments in order, one task per sequence and head";
        case Loop::Segments:
            return "chunks in order, one task per segment and head";
    }
    return "?";
}

bool in_order(Loop loop) { return loop != Loop::Chunks; }

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
    const bool back = graph::has_saved_states(program), tiled = !tile_axis.empty();
    if (back && strategy == Strategy::Segmented) refuse_segments(program);
    std::vector<Stage> stages = back ? stages_backwards(strategy, tiled) : stages_of(strategy, tiled);
    if (!rules.outputs_axis.empty()) stages = with_joint_outputs(std::move(stages));
    if (rules.tiles_ahead) stages = with_tiles_ahead(std::move(stages));
    stages = with_early_states(std::move(stages), graph::early_groups(program, rules.early).size());
    std::vector<KernelGraph> kernels = Placement(program, std::move(stages), tile_axis, rules).kernels();
    if (strategy != Strategy::Segmented) return kernels;
    const std::string name = program.name;
    const KernelGraph& scan = kernels.back();  // what was made ahead, summaries read as the scan does
    const bool columns = rules.transition_columns;
    KernelGraph summaries{name + "_summaries",
                          Loop::Summaries,
                          columns ? graph::input_summary(scan.fn) : graph::summary(scan.fn),
                          columns,
                          false,
                          false,
                          columns},
        carries{name + "_carries", Loop::Carries, graph::carry(graph::without_early_states(program, rules.early)),
                false};
    kernels.insert(kernels.end() - 1, std::move(summaries));
    if (!rules.joined_at_start) kernels.insert(kernels.end() - 1, std::move(carries));
    return kernels;
}

}  // namespace forge::plan
