#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "bench.h"

namespace forge::tools {
namespace {

constexpr int kRowMajor = 101, kNoTrans = 111;  // CBLAS_ORDER and CBLAS_TRANSPOSE
constexpr int kMatrixSize = 2048;
constexpr std::size_t kBlockBytes = std::size_t{64} << 20U;
constexpr int kRuns = 7;

using SgemmFn = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda,
                         const float* b, int ldb, float beta, float* c, int ldc);
using SetThreadsFn = void (*)(int);
using CoreNameFn = const char* (*)();

template <class Fn>
double best_seconds(Fn&& run) {
    run();
    double best = 1e30;
    for (int i = 0; i < kRuns; ++i) {
        const auto start = std::chrono::steady_clock::now();
        run();
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

/// What a child process sends back.
struct Message {
    double gflops = 0;
    char kernels[32] = {};
};

Message measure_here(int threads) {
    Message message;
    void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return message;
    const auto sgemm = reinterpret_cast<SgemmFn>(dlsym(library, "cblas_sgemm"));
    const auto set_threads = reinterpret_cast<SetThreadsFn>(dlsym(library, "openblas_set_num_threads"));
    const auto core_name = reinterpret_cast<CoreNameFn>(dlsym(library, "openblas_get_corename"));
    if (sgemm == nullptr || set_threads == nullptr) return message;
    set_threads(threads);
    const std::size_t count = static_cast<std::size_t>(kMatrixSize) * kMatrixSize;
    const std::vector<float> a(count, 1.0F), b(count, 0.5F);
    std::vector<float> c(count);
    const double seconds = best_seconds([&] {
        sgemm(kRowMajor, kNoTrans, kNoTrans, kMatrixSize, kMatrixSize, kMatrixSize, 1.0F, a.data(), kMatrixSize,
              b.data(), kMatrixSize, 0.0F, c.data(), kMatrixSize);
    });
    message.gflops = 2.0 * kMatrixSize * kMatrixSize * kMatrixSize / seconds * 1e-9;
    std::strncpy(message.kernels, core_name != nullptr ? core_name() : "unknown", sizeof message.kernels - 1);
    return message;
}

/// In a process of its own: OpenBLAS chooses its kernels once, when it is loaded. `core_type` empty: its own choice.
std::optional<Sgemm> measure_sgemm(int threads, const char* core_type) {
    int ends[2];
    if (pipe(ends) != 0) return std::nullopt;
    const pid_t child = fork();
    if (child == 0) {
        if (*core_type != '\0') setenv("OPENBLAS_CORETYPE", core_type, 1);
        const Message message = measure_here(threads);
        _exit(write(ends[1], &message, sizeof message) == sizeof message ? 0 : 1);
    }
    close(ends[1]);
    Message message;
    const bool read_all = child > 0 && read(ends[0], &message, sizeof message) == sizeof message;
    close(ends[0]);
    if (child > 0) waitpid(child, nullptr, 0);
    if (!read_all || message.gflops <= 0) return std::nullopt;
    return Sgemm{message.gflops, message.kernels};
}

bool has_avx512() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

const std::optional<Sgemm>& faster(const std::optional<Sgemm>& a, const std::optional<Sgemm>& b) {
    return !b || (a && a->gflops >= b->gflops) ? a : b;
}

double measure_copy(int threads) {
    std::vector<std::unique_ptr<char[]>> from, to;
    for (int i = 0; i < threads; ++i) {
        from.push_back(std::make_unique<char[]>(kBlockBytes));
        to.push_back(std::make_unique<char[]>(kBlockBytes));
    }
    const double seconds = best_seconds([&] {
        std::vector<std::jthread> workers;
        for (std::size_t i = 0; i < from.size(); ++i)
            workers.emplace_back([&, i] { std::memcpy(to[i].get(), from[i].get(), kBlockBytes); });
    });
    return 2.0 * static_cast<double>(kBlockBytes) * threads / seconds * 1e-9;
}

}  // namespace

Ceilings measure_ceilings(int threads) {
    Ceilings result;
    result.installed = measure_sgemm(threads, "");
    result.sgemm = has_avx512() && result.installed ? faster(result.installed, measure_sgemm(threads, "SKYLAKEX"))
                                                    : result.installed;
    result.copy_gbps = measure_copy(threads);
    return result;
}

Ceilings highest(const Ceilings& a, const Ceilings& b) {
    return {faster(a.sgemm, b.sgemm), faster(a.installed, b.installed), std::max(a.copy_gbps, b.copy_gbps)};
}

}  // namespace forge::tools
