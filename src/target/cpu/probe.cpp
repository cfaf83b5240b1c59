#include "target/cpu/probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace forge::target {
namespace {

constexpr int kChains = 12;     ///< independent sums: more than latency times multiply-adds per cycle
constexpr int kSteps = 200000;  ///< of every chain: about 0.3 ms
constexpr int kRuns = 9;
constexpr std::size_t kMemoryBytes = std::size_t{128}
                                     << 20;  ///< of all threads together: beyond the last cache of most

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Seconds of the fastest run, all threads at once.
double fastest(int threads, const std::function<void(int)>& work) {
    double best = 1e30;
    for (int run = 0; run < kRuns; ++run) {
        const double start = now();
        std::vector<std::jthread> others;
        for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
        work(0);
        others.clear();
        best = std::min(best, now() - start);
    }
    return best;
}

// What kernels reach of a copy's speed: the rows of one head lie apart, and loading a tile waits for what it loads.
constexpr double kOfMemory = 0.65, kOfCache = 0.3;

volatile float sink;  ///< keeps results alive

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void multiply_adds_avx512() {
    __m512 sum[kChains];
    const __m512 x = _mm512_set1_ps(0.999F), y = _mm512_set1_ps(1e-3F);
    for (__m512& s : sum) s = y;
    for (int i = 0; i < kSteps; ++i)
#pragma GCC unroll 16
        for (__m512& s : sum) s = _mm512_fmadd_ps(s, x, y);
    for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_ps(sum[0], sum[c]);
    sink = _mm512_cvtss_f32(sum[0]);
}

__attribute__((target("avx2,fma"))) void multiply_adds_avx2() {
    __m256 sum[kChains];
    const __m256 x = _mm256_set1_ps(0.999F), y = _mm256_set1_ps(1e-3F);
    for (__m256& s : sum) s = y;
    for (int i = 0; i < kSteps; ++i)
#pragma GCC unroll 16
        for (__m256& s : sum) s = _mm256_fmadd_ps(s, x, y);
    for (int c = 1; c < kChains; ++c) sum[0] = _mm256_add_ps(sum[0], sum[c]);
    sink = _mm256_cvtss_f32(sum[0]);
}
#endif

void multiply_adds_plain() {
    using Vector = float __attribute__((vector_size(16)));
    Vector sum[kChains] = {};
    const Vector x = {0.999F, 0.999F, 0.999F, 0.999F}, y = {1e-3F, 1e-3F, 1e-3F, 1e-3F};
    for (int i = 0; i < kSteps; ++i)
#pragma GCC unroll 16
        for (Vector& s : sum) s = s * x + y;
    for (int c = 1; c < kChains; ++c) sum[0] += sum[c];
    sink = sum[0][0];
}

double peak_flops(const std::string& isa, std::int64_t width) {
    void (*work)() = multiply_adds_plain;
#if defined(__x86_64__)
    if (isa == "avx512") work = multiply_adds_avx512;
    if (isa == "avx2") work = multiply_adds_avx2;
#endif
    const double seconds = fastest(1, [&](int) { work(); });
    return 2.0 * static_cast<double>(width) * kChains * kSteps / seconds;
}

/// Bytes read plus written per second by copying one half of each thread's part to the other.
double copying(int threads, std::size_t bytes, int sweeps, std::vector<char>& buffer) {
    const std::size_t half = bytes / static_cast<std::size_t>(threads) / 2;
    const double seconds = fastest(threads, [&](int t) {
        char* part = buffer.data() + static_cast<std::size_t>(t) * 2 * half;
        for (int s = 0; s < sweeps; ++s) std::memcpy(part, part + half, half);
    });
    return 2.0 * static_cast<double>(half) * threads * sweeps / seconds;
}

/// Of the last cache, as the kernel states it (sysconf knows only what the whole processor has); 0 if it does not.
std::int64_t last_cache_bytes() {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
    std::int64_t kilobytes = 0;
    char unit = 0;
    return file >> kilobytes >> unit && unit == 'K' ? kilobytes * 1024 : 0;
}

}  // namespace

Device measure_cpu(const std::string& isa, int threads) {
    Device d = cpu_device(isa, threads);
    const Device stored = d;
    d.about = "measured";
    d.product_flops = peak_flops(isa, d.vector_width);
    // Everything that one thread does by itself goes with the clock.
    const double pace = stored.product_flops / d.product_flops;
    d.call_s *= pace, d.vector_s *= pace, d.exp_s *= pace, d.hop_s *= pace;
    if (const std::int64_t bytes = last_cache_bytes()) d.cache_bytes = bytes;
    std::vector<char> buffer(kMemoryBytes, 1);
    d.memory_bandwidth = kOfMemory * copying(threads, kMemoryBytes, 1, buffer);
    d.slot_bandwidth = threads > 1 ? std::min(d.memory_bandwidth, kOfMemory * copying(1, kMemoryBytes, 1, buffer))
                                   : d.memory_bandwidth;
    const auto in_cache = static_cast<std::size_t>(std::clamp<std::int64_t>(d.cache_bytes / 4, 1 << 20, kMemoryBytes));
    d.cache_bandwidth = std::max(d.memory_bandwidth, kOfCache * copying(threads, in_cache, 4, buffer));
    return d;
}

}  // namespace forge::target
