/// Packages on a GPU, with a driver that writes down what it is asked to do (tests/launch/recorder.h): what a package
/// launches is what the compiler's own kernels are launched with, and a launch asks nothing of the system.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>

#include "build/cuda_binary.h"
#include "check/problem.h"
#include "rt/dump.h"
#include "tests/launch/recorder.h"
#include "tests/package/built.h"
#include "variants/variants.h"

namespace forge::tests {
namespace {

namespace fs = std::filesystem;

const recorder::Record& record() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    return *reinterpret_cast<const recorder::Record* (*)()>(dlsym(driver, "forge_record"))();  // NOLINT: dlsym
}

void clear_record() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    reinterpret_cast<void (*)()>(dlsym(driver, "forge_record_clear"))();  // NOLINT: dlsym
}

/// scalar_gla and one of vectors, for the recorder's GPU.
class Recorded : public testing::Test {
  protected:
    void SetUp() override {
        if (!build::has_cuda_compiler(build::CudaCompiler::Any)) GTEST_SKIP() << "there is no CUDA compiler";
    }

    static fs::path package_of(const fs::path& folder, const std::vector<DType>& dtypes, std::int64_t size) {
        package::Request request = request_of_built();
        request.output = folder.string(), request.name = "gpu";
        request.definitions = {variants::find("scalar_gla")->make().define(), variants::find("hgrn")->make().define()};
        request.targets = {"sm_90a", "x86-64"}, request.dtypes = dtypes;
        request.sizes = {{{"K", "V", "D"}, {size}}};
        package::build(request);
        return folder;
    }
};

std::vector<recorder::Launch> launches() { return {record().launch, record().launch + record().launches}; }

TEST_F(Recorded, LaunchesWhatTheCompilersKernelsAreLaunchedWith) {
    const Copy place(built());
    for (const std::string file : {"", "libgpu.so"}) {
        const Opened package(package_of(place.path() / "gpu", {BF16}, 64) / file, "cuda");
        EXPECT_STREQ(forge_rt_target(package.get()), "sm_90a");
        for (const char* name : {"scalar_gla", "hgrn"})
            for (const char* entry : {"forward", "decode"}) {
                check::Problem problem{.B = 3, .T = std::string(entry) == "decode" ? 1 : 70, .H = 2};
                problem.dtype = BF16, problem.initial_state = true;
                problem.sizes = {{"K", 64}, {"V", 64}, {"D", 64}};
                const ir::Definition definition = variants::find(name)->make().define();
                CompileOptions options{.device = "cuda", .entry = entry, .dtype = BF16};
                options.sizes = check::sizes_for(definition, problem), options.tuned = false;
                options.expected_tokens = std::string(entry) == "decode" ? 1 : kTokens;
                options.expected_heads = kTasks;
                const Attention attention = compile(definition, options);
                check::Buffers buffers(definition, problem);
                alignas(256) static char workspace[1 << 22];
                Call call = buffers.call();
                call.workspace = workspace, call.workspace_size = sizeof(workspace);
                std::int32_t slots[] = {1, -1, 0};
                call.initial_slots = call.final_slots = TensorView{slots, DType::I32, {3}, {}};
                clear_record();
                attention(call);
                const std::vector<recorder::Launch> expected = launches();
                const bool clears_skipped = std::string(name) == "scalar_gla" && std::string(entry) == "decode";
                EXPECT_EQ(record().fills > 0, !clears_skipped) << name << " " << entry;
                const int fills = record().fills;
                CCall c(package.callable(name, entry), call);
                c.args.workspace = workspace, c.args.workspace_bytes = sizeof(workspace);
                const forge_rt_entry* const point = package.find(name, entry);
                for (int times = 0; times < 3; ++times) {
                    clear_record();
                    ASSERT_EQ(forge_rt_launch(point, &c.args), FORGE_OK) << forge_rt_error();
                    const std::vector<recorder::Launch> got = launches();
                    ASSERT_EQ(got.size(), expected.size());
                    ASSERT_FALSE(got.empty());
                    EXPECT_EQ(record().fills, fills);
                    for (std::size_t k = 0; k < got.size(); ++k) {
                        EXPECT_EQ(got[k].blocks, expected[k].blocks);
                        EXPECT_EQ(got[k].cluster, expected[k].cluster);
                        EXPECT_EQ(got[k].threads, expected[k].threads);
                        EXPECT_EQ(got[k].shared_bytes, expected[k].shared_bytes);
                        EXPECT_EQ(std::memcmp(&got[k].arguments, &expected[k].arguments, sizeof(got[k].arguments)), 0);
                        EXPECT_EQ(got[k].maps.usable, expected[k].maps.usable);
                        EXPECT_EQ(std::memcmp(got[k].maps.map, expected[k].maps.map, sizeof(got[k].maps.map)), 0);
                    }
                }
                c.args.workspace_bytes = 0;
                if (attention.workspace_bytes(call) > 0) {
                    EXPECT_EQ(forge_rt_launch(point, &c.args), FORGE_RUNTIME_ERROR);
                }
            }
    }
}

