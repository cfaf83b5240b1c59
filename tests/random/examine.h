/// One random program through the compiler: every engine that is at hand says what is wrong with it.
#pragma once

#include <deque>
#include <functional>

#include "tests/random/oracle.h"

namespace forge::fuzz {

/// What was done, by name: programs, runs by engine and strategy, refusals, results that only rounding explains.
using Tally = std::map<std::string, std::int64_t>;

/// A program with its decisions and the problems that engines solve.
class Subject {
  public:
    /// CompileError if the language refuses the program.
    explicit Subject(Decisions& decisions);
    /// A program that is given; the decisions are about how it is run.
    Subject(Decisions& decisions, Program given);

    Decisions& d;
    Program program;
    /// The first or second problem; solved when it is first asked for.
    Problem& problem(int index);
    void note_excuses(Tally& tally) const;

  private:
    std::map<int, std::unique_ptr<Problem>> problems_;
};

/// Finds faults in what it makes of a program. Exceptions are faults too, but for CompileErrors, which are refusals.
struct Engine {
    std::string name;
    std::function<std::vector<std::string>(Subject&, Tally&)> faults;
};

/// Float64 alone: the text form, the phases, the joined and the optimised program.
Engine interpreter_engine();
/// Float64 alone: gradients of chunks against those of tokens.
Engine gradients_engine();
/// The backward pass by a random strategy and chunk size, on the CPU.
Engine backward_engine();
/// The same from the states before chunks that a forward pass has left.
Engine kept_states_engine();
/// So many random choices of strategy, chunk size, instruction set and threads on the CPU.
Engine cpu_engine(int ways);
/// Plans and sources for GPUs that are not there; compiled if `compile` says so for a seed, where there is a compiler.
Engine sources_engine(std::function<bool(std::uint64_t seed)> compile);
/// Plans and sources of gradients, as the emulated backward pass has them.
Engine backward_sources_engine();
/// Kernels of warp groups and of channels on emulated hardware.
Engine emulated_engine(std::function<bool(std::uint64_t seed)> run);
/// Kernels of channels alone, of all programs that have them: they take little time.
Engine emulated_channels_engine();
/// The backward pass on emulated hardware, by whichever GPU engine takes it.
Engine emulated_backward_engine(std::function<bool(std::uint64_t seed)> run);
/// Every engine of a real GPU.
Engine device_engine(const std::string& device);
/// The backward pass on a real GPU.
Engine device_backward_engine(const std::string& device);

struct Fault {
    std::uint64_t seed = 0;
    Decisions::Forced forced;
    std::string engine;
    std::vector<std::string> what;
};

/// The first engine that finds a fault; none if all is well. With a program, the seed's own is not made.
std::optional<Fault> examine(std::uint64_t seed, const Decisions::Forced& forced, const std::vector<Engine>& engines,
                             Tally& tally, const Program* given = nullptr);

/// Simpler decisions with which the same engine still finds the same fault, by `examine` or a stand-in for it.
using Examine = std::function<std::optional<Fault>(const Decisions::Forced& forced)>;
Fault shrink(const Fault& fault, const Examine& again);

/// How it was found and how to run it again, and the definition: a text that `parse_report` and `forge check` read.
std::string report(const Fault& fault);

/// A program and the decisions about its runs, from a report.
struct Reported {
    std::uint64_t seed = 0;
    Decisions::Forced forced;
    Program program;
};
Reported parse_report(const std::string& text);

}  // namespace forge::fuzz
