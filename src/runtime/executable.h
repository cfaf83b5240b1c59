/// An entry point compiled for one target: what was decided for it, the sources, and the kernels, loaded. Immutable, so
/// that threads share it. It decides nothing: it is made by the compiler (compile/driver.h), or read from where a
/// compiler left it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "forge/runtime.h"
#include "plan/plan.h"
#include "target/target.h"

namespace forge::runtime {

/// Why kernels that were compiled with load = false are not to be called.
inline constexpr const char* kNotLoaded = "compiled with load = false: expected a variant whose kernels are loaded";

/// Loaded kernels of a plan, and what a call of them needs. All members may be called by several threads at once.
class Kernels {
  public:
    Kernels() = default;
    Kernels(const Kernels&) = delete;
    Kernels& operator=(const Kernels&) = delete;
    virtual ~Kernels() = default;

    /// RuntimeError for a call that is wrong.
    virtual void run(const Call& call) const = 0;
    /// The call laid out for launches with other addresses; nullptr where nothing is gained by that.
    [[nodiscard]] virtual std::shared_ptr<const PreparedCall> prepare(const Call&) const { return nullptr; }
    [[nodiscard]] virtual std::size_t workspace_bytes(const Call& call) const = 0;
    [[nodiscard]] virtual std::size_t workspace_bytes(const Bounds& bounds) const = 0;
};

struct Executable {
    plan::Plan plan;
    target::Choice choice;  ///< of the plan's schedule, with what else there was
    std::vector<GeneratedSource> sources;
    std::optional<target::GpuFacts> gpu;  ///< that the kernels are for; none: a CPU
    std::string isa;                      ///< avx512, …, or a GPU's architecture
    std::string cache_dir;                ///< where its binaries lie
    double flops_per_token = 0, build_seconds = 0;
    bool from_cache = false;
    std::unique_ptr<const Kernels> kernels;  ///< last: they refer to the plan
};

}  // namespace forge::runtime
