// The tile functions of the CPU device library against double-precision loops, for the instruction
// set this file is compiled for. Padding holds NaN, so that a leak shows; run it under the address
// sanitizer to see that nothing is read beyond.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <new>
#include <random>
#include <vector>

#include "kernel.h"

namespace forge::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::mt19937 generator(7);

float uniform(float lo, float hi) { return std::uniform_real_distribution<float>(lo, hi)(generator); }

constexpr int pad(int n) { return round_up(n, kWidth); }

/// M rows of N random values, padded with NaN to the stride; exactly as much memory as the
/// conventions promise.
template <int M, int N, int LD = round_up(N, kWidth)>
struct Tile {
    static_assert(LD % kWidth == 0 && LD >= N);
    float* data = new (std::align_val_t(64)) float[M * LD];

    explicit Tile(float lo = -1, float hi = 1) {
        for (int i = 0; i < M * LD; ++i) data[i] = i % LD < N ? uniform(lo, hi) : kNaN;
    }
    Tile(const Tile&) = delete;
    ~Tile() { operator delete[](data, std::align_val_t(64)); }
    float& operator()(int i, int j) { return data[i * LD + j]; }
    operator float*() { return data; }
};

template <class Got, class Want>
void expect_close(int m, int n, Got&& got, Want want, double tolerance) {
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
            const double w = want(i, j);
            ASSERT_LE(std::abs(got(i, j) - w), tolerance * std::max(1.0, std::abs(w))) << "at " << i << ", " << j;
        }
    }
}

/// Rows of a tensor doubled by a loop over rows, from and to memory with any strides; only `rows` of M are there.
template <class T, int M, int N>
void check_rows(int rows, int64_t col_stride, int64_t tokens) {
    constexpr int kLd = round_up(N, kWidth);
    const int64_t row_stride = N * col_stride + (tokens > M ? 32 : 3);
    Tile<M, N> in_tile, out_tile;
    const std::size_t count = static_cast<std::size_t>(M * row_stride) + 64;
    std::vector<T> in(count), storage(count + 64, T{});
    T* const out = storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64 / sizeof(T);
    for (T& x : in) store_as(&x, broadcast(uniform(-1, 1)), 1);
    const auto from = rows_to_read<M, N, kLd>(in_tile, in.data(), row_stride, col_stride, rows, 0.25f);
    const auto to = rows_to_write<M, N, kLd>(out_tile, out, row_stride, col_stride, rows, tokens);
    const bool direct = rows == M && col_stride == 1 && N % kWidth == 0;
    EXPECT_EQ(from.at == in.data(), direct);
    EXPECT_EQ(to.at == out, direct);
    EXPECT_EQ(to.past_caches, direct && tokens > M);
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; j += kWidth) {
            const vec x = load_row(from, i, j);
            if (i >= rows) {
                ASSERT_EQ(x[0], 0.25f);
            }
            store_row(to, i, j, x + x);
        }
    store_rows<N, kLd>(to, out_tile, out, row_stride, col_stride, rows);
    for (int64_t k = 0; k < M * row_stride; ++k) {
        const bool valid = k / row_stride < rows && k % row_stride % col_stride == 0 && k % row_stride / col_stride < N;
        const float x = load_as(&in[static_cast<std::size_t>(k)], 1)[0];
        ASSERT_EQ(load_as(out + k, 1)[0], valid ? 2 * x : 0.0f) << "element " << k;
    }
}

TEST(Rows, AreWalkedWhereTheyLieOrCopied) {
    for (const int64_t col_stride : {1, 2})
        for (const int rows : {0, 3, 5}) {
            check_rows<float, 5, 32>(rows, col_stride, 5);
            check_rows<float, 5, 20>(rows, col_stride, 5);
            check_rows<bf16, 5, 32>(rows, col_stride, 5);
            check_rows<f16, 5, 7>(rows, col_stride, 5);
        }
    constexpr int64_t kMany = 1 << 20;  // more than caches keep
    check_rows<float, 5, 32>(5, 1, kMany);
    check_rows<bf16, 5, 32>(5, 1, kMany);
}

TEST(Rows, CarryTheRowBefore) {
    Tile<4, kWidth> a, x;
    Tile<1, kWidth> h, sum, h0, from;
    for (int j = 0; j < kWidth; ++j) a(0, j) = kNaN;  // the first row's decay does not matter, nor what was before it
    double want_h = 0, want_sum = 0, want_from = h0(0, 1);
    for (int i = 0; i < 4; ++i) {
        store(h, linear_scan_row(load(a + i * kWidth), load(x + i * kWidth), i == 0 ? nullptr : h.data, i == 0));
        store(sum, sum_row(load(x + i * kWidth), i == 0 ? nullptr : sum.data, i == 0));
        want_h = i == 0 ? x(0, 1) : a(i, 1) * want_h + x(i, 1);
        want_sum += x(i, 1);
        EXPECT_NEAR(h(0, 1), want_h, 1e-6);
        store(from, linear_scan_from_row(load(x + i * kWidth), load(x + i * kWidth), load(h0),
                                         i == 0 ? nullptr : from.data, i == 0));
        want_from = x(i, 1) * want_from + x(i, 1);
        EXPECT_NEAR(from(0, 1), want_from, 1e-6);
        EXPECT_NEAR(sum(0, 1), want_sum, 1e-6);
    }
}

