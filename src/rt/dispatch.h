/// Which kernels of a package a call gets: comparisons of a few numbers of the call, which the package's tables hold.
/// Nothing is hashed, measured or allocated.
#pragma once

#include "rt/manifest.h"
#include "runtime/arguments.h"

namespace forge::rt {

/// What tables compare, in the order of Node::feature.
struct Features {
    std::int64_t values[kMostSymbols + 3] = {};
    int symbols = 0;
    [[nodiscard]] std::int64_t dtype() const { return values[0]; }
    [[nodiscard]] std::int64_t size(int symbol) const { return values[1 + symbol]; }
    [[nodiscard]] std::int64_t& tokens() { return values[1 + symbols]; }
    [[nodiscard]] std::int64_t& tasks() { return values[2 + symbols]; }
};

/// Of a call whose tensors are `tensors`: only what they show, whether or not it is right. What does not show is that
/// of `any`, one of the entry point's kernels.
Features features_of(const Entry& entry, const Compiled& any, const runtime::Arguments& call);

/// The kernels to which the comparisons lead, by number.
std::size_t look_up(const Table& table, const Features& features);

/// Whether kernels are for the call's element type and sizes.
bool are_for(const Compiled& kernels, const Features& features);

/// "f32, K = 64, V = 64".
std::string shown(const Entry& entry, std::int64_t dtype, const std::int64_t* sizes);

/// The tables for people: what calls get which kernels, row by row, with where the choice is from.
std::string explain(const Manifest& manifest);

}  // namespace forge::rt
