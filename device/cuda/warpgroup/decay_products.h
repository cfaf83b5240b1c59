/// Products of matrices [64, K] in which every channel decays on its own from token to token, and the rows of these
/// matrices decayed from the chunk's beginning or to its end. For operands of 16 bits: products are those of tf32, or,
/// PARTS = 2, within a block those of two bf16 parts of each factor; decays have the error of a difference of fp32
/// sums, below 1e-3.
///
/// With S the running sums of the log decays within a block of 16 rows and T_b the total of block b, what decays from j
/// in block b to i in a later block r is exp2(S_i) exp2(T_{r-1}) … exp2(T_{b+1}) exp2(T_b - S_j), none of which exceeds
/// 1 if no gate does. So k_j exp2(T_b - S_j) is formed once, where S_j lay, and q_i exp2(S_i) once; each block in
/// between costs one factor per channel. Within a block the factor is exp2(-T_b), the inverse of a decay; of channels
/// where it is out of range, the block's entries are summed one by one. What decays from the beginning or to the end is
/// one more factor of the same numbers.
#pragma once

#include "decay_patches.h"
#include "gate_sums.h"
#include "token_rows.h"

namespace forge::cuda {

/// Rows that are wanted nowhere.
struct NoRows {};

/// Rows times `scale` go to the image of an operand in global memory.
struct RowsTo {
    float* image;
    float scale;
};

/// Rows are an operand in shared memory, which may be the one that they decay from.
template <class O>
struct RowsIn {
    const O& operand;
};
template <class O>
RowsIn(const O&) -> RowsIn<O>;

/// A product's first operand, in shared memory or where it lies, where the product goes, and where its rows go, each
/// decayed from the chunk's beginning.
template <class Q, class Rows>
struct DecayFactor {
    const Q& q;
    Fragment<64, 64>& product;
    Rows rows;
};

/// The products' second operand, and where its rows go, each decayed to the chunk's end.
template <class K, class Rows>
struct DecayedTokens {
    const K& k;
    Rows rows;
};

namespace detail {

constexpr int kGroup = 16;  ///< channels that are multiplied at a time

/// Powers of two that a decay within a block may take for its inverse to be formed.
constexpr float kDecayRange = 100.0f;
FORGE_DEVICE vec exp2_of(const vec& x) {
    return each(x, [](float y) { return ptx::exp2_approximate(y); });
}

/// Of its warp's 16 rows, a block, a lane has `row` and `row` + 8, and of each 16 channels four, from `col` on.
struct DecayLane {
    int block, within, row, col;
    FORGE_DEVICE DecayLane() {
        const int self = thread();
        block = uniform(self / kLanes);
        within = self % kLanes / 4;
        row = block * 16 + within;
        col = self % 4 * 4;
    }
};

template <class O>
FORGE_DEVICE void put_rows(const NoRows&, const O&, int, int, const DecayPatch&, const vec&) {}
/// Four channels from `col` on of rows `row` and `row` + 8, times a factor per channel, as rows of an operand like this
/// one.
template <class O>
FORGE_DEVICE void put_rows(const RowsTo& to, const O&, int row, int col, const DecayPatch& x, const vec& decay) {
    using Half = HalfOf<typename O::T>;
    const vec factor = decay * broadcast(to.scale);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const vec y = x.rows[h] * factor;
        *reinterpret_cast<uint2*>(reinterpret_cast<typename O::T*>(to.image) + O::place(row + 8 * h, col)) =
            make_uint2(Half::pack(y.x[0], y.x[1]), Half::pack(y.x[2], y.x[3]));
    }
}

/// What may lie where products read their operands is written when they have.
template <class Rows, class O>
FORGE_DEVICE void put_rows(const RowsIn<Rows>&, const O&, int, int, const DecayPatch&, const vec&) {}
template <class Rows, int K>
FORGE_DEVICE void put_rows_last(const Rows&, const DecayLane&, int, const GateSums<K>&) {}
template <class O, int K>
FORGE_DEVICE void put_rows_last(const RowsIn<O>& to, const DecayLane& at, int col, const GateSums<K>& sums) {
    const vec decay = load(sums.after(at.block, col));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = at.row + 8 * h;
        to.operand.put_four(row, col, load(sums.at(row, col)) * decay);
    }
}

