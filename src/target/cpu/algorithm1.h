/// The paper's rule for {fused, decoupled}, its Algorithm 1 (Appendix B): parallel tasks and bytes of global memory of
/// both placements, and the one with the smaller time. Forge has better rules (choose.h); this one is kept as it is
/// stated, for comparison (`--rule paper`).
#pragma once

#include "plan/place.h"

namespace forge::target {

struct Algorithm1Inputs {
    std::int64_t batch = 1, tokens = 0, heads = 1;  ///< B, T, H
    std::int64_t key_size = 128, value_size = 128;  ///< d_k, d_v
    std::int64_t chunk = 64;                        ///< C
    std::int64_t key_tile = 128, value_tile = 128;  ///< t_k, t_v
    double bandwidth = 1;                           ///< BW, bytes/s of one task
    std::int64_t most_tasks = 132;                  ///< P_max, the cap of concurrency
    std::int64_t enough_tasks = 132;                ///< P_min, from which the device is saturated
    double compute_s = 0;                           ///< T_comp per chunk; 0 in the paper's practice
    std::int64_t element_bytes = 2;                 ///< s
};

struct Algorithm1 {
    std::int64_t chunks = 0;                            ///< N_c = ceil(T / C)
    std::int64_t state_tiles = 0;                       ///< P_state = ceil(d_k / t_k) ceil(d_v / t_v)
    std::int64_t decoupled_tasks = 0, fused_tasks = 0;  ///< P_dec = B H N_c P_state, P_fused = B H P_state
    double decoupled_bytes = 0, fused_bytes = 0;        ///< GMEM: (2 C (d_k + d_v) + {5, 4} d_k d_v) s
    double decoupled_s = 0, fused_s = 0;                ///< GMEM / (BW P~) + T_comp / P~, with P~ = min(P, P_max)
    bool saturated = false;                             ///< the fast path: P_fused >= P_min
    plan::Strategy strategy = plan::Strategy::Fused;
};

/// Fused on the fast path and where both times are equal.
Algorithm1 algorithm1(const Algorithm1Inputs& in);

}  // namespace forge::target
