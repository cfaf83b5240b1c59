#include "plan/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "forge/error.h"
#include "graph/saved_states.h"
#include "graph/slice.h"
#include "graph/transition.h"
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
        StateFree
    } ahead = Ahead::Nothing;  ///< what a first kernel makes for all chunks
    /// Of a scan: the states that it carries.
    enum class Carries : std::uint8_t {
        All,
        Before,  ///< those that go forwards in a program that goes backwards
        Sums,    ///< those to which every chunk only adds
    } carries = Carries::All;
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
          names_(ir::value_names(program)) {
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            const int at = static_cast<int>(s);
            if (!in_order(stages_[s].loop)) last_ = at;
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
    }

    std::vector<KernelGraph> kernels() {
        std::vector<KernelGraph> made(stages_.size());
        for (int s = static_cast<int>(stages_.size()) - 1; s >= 0; --s) {  // later stages ask earlier ones for values
            const Stage& stage = stages_[static_cast<std::size_t>(s)];
            const bool backwards = before_ != kNone && in_order(stage.loop) && stage.carries != Carries::Before;
            made[static_cast<std::size_t>(s)] = {fmt::format("{}_{}", program_.name, stage.name), stage.loop,
                                                 extract(s), stage.loop == Loop::Scan && stage.carries != Carries::Sums,
                                                 backwards};
        }
        std::erase_if(made, [](const KernelGraph& k) { return k.fn.results.empty(); });
        return made;
    }

  private:
    static bool is_before(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::Before; }

    [[nodiscard]] int stage_of(const ir::Result& r) const {
        if (r.role == Role::After) return before_;
        if (r.role == Role::Spill) return 0;  // what is asked for beside the results
        if (r.role == Role::State && sums_of_.contains(r.name)) return sums_;
        return r.role == Role::State || r.role == Role::Before ? scan_ : last_;
    }

    void find_homes() {
        const auto marks = graph::slices(program_);
        const auto again =
            again_ == Again::Cheap || stages_[0].ahead == Ahead::Nothing ? graph::cheap(program_) : leaves_and_views();
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
                home = 0;
            else if (forwards[i]) home = before_;
            else if (marks[i] == Slice::StateFree && for_states[i]) home = scan_;
            homes_.push_back(home);
        }
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
        return matrix && stages_[0].ahead == Ahead::Shared && !has_tile_axis(op.type);
    }

    /// Whether a state-free value is made by the first kernel, for all chunks at once. What only the outputs need is
    /// left to a kernel that makes outputs for all chunks at once, if there is one, unless all its tiles would make it.
    [[nodiscard]] bool runs_ahead(std::size_t value, bool for_states) const {
        const bool shared = !has_tile_axis(program_.ops[value].type);
        const bool wanted = for_states || last_ == scan_ || (outputs_cut_ && shared);
        switch (stages_[0].ahead) {
            case Ahead::Nothing:
                return false;
            case Ahead::Shared:
                return wanted && shared;
            case Ahead::StateFree:
                return wanted;
        }
        return false;
    }

    [[nodiscard]] bool has_tile_axis(const ir::Type& type) const {
        return std::any_of(type.shape.begin(), type.shape.end(), [&](const Dim& d) { return d.symbol == tile_axis_; });
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

    /// What a kernel for all chunks at once makes again rather than read it too: what light elementwise operations make
    /// of what it has (`needed`) anyway. A scan, whose steps wait for each other, reads it.
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
            at_hand[i] = needed[i] || remade[i] || homes_[i] == kEverywhere;
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
    std::vector<std::string> names_;
    std::vector<std::vector<ir::Result>> roots_;
    std::vector<int> homes_;
    std::set<std::string> sums_of_;
    std::vector<bool> remade_;        ///< in the stage that is being extracted
    std::vector<bool> reads_before_;  ///< whether a value depends on states before the chunk
    int before_ = kNone, scan_ = 0, last_ = 0, sums_ = kNone;
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

std::vector<KernelGraph> place(const Function& program, Strategy strategy, const std::string& tile_axis,
                               const PlaceRules& rules) {
    const bool back = graph::has_saved_states(program), tiled = !tile_axis.empty();
    if (back && strategy == Strategy::Segmented) refuse_segments(program);
    std::vector<KernelGraph> kernels =
        Placement(program, back ? stages_backwards(strategy, tiled) : stages_of(strategy, tiled), tile_axis, rules)
            .kernels();
    if (strategy != Strategy::Segmented) return kernels;
    const std::string name = program.name;
    const KernelGraph& scan = kernels.back();  // what was made ahead, summaries read as the scan does
    const bool columns = rules.transition_columns;
    KernelGraph summaries{name + "_summaries", Loop::Summaries,
                          columns ? graph::input_summary(scan.fn) : graph::summary(scan.fn), columns, false, columns},
        carries{name + "_carries", Loop::Carries, graph::carry(program), false};
    kernels.insert(kernels.end() - 1, std::move(summaries));
    if (!rules.joined_at_start) kernels.insert(kernels.end() - 1, std::move(carries));
    return kernels;
}

}  // namespace forge::plan
