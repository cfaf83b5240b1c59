/// One chunk for one warp group: the operations that are its own, and its results.
/// Where groups have roles there is a body for each role.
#pragma once

#include <set>

#include "emit/cuda/decay_groups.h"
#include "emit/cuda/fragment_inputs.h"

namespace forge::emit {

class FragmentBody {
  public:
    /// `role`: of tile::Roles; 0: one warp group does everything.
    FragmentBody(Context& context, Transfers& transfers, FragmentInputs& inputs, std::uint8_t role);

    void declare_buffers();  ///< that are the same for all chunks
    void sum_first_gates();  ///< while the other inputs are on their way, where that can be
    /// `arrive`: waits until the chunk's inputs have arrived.
    void begin_chunk(kernel::Statement arrive);
    void operations();
    void keep_carried();  ///< for the next chunk
    [[nodiscard]] bool writes_memory() const;
    [[nodiscard]] bool loads_shifted() const;                              ///< rows of the token before, into tiles
    [[nodiscard]] bool stores_by_copy() const { return stores_by_copy_; }  ///< some results, as written so far

  private:
    [[nodiscard]] bool takes() const { return role_ == tile::Roles::kTakes; }
    [[nodiscard]] bool is_mine(ir::ValueId v) const { return role_ == 0 || roles_->does(role_, v); }
    [[nodiscard]] bool is_passed(ir::ValueId v) const { return role_ != 0 && roles_->find(v); }
    [[nodiscard]] bool is_written(ir::ValueId v) const;  ///< as an operation of its own
    [[nodiscard]] bool touches(ir::ValueId v) const;
    void declare_buffer(ir::ValueId v, const std::string& place);
    void declare_arrived();
    void declare_images();
    void pack_states();
    void pack_what_is_read(ir::ValueId v);
    void pack_what_is_multiplied(ir::ValueId v);
    void split_what_is_read(ir::ValueId v);
    void split(ir::ValueId v);

    void operation(ir::ValueId v);
    void decay_group(const tile::DecayGroup& group);
    void decay_apply(ir::ValueId v);
    void compute(ir::ValueId v);
    [[nodiscard]] std::vector<ir::ValueId> joined_to(ir::ValueId v) const;
    void pack_what_waits(ir::ValueId v);
    [[nodiscard]] bool is_in_pieces(ir::ValueId v) const;
    void product(ir::ValueId v);
    void store_fragment(ir::ValueId v);
    void store_by_turns(ir::ValueId v);
    void load_fragment(ir::ValueId v);
    void spread_fragment(ir::ValueId v);
    void pack(ir::ValueId v);

    void store_result(const ir::Result& r);
    void store_rows(const ir::Result& r);
    void store_float_image(const ir::Result& r);
    [[nodiscard]] std::string output_part(const ir::Result& r) const;
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

    // What the text has come to.
    std::set<ir::ValueId> packed_, split_, in_pieces_;
    bool stores_by_copy_ = false;
    bool summed_ = false;  ///< the first decay group's gates, ahead of it
};

}  // namespace forge::emit
