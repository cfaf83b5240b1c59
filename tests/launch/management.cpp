/// NVIDIA's management library, as far as Forge asks it: how busy the GPU is says FORGE_TEST_GPU_BUSY, in percent.
/// Built as libnvidia-ml.so.1 beside the recorder.
#include <cstdlib>

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** device) {
    static int handle;
    return *device = &handle, 0;
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* percent) {
    const char* busy = std::getenv("FORGE_TEST_GPU_BUSY");
    return percent[0] = busy ? static_cast<unsigned>(std::atoi(busy)) : 0, percent[1] = 0, 0;
}

}  // extern "C"
