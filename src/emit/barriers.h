/// Where the threads of a block must wait for one another: before an operation that touches memory which an operation
/// since the last barrier wrote, or writes memory which one read. Memory is told apart by ranges of the kernel's tiles.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "emit/writer.h"
#include "ir/function.h"

namespace forge::emit {

/// Floats of the tile memory.
struct Range {
    std::int64_t begin = 0, end = 0;
    [[nodiscard]] bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};
using Ranges = std::vector<Range>;
bool meet(const Ranges& a, const Ranges& b);

class Barriers {
  public:
    /// `on`: whether a task has more than one thread.
    explicit Barriers(bool on, std::string barrier = "sync();") : on_(on), barrier_(std::move(barrier)) {}

    /// Writes a barrier if the operation that comes next needs one.
    void before(Writer& out, const Ranges& reads, const Ranges& writes);
    /// Something that was under way has read this.
    void read(const Ranges& ranges) { read_.insert(read_.end(), ranges.begin(), ranges.end()); }
    /// The text has come to a barrier by other means.
    void passed() { read_.clear(), written_.clear(); }
    /// Writes a barrier if anything happened since the last one.
    void wait(Writer& out);

  private:
    bool on_;
    std::string barrier_;
    Ranges read_, written_;
};

}  // namespace forge::emit
