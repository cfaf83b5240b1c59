#include "target/hopper/warp_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "device/cuda/portable/call.h"
#include "graph/early_states.h"
#include "graph/saved_states.h"
#include "graph/slice.h"
#include "graph/state_groups.h"
#include "graph/trailing_states.h"
#include "graph/transition.h"
#include "target/hopper/cheapest.h"
#include "target/hopper/cut_outputs.h"
#include "target/hopper/group_times.h"
#include "target/hopper/role_schedules.h"
#include "target/hopper/room.h"
#include "target/hopper/scan_times.h"
#include "target/hopper/value_axes.h"
#include "tile/fragments.h"
#include "tile/order.h"
#include "tile/remembered.h"

namespace forge::target {
namespace {

using graph::Sums;
using ir::Opcode;
using plan::Schedule;
using plan::Strategy;
using tile::kBlock;

/// bf16 parts of operands where inputs are of 32 bits: with three, all of a float's bits; with two, 16 of them, which
/// the tolerance of gradients leaves room for.
constexpr int kPartsOfFloats = 3, kPartsOfGradients = 2;
/// Fewer segments do not make up for two more kernels, where one warp group does everything.
constexpr std::int64_t kLeastSegments = 3;

bool has_halves(const ir::Definition& definition) {
    return std::any_of(definition.inputs.begin(), definition.inputs.end(),
                       [](const ir::InputDecl& in) { return is_half(in.type.dtype); });
}

/// Whether what a scan leaves an epilogue has the range and the digits that outputs are to have: float16 may be too
/// narrow for it although it is not for the outputs, and outputs of 32 bits have more digits than operands of 16.
bool has_room_for_epilogue(const ir::Definition& definition) {
    const bool f16 = std::any_of(definition.inputs.begin(), definition.inputs.end(),
                                 [](const ir::InputDecl& in) { return in.type.dtype == F16; }),
               wide = std::any_of(definition.outputs.begin(), definition.outputs.end(),
                                  [](const ir::OutputDecl& out) { return !is_half(out.type.dtype); });
    return !f16 && !(wide && has_halves(definition));
}

/// Whether work that needs no state takes long steps of its own: it is then better done ahead, for all chunks at once.
bool has_long_steps(const ir::Function& program) {
    return std::any_of(program.ops.begin(), program.ops.end(), [](const ir::Op& op) {
        return op.code == Opcode::Inverse || op.code == Opcode::DecayMatmul || op.code == Opcode::DecayApply;
    });
}

/// Of programs whose inputs are of 32 bits, those with products that take no parts: what decays by channels is cut to
/// the 11 bits of tf32. Outputs of float16 would be stored from operands, which are bf16.
void refuse_floats(const ir::Definition& definition, const ir::Function& program) {
    const auto decays = [](const ir::Op& op) {
        return op.code == Opcode::DecayMatmul || op.code == Opcode::DecayApply;
    };
    const auto is_f16 = [](const ir::OutputDecl& out) { return out.type.dtype == DType::F16; };
    if (std::any_of(program.ops.begin(), program.ops.end(), decays))
        refuse(Reason::NoHalves, "channels decay by themselves");
    if (std::any_of(definition.outputs.begin(), definition.outputs.end(), is_f16))
        refuse(Reason::NoHalves, "an output is float16");
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

/// Shorter axes than these are left to other engines: matrices would be zeros for the most part. Of floats, whose
/// products are several, zeros cost more.
constexpr std::int64_t kLeastPadded = 16, kLeastPaddedFloats = kBlock / 2 + 1;

/// Sizes on chip of axes of matrices that are no whole blocks, from `least` numbers on.
tile::Sizes padded_sizes(const ir::Function& program, const tile::Sizes& sizes, std::int64_t least) {
    tile::Sizes padded;
    const auto pad = [&](const Dim& d) {
        const auto size = sizes.find(d.symbol);
        if (size == sizes.end() || size->second < least || d.factor * size->second % kBlock == 0) return;
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

Problem expected(const tile::Sizes& sizes, const FitWishes& wishes) {
    return {sizes, wishes.expected_tokens, 1, std::max<std::int64_t>(1, wishes.expected_tasks)};
}

/// The same schedule by several strategies.
std::vector<Schedule> by_strategies(const Schedule& s, const std::vector<Strategy>& strategies) {
    std::vector<Schedule> all(strategies.size(), s);
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (strategies[i] != s.strategy) all[i].segments = 1, all[i].summaries = 0;
        all[i].strategy = strategies[i];
    }
    return all;
}

/// Schedules by which tasks make less themselves: what they have in common is made ahead, and then, in forward passes,
/// what states need that need no others.
std::vector<Schedule> ways_ahead(Schedule s, const ir::Function& program, const tile::Sizes& held) {
    std::vector<Schedule> ways;
    if (!s.share) s.share = true, ways.push_back(s);
    if (graph::has_saved_states(program)) return ways;
    Schedule early = ways_of_roles(s, program, held).front();
    if (!early.early.empty()) ways.push_back(std::move(early));
    return ways;
}

/// Each task makes all that it needs; if that does not fit, less.
template <class Fit>
Schedule by_each_or_ahead(const Schedule& s, const ir::Function& program, const tile::Sizes& held, Fit fit) {
    try {
        return fit(s);
    } catch (const Refused& why) {
        if (s.strategy == Strategy::Segmented) throw;
        Schedule ahead = s;
        ahead.refused.push_back(why.refusal());
        ahead.refused.back().engine = "all by each task";
        for (const Schedule& way : ways_ahead(ahead, program, held)) try {
                return fit(way);
            } catch (const Refused&) {  // the first reason says more
            }
        throw;
    }
}

/// How matrices are held: 16-bit parts of inverses; whether wide inputs of scans that make everything may arrive as
/// their chunk begins, for which it waits; whether tiles that do not fit lie in global memory.
struct Way {
    int parts = 2;
    bool late = false, between = false, apart = false, far = false;
    bool floats = false;    ///< of inputs of 32 bits: matrices pass between kernels as floats (Schedule::float_images)
    bool epilogue = false;  ///< of outputs that mix axes: scans make all but their epilogue (Schedule::epilogue)
};

/// Refused if kernels leave each other more than a call's arguments hold.
plan::Plan plan_within_limits(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                              const Schedule& schedule) {
    plan::Plan plan = plan::make_plan(definition, program, sizes, schedule);
    if (plan.spills.size() > cuda::kMaxSpills) refuse(Reason::ManySpills, plan.spills.size(), cuda::kMaxSpills);
    return plan;
}

/// Scans that run side by side, where multiprocessors are as many as their tasks.
constexpr std::int64_t kScansBeside = 2;

/// Whether a chunk of a scan with roles takes what one of the groups computes, and not what all have to wait for.
bool is_bound_by_a_role(const plan::Plan& plan) {
    const double role = microseconds_of_roles(plan.scan().tiles);
    return role > 0 && role >= microseconds_of_chunk(plan, plan.scan());
}

/// Of many tasks a block has two, with what these have in common, or that is made ahead; else one warp group has each.
template <class Fit>
Schedule by_tiles_or_in_one_group(Schedule& s, Fit in_one_group, const tile::Sizes& sizes, const SharedMemory& memory,
                                  const FitWishes& wishes, const MakePlan& make_plan) {
    constexpr double kWorthIt = 0.93;
    try {
        const Schedule blocks = with_block_tiles(s, memory, make_plan);
        return tiles_if_sooner(make_plan(blocks), kWorthIt, wishes, memory, make_plan).value_or(blocks);
    } catch (const Refused& why) {
        s.refused.push_back(why.refusal());
        s.refused.back().engine = "blocks of tiles";
    }
    std::optional<TimedSchedule> apart;
    try {
        apart = with_tiles_apart(s, wishes, memory, make_plan);
    } catch (const Refused& why) {
        s.refused.push_back(why.refusal());
        s.refused.back().engine = "blocks of tiles";
        return in_one_group();
    }
    try {
        const Schedule alone = in_one_group();
        const double by_one = microseconds_of_groups(make_plan(alone), expected(sizes, wishes), memory);
        return by_one < apart->microseconds ? alone : apart->schedule;
    } catch (const Refused&) {
        return apart->schedule;
    }
}

/// Where outputs have a kernel of their own: by parts of another axis, if that pays, else of the whole.
Schedule fit_apart(Schedule s, const ir::Function& program, const tile::Sizes& held, const SharedMemory& memory,
                   bool two_tasks, const MakePlan& make_plan) {
    if (const auto cut = with_cut_outputs(s, held, memory, make_plan)) try {
            return with_one_group_or_late(*cut, memory, two_tasks, make_plan);
        } catch (const Refused& why) {  // without, kernels may fit
            s.refused.push_back(why.refusal());
            s.refused.back().engine = "outputs by parts";
        }
    return by_each_or_ahead(s, program, held, [&](const Schedule& tried) {
        return with_one_group_or_late(tried, memory, two_tasks, make_plan);
    });
}

/// Whether most of a call is the chain of its scan's chunks, which other strategies do not shorten.
bool is_mostly_scan(const plan::Plan& plan, const PricedCall& call) {
    constexpr double kMost = 0.6;
    const plan::Kernel& scan = plan.scan();
    const auto hops = static_cast<double>(extent(plan, scan, call.problem).hops);
    return hops * microseconds_of_hop(plan, scan, call.problem) >
           kMost * microseconds_of_groups(plan, call.problem, call.gpu);
}

/// By the first way with roles that fits, unless another one, or one group, takes less: other ways where what a chunk
/// takes is what one of its groups computes, or tiles need work ahead, and one group there and where work ahead of a
/// single pass takes long. Nothing, and why, if no way fits.
template <class InOneGroup>
std::optional<Schedule> by_ways_of_roles(Schedule& s, const std::vector<Schedule>& ways, const FitSchedule& fit,
                                         InOneGroup in_one_group, const PricedCall& call) {
    // The model says less of what more kernels take than of roles, least of those beside a scan.
    constexpr double kOtherWorthIt = 0.85, kOneGroupWorthIt = 0.92;
    std::optional<Schedule> best;
    double least = 0;
    const auto try_one = [&](const FitSchedule& by, const Schedule& way, double worth_it, const char* engine) {
        try {
            const Schedule fitted = by(way);
            const double takes = microseconds_of_groups(call.make_plan(fitted), call.problem, call.gpu);
            if (!best || takes < worth_it * least) best = fitted, least = takes;
        } catch (const Refused& why) {
            s.refused.push_back(why.refusal());
            s.refused.back().engine = engine;  // whether one warp group can is seen below
        }
    };
    for (const Schedule& way : ways) {
        const bool first = !best && !way.tiles_ahead;
        try_one(fit, way, kOtherWorthIt, "roles");
        if (!first || !best) continue;
        const plan::Plan plan = call.make_plan(*best);
        if (is_bound_by_a_role(plan)) continue;
        if (best->strategy == Strategy::Segmented || is_mostly_scan(plan, call)) return best;
        break;
    }
    if (best) try_one([&](const Schedule&) { return in_one_group(); }, s, kOneGroupWorthIt, "one group");
    return best;
}

/// Kernels whose scans are cut along the axis; of sequences as a whole.
Schedule fit_sequences(Way way, const ValueAxis& axis, Schedule s, const ir::Definition& definition,
                       const ir::Function& program, const tile::Sizes& sizes, const SharedMemory& memory,
                       const FitWishes& wishes) {
    const bool back = graph::has_saved_states(program), apart = back || (outputs_mix_axes(program) && !axis.epilogue);
    const tile::Sizes held = s.held(sizes);
    s.tile_axis = axis.name, s.between = axis.between, s.epilogue = axis.epilogue;
    s.trailing = graph::trailing_states(program, s.tile_axis, s.between, axis.ahead ? Sums::Ahead : Sums::Nowhere)
                     .value_or(std::set<std::string>());
    s.tile_chunks = (!apart && !s.epilogue) || plan::cuts_chunks(program, s.tile_axis);
    s.tiles = wishes.tiles ? wishes.tiles : held.at(s.tile_axis) / kBlock;
    s.tile_size = held.at(s.tile_axis) / s.tiles;
    const std::int64_t tasks = std::max<std::int64_t>(1, wishes.expected_tasks * s.tiles);
    s.scans_apart =
        (way.apart || (apart && kScansBeside * tasks <= memory.multiprocessors)) && graph::has_state_groups(program);
    s.share = axis.ahead || has_long_steps(program) ||
              (!back && tasks > memory.multiprocessors && repeats_much(program, held, s.tiles));
    const MakePlan make_plan = [&](const Schedule& tried) {
        return plan_within_limits(definition, program, sizes, tried);
    };
    if (apart) {
        const bool two_tasks = tasks > memory.multiprocessors;
        const auto fit = [&](const Schedule& tried) {
            return fit_apart(tried, program, held, memory, two_tasks, make_plan);
        };
        return back ? with_less_in_scans(s, program, held, fit, {make_plan, expected(sizes, wishes), memory}) : fit(s);
    }
    const bool several_groups = s.engine == plan::Engine::WarpGroups && s.operand_parts == 1;
    const auto in_one_group = [&] {
        const std::int64_t chunks = wishes.expected_tokens / kBlock,
                           segments =
                               std::min(kTasksPerProcessor * memory.multiprocessors / tasks, chunks / kLeastChunks);
        const auto alone = [&](const Schedule& tried) {
            const bool two_tasks = tried.strategy == Strategy::Segmented || tasks > memory.multiprocessors;
            return way.late ? with_one_group_or_late(tried, memory, two_tasks, make_plan)
                            : with_one_group(tried, memory, two_tasks, make_plan);
        };
        s = with_segments(s, segments, segments >= kLeastSegments, program, held, memory, wishes);
        const auto by_strategy = [&](const Schedule& tried) { return by_each_or_ahead(tried, program, held, alone); };
        const PricedCall call{make_plan, expected(sizes, wishes), memory};
        const auto in_whole_or_tiles = [&](const Schedule& tried) {
            return with_relay(with_whole_kernels(tried, by_strategy, call), wishes, memory, make_plan);
        };
        if (wishes.strategy) return in_whole_or_tiles(s);
        const auto by_any_strategy = [&](const Schedule& tried) {
            std::vector<Strategy> strategies = {Strategy::OnePass};
            if (!tried.epilogue) strategies.insert(strategies.end(), {Strategy::Fused, Strategy::Decoupled});
            if (s.strategy == Strategy::Segmented && tried.early.empty())
                strategies.insert(strategies.begin(), s.strategy);
            return cheapest(by_strategies(tried, strategies), in_whole_or_tiles, call);
        };
        return with_less_in_scans(s, program, held, by_any_strategy, call);
    };
    if (tasks <= memory.multiprocessors && several_groups) {
        const auto with_roles = [&](const Schedule& tried) {
            return by_roles(tried, definition, program, sizes, memory, wishes, make_plan);
        };
        const PricedCall call{make_plan, expected(sizes, wishes), memory};
        if (const auto roles = by_ways_of_roles(s, ways_of_roles(s, program, held), with_roles, in_one_group, call))
            return *roles;
    }
    const bool in_blocks = tasks > memory.multiprocessors && several_groups &&
                           wishes.strategy.value_or(Strategy::OnePass) == Strategy::OnePass;
    return in_blocks ? by_tiles_or_in_one_group(s, in_one_group, sizes, memory, wishes, make_plan) : in_one_group();
}

/// … or of their segments, one after the other.
Schedule fit_along(Way way, const ValueAxis& axis, const Schedule& s, const ir::Definition& definition,
                   const ir::Function& program, const tile::Sizes& sizes, const SharedMemory& memory,
                   const FitWishes& wishes) {
    const Schedule whole = fit_sequences(way, axis, s, definition, program, sizes, memory, wishes);
    return with_relay(whole, wishes, memory,
                      [&](const Schedule& tried) { return plan_within_limits(definition, program, sizes, tried); });
}

/// Along the first axis that kernels can be cut along.
Schedule fit_as_wished(Way way, const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                       const SharedMemory& memory, const FitWishes& wishes) {
    if (std::none_of(program.ops.begin(), program.ops.end(), [](const ir::Op& op) { return ir::is_matmul(op.code); }))
        refuse(Reason::NoProducts);
    if (graph::has_given_states(program)) refuse(Reason::GivenStates);
    if (wishes.chunk != 0 && wishes.chunk != kBlock) refuse(Reason::OtherChunk, wishes.chunk);
    const bool back = graph::has_saved_states(program);
    Schedule s;
    const bool epilogue = way.epilogue || (wishes.strategy && !makes_outputs_apart(*wishes.strategy)),
               apart = back || (outputs_mix_axes(program) && !epilogue);
    s.strategy = wishes.strategy.value_or(apart ? Strategy::Fused : Strategy::OnePass);
    s.chunk = kBlock;
    s.vector_width = 4;
    s.shared_memory = true;
    s.engine = wishes.fragments, s.processor_bytes = memory.processor_bytes;
    s.operand_parts = has_halves(definition) ? 1 : back ? kPartsOfGradients : kPartsOfFloats;
    s.inverse_parts = way.parts;
    s.float_images = way.floats;
    if (s.operand_parts > 1) refuse_floats(definition, program);
    if (way.far)
        s.shared_floats = memory.bytes / static_cast<std::int64_t>(sizeof(float)),
        s.far_blocks = memory.multiprocessors;
    s.block_threads = kGroupThreads;
    s.padded = padded_sizes(program, sizes, s.operand_parts == 1 ? kLeastPadded : kLeastPaddedFloats);
    std::optional<Refused> first;
    for (const ValueAxis& axis : value_axes(program, s.strategy, s.held(sizes), way.between)) try {
            return fit_along(way, axis, s, definition, program, sizes, memory, wishes);
        } catch (const Refused& why) {
            if (!first) first = why;
            s.refused.push_back(why.refusal());
            s.refused.back().engine = fmt::format("parts of {}", axis.name);
        }
    throw Refused(*first);
}

/// Of programs whose outputs only a kernel of their own can make, or finish, by the cheapest strategy.
Schedule fit_with_inverses(Way way, const ir::Definition& definition, const ir::Function& program,
                           const tile::Sizes& sizes, const SharedMemory& memory, const FitWishes& wishes) {
    if (wishes.strategy || graph::has_saved_states(program) || !outputs_mix_axes(program))
        return fit_as_wished(way, definition, program, sizes, memory, wishes);
    const auto fit = [&](const Schedule& tried) {
        FitWishes these = wishes;
        Way this_way = way;
        this_way.epilogue = tried.epilogue;
        if (!tried.epilogue) these.strategy = tried.strategy;
        return fit_as_wished(this_way, definition, program, sizes, memory, these);
    };
    std::vector<Schedule> tried(2);
    tried[0].strategy = Strategy::Fused, tried[1].strategy = Strategy::Decoupled;
    if (has_room_for_epilogue(definition)) tried.emplace_back().epilogue = true;
    const MakePlan make_plan = [&](const Schedule& s) { return plan_within_limits(definition, program, sizes, s); };
    return cheapest(tried, fit, {make_plan, expected(sizes, wishes), memory});
}

/// In the order in which they are tried. Inverses have two parts, for the digits that products of correlated keys take
/// from them; where kernels with such do not fit, one, with which results are as accurate as with all other operands'.
/// Gradients have one: what the forward pass of a backward pass leaves for later kernels is a tenth less. Where none
/// fit, scans that make everything wait for wide inputs, or gradients have a kernel between scans or scans for groups
/// of states; and then tiles of floats lie in global memory. Where shared memory is small, scans that wait are among
/// what is priced, as most would.
std::vector<Way> ways_of_halves(const ir::Function& program, plan::Engine engine) {
    const bool inverts = std::any_of(program.ops.begin(), program.ops.end(),
                                     [](const ir::Op& op) { return op.code == Opcode::Inverse; });
    const bool back = graph::has_saved_states(program);
    std::vector<Way> ways = {{.late = true}, {.late = true, .far = true}};
    if (back)
        ways = {{.between = true},
                {.apart = true},
                {.between = true, .apart = true},
                {.far = true},
                {.between = true, .apart = true, .far = true}};
    const Way simplest{.late = engine == plan::Engine::Warps && !back};
    if (!simplest.late) ways.insert(ways.begin(), simplest);
    if (inverts)
        for (Way& way : ways) way.parts = 1;
    if (inverts && !back) ways.insert(ways.begin(), simplest);
    return ways;
}

/// Two parts of a matrix have the bytes of its floats, and save each kernel that reads it the splitting; three have
/// half as many more, and are stored from memory that kernels are short of. With tiles in global memory nothing would
/// be gained beside portable kernels, which multiply floats as they are.
std::vector<Way> ways_of_floats(const ir::Function& program) {
    if (graph::has_saved_states(program)) return {{}, {.floats = true}};  // their scans wait for wide inputs anyway
    return {{.floats = true}, {.late = true, .floats = true}};
}

/// By the first of these ways that fits.
Schedule fit_in_turn(const std::vector<Way>& ways, const ir::Definition& definition, const ir::Function& program,
                     const tile::Sizes& sizes, const SharedMemory& memory, const FitWishes& wishes) {
    std::optional<Refused> first;
    for (const Way& way : ways) try {
            return fit_with_inverses(way, definition, program, sizes, memory, wishes);
        } catch (const Refused& why) {  // the first reason says most
            if (!first) first = why;
        }
    throw Refused(*first);
}

}  // namespace

Schedule fit_warp_groups(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                         const SharedMemory& memory, const FitWishes& wishes) {
    constexpr double kMuchLess = 0.85;
    const tile::Remembering kernels;
    const auto in_turn = [&](const std::vector<Way>& ways) {
        return fit_in_turn(ways, definition, program, sizes, memory, wishes);
    };
    if (!has_halves(definition)) return in_turn(ways_of_floats(program));
    std::vector<Way> ways = ways_of_halves(program, wishes.fragments);
    Schedule found = in_turn(ways);
    const bool fewer_parts = ways.back().parts < ways.front().parts;
    if (wishes.fragments != plan::Engine::Warps || !fewer_parts || found.inverse_parts < ways.front().parts)
        return found;
    // Strategies that take much less time may fit where inverses have one part.
    const auto takes = [&](const Schedule& s) {
        return microseconds_of_groups(plan_within_limits(definition, program, sizes, s), expected(sizes, wishes),
                                      memory);
    };
    try {
        const Schedule other = in_turn({ways.begin() + 1, ways.end()});
        return takes(other) < kMuchLess * takes(found) ? other : found;
    } catch (const Refused&) {  // then it stays as it is
        return found;
    }
}

}  // namespace forge::target
