/// Warp specialisation: who does what where several warp groups share a task that goes through chunks in order. One is
/// the producer of inputs, one computes the carried states, and others, each of every other chunk, the outputs. What
/// these need of the states' group is handed over through shared memory.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/function.h"

namespace forge::tile {

struct Roles {
    static constexpr std::uint8_t kStates = 1, kOutputs = 2;
    static constexpr int kFirstOutput = 2;     ///< the number of the first group that makes outputs
    static constexpr int kHandoverFloats = 4;  ///< of the two barriers by which a buffer passes from group to group

    /// A copy of a fragment into an operand, by the states' group for the outputs' groups, which have one buffer each.
    struct Passed {
        ir::ValueId value;
        std::int64_t offset = 0, floats = 0;  ///< of the first buffer, and of each
    };

    std::vector<std::uint8_t> of;  ///< per value: the groups that compute it
    std::vector<Passed> passed;
    int output_groups = 0;           ///< 0: the kernel has no outputs
    std::int64_t output_floats = 0;  ///< of memory that each of these has for itself, side by side
    std::int64_t barriers = 0;       ///< where the barriers lie in shared memory

    [[nodiscard]] int groups() const { return kFirstOutput + output_groups; }
    [[nodiscard]] bool does(std::uint8_t role, ir::ValueId v) const {
        return (of[static_cast<std::size_t>(v)] & role) != 0;
    }
    /// Null if the value is not passed.
    [[nodiscard]] const Passed* find(ir::ValueId v) const {
        for (const Passed& p : passed)
            if (p.value == v) return &p;
        return nullptr;
    }
};

/// Of a function whose values have forms. Refused if the groups would have to share more than such operands.
Roles roles_of(const ir::Function& fn, const std::vector<ir::ValueId>& vectors, int output_groups);

}  // namespace forge::tile