template <class T, int M, int N, int LD>
void check_tiles(bool transposed) {
    for (int rows : {-2, 0, 1, M - 1, M}) {
        const int used = std::max(rows, 0);
        const int64_t row_stride = transposed ? 1 : N, col_stride = transposed ? std::max(used, 1) : 1;
        std::vector<T> source(size_t(used * N)), result(source.size());
        for (T& x : source) store_as(&x, broadcast(float(generator() % 200) - 100), 1);
        Tile<M, N, LD> tile;
        load_tile<T, M, N, LD>(tile, source.data(), row_stride, col_stride, rows, 7);
        expect_close(
            M, N, tile,
            [&](int i, int j) {
                return i < used ? load_as(&source[size_t(i * row_stride + j * col_stride)], 1)[0] : 7;
            },
            0);
        store_tile<T, M, N, LD>(result.data(), row_stride, col_stride, tile, rows);
        for (size_t i = 0; i < source.size(); ++i) EXPECT_EQ(load_as(&source[i], 1)[0], load_as(&result[i], 1)[0]);
    }
}

TEST(Io, LoadsAndStoresPartialTiles) {
    for (bool transposed : {false, true}) {
        check_tiles<float, 8, 33, 64>(transposed);
        check_tiles<bf16, 3, 3, 16>(transposed);
        check_tiles<bf16, 17, 64, 64>(transposed);
        check_tiles<f16, 16, 15, 16>(transposed);
        check_tiles<f16, 5, 100, 112>(transposed);
    }
}

template <int M, int N, int K, bool TRANSPOSED, Acc ACC = Acc::Set, Tri TRI = Tri::None, int DIAG = 0>
void check_matmul() {
    Tile<TRANSPOSED ? K : M, TRANSPOSED ? M : K> a;
    Tile<K, N> b;
    Tile<M, N> c, before;
    const auto left = [&](int i, int k) -> float& { return TRANSPOSED ? a(k, i) : a(i, k); };
    for (int i = 0; i < M; ++i) {
        for (int k = 0; k < K; ++k) {
            if (TRI == Tri::ALower && k > i + DIAG) left(i, k) = 0;
            if (TRI == Tri::AUpper && k < i + DIAG) left(i, k) = 0;
        }
    }
    copy_tile<M, N, pad(N), pad(N)>(c, before);
    constexpr int kAi = TRANSPOSED ? 1 : pad(K), kAk = TRANSPOSED ? pad(M) : 1;
    matmul<M, N, K, kAi, kAk, pad(N), pad(N), ACC, TRI, DIAG>(a, b, c);
    expect_close(
        M, N, c,
        [&](int i, int j) {
            if (TRI == Tri::OutLower && j > i + DIAG) return double(c(i, j));
            double sum = 0;
            for (int k = 0; k < K; ++k) sum += double(left(i, k)) * b(k, j);
            return ACC == Acc::Set ? sum : before(i, j) + (ACC == Acc::Add ? sum : -sum);
        },
        1e-5);
}

TEST(Matmul, AgreesWithLoops) {
    check_matmul<1, 1, 1, false>();
    check_matmul<1, 128, 100, false, Acc::Add>();
    check_matmul<3, 15, 8, true>();
    check_matmul<17, 33, 16, false, Acc::Sub>();
    check_matmul<60, 100, 33, true, Acc::Sub>();
    check_matmul<64, 128, 128, false>();
    check_matmul<128, 60, 130, true>();
}

TEST(Matmul, SkipsTriangles) {
    check_matmul<60, 64, 33, false, Acc::Set, Tri::OutLower, 0>();
    check_matmul<33, 100, 17, true, Acc::Add, Tri::OutLower, -1>();
    check_matmul<60, 33, 60, false, Acc::Set, Tri::ALower, -1>();
    check_matmul<100, 17, 128, false, Acc::Add, Tri::ALower, 3>();
    check_matmul<100, 17, 128, true, Acc::Set, Tri::AUpper, 1>();
    check_matmul<100, 16, 60, false, Acc::Set, Tri::AUpper, -2>();
}

