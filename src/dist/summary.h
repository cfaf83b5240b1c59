/// What ranks exchange: states, and what a rank's part of the sequence does to them.
#pragma once

#include <cstdint>
#include <vector>

#include "forge/runtime.h"

namespace forge::dist::detail {

/// A state as it crosses borders: `lanes` blocks of `shape`, float32, dense.
struct Field {
    Carried::Map map = Carried::Map::Identity;
    std::vector<std::int64_t> shape, map_shape;
    std::int64_t lanes = 1;

    [[nodiscard]] std::int64_t block() const;      ///< numbers of a lane's state
    [[nodiscard]] std::int64_t map_block() const;  ///< … and of its transition; 0 if that is the identity
};

/// A rank's part: its tokens turn a state S into D∘S + B.
struct Summary {
    bool fresh = true;                       ///< what goes on to the next rank begins here: D is 0
    bool receives = false;                   ///< a state comes from the rank before
    bool sends = false;                      ///< a state goes to the rank after
    std::vector<const float*> states, maps;  ///< of each field: B and D (null: the identity)
};

}  // namespace forge::dist::detail
