/// The warp group's device library on a GPU, function by function, against plain loops:
///
///   nvcc -std=c++20 -gencode arch=compute_90a,code=sm_90a -Idevice -o /tmp/warpgroup_test tests/gpu/warpgroup_test.cu && /tmp/warpgroup_test
#define FORGE_THREADS 128
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda/warpgroup/kernel.h"

using namespace forge::cuda;

namespace {

constexpr int kBytes = 200 * 1024;
int failures = 0;

float rounded(float x) {  // to bf16, ties to even
    unsigned u;
    memcpy(&u, &x, 4);
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &u, 4);
    return x;
}

std::vector<float> random_matrix(int n, bool round = true) {
    std::vector<float> m(static_cast<size_t>(n));
    for (float& x : m) x = static_cast<float>(rand() % 2001 - 1000) / 1000.0f, x = round ? rounded(x) : x;
    return m;
}

template <class F>
std::vector<float> run(F kernel, const std::vector<float>& a, const std::vector<float>& b, int results) {
    float *da, *db, *dc;
    cudaMalloc(&da, a.size() * 4), cudaMalloc(&db, b.size() * 4), cudaMalloc(&dc, static_cast<size_t>(results) * 4);
    cudaMemcpy(da, a.data(), a.size() * 4, cudaMemcpyHostToDevice), cudaMemcpy(db, b.data(), b.size() * 4, cudaMemcpyHostToDevice);
    cudaMemset(dc, 0xff, static_cast<size_t>(results) * 4);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    kernel<<<1, 128, kBytes>>>(da, db, dc);
    std::vector<float> c(static_cast<size_t>(results));
    if (const auto e = cudaDeviceSynchronize(); e != cudaSuccess) printf("%s\n", cudaGetErrorString(e)), exit(1);
    cudaMemcpy(c.data(), dc, c.size() * 4, cudaMemcpyDeviceToHost);
    cudaFree(da), cudaFree(db), cudaFree(dc);
    return c;
}

void expect(const char* what, const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
    double worst = 0;
    for (size_t n = 0; n < want.size(); ++n) {
        const double d = std::fabs(got[n] - want[n]);
        worst = d <= worst ? worst : d;  // NaN is the worst
        if (!(d <= tolerance)) { worst = d; break; }
    }
    const bool ok = worst <= tolerance;
    failures += !ok;
    printf("%-40s %s, max error %.3g\n", what, ok ? "ok" : "WRONG", worst);
}

template <class O>
__device__ void fill_operand(const O& o, const float* src) {
    for (int n = thread(); n < O::kRows * O::kCols / 4; n += kThreads) {
        const int row = n / (O::kCols / 4), col = n % (O::kCols / 4) * 4;
        o.put_four(row, col, load(src + row * O::kCols + col));
    }
}

/// c [M, N] = a b; A_ROWS: a is given as its transpose, B_ROWS: b as itself, else as its transpose.
template <bool REGISTERS, bool A_ROWS, bool B_ROWS, int M, int N, int K, int PARTS>
__global__ void product(const float* a, const float* b, float* c) {
    extern __shared__ __align__(1024) float scratch[];
    const Operand<bf16, A_ROWS ? K : M, A_ROWS ? M : K> left(scratch);
    const Operand<bf16, B_ROWS ? K : N, B_ROWS ? N : K, PARTS> right(scratch + 20480);
    fill_operand(left, a);
    fill_operand(right, b);
    publish();
    Fragment<M, N> d;
    each<M, N>([&](const Spot& s) { d.put(s, broadcast_pair(1.0f)); });
    constexpr Along A = A_ROWS ? Along::Rows : Along::Columns, B = B_ROWS ? Along::Rows : Along::Columns;
    if constexpr (REGISTERS) issue_multiply<Acc::Sub, B>(d, load_packed<A_ROWS, M, K>(left), right);
    else issue_multiply<Acc::Sub, A, B, K>(d, left, right);
    finish<0>(d);
    store_state(c, N, 1, d);
}