// STEP as of Onto. IN_PLACE: the result lies where what it is added to does.
template <int M, int N, int K, bool TRANSPOSED, int STEP, bool IN_PLACE, Acc ACC, Tri TRI = Tri::None, int DIAG = 0>
void check_matmul_onto() {
    Tile<TRANSPOSED ? K : M, TRANSPOSED ? M : K> a;
    Tile<K, N> b;
    Tile<M, N> c, x, before;
    Tile<1, M> scale;
    const auto left = [&](int i, int k) -> float& { return TRANSPOSED ? a(k, i) : a(i, k); };
    for (int i = 0; i < M; ++i) {
        for (int k = 0; k < K; ++k) {
            if ((TRI == Tri::ALower && k > i + DIAG) || (TRI == Tri::AUpper && k < i + DIAG)) left(i, k) = 0;
        }
    }
    copy_tile<M, N, pad(N), pad(N)>(before, x);
    constexpr int kAi = TRANSPOSED ? 1 : pad(K), kAk = TRANSPOSED ? pad(M) : 1;
    float* const result = IN_PLACE ? x.data : c.data;
    matmul_onto<M, N, K, kAi, kAk, pad(N), pad(N), ACC, pad(N), STEP, TRI, DIAG>(a, b, result, x, scale);
    const auto want = [&](int i, int j) {
        if (TRI == Tri::OutLower && j > i + DIAG) return double(IN_PLACE ? x(i, j) : c(i, j));
        double sum = 0;
        for (int k = 0; k < K; ++k) sum += double(left(i, k)) * b(k, j);
        const double base = STEP < 0 ? before(i, j) : double(scale(0, STEP * i)) * before(i, j);
        return ACC == Acc::Add ? base + sum : base - sum;
    };
    expect_close(M, N, IN_PLACE ? x : c, want, 1e-5);
}

TEST(Matmul, GoesOnTopOfOtherTiles) {
    check_matmul_onto<1, 1, 1, false, -1, false, Acc::Add>();
    check_matmul_onto<128, 100, 32, true, 0, true, Acc::Add>();
    check_matmul_onto<60, 33, 130, false, 1, true, Acc::Sub>();  // several stretches of k
    check_matmul_onto<17, 64, 200, true, 1, false, Acc::Add>();
    check_matmul_onto<100, 16, 128, false, 0, false, Acc::Add, Tri::ALower, -1>();  // a first row without a product
    check_matmul_onto<100, 17, 128, true, -1, false, Acc::Sub, Tri::AUpper, 1>();   // last rows without a first stretch
    check_matmul_onto<33, 100, 17, true, 1, true, Acc::Add, Tri::OutLower, -1>();
}

template <int M, int N>
void check_transpose() {
    Tile<M, N> src;
    Tile<N, M> dst;
    transpose<M, N, pad(N), pad(M)>(src, dst);
    expect_close(N, M, dst, [&](int i, int j) { return src(j, i); }, 0);
}

TEST(Transpose, AgreesWithLoops) {
    check_transpose<1, 17>();
    check_transpose<15, 3>();
    check_transpose<33, 60>();
    check_transpose<64, 128>();
}

template <int M, int N, bool REVERSE, bool EXCLUSIVE>
void check_cumsum() {
    Tile<M, N> src, rows, cols;
    src(M / 2, N / 2) = -kInf;
    cumsum_rows<M, N, pad(N), pad(N), REVERSE, EXCLUSIVE>(src, rows);
    cumsum_cols<M, N, pad(N), pad(N), REVERSE, EXCLUSIVE>(src, cols);
    const auto within = [](int s, int i) { return (REVERSE ? s >= i : s <= i) && !(EXCLUSIVE && s == i); };
    for (int i = 0; i < M; ++i) {
        for (int j = 0; j < N; ++j) {
            double down = 0, along = 0;
            for (int s = 0; s < M; ++s) down += within(s, i) ? src(s, j) : 0;
            for (int s = 0; s < N; ++s) along += within(s, j) ? src(i, s) : 0;
            ASSERT_TRUE(rows(i, j) == down || std::abs(rows(i, j) - down) < 1e-5) << i << ", " << j;
            ASSERT_TRUE(cols(i, j) == along || std::abs(cols(i, j) - along) < 1e-5) << i << ", " << j;
        }
    }
}

TEST(Scan, SumsWithoutDifferences) {
    check_cumsum<1, 1, false, true>();
    check_cumsum<17, 33, false, false>();
    check_cumsum<33, 17, true, false>();
    check_cumsum<16, 100, true, true>();
    check_cumsum<100, 16, false, true>();
}

