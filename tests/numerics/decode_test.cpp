/// Decoding: a few tokens at a time, with states in slots of a pool, in place, gives what a whole sequence forward
/// gives.
#include <cmath>

#include "program/entry_point.h"
#include "tests/numerics/numerics.h"

namespace forge::tests {
namespace {

constexpr std::int64_t kTokens = 21, kSlots = 5;
const std::vector<std::int32_t> kSlotOf = {3, 0, 4};  ///< of each sequence
constexpr double kTolerance = 1e-5;

class Decode : public testing::TestWithParam<Entry> {
  protected:
    check::Problem problem() const {
        return {.B = 3, .T = kTokens, .H = 2, .sizes = {{"K", 20}, {"V", 12}, {"D", 12}}, .initial_state = true};
    }
    std::optional<Attention> compiled(const std::string& entry) const {
        return compile_as(def_, {.entry = entry,
                                 .dtype = F32,
                                 .sizes = check::sizes_for(def_, problem()),
                                 .chunk_states = entry == "decode"});
    }
    ir::Definition def_ = GetParam().make().define();
};

/// States of a few sequences, in slots that a call reads and writes.
std::map<std::string, check::OwnedTensor> pools(const check::Buffers& buffers) {
    std::map<std::string, check::OwnedTensor> all;
    for (const auto& [name, x] : buffers.initial_states) {
        std::vector<std::int64_t> shape = x.shape;
        shape[0] = kSlots;
        check::OwnedTensor pool(F32, shape, -1, false);
        const std::int64_t width = x.count() / x.shape[0];
        for (std::int64_t i = 0; i < pool.count(); ++i) pool.set(i, 7);
        for (std::size_t n = 0; n < kSlotOf.size(); ++n)
            for (std::int64_t i = 0; i < width; ++i)
                pool.set(kSlotOf[n] * width + i, x.at(static_cast<std::int64_t>(n) * width + i));
        all.emplace(name, std::move(pool));
    }
    return all;
}

/// The largest difference of two parts of tensors, relative to the largest number of the first.
double difference(const check::OwnedTensor& want, std::int64_t at, const check::OwnedTensor& got, std::int64_t from,
                  std::int64_t count) {
    double worst = 0, largest = 1e-30;
    for (std::int64_t i = 0; i < count; ++i) {
        const double d = std::fabs(want.at(at + i) - got.at(from + i));
        worst = d <= worst ? worst : d;  // a NaN stays
        largest = std::max(largest, std::fabs(want.at(at + i)));
    }
    return worst / largest;
}

TEST_P(Decode, EndsWhereTheForwardPassEnds) {
    if (!program::has_decode(def_)) GTEST_SKIP() << "defined per chunk";
    const auto forward = compiled("forward"), decode = compiled("decode");
    check::Buffers whole(def_, problem());
    check::run(whole, [&](check::Buffers& part) { (*forward)(part.call()); });
    if (!def_.step && check::reference(whole, 1).outcomes[0].states != check::reference(whole, 64).outcomes[0].states)
        GTEST_SKIP() << "the length of chunks means something";
    auto pool = pools(whole);
    std::vector<std::int32_t> slots = kSlotOf;
    std::int64_t token = 0;
    for (const std::int64_t count : {1, 3, 16, 1}) {
        const check::Buffers part = whole.part(token, count);
        Call call = part.call();
        std::map<std::string, check::OwnedTensor> before;
        for (auto& [name, x] : pool) {
            call.initial_states[name] = call.final_states[name] = x.view();
            if (name.starts_with("last_")) continue;
            std::vector<std::int64_t> shape = x.shape;
            shape[0] = 3, shape.insert(shape.begin() + 1, count);
            call.chunk_states[name] =
                before.emplace(name, check::OwnedTensor(F32, shape, -1, false)).first->second.view();
        }
        call.initial_slots = call.final_slots = dense(slots.data(), DType::I32, {3});
        const auto started = pool;
        (*decode)(call);
        for (const auto& [name, x] : before) {  // before its first token a sequence has what it came with
            const std::int64_t width = x.count() / (3 * count);
            for (std::int64_t n = 0; n < 3; ++n)
                EXPECT_EQ(difference(started.at(name), kSlotOf[static_cast<std::size_t>(n)] * width, x,
                                     n * count * width, width),
                          0)
                    << name;
        }
        for (const auto& [name, x] : part.outputs) {
            const check::OwnedTensor& wanted = whole.outputs.at(name);
            const std::int64_t width = wanted.count() / (3 * kTokens);
            for (std::int64_t n = 0; n < 3; ++n)
                EXPECT_LE(difference(wanted, (n * kTokens + token) * width, x, n * count * width, count * width),
                          kTolerance)
                    << name << " of sequence " << n << " from token " << token;
        }
        token += count;
    }
    ASSERT_EQ(token, kTokens);
    for (const auto& [name, wanted] : whole.final_states) {
        const check::OwnedTensor& x = pool.at(name);
        const std::int64_t width = wanted.count() / 3;
        for (std::size_t n = 0; n < 3; ++n)
            EXPECT_LE(difference(wanted, static_cast<std::int64_t>(n) * width, x, kSlotOf[n] * width, width),
                      kTolerance)
                << name << " of sequence " << n;
        for (const std::int64_t unused : {1, 2})
            for (std::int64_t i = 0; i < width; ++i) ASSERT_EQ(x.at(unused * width + i), 7) << name;
    }
}

// A slot to read without one to write, or the other way round: the sequence is skipped, and neither pool changes there.
TEST_P(Decode, LeavesAloneWhatIsSkipped) {
    for (const char* const entry : in_turn(GetParam(), std::vector<const char*>{"forward", "decode"}, 1)) {
        if (entry == std::string("decode") && !program::has_decode(def_)) continue;
        const auto attention = compiled(entry);
        check::Buffers part = check::Buffers(def_, problem()).part(0, 3);
        const auto read = pools(part);
        auto written = read;
        std::vector<std::int32_t> from = {-1, 0, 4}, to = {3, -1, 1};
        Call call = part.call();
        for (auto& [name, x] : written)
            call.initial_states[name] = read.at(name).view(), call.final_states[name] = x.view();
        call.initial_slots = dense(from.data(), DType::I32, {3}), call.final_slots = dense(to.data(), DType::I32, {3});
        (*attention)(call);
        for (const auto& [name, x] : written)
            for (std::int64_t slot = 0, width = x.count() / kSlots; slot < kSlots; ++slot)
                EXPECT_EQ(difference(read.at(name), slot * width, x, slot * width, width) == 0, slot != 1)
                    << name << ", slot " << slot << ", " << entry;
        for (const auto& [name, x] : part.outputs)
            for (std::int64_t i = 0; i < x.count() / 3 * 2; ++i) ASSERT_EQ(x.at(i), 0) << name << ", " << entry;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Decode, testing::ValuesIn(programs_in_every_way()), name_of);

// A state may lie anywhere, before and after: the bits are the same. Dense ones are worked on where they end.
TEST(DecodePlaces, DoNotChangeBits) {
    constexpr std::int64_t kSize = 32, kFloats = kSize * kSize;
    const ir::Definition def = program_named("gated_delta_net").make().define();
    const check::Problem problem{.B = 1, .T = 2, .H = 1, .sizes = {{"K", kSize}, {"V", kSize}}, .initial_state = true};
    const auto decode = compile_as(def, {.entry = "decode", .dtype = F32, .sizes = check::sizes_for(def, problem)});
    struct Place {
        const char* what;
        std::int64_t at, row, column;  ///< in floats
    };
    const Place dense_at{"dense", 0, kSize, 1}, turned{"turned", 0, 1, kSize}, wide{"wide", 0, kSize + 3, 1};
    const Place places[][2] = {{dense_at, {"apart", 2 * kFloats, kSize, 1}},
                               {dense_at, dense_at},
                               {turned, turned},
                               {wide, wide},
                               {turned, dense_at},
                               {dense_at, turned},
                               {{"not aligned", 1, kSize, 1}, {"not aligned", 1, kSize, 1}},
                               {{"later", kSize + 1, kSize, 1}, dense_at},
                               {dense_at, {"later", kSize + 1, kSize, 1}},
                               {turned, {"apart", 2 * kFloats + 1, kSize, 1}}};
    std::vector<float> wanted;
    for (const auto& [from, to] : places) {
        const check::Buffers buffers(def, problem);
        Call call = buffers.call();
        std::vector<float> memory(4 * kFloats, 7.0F);
        const auto at = [&](const Place& place, std::int64_t i) -> float& {
            return memory[static_cast<std::size_t>(place.at + i / kSize * place.row + i % kSize * place.column)];
        };
        const auto view = [&](const Place& place) {
            return TensorView{memory.data() + place.at, F32, {1, 1, kSize, kSize}, {0, 0, place.row, place.column}};
        };
        const check::OwnedTensor& given = buffers.initial_states.at("s");
        for (std::int64_t i = 0; i < kFloats; ++i) at(from, i) = static_cast<float>(given.at(i));
        call.initial_states["s"] = view(from), call.final_states["s"] = view(to);
        (*decode)(call);
        std::vector<float> found;
        for (std::int64_t i = 0; i < kFloats; ++i) found.push_back(at(to, i));
        const check::OwnedTensor& o = buffers.outputs.at("o");
        for (std::int64_t i = 0; i < o.count(); ++i) found.push_back(static_cast<float>(o.at(i)));
        if (wanted.empty()) wanted = found;
        EXPECT_EQ(found, wanted) << "from " << from.what << " to " << to.what;
    }
}

TEST(DecodeOptions, AreRefusedInWords) {
    const ir::Definition def = program_named("gla").make().define();
    const auto message = [&](CompileOptions options) -> std::string {
        options.sizes = {{"K", 16}, {"V", 16}};
        try {
            static_cast<void>(compile(def, options));
            return "";
        } catch (const RuntimeError& error) {
            return error.what();
        }
    };
    EXPECT_EQ(message({.entry = "prefill"}),
              "entry: expected forward, decode, backward, 'backward of' inputs, backward to inputs, backward from "
              "states, summary or summary of backward, got 'prefill'");
    EXPECT_EQ(message({.entry = "decode", .chunk = 64}),
              "gla: chunk: expected 1, which decode fixes, got 64; leave the option out");
    EXPECT_EQ(message({.entry = "decode", .strategy = "fused"}),
              "gla: strategy: expected one-pass, which decode has, got 'fused'; leave the option out");
    EXPECT_EQ(message({.device = "cuda", .on = "h200", .entry = "decode", .engine = "warp-groups"}),
              "gla: engine: expected portable, which decode has, got 'warp-groups'");
    EXPECT_EQ(message({.device = "cuda", .on = "a100", .entry = "decode", .engine = "warps"}),
              "gla: engine: expected portable, which decode has, got 'warps'");
}

}  // namespace
}  // namespace forge::tests
