/// The exchange of states between GPUs by itself: all schemes against float64 and against the host's, captured in
/// graphs, many in a row, and what happens when a rank does not come.
#include "dist/gpu.h"

#include <algorithm>
#include <random>
#include <thread>

#include "build/cuda_binary.h"
#include "dist/exchange.h"
#include "support/random.h"
#include "tests/dist/chain.h"
#include "tests/dist/gpus.h"

namespace forge::tests {

using dist::Scheme;
using dist::detail::Exchange;
using dist::detail::Field;
using dist::detail::Gpu;
using dist::detail::Summary;
using Map = Carried::Map;

std::optional<Gpus> find_gpus() {
    try {
        const runtime::CudaDriver& cuda = runtime::CudaDriver::get();
        Gpus found;
        if (cuda.device_count(&found.count) != 0 || found.count == 0) return std::nullopt;
        if (!build::has_cuda_compiler(build::CudaCompiler::Any)) return std::nullopt;
        found.emulated = runtime::cuda_device("cuda").name == "emulated";
        return found;
    } catch (const RuntimeError&) {
        return std::nullopt;
    }
}

std::vector<std::exception_ptr> on_gpus(
    int size, const dist::Options& options,
    const std::function<void(dist::Group&, const runtime::CudaDevice&, const gpu::Stream&)>& body) {
    const int gpus = find_gpus().value().count;
    return on_ranks(size, options, [&](dist::Group& group) {
        const runtime::CudaDevice& device = runtime::cuda_device("cuda:" + std::to_string(group.rank() % gpus));
        const runtime::CudaScope scope(device);
        const gpu::Stream stream;
        try {
            body(group, device, stream);
        } catch (...) {
            group.abort();  // a kernel that waits ends
            throw;
        }
    });
}

namespace {

constexpr Scheme kOfGpus[] = {Scheme::Ring, Scheme::ScatterScanGather, Scheme::AllGather, Scheme::Serial};

class GpuExchange : public testing::Test {
  protected:
    void SetUp() override {
        if (!find_gpus()) GTEST_SKIP() << "no GPU, or no compiler for one";
    }
};

/// A summary's numbers on a GPU.
Summary uploaded(Gpu& gpu, const std::vector<Field>& fields, Summary summary) {
    for (std::size_t f = 0; f < fields.size(); ++f) {
        const auto states = static_cast<std::size_t>(fields[f].lanes * fields[f].block()),
                   maps = static_cast<std::size_t>(fields[f].lanes * fields[f].map_block());
        float* state = gpu.take(states);
        gpu.upload(summary.states[f], states, state);
        summary.states[f] = state;
        if (!summary.maps[f]) continue;
        float* map = gpu.take(maps);
        gpu.upload(summary.maps[f], maps, map);
        summary.maps[f] = map;
    }
    return summary;
}

Incoming exchanged_on_gpus(const Chain& chain, int size, const dist::Options& options, bool reverse, bool gpus = true) {
    Incoming got(static_cast<std::size_t>(size));
    const auto run = [&](dist::Group& group, Gpu* gpu, const gpu::Stream* stream) {
        const int rank = reverse ? size - 1 - group.rank() : group.rank();
        auto& mine = got[static_cast<std::size_t>(rank)];
        std::vector<float*> incoming;
        for (const Field& f : chain.fields) {
            auto& numbers = mine.emplace_back(static_cast<std::size_t>(f.lanes * f.block()));
            incoming.push_back(gpu ? gpu->take(numbers.size()) : numbers.data());
            if (gpu) gpu->fill(incoming.back(), numbers.size(), 0);
        }
        const Summary summary = chain.summary(rank, size);
        if (!gpu) return Exchange(chain.fields, 7, reverse).scan(group.space(), summary, incoming);
        Exchange(chain.fields, 7, reverse).scan(group.space(), gpu, uploaded(*gpu, chain.fields, summary), incoming);
        stream->synchronize();
        group.check();
        for (std::size_t f = 0; f < incoming.size(); ++f) gpu->download(incoming[f], mine[f].size(), mine[f].data());
    };
    if (gpus)
        rethrow(on_gpus(size, options,
                        [&](dist::Group& group, const runtime::CudaDevice& device, const gpu::Stream& stream) {
                            Gpu& gpu = group.space().gpu(device);
                            EXPECT_TRUE(gpu.reaches() || !options.shared_memory);
                            gpu.begin(stream.handle());
                            run(group, &gpu, &stream);
                        }));
    else rethrow(on_ranks(size, options, [&](dist::Group& group) { run(group, nullptr, nullptr); }));
    return got;
}

void expect_sums(const Chain& chain, int size, const Incoming& got, const std::string& what) {
    for (std::size_t f = 0; f < chain.fields.size(); ++f) {
        const auto expected = folded(chain, f, size);
        for (std::size_t r = 1; r < expected.size(); ++r)
            for (std::size_t i = 0; chain.open[r - 1] && i < expected[r].size(); ++i)
                ASSERT_NEAR(got[r][f][i], expected[r][i], 2e-5 * std::max(1.0, std::abs(expected[r][i])))
                    << what << ", field " << f << ", rank " << r << " of " << size << ", number " << i;
    }
}

TEST_F(GpuExchange, SumsRanksUpWithTheSameBitsByAllSchemes) {
    for (int size = 2; size <= 4; ++size) {
        const bool reverse = size % 2 == 1;
        const Chain chain = random_chain(size, static_cast<std::uint64_t>(size));
        const Incoming first = exchanged_on_gpus(chain, size, {.scheme = Scheme::Ring}, reverse);
        expect_sums(chain, size, first, "ring");
        for (const Scheme scheme : kOfGpus) {
            EXPECT_EQ(exchanged_on_gpus(chain, size, {.scheme = scheme}, reverse), first)
                << to_string(scheme) << " of " << size;
        }
        // Where GPUs do not reach each other: by way of the host.
        expect_sums(chain, size,
                    exchanged_on_gpus(chain, size, {.scheme = Scheme::AllGather, .shared_memory = false}, reverse),
                    "messages");
    }
}

/// Tiles of matrices: whole ones, columns and rows that do not come out even, more than the block's memory holds.
TEST_F(GpuExchange, MultipliesMatrices) {
    std::mt19937_64 random(3);
    std::normal_distribution<float> normal;
    Chain chain;
    chain.fields = {{Map::Left, {128, 128}, {128, 128}, 2},  {Map::Right, {40, 20}, {20, 20}, 3},
                    {Map::Left, {20, 36}, {20, 20}, 2},      {Map::Right, {128, 64}, {64, 64}, 1},
                    {Map::Left, {256, 8}, {256, 256}, 1},    {Map::Factors, {128, 128}, {128, 1}, 3},
                    {Map::Factors, {64, 100}, {64, 100}, 2}, {Map::Factors, {6, 128, 8}, {6, 1, 8}, 2}};
    for (int r = 0; r < 3; ++r) {
        auto& states = chain.states.emplace_back();
        auto& maps = chain.maps.emplace_back();
        for (const Field& field : chain.fields) {
            for (float& x : states.emplace_back(static_cast<std::size_t>(field.lanes * field.block())))
                x = normal(random);
            const float scale = field.map == Map::Factors ? 1 : 0.1F;
            for (float& x : maps.emplace_back(static_cast<std::size_t>(field.lanes * field.map_block())))
                x = scale * normal(random);
        }
        chain.open.push_back(true), chain.fresh.push_back(r == 0);
    }
    const Incoming ring = exchanged_on_gpus(chain, 3, {.scheme = Scheme::Ring}, false);
    expect_sums(chain, 3, ring, "ring");
    for (const Scheme scheme : {Scheme::ScatterScanGather, Scheme::AllGather})
        EXPECT_EQ(exchanged_on_gpus(chain, 3, {.scheme = scheme}, false), ring) << to_string(scheme);
}

float number_of(int e, int rank, std::size_t i) {
    return static_cast<float>(support::mix(static_cast<std::uint64_t>(e) * 64 + static_cast<std::uint64_t>(rank)) %
                              97) +
           static_cast<float>(i % 5);
}

/// Ranks that come late by chance, both directions, sizes that change, schemes in turn. FORGE_EXCHANGES: how many.
TEST_F(GpuExchange, HoldsUnderStress) {
    const char* asked = std::getenv("FORGE_EXCHANGES");
    const int count = asked ? std::atoi(asked) : find_gpus()->emulated ? 40 : 3000;
    std::atomic<int> wrong = 0;
    for (const Scheme scheme : {Scheme::Ring, Scheme::ScatterScanGather})
        rethrow(on_gpus(
            3, {.scheme = scheme},
            [&](dist::Group& group, const runtime::CudaDevice& device, const gpu::Stream& stream) {
                const int rank = group.rank();
                Gpu& gpu = group.space().gpu(device);
                std::mt19937 random(static_cast<unsigned>(rank));
                for (int e = 0; e < count; ++e) {
                    gpu.begin(stream.handle());
                    const auto size = static_cast<std::int64_t>(e % 7 == 0 ? 9000 : 40);
                    const bool reverse = e % 2 == 1, zero = e % 5 == 0;
                    const int p = reverse ? 2 - rank : rank;
                    std::vector<float> state(static_cast<std::size_t>(size)), map(1, zero ? 0 : 1);
                    std::vector<float> came(state.size());
                    for (std::size_t i = 0; i < state.size(); ++i) state[i] = number_of(e, rank, i);
                    if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
                    const std::vector<Field> fields = {{Map::Factors, {size}, {1}, 1}};
                    const Summary mine{p == 0, p > 0, p < 2, {state.data()}, {map.data()}};
                    float* incoming = gpu.take(came.size());
                    Exchange(fields, 3, reverse).scan(group.space(), &gpu, uploaded(gpu, fields, mine), {incoming});
                    gpu.download(incoming, came.size(), came.data());
                    const int before = reverse ? rank + 1 : rank - 1, step = reverse ? 1 : -1;
                    for (std::size_t i = 0; p > 0 && i < came.size(); i += 7) {
                        const float expected =
                            number_of(e, before, i) + (p == 2 && !zero ? number_of(e, before + step, i) : 0);
                        if (came[i] != expected) ++wrong;
                    }
                }
                group.check();
            }));
    EXPECT_EQ(wrong, 0);
}

/// The strides of a block in a workspace: rows and the last axis' ends padded.
std::vector<std::int64_t> padded(const std::vector<std::int64_t>& shape, std::int64_t pad, std::int64_t& block) {
    std::vector<std::int64_t> strides(shape.size());
    block = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) strides[axis] = block, block = block * shape[axis] + pad;
    return strides;
}

/// Summaries of segments as they lie in a workspace, by threads of a GPU and by the host's: the same but for what one
/// rounding less makes.
TEST_F(GpuExchange, FoldsSegmentsAsTheHostDoes) {
    rethrow(on_gpus(1, {}, [&](dist::Group& group, const runtime::CudaDevice& device, const gpu::Stream& stream) {
        Gpu gpu(group.space(), device);
        gpu.begin(stream.handle());
        std::mt19937_64 random(11);
        std::normal_distribution<float> normal;
        const auto numbers = [&](std::int64_t count) {
            std::vector<float> all(static_cast<std::size_t>(count));
            for (float& x : all) x = 0.3F * normal(random);
            return all;
        };
        const auto on_gpu = [&](const std::vector<float>& from) {
            float* to = gpu.take(from.size());
            gpu.upload(from.data(), from.size(), to);
            return to;
        };
        const Field all[] = {{Map::Identity, {3, 8}, {}, 6},
                             {Map::Factors, {16, 12}, {1, 1}, 6},
                             {Map::Factors, {16, 12}, {16, 1}, 6},
                             {Map::Factors, {6, 8}, {1, 8}, 6},
                             {Map::Factors, {5, 3, 7}, {1, 3, 1}, 6},
                             {Map::Factors, {9}, {9}, 6},
                             {Map::Factors, {}, {}, 6},
                             {Map::Left, {12, 40}, {12, 12}, 6},
                             {Map::Right, {10, 36}, {36, 36}, 6}};
        for (const Field& field : all)
            for (const std::int64_t pad : {0, 4}) {
                dist::detail::Fold f;
                f.field = field, f.heads = 3, f.first = 2, f.count = 5;
                f.added_strides = padded(field.shape, pad, f.added_block);
                f.map_strides = padded(field.map_shape, pad, f.map_block);
                const std::int64_t blocks = (f.first + 2 * f.count) * f.heads, states = field.lanes * field.block();
                const bool mapped = field.map != Map::Identity;
                const std::vector<float> added = numbers(blocks * f.added_block), map = numbers(blocks * f.map_block),
                                         begun = numbers(states);
                std::vector<float> state(begun.size()), came(begun.size()),
                    transition(static_cast<std::size_t>(field.lanes * field.map_block())), product(transition.size());
                f.added = added.data(), f.map = mapped ? map.data() : nullptr,
                f.begun = pad > 0 ? begun.data() : nullptr;
                f.state = state.data(), f.transition = mapped ? transition.data() : nullptr;
                dist::detail::fold_on_host(f);
                f.added = on_gpu(added), f.map = mapped ? on_gpu(map) : nullptr,
                f.begun = pad > 0 ? on_gpu(begun) : nullptr;
                f.state = gpu.take(came.size()), f.transition = mapped ? gpu.take(product.size()) : nullptr;
                EXPECT_TRUE(gpu.folds(field));
                gpu.fold(f);
                gpu.download(f.state, came.size(), came.data());
                for (std::size_t i = 0; i < came.size(); ++i)
                    ASSERT_NEAR(came[i], state[i], 1e-5 * std::max(1.0F, std::abs(state[i]))) << i;
                if (!mapped) continue;
                gpu.download(f.transition, product.size(), product.data());
                for (std::size_t i = 0; i < product.size(); ++i)
                    ASSERT_NEAR(product[i], transition[i], 1e-5 * std::max(1.0F, std::abs(transition[i]))) << i;
            }
    }));
}

/// A captured exchange, replayed: the numbers of exchanges are counted on the device.
TEST_F(GpuExchange, IsReplayedFromGraphs) {
    if (find_gpus()->emulated) GTEST_SKIP() << "the emulated driver captures nothing";
    rethrow(on_gpus(2, {}, [&](dist::Group& group, const runtime::CudaDevice& device, const gpu::Stream& stream) {
        Gpu& gpu = group.space().gpu(device);
        constexpr std::size_t kCount = 20000;
        const std::vector<Field> fields = {{Map::Factors, {static_cast<std::int64_t>(kCount)}, {1}, 1}};
        gpu.begin(stream.handle());
        float *state = gpu.take(kCount), *map = gpu.take(1), *incoming = gpu.take(kCount);
        gpu.fill(map, 1, 1);
        const int rank = group.rank();
        const auto once = [&] {
            Exchange(fields, 3, false)
                .scan(group.space(), &gpu, {rank == 0, rank == 1, rank == 0, {state}, {map}}, {incoming});
        };
        gpu.fill(state, kCount, 0);
        once();
        const gpu::Graph graph(stream, once);
        std::vector<float> came(kCount);
        for (int e = 1; e <= 300; ++e) {
            gpu.fill(state, kCount, static_cast<float>(e));
            if (e % 10 == 0) once();
            else graph.replay(stream);
            if (rank == 0) continue;
            gpu.download(incoming, kCount, came.data());
            ASSERT_EQ(std::count(came.begin(), came.end(), static_cast<float>(e)), std::ptrdiff_t{kCount});
        }
        stream.synchronize();
        group.check();
    }));
}

void scan_once(dist::Group& group, Gpu& gpu, const gpu::Stream& stream, std::int64_t size) {
    gpu.begin(stream.handle());
    const auto count = static_cast<std::size_t>(size);
    float *state = gpu.take(count), *incoming = gpu.take(count);
    gpu.fill(state, count, 1);
    Exchange({{Map::Identity, {size}, {}, 1}}, 3, false)
        .scan(group.space(), &gpu,
              {group.rank() == 0, group.rank() > 0, group.rank() + 1 < group.size(), {state}, {nullptr}}, {incoming});
}

/// A kernel that waits for a rank that does not come ends, and the group says why.
TEST_F(GpuExchange, TimesOutWhereARankStalls) {
    for (const Scheme scheme : {Scheme::Ring, Scheme::ScatterScanGather, Scheme::AllGather}) {
        const auto thrown =
            on_gpus(3, {.timeout = std::chrono::milliseconds(400), .scheme = scheme},
                    [&](dist::Group& group, const runtime::CudaDevice& device, const gpu::Stream& stream) {
                        Gpu& gpu = group.space().gpu(device);
                        scan_once(group, gpu, stream, 8);
                        stream.synchronize();
                        if (group.rank() == 0) return std::this_thread::sleep_for(std::chrono::milliseconds(1200));
                        scan_once(group, gpu, stream, 8);
                        stream.synchronize();
                        EXPECT_THROW(group.check(), dist::PeerTimeout) << to_string(scheme);
                        scan_once(group, gpu, stream, 8);  // the group is of no more use
                    });
        for (std::size_t r = 1; r < 3; ++r) {
            ASSERT_TRUE(thrown[r]) << r;
            EXPECT_THROW(std::rethrow_exception(thrown[r]), dist::PeerTimeout);
        }
    }
}

TEST_F(GpuExchange, TellsOtherCallsApart) {
    const auto thrown = on_gpus(2, {.timeout = std::chrono::milliseconds(2000)},
                                [&](dist::Group& group, const runtime::CudaDevice& device, const gpu::Stream& stream) {
                                    Gpu& gpu = group.space().gpu(device);
                                    scan_once(group, gpu, stream, 8), scan_once(group, gpu, stream, 9);
                                    scan_once(group, gpu, stream, group.rank() == 1 ? 9 : 8);
                                    stream.synchronize();
                                    // The first rank waits for nobody: it learns of it in one of its next calls.
                                    for (int call = 0; call < 10000; ++call) scan_once(group, gpu, stream, 8);
                                });
    for (const std::exception_ptr& e : thrown) {
        ASSERT_TRUE(e);
        EXPECT_THROW(std::rethrow_exception(e), dist::PlanMismatch);
    }
}

}  // namespace
}  // namespace forge::tests
