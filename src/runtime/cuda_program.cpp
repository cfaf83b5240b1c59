#include "runtime/cuda_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "build/cuda_binary.h"
#include "forge/error.h"
#include "runtime/device_call.h"
#include "runtime/skip.h"
#include "runtime/tensor_maps.h"
#include "schedule/channels.h"
#include "schedule/shared_memory.h"
#include "schedule/warp_groups.h"

namespace forge::runtime {
namespace {

constexpr int kMaxDynamicSharedBytes = 8;                ///< CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

/// Shared memory that is not tiles: two floats per thread for device functions, slack behind the tiles, the system's.
constexpr std::int64_t other_shared_bytes(int threads) { return 2 * 4 * threads + 5 * 1024; }

void check_limits(const plan::Plan& plan) {
    const auto within = [&](std::size_t count, int most, const char* what) {
        if (count > static_cast<std::size_t>(most)) throw RuntimeError(fmt::format("{}: expected at most {} {} on a GPU, got {}", plan.definition.name, most, what, count));
    };
    within(plan.tensors.size(), cuda::kMaxTensors, "tensors");
    within(plan.scalars.size(), cuda::kMaxScalars, "scalars");
    within(plan.spills.size(), cuda::kMaxSpills, "values between kernels");
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
    check_workspace(plan, call, device_workspace_bytes(plan, bound));
    DeviceCall arguments(plan, call, bound);
    const CudaDriver& cuda = CudaDriver::get();
    const CudaScope scope(device_);
    const auto stream = static_cast<CudaStream>(call.stream);
    if (call.initial_slots || call.final_slots)  // some sequences may be skipped
        for (const Memory& output : dense_outputs(plan, call))
            cuda.check(cuda.fill_bytes(reinterpret_cast<CudaPointer>(output.data), 0, output.bytes, stream), "clearing outputs");  // NOLINT
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
        const emit::Launch& how = kernels_[k].how;
        const std::int64_t tasks = arguments.select(plan.kernels[k], how);
        if (tasks == 0) continue;
        if (tasks > std::numeric_limits<int>::max()) throw RuntimeError(fmt::format("{}: the call has {} tasks, more than a grid holds", plan.definition.name, tasks));
        const std::int64_t resident = static_cast<std::int64_t>(how.resident_blocks) * device_.multiprocessors;
        if (arguments.exchange_bytes > 0)
            cuda.check(cuda.fill_bytes(reinterpret_cast<CudaPointer>(arguments.call.exchange), 0xFF, arguments.exchange_bytes, stream),  // NOLINT: the driver's pointers are numbers
                       "clearing the workspace");
        cuda::TensorMaps maps = tensor_maps(plan, how, arguments.call);
        void* parameters[] = {&arguments.call, &maps};  // kernels without roles take the first alone
        cuda.check(cuda.launch(kernels_[k].function, static_cast<unsigned>(resident > 0 ? std::min(tasks, resident) : tasks), 1, 1, static_cast<unsigned>(how.threads), 1, 1,
                               static_cast<unsigned>(how.shared_bytes), stream, parameters, nullptr),
                   "launching a kernel");
    }
}

std::size_t cuda_workspace_bytes(const plan::Plan& plan, const Bound& bound) { return device_workspace_bytes(plan, bound); }

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
    if (options.engine == "auto")
        if (auto schedule = schedule::fit_channels(definition, program, wishes, threads)) return *schedule;
    const schedule::SharedMemory memory{device.shared_bytes - other_shared_bytes(threads), device.multiprocessors, device.shared_bytes};
    if (options.engine != "portable") {
        try {
            if (device.major != 9) throw plan::NotForWarpGroups(fmt::format("a GPU of compute capability {}.{}, only 9.0", device.major, device.minor));
            if (options.threads != 0 && options.threads != 128) throw plan::NotForWarpGroups(fmt::format("{} threads per task, only 128", options.threads));
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
