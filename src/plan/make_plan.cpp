#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "forge/error.h"
#include "graph/channel_maps.h"
#include "graph/epilogue.h"
#include "graph/log_norm.h"
#include "graph/padding.h"
#include "graph/passes.h"
#include "graph/saved_states.h"
#include "graph/slice.h"
#include "graph/summary.h"
#include "graph/token_kernels.h"
#include "ir/sizes.h"
#include "plan/halves.h"
#include "plan/plan.h"
#include "plan/wide_spills.h"
#include "support/checked.h"
#include "support/divide.h"
#include "tile/fragments.h"
#include "tile/remembered.h"
#include "tile/vector_scan.h"

namespace forge::plan {
namespace {

using ir::Op;
using ir::Opcode;
using ir::Role;
using Kind = TensorSlot::Kind;

std::vector<TensorSlot> tensor_slots(const ir::Definition& def, const ir::Function& program) {
    std::vector<TensorSlot> slots;
    for (const auto& in : def.inputs) {
        if (in.role == Role::Input) slots.push_back({Kind::Input, in.name, in.type, in.pad});
        if (in.role == Role::Head) slots.push_back({Kind::Head, in.name, in.type, 0});
    }
    for (const auto& out : def.outputs) slots.push_back({Kind::Output, out.name, out.type, 0});
    for (const Kind kind : {Kind::InitialState, Kind::FinalState}) {
        for (const auto& s : def.states) slots.push_back({kind, s.name, s.type, 0, {}, false, s.inner});
        for (const auto& last : ir::last_rows(def)) slots.push_back({kind, last.name, last.type, 0, last.heads});
    }
    for (const ir::Result& r : program.results)
        if (r.role == Role::Before) slots.push_back({Kind::ChunkState, r.name, program.op(r.value).type, 0});
    if (graph::has_given_states(program))
        for (const Op& op : program.ops)
            if (op.code == Opcode::Param && op.attrs.role == Role::Before)
                slots.push_back({Kind::ChunkState, op.attrs.name, op.type, 0, {}, true});
    return slots;
}

std::vector<LastRowSlots> last_row_slots(const ir::Definition& def, const std::vector<TensorSlot>& tensors) {
    const auto at = [&](Kind kind, const std::string& name) {
        const auto same = [&](const TensorSlot& slot) { return slot.kind == kind && slot.name == name; };
        return static_cast<int>(std::find_if(tensors.begin(), tensors.end(), same) - tensors.begin());
    };
    std::vector<LastRowSlots> slots;
    for (const auto& last : ir::last_rows(def))
        slots.push_back(
            {at(Kind::Input, last.input), at(Kind::InitialState, last.name), at(Kind::FinalState, last.name)});
    return slots;
}

std::vector<std::string> scalar_names(const ir::Definition& def) {
    std::vector<std::string> names;
    for (const auto& in : def.inputs)
        if (in.role == Role::Scalar) names.push_back(in.name);
    return names;
}

/// Where a kernel's result goes in the workspace: its name there, and whether per segment. Outputs and the states of a
/// scan over a whole sequence go to the caller instead.
std::optional<SpillSlot> spill_of(const KernelGraph& kernel, const ir::Result& r) {
    SpillSlot slot;
    slot.type = kernel.fn.op(r.value).type;
    if (kernel.loop == Loop::Summaries || kernel.loop == Loop::Carries) slot.per = SpillSlot::Per::Segment;
    if (r.role == Role::Spill) slot.name = r.name;
    else if (kernel.loop == Loop::Summaries)
        slot.name = r.role == Role::State ? graph::input_spill(r.name) : graph::transition_spill(r.name);
    else return std::nullopt;
    return slot;
}

bool has_axis(const ir::Function& fn, const std::string& axis) {
    return std::any_of(fn.ops.begin(), fn.ops.end(), [&](const Op& op) { return graph::has_axis(op.type, axis); });
}

/// The kernels of a plan, one after the other: later ones read the spills of earlier ones.
class Planning {
  public:
    Planning(Plan plan, const ir::PassRunner& passes)
        : plan_(std::move(plan)), passes_(passes), part_(plan_.schedule.held(plan_.sizes)), whole_(part_) {
        const Schedule& s = plan_.schedule;
        whole_[ir::kChunkSymbol] = part_[ir::kChunkSymbol] = s.chunk;
        if (tiled()) part_[s.tile_axis] = s.tile_size;
    }

