/// Matrices of states in registers, for kernels that go through a sequence token by token: they are read from global
/// memory once, stay with the threads, and are written once.
///
/// A thread holds vectors of four neighbours, of some rows one below the other. Threads beyond the columns, and rows
/// beyond the last, hold what the nearest have, so that elementwise work needs no conditions; sums leave them out, and
/// nobody stores them. Vectors that matrices are multiplied by lie in shared memory, and so do the results, in full
/// precision.
#pragma once

#include "../ptx/copy.h"
#include "../ptx/overlap.h"
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

/// f(row_stride), which the compiler knows where rows of N follow one another without gaps: one address is enough then.
template <int N, class F>
FORGE_DEVICE void with_row_stride(Size row_stride, F f) {
    if (row_stride == N) f(Size{N});
    else f(row_stride);
}

/// Zeros that are not written ahead of a branch to whatever holds them in one of its ways.
template <class T>
FORGE_DEVICE Four<T> zeros_anew() {
    const unsigned zero = ptx::anew(0);
    if constexpr (sizeof(T) == 4) return {{zero, zero, zero, zero}};
    else return {{zero, zero}};
}

__host__ __device__ constexpr int power_of_two(int n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

/// One for each warp: what it contributes to N sums. Threads read it while others go on: the emitter puts a barrier
/// between two functions that use it.
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

/// A sequence's slot in a pool, asked for; whoever looks at it waits.
struct AskedSlot {
    int low, high;  ///< its words, the second one only for its sign

    FORGE_DEVICE Size get() const { return high < 0 ? -1 : static_cast<Size>(static_cast<unsigned>(low)); }
};

FORGE_DEVICE AskedSlot ask_for_slot(const void* slots, bool wide, Size n) {
    AskedSlot slot{static_cast<int>(n), 0};
    if (slots) {
        const int* const words = static_cast<const int*>(slots) + (wide ? 2 * n : n);
        slot.low = words[0], slot.high = words[wide ? 1 : 0];
    }
    return slot;
}

/// A scan's task. Where its states lie is asked for first, as everything else about it is known without that.
struct HoldingTask : Task {
    AskedSlot from, to;
    int given;
    Size initial, final;  ///< slots; negative: none

    /// Waits for the slots. A sequence that is skipped ends before its first token.
    FORGE_DEVICE void find_states() {
        initial = from.get(), final = to.get();
        if (initial < 0 || final < 0) initial = final = -1, end = 0;
        if (!given) initial = -1;
    }
};

FORGE_DEVICE HoldingTask holding_task(const Call& call, Size index) {
    const TaskNumber number(call, index);
    const device::StateSlots& slots = call.slots;
    const Size n = number.block;
    HoldingTask at;
    at.from = ask_for_slot(slots.initial, slots.wide != 0, n), at.to = ask_for_slot(slots.final, slots.wide != 0, n);
    at.given = 1;
    if (slots.has_initial) at.given = slots.has_initial[n];
    static_cast<Task&>(at) = sequence_task(call, n, number.head, number.tile, false);
    at.end = at.tokens;
    return at;
}

/// The one that a block takes after a task; where there is none, one that has neither tokens nor states.
FORGE_DEVICE HoldingTask task_after(const Call& call, Size index) {
    if (index + gridDim.x < call.tasks) return holding_task(call, index + gridDim.x);
    HoldingTask none{};
    none.from = none.to = {0, -1};
    return none;
}

/// The same task, but addresses that follow from it are found where they are used, not kept from before.
FORGE_DEVICE Task anew(Task at) {
    at.sequence = ptx::anew(static_cast<unsigned>(at.sequence)), at.head = ptx::anew(static_cast<unsigned>(at.head));
    return at;
}

/// state_block, with what the task has read.
template <class T>
FORGE_DEVICE T* held_block(const Call& call, int tensor, const HoldingTask& at) {
    const CallTensor& t = call.tensors[tensor];
    const Size slot = device::IsRead<T>::value ? at.initial : at.final;
    return t.data && slot >= 0 ? static_cast<T*>(t.data) + slot * t.sequence + at.head * t.head : nullptr;
}

/// Asks, while the kernel ahead may still run, for the state of a block's first task to come to the second-level cache,
/// which sees what is written later. Where that kernel writes the slots, what comes may not be what will be read.
template <class T, int M, int N>
FORGE_DEVICE void expect_state(const Call& call, int tensor) {
    const CallTensor& t = call.tensors[tensor];
    const device::StateSlots& slots = call.slots;
    if (thread() != 0 || !t.data || t.dim[0] != N || t.dim[1] != 1) return;
    const TaskNumber at(call, blockIdx.x);
    Size slot = at.block;
    if (slots.initial) slot = ptx::load_early(static_cast<const int*>(slots.initial) + (slots.wide ? 2 * slot : slot));
    if (slot < 0 || slot >= slots.count) return;
    const T* const state = static_cast<const T*>(t.data) + slot * t.sequence + at.head * t.head;
    constexpr unsigned kBytes = M * N * sizeof(T) / 16 * 16;
    if (kBytes > 0 && reinterpret_cast<Size>(state) % 16 == 0) ptx::expect<kBytes>(state);
}

/// Zeros to the rows of an output that the task ends before: all, of a sequence that is skipped, else none. `first` is
/// the first of them, whose axes after the token have DIMS numbers, and a token has FACTOR of them.
template <int FACTOR, int... DIMS, class T>
FORGE_DEVICE void clear_rows(T* first, const CallTensor& t, const Task& at) {
    constexpr int kRow = (DIMS * ... * 1), kDims[] = {DIMS..., 1};
#pragma unroll 1
    for (Size i = at.end * FACTOR * kRow + thread(); i < at.tokens * FACTOR * kRow; i += kThreads) {
        T* p = first + i / kRow * t.token;
        int rest = static_cast<int>(i % kRow);
        for (int d = sizeof...(DIMS); d-- > 0; rest /= kDims[d]) p += rest % kDims[d] * t.dim[d];
        *p = from_float<T>(0.0f);
    }
}

/// What a token's rows consist of, on its way to tiles: a thread has four numbers of one tensor. Threads from FIRST on
/// have those of a tensor's M rows of N numbers, so that several tensors come to different warps, each of which finds
/// the address of its own.
class AskedRows {
    unsigned words_[kWidth];

    template <int FIRST>
    FORGE_DEVICE static int own() {
        return thread() - FIRST;
    }

    template <class T>
    FORGE_DEVICE static unsigned bits(T x) {
        if constexpr (sizeof(T) == 4) return __float_as_uint(x);
        else return x.bits;
    }
    /// The numbers before move up.
    template <class T>
    FORGE_DEVICE void append(T x) {
        if constexpr (sizeof(T) == 4) {
            words_[0] = words_[1], words_[1] = words_[2], words_[2] = words_[3], words_[3] = bits(x);
        } else {
            words_[0] = words_[0] >> 16 | words_[1] << 16, words_[1] = words_[1] >> 16 | bits(x) << 16;
        }
    }
    template <class T>
    FORGE_DEVICE float number(int l) const {
        return detail::number_in<T>(words_, l);
    }

  public:
    /// Those of a token of the task, `column` numbers on.
    template <class T, int M, int N, int FIRST>
    FORGE_DEVICE void ask(const Call& call, int tensor, const Task& at, Size token, Size column) {
        static_assert(N % kWidth == 0 && FIRST + M * N / kWidth <= kThreads);
        constexpr int kRow = N / kWidth;
        const int self = own<FIRST>();
        if (self < 0 || self >= M * kRow) return;
        const CallTensor& t = call.tensors[tensor];
        const T* const src = token_rows<const T>(call, tensor, at, M) + (token * M + self / kRow) * t.token +
                             (column + self % kRow * kWidth) * t.dim[0];
        if (detail::in_fours(src, 0, t.dim[0])) {
            if constexpr (sizeof(T) == 4) {
                const uint4 four = *reinterpret_cast<const uint4*>(src);
                words_[0] = four.x, words_[1] = four.y, words_[2] = four.z, words_[3] = four.w;
            } else {
                const uint2 four = *reinterpret_cast<const uint2*>(src);
                words_[0] = four.x, words_[1] = four.y;
            }
        } else {
#pragma unroll 1  // else both ways become one, in which this one's loads wait for that one's
            for (int l = 0; l < kWidth; ++l) append(src[l * t.dim[0]]);
        }
    }

    /// … into tile[r, c], of row stride LD.
    template <class T, int M, int N, int FIRST, int LD>
    FORGE_DEVICE void place(float* tile) const {
        constexpr int kRow = N / kWidth;
        const int self = own<FIRST>();
        if (self >= 0 && self < M * kRow)
            store(tile + self / kRow * LD + self % kRow * kWidth,
                  {{number<T>(0), number<T>(1), number<T>(2), number<T>(3)}});
    }

    /// M rows of one number, of which a thread has one.
    template <class T, int M, int FIRST>
    FORGE_DEVICE void ask_numbers(const Call& call, int tensor, const Task& at, Size token) {
        static_assert(FIRST + M <= kThreads);
        const int self = own<FIRST>();
        if (self >= 0 && self < M)
            words_[0] = bits(token_rows<const T>(call, tensor, at, M)[(token * M + self) * call.tensors[tensor].token]);
    }
    template <class T, int M, int FIRST>
    FORGE_DEVICE void place_numbers(float* tile) const {
        const int self = own<FIRST>();
        if (self >= 0 && self < M) tile[self] = number<T>(0);
    }
};

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
            const detail::Four<T> zeros = detail::zeros_anew<T>();
#pragma unroll
            for (int n = 0; n < H::kSteps; ++n) x_[n] = zeros;
            return;
        }
        src += skip + H::column(self) * col_stride + H::row(self, 0) * row_stride;
        if (detail::in_fours(src, row_stride, col_stride)) {
#pragma unroll
            for (int n = 0; n < H::kSteps; src += H::step(self, n++) * row_stride) x_[n] = detail::load_four(src);
        } else {
#pragma unroll
            for (int n = 0; n < H::kSteps; src += H::step(self, n++) * row_stride)
                x_[n] = detail::gather_four(src, col_stride);
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
            detail::with_row_stride<N>(row_stride, [&](Size stride) {
                const T* row = src;
#pragma unroll
                for (int n = 0; n < H::kSteps; row += H::step(self, n++) * stride)
                    detail::copy_four(own_ + n * kThreads, row);
            });
            ptx::copy_commit();
        } else {
#pragma unroll 1
            for (int n = 0; n < H::kSteps; src += H::step(self, n++) * row_stride)
                own_[n * kThreads] = detail::gather_four(src, col_stride);
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
        detail::with_row_stride<N>(row_stride, [&](Size stride) {
            T* row = dst;
#pragma unroll
            for (int n = 0; n < H::kSteps; row += H::step(self, n++) * stride)
                if (H::has_row(self, n)) detail::store_four(row, h.x[n]);
        });
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

/// Four neighbours from [i, j] on of a b, with few columns and rows: A(i, d) = a[i * AI + d * AK], B(d, j) =
/// b[d * BK + j * BN].
template <int D, int AI, int AK, int BK, int BN>
FORGE_DEVICE vec outer_product(const float* a, const float* b, int i, int j) {
    vec sum = broadcast(0.0f);
#pragma unroll
    for (int l = 0; l < kWidth; ++l)
#pragma unroll
        for (int d = 0; d < D; ++d) sum.x[l] += a[i * AI + d * AK] * b[d * BK + (j + l) * BN];
    return sum;
}

/// h (+, -)= a b.
template <int D, int AI, int AK, int BK, int BN, Acc ACC, int M, int N>
FORGE_DEVICE void multiply_onto(const float* a, const float* b, Held<M, N>& h) {
    using H = Held<M, N>;
    const int self = thread();
#pragma unroll
    for (int n = 0; n < H::kSteps; ++n) {
        const vec x = outer_product<D, AI, AK, BK, BN>(a, b, H::row(self, n), H::column(self));
#pragma unroll
        for (int l = 0; l < kWidth; ++l) detail::put_number<ACC>(&h.x[n].x[l], x.x[l]);
    }
}

}  // namespace forge::cuda
