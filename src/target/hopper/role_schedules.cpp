#include "target/hopper/role_schedules.h"

#include <algorithm>
#include <optional>

#include "graph/early_states.h"
#include "graph/log_norm.h"
#include "graph/saved_states.h"
#include "graph/summary.h"
#include "runtime/beside.h"
#include "target/hopper/room.h"
#include "target/hopper/scan_times.h"
#include "tile/fragment_steps.h"
#include "tile/fragments.h"
#include "tile/order.h"

namespace forge::target {
namespace {

using plan::Schedule;
using plan::Strategy;
using tile::kBlock;

constexpr std::int64_t kLeastOfSummary = 4;  ///< chunks

/// Whether segments can be joined without products of matrices.
bool cheap_summaries(const ir::Function& program) {
    const auto all = graph::transitions(program);
    return std::all_of(all.begin(), all.end(),
                       [](const graph::Transition& t) { return t.composable() && !t.is_matrix(); });
}

/// Whether they can be joined by a kernel that multiplies matrices.
bool joined_by_matrices(const ir::Function& program) {
    const auto all = graph::transitions(program);
    return !cheap_summaries(program) &&
           std::all_of(all.begin(), all.end(), [](const graph::Transition& t) { return t.composable(); });
}

/// Whether scans of segments can join the summaries before them as they start: all states are fragments.
bool joined_at_start(const ir::Function& program, const tile::Sizes& sizes) {
    return cheap_summaries(program) &&
           std::all_of(program.results.begin(), program.results.end(), [&](const ir::Result& r) {
               return r.role != ir::Role::State ||
                      tile::is_block_matrix(tile::with_sizes(program.op(r.value).type, sizes));
           });
}

/// Summaries per segment that fill the GPU, two tasks per multiprocessor; the last segment needs none.
std::int64_t summaries_of(std::int64_t chunks, std::int64_t tasks, std::int64_t segments, int multiprocessors) {
    if (segments < 2) return 0;
    const std::int64_t most = std::max<std::int64_t>(1, chunks / segments / kLeastOfSummary);
    return std::clamp<std::int64_t>(kTasksPerProcessor * multiprocessors / (tasks * (segments - 1)), 1, most);
}

/// Whether the states' group computes functions of matrices, and so needs the registers of a second group of outputs.
bool has_heavy_states(const plan::Plan& plan) {
    const auto is_function = [](const ir::Op& op) {
        return ir::is_elementwise(op.code) && op.code != ir::Opcode::Copy && tile::costly(op.code) &&
               tile::is_block_matrix(op.type);
    };
    return std::any_of(plan.kernels.begin(), plan.kernels.end(), [&](const plan::Kernel& kernel) {
        if (!kernel.tiles.roles) return false;
        const ir::Function& fn = kernel.tiles.fn;
        for (ir::ValueId v = 0; v < fn.size(); ++v)
            if (kernel.tiles.roles->does(tile::Roles::kGives, v) && is_function(fn.op(v))) return true;
        return false;
    });
}

/// Whether a group of several states holds no more of matrices than it has registers nearly enough for: those beyond
/// spill, in every step. A program that held 320 of a thread at a time spilled 700 bytes and gained, one that held 384
/// spilled 4500 and took twice as long as with one group (H200). A single state of as many spills half of that.
void check_registers_of_states(const plan::Plan& plan) {
    constexpr std::int64_t kMost = 352;
    const auto is_matrix_of_state = [](const ir::Op& op) {
        return op.code == ir::Opcode::Param && op.attrs.role == ir::Role::State && tile::is_block_matrix(op.type);
    };
    for (const plan::Kernel& kernel : plan.kernels) {
        const ir::Function& fn = kernel.tiles.fn;
        if (!kernel.tiles.roles || std::count_if(fn.ops.begin(), fn.ops.end(), is_matrix_of_state) < 2) continue;
        const std::int64_t held = tile::fragment_registers(fn, &*kernel.tiles.roles, tile::Roles::kGives);
        if (held > kMost) refuse(Reason::RegistersOfStates, held, kMost);
    }
}

/// Several warp groups per task: with two that make outputs rather than one, if three chunks' inputs fit.
Schedule with_roles(Schedule s, const SharedMemory& memory, const MakePlan& make_plan) {
    s = with_split_axes(s, memory, make_plan);
    Needs needs;
    const auto fits = [&](int output_groups, int stages) {
        s.output_groups = output_groups, s.stages = stages;
        const plan::Plan plan = make_plan(s);
        needs = needs_of(plan);
        if (output_groups > 1 && has_heavy_states(plan)) return false;
        check_registers_of_states(plan);
        return needs.most <= memory.bytes && needs.in_order <= all_bytes(memory);
    };
    for (const int output_groups : {2, 1})
        for (int stages = kMostStages; stages >= 3; --stages)
            if (fits(output_groups, stages)) return s;
    if (fits(1, 2)) return s;
    needs.refuse_for(Reason::SharedMemoryOfRoles, needs.most > memory.bytes ? memory.bytes : all_bytes(memory));
}

/// Whether the groups of blocks of tiles hold no more of matrices than compiled without spilling: of 192 registers and
/// of 88, or of 232 where tiles have nothing in common.
void check_registers_of_roles(const plan::Plan& plan) {
    for (const plan::Kernel& kernel : plan.kernels) {
        if (!kernel.tiles.roles) continue;
        const std::int64_t takes = kernel.tiles.roles->has_giver() ? 160 : 224, gives = 64;
        const auto held = [&](std::uint8_t role) {
            return tile::fragment_registers(kernel.tiles.fn, &*kernel.tiles.roles, role);
        };
        if (held(tile::Roles::kTakes) > takes) refuse(Reason::RegistersOfTiles, held(tile::Roles::kTakes), takes);
        if (held(tile::Roles::kGives) > gives) refuse(Reason::RegistersOfTiles, held(tile::Roles::kGives), gives);
    }
}

/// Whether the columns of transitions, as many as states have rows, are so many tiles of the values' size.
bool in_whole_tiles(const plan::Plan& plan) {
    const Schedule& s = plan.schedule;
    return std::all_of(plan.definition.states.begin(), plan.definition.states.end(), [&](const ir::StateDecl& state) {
        return tile::size_of(tile::with_sizes(state.type, s.held(plan.sizes)), 0) % s.tile_size == 0;
    });
}

/// Segments whose transitions are matrices: made by columns if they can be, and only where segments do not forget the
/// states before them if the norms can be known.
Schedule with_summaries(Schedule s, const SharedMemory& memory, const ir::Definition& definition,
                        const MakePlan& make_plan) {
    const plan::Plan plan = make_plan(s);
    const ir::Function& program = plan.program;
    s.transition_columns = graph::acts_on_columns(program, s.tile_axis) && in_whole_tiles(plan);
    s.forgetting = s.transition_columns && s.share && graph::with_log_norm(program, definition).has_value();
    if (!s.forgetting) return with_roles(s, memory, make_plan);
    try {
        return with_roles(s, memory, make_plan);
    } catch (const Refused&) {  // where an axis ends on chip only, norms may be spoilt by what is behind its end
        s.forgetting = false;
        return with_roles(s, memory, make_plan);
    }
}

/// Warp groups of a block that has a multiprocessor to itself, 128 registers for each thread.
int groups_beside(const plan::Kernel& kernel, const SharedMemory& memory) {
    constexpr std::int64_t kMost = 4;
    constexpr std::int64_t kOwn = 1024;  // what device functions have for themselves
    return static_cast<int>(std::clamp<std::int64_t>(
        all_bytes(memory) / (static_cast<std::int64_t>(sizeof(float)) * kernel.aligned_floats() + kOwn), 1, kMost));
}

/// Work ahead of a scan runs beside it, where the scan leaves multiprocessors free, nothing else comes between, and
/// there is so much that it would not be over in one round of all multiprocessors.
Schedule with_work_beside(Schedule s, const plan::Plan& plan, const FitWishes& wishes, const SharedMemory& memory) {
    if (plan.kernels.size() < 2 || s.epilogue) return s;  // the last two kernels run beside each other
    const plan::Kernel &scan = plan.scan(), &ahead = *(&scan - 1);
    const bool beside = ahead.graph.loop == plan::Loop::Chunks && scan.graph.loop == plan::Loop::Scan;
    const bool leaves = wishes.expected_tasks * scan.parts() < memory.multiprocessors;
    if (!beside || !leaves || ahead.cut.count != 1 || !scan.tiles.roles) return s;
    constexpr int kLeastGroups = 3;  // which hide each other's waits; else multiprocessors had better all take part
    if (groups_beside(ahead, memory) < kLeastGroups) return s;
    const double steps = steps_of_task_ahead(plan, ahead, scan);
    const runtime::WorkBeside work{wishes.expected_tasks * (wishes.expected_tokens / kBlock),
                                   groups_beside(ahead, memory), steps};
    if (runtime::place_beside(work, wishes.expected_tasks * scan.parts(), scan.parts(), memory.multiprocessors)
            .staying > 0)
        s.beside_groups = work.groups, s.beside_steps = steps;
    return s;
}

/// With inverses that are multiplied ahead by what multiplies their products, if scans are over sooner so; nullopt
/// else.
template <class Fit>
std::optional<Schedule> with_folded_factors(const plan::Plan& plan, Fit fit, const FitWishes& wishes,
                                            const SharedMemory& memory, const MakePlan& make_plan) {
    const auto& ops = plan.program.ops;
    const bool inverts =
        std::any_of(ops.begin(), ops.end(), [](const ir::Op& op) { return op.code == ir::Opcode::Inverse; });
    if (!plan.schedule.share || !inverts) return std::nullopt;
    const auto takes = [&](const plan::Plan& made) {
        return microseconds_of_scan_and_work(made, wishes, memory.multiprocessors);
    };
    try {
        Schedule folded = plan.schedule;
        folded.folds = true;
        folded = fit(folded);
        return takes(make_plan(folded)) < takes(plan) ? std::optional(folded) : std::nullopt;
    } catch (const Refused&) {
        return std::nullopt;
    }
}

/// Blocks of two tiles, of the fewest stages and buffers.
Schedule in_blocks(Schedule s, bool share) {
    constexpr int kTiles = 2;
    if (s.tiles % kTiles != 0) refuse(Reason::OddTiles, s.tiles);
    s.strategy = Strategy::OnePass, s.share = share, s.output_groups = 0;
    s.block_tiles = kTiles, s.stages = 2, s.buffers = 1;
    return s;
}

/// Those for which all that they have in common is made ahead.
Schedule tiles_apart(const Schedule& wanted, const SharedMemory& memory, const MakePlan& make_plan) {
    Schedule s = with_split_axes(in_blocks(wanted, true), memory, make_plan);
    const plan::Plan plan = make_plan(s);
    const plan::Kernel& scan = plan.scan();
    if (!scan.has_tiles_apart())
        refuse(Reason::SharedValue, ir::described(scan.tiles.fn, scan.tiles.roles->passed.at(0).value));
    check_registers_of_roles(plan);
    const Needs needs = needs_of(plan);
    if (needs.most > memory.bytes) needs.refuse_for(Reason::SharedMemoryOfRoles, memory.bytes);
    if (needs.in_order > all_bytes(memory)) needs.refuse_for(Reason::SharedMemoryOfRoles, all_bytes(memory));
    const std::int64_t stage = static_cast<std::int64_t>(sizeof(float)) *
                               (scan.tiles.stage_floats + scan.tiles.number_floats + tile::Roles::kHandoverFloats);
    while (s.stages < kMostStages && needs.in_order + (s.stages - 1) * stage <= all_bytes(memory)) ++s.stages;
    return s;
}

/// The same in segments that are joined by products of matrices, where tasks are so few that these pay.
std::optional<Schedule> in_matrix_segments(Schedule s, const plan::Plan& one_pass, const FitWishes& wishes,
                                           const SharedMemory& memory, const MakePlan& make_plan) {
    s.strategy = Strategy::Segmented;
    s.segments = 2;
    try {
        s = with_summaries(s, memory, one_pass.definition, make_plan);
    } catch (const Refused&) {
        return std::nullopt;  // what one pass has of shared memory is too little for its summaries
    }
    if (!s.transition_columns) return std::nullopt;
    MatrixSegmentTimes times = matrix_segment_times(one_pass, wishes, memory.multiprocessors);
    const plan::Plan plan = make_plan(s);
    for (const plan::Kernel& kernel : plan.kernels)
        if (kernel.graph.loop == plan::Loop::Summaries) times.tiles = kernel.parts();
    times.forgetting = s.forgetting;
    const std::int64_t tasks = std::max<std::int64_t>(1, wishes.expected_tasks) * s.tiles;
    s.segments =
        times.best(std::min<std::int64_t>(memory.multiprocessors / tasks, times.chunks / kLeastChunksOfMatrices));
    return s.segments < 2 ? std::nullopt : std::optional(s);
}

}  // namespace

Schedule with_segments(Schedule s, std::int64_t segments, bool pay, const ir::Function& program,
                       const tile::Sizes& held, const SharedMemory& memory, const FitWishes& wishes) {
    const bool in_segments =
        pay && (cheap_summaries(program) || (s.engine == plan::Engine::Warps && joined_by_matrices(program)));
    s.strategy = wishes.strategy.value_or(in_segments ? Strategy::Segmented : Strategy::OnePass);
    if (s.strategy != Strategy::Segmented) return s;
    s.segments = wishes.segments ? wishes.segments : std::max<std::int64_t>(2, segments);
    const std::int64_t chunks = wishes.expected_tokens / kBlock,
                       tasks = std::max<std::int64_t>(1, wishes.expected_tasks * s.tiles);
    s.summaries = joined_at_start(program, held)
                      ? summaries_of(chunks, tasks, std::max<std::int64_t>(2, s.segments), memory.multiprocessors)
                      : 0;
    return s;
}

namespace {

/// Of the states that results of this role are the next values of, those that are no matrices for the matrix units.
std::set<std::string> early_states(const ir::Function& program, ir::Role next, const tile::Sizes& held) {
    std::set<std::string> small;
    for (const ir::Result& r : program.results)
        if (r.role == next && !tile::is_block_matrix(tile::with_sizes(program.op(r.value).type, held)))
            small.insert(r.name);
    return graph::early_states(program, small);
}

}  // namespace

std::set<std::string> early_states_for_others(const ir::Function& program, const tile::Sizes& held) {
    const bool back = graph::has_saved_states(program);
    std::set<std::string> early = early_states(program, back ? ir::Role::After : ir::Role::State, held);
    return graph::add_matrices_to_others(program, early) ? early : std::set<std::string>();
}

std::vector<Schedule> ways_of_roles(Schedule s, const ir::Function& program, const tile::Sizes& held) {
    s.early = early_states(program, ir::Role::State, held);
    std::vector<Schedule> ways = {s};
    if (!s.share) s.share = true, ways.push_back(s);
    s.tiles_ahead = true;
    ways.push_back(s);
    return ways;
}

namespace {

/// Segments take all multiprocessors, so that the work ahead comes first; a scan in one pass has it beside.
std::optional<Schedule> in_one_pass_if_sooner(const Schedule& s, const plan::Plan& segments, const FitWishes& wishes,
                                              const SharedMemory& memory, const MakePlan& make_plan) {
    constexpr double kWorthIt = 0.85;
    try {
        const Schedule roles = with_roles(s, memory, make_plan);
        const Schedule beside = with_work_beside(roles, make_plan(roles), wishes, memory);
        const double one = microseconds_of_call(make_plan(beside), wishes, memory.multiprocessors),
                     several = microseconds_of_segments_and_work(segments, wishes, memory.multiprocessors);
        return beside.beside_groups > 0 && one < kWorthIt * several ? std::optional(roles) : std::nullopt;
    } catch (const Refused&) {
        return std::nullopt;
    }
}

}  // namespace

Schedule by_roles(const Schedule& s, const ir::Definition& definition, const ir::Function& program,
                  const tile::Sizes& sizes, const SharedMemory& memory, const FitWishes& wishes,
                  const MakePlan& make_plan) {
    const tile::Sizes held = s.held(sizes);
    const ir::Function rest = graph::without_early_states(program, s.early);
    const std::int64_t chunks = wishes.expected_tokens / kBlock,
                       tasks = std::max<std::int64_t>(1, wishes.expected_tasks * s.tiles),
                       segments =
                           std::max<std::int64_t>(1, std::min(memory.multiprocessors / tasks, chunks / kLeastChunks));
    SegmentTimes times = segment_times(definition, rest, sizes, held, wishes);
    times.segments = segments;
    times.summaries = joined_at_start(rest, held) ? summaries_of(chunks, tasks, segments, memory.multiprocessors) : 0;
    // Work ahead fills the GPU; two segments shorten what is left too little.
    const bool pay = segments > (s.share ? 2 : 1) && times.pay();
    const Schedule tried = with_segments(s, segments, pay, rest, held, memory, wishes);
    const auto fit = [&](const Schedule& wanted) {
        const bool joined_apart = wanted.strategy == Strategy::Segmented && wanted.summaries == 0;
        return joined_apart ? with_summaries(wanted, memory, definition, make_plan)
                            : with_roles(wanted, memory, make_plan);
    };
    Schedule roles = fit(tried);
    plan::Plan plan = make_plan(roles);
    if (!wishes.strategy && wishes.segments == 0 && s.share && roles.strategy == Strategy::Segmented)
        if (const auto beside = in_one_pass_if_sooner(s, plan, wishes, memory, make_plan))
            roles = *beside, plan = make_plan(roles);
    if (!wishes.strategy && s.share && s.early.empty() && !s.tiles_ahead && joined_by_matrices(program))
        if (const auto cut = in_matrix_segments(roles, plan, wishes, memory, make_plan))
            return with_folded_factors(make_plan(*cut), fit, wishes, memory, make_plan).value_or(*cut);
    if (const auto folded = with_folded_factors(plan, fit, wishes, memory, make_plan))
        roles = *folded, plan = make_plan(roles);
    constexpr double kWorthIt = 0.96;
    roles = with_work_beside(roles, plan, wishes, memory);
    return tiles_if_sooner(make_plan(roles), kWorthIt, wishes, memory, make_plan).value_or(roles);
}

TimedSchedule with_tiles_apart(const Schedule& s, const FitWishes& wishes, const SharedMemory& memory,
                               const MakePlan& make_plan) {
    const auto fit = [&](const Schedule& wanted) { return tiles_apart(wanted, memory, make_plan); };
    Schedule tiles = fit(s);
    if (const auto folded = with_folded_factors(make_plan(tiles), fit, wishes, memory, make_plan)) tiles = *folded;
    constexpr double kWorthIt = 0.92;  // both share the memory
    plan::Plan plan = make_plan(tiles);
    const double in_turn = microseconds_of_call(plan, wishes, memory.multiprocessors);
    plan.schedule = with_work_beside(tiles, plan, wishes, memory);
    const double beside = microseconds_of_call(plan, wishes, memory.multiprocessors);
    return beside < kWorthIt * in_turn ? TimedSchedule{plan.schedule, beside} : TimedSchedule{tiles, in_turn};
}

std::optional<Schedule> tiles_if_sooner(const plan::Plan& than, double share, const FitWishes& wishes,
                                        const SharedMemory& memory, const MakePlan& make_plan) {
    Schedule s = than.schedule;
    if (s.strategy != Strategy::OnePass || !s.early.empty() || s.tiles_ahead || s.epilogue) return std::nullopt;
    s.folds = false, s.beside_groups = 0;
    const double most = share * microseconds_of_call(than, wishes, memory.multiprocessors);
    if (least_of_tiles_apart(than, wishes) > most) return std::nullopt;
    try {
        const TimedSchedule tiles = with_tiles_apart(s, wishes, memory, make_plan);
        return tiles.microseconds < most ? std::optional(tiles.schedule) : std::nullopt;
    } catch (const Refused&) {
        return std::nullopt;
    }
}

bool may_relay(const plan::Plan& plan) {
    const plan::Kernel& scan = plan.scan();
    if (plan.schedule.strategy != Strategy::OnePass || plan.schedule.epilogue || scan.graph.loop != plan::Loop::Scan)
        return false;
    const auto is_own = [&](const ir::Op& op, const ir::Op& symbolic) {
        return tile::is_fragment(op.layout->space) && !plan.is_shared(scan, symbolic.type);
    };
    const auto& results = scan.graph.fn.results;
    return scan.tiles.roles && std::all_of(results.begin(), results.end(), [&](const ir::Result& r) {
               const auto same = [&](const ir::Result& lowered) {
                   return lowered.role == r.role && lowered.name == r.name;
               };
               const auto& of_tiles = scan.tiles.fn.results;
               const auto found = std::find_if(of_tiles.begin(), of_tiles.end(), same);
               return r.role != ir::Role::State || is_own(scan.tiles.fn.op(found->value), scan.graph.fn.op(r.value));
           });
}

Schedule with_relay(const Schedule& s, const FitWishes& wishes, const SharedMemory& memory, const MakePlan& make_plan) {
    const bool one_round = std::max<std::int64_t>(1, wishes.expected_tasks) * s.tiles <= memory.multiprocessors,
               chosen = wishes.segments == 0;
    if (s.strategy != Strategy::OnePass || s.is_relay() || s.beside_groups > 0 || wishes.segments == 1 ||
        (chosen && one_round))
        return s;
    const plan::Plan plan = make_plan(s);
    if (!may_relay(plan)) return s;
    Schedule relay = s;
    relay.segments = wishes.segments;
    if (chosen) {
        const RelayTimes times = relay_times(plan, wishes, memory.multiprocessors);
        relay.segments = times.best(), relay.relay_lanes = times.at_once / plan.scan().parts();
    }
    return relay.segments > 1 ? relay : s;
}

Schedule with_block_tiles(Schedule s, const SharedMemory& memory, const MakePlan& make_plan) {
    constexpr int kBuffers = 2;
    s = in_blocks(s, false);
    const plan::Plan plan = make_plan(s);
    if (plan.scan().has_tiles_apart()) refuse(Reason::NothingInCommon);
    check_registers_of_roles(plan);
    Needs needs;
    for (s.stages = kMostStages; s.stages >= 2; --s.stages)
        for (s.buffers = kBuffers; s.buffers >= 1; --s.buffers) {
            needs = needs_of(make_plan(s));
            if (needs.most <= memory.bytes && needs.in_order <= all_bytes(memory)) return s;
        }
    needs.refuse_for(Reason::SharedMemoryOfRoles, all_bytes(memory));
}

}  // namespace forge::target
