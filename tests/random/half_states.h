/// A call on memory of the host with its states in 16 bits, as the decode entry can have them.
#pragma once

#include "tests/random/pools.h"

namespace forge::fuzz {

class HalfStates {
  public:
    /// States of `given` are float32, those that come in numbers of 16 bits (make_buffers). F32: they stay what they
    /// are.
    HalfStates(const Call& given, DType dtype);

    [[nodiscard]] const Call& call() const { return call_; }
    /// Takes what the call has left to the float32 states.
    void take();

    std::deque<HostBlock> blocks;

  private:
    struct Copy {
        HostBlock* half;
        void* floats;
        std::int64_t count;
    };
    [[nodiscard]] TensorView halves_of(const TensorView& floats);

    DType dtype_;
    Call call_;
    std::map<const void*, Copy> copies_;  ///< by where the float32 states lie, which may be both
};

}  // namespace forge::fuzz
