/// What a random program is made of: named decisions, each a small number. A decision follows from the seed and its
/// name alone, so that changing one leaves the others as they are; 0 is always the simplest choice. That makes
/// shrinking a matter of setting decisions to 0, and a program a seed and a few decisions that are forced.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace forge::fuzz {

class Decisions {
  public:
    using Forced = std::map<std::string, int>;

    explicit Decisions(std::uint64_t seed, Forced forced = {}) : seed_(seed), forced_(std::move(forced)) {}

    /// An index into the weights, as probable as its weight says.
    int pick(const std::string& name, std::initializer_list<double> weights);
    int below(const std::string& name, int n);
    bool flip(const std::string& name, double probability) { return pick(name, {1 - probability, probability}) == 1; }

    [[nodiscard]] std::uint64_t seed() const { return seed_; }
    [[nodiscard]] const Forced& forced() const { return forced_; }
    /// Every decision that was asked for, with what came.
    [[nodiscard]] const std::map<std::string, int>& taken() const { return taken_; }

  private:
    std::uint64_t seed_;
    Forced forced_;
    std::map<std::string, int> taken_;
};

/// "12:c0.present=0,T=3" and back: a seed and what is forced.
std::string to_string(std::uint64_t seed, const Decisions::Forced& forced);
Decisions parse_decisions(const std::string& text);

}  // namespace forge::fuzz