    Plan run() {
        if (plan_.schedule.engine == Engine::Channels) return of_channels();
        const Schedule& s = plan_.schedule;
        const bool share =
            s.share && (s.has_fragments() ? !s.tile_axis.empty() : tiled() && s.strategy != Strategy::Segmented);
        const Again again = s.has_fragments()           ? Again::Inputs
                            : share && !s.shared_memory ? Again::Vectors
                                                        : Again::Cheap;
        ir::Function program = s.has_fragments() ? for_matrix_units(share) : plan_.program;
        if (s.forgetting) {
            program = graph::with_log_norm(program, plan_.definition).value();
            plan_.spills.push_back({kForgetsSpill, {}, {}, kNumberFloats, SpillSlot::Per::Segment});
        }
        program = with_masked_ends(std::move(program));
        if (s.epilogue && !graph::epilogue(program, s.tile_axis)) refuse(Reason::NoValueAxis);  // of this form of it
        std::vector<KernelGraph> kernels =
            place(program, s.strategy, share ? s.tile_axis : "",
                  {again, s.summaries > 0, s.transition_columns,
                   share && tiled() && s.tile_chunks && !s.whole.contains(program.name + "_outputs"),
                   s.has_fragments() && s.split.empty(), s.outputs_axis, s.tiles_ahead, s.early, s.trailing, s.between,
                   s.scans_apart, s.epilogue ? s.tile_axis : "", s.is_relay()});
        kernels = with_halves(std::move(kernels), s.halved);
        for (KernelGraph& graph : kernels)
            graph.fn = passes_.of(graph.name).run(ir::Pass::Place, [&] { return std::move(graph.fn); });
        if (s.tiles_ahead) refuse_rounded_sums(kernels);
        wide_spills_ = wide_spills(kernels, graph::has_saved_states(plan_.program));
        for (const KernelGraph& graph : kernels) find_multiplied(graph.fn);
        for (KernelGraph& graph : kernels) add(std::move(graph));
        if (s.is_relay()) add_passed_states();
        if (s.beside_groups > 0) plan_.spills.push_back({kMadeSpill, {}, {}, 1});
        if (plan_.in_stretches()) add_carried_states();
        if (s.has_fragments()) add_late_states();
        add_far_tiles();
        return std::move(plan_);
    }

  private:
    static constexpr std::int64_t kNumberFloats = 4;  ///< of a spill that is one number
    /// Of a state, that a task carries from segment to segment: each reads all of the transitions, so that the fewer
    /// they are the sooner a segment is done.
    static constexpr std::int64_t kCarriedColumns = 16;

    /// Kernels that go through tokens one after the other: a chunk is what a thread has of them.
    Plan of_channels() {
        for (graph::TokenKernel& made : graph::token_kernels(plan_.program, &passes_)) {
            KernelGraph graph{fmt::format("{}_{}", plan_.program.name, made.name), Loop::Scan, std::move(made.chunk)};
            graph.tiled = false, graph.reverse = made.reverse;
            const auto left = [&](std::string name, const ir::Type& type) {
                plan_.spills.push_back({std::move(name), type, {1}, floats_of_channels(type)});
            };
            for (const ir::Result& r : graph.fn.results)
                if (r.role == Role::Spill) left(r.name, graph.fn.op(r.value).type);
            for (const ir::Op& op : graph.fn.ops)
                if (op.code == Opcode::Param && op.attrs.role == Role::Spill && !plan_.has_spill(op.attrs.name))
                    left(op.attrs.name, op.type);  // sums, of which kernels of tokens do not know the whole
            tile::TileKernel tiles;
            tiles.fn = std::move(made.token);
            plan_.kernels.push_back({std::move(graph), {}, 0, std::move(tiles), Engine::Channels});
        }
        return std::move(plan_);
    }

