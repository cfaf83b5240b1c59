/// The forge command with --on, and with --device cuda: the error where there is no GPU, and the whole way of run,
/// bench, check and tune with a driver that computes nothing (tests/launch/recorder.h), in which every kernel takes a
/// millisecond.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "build/cuda_binary.h"
#include "tests/command/command.h"
#include "tests/support/directory.h"

namespace forge {
namespace {

namespace fs = std::filesystem;
using tests::contains;
using tests::forge_command;

TEST(CommandOnGpu, WithoutADriverThereIsOneClearLine) {
    if (dlopen("libcuda.so.1", RTLD_LAZY)) GTEST_SKIP() << "this machine has a driver";
    for (const char* command : {"run", "check", "bench", "tune"}) {
        const auto done = forge_command({command, "gla", "--device", "cuda"}, false);
        EXPECT_EQ(done.status, 1) << command;
        EXPECT_EQ(
            done.output,
            "forge: device: this machine has no NVIDIA driver (libcuda.so.1 was not found); use device = \"cpu\"\n")
            << command;
    }
}

TEST(CommandOnGpu, RefusesOtherDevices) {
    for (const char* command : {"run", "check", "bench", "tune"}) {
        const auto done = forge_command({command, "gla", "--device", "gpu"}, false);
        EXPECT_EQ(done.status, 1) << command;
        EXPECT_TRUE(contains(done.output, "expected cpu, cuda or cuda:<number>, got 'gpu'")) << done.output;
    }
    EXPECT_TRUE(contains(forge_command({"bench", "gla", "--device", "cuda:1"}, true).output,
                         "expected cuda:0 to cuda:0, got cuda:1"));
}

// For a GPU that is not there, with no driver either.

TEST(CommandOn, PlansAndEmitsWithoutADriver) {
    for (const auto& [gpu, arch, engine] :
         {std::tuple{"h200", "compute capability 9.0, 132 multiprocessors", "The engine: warp-groups."},
          std::tuple{"a100", "compute capability 8.0, 108 multiprocessors", "The engine: warps."},
          std::tuple{"rtx4090", "compute capability 8.9, 128 multiprocessors", "The engine: warps."}}) {
        const auto explained = forge_command({"explain", "gated_delta_net", "--on", gpu}, false);
        EXPECT_EQ(explained.status, 0) << explained.output;
        EXPECT_TRUE(contains(explained.output, arch) && contains(explained.output, engine)) << explained.output;
        const auto emitted = forge_command({"emit", "gated_delta_net", "--on", gpu}, false);
        EXPECT_EQ(emitted.status, 0) << emitted.output;
        EXPECT_TRUE(contains(emitted.output, "__grid_constant__ Call")) << emitted.output.substr(0, 500);
    }
    const auto json = forge_command({"explain", "gla", "--on", "h200", "--json"}, false);
    EXPECT_EQ(nlohmann::json::parse(json.output)["isa"], "sm_90a");
}

TEST(CommandOn, PricesEveryEntryPoint) {
    const auto priced = [](std::vector<std::string> more) {
        more.insert(more.begin(), {"cost", "gated_delta_net", "--on", "h200", "--T", "8192", "--H", "32"});
        return forge_command(more, false);
    };
    const auto calls = nlohmann::json::parse(priced({"--json"}).output);
    ASSERT_EQ(calls.size(), 3);
    EXPECT_TRUE(calls[0]["entry"] == "forward" && calls[1]["entry"] == "backward" && calls[2]["entry"] == "decode");
    EXPECT_TRUE(calls[0]["tokens"] == 8192 && calls[2]["tokens"] == 1) << "decoding is priced for one token";
    const auto text = priced({"--entry", "forward"});
    EXPECT_TRUE(contains(text.output, "bound by latency") && contains(text.output, "█")) << text.output;
    const tests::Directory folder("cost");
    fs::create_directories(folder.path());
    const std::string page = folder.path() + "/cost.html";
    EXPECT_EQ(priced({"--html", page}).status, 0);
    EXPECT_TRUE(contains(std::string(std::istreambuf_iterator<char>(std::ifstream(page).rdbuf()), {}), "<svg")) << page;
    const auto alone = forge_command({"cost", "gla", "--on", "h300"}, false);
    EXPECT_TRUE(alone.status == 1 && contains(alone.output, "on: expected a100, b200, h200, rtx4090, rtx5090"))
        << alone.output;
}

TEST(CommandOn, SaysWhyAProgramIsOffTheFastPathAndWhatBringsItBack) {
    const auto done = forge_command({"explain", "gla", "--on", "h200", "--V", "12"}, false);
    EXPECT_TRUE(
        contains(done.output, "The engine: portable.") &&
        contains(done.output, "not warp-groups: the size 12 of axis V is no multiple of 64; way out: pad it to 64"))
        << done.output;
    const auto json =
        nlohmann::json::parse(forge_command({"explain", "gla", "--on", "h200", "--V", "12", "--json"}, false).output);
    EXPECT_EQ(json["engine"], "portable");
    EXPECT_EQ(json["refused"][1]["reason"], "SizeOfValueAxis");
    EXPECT_TRUE(contains(forge_command({"explain", "gla", "--on", "h200", "--V", "128"}, false).output,
                         "The engine: warp-groups."));
}

TEST(CommandOn, TakesAFileOfFacts) {
    const fs::path file = fs::path(FORGE_TEST_CACHE) / "facts_of_a_small_gpu";
    fs::create_directories(file.parent_path());
    const auto explain_with = [&](const std::string& capability) {
        std::ofstream(file) << "name = Small\ncompute_capability = " << capability
                            << "\nmultiprocessors = 7\nshared_bytes_per_block = 101376\nmemory_bandwidth = 1e11\n";
        return forge_command({"explain", "gla", "--on", file.string()}, false);
    };
    const auto done = explain_with("8.6");
    EXPECT_TRUE(contains(done.output, "Small: compute capability 8.6, 7 multiprocessors")) << done.output;
    const auto old = explain_with("7.5");
    EXPECT_EQ(old.status, 1);
    EXPECT_TRUE(contains(old.output, "expected compute capability 8.0 or later, got 7.5")) << old.output;
    const auto wrong = explain_with("nine");
    EXPECT_TRUE(contains(wrong.output, ":2: compute_capability: expected such as 9.0, got 'nine'")) << wrong.output;
    EXPECT_TRUE(
        contains(forge_command({"explain", "gla", "--on", "h300"}, false).output,
                 "on: expected a100, b200, h200, rtx4090, rtx5090, or a file with the facts of a GPU, got 'h300'"));
}

// A target of facts alone: a file in a folder of the user's, and no line of code.
TEST(CommandOn, TakesGpusFromAFolderOfFacts) {
    const fs::path folder = fs::path(FORGE_TEST_CACHE) / "own_facts";
    fs::create_directories(folder);
    std::ofstream(folder / "workstation") << "name = Workstation GPU with 99 KB\ncompute_capability = 12.0\n"
                                             "multiprocessors = 84\nshared_bytes_per_block = 101376\n"
                                             "memory_bandwidth = 9.6e11\n";
    setenv("FORGE_FACTS", folder.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
    const auto explained = forge_command({"explain", "gated_delta_net", "--on", "workstation"}, false);
    const auto emitted = forge_command({"emit", "gated_delta_net", "--on", "workstation"}, false);
    const auto unknown = forge_command({"explain", "gla", "--on", "h300"}, false);
    setenv("FORGE_FACTS", (folder / "nowhere").c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
    const auto nowhere = forge_command({"explain", "gla", "--on", "h200"}, false);
    unsetenv("FORGE_FACTS");  // NOLINT(concurrency-mt-unsafe): one thread
    EXPECT_EQ(explained.status, 0) << explained.output;
    for (const char* said : {"The GPU: Workstation GPU with 99 KB: compute capability 12.0", "The engine: warps.",
                             "not warp-groups: the GPU has compute capability 12.0, they need 9.0",
                             "1 x 4096 tokens of 4 heads on Workstation GPU with 99 KB.", "* warps       "})
        EXPECT_TRUE(contains(explained.output, said)) << said << "\n" << explained.output;
    EXPECT_TRUE(contains(emitted.output, "#include \"cuda/warpgroup/kernel.h\"")) << emitted.output.substr(0, 1000);
    EXPECT_TRUE(contains(unknown.output, "on: expected a100, b200, h200, rtx4090, rtx5090, workstation, or a file"))
        << unknown.output;
    EXPECT_TRUE(contains(nowhere.output, "FORGE_FACTS: expected a folder with facts of GPUs, got")) << nowhere.output;
}

TEST(CommandOn, PrintsCandidatesAndWhyOthersAreNone) {
    const auto done = forge_command({"explain", "gated_delta_net", "--on", "h200"}, false);
    for (const char* said :
         {"engine      strategy   chunk  cut", "* warp-groups segmented     64  7 segments",
          "  warp-groups one-pass      64  2 x 64 of V", "  portable    fused ",
          "in the order channels, warp-groups, portable", "Floor: ",
          "not warp-groups, one-pass, 4 tiles: the input 'v' is [64, 32], no matrix of 64 x 64 blocks; way out: pad"})
        EXPECT_TRUE(contains(done.output, said)) << said << "\n" << done.output;
}

TEST(CommandOn, CheckCompileSaysWhatKernelsTake) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Any)) GTEST_SKIP() << "there is no CUDA compiler";
    const auto done = forge_command({"check-compile", "scalar_gla", "--on", "h200"}, false);
    EXPECT_EQ(done.status, 0);
    EXPECT_TRUE(contains(done.output, "scalar_gla: ") && contains(done.output, "for sm_90a") &&
                contains(done.output, "registers  spilled bytes") && contains(done.output, "forge_scalar_gla_scan"))
        << done.output;
}

class WithRecorder : public testing::Test {
  protected:
    void SetUp() override {
        if (!build::has_cuda_compiler(build::CudaCompiler::Any)) GTEST_SKIP() << "there is no CUDA compiler";
    }
};

TEST_F(WithRecorder, BenchReportsWhatTheEventsSay) {
    const auto done =
        forge_command({"bench", "scalar_gla", "hgrn", "--device", "cuda", "--T", "3000", "--H", "2", "--json"}, true);
    ASSERT_EQ(done.status, 0) << done.output;
    const auto json = nlohmann::json::parse(done.output);
    EXPECT_EQ(json["problem"]["dtype"], "bf16");
    const double per_second = json["memory_gbps"].get<double>() * 1e9;
    EXPECT_NEAR(per_second, 2 * 2619e6 * 5120 / 8, 1e6);
    for (const auto& row : json["rows"]) {
        EXPECT_NEAR(row["seconds"].get<double>(), row["kernels"].get<double>() * 1e-3, 1e-6);
        EXPECT_GE(row["end_to_end_seconds"].get<double>(), row["host_seconds"].get<double>());
        EXPECT_NEAR(row["gbps"].get<double>() * 1e9 * row["seconds"].get<double>(),
                    row["floor_seconds"].get<double>() * per_second, 1);
    }
    // q, k, v and o in 16 bits, g in 32, each once.
    const double bytes = 3000.0 * 2 * (4 * 128 * 2 + 4);
    EXPECT_NEAR(json["rows"][0]["floor_seconds"].get<double>(), bytes / per_second, 1e-12);
    const auto table = forge_command({"bench", "scalar_gla", "--device", "cuda", "--T", "3000", "--H", "2"}, true);
    EXPECT_TRUE(contains(table.output, "time / floor") && contains(table.output, "end to end") &&
                contains(table.output, "TFLOP/s"))
        << table.output;
}

TEST_F(WithRecorder, RunReportsTimeAndResults) {
    const auto done = forge_command({"run", "scalar_gla", "--device", "cuda", "--T", "100"}, true);
    EXPECT_EQ(done.status, 0);
    EXPECT_TRUE(contains(done.output, "1.00 ms (") && contains(done.output, "output o: bf16[1, 100, 4, 128]"))
        << done.output;
}

TEST_F(WithRecorder, CheckFindsThatNothingIsComputed) {
    const auto done = forge_command(
        {"check", "scalar_gla", "--device", "cuda", "--dtype", "bf16", "--T", "40", "--K", "32", "--V", "32"}, true);
    EXPECT_EQ(done.status, 1);
    EXPECT_TRUE(contains(done.output, "output o is off")) << done.output;
}

TEST_F(WithRecorder, TuneRemembersTheFastest) {
    const fs::path cache = fs::path(FORGE_TEST_CACHE) / "tuned";
    fs::create_directories(cache);
    fs::remove(cache / "tuning.jsonl");
    const std::vector<std::string> shape = {"scalar_gla", "--device", "cuda", "--T", "32768", "--H", "8"};
    const auto with = [&](std::vector<std::string> words) {
        words.insert(words.end(), shape.begin(), shape.end());
        return forge_command(words, true, cache.string());
    };
    const std::string unasked = with({"explain"}).output;
    ASSERT_TRUE(contains(unasked, "The schedule: strategy segmented")) << unasked.substr(0, 500);
    const auto tuned = with({"tune", "--candidates", "3", "--runs", "3"});
    ASSERT_EQ(tuned.status, 0) << tuned.output;
    EXPECT_TRUE(contains(tuned.output, "taken unasked takes 2.00 times the fastest"))
        << tuned.output;  // two kernels and one
    EXPECT_TRUE(contains(with({"explain"}).output, "The schedule: strategy one-pass")) << "not remembered";
    EXPECT_TRUE(contains(with({"explain", "--untuned"}).output, "The schedule: strategy segmented"));
    EXPECT_TRUE(contains(with({"explain", "--strategy", "fused"}).output, "The schedule: strategy fused"));
    std::ofstream(cache / "tuning.jsonl", std::ios::app) << "no measurement\n";
    EXPECT_TRUE(contains(with({"explain"}).output, "The schedule: strategy one-pass"))
        << "one bad line spoils the rest";
}

}  // namespace
}  // namespace forge
