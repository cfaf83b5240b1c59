#include "target/hopper/warp_groups.h"

#include <algorithm>
#include <optional>

#include "emit/cuda/emit_cuda.h"
#include "graph/early_states.h"
#include "graph/log_norm.h"
#include "graph/saved_states.h"
#include "graph/slice.h"
#include "graph/transition.h"
#include "runtime/beside.h"
#include "target/gpu_target.h"
#include "target/hopper/cut_outputs.h"
#include "target/hopper/scan_times.h"
#include "tile/fragments.h"
#include "tile/order.h"

namespace forge::target {
namespace {

using ir::Opcode;
using plan::Schedule;
using plan::Strategy;
using tile::kBlock;

constexpr int kThreads = 128;
constexpr std::int64_t kTasksPerProcessor = 2;  ///< that hide each other's waits
constexpr std::int64_t kLeastChunks = 16;       ///< of a segment that is worth its summary
constexpr std::int64_t kLeastOfSummary = 4;     ///< chunks
/// Fewer segments do not make up for two more kernels, where one warp group does everything.
constexpr std::int64_t kLeastSegments = 3;

bool has_halves(const ir::Definition& definition) {
    return std::any_of(definition.inputs.begin(), definition.inputs.end(),
                       [](const ir::InputDecl& in) { return is_half(in.type.dtype); });
}

/// Whether work that needs no state takes long steps of its own: it is then better done ahead, for all chunks at once.
bool has_long_steps(const ir::Function& program) {
    return std::any_of(program.ops.begin(), program.ops.end(), [](const ir::Op& op) {
        return op.code == Opcode::Inverse || op.code == Opcode::DecayMatmul || op.code == Opcode::DecayApply;
    });
}

/// Whether tiles that are many would all make much of the same: matrices of tokens by tokens, whose products count by
/// the blocks that they sum over, decays as one more. Of keys of 128 numbers, without decays, each better makes its
/// own.
bool repeats_much(const ir::Function& program, const tile::Sizes& held, std::int64_t tiles) {
    constexpr std::int64_t kManyTiles = 4, kMuch = 3;
    if (tiles < kManyTiles) return false;
    std::int64_t repeated = 0;
    for (const ir::Op& op : program.ops) {
        if (op.code == Opcode::DecayMask) ++repeated;
        if (!ir::is_matmul(op.code) || op.type.shape[0].symbol != ir::kChunkSymbol ||
            op.type.shape[1] != op.type.shape[0])
            continue;
        const Dim& inner = program.op(op.args[0]).type.shape[op.attrs.trans_a ? 0 : 1];
        const auto size = held.find(inner.symbol);
        if (size != held.end()) repeated += inner.factor * size->second / kBlock;
    }
    return repeated >= kMuch;
}

/// Shorter axes than this are left to other engines: matrices would be zeros for the most part.
constexpr std::int64_t kLeastPadded = 16;

/// Sizes on chip of axes of matrices that are no whole blocks.
tile::Sizes padded_sizes(const ir::Function& program, const tile::Sizes& sizes) {
    tile::Sizes padded;
    const auto pad = [&](const Dim& d) {
        const auto size = sizes.find(d.symbol);
        if (size == sizes.end() || size->second < kLeastPadded || d.factor * size->second % kBlock == 0) return;
        padded[d.symbol] = (size->second + kBlock - 1) / kBlock * kBlock;
    };
    for (const ir::Op& op : program.ops) {
        const bool input = op.code == Opcode::Param && op.attrs.role == ir::Role::Input && op.type.rank() == 2;
        if (input) pad(op.type.shape[1]);
        for (std::size_t i = 0; ir::is_matmul(op.code) && i < 2; ++i)
            for (const Dim& d : program.op(op.args[i]).type.shape) pad(d);
    }
    return padded;
}

/// Whether outputs mix every axis along which scans can be cut, so that only a kernel of whole chunks can make them.
bool outputs_mix_axes(const ir::Function& program) {
    return graph::parallel_axes(program, graph::Whole::Some).empty() &&
           !graph::scan_axes(program, graph::Whole::Some).empty();
}

/// `sizes`: on chip.
std::string value_axis(const ir::Function& program, Strategy strategy, const tile::Sizes& sizes) {
    std::vector<std::string> axes = plan::cut_axes(program, strategy);
    if (axes.empty() && !graph::has_saved_states(program)) {
        const bool apart = strategy == Strategy::Fused || strategy == Strategy::Decoupled;
        axes = graph::parallel_axes(program, graph::Whole::Some);
        if (axes.empty() && apart) axes = graph::scan_axes(program, graph::Whole::Some);
    }
    for (const std::string& axis : axes)
        if (const auto it = sizes.find(axis); it != sizes.end() && it->second % kBlock == 0) return axis;
    if (axes.empty()) refuse(Reason::NoValueAxis);
    const std::int64_t size = sizes.at(axes[0]);
    refuse(Reason::SizeOfValueAxis, axes[0], size, (size + kBlock - 1) / kBlock * kBlock);
}

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

/// Shared memory of a block that has nothing in it but tiles.
std::int64_t all_bytes(const SharedMemory& memory) { return std::max(memory.bytes, memory.all_bytes); }

/// What a plan's kernels need of shared memory, in bytes.
struct Needs {
    std::int64_t in_order = 0;  ///< those that go through chunks in order
    std::int64_t most = 0;      ///< the others
    std::string in_order_name, most_name;

