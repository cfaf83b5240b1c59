#include "runtime/cuda_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "build/cuda_binary.h"
#include "device/cuda/portable/call.h"
#include "forge/error.h"
#include "runtime/binding.h"
#include "schedule/shared_memory.h"
#include "schedule/warp_groups.h"

namespace forge::runtime {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kMaxDynamicSharedBytes = 8;                ///< CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

/// Shared memory that is not tiles: two floats per thread for device functions, slack behind the tiles, the system's.
constexpr std::int64_t other_shared_bytes(int threads) { return 2 * 4 * threads + 5 * 1024; }

static_assert(sizeof(cuda::Call) <= 4096, "CUDA's limit for the arguments of a kernel");

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::size_t bytes_of(const plan::SpillSlot& spill, const Bound& bound) {
    return aligned(static_cast<std::size_t>((spill.per_segment ? bound.segments : bound.chunks) * bound.heads * spill.floats) * sizeof(float));
}

std::size_t spill_bytes(const plan::Plan& plan, const Bound& bound) {
    std::size_t bytes = 0;
    for (const auto& spill : plan.spills) bytes += bytes_of(spill, bound);
    return bytes;
}

/// Sequences, chunks or segments, as many as there can be.
std::int64_t units_of(const plan::Kernel& kernel, const emit::Launch& how, const Bound& bound) {
    if (how.unit_rows > 0) return bound.blocks(how.unit_rows);
    const plan::Loop loop = kernel.graph.loop;
    return loop == plan::Loop::Chunks ? bound.chunks : plan::per_segment(loop) ? bound.segments : bound.sequences;
}

std::int64_t tasks_of(const plan::Kernel& kernel, const emit::Launch& how, const Bound& bound) { return units_of(kernel, how, bound) * bound.heads * how.parts; }

std::size_t exchange_bytes(const plan::Kernel& kernel, const emit::Launch& how, const Bound& bound) {
    return how.exchange_bytes == 0 ? 0 : aligned(static_cast<std::size_t>(how.exchange_header_bytes + tasks_of(kernel, how, bound) * how.exchange_bytes));
}

std::size_t total_bytes(const plan::Plan& plan, const Bound& bound) {
    std::size_t bytes = spill_bytes(plan, bound);
    for (const plan::Kernel& kernel : plan.kernels) bytes += exchange_bytes(kernel, emit::launch_of(plan, kernel), bound);
    return bytes;
}

void check_limits(const plan::Plan& plan) {
    const auto within = [&](std::size_t count, int most, const char* what) {
        if (count > static_cast<std::size_t>(most)) throw RuntimeError(fmt::format("{}: expected at most {} {} on a GPU, got {}", plan.definition.name, most, what, count));
    };
    within(plan.tensors.size(), cuda::kMaxTensors, "tensors");
    within(plan.scalars.size(), cuda::kMaxScalars, "scalars");
    within(plan.spills.size(), cuda::kMaxSpills, "values between kernels");
}

cuda::Call arguments(const plan::Plan& plan, const Call& call, const Bound& bound) {
    cuda::Call args{};
    std::copy(bound.tensors.begin(), bound.tensors.end(), args.tensors);
    std::copy(bound.scalars.begin(), bound.scalars.end(), args.scalars);
    char* memory = static_cast<char*>(call.workspace);
    for (std::size_t i = 0; i < plan.spills.size(); ++i) {
        args.spills[i] = reinterpret_cast<float*>(memory);  // NOLINT: workspace is bytes
        memory += bytes_of(plan.spills[i], bound);
    }
    if (call.cu_seqlens) {
        args.offsets = call.cu_seqlens->data;
        args.offsets_stride = call.cu_seqlens->strides.empty() ? 1 : call.cu_seqlens->strides[0];
        args.wide_offsets = call.cu_seqlens->dtype == DType::I64;
    }
    args.tokens = bound.length;
    args.chunk_rows = plan.schedule.chunk;
    args.segment_rows = bound.segment_rows;
    args.sequences = bound.sequences;
    args.heads = bound.heads;
    return args;
}

}  // namespace

