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
#include "plan/homes.h"
#include "support/reasons.h"

namespace forge::plan {
namespace {

using graph::has_axis;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

/// The kernels of a program whose values have homes: what each makes, and what passes between them.
class Placement : Homes {
  public:
    Placement(const Function& program, Strategy strategy, const std::string& tile_axis, const PlaceRules& rules)
        : Homes(program, strategy, tile_axis, rules), names_(ir::value_names(program)) {}

    std::vector<KernelGraph> kernels() {
        std::vector<KernelGraph> made(stages_.size());
        for (int s = static_cast<int>(stages_.size()) - 1; s >= 0; --s) {  // later stages ask earlier ones for values
            const Stage& stage = stages_[static_cast<std::size_t>(s)];
            const bool apart = stage.carries == Carries::Early || stage.carries == Carries::Trailing;
            const bool there = stage.carries == Carries::Early || stage.carries == Carries::Before,
                       backwards = goes_back() && in_order(stage.loop) && !there;
            KernelGraph& kernel = made[static_cast<std::size_t>(s)];
            kernel = {fmt::format("{}_{}", program_.name, stage.name), stage.loop, extract(s),
                      // Segments are whole or not as kernels of chunks are (Schedule::tile_chunks), but an epilogue is.
                      (stage.loop == Loop::Scan || stage.loop == Loop::Relay ||
                       (has_epilogue() && stage.loop == Loop::Segments)) &&
                          stage.carries != Carries::Sums && !apart,
                      backwards, apart};
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
    /// Whether all operations can be done part by part of an axis.
    static bool are_parallel(const Function& fn, const std::string& axis) {
        return std::all_of(fn.ops.begin(), fn.ops.end(),
                           [&](const Op& op) { return graph::is_parallel(fn, op, axis); });
    }

    static void check_parallel(const KernelGraph& kernel, const std::string& axis) {
        for (ValueId v = 0; v < kernel.fn.size(); ++v)
            if (!graph::is_parallel(kernel.fn, kernel.fn.op(v), axis))
                refuse(Reason::SumsOfParts, ir::described(kernel.fn, v), axis);
    }

    /// Whether all of a kernel can be made part by part of the axis along which outputs are cut.
    [[nodiscard]] bool is_by_parts(const Function& fn) const {
        return are_parallel(fn, rules_.outputs_axis) &&
               std::all_of(fn.results.begin(), fn.results.end(),
                           [&](const ir::Result& r) { return has_axis(fn.op(r.value).type, rules_.outputs_axis); });
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

    std::vector<std::string> names_;
    std::vector<bool> remade_;  ///< in the stage that is being extracted
};

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

namespace {

/// With the work of tiles ahead of what they share, if it reads nothing of that, which may then run beside the scan.
void put_tiles_first(std::vector<KernelGraph>& kernels, const Function& program) {
    const auto named = [&](const char* stage) {
        return std::find_if(kernels.begin(), kernels.end(), [&](const KernelGraph& kernel) {
            return kernel.name == fmt::format("{}_{}", program.name, stage);
        });
    };
    const auto tiles = named("tiles"), shared = named("shared");
    if (tiles == kernels.end() || shared == kernels.end() || shared + 1 != tiles) return;
    const auto is_read = [&](const ir::Result& made) {
        return std::any_of(tiles->fn.ops.begin(), tiles->fn.ops.end(), [&](const Op& op) {
            return op.code == Opcode::Param && op.attrs.role == Role::Spill && op.attrs.name == made.name;
        });
    };
    if (std::none_of(shared->fn.results.begin(), shared->fn.results.end(), is_read)) std::iter_swap(shared, tiles);
}

}  // namespace

std::vector<KernelGraph> place(const Function& program, Strategy strategy, const std::string& tile_axis,
                               const PlaceRules& rules) {
    if (strategy == Strategy::Segmented && graph::has_saved_states(program)) refuse_segments(program);
    std::vector<KernelGraph> kernels = Placement(program, strategy, tile_axis, rules).kernels();
    if (rules.tiles_ahead) put_tiles_first(kernels, program);
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
