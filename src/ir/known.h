#pragma once

#include <map>
#include <utility>

#include "ir/function.h"

namespace forge::ir {

/// What a recursive function says of values, worked out once for each, however many others read it.
template <class T>
class Known {
  public:
    template <class WorkOut>
    T at(ValueId v, WorkOut work_out) {
        if (const auto it = known_.find(v); it != known_.end()) return it->second;
        T made = work_out();
        return known_.emplace(v, std::move(made)).first->second;
    }

  private:
    std::map<ValueId, T> known_;
};

}  // namespace forge::ir
