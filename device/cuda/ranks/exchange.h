/// The exchange of states between GPUs: an exclusive scan of S -> D∘S + B over ranks, by kernels that write into each
/// other's memory. A block of threads has a tile at a time. Data are written, then the flag behind them is released at
/// system scope by one thread after a barrier of the block; who waits acquires it by one thread before one.
///
/// ring: waits go from each rank to the one before, and end at the first, so that blocks need not be resident at once.
/// all-gather: only later ranks wait for earlier ones. scatter-scan-gather: everything is sent before anything is
/// waited for, by a grid that is resident as a whole. No wait is without an end: after the timeout, or when the group
/// has failed, the kernel says so and returns, and later ones return at once.
#pragma once

#include "call.h"
#ifdef __CUDACC__
#include "../ptx/peer.h"
#include "../ptx/thread.h"
#endif

namespace forge::cuda::ranks {

/// A part of a lane's state: in memory `runs` of `width` numbers, `stride` apart.
struct Tile {
    int field, lane, unit;
    Size begin;  ///< in the lane's block
    int count, width, stride;
    bool leads;  ///< whether it is its lane's first
};

__device__ __forceinline__ Tile tile_at(const Exchange& x, int number) {
    Tile t;
    t.field = 0;
    while (t.field + 1 < x.field_count && number >= x.fields[t.field + 1].first_tile) ++t.field;
    const Field& f = x.fields[t.field];
    const int local = number - f.first_tile, part = local % f.tiles;
    t.lane = local / f.tiles, t.leads = part == 0;
    const bool matrix = f.map_kind == kLeft || f.map_kind == kRight;
    t.unit = f.first_unit + (matrix ? t.lane : local);
    if (f.map_kind == kLeft) {
        t.begin = static_cast<Size>(part) * f.across;
        t.width = min(f.across, f.columns - part * f.across);
        t.stride = f.columns, t.count = t.width * f.rows;
    } else {
        const Size most = f.map_kind == kRight ? static_cast<Size>(f.across) * f.columns : kTileFloats;
        t.begin = part * most;
        t.count = static_cast<int>(min(most, f.block - t.begin));
        t.width = t.count, t.stride = 0;
    }
    return t;
}

/// Tiles between memory and the block's own. A thread has the same numbers of every tile, of whatever is copied.
template <class Body>
__device__ __forceinline__ void each_four(const Tile& t, Body body) {
#pragma unroll 4
    for (int i = 4 * static_cast<int>(threadIdx.x); i < t.count; i += 4 * kThreads)
        body(i, t.begin + (t.stride ? static_cast<Size>(i / t.width) * t.stride + i % t.width : i));
}
template <class Body>
__device__ __forceinline__ void each_one(const Tile& t, Body body) {
    for (int i = static_cast<int>(threadIdx.x); i < t.count; i += kThreads)
        body(i, t.begin + (t.stride ? static_cast<Size>(i / t.width) * t.stride + i % t.width : i));
}
__device__ __forceinline__ void load(const Field& f, const Tile& t, const float* lane, float* to) {
    if (f.four)
        each_four(t, [&](int i, Size at) {
            *reinterpret_cast<float4*>(to + i) = __ldcg(reinterpret_cast<const float4*>(lane + at));
        });
    else each_one(t, [&](int i, Size at) { to[i] = __ldcg(lane + at); });
}
__device__ __forceinline__ void store(const Field& f, const Tile& t, const float* from, float* lane) {
    if (f.four)
        each_four(t, [&](int i, Size at) {
            *reinterpret_cast<float4*>(lane + at) = *reinterpret_cast<const float4*>(from + i);
        });
    else each_one(t, [&](int i, Size at) { lane[at] = from[i]; });
}

/// What a block of threads has: its own memory, and where the ranks' is.
class Block {
  public:
    __device__ explicit Block(const Exchange& exchange) : x(exchange) {
        came_ = static_cast<int*>(ptx::block_memory());
        tile_ = reinterpret_cast<float*>(came_) + kHeadFloats, added_ = tile_ + kTileFloats,
        map_ = added_ + kTileFloats;
        control_ = reinterpret_cast<Control*>(x.controls[x.position]);
        epoch_ = *const_cast<volatile Word*>(&control_->epoch) + 1;
    }

