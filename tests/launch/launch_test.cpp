/// What a call of the C ABI launches on a GPU, with a driver that writes it down (recorder.h): a layout that was seen
/// before is launched with the addresses of its own call, without allocation, and what is wrong is still found.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "build/cuda_binary.h"
#include "forge_c.h"
#include "tests/launch/recorder.h"

namespace {
std::atomic<long> allocations{0};
}

// Not inlined, or the compiler takes malloc and free for a mismatched pair.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
    ++allocations;
    if (void* memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace forge {
namespace {

constexpr std::int64_t K = 64, V = 64, H = 2;

const recorder::Record& record() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return *reinterpret_cast<const recorder::Record* (*)()>(dlsym(driver, "forge_record"))();  // NOLINT: dlsym
}

void clear_record() {
    if (void* driver = dlopen("libcuda.so.1", RTLD_NOW))
        reinterpret_cast<void (*)()>(dlsym(driver, "forge_record_clear"))();  // NOLINT: dlsym
}

/// A tensor at an address that nobody reads.
struct Tensor {
    std::vector<std::int64_t> shape, strides;
    forge_tensor c{};

    Tensor() = default;
    Tensor(std::uintptr_t address, std::int32_t dtype, std::vector<std::int64_t> sizes)
        : shape(std::move(sizes)), strides(shape.size()) {
        std::int64_t next = 1;
        for (std::size_t i = shape.size(); i-- > 0; next *= shape[i]) strides[i] = next;
        c = {reinterpret_cast<void*>(address), shape.data(), strides.data(), static_cast<std::int32_t>(shape.size()),
             dtype};  // NOLINT: an address
    }
};

/// A call of scalar_gla: q k v g, o, initial and final state.
struct Call {
    std::vector<Tensor> own;
    std::vector<forge_tensor> tensors;
    Tensor offsets;
    double scale = 0.5;
    forge_args args{};

    explicit Call(std::uintptr_t base, std::int64_t B, std::int64_t T, bool states = false) {
        std::uintptr_t last = base;
        const auto at = [&] { return last += 0x1000; };
        const auto state = [&] { return states ? Tensor(at(), FORGE_F32, {B, H, K, V}) : Tensor(); };
        own.emplace_back(at(), FORGE_BF16, std::vector{B, T, H, K});
        own.emplace_back(at(), FORGE_BF16, std::vector{B, T, H, K});
        own.emplace_back(at(), FORGE_BF16, std::vector{B, T, H, V});
        own.emplace_back(at(), FORGE_F32, std::vector{B, T, H});
        own.emplace_back(at(), FORGE_BF16, std::vector{B, T, H, V});
        own.push_back(state()), own.push_back(state());
        for (const Tensor& t : own) tensors.push_back(t.c);
        args.struct_size = sizeof(args);
        args.tensors = tensors.data(), args.tensor_count = tensors.size();
        args.scalars = &scale, args.scalar_count = 1;
        args.workspace = reinterpret_cast<void*>(base + 0x100000);  // NOLINT: an address
        args.workspace_bytes = 64 << 20;
        args.stream = reinterpret_cast<void*>(base);  // NOLINT: an address
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    void pack(std::int32_t dtype, std::int64_t sequences) {
        offsets = Tensor(0x77000, dtype, {sequences + 1});
        args.cu_seqlens = &offsets.c;
    }
};

void expect_launched_with(const recorder::Launch& launch, const Call& call) {
    const cuda::Call& got = launch.arguments;
    for (std::size_t i = 0; i < call.tensors.size(); ++i)
        EXPECT_EQ(got.tensors[i].data, call.tensors[i].data) << "tensor " << i;
    EXPECT_EQ(launch.stream, call.args.stream);
    EXPECT_EQ(got.scalars[0], static_cast<float>(call.scale));
    EXPECT_EQ(got.tokens, call.own[0].shape[1]);
    EXPECT_EQ(got.offsets, call.args.cu_seqlens ? call.offsets.c.data : nullptr);
}

class Launching : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        if (!build::has_cuda_compiler(build::CudaCompiler::Any)) GTEST_SKIP() << "there is no CUDA compiler";
        const char* text = nullptr;
        ASSERT_EQ(forge_variant_definition("scalar_gla", &text), FORGE_OK);
        const forge_option options[] = {
            {"device", "cuda"}, {"dtype", "bf16"}, {"size.K", "64"}, {"size.V", "64"}, {"strategy", GetParam()}};
        ASSERT_EQ(forge_compile(text, nullptr, options, std::size(options), &attention_), FORGE_OK) << forge_error();
        clear_record();
    }
    void TearDown() override { forge_destroy(attention_); }

    void launch(const Call& call) { ASSERT_EQ(forge_launch(attention_, &call.args), FORGE_OK) << forge_error(); }
    void expect_error(const Call& call, forge_status status, const char* part) {
        const int before = record().launches;
        EXPECT_EQ(forge_launch(attention_, &call.args), status);
        EXPECT_NE(std::string(forge_error()).find(part), std::string::npos) << forge_error();
        EXPECT_EQ(record().launches, before);
    }

    forge_attention* attention_ = nullptr;
};

TEST_P(Launching, AKnownLayoutHasItsOwnAddressesAndAllocatesNothing) {
    const Call first(0x10000000, 2, 100), second(0x20000000, 2, 100);
    const long at_first = allocations;
    launch(first);
    const int kernels = record().launches;
    ASSERT_GT(kernels, 0);
    EXPECT_GT(allocations, at_first);
    const long before = allocations;
    const forge_status status = forge_launch(attention_, &second.args);
    EXPECT_EQ(allocations, before);
    ASSERT_EQ(status, FORGE_OK);
    ASSERT_EQ(record().launches, 2 * kernels);
    for (int k = 0; k < kernels; ++k) {
        const recorder::Launch &a = record().launch[k], &b = record().launch[kernels + k];
        expect_launched_with(a, first), expect_launched_with(b, second);
        EXPECT_EQ(a.blocks, b.blocks);
        EXPECT_EQ(a.shared_bytes, b.shared_bytes);
        EXPECT_EQ(a.arguments.tasks, b.arguments.tasks);
        for (int i = 0; i < cuda::kMaxSpills; ++i) {
            if (!a.arguments.spills[i]) continue;
            EXPECT_EQ(
                reinterpret_cast<char*>(a.arguments.spills[i]) -
                    static_cast<char*>(first.args.workspace),  // NOLINT: workspace is bytes
                reinterpret_cast<char*>(b.arguments.spills[i]) - static_cast<char*>(second.args.workspace));  // NOLINT
        }
    }
}

/// How many maps of tensors a launch has; each holds the address of a tensor of its call.
int expect_maps_of(const recorder::Launch& launch, const Call& call) {
    int maps = 0;
    for (const auto& map : launch.maps.map) {
        if (!launch.maps.usable || map[0] == 0) continue;
        const auto is_it = [&](const forge_tensor& t) {
            return reinterpret_cast<std::uintptr_t>(t.data) == map[0];
        };  // NOLINT: an address
        EXPECT_TRUE(std::any_of(call.tensors.begin(), call.tensors.end(), is_it));
        ++maps;
    }
    return maps;
}

TEST_P(Launching, TensorCopiesHaveTheAddressesOfTheirCall) {
    Call first(0x10000000, 2, 200), second(0x20000000, 2, 200), unaligned(0x30000000, 2, 200);
    for (forge_tensor& t : unaligned.tensors)
        if (t.data) t.data = static_cast<char*>(t.data) + 8;
    const auto maps_in = [&](const Call& call) {
        clear_record();
        EXPECT_EQ(forge_launch(attention_, &call.args), FORGE_OK) << forge_error();
        int maps = 0;
        for (int k = 0; k < record().launches; ++k) maps += expect_maps_of(record().launch[k], call);
        return maps;
    };
    const int maps = maps_in(first);
    EXPECT_EQ(maps_in(second), maps);
    EXPECT_EQ(maps_in(unaligned), 0);
    EXPECT_EQ(maps_in(first), maps);
    EXPECT_TRUE(maps > 0 || std::string(GetParam()) != "one-pass") << "the program's scan has no roles";
}

// Segments all read the initial state: one more kernel stores the final one, if that may lie in the same memory. Which
// it is, a known layout does not say.
TEST_P(Launching, StatesOfSegmentsInPlaceAreStoredByOneMoreKernel) {
    Call call(0x10000000, 1, 300, true);
    std::uintptr_t initial = 0x30000000;
    const std::uintptr_t bytes = H * K * V * sizeof(float);
    const auto launches_with = [&](std::uintptr_t final) {
        call.tensors[5].data = reinterpret_cast<void*>(initial);  // NOLINT: an address
        call.tensors[6].data = reinterpret_cast<void*>(final);    // NOLINT: an address
        clear_record();
        launch(call);
        return record().launches;
    };
    const int apart = launches_with(initial + bytes);
    EXPECT_EQ(record().launch[0].arguments.in_place, 0);
    const int more = std::string(GetParam()) == "segmented" ? 1 : 0;
    for (const std::uintptr_t final : {initial, initial + bytes - sizeof(float), initial - bytes + sizeof(float)}) {
        EXPECT_EQ(launches_with(final), apart + more);
        EXPECT_EQ(record().launch[0].arguments.in_place, 1);
    }
    EXPECT_EQ(launches_with(initial - bytes), apart);
}

TEST_P(Launching, OtherLayoutsAreToldApart) {
    Call plain(0x10000000, 2, 100), longer(0x10000000, 2, 300), with_states(0x10000000, 2, 100, true),
        strided(0x10000000, 2, 100);
    strided.own[2].strides = {100 * H * V * 3, H * V * 3, V * 3, 1};  // v within rows of three times its size
    Call packed(0x10000000, 1, 200), wide(0x10000000, 1, 200), fewer(0x10000000, 1, 200);
    packed.pack(FORGE_I32, 3), wide.pack(FORGE_I64, 3), fewer.pack(FORGE_I32, 2);
    for (int round = 0; round < 2; ++round) {
        for (const Call* call : {&plain, &longer, &with_states, &strided, &packed, &wide, &fewer}) {
            clear_record();
            launch(*call);
            for (int k = 0; k < record().launches; ++k) expect_launched_with(record().launch[k], *call);
            const cuda::Call& got = record().launch[0].arguments;
            EXPECT_EQ(got.tensors[2].head, call->own[2].strides[2]);
            EXPECT_EQ(got.wide_offsets, call == &wide);
            EXPECT_EQ(got.sequences, call == &packed || call == &wide ? 3 : 2);
        }
    }
}

TEST_P(Launching, WhatIsWrongIsFoundInKnownLayoutsToo) {
    Call call(0x10000000, 2, 500);
    launch(call);
    if (record().launch[0].arguments.spills[0]) {
        call.args.workspace_bytes = 256;
        expect_error(call, FORGE_RUNTIME_ERROR, "'workspace'");
    }
    Call absent(0x10000000, 2, 500);
    absent.tensors[3].data = nullptr;
    expect_error(absent, FORGE_RUNTIME_ERROR, "'g': expected a pointer");
    Call few(0x10000000, 2, 500);
    few.args.tensor_count = 3;
    expect_error(few, FORGE_INVALID_ARGUMENT, "tensor_count");
    Call other(0x10000000, 2, 500);
    other.own[2].shape[1] = 499;
    expect_error(other, FORGE_RUNTIME_ERROR, "'v'");
    Call typed(0x10000000, 2, 500);
    typed.tensors[2].dtype = FORGE_F16;
    expect_error(typed, FORGE_RUNTIME_ERROR, "element type bf16");
}

TEST_P(Launching, OutputsOfCallsWithSlotsAreCleared) {
    Call first(0x10000000, 2, 100, true), second(0x20000000, 2, 100, true);
    for (Call* call : {&first, &second}) {
        call->args.initial_slots = call->args.final_slots = reinterpret_cast<void*>(0x55000);  // NOLINT: an address
        clear_record();
        launch(*call);
        ASSERT_EQ(record().fills, 1);
        EXPECT_EQ(record().fill[0].address, reinterpret_cast<std::uintptr_t>(
                                                call->tensors[4].data));  // NOLINT: the driver's pointers are numbers
        EXPECT_EQ(record().fill[0].bytes, static_cast<std::size_t>(2 * 100 * H * V * 2));
        EXPECT_EQ(record().launch[0].arguments.slots.initial, call->args.initial_slots);
    }
}

// A kernel that decodes writes the zeros of skipped sequences, so that nothing stands between it and the kernel before.
TEST(LaunchingDecode, WithSlotsIsOneKernelAndNothingElse) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Any)) GTEST_SKIP() << "there is no CUDA compiler";
    const char* text = nullptr;
    ASSERT_EQ(forge_variant_definition("scalar_gla", &text), FORGE_OK);
    const forge_option options[] = {
        {"device", "cuda"}, {"dtype", "bf16"}, {"size.K", "64"}, {"size.V", "64"}, {"entry", "decode"}};
    forge_attention* attention = nullptr;
    ASSERT_EQ(forge_compile(text, nullptr, options, std::size(options), &attention), FORGE_OK) << forge_error();
    Call call(0x10000000, 2, 1, true);
    call.args.initial_slots = call.args.final_slots = reinterpret_cast<void*>(0x55000);  // NOLINT: an address
    clear_record();
    EXPECT_EQ(forge_launch(attention, &call.args), FORGE_OK) << forge_error();
    EXPECT_EQ(record().launches, 1);
    EXPECT_EQ(record().fills, 0);
    EXPECT_EQ(record().launch[0].arguments.slots.initial, call.args.initial_slots);
    forge_destroy(attention);
}