    /// Of a state's channels, four of which move at once; a number is one of a head that is a channel.
    [[nodiscard]] std::int64_t floats_of_channels(const ir::Type& type) const {
        const ir::Type held = tile::with_sizes(type, whole_);
        const int last = static_cast<int>(held.rank()) - 1;
        const std::int64_t channels = last < 0 ? 1 : tile::size_of(held, last),
                           rows = last < 1 ? 1 : tile::size_of(held, 0);
        return rows * (channels == 1 ? 1 : support::divide_up(channels, std::int64_t{4}) * 4);
    }

    [[nodiscard]] bool tiled() const { return plan_.schedule.tiles > 1; }

    /// Behind the ends of padded axes nothing stands that would spoil what lies before them.
    [[nodiscard]] ir::Function with_masked_ends(ir::Function program) const {
        for (const auto& [axis, held] : plan_.schedule.padded) {
            const std::int64_t size = plan_.sizes.at(axis);
            const auto spoils = graph::spoils_padding(program, axis, size);
            if (!spoils) continue;
            auto masked = graph::with_masked_ends(program, axis, size);
            if (!masked) refuse(Reason::SpoiltPadding, axis, size, held, ir::described(program, spoils->value));
            program = passes_.run(ir::Pass::MaskEnds, [&] { return std::move(*masked); });
        }
        return program;
    }

    /// Sums of logarithms are nothing that 16 bits could pass on.
    static void refuse_rounded_sums(const std::vector<KernelGraph>& kernels) {
        for (const KernelGraph& kernel : kernels)
            for (const ir::Result& r : kernel.fn.results)
                if (r.role == Role::Spill && kernel.fn.op(r.value).code == Opcode::Cumsum &&
                    kernel.fn.op(r.value).type.rank() == 2)
                    refuse(Reason::CutSpill, ir::described(kernel.fn, r.value));
    }

    /// Matrices are padded by zeros from here on.
    [[nodiscard]] ir::Function with_masked_pads() {
        std::map<std::string, double> pads;
        for (const ir::InputDecl& in : plan_.definition.inputs) pads[in.name] = in.pad;
        pads = graph::maskable_pads(plan_.program, std::move(pads));
        if (pads.empty()) return plan_.program;
        for (ir::InputDecl& in : plan_.definition.inputs)
            if (pads.contains(in.name)) in.pad = 0;
        for (TensorSlot& slot : plan_.tensors)
            if (slot.kind == Kind::Input && pads.contains(slot.name)) slot.pad = 0;
        return passes_.run(ir::Pass::MaskPads, [&] { return graph::mask_pads(plan_.program, pads); });
    }

    [[nodiscard]] ir::Function for_matrix_units(bool share) {
        const std::string& axis = plan_.schedule.tile_axis;
        ir::Function fn = with_masked_pads();
        fn = passes_.run(ir::Pass::VectorProducts, [&] { return graph::vector_products(fn); });
        fn = passes_.run(ir::Pass::SimplifyVectors, [&] { return graph::simplify(fn); });
        fn = passes_.run(ir::Pass::ShareMasked, [&] { return graph::share_masked_products(fn); });
        fn = passes_.run(ir::Pass::JoinProducts, [&] { return graph::join_products(fn); });
        fn = passes_.run(ir::Pass::LateFactors, [&] { return graph::late_factors(fn); });
        fn = passes_.run(ir::Pass::HoistScales, [&] { return graph::hoist_scales(fn, axis, part_); });
        if (share) fn = passes_.run(ir::Pass::MergeScales, [&] { return graph::merge_scales(fn, axis); });
        if (share && plan_.schedule.folds)
            fn = passes_.run(ir::Pass::FoldFactors, [&] { return graph::fold_factors(fn, axis); });
        fn = passes_.run(ir::Pass::DeepestLast, [&] { return graph::deepest_last(fn); });
        if (plan_.schedule.operand_parts == 1) return fn;
        return passes_.run(ir::Pass::SumApart, [&] { return graph::sum_apart(fn); });
    }

