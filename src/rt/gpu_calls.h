/// Calls of one set of kernels on a GPU. The layouts of the last few different calls are kept, in memory that is taken
/// when the package is opened: a call of one of them is only launched, others are checked and laid out first.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/prepared_call.h"
#include "runtime/tables.h"

namespace forge::rt {

class GpuCalls {
  public:
    /// The program must outlive this.
    GpuCalls(const runtime::Callable& callable, const runtime::CudaProgram& program);
    void launch(const runtime::Arguments& call);

  private:
    /// What tells layouts apart: types, shapes, strides, and what is given.
    using Key = std::vector<std::int64_t>;
    struct Known {
        Key key;
        std::unique_ptr<std::byte[]> memory;
        std::unique_ptr<runtime::Tables> lists;
        std::optional<runtime::PreparedCall> call;
    };
    void describe(const runtime::Arguments& call);
    const runtime::PreparedCall& prepared(const runtime::Arguments& call);

    static constexpr std::size_t kKnown = 8;
    const runtime::Callable& callable_;
    const runtime::CudaProgram& program_;
    std::mutex mutex_;
    Key key_;  ///< of the call that is being looked for
    std::array<Known, kKnown> known_;
    std::size_t next_ = 0;  ///< that is forgotten first
};

}  // namespace forge::rt