TEST(Scan, RunsRecurrencesAndReductions) {
    constexpr int M = 33, N = 60, LD = pad(N);
    Tile<M, N> a, x, h, from;
    Tile<1, N> start, sums, maxima;
    Tile<1, M> row_sums, row_maxima;
    linear_scan<M, N, LD, LD, LD>(a, x, h);
    linear_scan_from<M, N, LD, LD, LD>(a, x, start, from);
    expect_close(M, N, h, [&](int i, int j) { return (i ? double(a(i, j)) * h(i - 1, j) : 0) + x(i, j); }, 1e-6);
    expect_close(
        M, N, from, [&](int i, int j) { return double(a(i, j)) * (i ? from(i - 1, j) : start(0, j)) + x(i, j); }, 1e-6);
    sum_rows<M, N, LD>(x, sums);
    amax_rows<M, N, LD>(x, maxima);
    sum_cols<M, N, LD>(x, row_sums);
    amax_cols<M, N, LD>(x, row_maxima);
    for (int j = 0; j < N; ++j) {
        double sum = 0, most = -kInf;
        for (int i = 0; i < M; ++i) sum += x(i, j), most = std::max(most, double(x(i, j)));
        EXPECT_NEAR(sums(0, j), sum, 1e-5);
        EXPECT_EQ(maxima(0, j), most);
    }
    for (int i = 0; i < M; ++i) {
        double sum = 0, most = -kInf;
        for (int j = 0; j < N; ++j) sum += x(i, j), most = std::max(most, double(x(i, j)));
        EXPECT_NEAR(row_sums(0, i), sum, 1e-5);
        EXPECT_EQ(row_maxima(0, i), most);
    }
}

template <int N>
void check_inverse() {
    Tile<N, N> a(-0.2f, 0.2f), out;
    std::vector<double> want(N * N);
    for (int i = 0; i < N; ++i) {
        want[size_t(i * N + i)] = 1;
        for (int s = 0; s < i; ++s) {
            for (int j = 0; j <= s; ++j) want[size_t(i * N + j)] -= a(i, s) * want[size_t(s * N + j)];
        }
        for (int j = i; j < N; ++j) a(i, j) = kNaN;  // must not be read
    }
    unit_lower_inverse<N, pad(N), pad(N)>(a, out);
    for (int i = 0; i < N; ++i) {
        for (int j = 0; j < i; ++j) ASSERT_NEAR(out(i, j), want[size_t(i * N + j)], 2e-6) << i << ", " << j;
        for (int j = i; j < N; ++j) ASSERT_EQ(out(i, j), i == j) << i << ", " << j;
    }
}

TEST(Inverse, AgreesWithSubstitution) {
    check_inverse<1>();
    check_inverse<15>();
    check_inverse<33>();
    check_inverse<60>();
    check_inverse<128>();
}

/// A log decay of the kind `mix`: gentle, strong, extreme, and all of them.
float gate(int mix) {
    const int kind = mix == 3 ? int(generator() % 3) : mix;
    if (kind == 0) return uniform(-0.02f, 0);
    if (kind == 1) return uniform(-6, 0);
    return generator() % 2 ? -kInf : -1000;
}

double decay(float* g, int stride, int j, int i, bool exclusive) {
    double sum = 0;
    for (int s = j + 1; s < i + !exclusive; ++s) sum += g[s * stride];
    return j < i + !exclusive ? std::exp(sum) : 0;
}

template <int N, int K, bool EXCLUSIVE>
void check_decay() {
    for (int mix = 0; mix < 4; ++mix) {
        Tile<N, K> q, k, g;
        Tile<1, N> scalar;
        Tile<N, N> mask, out;
        Tile<1, decay_matmul_scratch<N, K>(), pad(decay_matmul_scratch<N, K>())> scratch;
        for (int i = 0; i < N; ++i) {
            scalar(0, i) = gate(mix);
            for (int d = 0; d < K; ++d) g(i, d) = gate(mix);
        }
        decay_mask<N, pad(N), EXCLUSIVE>(scalar, mask);
        decay_matmul<N, K, pad(K), pad(K), pad(K), pad(N), EXCLUSIVE>(q, k, g, out, scratch);
        for (int i = 0; i < N; ++i) {
            for (int j = 0; j < N; ++j) {
                const double want = decay(scalar, 1, j, i, EXCLUSIVE);
                ASSERT_LE(std::abs(mask(i, j) - want), 2e-6 * want + 1e-30) << i << ", " << j;
                double sum = 0;
                for (int d = 0; d < K; ++d) {
                    sum += double(q(i, d)) * k(j, d) * decay(g + d, pad(K), j, i, EXCLUSIVE);
                }
                ASSERT_NEAR(out(i, j), sum, 1e-5) << i << ", " << j << " mix " << mix;
                if (j >= i + !EXCLUSIVE) {
                    ASSERT_EQ(out(i, j), 0);
                }
            }
        }
    }
}

TEST(Decay, AgreesWithSums) {
    check_decay<1, 3, false>();
    check_decay<15, 17, true>();
    check_decay<33, 60, true>();
    check_decay<60, 33, false>();
    check_decay<64, 128, true>();
    check_decay<128, 16, false>();
}

}  // namespace
}  // namespace forge::cpu
