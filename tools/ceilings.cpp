#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "bench.h"

namespace forge::tools {
namespace {

constexpr int kRowMajor = 101, kNoTrans = 111;  // CBLAS_ORDER and CBLAS_TRANSPOSE
constexpr int kSize = 2048;
constexpr std::size_t kBlockBytes = std::size_t{64} << 20U;
constexpr int kRuns = 7;

using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda,
                       const float* b, int ldb, float beta, float* c, int ldc);
using SetThreads = void (*)(int);

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

/// The library stays loaded: its threads may not survive being unmapped.
std::optional<double> measure_sgemm(int threads) {
    void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::nullopt;
    const auto sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
    const auto set_threads = reinterpret_cast<SetThreads>(dlsym(library, "openblas_set_num_threads"));
    if (sgemm == nullptr || set_threads == nullptr) return std::nullopt;
    set_threads(threads);
    const std::size_t count = static_cast<std::size_t>(kSize) * kSize;
    const std::vector<float> a(count, 1.0F), b(count, 0.5F);
    std::vector<float> c(count);
    const double seconds = best_seconds([&] {
        sgemm(kRowMajor, kNoTrans, kNoTrans, kSize, kSize, kSize, 1.0F, a.data(), kSize, b.data(), kSize, 0.0F, c.data(), kSize);
    });
    return 2.0 * kSize * kSize * kSize / seconds * 1e-9;
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

Ceilings measure_ceilings(int threads) { return {measure_sgemm(threads), measure_copy(threads)}; }

}  // namespace forge::tools
