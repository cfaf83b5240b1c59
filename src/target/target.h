/// A target: one kind of kernels, with what they ask of a machine and of a program, and what was chosen among all of
/// them, as plain data. Whoever adds a target writes a folder with a function that returns it, and a line in
/// all_targets(). A GPU is no target: it is facts (gpu_facts.h), and needs a file.
#pragma once

#include <vector>

#include "target/question.h"

namespace forge::target {

struct Target;

/// One way to run a program, as plain data: a schedule, or why there is none.
struct Candidate {
    const Target* target = nullptr;
    Wishes wishes;  ///< under which the target found it
    plan::Schedule schedule;
    std::optional<Refusal> refusal;  ///< why it cannot be had
    std::optional<Cost> cost;        ///< where the target has a model of its times
    double estimate_s = 0;           ///< of its scan, where only that has a model: shown, but nothing follows from it
    double measured_s = 0;           ///< 0: not measured
    bool under_load = false;         ///< measured while other processes were busy
    std::string note;                ///< what it suffers from
    [[nodiscard]] bool possible() const { return !refusal; }
};

/// How many of its candidates a target is asked for: its best guess, as no others are looked at where it can be had; or
/// all that are worth measuring. Targets with a model of their times always have all.
enum class Range : std::uint8_t { Best, All };

struct Target {
    const char* name;   ///< as users ask for it, and Attention::engine() calls it
    const char* about;  ///< what its kernels are, for people
    bool priced;        ///< whether it has a model of their times; candidates without prices are in order of preference
    /// Whether the question is about it. What it cannot have of what it is asked, it then says in refusals.
    bool (*considered)(const Question& question);
    /// The best guess first. RuntimeError or CompileError if it is for wishes that no kernels can fulfil.
    std::vector<Candidate> (*candidates)(const ir::Definition& definition, const ir::Function& program,
                                         const Question& question, Range range);
    /// The source of a plan's kernels, and what the names of such files end in.
    std::string (*print)(const plan::Plan& plan);
    const char* suffix;
};

struct Choice {
    plan::Schedule schedule;  ///< with the reason, where there is one to give
    /// The chosen one first, then from good to bad, then what was refused. Of a GPU only as far as they were needed,
    /// unless all were asked for.
    std::vector<Candidate> candidates;
    std::optional<Floor> floor;  ///< of a CPU, at the chosen chunk size
    Question question;
    [[nodiscard]] const Target& target() const { return *candidates[0].target; }
};

/// In the order in which they are asked: on a GPU the first that can have a program has it, unless another was measured
/// to be faster.
const std::vector<const Target*>& all_targets();

const Target& cpu_target();
const Target& channels_target();
const Target& warp_groups_target();
const Target& warps_target();
const Target& portable_target();

}  // namespace forge::target
