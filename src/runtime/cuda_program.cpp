#include "runtime/cuda_program.h"

#include <fmt/format.h>

#include "forge/error.h"
#include "runtime/prepared_call.h"

namespace forge::runtime {
namespace {

constexpr int kMaxDynamicSharedBytes = 8;  ///< CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

std::size_t workspace_of(const Callable& callable, const Arguments& call) {
    return device_workspace_bytes(callable, bind(callable, call, Lengths::OnDevice));
}

std::size_t workspace_of(const Callable& callable, const Bounds& bounds) {
    return device_workspace_bytes(callable, bind(callable, bounds));
}

}  // namespace

SummaryPlaces AbsentGpuKernels::summaries(const Arguments& call, std::int64_t n,
                                          std::span<const std::int64_t> offsets) const {
    return device_summaries(callable_, call, n, offsets);
}

void AbsentGpuKernels::run(const Arguments&, Step) const {
    throw RuntimeError(fmt::format("{}: {}", callable_.name, obstacle_));
}

std::size_t AbsentGpuKernels::workspace_bytes(const Arguments& call) const { return workspace_of(callable_, call); }
std::size_t AbsentGpuKernels::workspace_bytes(const Bounds& bounds) const { return workspace_of(callable_, bounds); }

CudaProgram::CudaProgram(const Callable& callable, const std::string& cubin, const CudaDevice& device)
    : callable_(callable), device_(device) {
    const CudaDriver& cuda = CudaDriver::get();
    const CudaScope scope(device_);
    cuda.check(cuda.module_load(&module_, cubin.data()), "loading kernels");
    for (const KernelOfCall& kernel : callable.kernels) {
        CudaFunction& function = kernels_.emplace_back();
        cuda.check(cuda.module_function(&function, module_, kernel.symbol.c_str()), "finding a kernel");
        cuda.check(cuda.function_set(function, kMaxDynamicSharedBytes, static_cast<int>(kernel.how.shared_bytes)),
                   "reserving shared memory for a kernel");
    }
    if (!callable.last_rows_symbol.empty())
        cuda.check(cuda.module_function(&last_rows_, module_, callable.last_rows_symbol.c_str()), "finding a kernel");
}

CudaProgram::~CudaProgram() {
    if (module_) CudaDriver::get().module_unload(module_);
}

SummaryPlaces CudaProgram::summaries(const Arguments& call, std::int64_t n,
                                     std::span<const std::int64_t> offsets) const {
    return device_summaries(callable_, call, n, offsets);
}

void CudaProgram::run(const Arguments& call, Step step) const {
    const PreparedCall prepared(callable_, *this, call);
    check_workspace(callable_, call, prepared.workspace_bytes(), kDeviceAlignment);
    prepared.launch(addresses_of(callable_, call), step);
}

std::shared_ptr<const PreparedCall> CudaProgram::prepare(const Arguments& call) const {
    return std::make_shared<const PreparedCall>(callable_, *this, call);
}

std::size_t CudaProgram::workspace_bytes(const Arguments& call) const { return workspace_of(callable_, call); }
std::size_t CudaProgram::workspace_bytes(const Bounds& bounds) const { return workspace_of(callable_, bounds); }

}  // namespace forge::runtime