    __device__ void run() {
        if (*const_cast<volatile Word*>(&control_->dead)) return;
        bool whole = true;
        if (x.sends || x.scheme == kScatterScanGather) whole = credits();
        if (whole) {
            if (x.scheme == kRing) whole = ring();
            else if (x.scheme == kAllGather) whole = all_gather();
            else whole = scatter_scan_gather();
        }
        finish(whole);
    }

  private:
    __device__ __forceinline__ int rank_of(int position) const { return x.reverse ? x.ranks - 1 - position : position; }
    __device__ __forceinline__ int owner_of(int unit) const { return (unit + unit / x.spread) % x.ranks; }
    __device__ __forceinline__ char* flag(int at, int sender, int number) const {
        return x.windows[at] +
               ((static_cast<Size>(epoch_ & 1) * x.ranks + rank_of(sender)) * x.flags + number) * kFlagBytes;
    }
    __device__ __forceinline__ float* half(int at) const {
        return reinterpret_cast<float*>(x.windows[at] + x.data) + static_cast<Size>(epoch_ & 1) * x.half;
    }
    __device__ __forceinline__ float* received(int at, const Field& f, const Tile& t) const {
        return half(at) + f.place + t.lane * f.block;
    }
    __device__ __forceinline__ float* slot(int at, int sender) const { return half(at) + x.total + sender * x.slot; }

    // ------------------------------------------------------------------------------------------ waiting

    /// One thread: until the word is at least that, or this has no end.
    __device__ bool await(const void* word, Word least, int position, Word& seen) {
        Word begun = 0;
        for (unsigned poll = 1;; ++poll) {
            seen = ptx::load_acquire_system(word);
            if (static_cast<long long>(seen - least) >= 0) return true;
            if (poll % 1024 != 0) continue;
            if (ptx::load_relaxed_system(x.failed) != 0) return false;
            const Word now = ptx::nanoseconds();
            if (begun == 0) begun = now;
            if (x.timeout == 0 || now - begun < x.timeout) continue;
            if (ptx::load_relaxed_system(x.failed) == 0)
                ptx::store_release_system(x.failed, x.late + static_cast<Word>(rank_of(position)));
            return false;
        }
    }

    /// The block: until what `sender` puts behind a flag of this rank's is there. Returns its kind, or -1.
    __device__ int wait(int sender, int number) {
        __syncthreads();
        if (threadIdx.x == 0) {
            Word seen = 0;
            *came_ =
                await(flag(x.position, sender, number), 4 * epoch_, sender, seen) ? static_cast<int>(seen & 3) : -1;
        }
        __syncthreads();
        return *came_;
    }

    /// Until the ranks to which this one writes have read what was in this half of their windows before.
    __device__ bool credits() {
        const int to = static_cast<int>(threadIdx.x);
        const bool next = x.scheme == kRing, mine = to < x.ranks && to != x.position && (!next || to == x.position + 1);
        bool there = true;
        Word seen = 0;
        if (mine && epoch_ > 2) there = await(done(x.position, to), epoch_ - 2, to, seen);
        return __syncthreads_and(there);
    }
    __device__ __forceinline__ char* done(int at, int of) const {
        return x.controls[at] + sizeof(Control) + kDoneBytes * (1 + rank_of(of));
    }

    /// The last block of the grid: this epoch is over, and all that came has been read.
    __device__ void finish(bool whole) {
        __syncthreads();
        if (threadIdx.x != 0) return;
        if (!whole) *const_cast<volatile Word*>(&control_->dead) = 1;
        if (!x.ends) return;
        __threadfence();
        if (atomicAdd(&control_->ticket, 1U) + 1 != gridDim.x) return;
        __threadfence();
        control_->ticket = 0;
        *const_cast<volatile Word*>(&control_->epoch) = epoch_;
        for (int q = 0; q < x.ranks; ++q)
            if (q != x.position) ptx::store_release_system(done(q, x.position), epoch_);
    }

    __device__ __forceinline__ void signal(int to, int number, Kind kind) {
        __syncthreads();
        if (threadIdx.x == 0) ptx::store_release_system(flag(to, x.position, number), 4 * epoch_ + kind);
    }

    // ------------------------------------------------------------------------------------------ arithmetic

    /// Where a tile's numbers of its transition begin: all of the lane's, but for factors of the state's own shape.
    __device__ __forceinline__ Size map_begin(const Field& f, const Tile& t) const {
        return f.map_kind == kFactors && f.map_block == f.block ? t.begin : 0;
    }
    __device__ __forceinline__ int map_count(const Field& f, const Tile& t) const {
        return f.map_kind == kFactors && f.map_block == f.block ? t.count : static_cast<int>(f.map_block);
    }

