/// Which values are affine in the states, and through which operands.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/known.h"

namespace forge::graph {

bool is_state(const ir::Op& op);  ///< a parameter
std::vector<ir::Result> state_results(const ir::Function& program);

/// Operands through which the op is linear while all others are fixed; nullopt: through none.
std::optional<std::vector<std::size_t>> linear_operands(const ir::Op& op);

bool accumulates(const ir::Op& op);  ///< c + a @ b or c - a @ b

/// What stands between a program's results and its states: for each value on the way, which states it reads.
class StateReads {
  public:
    explicit StateReads(const ir::Function& program);

    [[nodiscard]] bool varies(ir::ValueId v) const { return !states_of(v).empty(); }
    [[nodiscard]] const std::set<std::string>& states_of(ir::ValueId v) const {
        return reads_[static_cast<std::size_t>(v)];
    }
    /// The first op on the way to v that is not affine in the states.
    [[nodiscard]] std::optional<ir::ValueId> obstacle(ir::ValueId v) const;

  private:
    using Obstacles = ir::Known<std::optional<ir::ValueId>>;
    std::optional<ir::ValueId> obstacle(ir::ValueId v, Obstacles& known) const;
    [[nodiscard]] bool is_affine(ir::ValueId v) const;

    const ir::Function& fn_;
    std::vector<std::set<std::string>> reads_;
};

}  // namespace forge::graph
