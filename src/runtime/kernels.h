/// Loaded kernels of a callable, and what a call of them needs. All members may be called by several threads at once.
#pragma once

#include <memory>

#include "forge/runtime.h"
#include "runtime/arguments.h"

namespace forge::runtime {

class Kernels {
  public:
    Kernels() = default;
    Kernels(const Kernels&) = delete;
    Kernels& operator=(const Kernels&) = delete;
    virtual ~Kernels() = default;

    /// RuntimeError for a call that is wrong.
    virtual void run(const Arguments& call) const = 0;
    /// The call laid out for launches with other addresses; nullptr where nothing is gained by that.
    [[nodiscard]] virtual std::shared_ptr<const PreparedCall> prepare(const Arguments&) const { return nullptr; }
    [[nodiscard]] virtual std::size_t workspace_bytes(const Arguments& call) const = 0;
    [[nodiscard]] virtual std::size_t workspace_bytes(const Bounds& bounds) const = 0;
};

}  // namespace forge::runtime
