// compile() and Attention: the whole way from a definition to a call.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "build/cpu_library.h"
#include "build/cuda_binary.h"
#include "emit/cpu/emit_cpu.h"
#include "emit/cuda/emit_cuda.h"
#include "emit/last_rows.h"
#include "forge/runtime.h"
#include "frontend/axes.h"
#include "frontend/join.h"
#include "graph/norm_bound.h"
#include "graph/passes.h"
#include "graph/slice.h"
#include "graph/transition.h"
#include "ir/text.h"
#include "program/entry_point.h"
#include "runtime/prepared_call.h"
#include "runtime/request.h"
#include "runtime/skip.h"
#include "runtime/stretches.h"
#include "runtime/threads.h"
#include "support/checked.h"
#include "support/environment.h"
#include "tune/gpu.h"
#include "tune/select.h"

namespace forge {

using device::Size;
using KernelFunction = void (*)(const device::Call&, Size, float*);

struct Attention::Impl {
    ir::Definition definition;  ///< as its user spelt it
    plan::Plan plan;
    schedule::Choice choice;
    program::EntryPoint entry;
    std::shared_ptr<build::CpuLibrary> library;
    std::optional<schedule::GpuFacts> gpu;       ///< that the kernels are for
    std::unique_ptr<runtime::CudaProgram> cuda;  ///< … which has them loaded; none for a GPU that is not there
    std::vector<KernelFunction> kernels;
    KernelFunction last_rows = nullptr;  ///< if the plan has any
    std::vector<GeneratedSource> sources;
    std::string isa, cache_dir;
    std::string obstacle;  ///< why this is not to be called; empty if it is
    int threads = 1;
    double build_seconds = 0;
    double flops_per_token = 0;
};

namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Where things lie in the workspace: one scratch arena per thread, then the spills.
struct Workspace {
    std::size_t scratch_bytes = 0, bytes = 0;
    std::vector<std::size_t> spills;
};

/// Vector loads at the end of the last tile may run past it.
constexpr std::size_t kSlackFloats = 4096;

Workspace lay_out(const Attention::Impl& impl, const runtime::Bound& bound) {
    Workspace w;
    std::int64_t floats = 0;
    for (const auto& kernel : impl.plan.kernels) floats = std::max(floats, kernel.tiles.scratch_floats);
    w.scratch_bytes = aligned((static_cast<std::size_t>(floats) + kSlackFloats) * sizeof(float));
    support::Checked bytes = support::Checked(static_cast<std::int64_t>(w.scratch_bytes)) * impl.threads;
    for (const auto& spill : impl.plan.spills) {
        w.spills.push_back(runtime::workspace_size(impl.plan, bytes));
        const support::Checked blocks = runtime::spill_blocks(impl.plan, spill, bound);
        bytes = bytes + (blocks * spill.floats * sizeof(float)).rounded_up(kAlignment);
    }
    w.bytes = runtime::workspace_size(impl.plan, bytes);
    return w;
}

double flops_of(const plan::Plan& plan) {
    tile::Sizes sizes = plan.sizes;
    sizes[ir::kChunkSymbol] = plan.schedule.chunk;
    const tile::TileKernel whole = tile::lower(plan.program, sizes, sizes, plan.schedule.rules());
    return plan::useful_flops(whole.fn) / static_cast<double>(plan.schedule.chunk);
}

/// Why a call cannot be had; empty if it can.
std::string obstacle(const CompileOptions& options, const std::string& gpu) {
    if (!options.on.empty())
        return fmt::format(
            "compiled on facts of {}, which is not there to run it: expected a variant compiled without "
            "'on' for a device of this machine",
            gpu);
    return options.load ? "" : "compiled with load = false: expected a variant whose kernels are loaded";
}

std::string cache_dir(const CompileOptions& options) {
    return options.cache_dir.empty() ? support::default_cache_dir() : options.cache_dir;
}

/// The schedule that measurements say is the fastest; none if there are none, or they are of a version that had other
/// schedules.
std::optional<plan::Schedule> tuned_schedule(const ir::Definition& def, const ir::Function& program,
                                             const CompileOptions& options, const schedule::GpuFacts& device) {
    const auto tuned = tune::tuned_options(options, tune::gpu_key(program, options, device.tuning_class()));
    if (!tuned) return std::nullopt;
    try {
        return runtime::cuda_schedule(def, program, *tuned, device);
    } catch (const RuntimeError&) {
        return std::nullopt;
    }
}

std::shared_ptr<Attention::Impl> build_for_gpu(std::shared_ptr<Attention::Impl> impl, const ir::Definition& def,
                                               const ir::Function& program, const CompileOptions& options) {
    const runtime::CudaDevice* const there = options.on.empty() ? &runtime::cuda_device(options.device) : nullptr;
    impl->gpu = there ? schedule::GpuFacts(*there) : schedule::facts_of(options.on);
    const schedule::GpuFacts& device = *impl->gpu;
    impl->isa = device.arch();
    impl->cache_dir = cache_dir(options);
    const auto tuned = tuned_schedule(def, program, options, device);
    impl->choice.schedule = tuned ? *tuned : runtime::cuda_schedule(def, program, options, device);
    impl->plan = plan::make_plan(def, program, options.sizes, impl->choice.schedule);
    if (tuned)
        impl->choice.schedule.reason = "the fastest that forge tune measured";  // set late: it stays out of the sources
    runtime::check_limits(impl->plan);
    impl->sources = {{def.name + ".cu", emit::emit_cuda(impl->plan)}};
    impl->obstacle = obstacle(options, device.name);
    if (impl->obstacle.empty())
        impl->cuda = std::make_unique<runtime::CudaProgram>(impl->plan, impl->sources[0].text, *there, impl->cache_dir);
    impl->flops_per_token = flops_of(impl->plan);
    return impl;
}

void load_library(Attention::Impl& impl) {
    const std::string& name = impl.plan.definition.name;
    impl.library = build::build_cpu_library(name, impl.sources[0].text, impl.isa, impl.cache_dir);
    for (const auto& kernel : impl.plan.kernels)
        impl.kernels.push_back(
            reinterpret_cast<KernelFunction>(impl.library->symbol(emit::kernel_symbol(kernel))));  // NOLINT: dlsym
    if (!impl.plan.last_rows.empty())
        impl.last_rows =
            reinterpret_cast<KernelFunction>(impl.library->symbol(emit::last_rows_symbol(impl.plan)));  // NOLINT: dlsym
}

std::shared_ptr<Attention::Impl> build_impl(const ir::Definition& declared, const CompileOptions& asked) {
    runtime::check_options(asked);
    auto impl = std::make_shared<Attention::Impl>();
    impl->definition = frontend::with_dtype(declared, asked.dtype);
    runtime::check_sizes(impl->definition, asked.sizes);
    runtime::check_meaning(impl->definition);
    const ir::Definition def = frontend::with_own_axes(impl->definition);
    impl->entry = program::entry_named(asked.entry, def);
    CompileOptions options = runtime::settled(asked, impl->entry);
    options.sizes = frontend::own_sizes(def, asked.sizes);
    ir::Function program = impl->entry.optimised;
    if (options.chunk_states) program = graph::with_chunk_states(program);
    runtime::check_extents(impl->definition, program, options.sizes);
    if (options.device != "cpu") return build_for_gpu(std::move(impl), def, program, options);
    impl->isa = options.isa == "auto" ? support::machine_isa() : options.isa;
    impl->threads = options.threads > 0 ? options.threads : support::core_count();
    impl->choice = tune::select(def, program, options);
    plan::Schedule schedule = impl->choice.schedule;
    schedule.reason.clear();  // it stays out of the sources: the same kernels are the same text
    impl->plan = plan::make_plan(def, program, options.sizes, schedule);
    impl->sources = {{def.name + ".cpp", emit::emit_cpu(impl->plan)}};
    impl->cache_dir = cache_dir(options);
    impl->obstacle = obstacle(options, "");
    if (impl->obstacle.empty()) load_library(*impl);
    impl->flops_per_token = flops_of(impl->plan);
    return impl;
}

/// Sequences, chunks or segments: what a kernel has tasks for, per head and tile.
std::int64_t units_of(plan::Loop loop, const runtime::Stretch& stretch, const runtime::Bound& bound) {
    if (loop == plan::Loop::Carries) return bound.sequences;
    if (plan::per_segment(loop)) return bound.segments;
    return static_cast<std::int64_t>(loop == plan::Loop::Chunks ? stretch.chunk_sequence.size()
                                                                : stretch.sequences.size());
}

void launch(const Attention::Impl& impl, const runtime::Bound& bound, const Workspace& w, char* memory,
            const ParallelFor& threads) {
    std::vector<float*> spills;
    for (const std::size_t offset : w.spills)
        spills.push_back(reinterpret_cast<float*>(memory + offset));  // NOLINT: workspace is bytes
    device::Call args{bound.tensors.data(),
                      bound.scalars.data(),
                      spills.data(),
                      bound.start.data(),
                      bound.tokens.data(),
                      0,
                      0,
                      nullptr,
                      nullptr,
                      nullptr,  // the stretch
                      bound.first_segment.data(),
                      bound.segment_sequence.data(),
                      bound.segment_rows,
                      bound.sequences,
                      bound.heads,
                      1,
                      bound.slots};
    const auto on_threads = [&](std::int64_t tasks, const auto& run) {
        if (threads) threads(tasks, impl.threads, run);
        else runtime::parallel_for(tasks, impl.threads, run);
    };
    runtime::clear_skipped(impl.plan, bound);
    for (const runtime::Stretch& stretch : runtime::stretches_of(impl.plan, bound)) {
        args.stretch_row = stretch.row, args.stretch_end = stretch.end;
        args.scan_sequence = stretch.sequences.data();
        args.first_chunk = stretch.first_chunk.data(), args.chunk_sequence = stretch.chunk_sequence.data();
        for (std::size_t k = 0; k < impl.kernels.size(); ++k) {
            args.tiles = impl.plan.tiles(impl.plan.kernels[k]);
            const auto run = [&](std::int64_t task, int worker) {
                impl.kernels[k](
                    args, task,
                    reinterpret_cast<float*>(memory + w.scratch_bytes * static_cast<std::size_t>(worker)));  // NOLINT
            };
            const std::int64_t tasks =
                units_of(impl.plan.kernels[k].graph.loop, stretch, bound) * bound.heads * args.tiles;
            on_threads(tasks, run);
        }
    }
    if (impl.last_rows)
        on_threads(bound.sequences * bound.heads, [&](std::int64_t task, int) { impl.last_rows(args, task, nullptr); });
}

struct Free {
    void operator()(void* p) const { std::free(p); }  // NOLINT(cppcoreguidelines-no-malloc): aligned_alloc's partner
};

}  // namespace

