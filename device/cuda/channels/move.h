/// Between global memory and a thread's part of a tile. Rows are kept as they lie in memory until they are used: four
/// elements of 16 bits take two registers. Where strides and addresses allow it four elements move at once, else one.
#pragma once

#include "../portable/io.h"
#include "../ptx/store.h"
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

FORGE_DEVICE unsigned two(bf16, float low, float high) { return ptx::bf16_pair(low, high); }
FORGE_DEVICE unsigned two(f16, float low, float high) { return ptx::f16_pair(low, high); }

template <class T>
FORGE_DEVICE vec unpack(const Packed<T>& p) {
    return {{low(T{}, p.word[0]), high(T{}, p.word[0]), low(T{}, p.word[1]), high(T{}, p.word[1])}};
}
FORGE_DEVICE vec unpack(const Packed<float>& p) {
    return {{__uint_as_float(p.word[0]), __uint_as_float(p.word[1]), __uint_as_float(p.word[2]),
             __uint_as_float(p.word[3])}};
}

template <class T>
FORGE_DEVICE T element(const Packed<T>& p, int i) {
    if constexpr (sizeof(T) == 4) return __uint_as_float(p.word[i]);
    else return {static_cast<unsigned short>(p.word[i / 2] >> i % 2 * 16)};
}

/// A thread's rows of a tensor.
template <class T, int ROWS = kRows>
struct Rows {
    Packed<T> row[ROWS];
    FORGE_DEVICE vec operator[](int r) const { return unpack(row[r]); }
};

template <class T>
FORGE_DEVICE Packed<T> pack(const vec& x) {
    if constexpr (sizeof(T) == 4) return {{bits(x.x[0]), bits(x.x[1]), bits(x.x[2]), bits(x.x[3])}};
    else return {{two(T{}, x.x[0], x.x[1]), two(T{}, x.x[2], x.x[3])}};
}

/// p is in global memory and aligned to four elements.
template <class T>
FORGE_DEVICE Packed<T> load_packed(const T* p) {
    __builtin_assume(__isGlobal(p));
    if constexpr (sizeof(T) == 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(p);
        return {{v.x, v.y, v.z, v.w}};
    } else {
        const uint2 v = *reinterpret_cast<const uint2*>(p);
        return {{v.x, v.y}};
    }
}
template <class T>
FORGE_DEVICE void store_packed(T* p, const Packed<T>& x) {
    if constexpr (sizeof(T) == 4) ptx::store_global(p, x.word[0], x.word[1], x.word[2], x.word[3]);
    else ptx::store_global(p, x.word[0], x.word[1]);
}

/// A thread's rows of a tensor that has one number per token.
template <class T>
struct Numbers {
    T row[kRows];
    FORGE_DEVICE vec operator[](int r) const { return broadcast(to_float(row[r])); }
};

/// A token tensor of the call, with so many rows per token, of results all the same, or OF_ROWS of channels, of which
/// one is moved at a time.
template <class T, int ROWS = 1, bool OF_ROWS = false>
struct Tokens {
    const CallTensor& in_call;
    int place;        ///< among the kernel's tensors (Places::first)
    bool fours;       ///< four adjacent channels of any token can be moved at once
    Size before = 0;  ///< the elements before the row of channels

    FORGE_DEVICE Tokens(const Call& call, int tensor, int at) : in_call(call.tensors[tensor]), place(at) {
        const Size strides =
            in_call.token | in_call.sequence | (kHeadChannels ? 0 : in_call.head) | (OF_ROWS ? in_call.dim[0] : 0);
        const bool dense = step() == 1,
                   aligned = reinterpret_cast<Size>(in_call.data) % static_cast<Size>(kWidth * sizeof(T)) == 0;
        fours = dense & aligned & (strides % kWidth == 0);  // without branches: the first loads wait for it
    }
    FORGE_DEVICE Size stride() const { return in_call.token; }
    FORGE_DEVICE Size step() const { return channel_step(in_call, OF_ROWS); }
    FORGE_DEVICE Tokens of_row(int row) const {
        Tokens moved = *this;
        moved.before = before_row(in_call, row);
        return moved;
    }

