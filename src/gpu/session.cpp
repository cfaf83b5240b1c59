#include "gpu/session.h"

#include <algorithm>
#include <chrono>

namespace forge::gpu {
namespace {

using runtime::CudaDriver;

constexpr std::size_t kFlushBytes = std::size_t{1} << 28;  ///< several times any L2 cache

class Event {
  public:
    Event() { CudaDriver::get().check(CudaDriver::get().event_create(&handle_, 0), "making an event"); }
    ~Event() { CudaDriver::get().event_destroy(handle_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record(const Stream& stream) const {
        CudaDriver::get().check(CudaDriver::get().event_record(handle_, stream.handle()), "recording an event");
    }
    [[nodiscard]] double seconds_since(const Event& begin) const {
        CudaDriver::get().check(CudaDriver::get().event_synchronize(handle_), "waiting for an event");
        float ms = 0;
        CudaDriver::get().check(CudaDriver::get().event_elapsed_ms(&ms, begin.handle_, handle_), "reading a time");
        return static_cast<double>(ms) * 1e-3;
    }

  private:
    runtime::CudaEvent handle_ = nullptr;
};

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

double seconds_of(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Session::Session(const std::string& device)
    : device_(runtime::cuda_device(device)), scope_(device_), flush_(kFlushBytes) {}

void Session::run(const Attention& attention, check::Buffers& buffers) const {
    DeviceBuffers arguments(buffers);
    attention(arguments.call(attention, stream_));
    stream_.synchronize();
    arguments.fetch(buffers);
}

std::vector<double> Session::replay_seconds(const std::function<void()>& launches, int runs, bool warm) const {
    const Graph graph(stream_, launches);
    const Event begin, end;
    graph.replay(stream_);
    std::vector<double> seconds;
    for (int run = 0; run < runs; ++run) {
        flush_.fill(static_cast<unsigned char>(run),
                    &stream_);  // while that runs, the rest is launched: no wait is measured
        if (warm) graph.replay(stream_);
        begin.record(stream_);
        graph.replay(stream_);
        end.record(stream_);
        seconds.push_back(end.seconds_since(begin));
    }
    return seconds;
}

Timing Session::time(const Attention& attention, const Call& call, int runs) const {
    attention(call);
    stream_.synchronize();
    const std::vector<double> replays = replay_seconds([&] { attention(call); }, runs);
    std::vector<double> host, end_to_end;
    for (int run = 0; run < runs; ++run) {
        double returned = 0;
        end_to_end.push_back(seconds_of([&] {
            returned = seconds_of([&] { attention(call); });
            stream_.synchronize();
        }));
        host.push_back(returned);
    }
    const auto [least, most] = std::minmax_element(replays.begin(), replays.end());
    return {median(replays), *least, *most, median(end_to_end), median(host)};
}

double Session::copy_bandwidth() const {
    constexpr std::size_t kBytes = std::size_t{1} << 29;
    const Memory from(kBytes), to(kBytes);
    const auto copy = [&] {
        CudaDriver::get().check(CudaDriver::get().copy_on_device(to.at(0), from.at(0), kBytes, stream_.handle()),
                                "copying");
    };
    return 2.0 * kBytes / median(replay_seconds(copy));
}

}  // namespace forge::gpu