TensorView dense(void* data, DType dtype, std::vector<std::int64_t> shape) {
    TensorView view{data, dtype, std::move(shape), {}};
    view.strides.resize(view.shape.size());
    support::Checked next = 1;  // wrong sizes are for the call that they come to to refuse
    for (std::size_t i = view.shape.size(); i-- > 0; next = next * view.shape[i]) view.strides[i] = next.saturated();
    return view;
}

void Attention::operator()(const Call& call) const {
    if (const auto prepared = prepare(call)) {
        runtime::check_workspace(impl_->plan, call, prepared->workspace_bytes(), runtime::kDeviceAlignment);
        return prepared->launch(runtime::addresses_of(impl_->plan, call));
    }
    if (!impl_->obstacle.empty()) throw RuntimeError(definition().name + ": " + impl_->obstacle);
    const runtime::Bound bound = runtime::bind(impl_->plan, call);
    const Workspace w = lay_out(*impl_, bound);
    if (call.workspace || call.workspace_size) runtime::check_workspace(impl_->plan, call, w.bytes, kAlignment);
    if (call.workspace) return launch(*impl_, bound, w, static_cast<char*>(call.workspace), call.parallel_for);
    const std::unique_ptr<char, Free> memory(static_cast<char*>(std::aligned_alloc(kAlignment, w.bytes)));
    if (!memory)
        throw RuntimeError(
            fmt::format("{}: workspace: cannot allocate {} bytes", impl_->plan.definition.name, w.bytes));
    launch(*impl_, bound, w, memory.get(), call.parallel_for);
}

