#include "tests/random/gpu_plans.h"

#include <fmt/format.h>

#include "build/cuda_binary.h"
#include "compile/driver.h"
#include "emit/cuda/emit_cuda.h"
#include "forge/error.h"
#include "frontend/axes.h"
#include "frontend/join.h"
#include "graph/passes.h"
#include "graph/pipeline.h"
#include "graph/saved_states.h"
#include "graph/trailing_states.h"
#include "program/entry_point.h"
#include "support/environment.h"
#include "target/channels/channels.h"
#include "target/choose.h"
#include "target/hopper/role_schedules.h"
#include "target/hopper/room.h"
#include "target/hopper/warp_groups.h"
#include "tests/random/examine.h"
#include "tests/random/gradients.h"

namespace forge::fuzz {
namespace {

constexpr std::int64_t kFewTasks = 32, kManyTasks = 512;  ///< several warp groups per task, or one
constexpr std::int64_t kOtherBytes = 7 * 1024;            ///< of shared memory, that are not tiles

/// The definition and program in the final types.
struct Typed {
    explicit Typed(const Program& p)
        : def(frontend::with_own_axes(frontend::with_dtype(p.def, p.dtype))),
          program(graph::optimize(frontend::join(def))),
          sizes(frontend::own_sizes(def, p.sizes)) {}
    /// Whether the program is to leave the states before chunks.
    bool keep_states(Decisions& d, const std::string& name) {
        constexpr double kSeldom = 0.15;
        if (def.states.empty() || !d.flip(name + ".kept", kSeldom)) return false;
        program = graph::with_chunk_states(program);
        return true;
    }
    ir::Definition def;
    ir::Function program;
    tile::Sizes sizes;
};

std::optional<plan::Strategy> choose_strategy(Decisions& d, const std::string& name) {
    const int choice = d.pick(name + ".strategy", {4, 1, 1, 1, 1});
    if (choice == 0) return std::nullopt;
    return plan::all_strategies()[static_cast<std::size_t>(choice - 1)];
}

target::SharedMemory memory_of(const Target& target) {
    return {target.shared_bytes - kOtherBytes, target.multiprocessors, target.shared_bytes, target.shared_bytes + 1024};
}

/// Less than there is, at times: a random program's matrices are small.
target::SharedMemory short_memory_of(const Target& target, Decisions& d, const std::string& name) {
    constexpr std::int64_t kParts[] = {1, 4, 8, 16};
    target::SharedMemory memory = memory_of(target);
    memory.bytes /= kParts[d.pick(name + ".memory", {4, 1, 1, 1})];
    return memory;
}

/// Kernels that a program would have if others did not fit; `plan`: of this definition and program, on this GPU.
plan::Plan with_other_kernels(Decisions& d, const std::string& name, const ir::Definition& def,
                              const ir::Function& program, plan::Plan plan, const Target& gpu) {
    constexpr double kSeldom = 0.25;
    plan::Schedule s = plan.schedule;
    const bool outputs_apart = s.strategy == plan::Strategy::Fused || s.strategy == plan::Strategy::Decoupled,
               back = graph::has_saved_states(program);
    if (!s.has_fragments() || s.far_blocks > 0) return plan;
    const bool several_groups = s.engine == plan::Engine::WarpGroups;
    bool other = false;
    const auto flips = [&](const char* what) { return d.flip(name + what, kSeldom) && (other = true); };
    if (outputs_apart) {
        if (flips(".scans_apart")) s.scans_apart = true;
        if (back && s.strategy == plan::Strategy::Fused && !s.between && flips(".between"))
            if (const auto trailing = graph::trailing_states(program, s.tile_axis, true, graph::Sums::Ahead))
                s.between = s.share = true, s.trailing = *trailing;
        if (!s.producer && flips(".late")) s.wide_late = s.all_late = true;
        if (flips(".whole"))
            for (const plan::Kernel& kernel : plan.kernels)
                if (kernel.graph.loop == plan::Loop::Chunks && kernel.cut.axis == s.tile_axis)
                    s.whole.insert(kernel.graph.name);
        if (flips(".halved"))
            for (const plan::Kernel& kernel : plan.kernels)
                if (kernel.graph.loop == plan::Loop::Chunks) s.halved.insert(kernel.graph.name);
    }
    if (several_groups && s.strategy == plan::Strategy::OnePass && s.block_tiles == 1 && s.tiles % 2 == 0 &&
        s.operand_parts == 1 && s.early.empty() && flips(".apart")) {
        s.share = true, s.block_tiles = 2, s.stages = 2;
        s.output_groups = s.beside_groups = 0, s.producer = s.images_apart = s.wide_late = s.all_late = false;
    }
    if (s.output_groups > 0 && s.strategy == plan::Strategy::OnePass && flips(".tiles_ahead"))
        s.tiles_ahead = s.share = true, s.beside_groups = 0;
    if (s.share && s.beside_groups == 0 && flips(".folds")) s.folds = !s.folds;
    if (!other) return plan;
    try {
        plan::Plan made = plan::make_plan(def, program, plan.sizes, s);
        const target::Needs needs = target::needs_of(made);
        return std::max(needs.most, needs.in_order) <= memory_of(gpu).bytes ? made : plan;
    } catch (const Refused&) {
        return plan;
    }
}

/// In one pass, but of segments that are tasks one after the other.
plan::Plan with_relay(Decisions& d, const std::string& name, const ir::Definition& def, const ir::Function& program,
                      plan::Plan plan) {
    constexpr double kSeldom = 0.25;
    if (!plan.schedule.has_fragments() || !target::may_relay(plan) || !d.flip(name + ".relay", kSeldom)) return plan;
    plan::Schedule s = plan.schedule;
    s.segments = 3, s.relay_lanes = 0, s.beside_groups = 0;
    return plan::make_plan(def, program, plan.sizes, s);
}

/// … or is so in other entries than its own, which segments cannot have either.
bool is_not_affine(const CompileError& error) {
    const std::string& what = error.diagnostics()[0].what;
    return what.find("is not affine") != std::string::npos || what.find("is coupled with other") != std::string::npos;
}

/// A plan, unless the strategy, which was asked for, cannot be had for states that are not affine.
template <class Make>
std::optional<GpuPlan> unless_not_affine(bool asked, Make&& make) {
    try {
        return make();
    } catch (const CompileError& error) {
        if (!asked || !is_not_affine(error)) throw;
        return std::nullopt;
    }
}

}  // namespace

std::optional<GpuPlan> warp_groups_plan(Subject& s, const std::string& name, Tally& tally) {
    Typed typed(s.program);
    const bool keeps = typed.keep_states(s.d, name);
    target::FitWishes wishes;
    wishes.strategy = choose_strategy(s.d, name);
    wishes.expected_tasks = s.d.flip(name + ".many", 0.35) ? kManyTasks : kFewTasks;
    wishes.expected_tokens = 32768;
    if (s.d.flip(name + ".short", 0.2)) wishes.expected_tokens = 256;
    if (s.d.flip(name + ".whole", 0.2)) wishes.tiles = 1;
    Target gpu = kH200;
    if (s.d.flip(name + ".by_warps", 0.3)) {
        wishes.fragments = plan::Engine::Warps;
        const Target gpus[] = {kA100, kAda, kH200};
        gpu = gpus[s.d.pick(name + ".gpu", {2, 2, 1})];
    }
    return unless_not_affine(wishes.strategy.has_value(), [&]() -> std::optional<GpuPlan> {
        try {
            const plan::Schedule schedule =
                target::fit_warp_groups(typed.def, typed.program, typed.sizes, memory_of(gpu), wishes);
            plan::Plan plan = plan::make_plan(typed.def, typed.program, typed.sizes, schedule);
            plan = with_other_kernels(s.d, name, typed.def, typed.program, std::move(plan), gpu);
            plan = with_relay(s.d, name, typed.def, typed.program, std::move(plan));
            return GpuPlan{plan::to_string(plan.schedule), std::move(plan), keeps};
        } catch (const plan::NotForWarpGroups& reason) {
            ++tally[fmt::format("not for warp groups: {}", reason.what())];
            return std::nullopt;
        }
    });
}

namespace {

std::optional<GpuPlan> channels_plan(const ir::Definition& tensors, const ir::Function& program,
                                     const tile::Sizes& sizes, Decisions& d, const std::string& name,
                                     const Target& target) {
    constexpr int kThreads[] = {64, 128, 256};
    try {
        const plan::Schedule schedule =
            target::fit_channels(tensors, program, sizes, {}, kThreads[d.pick(name + ".threads", {2, 1, 1})],
                                 target.is_hopper() && d.flip(name + ".clusters", 0.5) ? 1 : 0);
        return GpuPlan{plan::to_string(schedule), plan::make_plan(tensors, program, sizes, schedule)};
    } catch (const Refused&) {
        return std::nullopt;
    }
}

}  // namespace

std::optional<GpuPlan> channels_plan(Subject& s, const std::string& name, const Target& target) {
    const Typed typed(s.program);
    return channels_plan(typed.def, typed.program, typed.sizes, s.d, name, target);
}

std::optional<GpuPlan> channels_backward_plan(Subject& s, const std::string& name, const Target& target) {
    const Typed typed(s.program);
    const program::EntryPoint entry = program::backward(typed.def);
    return channels_plan(entry.tensors, entry.optimised, typed.sizes, s.d, name, target);
}

namespace {

/// What is taken unasked on a GPU without matrix units for warp groups, for so many tasks.
plan::Schedule chosen(const Typed& typed, const target::FitWishes& wishes) {
    target::Question question{
        {typed.sizes, wishes.expected_tokens, 1, wishes.expected_tasks}, target::facts_of("rtx4090"), {}};
    question.problem.state_dtype = wishes.state_dtype;
    question.wishes.engine = plan::Engine::Tiles, question.wishes.chunk = wishes.chunk;
    return target::choose(typed.def, typed.program, question, target::Range::Best).schedule;
}

}  // namespace

std::optional<GpuPlan> portable_plan(Subject& s, const std::string& name, const Target& target) {
    Typed typed(s.program);
    target::FitWishes wishes;
    wishes.strategy = choose_strategy(s.d, name);
    wishes.expected_tasks = s.d.flip(name + ".many", 0.5) ? kManyTasks : 1;
    wishes.tile_chunks = !s.d.flip(name + ".whole", 0.3);
    if (program::has_decode(typed.def) && s.d.flip(name + ".decode", 0.2)) {
        const program::EntryPoint entry = program::decode(typed.def);
        typed.program = entry.optimised;
        wishes.strategy = plan::Strategy::OnePass, wishes.chunk = entry.chunk;
        if (is_half(s.program.dtype) && s.d.flip(name + ".half_states", 0.5)) wishes.state_dtype = s.program.dtype;
    }
    const bool keeps = typed.keep_states(s.d, name), holds = wishes.chunk == 1;
    return unless_not_affine(wishes.strategy.has_value(), [&]() -> std::optional<GpuPlan> {
        plan::Schedule schedule =
            s.d.flip(name + ".chosen", 0.2)
                ? chosen(typed, wishes)
                : target::fit_shared_memory(typed.def, typed.program, typed.sizes,
                                            holds ? memory_of(target) : short_memory_of(target, s.d, name), wishes);
        constexpr int kThreads[] = {256, 128, 512};
        schedule.block_threads = kThreads[s.d.pick(name + ".threads", {2, 1, 1})];
        GpuPlan made{plan::to_string(schedule), plan::make_plan(typed.def, typed.program, typed.sizes, schedule),
                     keeps};
        made.plan.state_dtype = wishes.state_dtype;
        return made;
    });
}

BackwardPlan backward_plan(Subject& s, const std::string& name, Tally& tally) {
    constexpr Seldom kSeldom{.chunk = 0.03, .one_pass = 0.04, .decoupled = 0.3};
    constexpr double kOtherGpu = 0.2, kWide = 0.1, kToInputs = 0.5, kPortable = 0.1;
    BackwardPlan made{s.program, {}};
    CompileOptions options = backward_options(s, name, kSeldom);
    if (options.dtype == F32 && !s.d.flip(name + ".wide", kWide)) made.program.dtype = options.dtype = BF16;
    options.device = "cuda";
    const Target gpus[] = {kH200, kAda, kA100};
    const char* const names[] = {"h200", "rtx4090", "a100"};
    const int gpu = s.d.flip(name + ".small", kOtherGpu) ? s.d.pick(name + ".gpu", {0, 2, 1}) : 0;
    options.on = names[gpu];
    if (const auto def = stabilised(made.program.def); def && s.d.flip(name + ".to_inputs", kToInputs)) {
        made.program.def = *def, made.entry = options.entry = "backward to inputs";
        ++tally["gradients past stabilisers"];
    }
    const program::Module module(made.program.def, made.program.dtype);
    const program::EntryPoint& entry = module.entry(options.entry);
    made.plan = with_other_kernels(s.d, name, entry.tensors, entry.optimised, compiler::emitted(module, options)->plan,
                                   gpus[gpu]);
    if (s.d.flip(name + ".portable", kPortable)) {
        target::FitWishes wishes;
        wishes.strategy = choose_strategy(s.d, name);
        if (wishes.strategy == plan::Strategy::Segmented) wishes.strategy.reset();
        const target::SharedMemory memory = short_memory_of(kH200, s.d, name);
        made.plan =
            plan::make_plan(entry.tensors, entry.optimised, made.plan.sizes,
                            target::fit_shared_memory(entry.tensors, entry.optimised, made.plan.sizes, memory, wishes));
    }
    for (const Refusal& refusal : made.plan.schedule.refused)
        ++tally[fmt::format("gradients not for {}: {}", refusal.engine, refusal.reason)];
    return made;
}

Engine backward_sources_engine() {
    return {"sources of gradients", [](Subject& s, Tally& tally) -> std::vector<std::string> {
                const BackwardPlan made = backward_plan(s, "emulated_backward", tally);
                ++tally[fmt::format("gradients: {}", plan::to_string(made.plan.schedule.engine))];
                return {};
            }};
}

Engine sources_engine(std::function<bool(std::uint64_t)> compile) {
    return {"sources", [compile = std::move(compile)](Subject& s, Tally& tally) {
                std::vector<std::string> found;
                const auto try_plan = [&](const char* engine, const Target& target,
                                          const std::optional<GpuPlan>& made) {
                    if (!made || !found.empty()) return;
                    const std::string source = emit::emit_cuda(made->plan);
                    ++tally[fmt::format("{}: {}", target.arch, engine)];
                    if (!compile(s.d.seed()) || !build::has_cuda_compiler(build::CudaCompiler::Any)) return;
                    try {
                        build::build_cuda_binary("random", source, target.arch, support::default_cache_dir());
                        ++tally[fmt::format("{}: {}, compiled", target.arch, engine)];
                    } catch (const std::exception& error) {
                        found.push_back(fmt::format("{}, {}, {}: {}", engine, target.arch, made->how,
                                                    std::string(error.what()).substr(0, 2000)));
                    }
                };
                const auto fragments = warp_groups_plan(s, "warp", tally);
                const bool by_warps = fragments && fragments->plan.schedule.engine == plan::Engine::Warps;
                try_plan(by_warps ? "warps" : "warp groups", by_warps ? kA100 : kH200, fragments);
                try_plan("channels", kH200, channels_plan(s, "channels", kH200));
                try_plan("channels", kA100, channels_plan(s, "channels80", kA100));
                try_plan("portable", kH200, portable_plan(s, "portable90", kH200));
                try_plan("portable", kA100, portable_plan(s, "portable80", kA100));
                portable_plan(s, "portable89", kAda);
                return found;
            }};
}

}  // namespace forge::fuzz
