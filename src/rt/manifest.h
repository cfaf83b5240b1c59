/// What a package says of itself, as plain data and as JSON: its definitions, the kernels that were compiled of them
/// and for what, and the tables by which calls find theirs. Written by the compiler (src/package), read by libforge_rt.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/callable.h"

namespace forge::rt {

/// Of the files' format. A library reads this one: newer ones have what it cannot know, kernels of format 1 expect the
/// groups of a block on one axis, and those of format 2 other arguments (device/cuda/portable/call.h).
inline constexpr std::int64_t kFormat = 4;

/// Sizes that an entry point of a package may have.
inline constexpr std::size_t kMostSymbols = 8;

struct Definition {
    std::string name, text;
};

/// A size that was given when the package was built, and where a call shows it.
struct Symbol {
    std::string name;
    int tensor = -1, axis = 0;  ///< of that tensor as declared; -1: no input or output shows it, so there is one value
    std::int64_t factor = 1;
    friend bool operator==(const Symbol&, const Symbol&) = default;
};

/// A program of a definition: forward, decode, …
struct Entry {
    int definition = 0;
    std::string name;
    std::vector<Symbol> symbols;
    int dtype_tensor = -1;  ///< whose element type is that of the kernels; -1: there is one type only
    friend bool operator==(const Entry&, const Entry&) = default;
};

/// The kernels of an entry point for one target, element type and choice of sizes, by one schedule.
struct Compiled {
    int entry = 0, target = 0;
    DType dtype = DType::F32;
    std::vector<std::int64_t> sizes;  ///< in the order of the entry point's symbols
    std::string schedule, reason;     ///< what was chosen and why, for people
    std::string file;                 ///< a GPU's kernels; those of CPUs lie together in the target's file
    runtime::Callable callable;
};

/// Comparisons that lead a call to its kernels. What is compared: 0 is the element type, then come the symbols' sizes,
/// the tokens per sequence, the tasks (sequences times heads).
struct Node {
    int feature = 0;
    std::int64_t limit = 0;
    int at_most = 0, above = 0;  ///< the next node, or kernels n as -1 - n
};

struct Table {
    int entry = 0, target = 0;
    std::vector<Node> nodes;
    int root = 0;
};

struct Target {
    std::string name;  ///< x86-64-v3, sm_90a, …
    std::string file;  ///< with all its kernels; empty on a GPU
};

struct Manifest {
    std::string name, build;
    std::vector<Target> targets;
    std::vector<Definition> definitions;
    std::vector<Entry> entries;
    std::vector<Compiled> kernels;
    std::vector<Table> tables;
};

std::string print(const Manifest& manifest);
/// RuntimeError, which names the file, for what is no manifest, is one of a newer format, or refers to what is not
/// there. Whatever this accepts can be bound and laid out.
Manifest parse_manifest(const std::string& text, const std::string& file);

bool is_gpu(const Target& target);

}  // namespace forge::rt
