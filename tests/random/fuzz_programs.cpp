/// Random programs for as long as one likes: each through every engine, and what fails shrunk to a small text.
///
///   fuzz_programs [--minutes=N] [--programs=N] [--seed=S] [--jobs=N] [--device=cuda] [--engines=NAME,…] [--out=DIR]
///                 [--replay=DECISIONS or FILE] [--with=DECISION=N,…] [--no-shrink] [--known]
///
/// Programs have seeds from S on. Each is examined in a process of its own, or a few after one another, so that a crash
/// is a fault like any other. A fault's report goes to DIR/SEED.txt: what is wrong, the decisions that make the
/// program, its definition. `--replay` takes either of them and says what is wrong now. The exit status says whether
/// nothing was found. `--with`: what is decided the same for all programs (tests/random/decisions.h); with dtype=0 all
/// inputs are float32. `--known`: faults of known_faults.h too. Engines: interpreter, gradients, backward, kept, cpu,
/// sources, sources-backward, compiled, emulated, emulated-channels, emulated-backward, device.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <sstream>
#include <thread>

#include "forge/error.h"
#include "tests/random/examine.h"
#include "tests/random/known_faults.h"

namespace forge::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProgramsPerProcess = 8;  ///< what kernels that were loaded leave behind goes with their process
constexpr unsigned kMostSeconds = 400;  ///< for one program
constexpr int kMostAttempts = 150;      ///< to shrink a fault

struct Options {
    double minutes = 1;
    std::int64_t programs = -1;
    std::uint64_t seed = 1;
    int jobs = static_cast<int>(std::thread::hardware_concurrency());
    std::string device, out = "fuzz-programs", replay;
    std::vector<std::string> engines;
    Decisions::Forced forced;  ///< of every program
    bool shrinks = true;
};

Options parse(int argc, char** argv) {
    Options o;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i], value = word.substr(std::min(word.size(), word.find('=') + 1));
        if (word.starts_with("--minutes=")) o.minutes = std::stod(value);
        else if (word.starts_with("--programs=")) o.programs = std::stoll(value), o.minutes = 1e9;
        else if (word.starts_with("--seed=")) o.seed = std::stoull(value);
        else if (word.starts_with("--jobs=")) o.jobs = std::stoi(value);
        else if (word.starts_with("--device=")) o.device = value;
        else if (word.starts_with("--out=")) o.out = value;
        else if (word.starts_with("--replay=")) o.replay = value;
        else if (word.starts_with("--with=")) o.forced = parse_decisions("0:" + value).forced();
        else if (word == "--no-shrink") o.shrinks = false;
        else if (word == "--known") kRepeatedDecays = false;
        else if (word.starts_with("--engines=")) {
            std::istringstream list(value);
            for (std::string name; std::getline(list, name, ',');) o.engines.push_back(name);
        } else throw RuntimeError("unknown option " + word);
    }
    return o;
}

std::vector<Engine> engines_for(const Options& o) {
    const auto always = [](std::uint64_t) { return true; };
    const auto never = [](std::uint64_t) { return false; };
    std::vector<std::string> names = o.engines;
    if (names.empty() && o.device.empty())
        names = {"interpreter", "gradients", "sources",          "cpu", "backward", "kept",
                 "compiled",    "emulated",  "emulated-backward"};
    if (names.empty()) names = {"interpreter", "device", "device-backward"};
    std::vector<Engine> engines;
    for (const std::string& name : names) {
        if (name == "interpreter") engines.push_back(interpreter_engine());
        else if (name == "gradients") engines.push_back(gradients_engine());
        else if (name == "backward") engines.push_back(backward_engine());
        else if (name == "kept") engines.push_back(kept_states_engine());
        else if (name == "cpu") engines.push_back(cpu_engine(2));
        else if (name == "sources") engines.push_back(sources_engine(never));
        else if (name == "sources-backward") engines.push_back(backward_sources_engine());
        else if (name == "compiled") engines.push_back(sources_engine(always));
#ifdef FORGE_RANDOM_EMULATED
        else if (name == "emulated") engines.push_back(emulated_engine(always));
        else if (name == "emulated-channels") engines.push_back(emulated_channels_engine());
        else if (name == "emulated-backward") engines.push_back(emulated_backward_engine(always));
#else
        else if (name.starts_with("emulated")) continue;  // built without the tests
#endif
        else if (name == "device-backward")
            engines.push_back(device_backward_engine(o.device.empty() ? "cuda" : o.device));
        else if (name == "device") engines.push_back(device_engine(o.device.empty() ? "cuda" : o.device));
        else throw RuntimeError("unknown engine " + name);
    }
    return engines;
}

