#include "runtime/cuda_program.h"

#include <fmt/format.h>

#include "emit/cuda/emit_cuda.h"
#include "emit/last_rows.h"
#include "forge/error.h"
#include "runtime/prepared_call.h"

namespace forge::runtime {
namespace {

constexpr int kMaxDynamicSharedBytes = 8;  ///< CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

std::size_t workspace_of(const plan::Plan& plan, const Call& call) {
    return device_workspace_bytes(plan, bind(plan, call, Lengths::OnDevice));
}

std::size_t workspace_of(const plan::Plan& plan, const Bounds& bounds) {
    return device_workspace_bytes(plan, bind(plan, bounds));
}

}  // namespace

void AbsentGpuKernels::run(const Call&) const {
    throw RuntimeError(fmt::format("{}: {}", plan_.definition.name, obstacle_));
}

std::size_t AbsentGpuKernels::workspace_bytes(const Call& call) const { return workspace_of(plan_, call); }
std::size_t AbsentGpuKernels::workspace_bytes(const Bounds& bounds) const { return workspace_of(plan_, bounds); }

CudaProgram::CudaProgram(const plan::Plan& plan, const std::string& cubin, const CudaDevice& device)
    : plan_(plan), device_(device) {
    const CudaDriver& cuda = CudaDriver::get();
    const CudaScope scope(device_);
    cuda.check(cuda.module_load(&module_, cubin.data()), "loading kernels");
    for (const plan::Kernel& kernel : plan.kernels) {
        Kernel loaded;
        loaded.how = emit::launch_of(plan, kernel);
        cuda.check(cuda.module_function(&loaded.function, module_, emit::kernel_symbol(kernel).c_str()),
                   "finding a kernel");
        cuda.check(
            cuda.function_set(loaded.function, kMaxDynamicSharedBytes, static_cast<int>(loaded.how.shared_bytes)),
            "reserving shared memory for a kernel");
        kernels_.push_back(loaded);
    }
    if (!plan.last_rows.empty())
        cuda.check(cuda.module_function(&last_rows_, module_, emit::last_rows_symbol(plan).c_str()),
                   "finding a kernel");
}

CudaProgram::~CudaProgram() {
    if (module_) CudaDriver::get().module_unload(module_);
}

void CudaProgram::run(const Call& call) const {
    const PreparedCall prepared(plan_, *this, call);
    check_workspace(plan_, call, prepared.workspace_bytes(), kDeviceAlignment);
    prepared.launch(addresses_of(plan_, call));
}

std::shared_ptr<const PreparedCall> CudaProgram::prepare(const Call& call) const {
    return std::make_shared<const PreparedCall>(plan_, *this, call);
}

std::size_t CudaProgram::workspace_bytes(const Call& call) const { return workspace_of(plan_, call); }
std::size_t CudaProgram::workspace_bytes(const Bounds& bounds) const { return workspace_of(plan_, bounds); }

}  // namespace forge::runtime
