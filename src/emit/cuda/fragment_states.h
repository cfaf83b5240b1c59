/// How carried states, and the transitions of segments, come into a warp group's registers and tiles before the first
/// chunk and go out after the last.
#pragma once

#include "emit/context.h"
#include "emit/transfers.h"

namespace forge::emit {

/// The type of a fragment that holds a value, as emitted, and its parameters alone: `<M, N>`.
std::string fragment_type(const ir::Function& fn, ir::ValueId v);
std::string fragment_parameters(const ir::Function& fn, ir::ValueId v);

class FragmentStates {
  public:
    FragmentStates(Context& context, Transfers& transfers)
        : c_(context),
          transfers_(transfers),
          out_(context.out),
          plan_(context.plan),
          loop_(context.kernel.graph.loop),
          fn_(context.fn) {}

    void start();  ///< and what belongs to heads
    void store_before();
    void store();

  private:
    using At = Transfers::At;

    void start_state(ir::ValueId v);
    void start_small_state(ir::ValueId v);
    void join_summaries(ir::ValueId v);
    void wait_for_segment_before();
    void pass_on();
    [[nodiscard]] std::string place_in_relay(ir::ValueId v, const std::string& spill, const char* segment) const;
    [[nodiscard]] ir::ValueId carried(const ir::Result& r) const;
    void start_transition(ir::ValueId v);
    void fill(ir::ValueId v, const std::string& value);
    [[nodiscard]] bool makes_columns() const { return c_.kernel.graph.transition_columns; }
    [[nodiscard]] std::string columns_of_identity(ir::ValueId v) const;
    void store_summary(const ir::Result& r, ir::ValueId v);
    void store_columns(const ir::Result& r, ir::ValueId v);
    void store_spilled(const std::string& spill, ir::ValueId v, const char* block);
    void store_final(const ir::Result& r, ir::ValueId v);
    [[nodiscard]] std::string strides(ir::ValueId v, const std::string& rows, const std::string& cols) const;
    [[nodiscard]] std::string spill_strides(ir::ValueId v, const std::string& spill) const;
    [[nodiscard]] std::string tensor_strides(ir::ValueId v, int tensor) const;
    /// ` + …`: where a part of a state begins.
    [[nodiscard]] static std::string part_offset(int tensor, const At& at);
    /// `, …`: the rows and columns of its fragment that a tensor has, where those are not all.
    [[nodiscard]] std::string tensor_part(ir::ValueId v, int tensor, const At& at) const;

    Context& c_;
    Transfers& transfers_;
    Writer& out_;
    const plan::Plan& plan_;
    plan::Loop loop_;
    const ir::Function& fn_;
};

}  // namespace forge::emit
