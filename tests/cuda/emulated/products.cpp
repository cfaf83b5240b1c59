#include "tests/cuda/emulated/products.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace forge::emulated {
namespace {

constexpr int kRows = 16, kDepth = 16;  ///< of a warp's part of an instruction, and its contraction
constexpr int kMostColumns = 128;

float to_float(std::uint16_t x, bool bf16) {
    return bf16 ? std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16)
                : static_cast<float>(std::bit_cast<_Float16>(x));
}

/// f(lane, register, row, column) for a warp's part of a result.
template <class F>
void each_register(int columns, F f) {
    for (int lane = 0; lane < kLanes; ++lane)
        for (int n = 0; n < columns / 2; ++n)
            f(static_cast<std::size_t>(lane), n, lane / 4 + n / 2 % 2 * 8, n / 4 * 8 + lane % 4 * 2 + n % 2);
}

std::size_t index(int row, int columns, int column) { return static_cast<std::size_t>(row * columns + column); }

}  // namespace

std::shared_ptr<Products::Sum> Products::sum_for(const Product& product) const {
    std::shared_ptr<Sum> found;
    const auto look = [&](const Group& group) {
        for (const Issued& i : group)
            if (i.product.d == product.d) found = i.sum;
    };
    for (const Group& group : groups_) look(group);
    look(open_);
    if (found) return found;
    const std::size_t numbers = index(kRows, product.columns, 0);
    auto sum = std::make_shared<Sum>(Sum{product.d, product.columns, 0, std::vector<float>(numbers)});
    each_register(product.columns, [&](std::size_t lane, int n, int row, int column) {
        sum->x[index(row, product.columns, column)] = product.d[lane][n];
    });
    return sum;
}

void Products::issue(const Product& product, std::mt19937& random) {
    open_.push_back({product, sum_for(product)});
    ++open_.back().sum->users;
    ++issued_;
    each_register(product.columns, [&](std::size_t lane, int n, int, int) {
        product.d[lane][n] = std::numeric_limits<float>::quiet_NaN();
    });
    if (random() % 2 == 0) return;
    for (Group& group : groups_) carry_out(group);
    carry_out(open_);
}

void Products::commit() {
    groups_.push_back(std::move(open_));
    open_.clear();
}

void Products::wait(int pending) {
    for (; groups_.size() > static_cast<std::size_t>(pending); groups_.pop_front()) {
        carry_out(groups_.front());
        for (const Issued& i : groups_.front()) {
            Sum& sum = *i.sum;
            if (--sum.users > 0) continue;
            each_register(sum.columns, [&](std::size_t lane, int n, int row, int column) {
                sum.d[lane][n] = sum.x[index(row, sum.columns, column)];
            });
        }
    }
}

void Products::carry_out(Group& group) const {
    for (Issued& i : group)
        if (!i.done) multiply(i.product, *i.sum), i.done = true;
}

/// An element of an operand in shared memory, by the place beside the contraction and that in it, as its descriptor
/// says. PTX ISA, "Matrix Descriptor Format" and "Strides", for the 128-byte swizzle.
float Products::number(unsigned long long descriptor, bool along_rows, int other, int contraction, bool bf16) const {
    const auto field = [&](int bit) { return static_cast<unsigned>(descriptor >> bit & 0x3fff) << 4; };
    if (descriptor >> 62 != 1) throw std::runtime_error("an operand that is not in the 128-byte swizzle");
    const unsigned start = field(0), panel = field(16), eight_rows = field(32);
    const auto row = static_cast<unsigned>(along_rows ? contraction : other),
               column = static_cast<unsigned>(along_rows ? other : contraction);
    const unsigned address =
        start + (along_rows ? column / 64 * panel : 0) + row / 8 * eight_rows + row % 8 * 128 + column % 64 * 2;
    std::uint16_t bits = 0;
    std::memcpy(&bits, memory_.at(swizzled(address), sizeof(bits), sizeof(bits)), sizeof(bits));
    return to_float(bits, bf16);
}

void Products::multiply(const Product& p, Sum& sum) const {
    float a[kRows][kDepth];
    if (p.from_registers) {
        for (int lane = 0; lane < kLanes; ++lane)
            for (int n = 0; n < 8; ++n) {
                const unsigned pair = p.registers[static_cast<std::size_t>(lane)][static_cast<std::size_t>(n / 2)];
                a[lane / 4 + n / 2 % 2 * 8][lane % 4 * 2 + n % 2 + n / 4 * 8] =
                    to_float(static_cast<std::uint16_t>(pair >> n % 2 * 16), p.bf16);
            }
    } else {
        for (int i = 0; i < kRows; ++i)
            for (int k = 0; k < kDepth; ++k) a[i][k] = number(p.a, p.rows_a, warp_ * kRows + i, k, p.bf16);
    }
    float b[kDepth][kMostColumns];
    for (int k = 0; k < kDepth; ++k)
        for (int j = 0; j < p.columns; ++j) b[k][j] = number(p.b, p.rows_b, j, k, p.bf16) * static_cast<float>(p.sign);
    for (int i = 0; i < kRows; ++i) {
        float* const row = sum.x.data() + index(i, p.columns, 0);
        if (!p.accumulate) std::fill(row, row + p.columns, 0.0f);
        for (int k = 0; k < kDepth; ++k)
            for (int j = 0; j < p.columns; ++j) row[j] += a[i][k] * b[k][j];
    }
}

}  // namespace forge::emulated
