/// A rank's call: which sequences cross its borders, and their states as dense buffers.
#pragma once

#include <map>

#include "dist/exchange.h"
#include "dist/store.h"
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
using Items = std::vector<Item>;

/// States of some sequences, by name: dense, [sequences, heads, …], in a Store.
using States = std::map<std::string, float*>;
/// One of them as a call takes it, and all.
TensorView view_of(const float* states, const Item& item, std::int64_t sequences);
std::map<std::string, TensorView> views_of(const States& states, const Items& items, std::int64_t sequences);
/// Sequences [row, row + count) of a state as a call has it.
TensorView rows_of(TensorView states, std::int64_t row, std::int64_t count);

/// What a call's arguments say of its size.
struct Geometry {
    Geometry(const ir::Definition& def, const Call& call, Store& store);

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
TensorView last_rows_of(const ir::LastRows& last, const ir::Definition& def, const Call& call, const Geometry& geometry,
                        std::int64_t row);

/// The last rows that a definition's calls carry, as items.
Items last_row_items(const ir::Definition& def, const Call& call);
/// The states that pass from rank to rank, of one of the definition's programs.
Items carried_items(const Attention& attention, const std::string& entry, std::int64_t heads);

}  // namespace forge::dist::detail