    /// The tile's transition into the block's memory if it fits, a matrix by columns of its transpose so that both
    /// kinds of products read it alike. Returns whether all of it is 0, so that nothing of the state before is left.
    __device__ bool stage(const Field& f, const Tile& t, const float* lane) {
        if (f.map_kind == kIdentity) return false;
        const float* from = lane + map_begin(f, t);
        const int count = map_count(f, t), n = matrix_size(f);
        const bool fits = room(f, t) <= x.staged;
        bool zero = true;
        if (n == 0) {
            for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
                const float d = __ldcg(from + i);
                zero = zero && d == 0;
                if (fits) map_[i] = d;
            }
        } else {
            for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
                const float d = __ldcg(from + i);
                zero = zero && d == 0;
                const int a = i / n, b = i - a * n;
                if (fits) map_[f.map_kind == kLeft ? a * (n + 1) + b : b * (n + 1) + a] = d;
            }
        }
        given_ = from, fits_ = fits;
        return __syncthreads_and(zero);
    }
    __device__ __forceinline__ int matrix_size(const Field& f) const {
        return f.map_kind == kLeft ? f.rows : f.map_kind == kRight ? f.columns : 0;
    }
    __device__ __forceinline__ int room(const Field& f, const Tile& t) const {
        const int n = matrix_size(f);
        return n ? n * (n + 1) : map_count(f, t);
    }

    /// added = D∘tile + added, of the transition that was staged. The tile and what is added are in the block's memory.
    __device__ void apply(const Field& f, const Tile& t) {
        if (matrix_size(f)) {
            multiply(f, t);
            return;
        }
        const float* map = fits_ ? map_ : given_;
        const bool own = f.map_block == f.block;  // a number of the transition for each of the state
        if (f.map_kind == kIdentity) {
            strided(f, t, [&](int i) { added_[i] += tile_[i]; });
        } else if (f.four) {  // four numbers that follow each other differ in the last axis alone
            const int step = own ? 1 : f.step[f.axes - 1];
            for (int i = 4 * static_cast<int>(threadIdx.x); i < t.count; i += 4 * kThreads) {
                const int at = own ? i : factor_of(f, t, i);
                for (int j = 0; j < 4; ++j) added_[i + j] = fmaf(map[at + j * step], tile_[i + j], added_[i + j]);
            }
        } else {
            strided(f, t, [&](int i) { added_[i] = fmaf(map[own ? i : factor_of(f, t, i)], tile_[i], added_[i]); });
        }
    }
    /// The numbers of a tile that this thread has.
    template <class Body>
    __device__ __forceinline__ void strided(const Field& f, const Tile& t, Body body) {
        if (f.four)
            for (int i = 4 * static_cast<int>(threadIdx.x); i < t.count; i += 4 * kThreads)
                body(i), body(i + 1), body(i + 2), body(i + 3);
        else
            for (int i = static_cast<int>(threadIdx.x); i < t.count; i += kThreads) body(i);
    }
    /// The place in a lane's transition of a number of the tile.
    __device__ __forceinline__ int factor_of(const Field& f, const Tile& t, int i) const {
        if (f.map_block == 1) return 0;
        unsigned rest = static_cast<unsigned>(t.begin) + static_cast<unsigned>(i);
        int at = 0;
        for (int axis = f.axes - 1; axis >= 0; --axis) {
            const unsigned size = static_cast<unsigned>(f.shape[axis]), next = rest / size;
            at += static_cast<int>(rest - next * size) * f.step[axis];
            rest = next;
        }
        return at;
    }

    /// Four rows times four columns per thread, of D's rows and the tile's columns (of kRight transposed).
    __device__ void multiply(const Field& f, const Tile& t) {
        const bool left = f.map_kind == kLeft;
        const int n = matrix_size(f), across = left ? t.width : t.count / n;
        const int along = left ? across : 1, aside = left ? 1 : n;  // steps in the tile: of the sum, of columns
        const int row = static_cast<int>(threadIdx.x) / 8, column = static_cast<int>(threadIdx.x) % 8;
        const float* map = fits_ ? map_ : given_;
        const int by_row = fits_ ? n + 1 : left ? n : 1, by_sum = fits_ || left ? 1 : n;
        __syncthreads();  // tiles are of all threads
        for (int r0 = 0; r0 < n; r0 += 128)
            for (int c0 = 0; c0 < across; c0 += kColumns) {
                float sum[4][4] = {};
                int rows[4], columns[4];
                for (int i = 0; i < 4; ++i)
                    rows[i] = min(r0 + row + 32 * i, n - 1) * by_row,
                    columns[i] = min(c0 + column + 8 * i, across - 1) * aside;
#pragma unroll 4
                for (int k = 0; k < n; ++k) {
                    float d[4], s[4];
#pragma unroll
                    for (int i = 0; i < 4; ++i) d[i] = map[rows[i] + k * by_sum], s[i] = tile_[columns[i] + k * along];
#pragma unroll
                    for (int i = 0; i < 4; ++i)
#pragma unroll
                        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(d[i], s[j], sum[i][j]);
                }
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const int r = r0 + row + 32 * i, c = c0 + column + 8 * j;
                        if (r < n && c < across) added_[r * along + c * aside] += sum[i][j];
                    }
            }
        __syncthreads();
    }

    __device__ __forceinline__ void swap() {
        float* other = tile_;
        tile_ = added_, added_ = other;
    }

    // ------------------------------------------------------------------------------------------ schemes

    /// A tile goes on as soon as it is summed up.
    __device__ bool ring() {
        const int before = x.position - 1, after = x.position + 1;
        for (int number = static_cast<int>(blockIdx.x); number < x.tiles; number += static_cast<int>(gridDim.x)) {
            const Tile t = tile_at(x, number);
            const Field& f = x.fields[t.field];
            bool sent = !x.sends;
            if (x.sends) {
                load(f, t, f.state + t.lane * f.block, added_);
                if (x.fresh || stage(f, t, f.map + t.lane * f.map_block)) {
                    store(f, t, added_, received(after, f, t));
                    signal(after, number, kAdded);
                    sent = true;
                }
            }
            if (!x.receives) continue;
            if (wait(before, number) < 0) return false;
            load(f, t, received(x.position, f, t), tile_);
            if (!sent) {
                apply(f, t);
                store(f, t, added_, received(after, f, t));
                signal(after, number, kAdded);
            }
            store(f, t, tile_, f.incoming + t.lane * f.block);
        }
        return true;
    }

    /// The rank's own summary of a tile to another: what it is, the state, the transition.
    __device__ void send_summary(const Field& f, const Tile& t, int number, int to, Kind kind) {
        if (kind != kNothing) store(f, t, added_, slot(to, x.position) + f.place + t.lane * f.block);
        if (kind == kMapped && f.map_kind != kIdentity && (t.leads || !matrix_size(f))) {
            const float* from = f.map + t.lane * f.map_block + map_begin(f, t);
            float* map = slot(to, x.position) + x.total + f.map_place + t.lane * f.map_block + map_begin(f, t);
            for (int i = static_cast<int>(threadIdx.x), n = map_count(f, t); i < n; i += kThreads)
                map[i] = __ldcg(from + i);
        }
        signal(to, x.tiles + number, kind);
    }
    __device__ Kind summary_of(const Field& f, const Tile& t) {
        if (!x.sends) return kNothing;
        load(f, t, f.state + t.lane * f.block, added_);
        return x.fresh || stage(f, t, f.map + t.lane * f.map_block) ? kAdded : kMapped;
    }
    /// Over what one more rank has sent. Returns whether a state goes on, or -1.
    __device__ int fold(const Field& f, const Tile& t, int number, int sender, int there) {
        const int kind = wait(sender, x.tiles + number);
        if (kind <= kNothing) return kind;
        const float* sent = slot(x.position, sender);
        if (kind == kMapped && matrix_size(f) && !t.leads && wait(sender, x.tiles + number - part_of(f, number)) < 0)
            return -1;
        load(f, t, sent + f.place + t.lane * f.block, added_);
        if (kind == kMapped && there) {
            stage(f, t, sent + x.total + f.map_place + t.lane * f.map_block);
            apply(f, t);
        }
        swap();
        return 1;
    }
    __device__ __forceinline__ int part_of(const Field& f, int number) const {
        return (number - f.first_tile) % f.tiles;
    }

    /// Each tile has an owner, who sums it up over all ranks and sends each its own.
    __device__ bool scatter_scan_gather() {
        const int blocks = static_cast<int>(gridDim.x), first = static_cast<int>(blockIdx.x);
        for (int number = first; x.position + 1 < x.ranks && number < x.tiles; number += blocks) {
            const Tile t = tile_at(x, number);
            const Kind kind = summary_of(x.fields[t.field], t);
            send_summary(x.fields[t.field], t, number, owner_of(t.unit), kind);
        }
        for (int number = first; number < x.tiles; number += blocks) {
            const Tile t = tile_at(x, number);
            if (owner_of(t.unit) != x.position) continue;
            const Field& f = x.fields[t.field];
            int there = 0;
            for (int s = 0; s + 1 < x.ranks; ++s) {
                there = fold(f, t, number, s, there);
                if (there < 0) return false;
                if (there == 0) continue;
                store(f, t, tile_, received(s + 1, f, t));
                signal(s + 1, number, kAdded);
            }
        }
        for (int number = first; x.receives && number < x.tiles; number += blocks) {
            const Tile t = tile_at(x, number);
            const Field& f = x.fields[t.field];
            if (wait(owner_of(t.unit), number) < 0) return false;
            load(f, t, received(x.position, f, t), tile_);
            store(f, t, tile_, f.incoming + t.lane * f.block);
        }
        return true;
    }

    /// Every rank has what all ranks before it have, and sums it up itself.
    __device__ bool all_gather() {
        const int blocks = static_cast<int>(gridDim.x), first = static_cast<int>(blockIdx.x);
        for (int number = first; x.position + 1 < x.ranks && number < x.tiles; number += blocks) {
            const Tile t = tile_at(x, number);
            const Kind kind = summary_of(x.fields[t.field], t);
            for (int q = x.position + 1; q < x.ranks; ++q) send_summary(x.fields[t.field], t, number, q, kind);
        }
        for (int number = first; x.receives && number < x.tiles; number += blocks) {
            const Tile t = tile_at(x, number);
            const Field& f = x.fields[t.field];
            int there = 0;
            for (int s = 0; s < x.position; ++s) {
                there = fold(f, t, number, s, there);
                if (there < 0) return false;
            }
            if (there) store(f, t, tile_, f.incoming + t.lane * f.block);
        }
        return true;
    }

    const Exchange& x;  // NOLINT: in every line
    Control* control_;
    Word epoch_;
    int* came_;  ///< of the block, what one thread has seen
    float *tile_, *added_, *map_;
    const float* given_ = nullptr;
    bool fits_ = false;
};

