#include "tests/cuda/emulated/program.h"

#include <dlfcn.h>

#include <cstring>
#include <memory>

#include "emit/callable.h"
#include "emit/cuda/emit_cuda.h"
#include "emit/cuda/launch.h"
#include "emit/kernel.h"
#include "emit/last_rows.h"
#include "runtime/device_call.h"
#include "runtime/named_arguments.h"
#include "runtime/tensor_maps.h"
#include "tests/cuda/emulated/warps.h"

namespace forge::emulated {
namespace {

/// One call: its kernels, each with the one before.
class Launches {
  public:
    Launches(const plan::Plan& plan, const Library& library, const Call& call, unsigned seed, int multiprocessors)
        : plan_(plan),
          library_(library),
          callable_(emit::callable_of(plan)),
          arguments_(callable_, call),
          addresses_(runtime::addresses_of(callable_, arguments_)),
          layout_(callable_, arguments_, runtime::bind(callable_, arguments_, runtime::Lengths::OnDevice),
                  multiprocessors),
          seed_(seed),
          ended_(plan.kernels.size(), false) {
        for (const auto* list : {&call.tensors, &call.initial_states, &call.final_states, &call.chunk_states})
            for (const auto& [name, x] : *list) global_.add(x);
        global_.add(call.workspace, *call.workspace_size);
    }

    /// The kernel and all before it, once; one that may start early does.
    void run(std::size_t k) {
        if (ended_[k]) return;
        run_first(k);
        ended_[k] = true;
    }

    void store_last_rows() const {
        const runtime::DeviceLayout::KernelCall& part = layout_.last_rows();
        cuda::Call arguments = layout_.with(addresses_);
        if (!layout_.has_end(arguments)) return;
        runtime::DeviceLayout::select(arguments, part, addresses_);
        const auto kernel =
            reinterpret_cast<void (*)(cuda::Call)>(library_.kernel(emit::last_rows_symbol(plan_)));  // NOLINT: dlsym
        const WarpGrid grid{
            static_cast<int>(part.blocks), plan_.schedule.block_threads, library_.memory(0), global_, seed_, nullptr};
        run_warps(library_.hardware(), grid, [&] { kernel(arguments); });
    }

  private:
    void run_first(std::size_t k) {
        const plan::Kernel& kernel = plan_.kernels[k];
        const runtime::Launch& how = callable_.kernels[k].how;
        const runtime::DeviceLayout::KernelCall& part = layout_.kernels()[k];
        const bool waits = how.waits && k > 0 && part.tasks > 0;
        const std::function<void()> before = [&] { run(k - 1); };
        if (k > 0 && !waits) before();
        if (how.waits_late && k > 1) run(k - 2);
        if (part.tasks == 0) return;
        cuda::Call arguments = layout_.with(addresses_);
        runtime::DeviceLayout::select(arguments, part, addresses_);
        if (part.exchange_bytes > 0) std::memset(arguments.exchange, 0xFF, part.exchange_bytes);
        const cuda::TensorMaps maps = runtime::MapLayout(callable_, how, arguments).with(arguments);
        void* const function = library_.kernel(emit::kernel_symbol(kernel));
        const WarpGrid grid{static_cast<int>(part.blocks),
                            how.threads,
                            library_.memory(static_cast<std::size_t>(how.shared_bytes)),
                            global_,
                            seed_,
                            waits ? before : nullptr};
        // NOLINTBEGIN: dlsym
        const auto alone = reinterpret_cast<void (*)(cuda::Call)>(function);
        const auto with_maps = reinterpret_cast<void (*)(cuda::Call, cuda::TensorMaps)>(function);
        // NOLINTEND
        run_warps(library_.hardware(), grid,
                  [&] { emit::takes_maps(plan_, kernel) ? with_maps(arguments, maps) : alone(arguments); });
    }

    const plan::Plan& plan_;
    const Library& library_;
    runtime::Callable callable_;
    runtime::NamedArguments arguments_;
    runtime::Addresses addresses_;
    runtime::DeviceLayout layout_;
    unsigned seed_;
    std::vector<bool> ended_;
    GlobalMemory global_;
};

/// The driver that the loader finds from now on encodes tensor maps as plain numbers.
void open_recorder() {
    static void* const kDriver = dlopen(FORGE_RECORDER, RTLD_NOW | RTLD_LOCAL);
    if (!kDriver) throw std::runtime_error(dlerror());
}

std::filesystem::path build(const std::string& name, const plan::Plan& plan,
                            const std::function<void(std::string&)>& edit) {
    static const Device device;
    std::string source = emit::emit_cuda(plan);
    edit(source);
    return device.build(name, source);
}

}  // namespace

void connect(const Library& library) {
    static Hardware** hardware = nullptr;
    hardware = &library.hardware();
    library.machine().thread = [] { return (*hardware)->thread(); };
    library.machine().sync = [] { (*hardware)->sync(0, 0); };
    library.machine().memory = reinterpret_cast<void* (*)()>(library.kernel("forge_shared_memory"));  // NOLINT: dlsym
}

Program::Program(const std::string& name, plan::Plan plan, const std::function<void(std::string&)>& edit)
    : plan_(std::move(plan)), library_(build(name, plan_, edit)) {}

void Program::run(Call call, unsigned seed, int multiprocessors,
                  const std::function<void(const runtime::Callable&, const Call&)>& after) const {
    if (plan_.kernels.empty()) throw std::runtime_error("a plan without kernels");
    open_recorder();
    connect(library_);
    constexpr std::size_t kAlignment = 256;
    const runtime::Callable callable = emit::callable_of(plan_);
    call.workspace_size = runtime::device_workspace_bytes(
        callable, runtime::bind(callable, runtime::NamedArguments(callable, call), runtime::Lengths::OnDevice));
    std::vector<std::byte> workspace(*call.workspace_size + kAlignment, static_cast<std::byte>(SharedMemory::kPoison));
    void* aligned = workspace.data();
    std::size_t space = workspace.size();
    call.workspace = std::align(kAlignment, 1, aligned, space);
    Launches launches(plan_, library_, call, seed, multiprocessors);
    launches.run(plan_.kernels.size() - 1);
    launches.store_last_rows();
    if (after) after(callable, call);
}

}  // namespace forge::emulated
