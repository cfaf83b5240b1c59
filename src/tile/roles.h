/// Warp specialisation: who does what where several warp groups share a block that goes through chunks in order. The
/// first is the producer of inputs. The others divide the program in one of three ways:
///
///     not at all  there is one of them, which computes everything
///     by slices   the second computes the carried states of one tile; the others, each of every other chunk, its
///                 outputs
///     by tiles    the second computes what neither needs a state nor has the value axis, if anything does; each of the
///                 others all that is left, of a tile of its own
///
/// The second gives and the others take: what they need of it is handed over through shared memory. Where tiles have
/// nothing in common, nobody gives.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::tile {

struct Roles {
    static constexpr std::uint8_t kGives = 1, kTakes = 2;
    static constexpr int kHandoverFloats = 4;  ///< of the two barriers by which a buffer passes from group to group

    /// A copy of a fragment into an operand, by the group that gives.
    struct Passed {
        ir::ValueId value;
        std::int64_t offset = 0, floats = 0;  ///< of the first buffer, and of each
    };

    bool by_tiles = false;
    bool images_apart = false;     ///< what is stored for other kernels shares its memory with nothing else
    std::vector<std::uint8_t> of;  ///< per value: the groups that compute it
    std::vector<Passed> passed;
    std::set<ir::ValueId> of_tiles;  ///< by tiles: parameters that arrive side by side, of all tiles
    /// Carried fragments that products take in pieces: packed whole they would not fit beside what else a group holds.
    std::set<ir::ValueId> in_pieces;
    int takers = 0;                 ///< how many groups take; 0: the second one makes everything
    int first_taker = 2;            ///< the number of the first of them; 1: nobody gives
    int buffers = 0;                ///< of each value that is passed; by slices, of each group that takes one
    std::int64_t taker_floats = 0;  ///< of memory that each group that takes has for itself, side by side
    std::int64_t barriers = 0;      ///< where the barriers lie in shared memory

    [[nodiscard]] int groups() const { return first_taker + takers; }
    [[nodiscard]] bool has_giver() const { return first_taker == 2; }
    /// Tiles of a block.
    [[nodiscard]] int tiles() const { return by_tiles ? takers : 1; }
    [[nodiscard]] bool does(std::uint8_t role, ir::ValueId v) const {
        return (of[static_cast<std::size_t>(v)] & role) != 0;
    }
    /// How many of a parameter's buffers lie side by side in a stage.
    [[nodiscard]] int beside(ir::ValueId v) const { return of_tiles.contains(v) ? takers : 1; }
    /// Null if the value is not passed.
    [[nodiscard]] const Passed* find(ir::ValueId v) const {
        for (const Passed& p : passed)
            if (p.value == v) return &p;
        return nullptr;
    }
};

/// A producer, and a group that does all else.
Roles roles_with_producer(const ir::Function& fn, bool images_apart);
/// Of a function whose values have forms. Refused if the groups would have to share more than such operands, or store
/// for later kernels what is not `left_outputs`, made by those that make outputs.
Roles roles_by_slices(const ir::Function& fn, const std::vector<ir::ValueId>& vectors, int output_groups,
                      bool left_outputs);
/// `of_tiles`: inputs by name that have the value axis.
Roles roles_by_tiles(const ir::Function& fn, const std::vector<ir::ValueId>& vectors,
                     const std::set<std::string>& of_tiles, int tiles, int buffers);

}  // namespace forge::tile