    void add(KernelGraph graph) {
        const Schedule& s = plan_.schedule;
        const bool by_columns = s.transition_columns && (graph.transition_columns || graph.loop == Loop::Carries);
        graph.tiled = by_columns || !graph.own_axis.empty() ||
                      (tiled() &&
                       (graph.tiled || (s.tile_chunks && !s.whole.contains(graph.name) &&
                                        has_axis(graph.fn, s.tile_axis) && graph::is_parallel(graph.fn, s.tile_axis))));
        const Cut cut = cut_of(graph);
        if (cut.count > 1 && !by_columns) refuse_sums_of_parts(graph.fn, cut.axis);
        if (cut.count > 1 && cut.axis == s.tile_axis) refuse_parts_of_rows(graph);
        const bool carries =
            s.has_fragments() && graph.loop == Loop::Carries;  // those are few, and want all of float's bits
        const Engine engine = carries ? Engine::Tiles : s.engine;
        for (const ir::Result& r : graph.fn.results)
            if (auto slot = spill_of(graph, r)) add_spill(graph, r, std::move(*slot));
        tile::Sizes sizes = whole_;
        if (cut.count > 1) sizes[cut.axis] = cut.size;
        tile::TileKernel tiles = lowered(graph, sizes, engine);
        const std::int64_t columns = graph.transition_columns ? add_transitions(graph) : 0;
        plan_.kernels.push_back({std::move(graph), cut, columns, std::move(tiles), engine});
    }

    /// Tasks that have parts of an axis do not know its sums.
    static void refuse_sums_of_parts(const ir::Function& fn, const std::string& axis) {
        for (ir::ValueId v = 0; v < fn.size(); ++v)
            if (!graph::is_parallel(fn, fn.op(v), axis)) refuse(Reason::SumsOfParts, ir::described(fn, v), axis);
    }

    /// Of an image a part of the rows lies together in a panel of columns alone: it can be stored, but is not read so.
    void refuse_parts_of_rows(const KernelGraph& graph) const {
        for (const Op& op : graph.fn.ops)
            if (op.code == Opcode::Param && op.attrs.role == Role::Spill)
                if (const auto cut = cut_rows_.find(op.attrs.name); cut != cut_rows_.end())
                    refuse(Reason::CutSpill, cut->second);
    }

    [[nodiscard]] Cut cut_of(const KernelGraph& graph) const {
        const Schedule& s = plan_.schedule;
        if (!graph.own_axis.empty()) return {graph.own_axis, tile::kBlock, whole_.at(graph.own_axis) / tile::kBlock};
        if (graph.loop == Loop::Carries && s.transition_columns)
            return {s.tile_axis, kCarriedColumns, whole_.at(s.tile_axis) / kCarriedColumns};
        return graph.tiled ? Cut{s.tile_axis, s.tile_size, s.tiles} : Cut{};
    }

    /// Where further tasks of a kernel leave the columns of transitions; how many there are.
    std::int64_t add_transitions(const KernelGraph& graph) {
        std::int64_t columns = 0;
        for (const ir::Result& r : graph.fn.results) {
            const Dim rows = graph.fn.op(r.value).type.shape[0];
            columns = tile::size_of(tile::with_sizes(graph.fn.op(r.value).type, whole_), 0);
            if (columns % plan_.schedule.tile_size != 0) throw InternalError("plan: columns that are no whole tiles");
            SpillSlot slot{graph::transition_spill(r.name), {DType::F32, {rows, rows}}, {}, 0, SpillSlot::Per::Segment};
            lay_out(slot);
            plan_.spills.push_back(std::move(slot));
        }
        return columns / plan_.schedule.tile_size;
    }

    void add_spill(const KernelGraph& graph, const ir::Result& r, SpillSlot slot) {
        const Schedule& s = plan_.schedule;
        const ir::Type type = tile::with_sizes(slot.type, whole_);
        if (s.has_fragments() && slot.per == SpillSlot::Per::Chunk && tile::is_block_matrix(type) &&
            !wide_spills_.contains(slot.name)) {
            slot.split_later = passes_as_floats(slot.name);
            slot.parts = slot.split_later ? 2 : tile::parts_of(graph.fn, r.value, operand_rules());
            slot.floats = slot.parts * tile::size_of(type, 0) * tile::size_of(type, 1) / 2;
            if (!slot.split_later) parts_[slot.name] = slot.parts;
            if (tiled() && slot.type.shape[0].symbol == s.tile_axis)
                cut_rows_[slot.name] = ir::described(graph.fn, r.value);
        } else {
            lay_out(slot);
        }
        plan_.spills.push_back(std::move(slot));
    }

