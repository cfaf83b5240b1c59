/// The lists of a call on the CPU (where sequences begin, which chunks there are) lie at the beginning of its
/// workspace, so that a call with one allocates nothing.
#pragma once

#include "runtime/binding.h"

namespace forge::runtime {

/// Hands out a workspace from its beginning on; what does not fit comes from the heap.
class Tables : public Memory {
  public:
    Tables(void* workspace, std::size_t bytes)
        : at_(static_cast<char*>(workspace)), begin_(at_), end_(at_ + (workspace ? bytes : 0)) {}
    /// From here on the rest of the workspace is something else's. InternalError if that is in use already.
    void end_at(std::size_t bytes);
    /// All of it again, when nothing of it is in use.
    void begin_again() { at_ = begin_; }

  private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override;
    void do_deallocate(void* place, std::size_t bytes, std::size_t alignment) override;
    [[nodiscard]] bool do_is_equal(const Memory& other) const noexcept override { return this == &other; }
    char *at_, *begin_, *end_;
};

/// Enough for the lists of a call with as many sequences, chunks and segments; does not fall when one of them rises.
support::Checked table_bytes(const Callable& callable, const Bound& bound);

}  // namespace forge::runtime
