/// Inputs of fuzzing: valid texts, and texts that differ from them in a few places. The same seed gives the same ones.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

namespace forge::fuzz {

/// Random choices from a seed.
class Dice {
  public:
    explicit Dice(std::uint64_t seed) : random_(seed) {}
    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
    /// One time in `n`.
    bool one_in(std::size_t n) { return below(n) == 0; }
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }
    template <class T>
    T one_of(std::initializer_list<T> choices) {
        return choices.begin()[below(choices.size())];
    }
    template <class List>
    const auto& element_of(const List& list) {
        return list[below(list.size())];
    }

  private:
    std::mt19937_64 random_;
};

/// Every definition there is, in text form, and the functions that the graph passes make of them.
const std::vector<std::string>& valid_texts();
/// The definitions only.
const std::vector<std::string>& valid_definitions();

/// Numbers at the ends of their types, and a few that are just wrong.
std::int64_t extreme_number(Dice& dice);

class Mutator {
  public:
    Mutator(const std::vector<std::string>& texts, std::uint64_t seed) : texts_(texts), dice_(seed) {}

    /// One of the texts with one to four changes. Half of them replace words by others, which often gives a text that
    /// is still of the right form.
    std::string next();

  private:
    void change(std::string& text);
    void replace_word(std::string& text);
    void swap_lines(std::string& text);

    const std::vector<std::string>& texts_;
    Dice dice_;
};

}  // namespace forge::fuzz
