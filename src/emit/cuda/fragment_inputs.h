/// What a chunk reads in a kernel for warp groups: matrices and spills are asked for while earlier chunks are computed, by
/// copies that run on their own; vectors of tokens, and what follows from them alone, one warp makes ahead.
#pragma once

#include "emit/context.h"
#include "emit/transfers.h"

namespace forge::emit {

class FragmentInputs {
 public:
    FragmentInputs(Context& context, Transfers& transfers)
        : c_(context), transfers_(transfers), out_(context.out), plan_(context.plan), loop_(context.kernel.graph.loop), fn_(context.fn) {}

    void declare();            ///< the functions `start` and `make_vectors`
    void start_first();        ///< the first chunks' inputs are asked for; the first one's vectors are made
    /// The buffers of the chunk before are free: a later chunk's inputs may arrive there. Written once per chunk.
    void start_later();
    void make_next_vectors();  ///< the next chunk's; written once per chunk

    [[nodiscard]] bool is_vector(ir::ValueId v) const;
    [[nodiscard]] std::string half() const;                     ///< the element type of operands
    [[nodiscard]] std::string operand_type(ir::ValueId v) const;
    /// Where a token matrix's rows of a chunk begin, and its strides.
    [[nodiscard]] static std::string token_matrix(const std::string& name, int tensor);

 private:
    [[nodiscard]] bool through_registers(ir::ValueId v) const;
    [[nodiscard]] bool has_vectors() const;
    [[nodiscard]] std::string token_vector(ir::ValueId v) const;
    [[nodiscard]] std::string arriving(ir::ValueId v) const;    ///< where a buffer lies that is filled for chunk number `stage` of those in flight
    [[nodiscard]] const plan::TensorSlot& input_slot(ir::ValueId v) const;
    void declare_start();
    void declare_vectors();
    void vector(ir::ValueId v);

    Context& c_;
    Transfers& transfers_;
    Writer& out_;
    const plan::Plan& plan_;
    plan::Loop loop_;
    const ir::Function& fn_;
    bool later_started_ = false, vectors_made_ = false;  ///< written into the text
};

}  // namespace forge::emit
