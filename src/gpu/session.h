/// A GPU to check and measure on: its context, current as long as the session lives, a stream, and a block of memory to
/// flush the L2 cache with. Times are medians, in seconds.
#pragma once

#include "gpu/arguments.h"

namespace forge::gpu {

struct Timing {
    double seconds = 0;          ///< on the GPU: a replay of the captured call between two events, with a cold L2 cache
    double least = 0, most = 0;  ///< of those
    double end_to_end_seconds = 0;  ///< from the call until its results are there, on an idle GPU
    double host_seconds = 0;        ///< until the call returns

    /// The share of the median that the fastest replay did without: what others took from this call in between, if
    /// they took much. Up to a tenth, or two microseconds, is usual on a quiet GPU, and counts as nothing.
    [[nodiscard]] double lost() const {
        const double more = seconds - least;
        return more > 0.1 * seconds && more > 2e-6 ? more / seconds : 0;
    }
};

class Session {
  public:
    static constexpr int kRuns = 31;

    /// "cuda" or "cuda:<number>"; RuntimeError if there is no such device, or no driver.
    explicit Session(const std::string& device);

    [[nodiscard]] const runtime::CudaDevice& device() const { return device_; }
    [[nodiscard]] const Stream& stream() const { return stream_; }

    /// Calls with host buffers, and leaves outputs and final states in them.
    void run(const Attention& attention, check::Buffers& buffers) const;
    /// `call` is on this session's stream.
    [[nodiscard]] Timing time(const Attention& attention, const Call& call, int runs = kRuns) const;
    /// Seconds of every replay of what `launches` puts onto the stream; with a warm L2 cache another replay goes
    /// before.
    [[nodiscard]] std::vector<double> replay_seconds(const std::function<void()>& launches, int runs = kRuns,
                                                     bool warm = false) const;
    /// Bytes per second, read and written, of a copy within the device's memory.
    [[nodiscard]] double copy_bandwidth() const;

  private:
    const runtime::CudaDevice& device_;
    runtime::CudaScope scope_;
    Stream stream_;
    Memory flush_;
};

}  // namespace forge::gpu