    [[noreturn]] void refuse_for(Reason reason, std::int64_t bytes) const {
        const bool in_order_is = most <= bytes;
        refuse(reason, in_order_is ? in_order_name : most_name, in_order_is ? in_order : most, bytes);
    }
};

Needs needs_of(const plan::Plan& plan) {
    Needs needs;
    for (const plan::Kernel& kernel : plan.kernels) {
        const std::int64_t bytes = bytes_of_tiles(kernel);
        const bool in_order = kernel.graph.loop == plan::Loop::Scan || kernel.graph.loop == plan::Loop::Segments;
        std::int64_t& largest = in_order ? needs.in_order : needs.most;
        if (bytes > largest) largest = bytes, (in_order ? needs.in_order_name : needs.most_name) = kernel.graph.name;
    }
    return needs;
}

/// Of a multiprocessor, for which joint kernels (plan::KernelGraph::joint) should fit: with 2, those are split that
/// hold more, which makes their text up to twice as long.
constexpr std::int64_t kTasksOfJoint = 2;

/// Kernels of single chunks that would not fit have their long axes split, and so have those that take parts of an axis
/// of their own: parts of rows are no images of matrices, but of blocks they are.
template <class MakePlan>
Schedule with_split_axes(Schedule s, const SharedMemory& memory, MakePlan make_plan) {
    for (const plan::Kernel& kernel : make_plan(s).kernels) {
        const std::int64_t room = memory.bytes / (kernel.graph.joint ? kTasksOfJoint : 1);
        if (!kernel.graph.own_axis.empty() ||
            (kernel.graph.loop == plan::Loop::Chunks && bytes_of_tiles(kernel) > room))
            s.split.insert(kernel.graph.name);
    }
    return s;
}

constexpr int kMostStages = 4;

/// One warp group per task, and the most stages with which tasks that go through chunks in order still fit: one per
/// multiprocessor, or two.
template <class MakePlan>
Schedule with_stages(Schedule s, const SharedMemory& memory, bool two_tasks, MakePlan make_plan) {
    s = with_split_axes(s, memory, make_plan);
    Needs needs;
    for (s.stages = kMostStages; s.stages >= 2; --s.stages) {
        needs = needs_of(make_plan(s));
        const bool fits = std::max(needs.most, needs.in_order) <= memory.bytes;
        if (fits && (s.stages == 2 || !two_tasks || 2 * needs.in_order <= memory.bytes)) return s;
    }
    needs.refuse_for(Reason::SharedMemory, memory.bytes);
}

/// Scans leave states for later kernels, which one warp group does; outputs fill the GPU.
template <class MakePlan>
Schedule fit_with_outputs_apart(Schedule s, const SharedMemory& memory, bool two_tasks, MakePlan make_plan) {
    try {
        return with_stages(s, memory, two_tasks, make_plan);
    } catch (const Refused&) {
        s.wide_late = true;
        return with_stages(s, memory, two_tasks, make_plan);
    }
}

/// Whether the states' group computes functions of matrices, and so needs the registers of a second group of outputs.
bool has_heavy_states(const plan::Plan& plan) {
    const auto is_function = [](const ir::Op& op) {
        return ir::is_elementwise(op.code) && op.code != Opcode::Copy && tile::costly(op.code) &&
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

/// Several warp groups per task: with two that make outputs rather than one, if three chunks' inputs fit.
template <class MakePlan>
Schedule with_roles(Schedule s, const SharedMemory& memory, MakePlan make_plan) {
    s = with_split_axes(s, memory, make_plan);
    Needs needs;
    const auto fits = [&](int output_groups, int stages) {
        s.output_groups = output_groups, s.stages = stages;
        const plan::Plan plan = make_plan(s);
        needs = needs_of(plan);
        if (output_groups > 1 && has_heavy_states(plan)) return false;
        return needs.most <= memory.bytes && needs.in_order <= all_bytes(memory);
    };
    for (const int output_groups : {2, 1})
        for (int stages = kMostStages; stages >= 3; --stages)
            if (fits(output_groups, stages)) return s;
    if (fits(1, 2)) return s;
    needs.refuse_for(Reason::SharedMemoryOfRoles, needs.most > memory.bytes ? memory.bytes : all_bytes(memory));
}

/// Whether the groups of blocks of tiles hold no more of matrices than compiled without spilling, of 192 registers and
/// of 88.
void check_registers_of_roles(const plan::Plan& plan) {
    constexpr std::int64_t kTakes = 160, kGives = 64;
    for (const plan::Kernel& kernel : plan.kernels) {
        const auto held = [&](std::uint8_t role) {
            return tile::fragment_registers(kernel.tiles.fn, &*kernel.tiles.roles, role);
        };
        if (held(tile::Roles::kTakes) > kTakes) refuse(Reason::RegistersOfTiles, held(tile::Roles::kTakes), kTakes);
        if (held(tile::Roles::kGives) > kGives) refuse(Reason::RegistersOfTiles, held(tile::Roles::kGives), kGives);
    }
}

/// Blocks of several tiles, which compute what these have in common once; as many stages, and buffers of what is handed
/// over, as fit.
template <class MakePlan>
Schedule with_block_tiles(Schedule s, const SharedMemory& memory, MakePlan make_plan) {
    constexpr int kTiles = 2, kBuffers = 2;
    if (s.tiles % kTiles != 0) refuse(Reason::OddTiles, s.tiles);
    s.strategy = Strategy::OnePass, s.share = false, s.block_tiles = kTiles;
    s.stages = 2, s.buffers = 1;
    check_registers_of_roles(make_plan(s));
    Needs needs;
    for (s.stages = kMostStages; s.stages >= 2; --s.stages)
        for (s.buffers = kBuffers; s.buffers >= 1; --s.buffers) {
            needs = needs_of(make_plan(s));
            if (needs.most <= memory.bytes && needs.in_order <= all_bytes(memory)) return s;
        }
    needs.refuse_for(Reason::SharedMemoryOfRoles, all_bytes(memory));
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
template <class MakePlan>
Schedule with_summaries(Schedule s, const SharedMemory& memory, const ir::Definition& definition, MakePlan make_plan) {
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
    if (plan.kernels.size() < 2) return s;
    const plan::Kernel &scan = plan.kernels.back(), &ahead = *(&scan - 1);
    const bool beside = ahead.graph.loop == plan::Loop::Chunks && scan.graph.loop == plan::Loop::Scan;
    if (!beside || ahead.cut.count != 1 || !scan.tiles.roles) return s;
    constexpr int kLeastGroups = 3;  // which hide each other's waits; else multiprocessors had better all take part
    if (groups_beside(ahead, memory) < kLeastGroups) return s;
    const double steps = microseconds_ahead(ahead.tiles.fn) / microseconds_of_chunk(plan, scan.tiles.fn);
    const runtime::WorkBeside work{wishes.expected_tasks * (wishes.expected_tokens / kBlock),
                                   groups_beside(ahead, memory), steps};
    if (runtime::place_beside(work, wishes.expected_tasks * s.tiles, s.tiles, memory.multiprocessors).staying > 0)
        s.beside_groups = work.groups, s.beside_steps = steps;
    return s;
}

/// The same in segments that are joined by products of matrices, where tasks are so few that these pay.
template <class MakePlan>
std::optional<Schedule> in_matrix_segments(Schedule s, const plan::Plan& one_pass, const FitWishes& wishes,
                                           const SharedMemory& memory, MakePlan make_plan) {
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
    s.segments = times.best(std::min<std::int64_t>(memory.multiprocessors / tasks, times.chunks / kLeastChunks));
    return s.segments < 2 ? std::nullopt : std::optional(s);
}

/// Of a thread, for what kernels that go through chunks in order hold of matrices, where one group does everything.
std::int64_t registers_of(const plan::Plan& plan) {
    std::int64_t most = 0;
    for (const plan::Kernel& kernel : plan.kernels)
        if (kernel.engine == plan::Engine::WarpGroups && plan::in_order(kernel.graph.loop))
            most = std::max(most, tile::fragment_registers(kernel.tiles.fn));
    return most;
}

/// By the strategy that the schedule has, or else by one whose kernels do less each, for more traffic between them:
/// where kernels would not fit, or would hold more than registers do. If all would, by that which holds the least.
template <class Fit, class MakePlan>
Schedule first_possible(Schedule s, Fit fit, MakePlan make_plan) {
    constexpr std::int64_t kMostRegisters = 224;  // of 255: what compilers need beside has not spilled anything then
    std::vector<Strategy> strategies = {s.strategy};
    // What tiles share is made once by a fused one; where they share nothing, decoupled scans have the least to do.
    const Strategy second = s.share ? Strategy::Fused : Strategy::Decoupled,
                   third = s.share ? Strategy::Decoupled : Strategy::Fused;
    for (const Strategy other : {Strategy::OnePass, second, third})
        if (other != s.strategy) strategies.push_back(other);
    std::optional<Refused> first;
    std::optional<Schedule> best;
    std::int64_t least = 0;
    for (const Strategy strategy : strategies) {
        if (strategy != s.strategy) s.segments = 1, s.summaries = 0;
        s.strategy = strategy;
        try {
            const Schedule fitted = fit(s);
            const std::int64_t registers = registers_of(make_plan(fitted));
            if (!best || registers < least) best = fitted, least = registers;
            if (registers <= kMostRegisters) break;
        } catch (const Refused& why) {
            if (!first) first = why;
            s.refused.push_back(why.refusal());
            s.refused.back().engine = plan::to_string(strategy);
        }
    }
    if (!best) throw Refused(*first);
    best->refused = s.refused;
    return *best;
}

/// With segments if these pay, and what joins them.
Schedule with_segments(Schedule s, std::int64_t segments, bool pay, const ir::Function& program,
                       const tile::Sizes& held, const SharedMemory& memory, const FitWishes& wishes) {
    s.strategy = wishes.strategy.value_or(pay && cheap_summaries(program) ? Strategy::Segmented : Strategy::OnePass);
    if (s.strategy != Strategy::Segmented) return s;
    s.segments = wishes.segments ? wishes.segments : std::max<std::int64_t>(2, segments);
    const std::int64_t chunks = wishes.expected_tokens / kBlock,
                       tasks = std::max<std::int64_t>(1, wishes.expected_tasks * s.tiles);
    s.summaries = joined_at_start(program, held)
                      ? summaries_of(chunks, tasks, std::max<std::int64_t>(2, s.segments), memory.multiprocessors)
                      : 0;
    return s;
}

/// What roles may be tried with, in order of preference. States that are no fragments would lie in memory that warp
/// groups share: they have a scan of their own. Functions that one group at a time can call, and values that would pass
/// between groups, may all be made ahead.
std::vector<Schedule> ways_of_roles(Schedule s, const ir::Function& program, const tile::Sizes& held) {
    std::set<std::string> small;
    for (const ir::Result& r : program.results)
        if (r.role == ir::Role::State && !tile::is_block_matrix(tile::with_sizes(program.op(r.value).type, held)))
            small.insert(r.name);
    s.early = graph::early_states(program, small);
    std::vector<Schedule> ways = {s};
    if (!s.share) s.share = true, ways.push_back(s);
    s.tiles_ahead = true;
    ways.push_back(s);
    return ways;
}

/// Each task makes all that it needs; if that does not fit, what tasks have in common is made ahead, and then what
/// states need that need no others.
template <class Fit>
Schedule by_each_or_ahead(const Schedule& s, const ir::Function& program, const tile::Sizes& held, Fit fit) {
    try {
        return fit(s);
    } catch (const Refused& why) {
        if (s.strategy == Strategy::Segmented) throw;
        Schedule ahead = s;
        ahead.refused.push_back(why.refusal());
        ahead.refused.back().engine = "all by each task";
        ahead.share = true;
        std::vector<Schedule> ways = {ways_of_roles(ahead, program, held).front()};
        if (!s.share && !ways[0].early.empty()) ways.insert(ways.begin(), ahead);
        for (const Schedule& way : ways) try {
                return fit(way);
            } catch (const Refused&) {  // the first reason says more
            }
        throw;
    }
}

/// Several warp groups per task, where each task has a multiprocessor.
template <class MakePlan>
Schedule by_roles(const Schedule& s, const ir::Definition& definition, const ir::Function& program,
                  const tile::Sizes& sizes, const SharedMemory& memory, const FitWishes& wishes, MakePlan make_plan) {
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
    const bool joined_apart = tried.strategy == Strategy::Segmented && tried.summaries == 0;
    const Schedule roles =
        joined_apart ? with_summaries(tried, memory, definition, make_plan) : with_roles(tried, memory, make_plan);
    const plan::Plan plan = make_plan(roles);
    if (!wishes.strategy && s.share && s.early.empty() && !s.tiles_ahead && joined_by_matrices(program))
        if (const auto cut = in_matrix_segments(roles, plan, wishes, memory, make_plan)) return *cut;
    return with_work_beside(roles, plan, wishes, memory);
}

Schedule fit_with_inverses(int parts, const ir::Definition& definition, const ir::Function& program,
                           const tile::Sizes& sizes, const SharedMemory& memory, const FitWishes& wishes) {
    if (std::none_of(program.ops.begin(), program.ops.end(), [](const ir::Op& op) { return ir::is_matmul(op.code); }))
        refuse(Reason::NoProducts);
    if (!has_halves(definition)) refuse(Reason::NoHalves);
    if (wishes.chunk != 0 && wishes.chunk != kBlock) refuse(Reason::OtherChunk, wishes.chunk);
    const bool back = graph::has_saved_states(program);
    Schedule s;
    const bool apart = back || outputs_mix_axes(program);
    s.strategy = wishes.strategy.value_or(apart ? Strategy::Fused : Strategy::OnePass);
    s.chunk = kBlock;
    s.vector_width = 4;
    s.shared_memory = true;
    s.engine = plan::Engine::WarpGroups;
    s.inverse_parts = parts;
    s.block_threads = kThreads;
    s.padded = padded_sizes(program, sizes);
    const tile::Sizes held = s.held(sizes);
    s.tile_axis = value_axis(program, s.strategy, held);
    s.tile_chunks = !apart || plan::cuts_chunks(program, s.tile_axis);
    s.tiles = wishes.tiles ? wishes.tiles : held.at(s.tile_axis) / kBlock;
    s.tile_size = held.at(s.tile_axis) / s.tiles;
    const std::int64_t tasks = std::max<std::int64_t>(1, wishes.expected_tasks * s.tiles);
    s.share =
        has_long_steps(program) || (!back && tasks > memory.multiprocessors && repeats_much(program, held, s.tiles));
    const auto make_plan = [&](const Schedule& tried) { return plan::make_plan(definition, program, sizes, tried); };
    if (apart) {
        const bool two_tasks = tasks > memory.multiprocessors;
        if (const auto cut = with_cut_outputs(s, held, memory, make_plan)) try {
                return fit_with_outputs_apart(*cut, memory, two_tasks, make_plan);
            } catch (const Refused& why) {  // without, kernels may fit
                s.refused.push_back(why.refusal());
                s.refused.back().engine = "outputs by parts";
            }
        const auto fit = [&](const Schedule& tried) {
            return fit_with_outputs_apart(tried, memory, two_tasks, make_plan);
        };
        return back ? fit(s) : by_each_or_ahead(s, program, held, fit);
    }
    const std::int64_t chunks = wishes.expected_tokens / kBlock;
    if (tasks <= memory.multiprocessors)
        for (const Schedule& way : ways_of_roles(s, program, held)) try {
                return by_roles(way, definition, program, sizes, memory, wishes, make_plan);
            } catch (const Refused& why) {
                s.refused.push_back(why.refusal());
                s.refused.back().engine = "roles";  // whether one warp group can is seen below
            }
    if (tasks > memory.multiprocessors && wishes.strategy.value_or(Strategy::OnePass) == Strategy::OnePass) try {
            return with_block_tiles(s, memory, make_plan);
        } catch (const Refused& why) {
            s.refused.push_back(why.refusal());
            s.refused.back().engine = "blocks of tiles";
        }
    const std::int64_t segments = std::min(kTasksPerProcessor * memory.multiprocessors / tasks, chunks / kLeastChunks);
    const auto alone = [&](const Schedule& tried) {
        const bool two_tasks = tried.strategy == Strategy::Segmented || tasks > memory.multiprocessors;
        return with_stages(tried, memory, two_tasks, make_plan);
    };
    s = with_segments(s, segments, segments >= kLeastSegments, program, held, memory, wishes);
    const auto by_strategy = [&](const Schedule& tried) {
        return wishes.strategy ? alone(tried) : first_possible(tried, alone, make_plan);
    };
    return by_each_or_ahead(s, program, held, by_strategy);
}

}  // namespace

/// Inverses have two parts, for the digits that products of correlated keys take from them; where kernels with such do
/// not fit, one, with which results are as accurate as with all other operands'. Gradients have one: what the forward
/// pass of a backward pass leaves for later kernels is a tenth less.
Schedule fit_warp_groups(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                         const SharedMemory& memory, const FitWishes& wishes) {
    try {
        const int parts = graph::has_saved_states(program) ? 1 : 2;
        return fit_with_inverses(parts, definition, program, sizes, memory, wishes);
    } catch (const Refused&) {
        const bool inverts = std::any_of(program.ops.begin(), program.ops.end(),
                                         [](const ir::Op& op) { return op.code == Opcode::Inverse; });
        if (inverts) try {
                return fit_with_inverses(1, definition, program, sizes, memory, wishes);
            } catch (const Refused&) {  // the first reason says more
            }
        throw;
    }
}

namespace {

/// Adds what the model says from which the number of segments follows. It knows scans, each alone on a multiprocessor,
/// that make all themselves.
void estimate(Candidate& candidate, const ir::Definition& definition, const ir::Function& program,
              const Question& question) {
    const Schedule& s = candidate.schedule;
    const std::int64_t tasks = question.problem.sequences * question.problem.heads * s.tiles;
    const bool one_pass = s.strategy == Strategy::OnePass, joined = s.summaries > 0;
    if (!candidate.possible() || s.share || s.output_groups == 0 || (!one_pass && !joined) ||
        tasks * s.segments > question.gpu()->multiprocessors)
        return;
    const tile::Sizes& sizes = question.problem.sizes;
    SegmentTimes times =
        segment_times(definition, program, sizes, s.held(sizes), fit_wishes(question.problem, candidate.wishes));
    times.segments = s.segments, times.summaries = s.summaries;
    candidate.estimate_s = 1e-6 * (one_pass ? times.in_one_pass() : times.in_segments());
    candidate.note = fmt::format("{} products and {} matrices per chunk", times.products, times.matrices);
}

}  // namespace

const Target& warp_groups_target() {
    static const Target kTarget = {
        "warp-groups",
        "chunks of 64 tokens on Hopper's warp-group matrix units",
        false,
        [](const Question& q) {
            return q.gpu() && !q.by_token() &&
                   q.wishes.engine.value_or(plan::Engine::WarpGroups) == plan::Engine::WarpGroups;
        },
        [](const ir::Definition& definition, const ir::Function& program, const Question& question, Range range) {
            const auto fit = [](const ir::Definition& def, const ir::Function& fn, const Question& q,
                                const Wishes& wishes) {
                const GpuFacts& gpu = *q.gpu();
                if (gpu.major != 9) refuse(Reason::Capability, gpu.major, gpu.minor);
                if (wishes.threads != 0 && wishes.threads != kThreads) refuse(Reason::OtherThreads, wishes.threads);
                return fit_warp_groups(def, fn, q.problem.sizes, shared_memory_of(gpu, kThreads),
                                       fit_wishes(q.problem, wishes));
            };
            const auto variations = range == Range::All ? placements(question.wishes) : std::vector<Wishes>();
            auto found = tried(warp_groups_target(), fit, definition, program, question, variations);
            if (range == Range::All)
                for (Candidate& c : found) estimate(c, definition, program, question);
            return found;
        },
        emit::emit_cuda,
        ".cu"};
    return kTarget;
}

}  // namespace forge::target
