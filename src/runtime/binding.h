/// Binds the arguments of a call to a plan's tensor slots: finds batch, length and heads, checks every shape and type,
/// and names the argument that is wrong. No allocation of tensor data, no work.
#pragma once

#include <algorithm>
#include <vector>

#include "device/common/call.h"
#include "forge/runtime.h"
#include "plan/plan.h"
#include "support/checked.h"

namespace forge::runtime {

/// A call in the kernels' terms.
struct Bound {
    std::vector<device::CallTensor> tensors;
    std::vector<float> scalars;
    std::vector<device::Size> start, tokens;  ///< per sequence
    std::vector<device::Size> first_segment;  ///< one more than sequences
    std::vector<int> segment_sequence;
    std::int64_t sequences = 0, heads = 0, chunks = 0, segments = 0, summaries = 0;
    std::int64_t segment_rows = 0, summary_rows = 0;  ///< tokens; as many where there is a summary per segment
    std::int64_t length = 0;                          ///< tokens of each sequence; of all, when they are packed
    device::StateSlots slots{};
    std::vector<std::int64_t> skipped,
        skipped_tokens;   ///< sequences whose outputs are zero, and their lengths; found on the host
    bool packed = false;  ///< known where lengths are read on the device

    /// An upper bound of the number of blocks of `rows` tokens, whatever the lengths of packed sequences; each
    /// sequence has one at least.
    [[nodiscard]] std::int64_t blocks(std::int64_t rows) const {
        return packed ? length / rows + sequences : sequences * std::max<std::int64_t>(1, (length + rows - 1) / rows);
    }
};

/// Who reads the lengths of packed sequences. On the device: only the kernels do; the per-sequence vectors of Bound
/// stay empty, and the numbers of chunks and segments are upper bounds (device/cuda/portable/call.h).
enum class Lengths : std::uint8_t { OnHost, OnDevice };

/// Throws RuntimeError.
Bound bind(const plan::Plan& plan, const Call& call, Lengths lengths = Lengths::OnHost);

/// At least as many heads, chunks and segments as any call within the bounds has, whoever reads the lengths; no
/// tensors.
Bound bind(const plan::Plan& plan, const Bounds& bounds);

/// RuntimeError if the call has no workspace where one is needed or it is not aligned, or says how large it is and that
/// is less.
void check_workspace(const plan::Plan& plan, const Call& call, std::size_t bytes, std::size_t alignment);

/// RuntimeError for a workspace of 2^63 bytes or more.
std::size_t workspace_size(const plan::Plan& plan, support::Checked bytes);

}  // namespace forge::runtime
