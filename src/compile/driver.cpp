#include "compile/driver.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>

#include "build/cpu_library.h"
#include "build/cuda_binary.h"
#include "compile/question.h"
#include "compile/request.h"
#include "device/cuda/portable/call.h"
#include "emit/callable.h"
#include "forge/error.h"
#include "frontend/axes.h"
#include "graph/passes.h"
#include "graph/saved_states.h"
#include "runtime/cpu_kernels.h"
#include "runtime/cuda_program.h"
#include "support/environment.h"

namespace forge::compiler {
namespace {

using runtime::CpuKernels;

double flops_of(const plan::Plan& plan) {
    tile::Sizes sizes = plan.sizes;
    sizes[ir::kChunkSymbol] = plan.schedule.chunk;
    const tile::TileKernel whole = tile::lower(plan.program, sizes, sizes, plan.schedule.rules());
    return plan::useful_flops(whole.fn) / static_cast<double>(plan.schedule.chunk);
}

/// RuntimeError if a plan has more tensors, scalars or spills than the kernels' arguments can hold.
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

/// The reason for the choice stays out of the plan and so of the sources: the same kernels are the same text.
plan::Plan plan_of(const ir::Definition& def, const ir::Function& program, const target::Choice& choice,
                   DType state_dtype, const ir::PassRunner& passes) {
    plan::Schedule schedule = choice.schedule;
    schedule.reason.clear();
    plan::Plan plan = plan::make_plan(def, program, choice.question.problem.sizes, schedule, passes);
    plan.state_dtype = state_dtype;
    return plan;
}

std::vector<GeneratedSource> sources_of(const Executable& made, const ir::PassRunner& passes) {
    const target::Target& target = made.choice.target();
    const std::string name = made.plan.definition.name + target.suffix;
    ir::Function none;
    return passes.run(
        ir::Pass::Emit, [&] { return std::vector<GeneratedSource>{{name, target.print(made.plan)}}; },
        [&](auto&) -> ir::Function& { return none; }, [](const auto& sources) { return sources[0].text; });
}

void emit_for_gpu(Executable& made, const ir::Definition& def, const ir::Function& program,
                  const CompileOptions& options, const ir::PassRunner& passes) {
    made.gpu =
        options.on.empty() ? target::GpuFacts(runtime::cuda_device(options.device)) : target::facts_of(options.on);
    made.isa = made.gpu->arch();
    made.choice = target::choose(def, program, ask(program, options, &*made.gpu).question);
    made.plan = plan_of(def, program, made.choice, options.state_dtype, passes);
    made.callable = emit::callable_of(made.plan);
    check_limits(made.plan);
    made.sources = sources_of(made, passes);
}

void emit_for_cpu(Executable& made, const ir::Definition& def, const ir::Function& program,
                  const CompileOptions& options, const ir::PassRunner& passes) {
    made.isa = options.isa == "auto" ? support::machine_isa() : options.isa;
    made.choice = target::choose(def, program, ask(program, options, nullptr).question);
    made.plan = plan_of(def, program, made.choice, options.state_dtype, passes);
    made.callable = emit::callable_of(made.plan);
    made.sources = sources_of(made, passes);
}

void load_for_gpu(Executable& made, const CompileOptions& options) {
    const bool there = options.on.empty();
    if (!there || !options.load) {
        made.kernels = std::make_unique<runtime::AbsentGpuKernels>(
            made.callable,
            there ? runtime::kNotLoaded
                  : fmt::format("compiled on facts of {}, which is not there to run it: expected a variant "
                                "compiled without 'on' for a device of this machine",
                                made.gpu->name));
        return;
    }
    const build::CudaBinary binary =
        build::build_cuda_binary(made.plan.definition.name, made.sources[0].text, made.isa, made.cache_dir);
    made.from_cache = binary.from_cache;
    made.kernels =
        std::make_unique<runtime::CudaProgram>(made.callable, binary.cubin, runtime::cuda_device(options.device));
}

void load_for_cpu(Executable& made, const CompileOptions& options) {
    const int threads = options.threads > 0 ? options.threads : support::core_count();
    if (!options.load) {
        made.kernels =
            std::make_unique<CpuKernels>(made.callable, std::vector<CpuKernels::Function>{}, nullptr, nullptr, threads);
        return;
    }
    const auto library =
        build::build_cpu_library(made.plan.definition.name, made.sources[0].text, made.isa, made.cache_dir);
    made.from_cache = library->from_cache();
    const auto function = [&](const std::string& symbol) {
        return reinterpret_cast<CpuKernels::Function>(library->symbol(symbol));  // NOLINT: dlsym
    };
    std::vector<CpuKernels::Function> kernels;
    for (const runtime::KernelOfCall& kernel : made.callable.kernels) kernels.push_back(function(kernel.symbol));
    const std::string& last_rows = made.callable.last_rows_symbol;
    made.kernels = std::make_unique<CpuKernels>(made.callable, std::move(kernels),
                                                last_rows.empty() ? nullptr : function(last_rows), library, threads);
}

}  // namespace

std::shared_ptr<Executable> emitted(const program::Module& module, const CompileOptions& asked,
                                    const ir::PassRunner& passes) {
    // What the module has at hand was made unseen.
    const program::EntryPoint entry =
        passes.observed() ? program::entry_named(asked.entry, module.own(), passes) : module.entry(asked.entry);
    CompileOptions options = settled(asked, entry);
    options.sizes = frontend::own_sizes(module.own(), asked.sizes);
    if (options.chunk_states && graph::has_saved_states(entry.optimised))
        throw RuntimeError(fmt::format("{}: chunk_states: expected them of forward, got entry = {}",
                                       module.definition().name, entry.name));
    ir::Function program = entry.optimised;
    if (options.chunk_states)
        program = passes.run(ir::Pass::ChunkStates, [&] { return graph::with_chunk_states(program); });
    check_extents(module.definition(), program, options.sizes);
    auto made = std::make_shared<Executable>();
    made->cache_dir = cache_dir(options);
    (options.device == "cpu" ? emit_for_cpu : emit_for_gpu)(*made, entry.tensors, program, options, passes);
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
