#include "plan/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

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

constexpr int kEverywhere = -1;

struct Stage {
    std::string name;
    Loop loop;
    enum class Ahead : std::uint8_t {
        Nothing,
        Shared,
        StateFree
    } ahead = Ahead::Nothing;  ///< what a first kernel makes for all chunks
};
using Ahead = Stage::Ahead;

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

bool carries_states(Loop loop) { return loop == Loop::Scan || loop == Loop::Segments; }

class Placement {
  public:
    Placement(const Function& program, std::vector<Stage> stages, std::string tile_axis, Again again)
        : program_(program),
          stages_(std::move(stages)),
          tile_axis_(std::move(tile_axis)),
          again_(again),
          names_(ir::value_names(program)) {
        for (std::size_t s = 0; s < stages_.size(); ++s)
            if (carries_states(stages_[s].loop)) scan_ = static_cast<int>(s);
        roots_.resize(stages_.size());
        const int last = static_cast<int>(stages_.size()) - 1;
        for (const ir::Result& r : program.results)
            roots_[static_cast<std::size_t>(r.role == Role::State || r.role == Role::Before ? scan_ : last)].push_back(
                r);
        find_homes();
    }

    std::vector<KernelGraph> kernels() {
        std::vector<KernelGraph> made(stages_.size());
        for (int s = static_cast<int>(stages_.size()) - 1; s >= 0; --s) {  // later stages ask earlier ones for values
            const Stage& stage = stages_[static_cast<std::size_t>(s)];
            made[static_cast<std::size_t>(s)] = {fmt::format("{}_{}", program_.name, stage.name), stage.loop,
                                                 extract(s), stage.loop == Loop::Scan};
        }
        std::erase_if(made, [](const KernelGraph& k) { return k.fn.results.empty(); });
        return made;
    }

  private:
    void find_homes() {
        const auto marks = graph::slices(program_);
        const auto again =
            again_ == Again::Cheap || stages_[0].ahead == Ahead::Nothing ? graph::cheap(program_) : leaves_and_views();
        std::vector<ValueId> carried;
        for (const ir::Result& r : program_.results)
            if (r.role == Role::State) carried.push_back(r.value);
        const auto for_states = ir::needed_for(program_, carried);
        for (ValueId v = 0; v < program_.size(); ++v) {
            const auto i = static_cast<std::size_t>(v);
            const bool param = program_.op(v).code == Opcode::Param,
                       state = param && program_.op(v).attrs.role == Role::State;
            int home = static_cast<int>(stages_.size()) - 1;
            if (state || marks[i] == Slice::StateBound) home = scan_;
            else if (again[i] || (param && program_.op(v).attrs.role == Role::Spill)) home = kEverywhere;
            else if (marks[i] == Slice::StateFree && runs_ahead(i, for_states[i])) home = 0;
            else if (marks[i] == Slice::StateFree && for_states[i]) home = scan_;
            homes_.push_back(home);
        }
    }

    /// What no kernel stores for another even if all work is to be done ahead.
    [[nodiscard]] std::vector<bool> leaves_and_views() const {
        std::vector<bool> found;
        for (const Op& op : program_.ops) {
            const bool leaf = op.args.empty() && !(op.code == Opcode::Param && op.attrs.role == Role::State);
            found.push_back(ir::is_view(op.code) || (leaf && !(again_ == Again::Vectors && is_shared_matrix(op))));
        }
        return found;
    }

    /// An input of which every tile reads all.
    [[nodiscard]] bool is_shared_matrix(const Op& op) const {
        const bool matrix = op.code == Opcode::Param && op.attrs.role == Role::Input && op.type.rank() > 1;
        return matrix && stages_[0].ahead == Ahead::Shared && !has_tile_axis(op.type);
    }

    /// Whether a state-free value is made by the first kernel, for all chunks at once. What only the outputs need is
    /// left to a kernel that makes outputs for all chunks at once, if there is one.
    [[nodiscard]] bool runs_ahead(std::size_t value, bool for_states) const {
        const bool wanted_in_scan = for_states || scan_ + 1 == static_cast<int>(stages_.size());
        switch (stages_[0].ahead) {
            case Ahead::Nothing:
                return false;
            case Ahead::Shared:
                return wanted_in_scan && !has_tile_axis(program_.ops[value].type);
            case Ahead::StateFree:
                return wanted_in_scan;
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
        const auto needed = needed_here(roots, stage);
        std::map<ValueId, ValueId> map;
        for (ValueId v = 0; v < program_.size(); ++v) {
            if (!needed[static_cast<std::size_t>(v)]) continue;
            Op op = foreign(v, stage) ? spilled(v) : program_.op(v);
            for (ValueId& a : op.args) a = map.at(a);
            map[v] = fn.add(std::move(op));
        }
        for (const ir::Result& r : roots_[static_cast<std::size_t>(stage)])
            fn.results.push_back({r.name, r.role, map.at(r.value)});
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
        return home != kEverywhere && home < stage;
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
    std::vector<std::string> names_;
    std::vector<std::vector<ir::Result>> roots_;
    std::vector<int> homes_;
    int scan_ = 0;
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
bool per_segment(Loop loop) { return loop == Loop::Summaries || loop == Loop::Segments; }

namespace {

/// A scan for the states before all chunks, and then the kernels that go backwards.
std::vector<KernelGraph> place_backwards(const Function& program, Strategy strategy, const std::string& tile_axis,
                                         const PlaceRules& rules) {
    if (strategy == Strategy::Segmented)
        throw RuntimeError(
            fmt::format("{}: strategy: expected one-pass, fused or decoupled, which a backward pass has, "
                        "got segmented",
                        program.name));
    std::vector<KernelGraph> kernels = place(graph::rest_backwards(program), strategy, tile_axis, rules);
    for (KernelGraph& kernel : kernels) kernel.reverse = in_order(kernel.loop);
    Function states = graph::states_forwards(program);
    states.name = program.name + "_before";
    if (!states.results.empty()) kernels.insert(kernels.begin(), {states.name, Loop::Scan, states});
    return kernels;
}

}  // namespace

std::vector<KernelGraph> place(const Function& program, Strategy strategy, const std::string& tile_axis,
                               const PlaceRules& rules) {
    if (graph::has_saved_states(program)) return place_backwards(program, strategy, tile_axis, rules);
    std::vector<KernelGraph> kernels =
        Placement(program, stages_of(strategy, !tile_axis.empty()), tile_axis, rules.again).kernels();
    if (strategy != Strategy::Segmented) return kernels;
    const std::string name = program.name;
    const KernelGraph& scan = kernels.back();  // what was made ahead, summaries read as the scan does
    KernelGraph summaries{name + "_summaries", Loop::Summaries, graph::summary(scan.fn), false},
        carries{name + "_carries", Loop::Carries, graph::carry(program), false};
    kernels.insert(kernels.end() - 1, std::move(summaries));
    if (!rules.joined_at_start) kernels.insert(kernels.end() - 1, std::move(carries));
    return kernels;
}

}  // namespace forge::plan
