/// The text of one chunk for one warp group: the operations that are its own, the waits between them, its results.
/// Where groups have roles there is a body for each role.
#pragma once

#include <set>

#include "emit/cuda/decay_groups.h"
#include "emit/cuda/fragment_inputs.h"
#include "emit/cuda/products.h"

namespace forge::emit {

class FragmentBody {
  public:
    /// `role`: of tile::Roles; 0: one warp group does everything.
    FragmentBody(Context& context, Transfers& transfers, FragmentInputs& inputs, std::uint8_t role);

    void declare_buffers();  ///< that are the same for all chunks
    void sum_first_gates();  ///< while the other inputs are on their way, where that can be
    /// `arrive`: waits until the chunk's inputs are there.
    void begin_chunk(const std::string& arrive);
    void operations();
    void keep_carried();  ///< for the next chunk
    [[nodiscard]] bool writes_memory() const;

  private:
    [[nodiscard]] bool is_states() const { return role_ == tile::Roles::kStates; }
    [[nodiscard]] bool is_outputs() const { return role_ == tile::Roles::kOutputs; }
    [[nodiscard]] bool is_mine(ir::ValueId v) const { return role_ == 0 || roles_->does(role_, v); }
    [[nodiscard]] bool is_passed(ir::ValueId v) const { return role_ != 0 && roles_->find(v); }
    [[nodiscard]] bool is_written(ir::ValueId v) const;  ///< as an operation of its own
    [[nodiscard]] bool touches(ir::ValueId v) const;
    [[nodiscard]] ir::ValueId last_reader() const;
    void declare_buffer(ir::ValueId v, const std::string& place);
    void declare_arrived();
    void pack_states();

    void operation(ir::ValueId v);
    void decay_group(const tile::DecayGroup& group);
    void compute(ir::ValueId v);
    void product(ir::ValueId v);
    void store_fragment(ir::ValueId v);
    void load_fragment(ir::ValueId v);
    void spread_fragment(ir::ValueId v);
    void pack(ir::ValueId v);
    void read_fragment(ir::ValueId v);
    void before(const Ranges& reads, const Ranges& writes);
    void wait_for_passed(ir::ValueId v);
    void release_before(ir::ValueId next);
    void release();

    void store_result(const ir::Result& r);
    void keep(const ir::Result& r);

    Context& c_;
    Transfers& transfers_;
    FragmentInputs& inputs_;
    Writer& out_;
    const plan::Plan& plan_;
    plan::Loop loop_;
    const ir::Function& fn_;
    const tile::Roles* roles_;  ///< null: one warp group does everything
    std::uint8_t role_;
    DecayGroups decays_;
    Products products_;

    // What the text has come to.
    std::set<ir::ValueId> packed_, copied_;  ///< carried fragments that must be copied from chunk to chunk
    std::set<ir::ValueId> waited_;           ///< passed values that are there
    ir::ValueId last_reader_ = 0;            ///< the last operation that reads what arrived or was passed
    bool released_ = false;                  ///< … and may be overwritten
    bool summed_ = false;                    ///< the first decay group's gates, ahead of it
    bool storing_ = false;                   ///< a copy that began in this chunk may still read memory
};

}  // namespace forge::emit
