/// A matrix of 16-bit numbers in shared memory as the matrix units read it: panels of 64 columns; a panel's row takes
/// 128 bytes, whose 16-byte pieces lie swizzled by the row's number modulo 8 (the hardware's 128-byte swizzle). The
/// same image passes through global memory between kernels.
///
/// Parts > 1: behind each panel lies one of what rounding took from it, and behind that of what it took from those, for
/// operands that need more than the 8 bits of a bf16.
#pragma once

#include "../portable/io.h"
#include "../ptx/copy.h"
#include "../ptx/mma.h"

namespace forge::cuda {

constexpr int kPanel = 64;  ///< columns
constexpr int kPiece = 8;   ///< numbers in 16 bytes

template <class T>
struct HalfOf;
template <>
struct HalfOf<bf16> {
    static constexpr ptx::Half value = ptx::Half::Bf16;
    FORGE_DEVICE static unsigned pack(float low, float high) { return ptx::bf16_pair(low, high); }
    FORGE_DEVICE static pair unpack(unsigned x) {
        return {{__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)}};
    }
};
template <>
struct HalfOf<f16> {
    static constexpr ptx::Half value = ptx::Half::F16;
    FORGE_DEVICE static unsigned pack(float low, float high) { return ptx::f16_pair(low, high); }
    FORGE_DEVICE static pair unpack(unsigned x) {
        return {{ptx::float_from_f16(static_cast<unsigned short>(x)),
                 ptx::float_from_f16(static_cast<unsigned short>(x >> 16))}};
    }
};

/// Of an operand, for the matrix units; 64 bits.
struct Descriptor {
    unsigned low, high;
    FORGE_DEVICE unsigned long long at(unsigned distance) const {
        return static_cast<unsigned long long>(high) << 32 | (low + distance);
    }
};

template <class Element, int Rows, int Cols, int Parts = 1>
struct Operand {
    using T = Element;
    static constexpr int kRows = Rows, kCols = Cols, kParts = Parts;
    static constexpr int kPart = Rows * kPanel;  ///< numbers of a part of a panel
    static constexpr int kPanelNumbers = Parts * kPart;
    static constexpr int kPieces = Parts * Rows * Cols / kPiece;
    T* data;  ///< 1024-byte aligned

    FORGE_DEVICE explicit Operand(float* tile) : data(reinterpret_cast<T*>(tile)) {}

    /// Where an element lies, in numbers from `data`.
    FORGE_DEVICE static int place(int row, int col) {
        return col / kPanel * kPanelNumbers + row * kPanel + ((col % kPanel / kPiece) ^ (row % 8)) * kPiece +
               col % kPiece;
    }

    /// The same for `rows` rows and `cols` columns more, multiples of 8 and of 32: `at` lies in one of the first 32
    /// columns.
    FORGE_DEVICE static int place_from(int at, int rows, int cols) {
        return (at ^ cols % kPanel) + cols / kPanel * kPanelNumbers + rows * kPanel;
    }

    /// The matrix units' description of the whole: contraction along the rows of memory or along its columns, and where
    /// a step of 8 in it, or of 64 beside it, leads. PTX ISA, "Matrix Descriptor Format".
    template <bool ROWS>
    FORGE_DEVICE Descriptor descriptor() const {
        constexpr unsigned kSwizzle128 = 1u << 30, kEightRows = 1024 >> 4, kNextPanel = kPanelNumbers * 2 >> 4;
        return {(ROWS ? kNextPanel : 1u) << 16 | ptx::shared_address(data) >> 4, kSwizzle128 | kEightRows};
    }
    /// How far the part of it that begins at (row, col) lies from its beginning, in the units of descriptors.
    FORGE_DEVICE static constexpr unsigned distance(int row, int col, int part) {
        return static_cast<unsigned>((col / kPanel * Parts + part) * kPart * 2 + row * 128 + col % kPanel * 2) >> 4;
    }

    FORGE_DEVICE float number(int row, int col) const { return to_float(data[place(row, col)]); }
    /// Elements (row, col) and (row, col + 1); col is even.
    FORGE_DEVICE pair at(int row, int col) const { return at_place(place(row, col)); }
    FORGE_DEVICE pair at_place(int element) const {
        pair x = HalfOf<T>::unpack(*reinterpret_cast<const unsigned*>(data + element));
#pragma unroll
        for (int part = 1; part < Parts; ++part)
            x = x + HalfOf<T>::unpack(*reinterpret_cast<const unsigned*>(data + part * kPart + element));
        return x;
    }
    /// Four from (row, col) on; col is a multiple of 4.
    FORGE_DEVICE vec four_at(int row, int col) const {
        vec x = four_of(*reinterpret_cast<const uint2*>(data + place(row, col)));
#pragma unroll
        for (int part = 1; part < Parts; ++part)
            x = x + four_of(*reinterpret_cast<const uint2*>(data + part * kPart + place(row, col)));
        return x;
    }
    /// Every other one of the eight from (row, 2 col) on, from their FIRST on; col is a multiple of 4.
    template <int FIRST>
    FORGE_DEVICE vec four_by_turns_at(int row, int col) const {
        const T* const at = data + place(row, 2 * col);
        vec x = {};
#pragma unroll
        for (int part = 0; part < Parts; ++part) {
            const uint4 bits = *reinterpret_cast<const uint4*>(at + part * kPart);
            const vec low = four_of(make_uint2(bits.x, bits.y)), high = four_of(make_uint2(bits.z, bits.w));
            const vec turn = {{low.x[FIRST], low.x[FIRST + 2], high.x[FIRST], high.x[FIRST + 2]}};
            x = part == 0 ? turn : x + turn;
        }
        return x;
    }
    /// … of the four from (row, 2 col) on; col is even.
    template <int FIRST>
    FORGE_DEVICE pair pair_by_turns_at(int row, int col) const {
        const vec x = four_at(row, 2 * col);
        return {{x.x[FIRST], x.x[FIRST + 2]}};
    }
    /// a's and b's by turns, to the eight from (row, 2 col) on; col is a multiple of 4.
    FORGE_DEVICE void put_by_turns(int row, int col, const vec& a, const vec& b) const {
        vec first = {{a.x[0], b.x[0], a.x[1], b.x[1]}}, second = {{a.x[2], b.x[2], a.x[3], b.x[3]}};
#pragma unroll
        for (int part = 0; part < Parts; ++part) {
            const uint2 low = bits_of(first), high = bits_of(second);
            *reinterpret_cast<uint4*>(data + part * kPart + place(row, 2 * col)) =
                make_uint4(low.x, low.y, high.x, high.y);
            if (part + 1 < Parts) first = first - four_of(low), second = second - four_of(high);
        }
    }
    FORGE_DEVICE void put_four(int row, int col, const vec& x) const {
        vec rest = x;
#pragma unroll
        for (int part = 0; part < Parts; ++part) {
            const uint2 bits = bits_of(rest);
            *reinterpret_cast<uint2*>(data + part * kPart + place(row, col)) = bits;
            if (part + 1 < Parts) rest = rest - four_of(bits);
        }
    }

  private:
    FORGE_DEVICE static uint2 bits_of(const vec& x) {
        return make_uint2(HalfOf<T>::pack(x.x[0], x.x[1]), HalfOf<T>::pack(x.x[2], x.x[3]));
    }
    FORGE_DEVICE static vec four_of(uint2 bits) {
        const pair a = HalfOf<T>::unpack(bits.x), b = HalfOf<T>::unpack(bits.y);
        return {{a.x[0], a.x[1], b.x[0], b.x[1]}};
    }
};

}  // namespace forge::cuda
