/// The arguments of a call on a GPU: copies of host buffers, or a pattern of tokens repeated to any length.
#pragma once

#include <vector>

#include "check/problem.h"
#include "gpu/memory.h"

namespace forge::gpu {

/// Host buffers and their copies on the device.
class DeviceBuffers {
  public:
    explicit DeviceBuffers(check::Buffers& host);
    /// With a workspace that the attention can do with, filled with NaN.
    Call& call(const Attention& attention, const Stream& stream);
    /// Without one, for a call that is yet to be changed.
    [[nodiscard]] Call without_workspace(const Stream& stream) const;
    void set_offsets(const check::Buffers& other);  ///< the packed lengths of another problem with as many sequences
    void fetch(check::Buffers& into) const;         ///< outputs and final states

  private:
    void upload(const check::OwnedTensor& x, TensorView& view);
    check::Buffers& host_;
    Call call_;
    std::vector<Memory> memory_;
};

/// The problem whose random inputs are repeated for one of any length: at most 1024 tokens of one sequence.
check::Problem pattern_of(check::Problem problem);

/// How many tokens a repeated call has, and in which sequences.
struct Extent {
    std::int64_t B = 1, T = 0;
    std::vector<std::int64_t> lengths = {};  ///< packed sequences if not empty; B and T then do not count
    bool final_states = false;               ///< whether they are wanted
    bool states_in_place = false;            ///< as when decoding: the initial ones, zeros at first, are the final ones

    [[nodiscard]] std::int64_t sequences() const;
    [[nodiscard]] std::int64_t tokens() const;  ///< of all sequences
};

/// A call without initial states, unless they are in place, whose token tensors repeat those of a pattern, on through
/// all sequences: long ones would take minutes to make on the host. For measurements, and for calls larger than a
/// host's memory.
class RepeatedCall {
  public:
    /// `pattern`: dense buffers of one sequence (see pattern_of).
    RepeatedCall(const check::Buffers& pattern, const Extent& extent);
    /// With a workspace for this attention, filled with NaN. Valid until the next one.
    const Call& call(const Attention& attention, const Stream& stream);
    [[nodiscard]] double bytes() const {
        return bytes_;
    }  ///< of inputs and outputs, and of states in place, in and out

  private:
    void* keep(Memory memory);  ///< its address
    Call call_;
    std::vector<Memory> tensors_, workspace_;
    double bytes_ = 0;
};

}  // namespace forge::gpu
