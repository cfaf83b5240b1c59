/// Refusals of engines: a row of reasons.def with the program's names and numbers in it.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <vector>

#include "forge/refusal.h"

namespace forge {

enum class Reason : std::uint8_t {
#define FORGE_REASON(Name, engine, why, way_out) Name,
#include "support/reasons.def"
};

/// The row of a reason: its texts are formats.
struct ReasonRow {
    const char *name, *engine, *why, *way_out;
};
const std::vector<ReasonRow>& reasons();

template <class... Args>
Refusal refusal(Reason reason, const Args&... args) {
    const ReasonRow& row = reasons()[static_cast<std::size_t>(reason)];
    return {row.engine, row.name, fmt::format(fmt::runtime(row.why), args...),
            fmt::format(fmt::runtime(row.way_out), args...)};
}

/// Thrown where a program turns out not to fit an engine. The code that chooses between engines keeps the refusal.
class Refused : public std::runtime_error {
  public:
    explicit Refused(Refusal why) : std::runtime_error(to_string(why)), refusal_(std::move(why)) {}
    [[nodiscard]] const Refusal& refusal() const { return refusal_; }

  private:
    Refusal refusal_;
};

template <class... Args>
[[noreturn]] void refuse(Reason reason, const Args&... args) {
    throw Refused(refusal(reason, args...));
}

}  // namespace forge
