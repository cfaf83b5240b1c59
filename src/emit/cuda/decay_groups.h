/// The text of decay groups (tile/decay_group): the sums of their gates, then all that is made from them.
#pragma once

#include "emit/context.h"
#include "emit/transfers.h"
#include "tile/decay_group.h"

namespace forge::emit {

class DecayGroups {
  public:
    DecayGroups(Context& context, const Transfers& transfers)
        : c_(context), transfers_(transfers), fn_(context.fn), groups_(tile::decay_groups(fn_)) {}

    [[nodiscard]] const std::vector<tile::DecayGroup>& groups() const { return groups_; }
    /// The group that a value is made with; null if none.
    [[nodiscard]] const tile::DecayGroup* with(ir::ValueId v) const;
    /// Whether the first group is the first thing to be computed, but for vectors, and reads its gates in global
    /// memory.
    [[nodiscard]] bool starts_kernel() const;

    [[nodiscard]] kernel::Accesses room(const tile::DecayGroup& group) const;  ///< that is written with the sums
    [[nodiscard]] kernel::Accesses gates(const tile::DecayGroup& group) const;
    [[nodiscard]] kernel::Accesses operands(const tile::DecayGroup& group) const;

    void sum_gates(const tile::DecayGroup& group, const char* rows) const;
    void multiply(const tile::DecayGroup& group) const;
    /// The gates of a `decay_apply` in fragments, and the operation itself.
    void sum_gates_of(ir::ValueId apply) const;
    void apply(ir::ValueId v) const;

  private:
    [[nodiscard]] std::string sums(const tile::DecayGroup& group) const;
    [[nodiscard]] std::string sums_of(ir::ValueId apply) const;
    void sum(const std::string& sums, ir::ValueId gates, const char* rows) const;
    [[nodiscard]] std::string columns_of(ir::ValueId input) const;
    [[nodiscard]] std::string first_operand(ir::ValueId q) const;
    [[nodiscard]] std::string rows_to(ir::ValueId rows) const;

    Context& c_;
    const Transfers& transfers_;
    const ir::Function& fn_;
    std::vector<tile::DecayGroup> groups_;
};

}  // namespace forge::emit
