#include "compile/driver.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>

#include "build/cpu_library.h"
#include "build/cuda_binary.h"
#include "compile/gpu_schedule.h"
#include "compile/request.h"
#include "device/cuda/portable/call.h"
#include "emit/cpu/emit_cpu.h"
#include "emit/cuda/emit_cuda.h"
#include "emit/last_rows.h"
#include "forge/error.h"
#include "frontend/axes.h"
#include "graph/passes.h"
#include "runtime/cpu_kernels.h"
#include "runtime/cuda_program.h"
#include "support/environment.h"
#include "tune/gpu.h"
#include "tune/select.h"

namespace forge::compiler {
namespace {

using runtime::CpuKernels;
using runtime::Executable;

double flops_of(const plan::Plan& plan) {
    tile::Sizes sizes = plan.sizes;
    sizes[ir::kChunkSymbol] = plan.schedule.chunk;
    const tile::TileKernel whole = tile::lower(plan.program, sizes, sizes, plan.schedule.rules());
    return plan::useful_flops(whole.fn) / static_cast<double>(plan.schedule.chunk);
}

/// RuntimeError if the kernels' arguments have no room for all that a plan has.
void check_limits(const plan::Plan& plan) {
    const auto within = [&](std::size_t count, int most, const char* what) {
        if (count > static_cast<std::size_t>(most))
            throw RuntimeError(
                fmt::format("{}: expected at most {} {} on a GPU, got {}", plan.definition.name, most, what, count));
    };
    within(plan.tensors.size(), cuda::kMaxTensors, "tensors");
    within(plan.scalars.size(), cuda::kMaxScalars, "scalars");
    within(plan.spills.size(), cuda::kMaxSpills, "values between kernels");
}

/// The schedule that measurements say is the fastest; none if there are none, or they are of a version that had other
/// schedules.
std::optional<plan::Schedule> tuned_schedule(const ir::Definition& def, const ir::Function& program,
                                             const CompileOptions& options, const schedule::GpuFacts& device) {
    const auto tuned = tune::tuned_options(options, tune::gpu_key(program, options, device.tuning_class()));
    if (!tuned) return std::nullopt;
    try {
        return cuda_schedule(def, program, *tuned, device);
    } catch (const RuntimeError&) {
        return std::nullopt;
    }
}

std::vector<GeneratedSource> source_of(const std::string& name, const ir::PassRunner& passes,
                                       const std::function<std::string()>& emit) {
    ir::Function none;
    return passes.run(
        ir::Pass::Emit, [&] { return std::vector<GeneratedSource>{{name, emit()}}; },
        [&](auto&) -> ir::Function& { return none; }, [](const auto& sources) { return sources[0].text; });
}

void emit_for_gpu(Executable& made, const ir::Definition& def, const ir::Function& program,
                  const CompileOptions& options, const ir::PassRunner& passes) {
    made.gpu =
        options.on.empty() ? schedule::GpuFacts(runtime::cuda_device(options.device)) : schedule::facts_of(options.on);
    const schedule::GpuFacts& device = *made.gpu;
    made.isa = device.arch();
    const auto tuned = tuned_schedule(def, program, options, device);
    made.choice.schedule = tuned ? *tuned : cuda_schedule(def, program, options, device);
    made.plan = plan::make_plan(def, program, options.sizes, made.choice.schedule, passes);
    if (tuned)
        made.choice.schedule.reason = "the fastest that forge tune measured";  // set late: it stays out of the sources
    check_limits(made.plan);
    made.sources = source_of(def.name + ".cu", passes, [&] { return emit::emit_cuda(made.plan); });
}

void emit_for_cpu(Executable& made, const ir::Definition& def, const ir::Function& program,
                  const CompileOptions& options, const ir::PassRunner& passes) {
    made.isa = options.isa == "auto" ? support::machine_isa() : options.isa;
    made.choice = tune::select(def, program, options);
    plan::Schedule schedule = made.choice.schedule;
    schedule.reason.clear();  // it stays out of the sources: the same kernels are the same text
    made.plan = plan::make_plan(def, program, options.sizes, schedule, passes);
    made.sources = source_of(def.name + ".cpp", passes, [&] { return emit::emit_cpu(made.plan); });
}

void load_for_gpu(Executable& made, const CompileOptions& options) {
    const bool there = options.on.empty();
    if (!there || !options.load) {
        made.kernels = std::make_unique<runtime::AbsentGpuKernels>(
            made.plan, there ? runtime::kNotLoaded
                             : fmt::format("compiled on facts of {}, which is not there to run it: expected a variant "
                                           "compiled without 'on' for a device of this machine",
                                           made.gpu->name));
        return;
    }
    const build::CudaBinary binary =
        build::build_cuda_binary(made.plan.definition.name, made.sources[0].text, made.isa, made.cache_dir);
    made.from_cache = binary.from_cache;
    made.kernels =
        std::make_unique<runtime::CudaProgram>(made.plan, binary.cubin, runtime::cuda_device(options.device));
}

void load_for_cpu(Executable& made, const CompileOptions& options) {
    const int threads = options.threads > 0 ? options.threads : support::core_count();
    if (!options.load) {
        made.kernels =
            std::make_unique<CpuKernels>(made.plan, std::vector<CpuKernels::Function>{}, nullptr, nullptr, threads);
        return;
    }
    const auto library =
        build::build_cpu_library(made.plan.definition.name, made.sources[0].text, made.isa, made.cache_dir);
    made.from_cache = library->from_cache();
    const auto function = [&](const std::string& symbol) {
        return reinterpret_cast<CpuKernels::Function>(library->symbol(symbol));  // NOLINT: dlsym
    };
    std::vector<CpuKernels::Function> kernels;
    for (const auto& kernel : made.plan.kernels) kernels.push_back(function(emit::kernel_symbol(kernel)));
    made.kernels = std::make_unique<CpuKernels>(
        made.plan, std::move(kernels),
        made.plan.last_rows.empty() ? nullptr : function(emit::last_rows_symbol(made.plan)), library, threads);
}

}  // namespace

std::shared_ptr<Executable> emitted(const program::Module& module, const CompileOptions& asked,
                                    const ir::PassRunner& passes) {
    // What the module has at hand was made unseen.
    const program::EntryPoint entry =
        passes.observed() ? program::entry_named(asked.entry, module.own(), passes) : module.entry(asked.entry);
    CompileOptions options = settled(asked, entry);
    options.sizes = frontend::own_sizes(module.own(), asked.sizes);
    ir::Function program = entry.optimised;
    if (options.chunk_states)
        program = passes.run(ir::Pass::ChunkStates, [&] { return graph::with_chunk_states(program); });
    check_extents(module.definition(), program, options.sizes);
    auto made = std::make_shared<Executable>();
    made->cache_dir = options.cache_dir.empty() ? support::default_cache_dir() : options.cache_dir;
    (options.device == "cpu" ? emit_for_cpu : emit_for_gpu)(*made, module.own(), program, options, passes);
    return made;
}

std::shared_ptr<const Executable> build(const program::Module& module, const CompileOptions& options) {
    const auto begin = std::chrono::steady_clock::now();
    const auto made = emitted(module, options);
    (options.device == "cpu" ? load_for_cpu : load_for_gpu)(*made, options);
    made->flops_per_token = flops_of(made->plan);
    made->build_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return made;
}

}  // namespace forge::compiler
