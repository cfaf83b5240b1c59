/// `forge build`: compiles entry points ahead of time, for targets that need not be there, and writes them as a package
/// that libforge_rt loads (docs/packages.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "forge/runtime.h"
#include "ir/definition.h"

namespace forge::package {

/// Sizes that have the same value, and the values that they are compiled for.
struct SizeAxis {
    std::vector<std::string> symbols;
    std::vector<std::int64_t> values;
};
/// "K=64,128", or "K=V=64,128" for two that are always the same. RuntimeError for another text.
SizeAxis parse_size_axis(const std::string& text);

struct Request {
    std::string name;    ///< of the package: an identifier
    std::string output;  ///< the folder to write
    std::vector<ir::Definition> definitions;
    std::vector<std::string> entries = {"forward", "decode"};
    std::vector<std::string> targets;  ///< sm_90a, sm_80, …, x86-64, x86-64-v3, x86-64-v4; native: this CPU's
    std::vector<DType> dtypes = {BF16};
    std::vector<SizeAxis> sizes;  ///< all values with all; definitions without such a size leave it out
    /// The calls that kernels are chosen for, all with all: tokens per sequence (decoding: one), and sequences times
    /// heads. Other calls get the kernels of the nearest.
    std::vector<std::int64_t> tokens = {512, 4096, 32768}, tasks = {8, 64, 512};
    int threads = 0;       ///< of a CPU that is compiled for; 0: as many as this machine has
    std::string database;  ///< what `forge tune` measured on a machine with the target; empty: this machine's cache
    std::string cache_dir;
    int jobs = 0;                  ///< at the same time; 0: one for each core
    bool batch_invariant = false;  ///< CompileOptions::batch_invariant: one set of kernels for all lengths and tasks
    bool chunk_states = false;     ///< whether calls can have the states before chunks
    DType state_dtype = F32;       ///< what decoding's states are made of in memory
    bool shared = false;           ///< also lib<name>.so, with everything in it
    std::string build;             ///< who builds: version and compiler
};

struct Summary {
    std::size_t kernels = 0, sources = 0, from_cache = 0;  ///< choices, compilations, and those that were there already
    std::vector<std::string> files;
};

/// `done` of `all` programs are compiled, `what` is the last one; called by one thread at a time.
using Progress = std::function<void(std::size_t done, std::size_t all, const std::string& what)>;

/// CompileError, RuntimeError. What was compiled stays in the cache, so that a build that was interrupted goes on where
/// it was; the package's files are replaced at the end.
Summary build(const Request& request, const Progress& progress = {});

/// The C header of a package: a struct and a function for each entry point.
std::string header_of(const std::string& name, const std::vector<ir::Definition>& definitions,
                      const std::vector<std::string>& entries);

}  // namespace forge::package
