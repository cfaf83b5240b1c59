/// Matrices of states in registers, for kernels that go through a sequence token by token: they are read from global
/// memory once, stay with the threads, and are written once.
///
/// A thread holds vectors of four neighbours, of some rows one below the other. Threads beyond the columns, and rows
/// beyond the last, hold what the nearest have, so that elementwise work needs no conditions; sums leave them out, and
/// nobody stores them. Vectors that matrices are multiplied by lie in shared memory, and so do the results, in full
/// precision.
#pragma once

#include "../ptx/copy.h"
#include "call.h"
#include "io.h"
#include "matmul.h"
#include "scan.h"

namespace forge::cuda {

namespace detail {

/// Four elements to shared memory, by a copy that runs beside computation.
template <class T>
FORGE_DEVICE void copy_four(Four<T>* shared, const T* p) {
    static_assert(sizeof(Four<T>) == 16 || sizeof(Four<T>) == 8);
    if constexpr (sizeof(Four<T>) == 16) ptx::copy_16(ptx::shared_address(shared), p, 16);
    else ptx::copy_8(ptx::shared_address(shared), p, 8);
}

__host__ __device__ constexpr int power_of_two(int n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

/// One for each warp: what it contributes to N sums.
template <int N>
FORGE_DEVICE float* parts_of_warps() {
    __shared__ __align__(16) float parts[kWarps * N];
    return parts;
}

template <Acc ACC>
FORGE_DEVICE void put_number(float* p, float x) {
    *p = ACC == Acc::Set ? x : ACC == Acc::Add ? *p + x : *p - x;
}

}  // namespace detail

/// An M x N matrix, of which thread `self` has `x[n]` at row(self, n) and the four columns from column(self) on. All
/// threads together have neighbouring rows at any n, so that memory is read in order; where they can, each thread's
/// own come in fours, so that what belongs to rows is read in fours.
template <int M, int N>
struct Held {
    static constexpr int kLanes = detail::power_of_two(vectors(N)), kAtOnce = kThreads / kLanes;
    static constexpr int kSteps = pieces(M, kAtOnce), kRun = M % (kWidth * kAtOnce) == 0 ? kWidth : 1;
    static_assert(N % kWidth == 0 && kLanes <= cuda::kLanes, "a row is held by one warp");
    vec x[kSteps];

    FORGE_DEVICE static int place(int self, int n) { return (n / kRun * kAtOnce + self / kLanes) * kRun + n % kRun; }
    FORGE_DEVICE static bool has_row(int self, int n) { return kSteps * kAtOnce == M || place(self, n) < M; }
    FORGE_DEVICE static bool has_column(int self) { return kLanes * kWidth == N || self % kLanes * kWidth < N; }
    FORGE_DEVICE static int row(int self, int n) { return has_row(self, n) ? place(self, n) : M - 1; }
    /// From row(self, n) to row(self, n + 1): known, most often, so that one address leads to the next.
    FORGE_DEVICE static int step(int self, int n) {
        return kSteps * kAtOnce == M ? place(0, n + 1) - place(0, n) : row(self, n + 1) - row(self, n);
    }
    FORGE_DEVICE static int column(int self) { return has_column(self) ? self % kLanes * kWidth : N - kWidth; }
};

/// A scan's task, and its slots in a pool of states, all read at the same time and once.
struct HoldingTask : Task {
    Size initial, final;  ///< negative: none
};

FORGE_DEVICE HoldingTask holding_task(const Call& call, Size index) {
    const TaskNumber number(call, index);
    const device::StateSlots& slots = call.slots;
    const Size n = number.block, initial = slot_of(slots.initial, slots.wide, n),
               final = slots.final == slots.initial ? initial : slot_of(slots.final, slots.wide, n);
    const bool given = !slots.has_initial || slots.has_initial[n], skipped = initial < 0 || final < 0;
    HoldingTask at;
    static_cast<Task&>(at) = sequence_task(call, n, number.head, number.tile, skipped);
    at.end = at.tokens;
    at.initial = given && !skipped ? initial : -1, at.final = skipped ? -1 : final;
    return at;
}

/// state_block, with what the task has read.
template <class T>
FORGE_DEVICE T* held_block(const Call& call, int tensor, const HoldingTask& at) {
    const CallTensor& t = call.tensors[tensor];
    const Size slot = device::IsRead<T>::value ? at.initial : at.final;
    return t.data && slot >= 0 ? static_cast<T*>(t.data) + slot * t.sequence + at.head * t.head : nullptr;
}

/// A matrix for the block's only task, on its way to the registers of the threads that will hold it.
template <class T, int M, int N>
class Asked {
    using H = Held<M, N>;
    detail::Four<T> x_[H::kSteps];

