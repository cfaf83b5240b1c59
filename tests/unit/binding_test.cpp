/// Wrong arguments of a call: every one is refused by name, with what was expected and what came.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "check/problem.h"
#include "forge/runtime.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

constexpr std::int64_t kB = 2, kT = 5, kH = 2, kK = 8, kV = 16;

class Binding : public testing::Test {
  protected:
    static const Attention& attention() {
        static const Attention compiled = compile(
            definition(), {.dtype = F32, .sizes = {{"K", kK}, {"V", kV}}, .strategy = "one-pass", .isa = "plain"});
        return compiled;
    }
    static ir::Definition definition() { return variants::find("scalar_gla")->make().define(); }

    static check::Problem problem() {
        check::Problem p;
        p.B = kB, p.T = kT, p.H = kH, p.sizes = {{"K", kK}, {"V", kV}}, p.initial_state = true;
        return p;
    }

    /// Changes a call that is right, and expects it to be refused.
    void expect_refused(const std::function<void(Call&)>& change, const std::string& message) {
        Call call = buffers_.call();
        change(call);
        try {
            attention()(call);
            FAIL() << "not refused; wanted: " << message;
        } catch (const RuntimeError& error) {
            EXPECT_EQ(std::string(error.what()), "scalar_gla: argument " + message);
        }
    }

    static void expect_workspace_refused(const Call& call) {
        try {
            attention()(call);
            FAIL();
        } catch (const RuntimeError& error) {
            EXPECT_NE(std::string(error.what()).find("'workspace': expected an address that is a multiple of 64"),
                      std::string::npos)
                << error.what();
        }
    }

    check::Buffers buffers_{definition(), problem()};
};

TEST_F(Binding, ARightCallIsTaken) {
    const Call call = buffers_.call();
    EXPECT_NO_THROW(attention()(call));
    EXPECT_GT(attention().workspace_bytes(call), 0U);
}

TEST_F(Binding, MissingTensors) {
    expect_refused([](Call& c) { c.tensors.erase("g"); }, "'g': expected a tensor f32[T, HV], got nothing");
    expect_refused([](Call& c) { c.tensors.erase("o"); }, "'o': expected a tensor f32[T, HV, V], got nothing");
    expect_refused([](Call& c) { c.scalars.clear(); }, "'scale': expected a number, got nothing");
}

TEST_F(Binding, UnknownNames) {
    expect_refused([](Call& c) { c.tensors["key"] = c.tensors["k"]; },
                   "'key': expected one of q, k, v, g, o, got an unknown name");
    expect_refused([](Call& c) { c.initial_states["h"] = c.initial_states["s"]; },
                   "'initial_states.h': expected one of s, got an unknown name");
    expect_refused([](Call& c) { c.final_states["h"] = c.final_states["s"]; },
                   "'final_states.h': expected one of s, got an unknown name");
    expect_refused([](Call& c) { c.scalars["scales"] = 1; },
                   "'scales': expected one of the scalars scale, got an unknown name");
}

TEST_F(Binding, WrongElementTypes) {
    expect_refused([](Call& c) { c.tensors["k"].dtype = BF16; }, "'k': expected element type f32, got bf16");
    expect_refused([](Call& c) { c.initial_states["s"].dtype = F16; },
                   "'initial_states.s': expected element type f32, got f16");
}

TEST_F(Binding, WrongShapes) {
    expect_refused([](Call& c) { c.tensors["v"].shape[3] = 17; },
                   "'v': expected shape [2, 5, 2, 16], got [2, 5, 2, 17]");
    expect_refused([](Call& c) { c.tensors["k"].shape[0] = 3; },
                   "'k': expected 2 sequences (the batch), as in the arguments before, got 3");
    expect_refused([](Call& c) { c.tensors["k"].shape[1] = 6; },
                   "'k': expected 5 tokens, as in the arguments before, got 6");
    expect_refused([](Call& c) { c.tensors["k"].shape[2] = 1; },
                   "'k': expected 2 heads (H), as in the arguments before, got 1");
    expect_refused([](Call& c) { c.final_states["s"].shape[1] = 1; },
                   "'final_states.s': expected shape [2, 2, 8, 16], got [2, 1, 8, 16]");
    expect_refused([](Call& c) { c.tensors["q"].strides.pop_back(); },
                   "'q': expected one stride per axis, got 3 strides");
    expect_refused(
        [](Call& c) {
            c.tensors["q"].shape.resize(2);
            c.tensors["q"].strides.resize(2);
        },
        "'q': expected shape [B, T, H, 8], got [2, 5]");
}