std::shared_ptr<const runtime::PreparedCall> Attention::prepare(const Call& call) const {
    return impl_->cuda ? std::make_shared<const runtime::PreparedCall>(impl_->plan, *impl_->cuda, call) : nullptr;
}

std::size_t Attention::workspace_bytes(const Call& call) const {
    if (impl_->gpu)
        return runtime::device_workspace_bytes(impl_->plan,
                                               runtime::bind(impl_->plan, call, runtime::Lengths::OnDevice));
    return lay_out(*impl_, runtime::bind(impl_->plan, call)).bytes;
}
std::size_t Attention::workspace_bytes(const Bounds& bounds) const {
    const runtime::Bound bound = runtime::bind(impl_->plan, bounds);
    return impl_->gpu ? runtime::device_workspace_bytes(impl_->plan, bound) : lay_out(*impl_, bound).bytes;
}
const ir::Definition& Attention::definition() const { return impl_->definition; }
std::string Attention::strategy() const { return plan::to_string(impl_->plan.schedule.strategy); }
std::int64_t Attention::chunk() const { return impl_->plan.schedule.chunk; }
std::string Attention::isa() const { return impl_->isa; }
std::string Attention::schedule() const { return plan::to_string(impl_->plan.schedule); }
std::string Attention::engine() const {
    if (!impl_->gpu) return "cpu";
    switch (impl_->plan.schedule.engine) {
        case plan::Engine::Channels:
            return "channels";
        case plan::Engine::WarpGroups:
            return "warp-groups";
        case plan::Engine::Tiles:
            return "portable";
    }
    throw InternalError("engine: unknown");
}
const std::vector<Refusal>& Attention::refused() const { return impl_->plan.schedule.refused; }
std::vector<std::string> Attention::kernels() const {
    std::vector<std::string> names;
    for (const plan::Kernel& kernel : impl_->plan.kernels) names.push_back(emit::kernel_symbol(kernel));
    if (!impl_->plan.last_rows.empty()) names.push_back(emit::last_rows_symbol(impl_->plan));
    return names;
}
const std::vector<GeneratedSource>& Attention::sources() const { return impl_->sources; }
double Attention::flops_per_token() const { return impl_->flops_per_token; }
double Attention::build_seconds() const { return impl_->build_seconds; }
bool Attention::from_cache() const {
    return impl_->cuda ? impl_->cuda->from_cache() : impl_->library && impl_->library->from_cache();
}

