#include "tests/kernel/plans.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <stdexcept>

#include "check/problem.h"
#include "forge/error.h"
#include "frontend/axes.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "graph/passes.h"
#include "graph/pipeline.h"
#include "program/entry_point.h"
#include "target/channels/channels.h"
#include "target/hopper/warp_groups.h"

namespace forge::tests {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kFewTasks = 32, kManyTasks = 512;  ///< several warp groups per task, or one
constexpr target::SharedMemory kHopper{220 * kKiB, 132, 227 * kKiB}, kSmallest{92 * kKiB, 132, 92 * kKiB};

struct Sizes {
    std::int64_t k, v;
};

/// A program in its types, joined.
struct Joined {
    ir::Definition definition;
    ir::Function program;
};
Joined joined(const Entry& entry, DType dtype) {
    const ir::Definition def = frontend::with_dtype(entry.make().define(), dtype);
    return {def, graph::optimize(frontend::join(def))};
}

/// Nothing where the engine refuses the program.
template <class Fit>
void plan_if_fit(const Joined& j, const tile::Sizes& sizes, const std::string& name, const UsePlan& use, Fit fit) {
    std::optional<plan::Plan> plan;
    try {
        plan = plan::make_plan(j.definition, j.program, sizes, fit());
    } catch (const Refused&) {
    } catch (const CompileError&) {}
    if (plan) use(name, *plan);
}

/// Entry points other than the forward pass, by the portable kernels; nothing for what a definition lacks.
void each_other_entry(const Entry& entry, const UsePlan& use) {
    const ir::Definition def = frontend::with_own_axes(frontend::with_dtype(entry.make().define(), BF16));
    for (const char* name : {"decode", "backward"}) {
        std::optional<program::EntryPoint> point;
        try {
            point = program::entry_named(name, def);
        } catch (const std::runtime_error&) {
            continue;
        }
        const Joined j{point->tensors, point->optimised};
        const tile::Sizes sizes =
            frontend::own_sizes(def, check::sizes_for(entry.make().define(), {.sizes = {{"K", 64}, {"V", 96}}}));
        for (const std::int64_t tasks : {kFewTasks, 64 * kManyTasks})
            plan_if_fit(j, sizes, fmt::format("{}, portable, {}, {} tasks", entry.name, name, tasks), use, [&] {
                target::FitWishes wishes;
                wishes.strategy = plan::Strategy::OnePass, wishes.chunk = point->chunk, wishes.expected_tasks = tasks;
                return target::fit_shared_memory(j.definition, j.program, sizes, kHopper, wishes);
            });
    }
}

/// Backward passes in kernels for warp groups: of all inputs that have tokens.
void each_backward_plan(const Entry& entry, const UsePlan& use) {
    const ir::Definition def = frontend::with_own_axes(frontend::with_dtype(entry.make().define(), BF16));
    std::string inputs;
    for (const ir::InputDecl& in : def.inputs)
        if (in.role == ir::Role::Input) inputs += (inputs.empty() ? "" : ", ") + in.name;
    const program::EntryPoint point = program::entry_named("backward of " + inputs, def);
    const Joined j{point.tensors, point.optimised};
    for (const Sizes s : {Sizes{64, 64}, {128, 128}}) {
        const check::Problem problem{.sizes = {{"K", s.k}, {"V", s.v}}};
        const tile::Sizes sizes = frontend::own_sizes(def, check::sizes_for(entry.make().define(), problem));
        plan_if_fit(j, sizes, fmt::format("{}, warp groups, backward, bf16, {} x {}", entry.name, s.k, s.v), use, [&] {
            target::FitWishes wishes;
            wishes.strategy = plan::Strategy::Fused, wishes.expected_tasks = kFewTasks, wishes.chunk = point.chunk;
            return target::fit_warp_groups(j.definition, j.program, sizes, kHopper, wishes);
        });
    }
}

}  // namespace