  public:
    /// For `src`, `skip` elements on; of no matrix (null) all is 0.
    FORGE_DEVICE void ask(const T* src, Size skip, Size row_stride, Size col_stride) {
        const int self = thread();
        if (!src) {
#pragma unroll
            for (int n = 0; n < H::kSteps; ++n) x_[n] = {};
            return;
        }
        src += skip + H::column(self) * col_stride + H::row(self, 0) * row_stride;
        if (detail::in_fours(src, row_stride, col_stride)) {
#pragma unroll
            for (int n = 0; n < H::kSteps; src += H::step(self, n++) * row_stride) x_[n] = detail::load_four(src);
        } else {
#pragma unroll
            for (int n = 0; n < H::kSteps; src += H::step(self, n++) * row_stride)
#pragma unroll
                for (int l = 0; l < kWidth; ++l) x_[n].x[l] = src[l * col_stride];
        }
    }

    FORGE_DEVICE H take() const {
        H h;
#pragma unroll
        for (int n = 0; n < H::kSteps; ++n) h.x[n] = detail::to_vec(x_[n]);
        return h;
    }
};

/// A matrix for a block's next task, on its way to shared memory while the task before is computed. Each thread asks
/// for what it will hold and takes it, so that threads need not wait for each other.
template <class T, int M, int N>
class Coming {
    using H = Held<M, N>;
    detail::Four<T>* own_;  // kThreads apart

  public:
    FORGE_DEVICE explicit Coming(float* shared) : own_(reinterpret_cast<detail::Four<T>*>(shared) + thread()) {}

    /// As above. What came before has been taken.
    FORGE_DEVICE void ask(const T* src, Size skip, Size row_stride, Size col_stride) const {
        const int self = thread();
        if (!src) {
#pragma unroll
            for (int n = 0; n < H::kSteps; ++n) own_[n * kThreads] = {};
            return;
        }
        src += skip + H::column(self) * col_stride + H::row(self, 0) * row_stride;
        if (detail::in_fours(src, row_stride, col_stride)) {
#pragma unroll
            for (int n = 0; n < H::kSteps; src += H::step(self, n++) * row_stride)
                detail::copy_four(own_ + n * kThreads, src);
            ptx::copy_commit();
        } else {
#pragma unroll 1
            for (int n = 0; n < H::kSteps; src += H::step(self, n++) * row_stride)
                for (int l = 0; l < kWidth; ++l) own_[n * kThreads].x[l] = src[l * col_stride];
        }
    }