std::vector<KernelResources> Attention::resources() const {
    if (!impl_->gpu) return {};
    const build::CudaBinary binary =
        build::build_cuda_binary(definition().name, impl_->sources[0].text, impl_->gpu->arch(), impl_->cache_dir);
    std::vector<KernelResources> found;
    for (const std::string& kernel : kernels()) {
        const auto report = std::find_if(binary.kernels.begin(), binary.kernels.end(),
                                         [&](const build::KernelReport& r) { return r.kernel == kernel; });
        if (report == binary.kernels.end())
            throw InternalError(fmt::format("{}: the assembler's report lacks kernel '{}':\n{}", definition().name,
                                            kernel, binary.report));
        found.push_back({kernel, report->registers, report->spill_bytes, report->stack_bytes});
    }
    return found;
}

std::string Attention::explain() const {
    const plan::Plan& plan = impl_->plan;
    std::string text =
        fmt::format("// The definition.\n{}\n// The joined program: the work of one chunk of one head.\n{}\n",
                    ir::print(impl_->definition), ir::print(impl_->entry.joined));
    text += fmt::format("// Optimised, with its slices.\n");
    const auto marks = graph::slices(plan.program);
    for (ir::ValueId v = 0; v < plan.program.size(); ++v)
        text += fmt::format("//   {:<12} {}\n", graph::to_string(marks[static_cast<std::size_t>(v)]),
                            ir::print_op(plan.program, v));
    text += "\n// The transitions of the states.\n";
    for (const graph::Transition& t : graph::transitions(plan.program))
        text += fmt::format("//   {}: {}{}{}\n", t.state, to_string(t.cls),
                            t.cls == graph::TransitionClass::Identity ? ""
                            : t.data_dependent                        ? ", data-dependent"
                                                                      : ", static",
                            t.obstacle.empty() ? "" : ", because of " + t.obstacle);
    text += "\n// Upper bounds of their norms.\n";
    for (const graph::NormBound& bound : graph::norm_bounds(plan.program, plan.definition))
        text += "// " + to_string(bound);
    if (impl_->gpu) {
        text += fmt::format("\n// The GPU: {}.\n// The engine: {}.\n", to_string(*impl_->gpu), engine());
        for (const Refusal& why : refused()) text += fmt::format("//   not {}\n", to_string(why));
    }
    text += fmt::format("\n// The schedule: {}.\n{}", to_string(impl_->choice.schedule),
                        impl_->gpu ? "" : schedule::explain(impl_->choice));
    for (const auto& kernel : plan.kernels)
        text += fmt::format("\n// Kernel {}: {}.\n{}\n// The same as tiles ({} floats of scratch).\n{}",
                            kernel.graph.name, plan::to_string(kernel.graph.loop), ir::print(kernel.graph.fn),
                            kernel.tiles.scratch_floats, ir::print(kernel.tiles.fn));
    return text;
}

Attention compile(const ir::Definition& definition, const CompileOptions& options) {
    const auto begin = std::chrono::steady_clock::now();
    auto impl = build_impl(definition, options);
    impl->build_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return Attention(std::move(impl));
}

Attention compile(const LinearAttention& definition, const CompileOptions& options) {
    return compile(definition.define(), options);
}

}  // namespace forge
