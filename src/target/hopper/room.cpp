#include "target/hopper/room.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ir/definition.h"
#include "plan/place.h"
#include "target/hopper/group_times.h"
#include "tile/fragments.h"
#include "tile/text.h"

namespace forge::target {

using plan::Schedule;

namespace {

/// Of a multiprocessor, for which joint kernels (plan::KernelGraph::joint) should fit: with 2, those are split that
/// hold more, which makes their text up to twice as long.
constexpr std::int64_t kTasksOfJoint = 2;

}  // namespace

std::int64_t all_bytes(const SharedMemory& memory) { return std::max(memory.bytes, memory.all_bytes); }

void Needs::refuse_for(Reason reason, std::int64_t bytes) const {
    const bool in_order_is = most <= bytes;
    refuse(reason, in_order_is ? in_order_name : most_name, in_order_is ? in_order : most, bytes);
}

Needs needs_of(const plan::Plan& plan) {
    Needs needs;
    for (const plan::Kernel& kernel : plan.kernels) {
        const std::int64_t bytes = bytes_of_tiles(kernel);
        if (kernel.graph.loop == plan::Loop::Chunks) needs.chunks = std::max(needs.chunks, bytes);
        const bool in_order = plan::is_scan(kernel.graph.loop);
        std::int64_t& largest = in_order ? needs.in_order : needs.most;
        if (bytes > largest) largest = bytes, (in_order ? needs.in_order_name : needs.most_name) = kernel.graph.name;
    }
    return needs;
}

namespace {

/// Whether a kernel takes columns of matrices apart, or joins them. Where these are whole blocks, and each a matrix of
/// its own, nothing is left of that; else they lie in tiles of floats.
bool joins_columns(const ir::Function& fn) {
    return std::any_of(fn.ops.begin(), fn.ops.end(), [](const ir::Op& op) {
        return (op.code == ir::Opcode::Part || op.code == ir::Opcode::Concat) && op.type.rank() == 2 &&
               (op.attrs.dim == 1 || op.attrs.dim == -1);
    });
}

/// Whether all that a scan does is to turn parts of states against each other, and to add what chunks add: of blocks
/// these are matrices of their own, in registers. Products had better be of whole states.
bool turns_states(const plan::Kernel& kernel) {
    const ir::Function& fn = kernel.graph.fn;
    if (kernel.graph.loop != plan::Loop::Scan || kernel.graph.apart) return false;
    const auto is_of_rows = [&](const ir::Op& op) {
        return (op.code == ir::Opcode::Part || op.code == ir::Opcode::Concat) && op.type.rank() == 2 &&
               op.attrs.dim == 0 && op.type.shape[0].symbol != ir::kChunkSymbol;
    };
    const auto is_product = [](const ir::Op& op) { return ir::is_matmul(op.code); };
    return std::any_of(fn.ops.begin(), fn.ops.end(), is_of_rows) &&
           std::none_of(fn.ops.begin(), fn.ops.end(), is_product) &&
           std::all_of(fn.results.begin(), fn.results.end(), [&](const ir::Result& r) {
               const bool state = r.role == ir::Role::State && fn.op(r.value).type.rank() == 2;
               return state || r.role == ir::Role::Input || r.role == ir::Role::Spill;
           });
}

}  // namespace

Schedule with_split_axes(Schedule s, const SharedMemory& memory, const MakePlan& make_plan) {
    for (const plan::Kernel& kernel : make_plan(s.without_far_tiles()).kernels) {
        const std::int64_t room = memory.bytes / (kernel.graph.joint ? kTasksOfJoint : 1);
        if (!kernel.graph.own_axis.empty() || turns_states(kernel) ||
            (kernel.graph.loop == plan::Loop::Chunks &&
             (bytes_of_tiles(kernel) > room || joins_columns(kernel.graph.fn))))
            s.split.insert(kernel.graph.name);
    }
    return s;
}

namespace {

/// Where tiles lie in global memory, kernels of single chunks that do not fit even so as two, or as four, or eight.
Schedule with_fitting_halves(Schedule s, const SharedMemory& memory, const MakePlan& make_plan) {
    constexpr int kRounds = 3;
    if (s.far_blocks == 0) return s;
    for (int round = 0; round < kRounds; ++round) {
        const std::set<std::string> before = s.halved;
        for (const plan::Kernel& kernel : make_plan(s).kernels)
            if (kernel.graph.loop == plan::Loop::Chunks && bytes_of_tiles(kernel) > memory.bytes)
                s.halved.insert(kernel.graph.name);
        if (s.halved == before) break;
        s = with_split_axes(s, memory, make_plan);
    }
    return s;
}

/// Whether a kernel of single chunks waits for its instructions so much that it should be two.
bool is_too_long(const plan::Kernel& kernel) {
    constexpr std::int64_t kTooLong = tile::kKeptText * 11 / 10;
    return kernel.graph.loop == plan::Loop::Chunks && kernel.graph.fn.results.size() > 1 &&
           tile::text_bytes(kernel.tiles) > kTooLong;
}

double microseconds_of_own_chunk(const plan::Kernel& kernel) {
    return microseconds_of_chunks(kernel, 1, static_cast<double>(tile::tasks_at_once(kernel.tiles)), 1);
}

/// Whether a kernel's halves fit, with texts that are kept, or shorter by a fifth, and do not make too much twice. They
/// may take a little more where they can be halved again.
bool are_better(const plan::Plan& halved, const plan::Kernel& whole, const SharedMemory& memory) {
    constexpr double kShorter = 0.8, kNearlyKept = 1.05, kMore = 1.1;
    const double enough = std::max(kNearlyKept * static_cast<double>(tile::kKeptText),
                                   kShorter * static_cast<double>(tile::text_bytes(whole.tiles)));
    double both = 0;
    for (const plan::Kernel& kernel : halved.kernels) {
        const std::string& name = kernel.graph.name;
        if (name != whole.graph.name + "_first" && name != whole.graph.name + "_second") continue;
        const bool fits = bytes_of_tiles(kernel) <= memory.bytes;
        if (!fits || static_cast<double>(tile::text_bytes(kernel.tiles)) > enough) return false;
        both += microseconds_of_own_chunk(kernel);
    }
    return both <= kMore * microseconds_of_own_chunk(whole);
}

/// Kernels whose text is too long as two, or as four, or eight; where tiles lie in global memory, that is what binds.
Schedule with_short_halves(Schedule s, const SharedMemory& memory, const MakePlan& make_plan) {
    constexpr int kRounds = 3;
    if (s.far_blocks > 0) return s;
    std::set<std::string> whole;
    plan::Plan plan = make_plan(s);
    for (int round = 0; round < kRounds; ++round) {
        std::set<std::string> cut = s.halved;
        for (const plan::Kernel& kernel : plan.kernels)
            if (is_too_long(kernel) && !whole.contains(kernel.graph.name)) cut.insert(kernel.graph.name);
        if (cut == s.halved) break;
        Schedule halved = s;
        halved.halved = cut;
        halved = with_split_axes(std::move(halved), memory, make_plan);
        plan::Plan pieces = make_plan(halved);
        for (const plan::Kernel& kernel : plan.kernels)
            if (const std::string& name = kernel.graph.name;
                cut.contains(name) && !s.halved.contains(name) && !are_better(pieces, kernel, memory))
                whole.insert(name), cut.erase(name);
        if (cut != halved.halved) {
            halved = s, halved.halved = cut;
            halved = with_split_axes(std::move(halved), memory, make_plan);
            pieces = make_plan(halved);
        }
        s = std::move(halved), plan = std::move(pieces);
    }
    return s;
}

Schedule with_halves(Schedule s, const SharedMemory& memory, const MakePlan& make_plan) {
    return with_short_halves(with_fitting_halves(std::move(s), memory, make_plan), memory, make_plan);
}

/// Nothing if kernels do not fit, and what they need.
std::optional<Schedule> staged(Schedule s, const SharedMemory& memory, bool two_tasks, const MakePlan& make_plan,
                               Needs& needs) {
    s = with_halves(with_split_axes(s, memory, make_plan), memory, make_plan);
    for (s.stages = kMostStages; s.stages >= 2; --s.stages) {
        needs = needs_of(make_plan(s));
        if (needs.chunks > memory.bytes) return std::nullopt;  // whatever the stages
        const bool fits = std::max(needs.most, needs.in_order) <= memory.bytes;
        if (fits && (s.stages == 2 || !two_tasks || 2 * needs.in_order <= memory.bytes)) return s;
    }
    return std::nullopt;
}

}  // namespace

Schedule with_stages(Schedule s, const SharedMemory& memory, bool two_tasks, const MakePlan& make_plan) {
    Needs needs;
    if (const auto fitted = staged(std::move(s), memory, two_tasks, make_plan, needs)) return *fitted;
    needs.refuse_for(Reason::SharedMemory, memory.bytes);
}

namespace {

/// The same, with a warp group beside each task that asks for its inputs, if kernels can have one; of one task per
/// multiprocessor, or of two.
Schedule with_producer(Schedule s, const SharedMemory& memory, bool two_tasks, const MakePlan& make_plan) {
    if (s.wide_late || s.engine != plan::Engine::WarpGroups) return s;
    const auto with_images_apart = [&](bool apart) {
        Schedule tried = s;
        tried.producer = true, tried.paired = two_tasks, tried.images_apart = apart;
        return with_stages(tried, memory, two_tasks, make_plan);
    };
    try {
        const Schedule shared = with_images_apart(false);
        const plan::Plan plan = make_plan(shared);
        const bool any = std::any_of(plan.kernels.begin(), plan.kernels.end(),
                                     [](const plan::Kernel& kernel) { return kernel.tiles.roles.has_value(); });
        if (!any || (two_tasks && 2 * needs_of(plan).in_order > memory.bytes)) return s;
        if (two_tasks) return shared;
        s = shared;
        const Schedule apart = with_images_apart(true);
        return apart.stages == shared.stages ? apart : shared;
    } catch (const Refused&) {
        return s;
    }
}

/// Whether a group has registers enough for a kernel where another one and two producers have theirs. Beside a state a
/// product that is not added to it holds as many again.
bool is_small(const ir::Function& fn) {
    constexpr std::int64_t kRegisters = 160;  // of fragments
    return tile::fragment_registers(fn) <= kRegisters &&
           std::all_of(fn.results.begin(), fn.results.end(), [&](const ir::Result& r) {
               const ir::Op& next = fn.op(r.value);
               return r.role != ir::Role::State || next.type.rank() < 2 || next.code == ir::Opcode::MatmulAdd;
           });
}

/// Whether two tasks of a multiprocessor are sooner done with a producer each: in one pass that makes everything, whose
/// vectors producers make too.
bool are_better_paired(const plan::Plan& plan) {
    const Schedule& s = plan.schedule;
    return !s.share && s.strategy == plan::Strategy::OnePass &&
           std::all_of(plan.kernels.begin(), plan.kernels.end(),
                       [](const plan::Kernel& kernel) { return is_small(kernel.tiles.fn); });
}

/// A producer where a task is alone on its multiprocessor, or where pairs may have two and are better so.
Schedule with_producer_where_it_pays(const Schedule& fitted, const SharedMemory& memory, bool two_tasks, bool pairs,
                                     const MakePlan& make_plan) {
    const plan::Plan plan = make_plan(fitted);
    const bool share = two_tasks && 2 * needs_of(plan).in_order <= memory.bytes;
    return share && !(pairs && are_better_paired(plan)) ? fitted : with_producer(fitted, memory, share, make_plan);
}

}  // namespace

Schedule with_one_group(const Schedule& s, const SharedMemory& memory, bool two_tasks, const MakePlan& make_plan) {
    return with_producer_where_it_pays(with_stages(s, memory, two_tasks, make_plan), memory, two_tasks, true,
                                       make_plan);
}

Schedule with_one_group_or_late(Schedule s, const SharedMemory& memory, bool two_tasks, const MakePlan& make_plan) {
    Needs needs;
    if (const auto fitted = staged(s, memory, two_tasks, make_plan, needs))
        return with_producer_where_it_pays(*fitted, memory, two_tasks, false, make_plan);
    const Needs first = needs;
    for (const bool all : {false, true}) {
        if (needs.chunks > memory.bytes) break;  // it is no scan that waits
        s.wide_late = true, s.all_late = all;
        if (const auto fitted = staged(s, memory, two_tasks, make_plan, needs)) return *fitted;
    }
    first.refuse_for(Reason::SharedMemory, memory.bytes);
}

}  // namespace forge::target