TEST_F(Binding, InputsHaveAsManyHeadsAsTheResultsOrADivisor) {
    const auto with_value_heads = [](std::int64_t n) {
        return [n](Call& c) {
            for (const char* name : {"v", "g", "o"}) c.tensors[name].shape[2] = n;
        };
    };
    expect_refused(with_value_heads(3), "'q': expected heads (H) that divide the 3 of 'o', got 2");
    expect_refused(with_value_heads(1), "'q': expected heads (H) that divide the 1 of 'o', got 2");
    expect_refused(with_value_heads(0), "'o': expected at least one head, got 0");
}

/// Keys, values and the first output have `others` heads, queries and the second one `queries`.
LinearAttention with_heads(Dim queries, Dim others) {
    auto [T, K, V] = dims("T", "K", "V");
    LinearAttention a("with_heads");
    a.input("q", F32, {T, queries, K}).input("k", F32, {T, others, K}).input("v", F32, {T, others, V});
    a.state("s", F32, {K, V}).output("o", F32, {T, others, V}).output("p", F32, {T, queries, K});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(transpose(k), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return prev + chunk; });
    a.merge({"q", "k", "v", "chunk_state"}, [](Tensor q, Tensor k, Tensor v, Tensor before) -> Results {
        return {{"o", matmul(tril(matmul(q, transpose(k))), v) + matmul(q, before)}, {"p", q * 2.0}};
    });
    return a;
}

TEST(Heads, AllOutputsHaveThem) {
    const Attention attention =
        compile(with_heads(Dim("H"), Dim("HV")), {.dtype = F32, .sizes = {{"K", 4}, {"V", 4}}, .isa = "plain"});
    std::vector<float> x(64, 1.0F), o(64), p(64);
    Call call;
    call.tensors = {{"q", dense(x.data(), F32, {1, 3, 1, 4})},
                    {"k", dense(x.data(), F32, {1, 3, 2, 4})},
                    {"v", dense(x.data(), F32, {1, 3, 2, 4})},
                    {"o", dense(o.data(), F32, {1, 3, 2, 4})},
                    {"p", dense(p.data(), F32, {1, 3, 1, 4})}};
    try {
        attention(call);
        FAIL();
    } catch (const RuntimeError& error) {
        EXPECT_STREQ(error.what(), "with_heads: argument 'p': expected 2 heads, as 'o' has, got 1");
    }
}

TEST(Heads, MayBeNumbers) {
    const Attention attention =
        compile(with_heads(Dim(2), Dim(2)), {.dtype = F32, .sizes = {{"K", 4}, {"V", 4}}, .isa = "plain"});
    std::vector<float> x(24, 1.0F), o(24), p(24);
    Call call;
    for (const char* name : {"q", "k", "v"}) call.tensors[name] = dense(x.data(), F32, {1, 3, 2, 4});
    call.tensors["o"] = dense(o.data(), F32, {1, 3, 2, 4});
    call.tensors["p"] = dense(p.data(), F32, {1, 3, 2, 4});
    attention(call);
    for (std::size_t i = 0; i < o.size(); ++i) {
        EXPECT_EQ(o[i], static_cast<float>(4 * (i / 8 + 1))) << i;
        EXPECT_EQ(p[i], 2.0F) << i;
    }
}