    [[nodiscard]] bool passes_as_floats(const std::string& spill) const {
        return plan_.schedule.operand_parts > 1 && (plan_.schedule.float_images || !multiplied_.contains(spill));
    }

    /// What products of later kernels multiply as it is.
    void find_multiplied(const ir::Function& fn) {
        for (ir::ValueId v = 0; v < fn.size(); ++v)
            if (fn.op(v).code == Opcode::Param && fn.op(v).attrs.role == Role::Spill && tile::is_multiplied(fn, v))
                multiplied_.insert(fn.op(v).attrs.name);
    }

    void lay_out(SpillSlot& slot) const {
        const ir::Type type = tile::with_sizes(slot.type, whole_);
        slot.strides = tile::tile_strides(type, plan_.schedule.rules());
        slot.floats = tile::tile_floats(type, plan_.schedule.rules());
    }

    void add_far_tiles() {
        constexpr std::int64_t kAlignment = 64, kSlack = 1024;  // vectors at the end of the last tile may run past it
        std::int64_t floats = 0;
        for (const Kernel& kernel : plan_.kernels) floats = std::max(floats, kernel.tiles.far_floats);
        if (floats == 0) return;
        floats = (floats + kSlack + kAlignment - 1) / kAlignment * kAlignment;
        plan_.spills.push_back({kFarSpill, {}, {}, floats, SpillSlot::Per::Worker, 0});
    }

    /// Where states wait for the next stretch.
    void add_carried_states() {
        for (const auto& state : plan_.definition.states) {
            SpillSlot slot{graph::carry_spill(state.name), state.type, {}, 0, SpillSlot::Per::Sequence, 0};
            lay_out(slot);
            plan_.spills.push_back(std::move(slot));
        }
    }

    /// Where a segment's tasks leave their states for those of the next one: a fragment's registers.
    void add_passed_states() {
        const ir::Function& scan = plan_.kernels.back().graph.fn;
        for (const ir::Result& r : scan.results) {
            if (r.role != Role::State) continue;
            const ir::Type& type = scan.op(r.value).type;
            const ir::Type held = tile::with_sizes(type, whole_);
            const std::int64_t floats = tile::size_of(held, 0) * tile::size_of(held, 1);
            plan_.spills.push_back({graph::carry_spill(r.name), type, {}, floats, SpillSlot::Per::Segment});
        }
    }

    /// Whether tasks of several tiles read and store it, if they do not have a part each.
    [[nodiscard]] bool is_carried_by_tiles(const std::string& state) const {
        return std::any_of(plan_.kernels.begin(), plan_.kernels.end(), [&](const Kernel& kernel) {
            const auto& results = kernel.graph.fn.results;
            return kernel.cut.count > 1 && std::any_of(results.begin(), results.end(), [&](const ir::Result& r) {
                       return r.role == Role::State && r.name == state;
                   });
        });
    }

    void add_late_states() {
        for (const auto& state : plan_.definition.states) {
            const auto is_axis = [&](const Dim& d) { return d.symbol == plan_.schedule.tile_axis; };
            const bool early = plan_.schedule.early.contains(state.name),
                       by_all = is_carried_by_tiles(state.name) &&
                                std::none_of(state.type.shape.begin(), state.type.shape.end(), is_axis);
            if (!by_all && (early || plan_.schedule.summaries == 0)) continue;
            SpillSlot slot{graph::final_spill(state.name), state.type, {}, 0, SpillSlot::Per::Sequence, 0};
            lay_out(slot);
            plan_.late_states.push_back({static_cast<int>(plan_.spills.size()),
                                         plan_.tensor(Kind::InitialState, state.name),
                                         plan_.tensor(Kind::FinalState, state.name)});
            plan_.spills.push_back(std::move(slot));
        }
    }

