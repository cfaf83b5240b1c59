/// Between global memory and a thread's part of a tile. Rows are kept as they lie in memory until they are used: four
/// elements of 16 bits take two registers. Where strides and addresses allow it four elements move at once, else one.
/// `channels` is the number of channels of a head; a thread may have some of them, or none.
#pragma once

#include "../portable/io.h"
#include "tile.h"

namespace forge::cuda {

/// Four elements as they lie in memory, in whole registers: as elements of their own, 16 bits would take one each.
template <class T>
struct alignas(kWidth * sizeof(T)) Packed {
    static constexpr int kWords = kWidth * sizeof(T) / 4;
    unsigned word[kWords];
};

FORGE_DEVICE float low(bf16, unsigned word) { return __uint_as_float(word << 16); }
FORGE_DEVICE float high(bf16, unsigned word) { return __uint_as_float(word & 0xffff0000u); }
FORGE_DEVICE float low(f16, unsigned word) { return ptx::float_from_f16(static_cast<unsigned short>(word)); }
FORGE_DEVICE float high(f16, unsigned word) { return ptx::float_from_f16(static_cast<unsigned short>(word >> 16)); }
FORGE_DEVICE unsigned bits(float x) { return __float_as_uint(x); }
FORGE_DEVICE unsigned bits(bf16 x) { return x.bits; }
FORGE_DEVICE unsigned bits(f16 x) { return x.bits; }

template <class T>
FORGE_DEVICE vec unpack(const Packed<T>& p) {
    return {{low(T{}, p.word[0]), high(T{}, p.word[0]), low(T{}, p.word[1]), high(T{}, p.word[1])}};
}
FORGE_DEVICE vec unpack(const Packed<float>& p) {
    return {{__uint_as_float(p.word[0]), __uint_as_float(p.word[1]), __uint_as_float(p.word[2]), __uint_as_float(p.word[3])}};
}

/// A thread's rows of a tensor.
template <class T>
struct Rows {
    Packed<T> row[kRows];
    FORGE_DEVICE vec operator[](int r) const { return unpack(row[r]); }
};

/// p is aligned to four elements.
FORGE_DEVICE Packed<float> load_packed(const float* p) {
    const uint4 v = *reinterpret_cast<const uint4*>(p);
    return {{v.x, v.y, v.z, v.w}};
}
template <class T>
FORGE_DEVICE Packed<T> load_packed(const T* p) {
    const uint2 v = *reinterpret_cast<const uint2*>(p);
    return {{v.x, v.y}};
}

/// A thread's rows of a tensor that has one number per token.
template <class T>
struct Numbers {
    T row[kRows];
    FORGE_DEVICE vec operator[](int r) const { return broadcast(to_float(row[r])); }
};

/// Whether four adjacent channels of every token of a tensor can be moved at once.
template <class T>
FORGE_DEVICE bool in_fours(const CallTensor& t) {
    return detail::in_fours(static_cast<const T*>(t.data), t.token, t.dim[0]) && t.sequence % kWidth == 0 && t.head % kWidth == 0;
}

/// The address of this thread's first element; `back`: so many tokens earlier.
template <class T>
FORGE_DEVICE T* first_element(const Call& call, int tensor, const Tile& at, Size back = 0) {
    const CallTensor& t = call.tensors[tensor];
    return token_rows<T>(call, tensor, at) + (at.first_row() - back) * t.token + at.channel() * t.dim[0];
}

/// `back`: each row is that of so many tokens earlier. Tokens and channels that are not there read as `pad`.
template <class T>
FORGE_DEVICE Rows<T> load_rows(const Call& call, int tensor, const Tile& at, int channels, bool fours, float pad, int back = 0) {
    const Size stride = call.tensors[tensor].token, step = call.tensors[tensor].dim[0], left = channels - at.channel();
    const T* const from = first_element<const T>(call, tensor, at, back);
    const int first = at.first_row() < back ? back : 0, rows = at.rows();
    Rows<T> x;
    if (fours && first == 0 && rows == kRows && left >= kWidth) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) x.row[r] = load_packed(from + r * stride);
    } else {
        const auto element = [&](int r, int i) { return bits(first <= r && r < rows && i < left ? from[r * stride + i * step] : from_float<T>(pad)); };
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int w = 0; w < Packed<T>::kWords; ++w) {
                if constexpr (sizeof(T) == 4) x.row[r].word[w] = element(r, w);
                else x.row[r].word[w] = element(r, 2 * w) | element(r, 2 * w + 1) << 16;
            }
    }
    return x;
}

template <class T>
FORGE_DEVICE Numbers<T> load_numbers(const Call& call, int tensor, const Tile& at, float pad, int back = 0) {
    const Size stride = call.tensors[tensor].token;
    const T* const from = token_rows<const T>(call, tensor, at) + (at.first_row() - back) * stride;
    const int first = at.first_row() < back ? back : 0, rows = at.rows();
    Numbers<T> x;
#pragma unroll
    for (int r = 0; r < kRows; ++r) x.row[r] = first <= r && r < rows ? from[r * stride] : from_float<T>(pad);
    return x;
}

/// Brings a tile of a tensor into the L2 cache, by all threads together.
template <class T>
FORGE_DEVICE void prefetch_rows(const Call& call, int tensor, const Tile& at, int channels, bool fours) {
    constexpr int kLine = 128 / sizeof(T), kLines = kTileChannels / kLine;
    if (!fours) return;
    const Size stride = call.tensors[tensor].token, left = channels - at.tile * kTileChannels;
    const T* const from = token_rows<const T>(call, tensor, at) + at.row * stride + at.tile * kTileChannels;
    for (int n = thread(); n < kTileRows * kLines; n += kThreads)
        if (at.row + n / kLines < at.end && n % kLines * kLine < left) ptx::prefetch_to_l2(from + n / kLines * stride + n % kLines * kLine);
}

/// Row r of this thread, if it is there.
template <class T>
FORGE_DEVICE void store_row(const Call& call, int tensor, const Tile& at, int channels, bool fours, int r, const vec& x) {
    if (r >= at.rows()) return;
    const Size left = channels - at.channel(), step = call.tensors[tensor].dim[0];
    T* const to = first_element<T>(call, tensor, at) + r * call.tensors[tensor].token;
    if (fours && left >= kWidth) return detail::store_four(to, x);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
        if (i < left) to[i * step] = from_float<T>(x.x[i]);
}

/// This thread's channels of a per-head input.
template <class T>
FORGE_DEVICE vec load_head(const Call& call, int tensor, const Tile& at, int channels) {
    const T* const from = head_block<const T>(call, tensor, at);
    vec x;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x.x[i] = at.channel() + i < channels ? to_float(from[(at.channel() + i) * call.tensors[tensor].dim[0]]) : 0.0f;
    return x;
}

/// The states after the last token: the last warp has them, as tokens that are not there change nothing.
FORGE_DEVICE void store_state(const Call& call, int tensor, const Tile& at, int channels, const vec& x) {
    float* const to = state_block<float>(call, tensor, at);
    if (!to || !at.last || warp() != kWarps - 1) return;
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
        if (at.channel() + i < channels) to[(at.channel() + i) * call.tensors[tensor].dim[0]] = x.x[i];
}

}  // namespace forge::cuda