void each_portable_plan(const Entry& entry, const UsePlan& use) {
    each_other_entry(entry, use);
    for (const DType dtype : {F32, BF16}) {
        const Joined j = joined(entry, dtype);
        for (const Sizes s : {Sizes{60, 100}, {128, 128}, {256, 256}})
            for (const auto& memory : {kHopper, kSmallest})
                for (const plan::Strategy strategy : plan::all_strategies()) {
                    const tile::Sizes sizes = check::sizes_for(j.definition, {.sizes = {{"K", s.k}, {"V", s.v}}});
                    const std::string name =
                        fmt::format("{}, portable, {}, {}, {} x {}, {} KiB", entry.name, plan::to_string(strategy),
                                    to_string(dtype), s.k, s.v, memory.bytes / kKiB);
                    const auto fit = [&](bool tile_chunks) {
                        target::FitWishes wishes;
                        wishes.strategy = strategy, wishes.expected_tasks = kFewTasks, wishes.tile_chunks = tile_chunks;
                        return target::fit_shared_memory(j.definition, j.program, sizes, memory, wishes);
                    };
                    plan_if_fit(j, sizes, name, use, [&] { return fit(true); });
                    if (strategy == plan::Strategy::Fused)
                        plan_if_fit(j, sizes, name + ", whole chunks", use, [&] { return fit(false); });
                }
    }
}

void each_warp_group_plan(const Entry& entry, const UsePlan& use) {
    each_backward_plan(entry, use);
    for (const DType dtype : {BF16, F16})
        for (const bool keeps_states : {false, true}) {
            if (dtype == F16 && keeps_states) continue;
            Joined j = joined(entry, dtype);
            if (keeps_states) j.program = graph::with_chunk_states(j.program);
            for (const Sizes s : {Sizes{64, 64}, {128, 128}, {64, 256}, {192, 128}})
                for (const std::int64_t tasks : {kFewTasks, kManyTasks})
                    for (const plan::Strategy strategy : plan::all_strategies()) {
                        const bool in_pieces = strategy == plan::Strategy::OnePass && tasks == kManyTasks;
                        if (s.k == 192 && !in_pieces) continue;  // else states are wide, and nothing is new
                        const tile::Sizes sizes = check::sizes_for(j.definition, {.sizes = {{"K", s.k}, {"V", s.v}}});
                        const std::string name = fmt::format("{}, warp groups, {}, {}, {} x {}, {} tasks{}", entry.name,
                                                             plan::to_string(strategy), to_string(dtype), s.k, s.v,
                                                             tasks, keeps_states ? ", states before chunks" : "");
                        const auto fit = [&](std::int64_t segments) {
                            target::FitWishes wishes;
                            wishes.strategy = strategy, wishes.expected_tasks = tasks, wishes.segments = segments;
                            wishes.expected_tokens = 32768;
                            return target::fit_warp_groups(j.definition, j.program, sizes, kHopper, wishes);
                        };
                        plan_if_fit(j, sizes, name, use, [&] { return fit(0); });
                        if (in_pieces && s.k == s.v && dtype == BF16)
                            plan_if_fit(j, sizes, name + ", segments one after the other", use, [&] { return fit(3); });
                    }
        }
}

void each_channel_plan(const Entry& entry, const UsePlan& use) {
    for (const DType dtype : {F32, BF16}) {
        const Joined j = joined(entry, dtype);
        for (const int threads : {64, 256, 512})
            for (const int multiprocessors : {0, 1})  // through the workspace, or by clusters
                for (const std::int64_t channels : {60, 1024}) {
                    const tile::Sizes sizes =
                        check::sizes_for(j.definition, {.sizes = {{"D", channels}, {"K", channels}, {"V", channels}}});
                    const std::string name =
                        fmt::format("{}, channels, {}, {} threads, {} channels, {}", entry.name, to_string(dtype),
                                    threads, channels, multiprocessors == 0 ? "look back" : "clusters");
                    plan_if_fit(j, sizes, name, use, [&] {
                        return target::fit_channels(j.definition, j.program, sizes, {}, threads, multiprocessors);
                    });
                }
    }
}

namespace {
plan::Plan find_plan(const std::string& name) {
    std::optional<plan::Plan> found;
    const auto keep = [&](const std::string& other, const plan::Plan& plan) {
        if (other == name) found = plan;
    };
    const Entry& entry = program_named(name.substr(0, name.find(',')));
    if (name.find(", portable,") != std::string::npos) each_portable_plan(entry, keep);
    else if (name.find(", channels,") != std::string::npos) each_channel_plan(entry, keep);
    else each_warp_group_plan(entry, keep);
    if (!found) throw std::runtime_error("no plan is called " + name);
    return *found;
}
}  // namespace

const plan::Plan& plan_named(const std::string& name) {
    static std::map<std::string, plan::Plan> plans;
    auto found = plans.find(name);
    if (found == plans.end()) found = plans.emplace(name, find_plan(name)).first;
    return found->second;
}

}  // namespace forge::tests