template <bool REGISTERS, bool A_ROWS, bool B_ROWS, int M, int N, int K, int PARTS>
void check_product() {
    const auto a = random_matrix(M * K), b = random_matrix(N * K, PARTS == 1);
    std::vector<double> want;
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            double sum = 1;
            for (int k = 0; k < K; ++k) sum -= static_cast<double>(a[A_ROWS ? k * M + i : i * K + k]) * b[B_ROWS ? k * N + j : j * K + k];
            want.push_back(sum);
        }
    char what[99];
    snprintf(what, sizeof what, "product %s%s%s %dx%dx%d parts %d", REGISTERS ? "rs" : "ss", A_ROWS ? " aT" : "", B_ROWS ? "" : " bT", M, N, K, PARTS);
    expect(what, run(product<REGISTERS, A_ROWS, B_ROWS, M, N, K, PARTS>, a, b, M * N), want, PARTS == 1 ? 1e-4 : 2e-3);
}

/// Through an operand that holds the fragment's transpose, and back as itself.
template <bool TRANSPOSE, int M, int N>
__global__ void round_trip(const float* a, const float*, float* c) {
    extern __shared__ __align__(1024) float scratch[];
    const Operand<bf16, TRANSPOSE ? N : M, TRANSPOSE ? M : N> o(scratch);
    Fragment<M, N> f;
    load_state(f, a, N, 1);
    store_fragment<TRANSPOSE>(o, f);
    publish();
    store_state(c, N, 1, load_fragment<TRANSPOSE, M, N>(o));
}

template <bool TRANSPOSE, int M, int N>
void check_round_trip(const char* what) {
    const auto a = random_matrix(M * N);
    expect(what, run(round_trip<TRANSPOSE, M, N>, a, {}, M * N), {a.begin(), a.end()}, 0);
}

__global__ void masks(const float* g, const float*, float* c) {
    extern __shared__ __align__(1024) float scratch[];
    if (warp() == 0) store_decay_sums(scratch, load_pair(g + 2 * lane()));
    sync();
    Fragment<64, 64> f;
    each<64, 64>([&](const Spot& s) { f.put(s, decays<false>(scratch, s.i, s.j)); });
    store_state(c, 64, 1, f);
    each<64, 64>([&](const Spot& s) { f.put(s, decays_down<true>(scratch, s.j, s.i)); });
    store_state(c + 4096, 1, 64, f);
}

void check_masks() {
    auto g = random_matrix(64);
    for (float& x : g) x = -std::fabs(x);
    g[20] = -INFINITY, g[40] = -1000;
    std::vector<double> want(8192);
    for (int i = 0; i < 64; ++i)
        for (int j = 0; j <= i; ++j) {
            double sum = 0, before = 0;
            for (int n = j + 1; n <= i; ++n) before = sum, sum += g[n];
            want[i * 64 + j] = std::exp(sum);
            if (j < i) want[4096 + i * 64 + j] = std::exp(before);
        }
    expect("decays", run(masks, g, {}, 8192), want, 1e-3);
}

}  // namespace

int main() {
    check_product<true, false, true, 64, 128, 64, 1>();
    check_product<true, false, false, 64, 64, 128, 1>();
    check_product<true, true, true, 64, 64, 128, 1>();
    check_product<true, true, false, 64, 128, 128, 1>();
    check_product<true, false, false, 64, 64, 64, 2>();
    check_product<true, false, true, 64, 64, 64, 2>();
    check_product<false, false, false, 64, 64, 128, 1>();
    check_product<false, false, true, 64, 128, 64, 1>();
    check_product<false, true, false, 64, 64, 64, 1>();
    check_product<false, true, true, 64, 128, 64, 1>();
    check_product<false, true, true, 128, 128, 64, 1>();
    check_product<true, false, true, 64, 192, 64, 1>();
    check_product<true, false, false, 64, 256, 64, 1>();
    check_round_trip<false, 64, 128>("operand and back");
    check_round_trip<true, 64, 128>("transposed operand and back");
    check_round_trip<true, 128, 64>("transposed operand and back, two blocks");
    check_masks();
    printf("%d failures\n", failures);
    return failures != 0;
}