    [[nodiscard]] tile::TileKernel lowered(const KernelGraph& graph, const tile::Sizes& sizes, Engine engine) const {
        const ir::PassRunner passes = passes_.of(graph.name);
        switch (engine) {
            case Engine::Tiles:
                return tile::lower(graph.fn, sizes, whole_, rules_of(graph), passes);
            case Engine::WarpGroups:
            case Engine::Warps:
                return lowered_to_fragments(graph, sizes, passes);
            case Engine::Channels:
                break;
        }
        throw InternalError("plan: kernels of channels are not lowered to tiles");
    }

    [[nodiscard]] tile::Rules rules_of(const KernelGraph& graph) const {
        tile::Rules rules = plan_.schedule.rules();
        if (plan_.schedule.holds_states && graph.loop == Loop::Scan)
            rules.holding_threads = plan_.schedule.block_threads;
        return rules;
    }

    /// As far as operands that kernels make so far go.
    [[nodiscard]] tile::FragmentRules operand_rules() const {
        tile::FragmentRules rules;
        rules.parts = parts_;
        rules.wide_spills = wide_spills_;
        rules.operand_parts = plan_.schedule.operand_parts;
        for (const SpillSlot& slot : plan_.spills)
            if (slot.split_later) rules.float_images.insert(slot.name);
        rules.inverse_parts = plan_.schedule.inverse_parts;
        return rules;
    }

    [[nodiscard]] tile::TileKernel lowered_to_fragments(const KernelGraph& graph, const tile::Sizes& sizes,
                                                        const ir::PassRunner& passes) const {
        if (graph.loop == Loop::Scan)
            if (auto scan = tile::as_vector_scan(graph.fn, sizes)) return std::move(*scan);
        tile::FragmentRules rules = operand_rules();
        const bool split = plan_.schedule.split.contains(graph.name), back = graph::has_saved_states(plan_.program),
                   of_tiles = plan_.schedule.tiles_ahead && graph.tiled;
        // Scans are cut, and hold states as transposes; many small matrices, and functions of the tokens in columns,
        // are better all alike.
        if (in_order(graph.loop) || !(back || split || of_tiles)) rules.value_axis = plan_.schedule.tile_axis;
        rules.stages = in_order(graph.loop) ? plan_.schedule.stages : 1;
        if (!graph.apart) {
            rules.output_groups = plan_.schedule.output_groups, rules.left_outputs = plan_.schedule.epilogue;
            rules.block_tiles = plan_.schedule.block_tiles, rules.buffers = plan_.schedule.buffers;
            const bool matrices =
                std::any_of(graph.fn.results.begin(), graph.fn.results.end(), [&](const ir::Result& r) {
                    return r.role == ir::Role::State && graph.fn.op(r.value).type.rank() == 2;
                });
            rules.producer =
                plan_.schedule.producer && (graph.loop == Loop::Scan || graph.loop == Loop::Relay) && matrices;
            rules.images_apart = plan_.schedule.images_apart;
        }
        rules.wide_late = plan_.schedule.wide_late, rules.all_late = plan_.schedule.all_late;
        rules.split = split, rules.made_again = split && !back;
        rules.rows_multiplied = plan_.schedule.folds && !in_order(graph.loop);
        rules.shared_floats = plan_.schedule.shared_floats;
        rules.processor_bytes = plan_.schedule.processor_bytes;
        for (const auto& in : plan_.definition.inputs) {
            rules.inputs[in.name] = {in.type.dtype, in.pad};
            if (is_half(in.type.dtype)) rules.half = in.type.dtype;
        }
        for (const auto& out : plan_.definition.outputs)
            if (!is_half(out.type.dtype)) rules.wide_outputs.insert(out.name);
        // A chunk of such states is over long before the next one's few numbers arrive, unless many are on their way.
        constexpr int kEarlyStages = 8;
        constexpr std::int64_t kEarlyFloats = std::int64_t{16} * 1024;
        const bool few = graph.apart && with_stages(rules, kEarlyStages, graph, sizes).scratch_floats <= kEarlyFloats;
        if (few) rules.stages = kEarlyStages;
        if (!in_order(graph.loop) && !rules.value_axis.empty())
            if (const auto alike = all_alike(graph, sizes, rules))
                return tile::lower_to_fragments(graph.fn, sizes, *alike, passes);
        return tile::lower_to_fragments(graph.fn, sizes, rules, passes);
    }

