/// Arithmetic on sizes that come from outside: what 64 bits do not hold is noticed, and stays noticed in whatever is
/// made of it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace forge::support {

/// A number of at least 0, or one that is too large to be held.
class Checked {
  public:
    static constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

    Checked(std::int64_t value) : value_(value) {}  // NOLINT(google-explicit-constructor): numbers begin such sums

    friend Checked operator+(Checked a, Checked b) {
        a.beyond_ = __builtin_add_overflow(a.value_, b.value_, &a.value_) || a.beyond_ || b.beyond_;
        return a;
    }
    friend Checked operator*(Checked a, Checked b) {
        a.beyond_ = __builtin_mul_overflow(a.value_, b.value_, &a.value_) || a.beyond_ || b.beyond_;
        return a;
    }
    /// The next multiple of a unit.
    [[nodiscard]] Checked rounded_up(std::int64_t unit) const {
        Checked next = *this + (unit - 1);
        next.value_ -= next.value_ % unit;
        return next;
    }

    /// Nothing if it is larger.
    [[nodiscard]] std::optional<std::int64_t> at_most(std::int64_t most = kMost) const {
        return beyond_ || value_ > most ? std::nullopt : std::optional(value_);
    }
    /// The largest number that is held for all that is larger.
    [[nodiscard]] std::int64_t saturated() const { return beyond_ ? kMost : value_; }

  private:
    std::int64_t value_;
    bool beyond_ = false;
};

}  // namespace forge::support
