/// Which way a kernel for warp groups goes through chunks: the text of what comes later, and of whether it is there.
#pragma once

#include <fmt/format.h>

#include <string>

namespace forge::emit {

struct Direction {
    bool reverse = false;  ///< from the last chunk to the first

    [[nodiscard]] const char* sign() const { return reverse ? "-" : "+"; }
    /// The first row of the chunk so many rows later, and its blocks of spills.
    [[nodiscard]] std::string row(const std::string& rows) const { return fmt::format("row {} {}", sign(), rows); }
    [[nodiscard]] std::string block(const std::string& blocks) const {
        return fmt::format("block {} {}", sign(), blocks);
    }
    /// Whether the task has the chunk at `row`.
    [[nodiscard]] std::string within(const std::string& row) const {
        return row + (reverse ? " >= at.row" : " < at.end");
    }
};

}  // namespace forge::emit
