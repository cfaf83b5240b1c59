/// The algebra of a mask's function: of which place each of its values is, i or j, and what it is as a sum of products
/// of values that are of one place each.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/definition.h"
#include "ir/known.h"

namespace forge::frontend {

inline constexpr unsigned kOfQuery = 1, kOfKey = 2, kOfBoth = 3;
inline constexpr std::int64_t kMostWindow = 1024;

inline bool is_comparison(ir::Opcode code) { return ir::info(code).kind == ir::OpInfo::Kind::Compare; }

/// c times a product of values, some of them inverted.
struct Addend {
    double number = 1;
    std::vector<std::pair<ir::ValueId, bool>> factors;
};

/// What is known of the values of a mask's function.
class MaskValues {
  public:
    MaskValues(const ir::Function& fn, const std::vector<ir::InputDecl>& inputs);

    [[nodiscard]] const ir::Op& op(ir::ValueId v) const { return fn_.op(v); }
    [[nodiscard]] unsigned sides(ir::ValueId v) const { return sides_[at(v)]; }
    [[nodiscard]] bool reads_tokens(ir::ValueId v) const { return tokens_[at(v)]; }  ///< an input of tokens
    [[nodiscard]] const std::string& key(ir::ValueId v) const { return keys_[at(v)]; }
    [[nodiscard]] bool is_place(ir::ValueId v) const {
        return op(v).code == ir::Opcode::Param && (op(v).attrs.name == "i" || op(v).attrs.name == "j");
    }
    [[nodiscard]] std::optional<double> number(ir::ValueId v) const;

    /// The value as a sum of products of values that are of one place each; nullopt if it is none.
    [[nodiscard]] std::optional<std::vector<Addend>> sum(ir::ValueId v) const;
    [[nodiscard]] std::string key(const Addend& a) const;
    [[nodiscard]] unsigned sides(const Addend& a) const;
    /// (s, c) of s (i - j) + c.
    [[nodiscard]] std::optional<std::pair<double, double>> distance(ir::ValueId a, ir::ValueId b) const;
    /// Whether it never falls as its place goes on.
    [[nodiscard]] bool rises(ir::ValueId v) const;
    /// Of a floor(place / n), how many tokens it is the same for; 0 if it is none.
    [[nodiscard]] std::int64_t block(ir::ValueId v) const;
    /// Whether both say the same of their places, i and j.
    [[nodiscard]] bool same_of_both(ir::ValueId a, ir::ValueId b) const;

  private:
    static std::size_t at(ir::ValueId v) { return static_cast<std::size_t>(v); }
    [[nodiscard]] std::optional<std::vector<Addend>> worked_out(ir::ValueId v) const;
    /// Sums of both, with what is the same in one; i's and j's are told apart.
    [[nodiscard]] std::vector<Addend> merged(std::vector<Addend> a, std::vector<Addend> b) const;
    [[nodiscard]] std::string key_of(const ir::Op& op, const std::vector<ir::InputDecl>& inputs) const;

    const ir::Function& fn_;
    std::vector<unsigned> sides_;
    std::vector<bool> tokens_;
    std::vector<std::string> keys_;   ///< what is done to which values
    std::vector<ir::ValueId> first_;  ///< of those with the same key
    mutable ir::Known<std::optional<std::vector<Addend>>> sums_;
};

}  // namespace forge::frontend
