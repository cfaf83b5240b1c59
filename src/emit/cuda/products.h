/// Products under way on the matrix units: which fragments they will give and which shared memory they read, so that
/// waits are written only where a result is used or an operand's memory is to be overwritten.
#pragma once

#include <string>
#include <vector>

#include "emit/barriers.h"
#include "emit/writer.h"

namespace forge::emit {

class Products {
  public:
    Products(Writer& out, Barriers& barriers) : out_(out), barriers_(barriers) {}

    /// A product into the fragment of this name was started; it reads these ranges.
    void started(const std::string& fragment, const Ranges& reads) { groups_.push_back({fragment, reads}); }
    /// The fragment is about to be read or written.
    void need(const std::string& fragment);
    /// These ranges are about to be written.
    void overwrite(const Ranges& writes);
    [[nodiscard]] bool any() const { return !groups_.empty(); }
    void finish_all() { finish(groups_.size()); }

  private:
    struct Group {
        std::string fragment;
        Ranges reads;
    };
    void finish(std::size_t count);  ///< the oldest so many; groups end in order

    Writer& out_;
    Barriers& barriers_;
    std::vector<Group> groups_;
};

}  // namespace forge::emit
