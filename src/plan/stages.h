/// The kernels that a strategy has, in the order in which they run, before it is known what each of them makes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plan/place.h"

namespace forge::plan {

struct Stage {
    std::string name;
    Loop loop;
    enum class Ahead : std::uint8_t {
        Nothing,
        Shared,
        OfTiles,  ///< … of every tile, beside what they share
        StateFree,
        Between,               ///< what a kernel between two scans makes for the second
    } ahead = Ahead::Nothing;  ///< what a first kernel makes for all chunks
    /// Of a scan: the states that it carries.
    enum class Carries : std::uint8_t {
        All,
        Early,     ///< those that need no others
        Before,    ///< those that go forwards in a program that goes backwards
        Trailing,  ///< those that no others need
        Sums,      ///< those to which every chunk only adds
    } carries = Carries::All;
    bool joint = false;  ///< makes what kernels that are cut along another axis have in common
};

/// How many scans states of one kind have.
struct ScanCounts {
    std::size_t early = 0;   ///< those that need no others (graph::early_groups)
    std::size_t before = 1;  ///< saved states
    std::size_t all = 1;     ///< all others (graph::state_groups)
};

/// `backwards`: of a program with saved states. `tiled`: scans are cut along an axis.
std::vector<Stage> stages_of(Strategy strategy, bool backwards, bool tiled, const PlaceRules& rules,
                             const ScanCounts& counts);

}  // namespace forge::plan