TEST_F(Binding, NullPointers) {
    expect_refused([](Call& c) { c.tensors["v"].data = nullptr; }, "'v': expected a pointer, got null");
}

// What no tensor in memory is.
TEST_F(Binding, Extremes) {
    constexpr std::int64_t kLarge = std::int64_t{1} << 40, kMost = std::numeric_limits<std::int64_t>::max();
    const auto all_shapes = [](std::size_t axis, std::int64_t n) {
        return [=](Call& c) {
            for (auto& [name, view] : c.tensors) view.shape[axis] = n;
        };
    };
    expect_refused(all_shapes(0, -1), "'q': expected sizes of at least 0, got [-1, 5, 2, 8]");
    expect_refused(all_shapes(1, kMost), "'q': expected fewer than 2^63 bytes, got [2, 9223372036854775807, 2, 8]");
    expect_refused([](Call& c) { c.tensors["q"].strides[1] = std::numeric_limits<std::int64_t>::min(); },
                   "'q': expected strides within 2^63 bytes, got [80, -9223372036854775808, 8, 1] of [2, 5, 2, 8]");
    expect_refused([](Call& c) { c.tensors["q"].strides[0] = kMost / 2; },
                   "'q': expected strides within 2^63 bytes, got [4611686018427387903, 16, 8, 1] of [2, 5, 2, 8]");
    expect_refused([](Call& c) { c.final_states["s"].shape = {kLarge, kLarge, 8, 16}; },
                   "'final_states.s': expected fewer than 2^63 bytes, got [1099511627776, 1099511627776, 8, 16]");
    expect_refused([](Call& c) { c.tensors["o"].strides[1] = 0; },
                   "'o': expected an element of its own for every result, got stride 0 of 5 elements");
}

TEST_F(Binding, EmptyTensorsHaveAnyStrides) {
    Call call = buffers_.call();
    for (auto& [name, view] : call.tensors) view.shape[1] = 0, view = dense(view.data, view.dtype, view.shape);
    EXPECT_NO_THROW(attention()(call));
}

TEST_F(Binding, AddressesAreThoseOfElements) {
    Call call = buffers_.call();
    call.tensors["k"].data = static_cast<char*>(call.tensors["k"].data) + 1;
    try {
        attention()(call);
        FAIL();
    } catch (const RuntimeError& error) {
        EXPECT_NE(std::string(error.what()).find("argument 'k': expected an address that is a multiple of 4 bytes"),
                  std::string::npos)
            << error.what();
    }
    std::vector<char> workspace(attention().workspace_bytes(buffers_.call()) + 128);
    call = buffers_.call();
    call.workspace = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(workspace.data()) | 63) + 2);  // NOLINT
    expect_workspace_refused(call);
}

/// Two sequences with states in a pool of four slots.
class SlotBinding : public Binding {
  protected:
    using Slots = std::vector<std::int32_t>;

    Call call(const Slots& initial, const Slots& final) {
        Call c = buffers_.call();
        c.initial_states["s"] = dense(read_.data(), F32, {initial.empty() ? kB : kSlots, kH, kK, kV});
        c.final_states["s"] = dense(written_.data(), F32, {final.empty() ? kB : kSlots, kH, kK, kV});
        initial_ = initial, final_ = final;
        if (!initial.empty()) c.initial_slots = dense(initial_.data(), DType::I32, {kB});
        if (!final.empty()) c.final_slots = dense(final_.data(), DType::I32, {kB});
        return c;
    }
    Call in_place(const Slots& initial, const Slots& final) {
        Call c = call(initial, final);
        c.initial_states["s"].data = written_.data();
        return c;
    }
    static std::string refusal(const Call& c) {
        try {
            attention()(c);
            return "";
        } catch (const RuntimeError& error) {
            return error.what();
        }
    }

    static constexpr std::int64_t kSlots = 4;
    std::vector<float> read_ = std::vector<float>(kSlots * kH * kK * kV), written_ = read_;
    Slots initial_, final_;
};

