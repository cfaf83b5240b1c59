/// Packages on a real GPU: builds one for it, opens it, and holds forward and decode against the compiler's own
/// kernels, to the bit, launched and replayed from a captured graph; then says what opening and launching cost: of a
/// launch the time on the host, the time until its results are there, and how much of that is not the GPU's (replays of
/// a graph, with the caches as warm). Needs no test library, and a CUDA compiler only to build.
///
///   gpu_package_check [FOLDER]    # the package to write; default: a new one under /tmp
///   gpu_package_check --zoo       # builds a package of all variants, K = V = 64 and 128, and says how long opening it
///   takes
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "gpu/session.h"
#include "package/build.h"
#include "rt/package.h"
#include "runtime/named_arguments.h"
#include "variants/variants.h"

namespace forge::gpu {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kTokens = 1024, kHeads = 32, kSize = 128;

double microseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

const std::vector<std::string>& names() {
    static const std::vector<std::string> kNames = {"scalar_gla", "gla", "gated_delta_net", "hgrn"};
    return kNames;
}

package::Request request_for(const std::string& target, const std::string& folder) {
    package::Request request;
    request.name = "checked", request.output = folder, request.build = "gpu_package_check";
    for (const std::string& name : names()) request.definitions.push_back(variants::find(name)->make().define());
    request.targets = {target}, request.dtypes = {BF16, F32};
    request.sizes = {{{"K", "V", "D"}, {kSize}}};
    request.tokens = {kTokens}, request.tasks = {kHeads};
    request.shared = true;
    return request;
}

class Check {
  public:
    Check(const Session& session, const rt::Package& package) : session_(session), package_(package) {}

    void run(const std::string& name, const std::string& entry, DType dtype) {
        const bool decode = entry == "decode";
        check::Problem problem{.B = decode ? 8 : 1, .T = decode ? 1 : kTokens, .H = kHeads};
        problem.dtype = dtype, problem.initial_state = true;
        problem.sizes = {{"K", kSize}, {"V", kSize}, {"D", kSize}};
        const ir::Definition definition = variants::find(name)->make().define();
        CompileOptions options{.device = "cuda", .entry = entry, .dtype = dtype};
        options.sizes = check::sizes_for(definition, problem), options.tuned = false;
        options.expected_tokens = decode ? 1 : kTokens, options.expected_heads = kHeads;
        const Attention attention = compile(definition, options);
        check::Buffers expected(definition, problem);
        session_.run(attention, expected);

        const rt::EntryPoint& point = package_.find(name, entry);
        check::Buffers direct(definition, problem), replayed(definition, problem);
        launch(point, attention, direct, false), launch(point, attention, replayed, true);
        const bool same = are_same(expected, direct) && are_same(expected, replayed);
        failures_ += same ? 0 : 1;
        fmt::print(
            "{:<16} {:<8} {:<5} {}; a launch takes {:.1f} us of the host, {:.1f} us until it is done, {:.1f} us of "
            "the GPU: {:.1f} us over it\n",
            name, entry, to_string(dtype), same ? "the same bits" : "OTHER BITS", host_us_, done_us_, gpu_us_,
            done_us_ - gpu_us_);
    }

    [[nodiscard]] int failures() const { return failures_; }

  private:
    void launch(const rt::EntryPoint& point, const Attention& attention, check::Buffers& buffers, bool captured) {
        DeviceBuffers on_device(buffers);
        const Call& call = on_device.call(attention, session_.stream());
        const runtime::NamedArguments arguments(point.callable(), call);
        const Bounds bounds{buffers.problem().sequences(), buffers.problem().T, buffers.heads(), false};
        const Memory workspace(std::max<std::size_t>(
            point.workspace_bytes(&static_cast<const runtime::Arguments&>(arguments), bounds), 1));
        runtime::Arguments own = arguments;
        own.workspace = workspace.data(), own.workspace_bytes = workspace.bytes();
        if (captured) {
            const Graph graph(session_.stream(), [&] { point.launch(own); });
            graph.replay(session_.stream());
        } else {
            point.launch(own);
        }
        session_.stream().synchronize();
        on_device.fetch(buffers);
        if (!captured) time(point, own);
    }

