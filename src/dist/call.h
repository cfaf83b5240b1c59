/// A rank's call: which sequences cross its borders, and their states as dense buffers.
#pragma once

#include <map>

#include "dist/exchange.h"
#include "ir/definition.h"

namespace forge::dist::detail {

/// A state of a call, of one sequence: `heads` blocks of `shape`.
struct Item {
    std::string name;
    std::int64_t heads = 1;
    std::vector<std::int64_t> shape;
    float absent = 0;  ///< what it is where a call has none
    Carried::Map map = Carried::Map::Identity;
    std::vector<std::int64_t> map_shape = {};

    [[nodiscard]] std::int64_t block() const;  ///< numbers of a sequence's
};

/// States of some sequences, by name: dense, [sequences, heads, …].
using States = std::map<std::string, std::vector<float>>;
/// They as a call takes them.
std::map<std::string, TensorView> views_of(States& states, const std::vector<Item>& items);

/// What a call's arguments say of its size.
struct Geometry {
    Geometry(const ir::Definition& def, const Call& call);

    bool packed = false;
    std::int64_t sequences = 1, tokens = 0, heads = 1;  ///< tokens: of a sequence, or of all packed ones
    std::int64_t input_heads = 1;                       ///< the most of an input
    std::vector<std::int64_t> offsets;                  ///< of packed sequences

    /// The sequences that cross a border: all, or of packed ones the first or the last.
    [[nodiscard]] std::int64_t crossing() const { return packed ? 1 : sequences; }
    [[nodiscard]] std::int64_t row_of(bool last) const { return packed && last ? sequences - 1 : 0; }
    [[nodiscard]] std::int64_t first_token(std::int64_t row) const;
    [[nodiscard]] std::int64_t token_count(std::int64_t row) const;
};

/// The tokens of the sequences that cross a border, as a call of their own without states and outputs.
Call inputs_of(const ir::Definition& def, const Call& call, const Geometry& geometry, std::int64_t row);
/// The rows of the last of these tokens, per head, of an input that prev_token reads.
std::vector<float> last_rows_of(const ir::LastRows& last, const ir::Definition& def, const Call& call,
                                const Geometry& geometry, std::int64_t row);
/// Sequences [row, row + count) of states that a call has or has not: what is absent is as the item says.
std::vector<float> states_of(const std::map<std::string, TensorView>& given, const Item& item, std::int64_t row,
                             std::int64_t count);
/// Writes them into states that a call wants, where it does.
void store_states(const std::map<std::string, TensorView>& wanted, const Item& item, std::int64_t row,
                  const std::vector<float>& values);

/// The last rows that a definition's calls carry, as items.
std::vector<Item> last_row_items(const ir::Definition& def, const Call& call);
/// The states that pass from rank to rank, of one of the definition's programs.
std::vector<Item> carried_items(const Attention& attention, const std::string& entry, std::int64_t heads);

}  // namespace forge::dist::detail