    /// The address of this thread's first element, or, of a tensor with one number per token, of its first token's.
    template <class P>
    FORGE_DEVICE T* first(const P& places, bool channels = true) const {
        return reinterpret_cast<T*>(places.first[place]) + before + strip() * kRows * ROWS * stride() +
               (channels ? strip_channel() * step() : 0);
    }
};

/// The row that an input had before the sequence's first token: channel i at from[i * step]; nullptr if none is known,
/// or this part does not begin there.
struct Before {
    const float* from = nullptr;
    Size step = 0;
};

template <class P>
FORGE_DEVICE Before row_before(const Call& call, int tensor, const P& places, const Part& part) {
    if (part.row > 0 || part.rows <= 0) return {};
    return {last_rows<const float>(call, tensor, places.tile), channel_step(call.tensors[tensor])};
}

/// `back`: each row is that of as many tokens earlier. Tokens and channels out of range read as `pad`.
template <int ROWS = kRows, class T, bool OF_ROWS, class P>
FORGE_DEVICE Rows<T, ROWS> load_rows(const Tokens<T, 1, OF_ROWS>& tokens, const P& places, const Part& part, float pad,
                                     int back = 0, const Before& before = {}) {
    const int first = part.row < back ? back : 0;
    const T* from = tokens.first(places) - back * tokens.stride();
    Rows<T, ROWS> x;
    if (tokens.fours && first == 0 && part.whole()) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r, from += tokens.stride()) x.row[r] = load_packed(from);
    } else if (part.empty()) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) x.row[r] = pack<T>(broadcast(pad));
    } else {
#pragma unroll
        for (int r = 0; r < ROWS; ++r, from += tokens.stride()) {
            const bool there = first <= r && r < part.rows;
            const auto element = [&](int i) {
                const bool known = r < first && before.from && i < part.channels;
                return bits(there && i < part.channels
                                ? from[i * tokens.step()]
                                : from_float<T>(known ? before.from[(part.channel + i) * before.step] : pad));
            };
#pragma unroll
            for (int w = 0; w < Packed<T>::kWords; ++w) {
                if constexpr (sizeof(T) == 4) x.row[r].word[w] = element(w);
                else x.row[r].word[w] = element(2 * w) | element(2 * w + 1) << 16;
            }
        }
    }
    return x;
}

/// Of a tensor with one number per token.
template <class T, class P>
FORGE_DEVICE Numbers<T> load_numbers(const Tokens<T>& tokens, const P& places, const Part& part, float pad,
                                     int back = 0, const Before& before = {}) {
    const int first = part.row < back ? back : 0;
    const T* from = tokens.first(places, false) - back * tokens.stride();
    Numbers<T> x;
#pragma unroll
    for (int r = 0; r < kRows; ++r, from += tokens.stride())
        x.row[r] = first <= r && r < part.rows ? *from : from_float<T>(r < first && before.from ? *before.from : pad);
    return x;
}

/// Each row is that of the token before; `tensor` is the state that has the row before the first one.
template <class T, class P>
FORGE_DEVICE Rows<T> load_shifted_rows(const Tokens<T>& tokens, const P& places, const Part& part, float pad,
                                       const Call& call, int tensor) {
    return load_rows(tokens, places, part, pad, 1, row_before(call, tensor, places, part));
}
/// Where a thread has the tokens' own rows, too: the one before its first, and any of those before its own.
template <class T, class P>
FORGE_DEVICE Rows<T, 1> load_row_before(const Tokens<T>& tokens, const P& places, const Part& part, float pad,
                                        const Call& call, int tensor) {
    return load_rows<1>(tokens, places, part, pad, 1, row_before(call, tensor, places, part));
}
template <class T>
FORGE_DEVICE vec shifted_row(const Rows<T>& rows, const Rows<T, 1>& before, int row) {
    return row == 0 ? before[0] : rows[row - 1];
}
template <class T, class P>
FORGE_DEVICE Numbers<T> load_shifted_numbers(const Tokens<T>& tokens, const P& places, const Part& part, float pad,
                                             const Call& call, int tensor) {
    return load_numbers(tokens, places, part, pad, 1, row_before(call, tensor, places, part));
}