TEST_P(Launching, ThreadsDoNotMixTheirCalls) {
    constexpr int kThreads = 4, kCalls = 50;
    const Call once(0x10000000, 1, 64);
    launch(once);
    const int kernels = record().launches;
    clear_record();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            const Call call(0x10000000 * static_cast<std::uintptr_t>(t + 1), 1, 64 + 64 * (t % 2));
            for (int i = 0; i < kCalls; ++i) EXPECT_EQ(forge_launch(attention_, &call.args), FORGE_OK);
        });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(record().launches, kThreads * kCalls * kernels);
    for (int i = 0; i < record().launches; ++i) {
        const recorder::Launch& launch = record().launch[i];
        const auto base = reinterpret_cast<std::uintptr_t>(launch.stream);                    // NOLINT: an address
        EXPECT_EQ(launch.arguments.tensors[0].data, reinterpret_cast<void*>(base + 0x1000));  // NOLINT: an address
        EXPECT_EQ(launch.arguments.tokens, 64 + 64 * static_cast<long>((base / 0x10000000 - 1) % 2));
    }
}

/// A program of vector states for one sequence of 1024 channels, which are 16 tasks: x or v, g and q, o, initial and
/// final state.
class Clusters : public testing::Test {
  protected:
    static constexpr std::int64_t kChannels = 1024, kTasks = 16;