TEST_F(SlotBinding, NoTwoSequencesWriteOneSlot) {
    const std::string wanted =
        "scalar_gla: argument 'final_slots': expected a slot of its own for every sequence, got slot 3 for the "
        "sequences 0 and 1; a sequence that is to be skipped has slot -1";
    EXPECT_EQ(refusal(in_place({3, 3}, {3, 3})), wanted);
    EXPECT_EQ(refusal(call({0, 1}, {3, 3})), wanted);
    EXPECT_EQ(refusal(call({}, {3, 3})), wanted);
    EXPECT_EQ(refusal(in_place({-1, -1}, {-1, -1})), "");
    EXPECT_EQ(refusal(call({0, -1}, {3, 3})), "");  // skipped, as it has nothing to start from
    Call c = call({0, 1}, {3, 3});
    c.final_states.clear();
    EXPECT_EQ(refusal(c), "");
}

TEST_F(SlotBinding, NoSequenceReadsWhatAnotherOneWrites) {
    EXPECT_EQ(refusal(in_place({0, 1}, {1, 0})),
              "scalar_gla: argument 'final_slots': expected slots that no other sequence reads, as the states are read "
              "and written in one pool, got slot 0, which sequence 0 reads and sequence 1 writes");
    EXPECT_NE(refusal(in_place({}, {1, 0})), "");  // without initial_slots sequence n reads slot n
    EXPECT_NE(refusal(in_place({1, 0}, {})), "");  // and writes it without final_slots
    EXPECT_NE(refusal(in_place({0, 0}, {0, 1})), "");
    EXPECT_EQ(refusal(in_place({0, 0}, {1, 2})), "");  // both go on from one state
    EXPECT_EQ(refusal(in_place({0, 1}, {0, 1})), "");
    EXPECT_EQ(refusal(call({0, 1}, {1, 0})), "");  // in another pool
    constexpr bool kReads[] = {false, true};
    Call c = in_place({0, 1}, {1, 0});
    c.has_initial_state = dense(const_cast<bool*>(kReads), DType::Bool, {kB});  // NOLINT: views are untyped
    EXPECT_NE(refusal(c).find("slot 1, which sequence 1 reads and sequence 0 writes"), std::string::npos) << refusal(c);
}

class PackedBinding : public Binding {
  protected:
    static check::Problem packed() {
        check::Problem p = problem();
        p.lengths = {3, 0, 2};
        return p;
    }
    void expect_offsets_refused(std::vector<std::int32_t> offsets, const std::string& message) {
        Call call = packed_.call();
        call.cu_seqlens = dense(offsets.data(), DType::I32, {static_cast<std::int64_t>(offsets.size())});
        for (auto* states : {&call.initial_states, &call.final_states}) states->clear();
        try {
            attention()(call);
            FAIL() << "not refused; wanted: " << message;
        } catch (const RuntimeError& error) {
            EXPECT_EQ(std::string(error.what()), "scalar_gla: argument 'cu_seqlens': " + message);
        }
    }
    check::Buffers packed_{definition(), packed()};
};

TEST_F(PackedBinding, OffsetsGoFromZeroToTheEndWithoutFalling) {
    EXPECT_NO_THROW(attention()(packed_.call()));
    expect_offsets_refused({1, 3, 5}, "expected 0 as the first offset, got 1");
    expect_offsets_refused({0, 3, 2, 5}, "expected offsets that do not fall, got 2 after 3");
    expect_offsets_refused({0, 3}, "expected the number of tokens, 5, as the last offset, got 3");
    expect_offsets_refused({0, 3, 6}, "expected the number of tokens, 5, as the last offset, got 6");
}

