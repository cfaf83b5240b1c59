#include "tile/stays.h"

#include <algorithm>
#include <limits>

namespace forge::tile {
namespace {

/// One order after the other, of which the best is kept.
class Packing {
  public:
    Packing(std::vector<Stay>& stays, std::int64_t floats) : stays_(stays), least_(floats) {
        for (std::size_t n = 0; n < stays.size(); ++n)
            order_.push_back({stays[n].floats, stays[n].from, stays[n].to, n});
    }

    [[nodiscard]] std::int64_t least() const { return least_; }

    template <class Before>
    void sort(const Before& before) {
        std::stable_sort(order_.begin(), order_.end(), before);
        pack(least_);
    }

    /// Each time the best order with one of its stays moved, until that takes no more than is enough.
    void search(std::int64_t enough) {
        constexpr std::int64_t kMostTries = 4000, kComparisons = 40'000'000;
        const auto stays = static_cast<std::int64_t>(order_.size());
        const std::int64_t tries = std::min(kMostTries, kComparisons / (stays * stays));
        std::uint32_t seed = 1;
        const auto any = [&] {
            seed = seed * 1664525u + 1013904223u;
            return (seed >> 8) % order_.size();
        };
        std::int64_t best = pack(std::numeric_limits<std::int64_t>::max());
        for (std::int64_t n = 0; n < tries && least_ > enough; ++n) {
            const std::size_t from = any(), to = any();
            move(from, to);
            const std::int64_t end = pack(best);
            if (end > best) move(to, from);
            else best = end;
        }
    }

    /// The stays in the order tried last.
    void reorder() {
        std::vector<Stay> ordered;
        for (const Span& s : order_) ordered.push_back(std::move(stays_[s.stay]));
        stays_ = std::move(ordered);
    }

  private:
    struct Span {
        std::int64_t floats;
        ir::ValueId from, to;
        std::size_t stay;
    };
    struct Placed {
        std::int64_t begin, end;
        ir::ValueId from, to;
    };

    void move(std::size_t from, std::size_t to) {
        const auto at = [&](std::size_t i) { return order_.begin() + static_cast<std::ptrdiff_t>(i); };
        if (from < to) std::rotate(at(from), at(from) + 1, at(to) + 1);
        else std::rotate(at(to), at(from), at(from) + 1);
    }

    /// What the order takes, or, as soon as it is more than `most`, what it takes so far.
    std::int64_t pack(std::int64_t most) {
        placed_.clear(), offsets_.clear();
        std::int64_t end = 0;
        for (const Span& span : order_) {
            const std::int64_t at = lowest(span);
            end = std::max(end, at + span.floats);
            if (end > most) return end;
            offsets_.push_back(at);
            const auto after = [](std::int64_t begin, const Placed& p) { return begin < p.begin; };
            placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), at, after),
                           {at, at + span.floats, span.from, span.to});
        }
        if (end >= least_) return end;
        least_ = end;
        for (std::size_t n = 0; n < order_.size(); ++n) stays_[order_[n].stay].offset = offsets_[n];
        return end;
    }

    /// Beside all those placed before it that are there at the same time.
    [[nodiscard]] std::int64_t lowest(const Span& span) const {
        std::int64_t at = 0;
        for (const Placed& p : placed_) {
            if (p.begin >= at + span.floats) break;
            if (p.from <= span.to && span.from <= p.to) at = std::max(at, p.end);
        }
        return at;
    }

    std::vector<Stay>& stays_;
    std::int64_t least_;
    std::vector<Span> order_;
    std::vector<Placed> placed_;         ///< by where they begin
    std::vector<std::int64_t> offsets_;  ///< of those placed, in the order
};

}  // namespace

std::int64_t most_at_once(const std::vector<Stay>& stays) {
    std::int64_t most = 0;
    for (const Stay& at : stays) {
        std::int64_t sum = 0;
        for (const Stay& s : stays)
            if (s.from <= at.from && at.from <= s.to) sum += s.floats;
        most = std::max(most, sum);
    }
    return most;
}

std::int64_t packed(std::vector<Stay>& stays, std::int64_t floats, std::int64_t enough) {
    const auto life = [](const auto& s) { return s.to - s.from + 1; };
    Packing packing(stays, floats);
    packing.sort([](const auto& a, const auto& b) { return a.floats > b.floats; });
    packing.sort([&](const auto& a, const auto& b) { return life(a) > life(b); });
    packing.sort([&](const auto& a, const auto& b) { return a.floats * life(a) > b.floats * life(b); });
    if (packing.least() > enough && most_at_once(stays) <= enough) packing.search(enough);
    packing.reorder();
    return packing.least();
}

}  // namespace forge::tile
