/// A call in the terms of kernels on a GPU: the arguments that each is launched with, where its part of the
/// workspace lies, how many tasks it has. Plain data; nothing is launched. What follows from shapes, strides and types
/// is worked out once, in a DeviceLayout; each launch adds its Addresses.
#pragma once

#include "device/cuda/portable/call.h"
#include "runtime/binding.h"
#include "runtime/kernels.h"

namespace forge::runtime {

/// Of a workspace on a GPU.
inline constexpr std::size_t kDeviceAlignment = 256;

std::size_t device_workspace_bytes(const Callable& callable, const Bound& bound);
/// Where the summaries of sequence n lie; `offsets`: of packed sequences, whose lengths only kernels read otherwise.
SummaryPlaces device_summaries(const Callable& callable, const Arguments& call, std::int64_t n,
                               std::span<const std::int64_t> offsets);

/// What differs between launches of one layout. They must fit the layout: a tensor that was given when it was
/// made is given again, and none that was not.
struct Addresses {
    void* tensors[cuda::kMaxTensors];  ///< in the order of the callable's; null: absent
    double scalars[cuda::kMaxScalars];
    const void* offsets;  ///< of packed sequences
    const void* initial_slots;
    const void* final_slots;
    const void* chunk_slots;
    const unsigned char* has_initial_state;
    char* workspace;
    void* stream;  ///< CUstream
};
Addresses addresses_of(const Callable& callable, const Arguments& call);

class DeviceLayout {
  public:
    /// What one kernel is launched with, beside what all of them share.
    struct KernelCall {
        std::int64_t tasks = 0, parts = 0;
        std::int64_t blocks = 0;               ///< of threads
        std::int64_t common = 0, staying = 0;  ///< of work beside a scan, and of the scan: cuda::Call
        std::size_t exchange = 0,
                    exchange_bytes = 0;  ///< its part of the workspace, to be filled with 0xFF before the kernel starts
    };

    /// Its lists lie in the memory of `bound`.
    DeviceLayout(const Callable& callable, const Arguments& call, const Bound& bound, int multiprocessors);

    /// What all kernels of a call with these addresses are launched with.
    [[nodiscard]] cuda::Call with(const Addresses& addresses) const;
    /// Makes `call` that of one kernel.
    static void select(cuda::Call& call, const KernelCall& kernel, const Addresses& addresses);

    [[nodiscard]] const List<KernelCall>& kernels() const { return kernels_; }
    /// After them, the kernel that stores the last rows of inputs and late states; no tasks if the call has no place
    /// for any.
    [[nodiscard]] const KernelCall& last_rows() const { return last_rows_; }
    /// Whether a call with such arguments needs that kernel.
    [[nodiscard]] bool has_end(const cuda::Call& call) const {
        return last_rows_.tasks > 0 && (ends_always_ || call.in_place);
    }
    [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }

  private:
    /// Bytes from a tensor's address on, and behind it.
    struct Extent {
        std::int64_t from = 0, to = 0;
    };
    /// A state's initial and final tensor.
    struct StatePair {
        std::size_t initial, final;
        Extent read, written;
    };
    static Extent extent_of(const View& view);
    void find_pairs(const Callable& callable, const Arguments& call);
    [[nodiscard]] bool in_place(const Addresses& addresses) const;

    cuda::Call common_{};
    std::size_t tensors_, scalars_;
    List<std::size_t> spills_;  ///< offsets in the workspace
    List<KernelCall> kernels_;
    KernelCall last_rows_;
    List<StatePair> pairs_;     ///< those of which both are given
    bool ends_always_ = false;  ///< and not only where states are in place
    std::size_t workspace_bytes_ = 0;
};

}  // namespace forge::runtime
