/// Fuzzing for as long as one likes: mutated texts and random calls, none of which may do more than be refused in
/// words.
///
///   fuzz KIND [--minutes N | --inputs N] [--seed S] [--out DIR]
///   fuzz KIND --replay FILE
///
/// KIND: parser, passes, pipeline, capi or package (targets.h). Inputs have seeds from S on. Each is in
/// DIR/KIND-S.input while it runs, so that a crash, or an input that takes more than a minute of a core, or half an
/// hour altogether, leaves it there; other faults leave theirs in DIR/KIND-SEED.fault. The exit status says whether
/// nothing was found.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "forge/error.h"
#include "tests/fuzz/targets.h"

namespace forge::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kMostComputing = 60;  ///< seconds of the processor for one input, however busy the machine is
constexpr unsigned kMostSeconds = 1800;  ///< for one input: longer than any that only waits for its turn
constexpr std::size_t kMostFaults = 20;  ///< that are told apart

struct Options {
    std::string kind, out = "fuzz", replay;
    double minutes = 1;
    std::int64_t inputs = std::numeric_limits<std::int64_t>::max();
    std::uint64_t seed = 1;
};

Options parse(int argc, char** argv) {
    Options o;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (!word.starts_with("--")) {
            o.kind = word;
            continue;
        }
        if (i + 1 == argc) throw RuntimeError("expected a value after " + word);
        const std::string value = argv[++i];
        if (word == "--minutes") o.minutes = std::stod(value);
        else if (word == "--inputs") o.inputs = std::stoll(value), o.minutes = std::numeric_limits<double>::max();
        else if (word == "--seed") o.seed = std::stoull(value);
        else if (word == "--out") o.out = value;
        else if (word == "--replay") o.replay = value;
        else throw RuntimeError("unknown option " + word);
    }
    return o;
}

/// Where the input that runs is said to be when it does not end.
char current_file[4096];  // NOLINT: a signal handler reads it

void does_not_end(int) {
    const auto say = [](const char* text) { return write(STDERR_FILENO, text, std::strlen(text)); };
    if (say("FAULT does not end: ") < 0 || say(current_file) < 0 || say("\n") < 0) _exit(3);
    _exit(1);
}

/// SIGPROF after so many seconds of the processor, SIGALRM after so many of the clock; 0: neither.
void limit(unsigned computing, unsigned seconds) {
    itimerval timer{};
    timer.it_value.tv_sec = computing;
    setitimer(ITIMER_PROF, &timer, nullptr);
    alarm(seconds);
}

double seconds_computed() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

class Campaign {
  public:
    explicit Campaign(Options options) : options_(std::move(options)), target_(make_target(options_.kind)) {
        std::filesystem::create_directories(options_.out);
        const std::string file = fmt::format("{}/{}-{}.input", options_.out, options_.kind, options_.seed);
        if (file.size() >= sizeof current_file) throw RuntimeError("too long a path: " + file);
        file.copy(current_file, file.size());
    }

    int run() {
        std::signal(SIGALRM, does_not_end), std::signal(SIGPROF, does_not_end);
        for (std::int64_t i = 0; i < options_.inputs && seconds() < options_.minutes * 60 && seen_.size() < kMostFaults;
             ++i) {
            examine_one(target_->input(options_.seed + static_cast<std::uint64_t>(i)));
            if (seconds() < told_ + 60) continue;
            told_ = seconds();
            tell();
        }
        tell();
        std::filesystem::remove(current_file);
        return faults_ == 0 ? 0 : 1;
    }

  private:
    [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

    void examine_one(const Input& input) {
        std::ofstream(current_file, std::ios::binary) << to_string(input);
        limit(kMostComputing, kMostSeconds);
        const double begin = seconds_computed();
        try {
            ++(examine(*target_, input) == Outcome::Accepted ? accepted_ : refused_);
        } catch (const Fault& fault) {
            report(input, fault.what());
        }
        limit(0, 0);
        const double took = seconds_computed() - begin;
        if (took > longest_) longest_ = took, slowest_ = input.seed;
    }

    /// The first of those that begin alike.
    void report(const Input& input, const std::string& what) {
        constexpr std::size_t kAlike = 48;
        ++faults_;
        if (!seen_.insert(what.substr(0, kAlike)).second) return;
        const std::string file = fmt::format("{}/{}-{}.fault", options_.out, options_.kind, input.seed);
        std::ofstream(file, std::ios::binary) << to_string(input);
        std::ofstream(file + ".txt") << what << "\n";
        fmt::print("FAULT {} seed {}: {}\n      {}\n", options_.kind, input.seed, what.substr(0, 400), file);
    }

    void tell() const {
        fmt::print(
            "{}: {} inputs, {} accepted, {} refused, {} faults, {:.0f} s, longest {:.1f} s computing (seed {})\n",
            options_.kind, accepted_ + refused_ + faults_, accepted_, refused_, faults_, seconds(), longest_, slowest_);
        std::fflush(stdout);
    }

    Options options_;
    std::unique_ptr<Target> target_;
    Clock::time_point begin_ = Clock::now();
    std::int64_t accepted_ = 0, refused_ = 0, faults_ = 0;
    std::set<std::string> seen_;
    double told_ = 0, longest_ = 0;
    std::uint64_t slowest_ = 0;
};

int replay(const Options& options) {
    std::ifstream file(options.replay, std::ios::binary);
    if (!file) throw RuntimeError("cannot read " + options.replay);
    std::ostringstream text;
    text << file.rdbuf();
    const auto target = make_target(options.kind);
    try {
        fmt::print("{}\n", examine(*target, parse_input(text.str())) == Outcome::Accepted ? "accepted" : "refused");
        return 0;
    } catch (const Fault& fault) {
        fmt::print("FAULT {}\n", fault.what());
        return 1;
    }
}

}  // namespace
}  // namespace forge::fuzz

int main(int argc, char** argv) {
    try {
        const forge::fuzz::Options options = forge::fuzz::parse(argc, argv);
        return options.replay.empty() ? forge::fuzz::Campaign(options).run() : forge::fuzz::replay(options);
    } catch (const std::exception& error) {
        fmt::print(stderr, "fuzz: {}\n", error.what());
        return 2;
    }
}
