/// Random calls of the C ABI on the CPU: right ones, with tensors of any layout, and ones with something wrong in them.
/// Whatever memory a call claims is there, unless the call must be refused without looking at it.
#pragma once

#include <map>
#include <vector>

#include "capi/handle.h"
#include "forge_c.h"
#include "tests/fuzz/guarded_memory.h"
#include "tests/fuzz/mutator.h"

namespace forge::fuzz {

/// A tensor as its owner has it. Arrays are longer than the rank, so that other ranks can be claimed.
struct CallTensor {
    std::vector<std::int64_t> shape, strides;
    std::int32_t rank = 0, dtype = FORGE_F32;
    std::size_t element = 4;
    bool is_result = false, has_strides = false, has_shape = true;
    GuardedMemory memory;
    void* data = nullptr;
    std::vector<std::byte> before;  ///< what the memory held

    [[nodiscard]] forge_tensor c() const {
        return {data, has_shape ? shape.data() : nullptr, has_strides ? strides.data() : nullptr, rank, dtype};
    }
};

class RandomCall {
  public:
    RandomCall(const forge_attention& attention, Dice& dice);

    /// Makes something wrong, or at least unusual.
    void spoil();
    /// Launches. A Fault if a call that is right is refused, or something changes that should not.
    forge_status launch();

  private:
    using Slot = capi::Slot;
    [[nodiscard]] std::int64_t size_of(const Dim& dim) const;
    [[nodiscard]] std::vector<std::int64_t> shape_of(const Slot& slot) const;
    [[nodiscard]] CallTensor make(const std::vector<std::int64_t>& shape, DType dtype, bool is_result);
    void lay_out(CallTensor& t);
    void fill(CallTensor& t);
    void make_lengths();
    void make_offsets();
    void make_slots();
    void make_workspace();
    void spoil_tensor(CallTensor& t, const Slot* slot);
    void spoil_args();
    forge_status call();
    void expect_left_alone(bool launched) const;

    const forge_attention& attention_;
    Dice& dice_;
    std::int64_t sequences_ = 1, tokens_ = 0, heads_ = 1, chunks_ = 0, pool_ = 1;
    std::map<std::string, std::int64_t> heads_of_;
    bool packed_ = false, has_batch_ = false, with_slots_ = false;
    std::vector<std::int64_t> lengths_;
    std::vector<CallTensor> tensors_;
    std::vector<double> scalars_;
    CallTensor offsets_;
    std::vector<std::byte> initial_slots_, final_slots_, has_state_;
    GuardedMemory workspace_;
    forge_args args_{};
    std::size_t struct_bytes_ = sizeof(forge_args);
    std::byte tail_{0};  ///< what stands behind the fields that the library knows
    bool spoilt_ = false, dlpack_ = false, has_tensors_ = true, has_scalars_ = true;
};

}  // namespace forge::fuzz
