/// The tuning database as text: what is written is read, later lines count, what cannot be read is left out with a
/// warning; and options become questions with the right keys.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "compile/question.h"
#include "forge/error.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "tune/database.h"
#include "variants/variants.h"

namespace forge::tune {
namespace {

using plan::Strategy;

Entry entry(Strategy strategy, std::int64_t chunk, double seconds,
            std::string shape = "T=8192 N=1 H=4 f32 K=128 V=128") {
    Entry e{{"0123abcd", "avx512 x 2", std::move(shape)}, "gla", {}};
    e.measurement.schedule.strategy = strategy;
    e.measurement.schedule.chunk = chunk;
    e.measurement.seconds = seconds;
    return e;
}

/// A cache directory of this test's own.
class TuningFiles : public testing::Test {
  protected:
    void SetUp() override {
        dir = std::filesystem::path(testing::TempDir()) /
              ("forge-tune-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
        std::filesystem::remove_all(dir);
    }
    void TearDown() override { std::filesystem::remove_all(dir); }
    std::filesystem::path dir;
};

TEST(Database, ReadsWhatItPrints) {
    Entry e = entry(Strategy::Segmented, 32, 1.25e-3);
    e.measurement.schedule.tile_axis = "V";
    e.measurement.schedule.tiles = 2;
    e.measurement.schedule.segments = 6;
    const Database database = parse(print(e) + "\n");
    ASSERT_EQ(database.entries.size(), 1U);
    EXPECT_TRUE(database.warnings.empty());
    EXPECT_EQ(database.entries[0].key, e.key);
    EXPECT_EQ(database.entries[0].name, "gla");
    EXPECT_TRUE(target::same_choice(database.entries[0].measurement.schedule, e.measurement.schedule));
    EXPECT_DOUBLE_EQ(database.entries[0].measurement.seconds, 1.25e-3);
    EXPECT_EQ(print(database.entries[0]), print(e));
}

TEST(Database, LeavesOutCorruptLinesAndSaysWhich) {
    std::string text = print(entry(Strategy::Fused, 64, 2e-3)) + "\n{\"program\": \"12\n\n[1, 2]\n";
    text +=
        "{\"program\":\"a\",\"device\":\"b\",\"shape\":\"c\",\"schedule\":{\"strategy\":\"sideways\",\"chunk\":64},"
        "\"seconds\":1}\n";
    text += print(entry(Strategy::OnePass, 64, -1)) + "\n" + print(entry(Strategy::OnePass, 16, 1e-3)) + "\n";
    const Database database = parse(text, "file");
    EXPECT_EQ(database.entries.size(), 2U);
    ASSERT_EQ(database.warnings.size(), 4U);
    EXPECT_EQ(database.warnings[0].rfind("file:2: not a measurement", 0), 0U) << database.warnings[0];
    EXPECT_EQ(database.warnings[1].rfind("file:4: ", 0), 0U) << database.warnings[1];
    EXPECT_NE(database.warnings[2].find("sideways"), std::string::npos) << database.warnings[2];
}

TEST(Database, LaterLinesReplaceEarlierOnesOfTheSameScheduleAndKey) {
    const Entry other = entry(Strategy::OnePass, 64, 9, "T=16 N=1 H=1 f32");
    std::string text;
    for (const Entry& e :
         {entry(Strategy::OnePass, 64, 3), entry(Strategy::Fused, 64, 2), entry(Strategy::OnePass, 64, 1), other})
        text += print(e) + "\n";
    const auto found = parse(text).find(entry(Strategy::OnePass, 64, 0).key);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_DOUBLE_EQ(found[0].seconds, 1);
    EXPECT_DOUBLE_EQ(found[1].seconds, 2);
}

Entry under_load(Entry e) {
    e.measurement.others = 0.3;
    return e;
}

TEST(Database, QuietTimesPutAsideThoseUnderLoad) {
    const auto found = [](const std::vector<Entry>& entries) {
        std::string text;
        for (const Entry& e : entries) text += print(e) + "\n";
        return parse(text).find(entry(Strategy::OnePass, 64, 0).key);
    };
    const Entry loaded = under_load(entry(Strategy::OnePass, 64, 1)), quiet = entry(Strategy::Fused, 64, 2);
    ASSERT_EQ(found({loaded}).size(), 1U);
    EXPECT_DOUBLE_EQ(found({loaded})[0].others, 0.3);
    ASSERT_EQ(found({loaded, quiet}).size(), 1U);
    EXPECT_EQ(found({loaded, quiet})[0].schedule.strategy, Strategy::Fused);
    EXPECT_EQ(found({quiet, loaded}).size(), 2U) << "stored by force";
    Entry elsewhere = loaded;
    elsewhere.key.device = "avx2 x 4";
    EXPECT_EQ(found({elsewhere, quiet}).size(), 1U);
}

TEST_F(TuningFiles, TimesUnderLoadReplaceQuietOnesOnlyByForce) {
    const std::vector<Entry> loaded = {under_load(entry(Strategy::OnePass, 64, 1))},
                             quiet = {entry(Strategy::Fused, 64, 2)};
    EXPECT_NE(remember(dir, loaded, false).find("marked as measured under load"), std::string::npos);
    EXPECT_EQ(remember(dir, quiet, false), "");
    EXPECT_NE(remember(dir, loaded, false).find("--force"), std::string::npos);
    EXPECT_EQ(load(dir).entries.size(), 2U);
    remember(dir, loaded, true);
    EXPECT_EQ(load(dir).entries.size(), 3U);
}

TEST_F(TuningFiles, TheMachineUnderLoadReplacesAQuietOneOnlyByForce) {
    target::Device busy = target::cpu_device("avx2", 3), idle = busy;
    busy.others = 0.3, busy.product_flops = 1e11, idle.product_flops = 2e11;
    EXPECT_NE(remember(dir, busy, false).find("so marked"), std::string::npos);
    EXPECT_EQ(load_device(dir, "avx2", 3)->about, "measured under load");
    EXPECT_EQ(remember(dir, idle, false), "");
    EXPECT_NE(remember(dir, busy, false).find("--force"), std::string::npos);
    EXPECT_EQ(load_device(dir, "avx2", 3)->about, "measured");
    remember(dir, busy, true);
    EXPECT_DOUBLE_EQ(load_device(dir, "avx2", 3)->product_flops, 1e11);
}

TEST(Database, RoundsShapesToPowersOfTwo) {
    target::Problem problem{{{"K", 128}, {"V", 96}}, 8000, 3, 5};
    EXPECT_EQ(shape_class(problem, BF16), "T=8192 N=4 H=4 bf16 K=128 V=96");
    problem.tokens = 1, problem.sequences = 1, problem.heads = 6;
    EXPECT_EQ(shape_class(problem, F32), "T=1 N=1 H=8 f32 K=128 V=96");
}

TEST_F(TuningFiles, AnAbsentDatabaseIsEmptyAndAppendingMakesIt) {
    EXPECT_TRUE(load(dir).entries.empty());
    append(dir, {entry(Strategy::OnePass, 64, 1)});
    append(dir, {entry(Strategy::Fused, 32, 2)});
    EXPECT_EQ(load(dir).entries.size(), 2U);
    EXPECT_TRUE(load(dir).warnings.empty());
}

TEST_F(TuningFiles, TheMachineIsReadBackAsItWasMeasured) {
    EXPECT_FALSE(load_device(dir, "avx2", 3));
    target::Device d = target::cpu_device("avx2", 3);
    d.product_flops = 1.5e11, d.memory_bandwidth = 7e9, d.cache_bytes = 1 << 20;
    save_device(dir, d);
    const auto read = load_device(dir, "avx2", 3);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->slots, 3);
    EXPECT_EQ(read->vector_width, 8);
    EXPECT_DOUBLE_EQ(read->product_flops, 1.5e11);
    EXPECT_DOUBLE_EQ(read->memory_bandwidth, 7e9);
    EXPECT_EQ(read->cache_bytes, 1 << 20);
    EXPECT_FALSE(load_device(dir, "avx2", 4));
    std::ofstream(dir / "device-avx2-3.json") << "{";
    EXPECT_FALSE(load_device(dir, "avx2", 3));
}

TEST_F(TuningFiles, AnEntryOverridesTheModelOnlyForItsProgramAndShape) {
    const ir::Definition def = frontend::with_dtype(variants::find("scalar_gla")->make().define(), F32);
    const ir::Function program = graph::optimize(frontend::join(def));
    CompileOptions o;
    o.dtype = F32, o.sizes = {{"K", 64}, {"V", 64}}, o.isa = "avx2", o.threads = 2, o.cache_dir = dir;
    Entry slow = entry(Strategy::Decoupled, 16, 1);
    slow.key = compiler::ask(program, o, nullptr).key;
    append(dir, {slow});
    const auto select = [](const ir::Definition& d, const ir::Function& fn, const CompileOptions& options) {
        return target::choose(d, fn, compiler::ask(fn, options, nullptr).question);
    };
    EXPECT_TRUE(target::same_choice(select(def, program, o).schedule, slow.measurement.schedule));
    o.expected_tokens = 65536;
    EXPECT_NE(select(def, program, o).schedule.strategy, Strategy::Decoupled);
    o.expected_tokens = 4096, o.tuned = false;
    EXPECT_NE(select(def, program, o).schedule.strategy, Strategy::Decoupled);
    o.rule = "dice";
    EXPECT_THROW(select(def, program, o), RuntimeError);
}

}  // namespace
}  // namespace forge::tune
