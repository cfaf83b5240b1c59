/// What the exchange of states between GPUs is launched with, by value, and where things lie in the memory that ranks
/// write into. Positions number the ranks in the direction of the exchange; a window has the same layout on all.
///
/// Flags and data lie in the half of a window that the parity of the exchange's number, its epoch, says. The epoch is
/// counted in device memory, so that captured graphs can be replayed. A flag holds 4 * epoch + what came; each sender
/// has flags of its own, as between two exchanges the same tile may come from another rank.
#pragma once

#include "../../common/tensor.h"

namespace forge::cuda::ranks {

using device::Size;
using Word = unsigned long long;

constexpr int kThreads = 256, kTileFloats = 4096, kColumns = 32, kHeadFloats = 4;
constexpr int kMaxRanks = 72, kMaxFields = 8, kMaxAxes = 6;
constexpr Size kFlagBytes = 32, kDoneBytes = 64;  ///< apart, so that no two of them share a sector

/// How a rank's part changes a state: forge::Carried::Map.
enum Map : int { kIdentity, kFactors, kLeft, kRight };
enum Scheme : int { kRing, kScatterScanGather, kAllGather };
/// What a rank says of a tile that it sends: no state goes on, B alone as D is 0, D and B.
enum Kind : int { kNothing, kAdded, kMapped };

/// A state: `lanes` blocks of numbers, each cut into `tiles` of at most kTileFloats, or of a matrix's columns or rows.
struct Field {
    const float *state, *map;  ///< B and D of all lanes
    float* incoming;
    Size place, map_place;  ///< among all states and all transitions, in a window
    Size block, map_block;  ///< numbers of a lane's
    int map_kind, tiles, first_tile, first_unit;
    int rows, columns;                          ///< of a matrix: of the state
    int across;                                 ///< columns (kLeft) or rows (kRight) of a tile
    int four;                                   ///< whether tiles begin and end at multiples of four numbers
    int axes, shape[kMaxAxes], step[kMaxAxes];  ///< kFactors: of the state, and of its transition along them
};

/// The head of a rank's control block, which it has for itself; after it one word per rank, kDoneBytes apart: the
/// latest epoch of which that rank has read all.
struct Control {
    Word epoch, dead;
    unsigned ticket, unused;
};

struct Exchange {
    Field fields[kMaxFields];
    char *controls[kMaxRanks], *windows[kMaxRanks];  ///< by position
    Word* failed;                                    ///< in the host's memory: not 0 where the group has failed
    Word timeout;                                    ///< in nanoseconds; 0: none
    Word late;         ///< what is left there by who waited too long, with the rank's number added
    Size flags;        ///< of a sender, in a half
    Size data;         ///< bytes before the numbers of a window
    Size half;         ///< numbers of a half
    Size total, slot;  ///< numbers of all states; of all states and transitions, which a sender has a slot for
    int field_count, tiles, units, spread;
    int scheme, ranks, position, reverse;
    int receives, sends, fresh, ends;
    int staged;  ///< numbers of transitions that a block has room for
};

/// A tensor to be copied to a dense one of float32.
struct Gather {
    const void* from;
    float* to;
    Size count;
    int dtype;  ///< forge::DType: 0 bf16, 1 f16, 2 f32
    int axes;
    Size shape[8], strides[8];
};

/// The summaries of a rank's segments as one. Of lane n * heads + h, those of sequence n and head h, block (first + n *
/// count + i) * heads + h of the workspace has number i of `count`; strides are within a block.
struct Fold {
    const float *added, *map;   ///< B, and the factors D; null: the identity
    const float* begun;         ///< the states that sequences begin with, dense; null: zeros
    float *state, *transition;  ///< of all of them, dense; transition null: it is not asked for
    Size lanes, heads, first, count;
    Size block, map_size;         ///< numbers of a lane's state, and of its transition
    Size added_block, map_block;  ///< from block to block
    int four;                     ///< whether four numbers of a state are side by side wherever one is at a multiple
    int map_kind;
    int axes, map_axes;
    int shape[kMaxAxes], map_shape[kMaxAxes];
    Size stride[kMaxAxes], step[kMaxAxes];  ///< of B, and of D along the axes of the state
    Size map_stride[kMaxAxes];              ///< … and along its own
};

/// Transitions before the first token: ones, or `width` x `width` identities if that is not 0.
struct Neutral {
    float* to;
    Size count;
    int width;
};

}  // namespace forge::cuda::ranks
