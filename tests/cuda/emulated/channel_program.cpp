#include "tests/cuda/emulated/channel_program.h"

#include <cstring>

#include "emit/callable.h"
#include "emit/cuda/emit_cuda.h"
#include "emit/kernel.h"
#include "emit/last_rows.h"
#include "runtime/device_call.h"
#include "runtime/named_arguments.h"
#include "tests/cuda/emulated/blocks.h"

namespace forge::emulated {
namespace {

std::filesystem::path build(const std::string& name, const plan::Plan& plan) {
    static const Device device;
    return device.build(name, emit::emit_cuda(plan));
}

}  // namespace

ChannelProgram::ChannelProgram(const std::string& name, plan::Plan plan)
    : plan_(std::move(plan)), library_(build(name, plan_)) {}

void ChannelProgram::run(Call call, int blocks, unsigned seed) const {
    const runtime::Callable callable = emit::callable_of(plan_);
    const runtime::Bound bound =
        runtime::bind(callable, runtime::NamedArguments(callable, call), runtime::Lengths::OnDevice);
    std::vector<std::max_align_t> workspace(
        runtime::device_workspace_bytes(callable, bound) / sizeof(std::max_align_t) + 1);
    std::memset(workspace.data(), 0xFF, workspace.size() * sizeof(std::max_align_t));
    call.workspace = workspace.data();
    const runtime::NamedArguments named(callable, call);
    const runtime::DeviceLayout layout(callable, named, bound, blocks);
    const runtime::Addresses addresses = runtime::addresses_of(callable, named);
    cuda::Call arguments = layout.with(addresses);
    const auto launch = [&](const std::string& symbol, const runtime::DeviceLayout::KernelCall& kernel, Grid grid) {
        if (kernel.tasks == 0) return;
        runtime::DeviceLayout::select(arguments, kernel, addresses);
        const auto function = reinterpret_cast<void (*)(cuda::Call)>(library_.kernel(symbol));  // NOLINT: dlsym
        grid.seed = seed;
        emulated::run(library_.machine(), grid, [&] { function(arguments); });
    };
    const int threads = callable.kernels[0].how.threads;
    for (std::size_t k = 0; k < plan_.kernels.size(); ++k) {
        const runtime::DeviceLayout::KernelCall& kernel = layout.kernels()[k];
        const runtime::Launch& how = callable.kernels[k].how;
        const bool clusters = how.cluster_rows > 0, shared_out = how.exchange_bytes > 0;
        const int tasks = static_cast<int>(kernel.tasks);
        launch(emit::kernel_symbol(plan_.kernels[k]), kernel,
               {clusters     ? tasks * blocks
                : shared_out ? blocks
                             : tasks,
                how.threads, clusters ? blocks : 1, static_cast<std::size_t>(how.shared_bytes)});
    }
    const runtime::DeviceLayout::KernelCall& last = layout.last_rows();
    if (last.tasks > 0) launch(emit::last_rows_symbol(plan_), last, {static_cast<int>(last.tasks), threads});
}

}  // namespace forge::emulated
