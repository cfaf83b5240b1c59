/// Ranges of NVTX around launches, for Nsight Systems and the like: one for each, named after its entry point. The
/// library that has them is looked for when a package is opened, and only if it was asked for.
#pragma once

#include <string>

namespace forge::rt {

/// nvtxRangePushA and nvtxRangePop; both null where there are to be no ranges.
struct Ranges {
    int (*push)(const char* name) = nullptr;
    int (*pop)() = nullptr;
};

/// RuntimeError where no library has them.
Ranges load_ranges();

/// From here to the end of the scope. Without ranges it does nothing.
class Range {
  public:
    Range(const Ranges& ranges, const std::string& name) : pop_(ranges.pop) {
        if (ranges.push) ranges.push(name.c_str());
    }
    ~Range() {
        if (pop_) pop_();
    }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

  private:
    int (*pop_)();
};

}  // namespace forge::rt
