/// Loaded kernels of a callable, and what a call of them needs. All members may be called by several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "forge/runtime.h"
#include "runtime/arguments.h"

namespace forge::runtime {

/// Which of a call's kernels run. Those up to the summaries of its segments can be run ahead of the others, which need
/// the states before the call: so ranks tell each other of their parts (dist/). Both calls have one workspace.
enum class Step : std::uint8_t {
    Whole,
    Summaries,       ///< all but each sequence's last, which the call itself does not need
    EverySummary,    ///< those, too
    AfterSummaries,  ///< the other kernels
};

/// Where summaries lie in the workspace of a call.
struct SummaryPlaces {
    std::vector<float*> spills;  ///< of the callable's, the first block of each
    std::int64_t heads = 1;
    /// Of a sequence: block (first + i) * heads + head of a spill is its summary i, of so many.
    std::int64_t first = 0, count = 1;
};

class Kernels {
  public:
    Kernels() = default;
    Kernels(const Kernels&) = delete;
    Kernels& operator=(const Kernels&) = delete;
    virtual ~Kernels() = default;

    /// RuntimeError for a call that is wrong.
    virtual void run(const Arguments& call, Step step) const = 0;
    void run(const Arguments& call) const { run(call, Step::Whole); }
    /// Of sequence n, in the call's workspace. `offsets`: of packed sequences, which are not read here.
    [[nodiscard]] virtual SummaryPlaces summaries(const Arguments& call, std::int64_t n,
                                                  std::span<const std::int64_t> offsets) const = 0;
    /// The call laid out for launches with other addresses; nullptr where nothing is gained by that.
    [[nodiscard]] virtual std::shared_ptr<const PreparedCall> prepare(const Arguments&) const { return nullptr; }
    [[nodiscard]] virtual std::size_t workspace_bytes(const Arguments& call) const = 0;
    [[nodiscard]] virtual std::size_t workspace_bytes(const Bounds& bounds) const = 0;
};

}  // namespace forge::runtime
