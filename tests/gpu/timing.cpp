#include "timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "device_buffers.h"
#include "plan/place.h"
#include "variants/variants.h"

namespace forge::gpu {
namespace {

constexpr int kRuns = 21;
constexpr std::int64_t kPattern = 1024;               ///< tokens of random inputs, repeated along the sequence
constexpr std::int64_t kMostTokens = 32 * kPattern;    ///< unless the caller says otherwise
constexpr std::size_t kFlushBytes = std::size_t{1} << 27;

/// The same call for a longer sequence: every token tensor repeats the pattern.
class LongCall {
 public:
    LongCall(const check::Buffers& pattern, std::int64_t tokens) : call_(pattern.call()) {
        for (auto& [name, view] : call_.tensors) {
            const auto in = pattern.inputs.find(name);
            const check::OwnedTensor& x = in != pattern.inputs.end() ? in->second : pattern.outputs.at(name);
            const bool per_token = view.shape.size() > 2 && view.shape[1] % kPattern == 0;
            const std::int64_t copies = per_token ? tokens / kPattern : 1;
            memory_.emplace_back(x.storage.size() * static_cast<std::size_t>(copies));
            for (std::int64_t i = 0; i < copies; ++i)
                runtime::CudaDriver::get().check(
                    runtime::CudaDriver::get().copy_to_device(memory_.back().at(x.storage.size() * static_cast<std::size_t>(i)), x.storage.data(), x.storage.size()), "copying to the device");
            if (per_token) view.shape[1] *= copies, view.strides[0] *= copies;
            view.data = memory_.back().data();
            bytes_ += static_cast<double>(memory_.back().bytes());
        }
        call_.initial_states.clear();
        call_.final_states.clear();
    }
    Call& call(const Attention& attention, const Stream& stream) {
        call_.stream = stream.handle();
        memory_.emplace_back(attention.workspace_bytes(call_));
        call_.workspace = memory_.back().data();
        return call_;
    }
    [[nodiscard]] double bytes() const { return bytes_; }

 private:
    Call call_;
    std::vector<Memory> memory_;
    double bytes_ = 0;
};

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

double host_seconds(const Attention& attention, const Call& call, const Stream& stream) {
    constexpr int kCalls = 50;
    attention(call);
    stream.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) attention(call);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    stream.synchronize();
    return seconds / kCalls;
}

/// Bytes per second that a copy within the device's memory reads and writes.
double copy_bandwidth(const Stream& stream, const Memory& flush) {
    constexpr std::size_t kBytes = std::size_t{1} << 29;
    const Memory from(kBytes), to(kBytes);
    const Graph graph(stream, [&] { runtime::CudaDriver::get().check(runtime::CudaDriver::get().copy_on_device(to.at(0), from.at(0), kBytes, stream.handle()), "copying"); });
    return 2.0 * kBytes / median(replay_seconds(graph, stream, flush, kRuns));
}

}  // namespace

int measure(const std::string& only, const std::string& strategy, int threads, std::int64_t most_tokens, const std::string& csv_file) {
    const runtime::CudaDevice& device = runtime::cuda_device("cuda");
    const runtime::CudaScope scope(device);
    const Stream stream;
    const Memory flush(kFlushBytes);
    const double bandwidth = copy_bandwidth(stream, flush);
    fmt::print("{}: {:.0f} GB/s when copying\n", device.name, bandwidth * 1e-9);
    std::ofstream csv(csv_file.empty() ? "/dev/null" : csv_file);
    csv << "variant,strategy,chunk,T,median_us,least_us,most_us,host_us,bytes,gb_per_s,of_copy_bandwidth\n";
    for (const variants::Entry& entry : variants::all()) {
        if (!only.empty() && entry.name != only) continue;
        const ir::Definition def = entry.make().define();
        check::Problem problem;
        problem.T = kPattern, problem.H = 32, problem.dtype = BF16, problem.sizes = {{"K", 128}, {"V", 128}, {"D", 1024}};
        if (check::sizes_for(def, problem).contains("D")) problem.H = 1;
        const check::Buffers pattern(def, problem);
        for (const plan::Strategy s : plan::all_strategies()) {
            if (strategy != "all" && strategy != plan::to_string(s)) continue;
            for (std::int64_t tokens = kPattern; tokens <= (most_tokens > 0 ? most_tokens : kMostTokens); tokens *= 2) try {
                CompileOptions options;
                options.device = "cuda";
                options.sizes = check::sizes_for(def, problem);
                options.strategy = plan::to_string(s);
                options.threads = threads;
                options.expected_tokens = tokens, options.expected_heads = problem.H;
                const Attention attention = compile(def, options);
                LongCall arguments(pattern, tokens);
                const Call& call = arguments.call(attention, stream);
                const double host = host_seconds(attention, call, stream);
                const Graph graph(stream, [&] { attention(call); });
                graph.replay(stream);
                const std::vector<double> seconds = replay_seconds(graph, stream, flush, kRuns);
                const double middle = median(seconds);
                const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
                const std::string row = fmt::format("{},{},{},{},{:.1f},{:.1f},{:.1f},{:.1f},{:.0f},{:.0f},{:.2f}", entry.name, plan::to_string(s), attention.chunk(), tokens, middle * 1e6,
                                                    *least * 1e6, *most * 1e6, host * 1e6, arguments.bytes(), arguments.bytes() / middle * 1e-9, arguments.bytes() / middle / bandwidth);
                fmt::print("{}\n", row);
                csv << row << std::endl;
            } catch (const std::runtime_error& error) {
                fmt::print("{},{},,{}: {}\n", entry.name, plan::to_string(s), tokens, std::string(error.what()).substr(0, 200));
            }
            std::fflush(stdout);
        }
    }
    return 0;
}

}  // namespace forge::gpu