/// Runs `body` in a process of its own, whose standard output, line by line, goes to `each`. The status as from
/// waitpid.
int in_a_process(const std::function<void()>& body, const std::function<void(const std::string&)>& each) {
    static std::mutex one_at_a_time;  // or another child would keep this pipe's end
    int ends[2];
    pid_t child = 0;
    {
        const std::lock_guard lock(one_at_a_time);
        if (pipe(ends) != 0) throw RuntimeError("cannot make a pipe");
        child = fork();
        if (child == 0) {
            dup2(ends[1], STDOUT_FILENO);
            close(ends[0]), close(ends[1]);
            body();
            std::cout.flush();
            _exit(0);
        }
        close(ends[1]);
    }
    std::string line;
    char letters[4096];
    for (ssize_t n = 0; (n = read(ends[0], letters, sizeof letters)) > 0;)
        for (ssize_t i = 0; i < n; ++i) {
            if (letters[i] != '\n') line += letters[i];
            else each(line), line.clear();
        }
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

std::string escaped(std::string text) {
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.replace(at, 1, "\x1f");
    return text;
}
std::string unescaped(std::string text) {
    std::replace(text.begin(), text.end(), '\x1f', '\n');
    return text;
}

Fault crash(std::uint64_t seed, const Decisions::Forced& forced, int status) {
    const std::string how = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "does not end"
                            : WIFSIGNALED(status) ? fmt::format("crash, signal {}", WTERMSIG(status))
                                                  : fmt::format("ended with status {}", WEXITSTATUS(status));
    return {seed, forced, "process", {how}};
}

/// One program, whatever it does to its process.
std::optional<Fault> examine_apart(std::uint64_t seed, const Decisions::Forced& forced,
                                   const std::vector<Engine>& engines) {
    std::optional<Fault> found;
    const int status = in_a_process(
        [&] {
            alarm(kMostSeconds);
            Tally tally;
            if (const auto fault = examine(seed, forced, engines, tally)) {
                std::cout << "engine " << fault->engine << "\n";
                for (const std::string& what : fault->what) std::cout << "what " << escaped(what) << "\n";
            }
        },
        [&](const std::string& line) {
            if (line.starts_with("engine ")) found = Fault{seed, forced, line.substr(7), {}};
            if (line.starts_with("what ") && found) found->what.push_back(unescaped(line.substr(5)));
        });
    return status == 0 ? found : crash(seed, forced, status);
}

Fault shrink_apart(const Fault& fault, const std::vector<Engine>& engines) {
    std::vector<Engine> only;
    for (const Engine& engine : engines)
        if (engine.name == fault.engine || fault.engine == "process") only.push_back(engine);
    int attempts = 0;
    return shrink(fault, [&](const Decisions::Forced& forced) -> std::optional<Fault> {
        if (++attempts > kMostAttempts) return std::nullopt;
        return examine_apart(fault.seed, forced, only);
    });
}

/// All that was found, by all processes.
class Campaign {
  public:
    explicit Campaign(Options options) : options_(std::move(options)), engines_(engines_for(options_)) {
        std::filesystem::create_directories(options_.out);
    }

    int run() {
        std::vector<std::thread> threads;
        for (int i = 0; i < options_.jobs; ++i) threads.emplace_back([this] { work(); });
        for (std::thread& t : threads) t.join();
        for (const auto& [name, count] : tally_) fmt::print("{:8} {}\n", count, name);
        fmt::print("{} programs, {} faults, {:.0f} s\n", tally_["programs"], faults_, seconds());
        return faults_ == 0 ? 0 : 1;
    }

  private:
    [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
    [[nodiscard]] bool is_late() const { return seconds() > options_.minutes * 60; }

    /// The next seeds; none if it is enough.
    std::vector<std::uint64_t> next() {
        const std::lock_guard lock(guard_);
        std::vector<std::uint64_t> seeds;
        if (is_late()) return seeds;
        while (seeds.size() < kProgramsPerProcess && (options_.programs < 0 || given_ < options_.programs))
            seeds.push_back(options_.seed + static_cast<std::uint64_t>(given_++));
        return seeds;
    }

    void work() {
        for (std::vector<std::uint64_t> seeds = next(); !seeds.empty() && !is_late();) {
            examine_all(seeds);
            if (seeds.empty()) seeds = next();
        }
    }

    /// Takes those that are done from the list; after a crash the rest is left.
    void examine_all(std::vector<std::uint64_t>& seeds) {
        std::uint64_t at = seeds[0];
        std::vector<std::uint64_t> faulty;
        const int status = in_a_process(
            [&] {
                Tally tally;
                for (const std::uint64_t seed : seeds) {
                    if (is_late()) break;
                    std::cout << "at " << seed << std::endl;
                    alarm(kMostSeconds);
                    if (examine(seed, options_.forced, engines_, tally)) std::cout << "fault " << seed << std::endl;
                    for (const auto& [name, count] : tally) std::cout << "tally " << count << " " << name << "\n";
                    tally.clear();
                }
            },
            [&](const std::string& line) {
                std::istringstream words(line);
                std::string what;
                words >> what;
                if (what == "at") words >> at;
                if (what == "fault") faulty.push_back(at);
                if (what == "tally") note(words);
            });
        if (status != 0) faulty.push_back(at);
        const auto done = std::find(seeds.begin(), seeds.end(), at);
        seeds.erase(seeds.begin(), done + 1);
        for (const std::uint64_t seed : faulty) report_fault(seed);
    }

    void note(std::istringstream& words) {
        std::int64_t count = 0;
        std::string name;
        words >> count >> std::ws;
        std::getline(words, name);
        const std::lock_guard lock(guard_);
        tally_[name] += count;
    }

    void report_fault(std::uint64_t seed) {
        auto fault = examine_apart(seed, options_.forced, engines_);
        if (!fault) fault = Fault{seed, options_.forced, "process", {"crash among other programs only"}};
        if (options_.shrinks) fault = shrink_apart(*fault, engines_);
        const std::string file = fmt::format("{}/{}.txt", options_.out, seed);
        std::ofstream(file) << report(*fault);
        const std::lock_guard lock(guard_);
        ++faults_;
        fmt::print("FAULT seed {} ({}): {}\n      {}\n", seed, fault->engine,
                   fault->what.empty() ? "" : fault->what[0].substr(0, fault->what[0].find('\n')), file);
        std::fflush(stdout);
    }

    Options options_;
    std::vector<Engine> engines_;
    Clock::time_point begin_ = Clock::now();
    std::mutex guard_;
    std::int64_t given_ = 0;
    int faults_ = 0;
    Tally tally_;
};

int replay(const Options& options) {
    Tally tally;
    std::optional<Fault> fault;
    if (std::ifstream file(options.replay); file) {
        std::ostringstream text;
        text << file.rdbuf();
        const Reported reported = parse_report(text.str());
        fault = examine(reported.seed, reported.forced, engines_for(options), tally, &reported.program);
    } else {
        const Decisions decisions = parse_decisions(options.replay);
        fault = examine(decisions.seed(), decisions.forced(), engines_for(options), tally);
        fmt::print("{}", report(fault ? *fault : Fault{decisions.seed(), decisions.forced(), "no engine", {}}));
    }
    for (const auto& [name, count] : tally) fmt::print("{:8} {}\n", count, name);
    if (fault) fmt::print("FAULT {}: {}\n", fault->engine, fmt::join(fault->what, "\n"));
    return fault ? 1 : 0;
}

}  // namespace
}  // namespace forge::fuzz

int main(int argc, char** argv) {
    std::ios::sync_with_stdio(false);  // children must not find another thread's lock
    try {
        const forge::fuzz::Options options = forge::fuzz::parse(argc, argv);
        return options.replay.empty() ? forge::fuzz::Campaign(options).run() : forge::fuzz::replay(options);
    } catch (const std::exception& error) {
        fmt::print(stderr, "fuzz_programs: {}\n", error.what());
        return 2;
    }
}
