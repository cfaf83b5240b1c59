/// The demo's task: linear attention as an associative memory that reads a text once and predicts each next byte. Head
/// h stores, under a pseudo-random unit vector of the h + 1 bytes before position t, a fixed code of the byte at t; it
/// is then asked with the vector of the h + 1 bytes that end at t. Nothing is trained, and nothing after t is seen at
/// t.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "check/problem.h"

namespace forge::tools {

inline constexpr std::int64_t kHeads = 4, kSize = 128;  ///< kSize: of keys and of values
inline constexpr std::array<double, kHeads> kHeadWeights = {0.1, 0.2, 0.5, 1.0};
inline constexpr double kForever = 0;  ///< a memory that does not decay

/// A variant of the demo and its constants, per head.
struct DemoVariant {
    std::string name, label;
    std::array<double, kHeads> memory{};  ///< log decay -1/memory per token: tokens after which 1/e is left
    std::array<double, kHeads> beta{};    ///< writing strength of the delta rule
    double spread = 1;                    ///< channels' memories range from memory/spread to memory*spread
    std::string constants;                ///< the same in words
};
const std::vector<DemoVariant>& demo_variants();

/// How well the read-outs of one variant predict.
struct Score {
    double accuracy = 0;       ///< over all positions but the last
    double bits_per_byte = 0;  ///< over the positions after the first tenth, on which the temperature is fitted
    double temperature = 0;
    std::vector<std::uint8_t> guesses;  ///< the byte expected after each position
};

class DemoTask {
  public:
    /// Keys, values and codes for a text of at least two bytes.
    DemoTask(std::string text, std::uint64_t seed, DType dtype);

    [[nodiscard]] const std::string& text() const { return text_; }
    [[nodiscard]] std::int64_t tokens() const { return static_cast<std::int64_t>(text_.size()); }
    /// The variant's inputs apart from q, k and v: its gates and strengths, filled with the constants.
    [[nodiscard]] std::map<std::string, check::OwnedTensor> gates(const ir::Definition& def,
                                                                  const DemoVariant& variant) const;
    [[nodiscard]] Call call(const ir::Definition& def, const std::map<std::string, check::OwnedTensor>& gates,
                            const check::OwnedTensor& output) const;
    [[nodiscard]] check::OwnedTensor output() const;
    [[nodiscard]] Score score(const check::OwnedTensor& output) const;
    /// Relative RMS error of the first `tokens` outputs against the definition's step in float64.
    [[nodiscard]] double deviation(const ir::Definition& def, const std::map<std::string, check::OwnedTensor>& gates,
                                   const check::OwnedTensor& output, std::int64_t tokens) const;

  private:
    void read_out(const check::OwnedTensor& output, std::int64_t t, float* scores) const;
    [[nodiscard]] interp::Sequence sequence(const ir::Definition& def,
                                            const std::map<std::string, check::OwnedTensor>& gates, std::int64_t tokens,
                                            std::int64_t head) const;

    std::string text_;
    DType dtype_;
    check::OwnedTensor keys_;    ///< [1, tokens + 1, heads, size]; the queries are the same, one token on
    check::OwnedTensor values_;  ///< [1, tokens, heads, size]
    std::vector<float> codes_;   ///< [size, 256]: a column is a byte's code
};

}  // namespace forge::tools