/// Of a block, a bit for each 16 channels of which one has a decay that is out of range.
template <int K>
FORGE_DEVICE unsigned steep_groups(const GateSums<K>& sums, int block) {
    static_assert(K <= 32 * kGroup);
    unsigned groups = 0;
#pragma unroll 1
    for (int d = lane() * kWidth; d < K; d += kLanes * kWidth) {
        const vec total = load(sums.total(block, d));
#pragma unroll
        for (int l = 0; l < kWidth; ++l) groups |= -total.x[l] > kDecayRange ? 1u << d / kGroup : 0;
    }
#pragma unroll
    for (int bit = 1; bit < kLanes; bit *= 2) groups |= __shfl_xor_sync(kAllLanes, groups, bit);
    return groups;
}

template <class T, int R, int C>
FORGE_DEVICE vec four_at(const Operand<T, R, C>& q, int row, int col) {
    return q.four_at(row, col);
}
template <class T>
FORGE_DEVICE vec four_at(const TokenRows<T>& q, int row, int col) {
    return {{q.number(row, col), q.number(row, col + 1), q.number(row, col + 2), q.number(row, col + 3)}};
}

/// What a lane has of a product's block of 16 x 16 on the diagonal, in two rows and four columns.
struct SteepBlock {
    float x[2][4];
};

/// Adds channels d to d + 3 to the products of this warp's own block, one entry by the other: decays are those of the
/// entries, and made once for all products. What is above the diagonal is dropped later.
template <bool EXCLUSIVE, class K, class... Factors>
FORGE_DEVICE void add_steep_channels(SteepBlock (&own)[sizeof...(Factors)], const DecayLane& at, int d, const K& k,
                                     const GateSums<K::kCols>& sums, const Factors&... factors) {
    vec to[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // of a block's first row, EXCLUSIVE has no entry
        const int row = at.row + 8 * h - EXCLUSIVE;
        to[h] = load(sums.at(row < at.block * 16 ? row + 1 : row, d));
    }
    const vec q[sizeof...(Factors)][2] = {{four_at(factors.q, at.row, d), four_at(factors.q, at.row + 8, d)}...};
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        const int j = at.block * 16 + n / 2 * 8 + at.col / 2 + n % 2;
        const vec from = load(sums.at(j, d)), token = k.four_at(j, d);
#pragma unroll
        for (int h = n / 2; h < 2; ++h) {
            const vec decayed = token * exp2_of(to[h] - from);
#pragma unroll
            for (int f = 0; f < static_cast<int>(sizeof...(Factors)); ++f)
#pragma unroll
                for (int l = 0; l < kWidth; ++l) own[f].x[h][n] += q[f][h].x[l] * decayed.x[l];
        }
    }
}

/// Sets the products to zeros, and in this warp's own block to what steep groups of channels give.
template <bool EXCLUSIVE, class K, class... Factors>
FORGE_DEVICE void start_products(const DecayLane& at, unsigned steep, const K& k, const GateSums<K::kCols>& sums,
                                 const Factors&... factors) {
    constexpr int kOwn = 8;  // numbers that a lane has of a block of 16 x 16
    SteepBlock own[sizeof...(Factors)] = {};
#pragma unroll 1
    for (; steep != 0; steep &= steep - 1)
#pragma unroll 1
        for (int d = (__ffs(static_cast<int>(steep)) - 1) * kGroup, end = d + kGroup; d < end; d += kWidth)
            add_steep_channels<EXCLUSIVE>(own, at, d, k, sums, factors...);
    Fragment<64, 64>* const products[] = {&factors.product...};
#pragma unroll
    for (int f = 0; f < static_cast<int>(sizeof...(Factors)); ++f)
#pragma unroll
        for (int n = 0; n < Fragment<64, 64>::kRegisters; ++n)
            products[f]->x[n] = n / kOwn == at.block ? own[f].x[n / 2 % 2][n % kOwn / 4 * 2 + n % 2] : 0.0f;
    __syncwarp();  // before sums are overwritten
}

/// For 16 channels: k decayed to the end of its block, where its sums lay; returns what has decayed since the block's
/// beginning.
template <bool EXCLUSIVE, class K, class Rows>
FORGE_DEVICE DecayPatch decay_tokens(const DecayLane& at, int col, const DecayedTokens<K, Rows>& tokens,
                                     const GateSums<K::kCols>& sums) {
    const vec total = load(sums.total(at.block, col)) + broadcast(2 * kRoundedUp);
    DecayPatch sum, since, k;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = at.row + 8 * h;
        sum.rows[h] = load(sums.at(row, col));
        vec to = sum.rows[h];
        if constexpr (EXCLUSIVE) to = row % 16 == 0 ? broadcast(kRoundedUp) : load(sums.at(row - 1, col));
        since.rows[h] = exp2_of(to);
    }
    if constexpr (EXCLUSIVE) __syncwarp();  // another lane's row has been read
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        k.rows[h] = tokens.k.four_at(at.row + 8 * h, col) * exp2_of(total - sum.rows[h]);
        store(sums.at(at.row + 8 * h, col), k.rows[h]);
    }
    put_rows(tokens.rows, tokens.k, at.row, col, k, load(sums.after(at.block, col)));
    return since;
}