/// A tensor as a dense one of float32.
__device__ __forceinline__ float number_at(const void* from, Size at, int dtype) {
    if (dtype == 2) return static_cast<const float*>(from)[at];
    const unsigned short bits = static_cast<const unsigned short*>(from)[at];
    if (dtype == 0) return __uint_as_float(static_cast<unsigned>(bits) << 16);
    return ptx::from_half(bits);
}
__device__ __forceinline__ void gather(const Gather& g) {
    for (Size i = static_cast<Size>(blockIdx.x) * kThreads + threadIdx.x; i < g.count;
         i += static_cast<Size>(gridDim.x) * kThreads) {
        Size rest = i, at = 0;
        for (int axis = g.axes - 1; axis >= 0; --axis)
            at += rest % g.shape[axis] * g.strides[axis], rest /= g.shape[axis];
        g.to[i] = number_at(g.from, at, g.dtype);
    }
}
__device__ __forceinline__ void neutral(const Neutral& n) {
    for (Size i = static_cast<Size>(blockIdx.x) * kThreads + threadIdx.x; i < n.count;
         i += static_cast<Size>(gridDim.x) * kThreads)
        n.to[i] = n.width == 0 || i / n.width % n.width == i % n.width ? 1.0F : 0.0F;
}

}  // namespace forge::cuda::ranks

// NOLINTBEGIN: kernels, which one source includes
extern "C" __global__ __launch_bounds__(forge::cuda::ranks::kThreads, 1) void forge_exchange(
    const __grid_constant__ forge::cuda::ranks::Exchange exchange) {
    forge::cuda::ranks::Block(exchange).run();
}
extern "C" __global__ void forge_gather(const __grid_constant__ forge::cuda::ranks::Gather gather) {
    forge::cuda::ranks::gather(gather);
}
extern "C" __global__ void forge_neutral(const __grid_constant__ forge::cuda::ranks::Neutral neutral) {
    forge::cuda::ranks::neutral(neutral);
}
// NOLINTEND
