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

/// `backwards`: of a program with saved states. `tiled`: scans are cut along an axis. `early_groups`: how many scans
/// states have that need no others (graph::early_groups).
std::vector<Stage> stages_of(Strategy strategy, bool backwards, bool tiled, const PlaceRules& rules,
                             std::size_t early_groups);

}  // namespace forge::plan
