/// Binds the arguments of a call to a callable's tensors: finds batch, length and heads, checks every shape and type,
/// and names the argument that is wrong. No allocation of tensor data, no work; lists lie where the caller says.
#pragma once

#include <algorithm>
#include <memory_resource>
#include <vector>

#include "device/common/call.h"
#include "forge/runtime.h"
#include "runtime/arguments.h"
#include "support/checked.h"

namespace forge::runtime {

/// Where lists lie: the heap, or a part of the call's workspace (runtime/tables.h).
using Memory = std::pmr::memory_resource;
template <class T>
using List = std::pmr::vector<T>;

/// A call in the kernels' terms.
struct Bound {
    explicit Bound(Memory* memory = std::pmr::get_default_resource())
        : tensors(memory),
          scalars(memory),
          start(memory),
          tokens(memory),
          first_segment(memory),
          segment_sequence(memory),
          skipped(memory),
          skipped_tokens(memory) {}
    [[nodiscard]] Memory* memory() const { return tensors.get_allocator().resource(); }

    List<device::CallTensor> tensors;
    List<float> scalars;
    List<device::Size> start, tokens;  ///< per sequence
    List<device::Size> first_segment;  ///< one more than sequences
    List<int> segment_sequence;
    std::int64_t sequences = 0, heads = 0, chunks = 0, segments = 0, summaries = 0;
    std::int64_t segment_rows = 0, summary_rows = 0;  ///< tokens; as many where there is a summary per segment
    std::int64_t length = 0;                          ///< tokens of each sequence; of all, when they are packed
    device::StateSlots slots{};
    List<std::int64_t> skipped,
        skipped_tokens;   ///< sequences whose outputs are zero, and their lengths; found on the host
    bool packed = false;  ///< known where lengths are read on the device

    /// An upper bound of the number of blocks of `rows` tokens, whatever the lengths of packed sequences; each
    /// sequence has one at least.
    [[nodiscard]] std::int64_t blocks(std::int64_t rows) const {
        return packed ? length / rows + sequences : sequences * std::max<std::int64_t>(1, (length + rows - 1) / rows);
    }
};

/// Who reads the lengths of packed sequences. On the device: only the kernels do; the per-sequence lists of Bound
/// stay empty, and the numbers of chunks and segments are upper bounds (device/cuda/portable/call.h).
enum class Lengths : std::uint8_t { OnHost, OnDevice };

/// Throws RuntimeError.
Bound bind(const Callable& callable, const Arguments& call, Lengths lengths = Lengths::OnHost,
           Memory* memory = std::pmr::get_default_resource());

/// At least as many heads, chunks and segments as any call within the bounds has, whoever reads the lengths; no
/// tensors.
Bound bind(const Callable& callable, const Bounds& bounds);

/// RuntimeError if the call has no workspace where one is needed or it is not aligned, or says how large it is and that
/// is less.
void check_workspace(const Callable& callable, const Arguments& call, std::size_t bytes, std::size_t alignment);

/// RuntimeError for a workspace of 2^63 bytes or more.
std::size_t workspace_size(const Callable& callable, support::Checked bytes);

}  // namespace forge::runtime