CudaProgram::CudaProgram(const plan::Plan& plan, const std::string& source, const CudaDevice& device, const std::string& cache_dir) : device_(device) {
    check_limits(plan);
    const build::CudaBinary binary = build::build_cuda_binary(plan.definition.name, source, device.arch(), cache_dir);
    report_ = binary.report;
    from_cache_ = binary.from_cache;
    const CudaDriver& cuda = CudaDriver::get();
    const CudaScope scope(device_);
    cuda.check(cuda.module_load(&module_, binary.cubin.data()), "loading kernels");
    for (const plan::Kernel& kernel : plan.kernels) {
        Kernel loaded;
        loaded.how = emit::launch_of(plan, kernel);
        cuda.check(cuda.module_function(&loaded.function, module_, emit::kernel_symbol(kernel).c_str()), "finding a kernel");
        cuda.check(cuda.function_set(loaded.function, kMaxDynamicSharedBytes, static_cast<int>(loaded.how.shared_bytes)), "reserving shared memory for a kernel");
        kernels_.push_back(loaded);
    }
}

CudaProgram::~CudaProgram() {
    if (module_) CudaDriver::get().module_unload(module_);
}

void CudaProgram::launch(const plan::Plan& plan, const Call& call) const {
    const Bound bound = bind(plan, call, Lengths::OnDevice);
    if (const std::size_t bytes = total_bytes(plan, bound); bytes > 0 && !call.workspace)
        throw RuntimeError(fmt::format("{}: workspace: expected {} bytes of device memory (see workspace_bytes), got none", plan.definition.name, bytes));
    check_workspace(plan, call, total_bytes(plan, bound));
    cuda::Call args = arguments(plan, call, bound);
    const CudaDriver& cuda = CudaDriver::get();
    const CudaScope scope(device_);
    char* exchange = static_cast<char*>(call.workspace) + spill_bytes(plan, bound);
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
        const plan::Kernel& kernel = plan.kernels[k];
        const emit::Launch& how = kernels_[k].how;
        const std::int64_t tasks = tasks_of(kernel, how, bound);
        if (tasks == 0) continue;
        if (tasks > std::numeric_limits<int>::max()) throw RuntimeError(fmt::format("{}: the call has {} tasks, more than a grid holds", plan.definition.name, tasks));
        const std::int64_t resident = static_cast<std::int64_t>(how.resident_blocks) * device_.multiprocessors;
        args.tiles = how.parts;
        args.tasks = tasks;
        args.exchange = exchange;
        if (const std::size_t bytes = exchange_bytes(kernel, how, bound); bytes > 0) {
            cuda.check(cuda.fill_bytes(reinterpret_cast<CudaPointer>(exchange), 0xFF, bytes, static_cast<CudaStream>(call.stream)),  // NOLINT: the driver's pointers are numbers
                       "clearing the workspace");
            exchange += bytes;
        }
        void* parameters[] = {&args};
        cuda.check(cuda.launch(kernels_[k].function, static_cast<unsigned>(resident > 0 ? std::min(tasks, resident) : tasks), 1, 1, static_cast<unsigned>(how.threads), 1, 1,
                               static_cast<unsigned>(how.shared_bytes), static_cast<CudaStream>(call.stream), parameters, nullptr),
                   "launching a kernel");
    }
}

std::size_t cuda_workspace_bytes(const plan::Plan& plan, const Bound& bound) { return total_bytes(plan, bound); }

plan::Schedule cuda_schedule(const ir::Definition& definition, const ir::Function& program, const CompileOptions& options, const CudaDevice& device) {
    schedule::FitWishes wishes;
    if (options.strategy != "auto") wishes.strategy = plan::strategy_named(options.strategy);
    wishes.chunk = options.chunk;
    wishes.tiles = options.tiles;
    wishes.segments = options.segments;
    wishes.expected_tokens = options.expected_tokens;
    wishes.expected_tasks = options.expected_sequences * options.expected_heads;
    if (options.threads != 0 && options.threads != 128 && options.threads != 256 && options.threads != 512)
        throw RuntimeError(fmt::format("threads: expected 128, 256 or 512 per task on a GPU, got {}", options.threads));
    const int threads = options.threads != 0 ? options.threads : plan::Schedule{}.block_threads;
    const schedule::SharedMemory memory{device.shared_bytes - other_shared_bytes(threads), device.multiprocessors};
    if (device.major == 9 && options.engine != "portable" && (options.threads == 0 || options.threads == 128)) {
        try {
            return schedule::fit_warp_groups(definition, program, options.sizes, memory, wishes);
        } catch (const plan::NotForWarpGroups& reason) {
            if (options.engine == "warp-groups") throw RuntimeError(fmt::format("{}: engine: warp-groups cannot have {}", definition.name, reason.what()));
        }
    }
    plan::Schedule schedule = schedule::fit_shared_memory(definition, program, options.sizes, memory, wishes);
    schedule.block_threads = threads;
    return schedule;
}

}  // namespace forge::runtime