/// Adds 16 channels of column block B to the products; of the rows' OWN, with k times the inverse of what decays in it.
template <int PARTS, int B, bool OWN, int COUNT, int K>
FORGE_DEVICE void multiply_decayed(float (*const (&products)[COUNT])[4], const DecayedRows<COUNT>& q,
                                   const DecayLane& at, int col, const GateSums<K>& sums) {
    vec k[] = {load(sums.at(B * 16 + at.within, col)), load(sums.at(B * 16 + 8 + at.within, col))};
    if constexpr (OWN) {
        constexpr float kNotRounded = PARTS == 2 ? 2 * kRoundedUp : 0;
        const vec inverse = exp2_of(broadcast(-kNotRounded) - load(sums.total(B, col)));
        k[0] = k[0] * inverse, k[1] = k[1] * inverse;
    }
    if constexpr (OWN && PARTS == 2) multiply_in_parts<B>(products, q, k);
    else multiply_in_tf32<B>(products, q, k);
}

/// Adds 16 channels to the products of row block R: its own column block, unless that is done, and those from B down.
/// On the way q takes what decays in the blocks that it has left behind.
template <int PARTS, int R, int B, int COUNT, int K>
FORGE_DEVICE void add_decay_blocks(float (*const (&products)[COUNT])[4], DecayedRows<COUNT>& q, bool own_done,
                                   const DecayLane& at, int col, const GateSums<K>& sums) {
    if constexpr (B == R) {
        if (!own_done) multiply_decayed<PARTS, B, true>(products, q, at, col, sums);
    } else {
        if constexpr (B + 1 < R) {
            const vec decay = exp2_of(load(sums.total(B + 1, col)));
#pragma unroll
            for (int c = 0; c < COUNT; ++c)
#pragma unroll
                for (int h = 0; h < 2; ++h) q.x[c].rows[h] = q.x[c].rows[h] * decay;
        }
        multiply_decayed<PARTS, B, false>(products, q, at, col, sums);
    }
    if constexpr (B > 0) add_decay_blocks<PARTS, R, B - 1>(products, q, own_done, at, col, sums);
}

/// What is on its way for a lane's channels of a factor that is read where it lies, of GROUPS times 16 channels.
template <int GROUPS>
struct DecayAhead {
    uint2 rows[GROUPS][2];
};

template <int GROUPS, class T, int R, int C>
FORGE_DEVICE DecayAhead<GROUPS> ask_ahead(const Operand<T, R, C>&, const DecayLane&, int) {
    return {};
}
template <bool TOGETHER, int GROUPS, class T>
FORGE_DEVICE void ask_rows(DecayAhead<GROUPS>& ahead, const TokenRows<T>& q, const DecayLane& at, int begin) {
#pragma unroll
    for (int n = 0; n < GROUPS; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) ahead.rows[n][h] = q.template four<TOGETHER>(at.row + 8 * h, begin + 16 * n);
}
template <int GROUPS, class T>
FORGE_DEVICE DecayAhead<GROUPS> ask_ahead(const TokenRows<T>& q, const DecayLane& at, int begin) {
    DecayAhead<GROUPS> ahead;
    if (q.together) ask_rows<true>(ahead, q, at, begin);
    else ask_rows<false>(ahead, q, at, begin);
    return ahead;
}
template <class T, int R, int C>
FORGE_DEVICE vec four_of(const Operand<T, R, C>& q, const uint2&, int row, int col) {
    return q.four_at(row, col);
}
template <class T>
FORGE_DEVICE vec four_of(const TokenRows<T>&, const uint2& ahead, int, int) {
    const pair a = HalfOf<T>::unpack(ahead.x), b = HalfOf<T>::unpack(ahead.y);
    return {{a.x[0], a.x[1], b.x[0], b.x[1]}};
}