TEST_F(Recorded, LaunchesAskNothingOfTheSystem) {
    const Copy place(built());
    package_of(place.path() / "gpu", {F32}, 32);
    const std::string command = std::string("env -i LD_LIBRARY_PATH=") + FORGE_RECORDER + " " FORGE_QUIET " " +
                                (place.path() / "gpu").string() + " cuda";
    const int status = std::system(command.c_str());  // NOLINT(cert-env33-c): a program of this test
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(Recorded, MoreLayoutsThanAreKeptAreLaidOutAgain) {
    const Copy place(built());
    const Opened package(package_of(place.path() / "gpu", {BF16}, 64), "cuda");
    const ir::Definition definition = variants::find("scalar_gla")->make().define();
    alignas(256) static char workspace[1 << 22];
    for (int round = 0; round < 2; ++round)
        for (std::int64_t T = 1; T < 20; ++T) {
            check::Problem problem{.B = 1, .T = T, .H = 2};
            problem.dtype = BF16, problem.sizes = {{"K", 64}, {"V", 64}};
            check::Buffers buffers(definition, problem);
            const Call call = buffers.call();
            CCall c(package.callable("scalar_gla", "forward"), call);
            c.args.workspace = workspace, c.args.workspace_bytes = sizeof(workspace);
            clear_record();
            ASSERT_EQ(forge_rt_launch(package.find("scalar_gla", "forward"), &c.args), FORGE_OK) << forge_rt_error();
            ASSERT_GT(record().launches, 0);
            EXPECT_EQ(record().launch[0].arguments.tokens, T);
        }
}

// What a call on a GPU reads and writes is copied from there.
TEST_F(Recorded, CallsAreWrittenToFiles) {
    const Copy place(built());
    const Opened package(package_of(place.path() / "gpu", {BF16}, 64), "cuda");
    check::Problem problem{.B = 2, .T = 3, .H = 2};
    problem.dtype = BF16, problem.sizes = {{"K", 64}, {"V", 64}}, problem.initial_state = true;
    const check::Buffers buffers(variants::find("scalar_gla")->make().define(), problem);
    alignas(256) static char workspace[1 << 22];
    const Call call = buffers.call();
    CCall c(package.callable("scalar_gla", "forward"), call);
    c.args.workspace = workspace, c.args.workspace_bytes = sizeof(workspace);
    const std::string file = (place.path() / "call").string();
    ASSERT_EQ(forge_rt_dump_call(package.find("scalar_gla", "forward"), &c.args, file.c_str()), FORGE_OK)
        << forge_rt_error();
    const rt::DumpedCall dumped = rt::read_dump(file);
    EXPECT_EQ(dumped.target, "sm_90a");
    std::size_t inputs = 0, results = 0;
    const auto same = [](const std::string& content, const check::OwnedTensor& x) {
        return content.size() == x.storage.size() && std::memcmp(content.data(), x.storage.data(), content.size()) == 0;
    };
    for (const rt::DumpedTensor& tensor : dumped.tensors) {
        if (const auto x = buffers.inputs.find(tensor.name); x != buffers.inputs.end())
            inputs += same(tensor.before, x->second) ? 1 : 0;
        if (const auto x = buffers.outputs.find(tensor.name); x != buffers.outputs.end())
            results += same(tensor.after, x->second) ? 1 : 0;
    }
    EXPECT_EQ(inputs, 4U);
    EXPECT_EQ(results, 1U);
}

TEST_F(Recorded, DevicesThatThePackageIsNotForAreNamed) {
    forge_rt_package* package = nullptr;
    const forge_rt_options options = {sizeof(options), "cuda", 0};
    EXPECT_EQ(forge_rt_open(built().c_str(), &options, &package), FORGE_PACKAGE_ERROR);
    EXPECT_NE(std::string(forge_rt_error()).find("(compute capability 9.0): it has those for x86-64"),
              std::string::npos)
        << forge_rt_error();
    const forge_rt_options other = {sizeof(other), "cuda:7", 0};
    EXPECT_EQ(forge_rt_open(built().c_str(), &other, &package), FORGE_RUNTIME_ERROR);
}

}  // namespace
}  // namespace forge::tests
