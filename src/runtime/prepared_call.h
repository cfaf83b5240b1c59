/// A call on a GPU whose shapes, strides and types have been checked and laid out: launched as often as one likes with
/// other addresses, scalars and streams, without allocation. Immutable, so that threads share it.
#pragma once

#include "runtime/cuda_program.h"
#include "runtime/device_call.h"
#include "runtime/skip.h"
#include "runtime/tensor_maps.h"

namespace forge::runtime {

class PreparedCall {
  public:
    /// RuntimeError for a call that is wrong in anything but its workspace. The program must outlive this, and so must
    /// the memory, where all lists lie.
    PreparedCall(const Callable& callable, const CudaProgram& program, const Arguments& call,
                 Memory* memory = std::pmr::get_default_resource());

    [[nodiscard]] std::size_t workspace_bytes() const { return layout_.workspace_bytes(); }
    /// Launches only. The addresses keep to the layout, and the workspace is large enough.
    void launch(const Addresses& addresses, Step step = Step::Whole) const;

  private:
    struct Start {
        CudaFunction function = nullptr;
        unsigned blocks = 0, cluster = 1;                    ///< cluster: of so many blocks
        unsigned threads = 0, groups = 1, shared_bytes = 0;  ///< threads: of each group
        bool may_overlap = false;                            ///< with the kernel before, whose end it waits for itself
        bool early = false;                                  ///< the same of whatever the stream has before the call
        DeviceLayout::KernelCall call;
        MapLayout maps;
    };
    const CudaDevice& device_;
    DeviceLayout layout_;
    List<Start> starts_;
    bool has_end_ = false;        ///< whether the last of them is that of last rows and late states
    std::size_t summaries_ = 0;   ///< how many of them end with those of segments
    List<OutputMemory> cleared_;  ///< before the kernels, as some sequences may be skipped
};

}  // namespace forge::runtime
