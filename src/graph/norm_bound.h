/// Upper bounds of the operator norm of transitions, from the gates: how much of a state can be
/// left after a chunk. For factors (a scalar, a diagonal, one per entry) that is the largest of the
/// chunk's product. For matrices the recurrence itself is read, token by token: norms of factors
/// multiply, a rank-one update I - c a aᵀ has the norm max(1, |1 - c|a|²|) exactly, I - c a bᵀ at
/// most 1 + |c| |a| |b|. A state for which nothing sound can be said has no bound. In real
/// arithmetic: rounding is not counted.
#pragma once

#include "graph/summary.h"
#include "ir/definition.h"

namespace forge::graph {

struct NormBound {
    std::string state;
    enum class Over : std::uint8_t {
        Nothing,  ///< there is no bound
        Chunk,    ///< `fn` reads a chunk's inputs, and the factors so far as a parameter with role
                  ///< Ones
        Token,    ///< `fn` reads one token's inputs; the bound over more tokens is the product of
                  ///< theirs
    } over = Over::Nothing;
    ir::Function fn;       ///< one result, f32[]: the bound; constant 1 for the identity
    std::string obstacle;  ///< why there is none
};

/// One per state of the optimised `program`, in the order of its results.
std::vector<NormBound> norm_bounds(const ir::Function& program, const ir::Definition& def);

/// "at most %7, over a chunk" and the function, or why there is no bound, as comment lines for
/// people.
std::string to_string(const NormBound& bound);

}  // namespace forge::graph
