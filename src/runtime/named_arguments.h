/// The arguments of a call by name, in the order in which the runtime takes them.
#pragma once

#include <vector>

#include "forge/runtime.h"
#include "runtime/arguments.h"

namespace forge::runtime {

class NamedArguments {
  public:
    /// Refuses names that there are not, numbers that are missing, and tensors without a stride for each axis. The call
    /// must outlive this.
    NamedArguments(const Callable& callable, const Call& call);
    NamedArguments(const Callable& callable, Call&& call) = delete;
    NamedArguments(const NamedArguments&) = delete;
    NamedArguments& operator=(const NamedArguments&) = delete;
    operator const Arguments&() const { return arguments_; }  // NOLINT(google-explicit-constructor): it is nothing else

  private:
    Arguments arguments_;
    std::vector<View> tensors_;
    std::vector<double> scalars_;
};

}  // namespace forge::runtime