/// A factor's 16 channels, decayed since the block's beginning; `before`: what has decayed before it. Its rows are
/// stored as those of an operand like k.
template <class Q, class Rows, class K>
FORGE_DEVICE DecayPatch decayed_rows(const DecayFactor<Q, Rows>& factor, const uint2 (&ahead)[2], const K& k,
                                     const DecayLane& at, int col, const DecayPatch& since, const vec& before) {
    DecayPatch x;
#pragma unroll
    for (int h = 0; h < 2; ++h) x.rows[h] = four_of(factor.q, ahead[h], at.row + 8 * h, col) * since.rows[h];
    put_rows(factor.rows, k, at.row, col, x, before);
    return x;
}

/// Adds 16 channels to the products, for the column blocks up to the rows' own, or before it if that is done.
template <int PARTS, int GROUPS, class K, class... Factors>
FORGE_DEVICE void add_decay_channels(const DecayLane& at, int col, int group, const DecayPatch& since,
                                     const DecayAhead<GROUPS> (&ahead)[sizeof...(Factors)], bool own_done, const K& k,
                                     const GateSums<K::kCols>& sums, const Factors&... factors) {
    constexpr int kCount = sizeof...(Factors);
    const vec before = load(sums.before(at.block, col));
    float(*const products[kCount])[4] = {reinterpret_cast<float(*)[4]>(factors.product.x)...};
    int count = 0;
    DecayedRows<kCount> q = {{decayed_rows(factors, ahead[count++].rows[group], k, at, col, since, before)...}};
    switch (at.block) {
        case 0:
            add_decay_blocks<PARTS, 0, 0>(products, q, own_done, at, col, sums);
            break;
        case 1:
            add_decay_blocks<PARTS, 1, 1>(products, q, own_done, at, col, sums);
            break;
        case 2:
            add_decay_blocks<PARTS, 2, 2>(products, q, own_done, at, col, sums);
            break;
        case 3:
            add_decay_blocks<PARTS, 3, 3>(products, q, own_done, at, col, sums);
            break;
    }
}

template <bool EXCLUSIVE>
FORGE_DEVICE void drop_above_diagonal(Fragment<64, 64>& f) {
    each_lower<64>([&](const Spot& s) { f.put(s, tril(f.at(s), s.i, s.j, -static_cast<int>(EXCLUSIVE))); });
}

}  // namespace detail

/// For each factor: product[i, j] = sum over d of q[i, d] k[j, d] exp(g[j + 1, d] + … + g[i, d]) for j <= i, EXCLUSIVE:
/// exp(g[j + 1, d] + … + g[i - 1, d]) for j < i; else 0. A factor's rows: q[i, d] exp(g[0, d] + … + g[i, d]),
/// EXCLUSIVE: up to g[i - 1, d]. The tokens' rows: k[j, d] exp(g[j + 1, d] + … + g[63, d]). `whole`, if not null: g's
/// sum over the tokens, [K]. `sums` are as sum_gates left them for g, as every thread sees them; lost afterwards. q and
/// k stay. GROUPS of 16 channels are computed at a time; fewer are a shorter text.
template <bool EXCLUSIVE, int PARTS, int GROUPS = 2, class K, class Rows, class... Factors>
FORGE_DEVICE void decay_products(const GateSums<K::kCols>& sums, float* whole, const DecayedTokens<K, Rows>& tokens,
                                 const Factors&... factors) {
    using namespace detail;
    constexpr int kAtOnce = GROUPS * kGroup;
    const DecayLane at;
    make_block_factors(sums, at.block, whole);
    const unsigned steep = steep_groups(sums, at.block);
    start_products<EXCLUSIVE>(at, steep, tokens.k, sums, factors...);
#pragma unroll 1
    for (int begin = at.col; begin < K::kCols; begin += kAtOnce) {
        const DecayAhead<GROUPS> ahead[] = {ask_ahead<GROUPS>(factors.q, at, begin)...};
        DecayPatch since[GROUPS];
#pragma unroll
        for (int n = 0; n < GROUPS; ++n) since[n] = decay_tokens<EXCLUSIVE>(at, begin + n * kGroup, tokens, sums);
        sync();
#pragma unroll
        for (int n = 0; n < GROUPS; ++n)
            add_decay_channels<PARTS>(at, begin + n * kGroup, n, since[n], ahead, steep >> (begin / kGroup + n) & 1,
                                      tokens.k, sums, factors...);
#pragma unroll
        for (int n = 0; n < GROUPS; ++n) put_rows_last(tokens.rows, at, begin + n * kGroup, sums);
    }
    (drop_above_diagonal<EXCLUSIVE>(factors.product), ...);
}

}  // namespace forge::cuda