    /// Matrices of whole blocks that are made in tiles of floats.
    static std::int64_t float_matrices(const ir::Function& fn) {
        return std::count_if(fn.ops.begin(), fn.ops.end(), [](const Op& op) {
            const bool made = !op.args.empty() && !ir::is_view(op.code) && op.code != Opcode::DecayMask;
            return made && op.layout->space == ir::Layout::Space::Tile && tile::is_block_matrix(op.type);
        });
    }

    /// The rules of a kernel of single chunks that holds all fragments alike, if more tasks share a multiprocessor so,
    /// or as many without any tile of floats.
    /// A fourth one beside three is not worth reading spills where they lie, which nothing has asked for ahead.
    static std::optional<tile::FragmentRules> all_alike(const KernelGraph& graph, const tile::Sizes& sizes,
                                                        tile::FragmentRules rules) {
        constexpr std::int64_t kFew = 3, kMostRegisters = 160;  // for matrices; with more, addresses and sums spill
        const tile::TileKernel by_values = tile::lower_to_fragments(graph.fn, sizes, rules);
        const std::int64_t tasks = tile::tasks_at_once(by_values);
        // Without products, registers hold what would pass through memory several times.
        const bool frugal =
            float_matrices(by_values.fn) > (graph.epilogue ? 0 : 1) &&
            std::none_of(graph.fn.ops.begin(), graph.fn.ops.end(), [](const Op& op) { return ir::is_matmul(op.code); });
        if (tasks > kFew && !frugal) return std::nullopt;
        rules.value_axis.clear(), rules.made_again = true, rules.brought = graph.epilogue;
        try {
            const tile::TileKernel kernel = tile::lower_to_fragments(graph.fn, sizes, rules);
            const bool in_place = std::any_of(kernel.fn.ops.begin(), kernel.fn.ops.end(), [](const ir::Op& op) {
                return op.code == ir::Opcode::Param && op.attrs.role == ir::Role::Spill &&
                       op.layout->space == ir::Layout::Space::Spill;
            });
            const bool fits = tile::fragment_registers(kernel.fn) <= kMostRegisters && (!in_place || tasks < kFew);
            const std::int64_t tasks_of_all = tile::tasks_at_once(kernel);
            const bool in_registers = float_matrices(by_values.fn) > 0 && float_matrices(kernel.fn) == 0;
            const bool more = tasks_of_all > tasks || (in_registers && tasks_of_all == tasks) ||
                              (frugal && tasks_of_all == tasks && kernel.scratch_floats < by_values.scratch_floats);
            return fits && more ? std::optional(rules) : std::nullopt;
        } catch (const Refused&) {
            return std::nullopt;
        }
    }

    static tile::TileKernel with_stages(tile::FragmentRules rules, int stages, const KernelGraph& graph,
                                        const tile::Sizes& sizes) {
        rules.stages = stages;
        return tile::lower_to_fragments(graph.fn, sizes, rules);
    }

    Plan plan_;
    const ir::PassRunner& passes_;
    tile::Sizes part_, whole_;
    std::map<std::string, int> parts_;
    std::set<std::string> multiplied_;
    std::set<std::string> wide_spills_;
    /// Spills that are operands, whose rows run along the axis that is cut, in words.
    std::map<std::string, std::string> cut_rows_;
};

}  // namespace

Plan make_plan(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
               const Schedule& schedule, const ir::PassRunner& passes) {
    if (const Schedule& s = schedule; s.tiles > 1 && s.tiles * s.tile_size != s.held(s.tile_axis, sizes))
        throw RuntimeError(fmt::format("tiles: expected a divisor of {}, the size of axis {}, got {}",
                                       s.held(s.tile_axis, sizes), forge::to_string(Dim(s.tile_axis)), s.tiles));
    Plan plan{definition,
              passes.run(ir::Pass::BindSizes, [&] { return ir::with_bound_sizes(program, sizes); }),
              schedule,
              sizes,
              {},
              tensor_slots(definition, program),
              scalar_names(definition),
              {},
              {},
              {}};
    plan.last_rows = last_row_slots(definition, plan.tensors);
    const tile::Remembering kernels;
    return Planning(std::move(plan), passes).run();
}

}  // namespace forge::plan