    void SetUp() override {
        if (!build::has_cuda_compiler(build::CudaCompiler::Any)) GTEST_SKIP() << "there is no CUDA compiler";
        const char* text = nullptr;
        ASSERT_EQ(forge_variant_definition("hgrn", &text), FORGE_OK);
        const forge_option options[] = {
            {"device", "cuda"}, {"dtype", "bf16"}, {"size.D", "1024"}, {"expected_heads", "1"}};
        ASSERT_EQ(forge_compile(text, nullptr, options, std::size(options), &attention_), FORGE_OK) << forge_error();
    }
    void TearDown() override { forge_destroy(attention_); }

    /// The kernel that one sequence of so many tokens launches, without memory of the caller's.
    recorder::Launch launched(std::int64_t tokens) {
        std::vector<Tensor> own;
        for (const std::int32_t dtype : {FORGE_BF16, FORGE_BF16, FORGE_F32, FORGE_BF16})
            own.emplace_back(0x10000000 * (own.size() + 1), dtype, std::vector<std::int64_t>{1, tokens, 1, kChannels});
        own.resize(6);
        std::vector<forge_tensor> tensors;
        for (const Tensor& t : own) tensors.push_back(t.c);
        forge_args args{};
        args.struct_size = sizeof(args), args.tensors = tensors.data(), args.tensor_count = tensors.size();
        clear_record();
        EXPECT_EQ(forge_launch(attention_, &args), FORGE_OK) << forge_error();
        EXPECT_EQ(record().launches, 1);
        EXPECT_EQ(record().fills, 0);
        return record().launch[0];
    }

    forge_attention* attention_ = nullptr;
};

TEST_F(Clusters, AreAsLargeAsTheGpuHasRoomForAllOfThem) {
    const recorder::Launch launch = launched(100000);
    EXPECT_EQ(launch.cluster, 8U);  // 33 of 8 blocks fit at once
    EXPECT_EQ(launch.blocks, kTasks * 8);
}

TEST_F(Clusters, HaveNoBlocksWithoutTokens) {
    EXPECT_EQ(launched(1).cluster, 1U);
    EXPECT_EQ(launched(1).blocks, kTasks);
    EXPECT_EQ(launched(0).blocks, kTasks);  // states are handed on
    unsigned before = 1;
    for (std::int64_t tokens = 1; tokens < 4000; tokens += 61) {
        const unsigned blocks = launched(tokens).cluster;
        EXPECT_GE(blocks, before);
        before = blocks;
    }
    EXPECT_EQ(before, 8U);
}

INSTANTIATE_TEST_SUITE_P(Strategies, Launching, testing::Values("one-pass", "segmented"), [](const auto& test) {
    return std::string(test.param) == "one-pass" ? "OnePass" : "Segmented";
});

}  // namespace
}  // namespace forge
