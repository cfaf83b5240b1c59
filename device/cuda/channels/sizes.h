/// What channel kernels and whoever launches them agree on: sizes of tasks and of what tasks leave each other.
#pragma once

namespace forge::cuda {

#ifndef FORGE_TILE_CHANNELS
#define FORGE_TILE_CHANNELS 64
#endif
constexpr int kTileChannels = FORGE_TILE_CHANNELS;  ///< of a sequence and head that one task has
constexpr int kMostTileChannels = 128;              ///< where a task has all of them, as a warp has of a token
/// What a block knows of its tiles, in a ring: the one that some threads still finish, the current one, the next, whose
/// inputs are being loaded, and the one after, whose number is being fetched.
constexpr int kPlaces = 4;
constexpr int kMapBytes = 8;  ///< of a map of one state's channel: factor and addend

// Clusters.
constexpr int kMostBlocks = 8;  ///< that share a task
constexpr int kMailboxBytes = 8;

// Look-back.
constexpr int kGroup = 16;            ///< tiles that wait for each other's maps
constexpr int kWordBytes = 8;         ///< in which a map is published
constexpr int kExchangeHeader = 256;  ///< bytes before the first tile's words

}  // namespace forge::cuda
