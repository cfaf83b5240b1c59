/// The GPUs that tests of ranks have, if any: ranks take them in turn, so that several may have the same.
#pragma once

#include <optional>

#include "gpu/memory.h"
#include "tests/dist/ranks.h"

namespace forge::tests {

struct Gpus {
    int count = 0;
    bool emulated = false;  ///< by a driver that knows the exchange's kernels only
};
/// nullopt where there is no driver, no GPU, or no compiler for it.
std::optional<Gpus> find_gpus();

/// on_ranks, of which each has a GPU, its context and a stream.
std::vector<std::exception_ptr> on_gpus(
    int size, const dist::Options& options,
    const std::function<void(dist::Group&, const runtime::CudaDevice&, const gpu::Stream&)>& body);

}  // namespace forge::tests