/// Stores a thread's rows of a result, without tokens and channels that are out of range.
template <class T, int ROWS, bool OF_ROWS, class P>
FORGE_DEVICE void store_rows(const Tokens<T, ROWS, OF_ROWS>& tokens, const P& places, const Part& part,
                             const Rows<T>& x) {
    T* to = tokens.first(places);
    if (tokens.fours && part.whole()) {
#pragma unroll
        for (int r = 0; r < kRows * ROWS; ++r, to += tokens.stride()) store_packed(to, x.row[r / ROWS]);
    } else if (!part.empty()) {
#pragma unroll
        for (int r = 0; r < kRows * ROWS; ++r, to += tokens.stride())
#pragma unroll
            for (int i = 0; i < kWidth; ++i)
                if (r / ROWS < part.rows && i < part.channels) to[i * tokens.step()] = element<T>(x.row[r / ROWS], i);
    }
}

/// Of a result that has one number per token, which all threads of a strip have.
template <class T, int ROWS, class P>
FORGE_DEVICE void store_numbers(const Tokens<T, ROWS>& tokens, const P& places, const Part& part, const Rows<T>& x) {
    if (strip_channel() != 0) return;
    T* to = tokens.first(places, false);
#pragma unroll
    for (int r = 0; r < kRows * ROWS; ++r, to += tokens.stride())
        if (r / ROWS < part.rows) *to = element<T>(x.row[r / ROWS], 0);
}

/// This thread's channels of a per-head input, or of a row of one.
template <class T>
FORGE_DEVICE vec load_head(const Call& call, int tensor, const Tile& at, const Part& part, int row = kNoRow) {
    const CallTensor& t = call.tensors[tensor];
    const Size step = channel_step(t, row != kNoRow);
    const T* const from = head_block<const T>(call, tensor, at) + before_row(t, row) + part.channel * step;
    const bool aligned = reinterpret_cast<Size>(from) % static_cast<Size>(kWidth * sizeof(T)) == 0;
    if (step == 1 && aligned && part.channels >= kWidth) return unpack(load_packed(from));
    vec x;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x.x[i] = i < part.channels ? to_float(from[i * step]) : 0.0f;
    return x;
}

/// The states after the last token: the strip that walked over it has them. Those behind have them too, as tokens that
/// are not there change nothing, but composed of maps, with one more rounding.
template <Order ORDER = Order::Forwards>
FORGE_DEVICE void store_state(const Call& call, int tensor, const Tile& at, const Part& part, const vec& x,
                              int row = kNoRow) {
    const int last = ORDER == Order::Backwards ? 0 : static_cast<int>(at.end - at.row) - 1;
    if (!at.last || strip() != (last > 0 ? last / kRows : 0)) return;
    const CallTensor& t = call.tensors[tensor];
    float* const to = state_block<float>(call, tensor, at);
    if (!to) return;
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
        if (i < part.channels) to[before_row(t, row) + (part.channel + i) * channel_step(t, row != kNoRow)] = x.x[i];
}

/// Where a state before this thread's tokens lies in the workspace, which has so many floats for a strip of a sequence
/// and head, or, where heads are channels, one for each of them.
FORGE_DEVICE float* saved_state(float* spill, const Call& call, const Tile& at, const Part& part, int floats) {
    const Size strip = at.block + part.row / kRows;
    return spill + (kHeadChannels ? strip * call.heads : (strip * call.heads + at.head) * floats) + part.channel;
}
FORGE_DEVICE bool moves_four(const Call& call, const Part& part) {
    return part.channels >= kWidth && (!kHeadChannels || call.heads % kWidth == 0);
}

FORGE_DEVICE vec load_saved(float* spill, const Call& call, const Tile& at, const Part& part, int floats) {
    if (part.empty()) return broadcast(0.0f);
    const float* const from = saved_state(spill, call, at, part, floats);
    if (moves_four(call, part)) return unpack(load_packed(from));
    vec x;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x.x[i] = i < part.channels ? from[i] : 0.0f;
    return x;
}

FORGE_DEVICE void store_saved(float* spill, const Call& call, const Tile& at, const Part& part, int floats,
                              const vec& x) {
    if (part.empty()) return;
    float* const to = saved_state(spill, call, at, part, floats);
    if (moves_four(call, part)) return store_packed(to, pack<float>(x));
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
        if (i < part.channels) to[i] = x.x[i];
}

}  // namespace forge::cuda