TEST_F(PackedBinding, OffsetsAreIntegersInOneDimension) {
    std::vector<std::int32_t> offsets = {0, 5};
    Call call = packed_.call();
    const auto refused = [&](const std::string& message) {
        try {
            attention()(call);
            ADD_FAILURE() << "not refused; wanted: " << message;
        } catch (const RuntimeError& error) {
            EXPECT_EQ(std::string(error.what()), "scalar_gla: argument 'cu_seqlens': " + message);
        }
    };
    call.cu_seqlens = dense(offsets.data(), F32, {2});
    refused("expected i32 or i64, got f32");
    call.cu_seqlens = dense(offsets.data(), DType::I32, {1, 2});
    refused("expected shape [sequences + 1], got [1, 2]");
    call.cu_seqlens = dense(nullptr, DType::I32, {2});
    refused("expected a pointer, got null");
    call.cu_seqlens = dense(offsets.data(), DType::I32, {std::numeric_limits<std::int64_t>::min()});
    refused("expected sizes of at least 0, got [-9223372036854775808]");
}

TEST_F(PackedBinding, ABatchIsNotPacked) {
    std::vector<std::int32_t> offsets = {0, 5};
    Call call = buffers_.call();
    call.cu_seqlens = dense(offsets.data(), DType::I32, {2});
    try {
        attention()(call);
        FAIL();
    } catch (const RuntimeError& error) {
        EXPECT_STREQ(
            error.what(),
            "scalar_gla: argument 'cu_seqlens': expected a batch of 1 with packed sequences, got a batch of 2");
    }
}

std::string compile_message(const CompileOptions& options) {
    try {
        static_cast<void>(compile(variants::scalar_gla(), options));
    } catch (const RuntimeError& error) {
        return error.what();
    }
    return "";
}

TEST(Options, AreChecked) {
    const std::map<std::string, std::int64_t> sizes = {{"K", 16}, {"V", 16}};
    EXPECT_EQ(compile_message({.sizes = {{"K", 16}}}), "scalar_gla: sizes: expected a size for V, got none");
    EXPECT_EQ(compile_message({.sizes = {{"K", 16}, {"V", 0}}}),
              "scalar_gla: sizes: expected 1 to 2147483647 for V, got 0");
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(compile_message({.sizes = {{"K", std::int64_t{1} << 40}, {"V", 16}}}),
              "scalar_gla: sizes: expected 1 to 2147483647 for K, got 1099511627776");
    EXPECT_EQ(compile_message({.sizes = {{"K", 1 << 20}, {"V", 1 << 20}}}).substr(0, 97),
              "scalar_gla: sizes: expected values of at most 1073741824 numbers, got f32[K, V] with K = 1048576,");
    EXPECT_EQ(compile_message({.sizes = sizes, .threads = -1}), "threads: expected 0 to 65536, got -1");
    EXPECT_EQ(compile_message({.sizes = sizes, .tiles = kMost}), "tiles: expected 0 to 4096, got 9223372036854775807");
    EXPECT_EQ(compile_message({.sizes = sizes, .segments = kMost}),
              "segments: expected 0 to 1048576, got 9223372036854775807");
    EXPECT_EQ(compile_message({.sizes = sizes, .expected_tokens = -1}),
              "expected_tokens: expected 0 to 9223372036854775807, got -1");
    EXPECT_EQ(compile_message(
                  {.sizes = sizes, .expected_tokens = kMost, .expected_sequences = kMost, .expected_heads = kMost}),
              "");
    EXPECT_EQ(compile_message({.dtype = F64, .sizes = sizes}), "dtype: expected bf16, f16 or f32, got f64");
    EXPECT_EQ(compile_message({.sizes = sizes, .chunk = 48}), "chunk: expected 16, 32, 64 or 128, got 48");
    EXPECT_EQ(compile_message({.sizes = sizes, .engine = "fast"}),
              "engine: expected auto, portable, warps or warp-groups, got 'fast'");
    EXPECT_EQ(compile_message({.sizes = sizes, .isa = "sse"}), "isa: expected auto, avx512, avx2 or plain, got 'sse'");
    EXPECT_EQ(compile_message({.sizes = sizes, .strategy = "two-pass"}),
              "strategy: expected one of one-pass, fused, decoupled, segmented, got 'two-pass'");
}

}  // namespace
}  // namespace forge::tests
