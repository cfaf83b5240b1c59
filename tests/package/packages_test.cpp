/// Packages: what their kernels compute, what is refused, and what a launch asks of the system.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "check/problem.h"
#include "package/table.h"
#include "program/entry_point.h"
#include "rt/dispatch.h"
#include "rt/files.h"
#include "rt/seal.h"
#include "support/environment.h"
#include "tests/novel/novel.h"
#include "tests/package/built.h"
#include "tests/support/expected.h"
#include "variants/variants.h"

namespace forge::tests {
namespace {

namespace fs = std::filesystem;

check::Problem problem_of(DType dtype, std::int64_t K, std::vector<std::int64_t> lengths, std::int64_t T) {
    check::Problem problem;
    problem.B = 2, problem.T = T, problem.H = 2, problem.dtype = dtype;
    problem.sizes = {{"K", K}, {"V", 32}}, problem.lengths = std::move(lengths);
    problem.initial_state = true;
    return problem;
}

int run(const std::string& command) {
    const int status = std::system(command.c_str());  // NOLINT(cert-env33-c): programs of this test
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// The same call of the compiler's kernels and of the package's.
void expect_same_bits(const Opened& package, const std::string& name, const std::string& entry,
                      const check::Problem& problem) {
    const ir::Definition definition = variants::find(name)->make().define();
    CompileOptions options{
        .entry = entry, .dtype = problem.dtype, .sizes = problem.sizes, .threads = 2, .tuned = false};
    options.expected_tokens = entry == "decode" ? 1 : kTokens;
    options.expected_sequences = 1, options.expected_heads = kTasks;
    const Attention attention = compile(definition, options);
    const ir::Definition tensors = program::tensors_of(entry, definition);
    const check::Buffers expected(tensors, problem), got(tensors, problem);
    attention(expected.call());

    const Call call = got.call();
    CCall c(package.callable(name, entry), call);
    const forge_rt_entry* const point = package.find(name, entry);
    const forge_bounds bounds = {sizeof(bounds), problem.sequences(),
                                 problem.lengths.empty() ? problem.T : problem.tokens(), 2, !problem.lengths.empty()};
    std::size_t alignment = 0;
    ASSERT_EQ(forge_rt_workspace_bytes(point, &c.args, &bounds, &c.args.workspace_bytes, &alignment), FORGE_OK)
        << forge_rt_error();
    constexpr std::size_t kGuard = 64;
    std::vector<unsigned char> memory(c.args.workspace_bytes + alignment + kGuard, 0xFF);
    void* workspace = memory.data();
    std::size_t space = memory.size();
    c.args.workspace = std::align(alignment, c.args.workspace_bytes, workspace, space);
    ASSERT_EQ(forge_rt_launch(point, &c.args), FORGE_OK) << forge_rt_error();
    const auto* const end = static_cast<unsigned char*>(c.args.workspace) + c.args.workspace_bytes;
    for (std::size_t i = 0; i < kGuard; ++i) ASSERT_EQ(end[i], 0xFF) << "writes past its workspace";
    for (const auto& [output, tensor] : expected.outputs)
        EXPECT_EQ(tensor.storage, got.outputs.at(output).storage) << name << " " << entry << " " << output;
    for (const auto& [state, tensor] : expected.final_states)
        EXPECT_EQ(tensor.storage, got.final_states.at(state).storage) << name << " " << entry << " " << state;
}

class Kernels : public testing::TestWithParam<const char*> {};

TEST_P(Kernels, ComputeWhatTheCompilersDoToTheBit) {
    const Opened package(built() / GetParam());
    EXPECT_EQ(package.manifest().kernels.size(), 2U * 2 * 2 * 2 * 3);
    for (const char* name : {"scalar_gla", "delta_net"})
        for (const DType dtype : {F32, BF16})
            for (const std::int64_t K : {32, 64}) {
                for (const std::int64_t T : {0, 1, 63, 200})
                    expect_same_bits(package, name, "forward", problem_of(dtype, K, {}, T));
                expect_same_bits(package, name, "forward", problem_of(dtype, K, {70, 0, 1, 33}, 0));
                expect_same_bits(package, name, "decode", problem_of(dtype, K, {}, 1));
                expect_same_bits(package, name, "decode", problem_of(dtype, K, {3, 0, 1}, 0));
            }
}

TEST_P(Kernels, AreThoseOfTheBestTargetThatTheMachineRuns) {
    const Opened package(built() / GetParam());
    const std::string isa = support::machine_isa();
    EXPECT_STREQ(forge_rt_target(package.get()), isa == "avx512" ? "x86-64-v4"
                                                 : isa == "avx2" ? "x86-64-v3"
                                                                 : "x86-64");
}

INSTANTIATE_TEST_SUITE_P(From, Kernels, testing::Values("", "libbuilt.so"),
                         [](const auto& from) { return *from.param ? "ASharedLibrary" : "AFolder"; });

// Every target of a package computes: those that are not the machine's best are taken where there is nothing better.
TEST(Packages, OfALesserTargetRunOnABetterMachine) {
    for (const char* target : {"x86-64", "x86-64-v3"}) {
        if (std::string(target) != "x86-64" && support::machine_isa() == "plain") continue;
        package::Request request = request_of_built();
        const Copy place(built());
        request.output = (place.path() / "other").string();
        request.targets = {target}, request.entries = {"decode"}, request.dtypes = {F32}, request.shared = false;
        package::build(request);
        const Opened package(request.output);
        EXPECT_STREQ(forge_rt_target(package.get()), target);
    }
}

TEST(Packages, HaveGradientsWhereTheyAreAskedFor) {
    package::Request request = request_of_built();
    const Copy place(built());
    request.output = (place.path() / "other").string(), request.name = "other";
    request.entries = {"backward"}, request.dtypes = {F32}, request.sizes = {{{"K", "V"}, {32}}};
    package::build(request);
    const Opened package(place.path() / "other" / "libother.so");
    for (const char* name : {"scalar_gla", "delta_net"})
        expect_same_bits(package, name, "backward", problem_of(F32, 32, {70, 0, 33}, 0));
}

TEST(Packages, AreBuiltOfWhatIsCompiledAlready) {
    package::Request request = request_of_built();
    const Copy place(built());
    request.output = (place.path() / "other").string();
    std::vector<std::size_t> seen;
    std::size_t all = 0;
    const package::Summary again =
        package::build(request, [&](std::size_t done, std::size_t of, const std::string& what) {
            EXPECT_FALSE(what.empty());
            seen.push_back(done), all = of;
        });
    EXPECT_EQ(again.from_cache, again.sources);
    EXPECT_EQ(again.kernels, 48U);
    ASSERT_EQ(seen.size(), all);
    for (std::size_t i = 0; i < all; ++i) EXPECT_EQ(seen[i], i + 1);
    const Copy other(place.path() / "other");
    for (const char* file : {rt::kManifestFile, rt::kSealsFile, "built.h", "x86-64-v3.so"})
        EXPECT_EQ(other.read(file), place.read(file)) << file << " is not the same twice";
}

TEST(Packages, AreCalledByManyThreads) {
    const Opened package(built());
    const ir::Definition definition = variants::find("delta_net")->make().define();
    const check::Problem problem = problem_of(BF16, 64, {}, 200);
    const forge_rt_entry* const entry = package.find("delta_net", "forward");
    const forge_bounds bounds = {sizeof(bounds), 2, 200, 2, 0};
    const auto run_one = [&](check::Buffers& buffers) {
        const Call call = buffers.call();
        CCall c(package.callable("delta_net", "forward"), call);
        std::size_t alignment = 0;
        ASSERT_EQ(forge_rt_workspace_bytes(entry, &c.args, &bounds, &c.args.workspace_bytes, &alignment), FORGE_OK);
        std::vector<std::max_align_t> memory((c.args.workspace_bytes + alignment) / sizeof(std::max_align_t) + 1);
        void* workspace = memory.data();
        std::size_t space = memory.size() * sizeof(std::max_align_t);
        c.args.workspace = std::align(alignment, c.args.workspace_bytes, workspace, space);
        for (int i = 0; i < 20; ++i) ASSERT_EQ(forge_rt_launch(entry, &c.args), FORGE_OK) << forge_rt_error();
    };
    constexpr std::size_t kThreads = 4;
    std::vector<check::Buffers> buffers(kThreads, check::Buffers(definition, problem));
    std::vector<std::thread> threads;
    for (check::Buffers& own : buffers) threads.emplace_back([&] { run_one(own); });
    for (std::thread& thread : threads) thread.join();
    for (const check::Buffers& own : buffers)
        EXPECT_EQ(own.outputs.at("o").storage, buffers[0].outputs.at("o").storage);
}

TEST(Packages, HaveAHeaderForCAndForCpp) {
    const Copy place(built());
    std::vector<ir::Definition> definitions;
    for (const auto* entries : {&variants::all(), &novel::all()})
        for (const variants::Entry& entry : *entries)
            if (const ir::Definition definition = entry.make().define(); program::has_decode(definition))
                definitions.push_back(definition);
    place.write("all.h", package::header_of("all", definitions, {"forward", "decode"}));
    const std::string file = (place.path() / "all.h").string();
    EXPECT_EQ(
        run("cc -x c -std=c99 -Wall -Wextra -Wpedantic -Wconversion -Wno-unused-function -Werror -fsyntax-only -I " +
            (root() / "include").string() + " " + file),
        0);
    EXPECT_EQ(run("c++ -x c++ -std=c++11 -Wall -Wextra -Wno-unused-function -Werror -fsyntax-only -I " +
                  (root() / "include").string() + " " + file),
              0);
}

// ---------------------------------------------------------------------------------------------- refusals

void expect_refused(const fs::path& path, const std::string& part, forge_status status = FORGE_PACKAGE_ERROR,
                    const char* device = "cpu") {
    forge_rt_package* package = nullptr;
    const forge_rt_options options = {sizeof(options), device, 1};
    EXPECT_EQ(forge_rt_open(path.c_str(), &options, &package), status) << part;
    EXPECT_NE(std::string(forge_rt_error()).find(part), std::string::npos) << forge_rt_error() << "\nlacks " << part;
    EXPECT_EQ(package, nullptr);
    forge_rt_close(package);
}

TEST(Refused, AreFilesThatAreNotWhole) {
    expect_refused("/nowhere", "/nowhere: No such file");
    const std::string library = fs::is_regular_file(built() / "x86-64-v4.so") ? "x86-64-v4.so" : "x86-64.so";
    for (const char* file : {rt::kManifestFile, rt::kSealsFile, "libbuilt.so", library.c_str()}) {
        const bool shared = std::string(file) == "libbuilt.so";
        const auto opened = [&](const Copy& copy) { return shared ? copy.path() / file : copy.path(); };
        for (const double part : {0.0, 0.3, 0.999}) {
            const Copy copy(built());
            const std::string content = copy.read(file);
            copy.write(file, content.substr(0, static_cast<std::size_t>(part * static_cast<double>(content.size()))));
            if (file == library && support::machine_isa() != "avx512") continue;
            expect_refused(opened(copy), "truncated");
        }
        for (const double part : {0.01, 0.5, 0.9}) {
            const Copy copy(built());
            std::string content = copy.read(file);
            content[static_cast<std::size_t>(part * static_cast<double>(content.size()))] ^= 4;
            copy.write(file, content);
            if (file == library && support::machine_isa() != "avx512") continue;
            expect_refused(opened(copy), part < 0.9 ? "damaged" : "");  // the seal itself, perhaps
        }
    }
}

TEST(Refused, IsWhatIsNoPackage) {
    const Copy copy(built());
    fs::remove(copy.path() / rt::kManifestFile);
    expect_refused(copy.path(), "expected a folder that `forge build` wrote");
    copy.write("text.so", "a text");
    expect_refused(copy.path() / "text.so", "truncated or something else");
    copy.write("sealed.so", rt::sealed("a text"));
    expect_refused(copy.path() / "sealed.so", "cannot be loaded");
    copy.write(rt::kManifestFile, "{\"name\": \"other\"}");
    copy.seal();
    expect_refused(copy.path(), "expected the manifest of a Forge package, got other JSON");
    copy.write(rt::kManifestFile, "[");
    copy.seal();
    expect_refused(copy.path(), "expected a value");
}

TEST(Refused, AreFilesOfAnotherPackage) {
    const Copy copy(built());
    package::Request request = request_of_built();
    request.output = (copy.path() / "other").string();
    request.dtypes = {F32}, request.shared = false;
    package::build(request);
    fs::copy_file(copy.path() / "other" / rt::kManifestFile, copy.path() / rt::kManifestFile,
                  fs::copy_options::overwrite_existing);
    expect_refused(copy.path(), "of another package");
}

TEST(Refused, IsANewerFormatAndWhatManifestsCannotSay) {
    const auto with = [](const std::string& from, const std::string& to) {
        const Copy copy(built());
        std::string text = copy.read(rt::kManifestFile);
        std::size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        for (; at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
        copy.write(rt::kManifestFile, text);
        copy.seal();
        forge_rt_package* package = nullptr;
        EXPECT_EQ(forge_rt_open(copy.path().c_str(), nullptr, &package), FORGE_PACKAGE_ERROR) << to;
        forge_rt_close(package);
        return std::string(forge_rt_error());
    };
    const auto expect = [&](const std::string& from, const std::string& to, const std::string& part) {
        const std::string message = with(from, to);
        EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks " << part;
    };
    expect("\"forge_package\": 4", "\"forge_package\": 5",
           "a package of format 5, built by Forge test: this library reads format 4; use a newer libforge_rt");
    expect("\"forge_package\": 4", "\"forge_package\": 3",
           "this library reads format 4; use an older libforge_rt, or build the package with a newer Forge");
    expect("\"entry\": 0", "\"entry\": 99", "expected an entry point from 0 to 3, got 99");
    expect("\"dtype\": \"f32\"", "\"dtype\": \"f8\"", "expected one of bool, i32, i64, f16, bf16, f32, f64, got 'f8'");
    expect("\"chunk\": 1", "\"chunk\": -1", "chunk: expected a whole number from 1 to 1024");
    expect("\"loop\": \"scan\"", "\"loop\": 3", "loop: expected a text, got a whole number");
    expect("\"root\": 0", "\"root\": -99", "expected kernels from 0 to");
    expect("\"symbol\": \"forge", "\"symbol\": \"xorge", "holds no 'xorge");
    expect("\"at_most\": 1,", "\"at_most\": 0,", "a table whose comparisons do not end");
}

TEST(Refused, IsADeviceThatThePackageIsNotFor) {
    expect_refused(built(), "device: expected cpu, cuda or cuda:<number>, got 'tpu'", FORGE_RUNTIME_ERROR, "tpu");
    package::Request request = request_of_built();
    const Copy place(built());
    request.output = (place.path() / "other").string();
    request.entries = {"decode"}, request.dtypes = {F32}, request.targets = {"sm_90a"}, request.shared = false;
    request.sizes = {{{"K", "V"}, {64}}};
    try {
        package::build(request);
    } catch (const RuntimeError& error) {
        ASSERT_NE(std::string(error.what()).find("no CUDA compiler"), std::string::npos) << error.what();
        GTEST_SKIP() << error.what();
    }
    expect_refused(request.output, "has no kernels for this machine's CPU");
}

TEST(Refused, AreRequestsThatCannotBe) {
    const auto expect = [](const std::function<void(package::Request&)>& change, const std::string& part) {
        package::Request request = request_of_built();
        const Copy place(built());
        request.output = (place.path() / "other").string();
        change(request);
        try {
            package::build(request);
            ADD_FAILURE() << part;
        } catch (const RuntimeError& error) {
            EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
        }
    };
    expect([](auto& r) { r.targets = {"sm_20"}; }, "target: expected one of x86-64, x86-64-v3, x86-64-v4, sm_80");
    expect([](auto& r) { r.name = "a b"; }, "name: expected letters, digits and underscores, got 'a b'");
    expect([](auto& r) { r.entries = {"sideways"}; }, "sideways");
    expect([](auto& r) { r.sizes.clear(); }, "expected a size for K, V, got none");
    expect([](auto& r) { r.definitions.push_back(r.definitions[0]); }, "two definitions have the name");
    expect([](auto& r) { r.tasks = {0}; }, "expected tokens and tasks of at least 1, got 0");
    expect([](auto& r) { r.database = "/nowhere"; }, "expected a file that forge tune wrote, got '/nowhere'");
    for (const char* text : {"K", "K=", "=64", "K=64,", "K=0", "K=a", "K=64;128"})
        EXPECT_THROW(package::parse_size_axis(text), RuntimeError) << text;
}

TEST(Refused, AreCallsThatThePackageHasNoKernelsFor) {
    const Opened package(built());
    const forge_rt_entry* found = nullptr;
    EXPECT_EQ(forge_rt_find(package.get(), "scalar_gla", "backward", &found), FORGE_PACKAGE_ERROR);
    EXPECT_STREQ(forge_rt_error(),
                 (std::string("package 'built' has no scalar_gla backward for ") + forge_rt_target(package.get()) +
                  "; it has scalar_gla forward, scalar_gla decode, delta_net forward, delta_net decode")
                     .c_str());
    const ir::Definition definition = variants::find("scalar_gla")->make().define();
    check::Problem problem = problem_of(F32, 32, {}, 10);
    const auto expect = [&](forge_status status, const std::string& part, const auto& change) {
        const check::Buffers buffers(definition, problem);
        Call call = buffers.call();
        change(call);
        const CCall c(package.callable("scalar_gla", "forward"), call);
        EXPECT_EQ(forge_rt_launch(package.find("scalar_gla", "forward"), &c.args), status);
        EXPECT_NE(std::string(forge_rt_error()).find(part), std::string::npos) << forge_rt_error();
    };
    const auto nothing = [](Call&) {};
    expect(FORGE_RUNTIME_ERROR, "argument 'workspace': expected a pointer", nothing);
    expect(FORGE_RUNTIME_ERROR, "argument 'q': expected a tensor f32[T, H, K], got nothing",
           [](Call& call) { call.tensors.erase("q"); });
    problem.sizes["K"] = 48;
    expect(FORGE_PACKAGE_ERROR, "scalar_gla: forward: the package has no kernels for f32, K = 48, V = 32; it has those",
           nothing);
    problem.sizes["K"] = 32, problem.dtype = F16;
    expect(FORGE_PACKAGE_ERROR, "no kernels for f16", nothing);
    problem.dtype = F32;
    expect(FORGE_PACKAGE_ERROR, "no kernels for", [](Call& call) { call.tensors["q"].shape.pop_back(); });
}

TEST(Refused, IsAMisusedInterface) {
    forge_rt_package* package = nullptr;
    EXPECT_EQ(forge_rt_open(nullptr, nullptr, &package), FORGE_INVALID_ARGUMENT);
    EXPECT_EQ(forge_rt_open("x", nullptr, nullptr), FORGE_INVALID_ARGUMENT);
    const forge_rt_options threads = {sizeof(threads), nullptr, -1};
    EXPECT_EQ(forge_rt_open(built().c_str(), &threads, &package), FORGE_INVALID_ARGUMENT);
    const Opened opened(built());
    const forge_rt_entry* const entry = opened.find("scalar_gla", "forward");
    EXPECT_EQ(forge_rt_launch(entry, nullptr), FORGE_INVALID_ARGUMENT);
    EXPECT_EQ(forge_rt_launch(nullptr, nullptr), FORGE_INVALID_ARGUMENT);
    forge_args args{};
    EXPECT_EQ(forge_rt_launch(entry, &args), FORGE_INVALID_ARGUMENT);
    args.struct_size = sizeof(args), args.tensor_count = 3;
    EXPECT_EQ(forge_rt_launch(entry, &args), FORGE_INVALID_ARGUMENT);
    EXPECT_STREQ(forge_rt_error(), "tensor_count: expected 7, got 3");
    EXPECT_EQ(forge_rt_abi_version(), FORGE_RT_ABI_VERSION);
    EXPECT_STREQ(forge_rt_status_string(FORGE_PACKAGE_ERROR), "FORGE_PACKAGE_ERROR");
}

// ---------------------------------------------------------------------------------------------- the table

TEST(Table, LeadsEveryCallToTheKernelsOfTheNearest) {
    std::vector<package::Cell> cells;
    const std::vector<std::int64_t> sizes = {32, 64, 96}, tokens = {100, 10000}, tasks = {1, 16, 256};
    for (std::size_t s = 0; s < sizes.size(); ++s)
        for (std::size_t t = 0; t < tokens.size(); ++t)
            for (std::size_t n = 0; n < tasks.size(); ++n)
                cells.push_back({{5, sizes[s], tokens[t], tasks[n]}, static_cast<int>(s * 10 + (n == 2 ? 0 : 1 + t))});
    const rt::Table table = package::table_of(cells, 4);
    const auto found = [&](std::int64_t size, std::int64_t T, std::int64_t n) {
        rt::Features features;
        features.symbols = 1;
        features.values[0] = 5, features.values[1] = size, features.values[2] = T, features.values[3] = n;
        return static_cast<int>(rt::look_up(table, features));
    };
    for (const package::Cell& cell : cells)
        EXPECT_EQ(found(cell.features[1], cell.features[2], cell.features[3]), cell.kernels);
    EXPECT_EQ(found(64, 1000, 64), 11);  // halfway, of logarithms, belongs to the less
    EXPECT_EQ(found(64, 1001, 64), 12);
    EXPECT_EQ(found(64, 0, 65), 10);
    EXPECT_EQ(found(64, 1 << 30, 1 << 30), 10);
    EXPECT_LE(table.nodes.size(), 2U + 3 * 3) << "what does not matter is not compared";
}

TEST(Table, TakesNoTime) {
    const Opened package(built());
    const forge_rt_entry* const entry = package.find("delta_net", "forward");
    const check::Buffers buffers(variants::find("delta_net")->make().define(), problem_of(BF16, 64, {}, 100));
    const Call call = buffers.call();
    const CCall c(package.callable("delta_net", "forward"), call);
    const char* schedule = nullptr;
    ASSERT_EQ(forge_rt_select(entry, &c.args, &schedule), FORGE_OK) << forge_rt_error();
    EXPECT_EQ(std::string(schedule).find("strategy"), 0U);
    constexpr int kRuns = 100000;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kRuns; ++i) ASSERT_EQ(forge_rt_select(entry, &c.args, &schedule), FORGE_OK);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    RecordProperty("select_ns", static_cast<int>(time.count() / kRuns));
}

TEST(Manifest, PrintsWhatItReads) {
    const Opened package(built());
    const std::string text = forge_rt_manifest(package.get());
    EXPECT_EQ(rt::print(rt::parse_manifest(text, "text")), text);
    const std::string table = rt::explain(package.manifest());
    EXPECT_NE(table.find("delta_net decode on x86-64-v3\n  bf16, K = 32, V = 32"), std::string::npos) << table;
}

// Kernels that were built before there was a word for it write no zeros: outputs are cleared before them.
TEST(Manifest, MayBeOlderThanTheZerosOfKernels) {
    std::string text = forge_rt_manifest(Opened(built()).get());
    const std::string field = ", \"clears_skipped\": false";
    int fields = 0;
    for (std::size_t at = text.find(field); at != std::string::npos; at = text.find(field), ++fields)
        text.erase(at, field.size());
    const rt::Manifest older = rt::parse_manifest(text, "text");
    EXPECT_GT(fields, 0);
    for (const rt::Compiled& kernels : older.kernels) EXPECT_FALSE(kernels.callable.clears_skipped);
}

// ---------------------------------------------------------------------------------------------- the system

TEST(Launches, AskNothingOfTheSystem) {
    for (const char* file : {"", "libbuilt.so"})
        EXPECT_EQ(run("env -i PATH= " FORGE_QUIET " " + (built() / file).string()), 0) << file;
}

TEST(Launches, BySeveralThreadsTogether) { EXPECT_EQ(run(FORGE_TEAM " " + built().string()), 0); }

// No shell, no compiler, no /proc, no home, nothing that can be written: what is there is the program and the package.
TEST(Launches, RunWhereThereIsNothingElse) {
    const Copy copy(built());
    const fs::path root = copy.path() / "root";
    fs::create_directories(root / "package");
    for (const auto& entry : fs::directory_iterator(built())) fs::copy(entry.path(), root / "package");
    const std::string libraries =
        "for f in $(ldd " FORGE_QUIET " | grep -o '/[^ ]*'); do install -D \"$f\" \"" + root.string() + "$f\"; done";
    ASSERT_EQ(run(libraries), 0);
    fs::copy(FORGE_QUIET, root / "quiet");
    ASSERT_EQ(run("chmod -R a-w " + root.string()), 0);
    const std::string in_root = "env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot " + root.string();
    if (run(in_root + " /nowhere 2>/dev/null") == 125) {
        ASSERT_EQ(run("chmod -R u+w " + root.string()), 0);
        GTEST_SKIP() << "this user may not change its root";
    }
    EXPECT_EQ(run(in_root + " /quiet /package"), 0);
    EXPECT_EQ(run(in_root + " /quiet /package/libbuilt.so"), 0);
    ASSERT_EQ(run("chmod -R u+w " + root.string()), 0);
}

}  // namespace
}  // namespace forge::tests
