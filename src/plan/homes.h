/// Where each value of a program is made (plan/place.h): by one of the stages that a strategy has, or by every kernel
/// that needs it.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "graph/slice.h"
#include "ir/function.h"
#include "plan/stages.h"

namespace forge::plan {

/// No stage: every kernel makes the value for itself; or there is none.
inline constexpr int kEverywhere = -1, kNone = -2;

class Homes {
  public:
    Homes(const ir::Function& program, Strategy strategy, const std::string& tile_axis, const PlaceRules& rules);

  protected:
    using Function = ir::Function;
    using Op = ir::Op;
    using Opcode = ir::Opcode;
    using Role = ir::Role;
    using ValueId = ir::ValueId;
    using Slice = graph::Slice;
    using Ahead = Stage::Ahead;
    using Carries = Stage::Carries;
    using Groups = std::vector<std::set<std::string>>;

    [[nodiscard]] bool has_epilogue() const { return !rules_.epilogue_axis.empty(); }
    [[nodiscard]] bool goes_back() const { return !befores_.empty(); }
    static bool is_one_of(const std::vector<int>& stages, int stage);
    [[nodiscard]] bool is_made_before(const Op& op) const { return is_before(op) && !given_; }
    /// The last scan whose states a value reads; kNone if there is none.
    [[nodiscard]] int last_read(const std::vector<int>& scans, ValueId v) const;
    [[nodiscard]] bool is_found_by(const Op& op, int stage) const;

    const Function& program_;
    Strategy strategy_;
    const std::string& tile_axis_;
    const PlaceRules& rules_;
    bool given_;  ///< the states before chunks are the caller's
    Groups early_groups_, saved_groups_, carried_groups_;
    std::vector<Stage> stages_;
    std::vector<std::vector<ir::Result>> roots_;  ///< by stage: what it makes, for the caller and for later ones
    std::vector<int> homes_;                      ///< by value: a stage
    std::set<std::string> sums_of_;
    std::vector<bool> epilogue_;                        ///< which values belong to it
    std::vector<std::vector<bool>> needed_by_, reads_;  ///< by stage: for its states, and of them
    std::vector<int> befores_, scans_;                  ///< stages, one for each group
    int ahead_ = 0, tiles_ = kNone, between_ = kNone, trailing_ = kNone, joint_ = kNone, last_ = 0, sums_ = kNone;

  private:
    static std::size_t index_of(const Groups& groups, const std::string& state);
    static bool is_before(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::Before; }
    static bool is_carried(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::State; }
    /// The scan of a group of early states; the stage before it makes what they add.
    static int early_scan(std::size_t group) { return 2 * static_cast<int>(group) + 1; }
    /// The scan of a state that is not early.
    [[nodiscard]] int scan_of(const std::string& state) const;
    /// … and of a saved one, by its name.
    [[nodiscard]] int scan_of_saved(const std::string& state) const;
    [[nodiscard]] Ahead ahead() const { return stages_[static_cast<std::size_t>(ahead_)].ahead; }
    [[nodiscard]] int stage_of(const ir::Result& r) const;
    /// What a stage's states are needed for, and what they need.
    void find_states_of(std::size_t stage);
    /// The states of one kind, by the scans that carry them: one of all of them, unless they are apart.
    [[nodiscard]] Groups groups_of(Role role) const;
    void find_homes();
    /// The states that a stage carries and, where the outputs' epilogue has a kernel, what a scan leaves it, and makes
    /// of outputs itself.
    [[nodiscard]] std::vector<ValueId> made_by_scan(int stage) const;
    /// kNone if there is none.
    [[nodiscard]] int first_that_needs(const std::vector<int>& scans, std::size_t value) const;
    /// What is needed for what the scans make other than for what is made between the scans.
    [[nodiscard]] std::vector<bool> needed_past(const std::vector<bool>& between) const;
    /// Outputs that are made ahead need not pass through a later kernel.
    void store_outputs_ahead();
    /// A gradient goes to the numbers that equal their maximum: every kernel makes it of the numbers that it has
    /// itself, as those that others have may be rounded otherwise, and none of them equal a maximum from there.
    [[nodiscard]] bool is_found_again(const Op& op) const { return op.code == Opcode::Amax && goes_back(); }
    /// But scans that have parts of what it is the maximum of read it, and do not look for it there.
    [[nodiscard]] bool is_found_by_all(const Op& op) const { return is_found_again(op) && is_along(op, tile_axis_); }
    /// Whether parts of an axis, if there is one, do.
    [[nodiscard]] bool is_along(const Op& op, const std::string& axis) const;
    /// What follows, without any state, from functions of the tokens in a column of the axis.
    void find_tiles(const std::vector<Slice>& marks);
    /// Functions number by number that are dear, and what follows from them, of matrices that products read, and beside
    /// them only sums, products and the like of numbers.
    [[nodiscard]] std::vector<bool> functions_for_products(const std::vector<Slice>& marks) const;
    /// A scan of some states makes what reads them. Of all else that is needed, `place(v, made, given)` finds the home:
    /// whether it is made by an operation, and given to the scan, which reads it or a view of it.
    template <class Place>
    void find_apart(int scan, const std::vector<bool>& reads, const std::vector<bool>& needed, Place place);
    [[nodiscard]] std::vector<bool> reads_states(const std::set<std::string>& names) const;
    /// The stage before the scan of early states makes what that is given. What is costly is stored for later kernels
    /// too.
    void find_early(std::size_t group, const std::vector<bool>& needed);
    /// The stage before the scan of trailing states makes what that is given; vectors of tokens, such as sums along the
    /// axis that scans are cut along, are stored for the outputs too, and each kernel makes the matrices that it needs
    /// for itself.
    void find_trailing(const std::vector<bool>& needed);
    /// What lacks the axis along which outputs are cut, or needs all of it, is made for all parts at once, and so is
    /// what that needs; what every kernel makes only if it needs all of it. But products over tokens alone are made
    /// again from operands rather than rounded to 16 bits on the way.
    void find_joint();
    [[nodiscard]] bool is_product_of_tokens(const Op& op) const;
    /// What is added to a sum.
    [[nodiscard]] bool is_sum(ValueId v) const;
    /// What no kernel stores for another even if all work is to be done ahead.
    [[nodiscard]] std::vector<bool> leaves_and_views() const;
    /// Elementwise values that lead to decays of scans over tokens. A decay of almost one, rounded to 16 bits,
    /// would be off by as much as it forgets: kernels for the matrix units make it from the inputs, each for itself.
    [[nodiscard]] std::vector<bool> decays_of_scans() const;
    /// A row of what is no constant or input, which takes far less room between kernels than the matrix that it is of.
    [[nodiscard]] bool is_row_of_what_is_made(const Op& op) const;
    /// An input of which every tile reads all.
    [[nodiscard]] bool is_shared_matrix(const Op& op) const;
    /// Whether a state-free value is made by the first kernel, for all chunks at once. What only the outputs need is
    /// left to a kernel that makes outputs for all chunks at once, if there is one, unless all its tiles would make it.
    [[nodiscard]] bool runs_ahead(std::size_t value, bool for_states) const;
};

}  // namespace forge::plan