    void time(const rt::EntryPoint& point, const runtime::Arguments& arguments) {
        constexpr int kRuns = 101;
        std::vector<double> host, done;
        for (int i = 0; i < kRuns; ++i) {
            const auto begin = Clock::now();
            point.launch(arguments);
            host.push_back(microseconds_since(begin));
            session_.stream().synchronize();
            done.push_back(microseconds_since(begin));
        }
        std::vector<double> gpu = session_.replay_seconds([&] { point.launch(arguments); }, kRuns, true);
        for (auto* times : {&host, &done, &gpu})
            std::nth_element(times->begin(), times->begin() + kRuns / 2, times->end());
        host_us_ = host[kRuns / 2], done_us_ = done[kRuns / 2], gpu_us_ = gpu[kRuns / 2] * 1e6;
    }

    static bool are_same(const check::Buffers& a, const check::Buffers& b) {
        const auto same = [](const auto& some, const auto& others) {
            return std::all_of(some.begin(), some.end(), [&](const auto& named) {
                return named.second.storage == others.at(named.first).storage;
            });
        };
        return same(a.outputs, b.outputs) && same(a.final_states, b.final_states);
    }

    const Session& session_;
    const rt::Package& package_;
    double host_us_ = 0, done_us_ = 0, gpu_us_ = 0;
    int failures_ = 0;
};

/// Builds a package of everything, and opens it: the folder, and the same as one library.
int open_zoo(const Session& session) {
    package::Request request;
    request.name = "zoo", request.output = (fs::temp_directory_path() / "forge-gpu-zoo").string();
    request.build = "gpu_package_check";
    for (const variants::Entry& entry : variants::all()) request.definitions.push_back(entry.make().define());
    request.targets = {session.device().arch()}, request.dtypes = {BF16, F32};
    request.sizes = {{{"K", "V", "D"}, {kSize / 2, kSize}}};
    request.shared = true;
    const auto begin = Clock::now();
    const package::Summary made = package::build(request);
    fmt::print("zoo: {} sets of kernels for {} in {:.1f} s\n", made.kernels, session.device().arch(),
               microseconds_since(begin) / 1e6);
    for (int run = 0; run < 3; ++run)
        for (const std::string file : {"", "libzoo.so"}) {
            const auto open = Clock::now();
            const rt::Package package((fs::path(request.output) / file).string(), "cuda", 0);
            fmt::print("{}: opened in {:.1f} ms\n", file.empty() ? "folder" : file, microseconds_since(open) / 1e3);
        }
    return 0;
}

int run(int argc, char** argv) {
    const Session session("cuda");
    if (argc > 1 && argv[1] == std::string("--zoo")) return open_zoo(session);
    const std::string folder = argc > 1 ? argv[1] : (fs::temp_directory_path() / "forge-gpu-package").string();
    const auto begin = Clock::now();
    const package::Summary made = package::build(request_for(session.device().arch(), folder));
    fmt::print("{} sets of kernels for {} in {:.1f} s\n", made.kernels, session.device().arch(),
               microseconds_since(begin) / 1e6);
    int failures = 0;
    for (const std::string file : {"", "libchecked.so"}) {
        const auto open = Clock::now();
        const rt::Package package((fs::path(folder) / file).string(), "cuda", 0);
        fmt::print("{}: opened in {:.1f} ms\n", file.empty() ? folder : file, microseconds_since(open) / 1e3);
        Check check(session, package);
        for (const std::string& name : names())
            for (const char* entry : {"forward", "decode"})
                for (const DType dtype : {BF16, F32}) check.run(name, entry, dtype);
        failures += check.failures();
    }
    fmt::print("{} failed\n", failures);
    return failures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace forge::gpu

int main(int argc, char** argv) {
    try {
        return forge::gpu::run(argc, argv);
    } catch (const std::exception& error) {
        fmt::print(stderr, "gpu_package_check: {}\n", error.what());
        return 1;
    }
}
