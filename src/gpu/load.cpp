#include "gpu/load.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

namespace forge::gpu {
namespace {

/// nvmlUtilization_t: percent.
struct Utilization {
    unsigned gpu = 0, memory = 0;
};

template <class Function>
bool look_up(void* library, const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));  // NOLINT: dlsym
    return function != nullptr;
}

class Nvml {
  public:
    static const Nvml& get() {
        static const Nvml kLibrary;
        return kLibrary;
    }
    [[nodiscard]] bool there() const { return there_; }
    /// The share of about the last second in which kernels ran, of anybody.
    [[nodiscard]] double busy(const char* pci_address) const {
        void* device = nullptr;
        Utilization percent;
        if (!there_ || handle_(pci_address, &device) != 0 || utilization_(device, &percent) != 0) return 0;
        return percent.gpu / 100.0;
    }

  private:
    Nvml() {
        void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // stays open
        int (*initialize)() = nullptr;
        there_ = library && look_up(library, "nvmlInit_v2", initialize) &&
                 look_up(library, "nvmlDeviceGetHandleByPciBusId_v2", handle_) &&
                 look_up(library, "nvmlDeviceGetUtilizationRates", utilization_) && initialize() == 0;
    }
    int (*handle_)(const char* pci_address, void** device) = nullptr;
    int (*utilization_)(void* device, Utilization*) = nullptr;
    bool there_ = false;
};

double busy(const runtime::CudaDevice& device) {
    std::array<char, 64> address{};
    const runtime::CudaDriver& cuda = runtime::CudaDriver::get();
    cuda.check(cuda.device_address(address.data(), static_cast<int>(address.size()), device.index),
               "reading a device's address");
    return Nvml::get().busy(address.data());
}

double busy_in_a_second(const runtime::CudaDevice& device) {
    if (Nvml::get().there()) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    return busy(device);
}

}  // namespace

Load::Load(const runtime::CudaDevice& device) : device_(device), before_(busy(device)) {
    if (before_ > 0) before_ = busy_in_a_second(device_);  // it may have been a process that is gone
}

double Load::others() const { return std::max(before_, busy_in_a_second(device_)); }

}  // namespace forge::gpu
