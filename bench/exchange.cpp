// The exchange of states between GPUs alone: ranks are threads of this process, one for each GPU, or as many as asked
// for.
//
//     bench_exchange [--ranks=2] [--csv=file]
//
// A state crosses all ranks forwards and then backwards, over and over, in a captured graph: what a rank sends
// backwards waits for what came forwards, so that nothing overlaps. A row's microseconds are half of such a round,
// launches of both kernels and the copy of what came included. Decays are 1, so that nothing is left out.
#include "dist/exchange.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/gpu.h"
#include "gpu/memory.h"

namespace {

using namespace forge;  // NOLINT: a program
using dist::Scheme;
using dist::detail::Exchange;
using dist::detail::Field;
using dist::detail::Gpu;
using Map = Carried::Map;

constexpr int kRounds = 10, kRuns = 30;

class Event {
  public:
    Event() {
        runtime::CudaDriver::get().check(runtime::CudaDriver::get().event_create(&handle, 0), "making an event");
    }
    runtime::CudaEvent handle = nullptr;
};

/// The median of a round, in microseconds.
double time_of(dist::Group& group, const runtime::CudaDevice& device, const gpu::Stream& stream, const Field& field) {
    const runtime::CudaDriver& cuda = runtime::CudaDriver::get();
    Gpu& gpu = group.space().gpu(device);
    gpu.begin(stream.handle());
    const auto states = static_cast<std::size_t>(field.lanes * field.block()),
               maps = static_cast<std::size_t>(field.lanes * field.map_block());
    float *state = gpu.take(states), *came = gpu.take(states), *map = gpu.take(maps);
    gpu.fill(state, states, 1), gpu.fill(map, maps, field.map == Map::Factors ? 1.0F : 1.0F / 128);
    const int last = group.size() - 1;
    const auto round = [&] {
        for (const bool reverse : {false, true}) {
            const int p = reverse ? last - group.rank() : group.rank();
            Exchange({field}, 5, reverse).scan(group.space(), &gpu, {p == 0, p > 0, p < last, {state}, {map}}, {came});
        }
    };
    round(), round();
    stream.synchronize();
    const gpu::Graph graph(stream, [&] {
        for (int i = 0; i < kRounds; ++i) round();
    });
    const Event begin, end;
    std::vector<double> us;
    for (int run = 0; run < kRuns; ++run) {
        graph.replay(stream);  // ranks are together, as nobody ends a round alone
        cuda.check(cuda.event_record(begin.handle, stream.handle()), "recording an event");
        graph.replay(stream);
        cuda.check(cuda.event_record(end.handle, stream.handle()), "recording an event");
        cuda.check(cuda.event_synchronize(end.handle), "waiting for an event");
        float ms = 0;
        cuda.check(cuda.event_elapsed_ms(&ms, begin.handle, end.handle), "reading a time");
        us.push_back(ms * 1e3 / (2 * kRounds));
    }
    stream.synchronize();
    group.check();
    std::nth_element(us.begin(), us.begin() + kRuns / 2, us.end());
    return us[kRuns / 2];
}

void measure(int ranks, std::FILE* csv) {
    int gpus = 0;
    runtime::CudaDriver::get().device_count(&gpus);
    std::fprintf(csv, "ranks,gpus,scheme,transition,MiB,us\n");
    const std::array<std::pair<const char*, Field>, 3> kinds = {{{"scalar", {Map::Factors, {128, 128}, {1, 1}, 0}},
                                                                 {"diagonal", {Map::Factors, {128, 128}, {128, 1}, 0}},
                                                                 {"matrix", {Map::Left, {128, 128}, {128, 128}, 0}}}};
    for (const Scheme scheme : {Scheme::Ring, Scheme::ScatterScanGather, Scheme::AllGather}) {
        if (ranks == 2 && scheme == Scheme::ScatterScanGather) continue;  // it is direct
        const std::vector<dist::Bootstrap> bootstraps = dist::threads(ranks);
        std::vector<std::thread> threads;
        std::mutex mutex;
        for (int r = 0; r < ranks; ++r)
            threads.emplace_back([&, r] {
                try {
                    const runtime::CudaDevice& device = runtime::cuda_device("cuda:" + std::to_string(r % gpus));
                    const runtime::CudaScope scope(device);
                    const gpu::Stream stream;
                    for (const auto& [name, kind] : kinds)
                        for (const int mib : {2, 8, 64}) {
                            if (mib == 64 && ranks > gpus) continue;
                            dist::Group group(bootstraps[static_cast<std::size_t>(r)],
                                              {.timeout = std::chrono::milliseconds(5000), .scheme = scheme});
                            Field field = kind;
                            field.lanes = mib * 16;
                            const double us = time_of(group, device, stream, field);
                            const std::lock_guard lock(mutex);
                            if (r != 0) continue;
                            std::printf("%d ranks on %d GPUs  %-20s %-8s %3d MiB  %8.1f us\n", ranks,
                                        std::min(ranks, gpus), to_string(scheme), name, mib, us);
                            std::fflush(stdout);
                            std::fprintf(csv, "%d,%d,%s,%s,%d,%.2f\n", ranks, std::min(ranks, gpus), to_string(scheme),
                                         name, mib, us);
                        }
                } catch (const std::exception& e) {
                    std::printf("rank %d: %s\n", r, e.what());
                }
            });
        for (std::thread& t : threads) t.join();
    }
}

}  // namespace

int main(int argc, char** argv) {
    int ranks = 2;
    const char* file = "/dev/null";
    for (int i = 1; i < argc; ++i) {
        if (std::strncmp(argv[i], "--ranks=", 8) == 0) ranks = std::atoi(argv[i] + 8);
        if (std::strncmp(argv[i], "--csv=", 6) == 0) file = argv[i] + 6;
    }
    std::FILE* csv = std::fopen(file, "w");
    if (!csv) return std::perror(file), 1;
    try {
        measure(ranks, csv);
    } catch (const std::exception& e) {
        std::printf("failed: %s\n", e.what());
        return 1;
    }
    return std::fclose(csv);
}
