/// What is measured while other processes are busy is marked in what bench and tune print and store, and does not
/// replace what was measured on a quiet machine. How busy this machine is besides does not matter: other processes only
/// add.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "build/cuda_binary.h"
#include "support/process.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

/// As many busy processes as there are cores, for as long as it lives.
class OtherProcesses {
  public:
    OtherProcesses() {
        for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
            const pid_t id = fork();
            if (id == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                volatile bool ended = false;
                while (!ended) {}
            }
            ids_.push_back(id);
        }
    }
    ~OtherProcesses() {
        for (const pid_t id : ids_) kill(id, SIGKILL), waitpid(id, nullptr, 0);
    }
    OtherProcesses(const OtherProcesses&) = delete;
    OtherProcesses& operator=(const OtherProcesses&) = delete;

  private:
    std::vector<pid_t> ids_;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string text_of(const fs::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
}

/// A cache without measurements, but with the kernels of earlier runs.
class UnderLoad : public testing::Test {
  protected:
    void SetUp() override {
        fs::create_directories(cache);
        fs::permissions(cache, fs::perms::owner_all);
        for (const auto& entry : fs::directory_iterator(cache))
            if (const auto kind = entry.path().extension(); kind == ".json" || kind == ".jsonl") fs::remove(entry);
    }
    [[nodiscard]] support::Finished forge_command(std::vector<std::string> words, const std::string& gpu_busy = "") {
        std::vector<std::string> all = {
            "/usr/bin/env", "FORGE_CACHE_DIR=" + cache.string(), "FORGE_TEST_GPU_BUSY=" + gpu_busy,
            "LD_LIBRARY_PATH=" + std::string(gpu_busy.empty() ? "" : FORGE_RECORDER), FORGE_COMMAND};
        all.insert(all.end(), words.begin(), words.end());
        return support::run_process(all);
    }
    /// The measurements become those of a quiet machine.
    void calm_down() const {
        const std::string quiet =
            std::regex_replace(text_of(measurements), std::regex("\"others\":[0-9.]+"), "\"others\":0.01");
        std::ofstream(measurements) << quiet;
    }
    const fs::path cache = fs::path(FORGE_TEST_CACHE) / "loaded", measurements = cache / "tuning.jsonl";
};

const std::vector<std::string> kTune = {
    "tune", "linear_attention", "--T",      "256",          "--H", "1",      "--K", "16", "--V",
    "16",   "--strategy",       "one-pass", "--candidates", "1",   "--runs", "3"};

std::vector<std::string> with(std::vector<std::string> words, const std::string& more) {
    words.push_back(more);
    return words;
}

TEST_F(UnderLoad, TuneMarksWhatItStoresAndKeepsQuietTimes) {
    const OtherProcesses busy;
    const auto first = forge_command(kTune);
    ASSERT_EQ(first.status, 0) << first.output;
    EXPECT_TRUE(contains(first.output, "Other processes used up to")) << first.output;
    EXPECT_TRUE(contains(first.output, "Stored, marked as measured under load")) << first.output;
    EXPECT_TRUE(contains(first.output, "The machine's speeds were measured under load, and stored so marked"))
        << first.output;
    EXPECT_GE(nlohmann::json::parse(text_of(measurements))["others"].get<double>(), 0.05) << text_of(measurements);
    const std::vector<std::string> shape(kTune.begin() + 1, kTune.begin() + 10);
    std::vector<std::string> explain = {"explain"};
    explain.insert(explain.end(), shape.begin(), shape.end());
    EXPECT_TRUE(std::regex_search(forge_command(explain).output, std::regex("fastest measured, [^;]* under load")));

    calm_down();
    const std::string known = text_of(measurements);
    const auto again = forge_command(kTune);
    EXPECT_EQ(again.status, 0) << again.output;
    EXPECT_TRUE(contains(again.output, "Not stored: times of a quiet machine are known")) << again.output;
    EXPECT_EQ(text_of(measurements), known);

    const auto forced = forge_command(with(kTune, "--force"));
    EXPECT_TRUE(contains(forced.output, "Stored, marked as measured under load")) << forced.output;
    EXPECT_EQ(text_of(measurements).find(known), 0U);
    EXPECT_GT(text_of(measurements).size(), known.size());
}

TEST_F(UnderLoad, BenchMarksItsRows) {
    const OtherProcesses busy;
    const auto done = forge_command({"bench", "linear_attention", "--T", "256", "--H", "1", "--K", "16", "--V", "16",
                                     "--strategy", "one-pass", "--json"});
    ASSERT_EQ(done.status, 0) << done.output;
    const auto row = nlohmann::json::parse(done.output)["rows"][0];
    EXPECT_TRUE(row["under_load"].get<bool>()) << done.output;
    EXPECT_GE(row["others_share_of_cores"].get<double>(), 0.05);
}

// On a GPU: with a driver that computes nothing, and a management library that says how busy others keep it.

const std::vector<std::string> kOnGpu = {"scalar_gla", "--device", "cuda", "--T", "32768", "--H", "8"};

std::vector<std::string> on_gpu(std::vector<std::string> words) {
    words.insert(words.end(), kOnGpu.begin(), kOnGpu.end());
    return words;
}

TEST_F(UnderLoad, AGpuThatOthersUseIsSeen) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Any)) GTEST_SKIP() << "there is no CUDA compiler";
    const auto bench = nlohmann::json::parse(forge_command(on_gpu({"bench", "--json"}), "40").output);
    EXPECT_DOUBLE_EQ(bench["others_share_of_gpu"].get<double>(), 0.4);
    EXPECT_TRUE(bench["rows"][0]["under_load"].get<bool>()) << bench;
    const auto idle = nlohmann::json::parse(forge_command(on_gpu({"bench", "--json"}), "0").output);
    EXPECT_DOUBLE_EQ(idle["others_share_of_gpu"].get<double>(), 0);
    EXPECT_FALSE(idle["rows"][0]["under_load"].get<bool>()) << idle;

    const std::vector<std::string> tune = on_gpu({"tune", "--candidates", "2", "--runs", "3"});
    EXPECT_TRUE(contains(forge_command(tune, "40").output, "had up to 40 % of the GPU's time"));
    EXPECT_TRUE(contains(text_of(measurements), "\"others\":0.4"));
    EXPECT_FALSE(contains(forge_command(tune, "0").output, "load")) << "a quiet GPU needs no word";
    const std::string known = text_of(measurements);
    EXPECT_TRUE(contains(forge_command(tune, "40").output, "Not stored: times of a quiet machine are known"));
    EXPECT_EQ(text_of(measurements), known);
}

}  // namespace
}  // namespace forge