    FORGE_DEVICE H take() const {
        ptx::copy_wait<0>();
        H h;
#pragma unroll
        for (int n = 0; n < H::kSteps; ++n) h.x[n] = detail::to_vec(own_[n * kThreads]);
        __syncwarp();  // before they are overwritten
        return h;
    }
};

template <class T, int M, int N>
FORGE_DEVICE void store_held(T* dst, Size row_stride, Size col_stride, const Held<M, N>& h) {
    using H = Held<M, N>;
    const int self = thread();
    dst += H::column(self) * col_stride + H::row(self, 0) * row_stride;
    if (!H::has_column(self)) return;
    if (detail::in_fours(dst, row_stride, col_stride)) {
#pragma unroll
        for (int n = 0; n < H::kSteps; dst += H::step(self, n++) * row_stride)
            if (H::has_row(self, n)) detail::store_four(dst, h.x[n]);
    } else {
#pragma unroll
        for (int n = 0; n < H::kSteps; dst += H::step(self, n++) * row_stride)
#pragma unroll
            for (int l = 0; l < kWidth; ++l)
                if (H::has_row(self, n)) dst[l * col_stride] = from_float<T>(h.x[n].x[l]);
    }
}

/// y[j * Y] (+, -)= sum over rows i of h[i, j] weight(i).
template <int Y, Acc ACC, int M, int N, class Weight>
FORGE_DEVICE void sum_held_rows(const Held<M, N>& h, float* y, Weight weight) {
    using H = Held<M, N>;
    const int self = thread();
    constexpr int kRow = H::kLanes * kWidth;
    vec sum = broadcast(0.0f);
#pragma unroll
    for (int n = 0; n < H::kSteps; ++n) {
        const float w = weight(H::row(self, n));
#pragma unroll
        for (int l = 0; l < kWidth; ++l)
            if (H::has_row(self, n)) sum.x[l] += h.x[n].x[l] * w;
    }
#pragma unroll
    for (int lanes = H::kLanes; lanes < kLanes; lanes *= 2)
#pragma unroll
        for (int l = 0; l < kWidth; ++l) sum.x[l] += __shfl_xor_sync(kAllLanes, sum.x[l], lanes);
    float* const parts = detail::parts_of_warps<kRow>();
    sync();
    if (self % kLanes < H::kLanes) store(parts + self / kLanes * kRow + self % kLanes * kWidth, sum);
    sync();
    for (int j = self; j < N; j += kThreads) {
        float all = parts[j];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) all += parts[w * kRow + j];
        detail::put_number<ACC>(y + j * Y, all);
    }
}

/// y[i * Y] (+, -)= sum over columns j of h[i, j] weight(j).
template <int Y, Acc ACC, int M, int N, class Weight>
FORGE_DEVICE void sum_held_columns(const Held<M, N>& h, float* y, Weight weight) {
    using H = Held<M, N>;
    const int self = thread();
    vec w;
#pragma unroll
    for (int l = 0; l < kWidth; ++l) w.x[l] = weight(H::column(self) + l);
#pragma unroll
    for (int n = 0; n < H::kSteps; ++n) {
        float sum = 0.0f;
#pragma unroll
        for (int l = 0; l < kWidth; ++l)
            if (H::has_column(self)) sum += h.x[n].x[l] * w.x[l];
#pragma unroll
        for (int lanes = 1; lanes < H::kLanes; lanes *= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
        if (self % H::kLanes == 0 && H::has_row(self, n)) detail::put_number<ACC>(y + H::row(self, n) * Y, sum);
    }
}

/// y (+, -)= x h: a product with a vector along the rows, elements X apart.
template <int X, int Y, Acc ACC, int M, int N>
FORGE_DEVICE void multiply_rows(const float* x, const Held<M, N>& h, float* y) {
    sum_held_rows<Y, ACC>(h, y, [=](int i) { return x[i * X]; });
}
/// y (+, -)= h x: with one along the columns.
template <int X, int Y, Acc ACC, int M, int N>
FORGE_DEVICE void multiply_columns(const float* x, const Held<M, N>& h, float* y) {
    sum_held_columns<Y, ACC>(h, y, [=](int j) { return x[j * X]; });
}
template <int M, int N>
FORGE_DEVICE void sum_rows_of(const Held<M, N>& h, float* y) {
    sum_held_rows<1, Acc::Set>(h, y, [](int) { return 1.0f; });
}
template <int M, int N>
FORGE_DEVICE void sum_columns_of(const Held<M, N>& h, float* y) {
    sum_held_columns<1, Acc::Set>(h, y, [](int) { return 1.0f; });
}

/// h (+, -)= a b, with few columns and rows: A(i, d) = a[i * AI + d * AK], B(d, j) = b[d * BK + j * BN].
template <int D, int AI, int AK, int BK, int BN, Acc ACC, int M, int N>
FORGE_DEVICE void multiply_onto(const float* a, const float* b, Held<M, N>& h) {
    using H = Held<M, N>;
    const int self = thread();
#pragma unroll
    for (int n = 0; n < H::kSteps; ++n)
#pragma unroll
        for (int l = 0; l < kWidth; ++l) {
            float sum = 0.0f;
#pragma unroll
            for (int d = 0; d < D; ++d)
                sum += a[H::row(self, n) * AI + d * AK] * b[d * BK + (H::column(self) + l) * BN];
            detail::put_number<ACC>(&h.x[n].x[l], sum);
        }
}

}  // namespace forge::cuda
