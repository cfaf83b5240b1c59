#include "target/choose.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "target/cpu/cpu.h"
#include "target/report.h"

namespace forge::target {
namespace {

void add_measurements(std::vector<Candidate>& candidates, const std::vector<Measurement>& measurements) {
    for (Candidate& c : candidates)
        for (const Measurement& m : measurements)
            if (c.possible() && same_choice(c.schedule, m.schedule))
                c.measured_s = m.seconds, c.under_load = m.under_load();
}

/// Measured before unmeasured, fast before slow, else as they are; what is not possible comes last.
bool better(const Candidate& a, const Candidate& b) {
    if (a.possible() != b.possible()) return a.possible();
    const bool measured_a = a.measured_s > 0, measured_b = b.measured_s > 0;
    if (measured_a != measured_b) return measured_a;
    if (measured_a) return a.measured_s < b.measured_s;
    return a.cost && b.cost && a.cost->seconds < b.cost->seconds;
}

void check(const ir::Definition& definition, const Question& question) {
    if (!question.gpu()) return;
    const int threads = question.wishes.threads;
    if (threads != 0 && threads != 128 && threads != 256 && threads != 512)
        throw RuntimeError(fmt::format("threads: expected 128, 256 or 512 per task on a GPU, got {}", threads));
    if (question.by_token() && question.wishes.engine && plan::has_fragments(*question.wishes.engine))
        throw RuntimeError(fmt::format(
            "{}: engine: expected portable, which decode has, got '{}'", definition.name,
            question.wishes.engine == plan::Engine::Warps ? warps_target().name : warp_groups_target().name));
}

/// What was measured, the fastest first, as the targets have it now: refusals of those that they no longer have.
std::vector<Candidate> measured_before(const ir::Definition& definition, const ir::Function& program,
                                       const Question& question) {
    std::vector<Candidate> found;
    for (const Measurement& m : question.measurements) {
        Question again = question;
        again.wishes = wishes_of(m.schedule, true);
        for (const Target* target : all_targets()) {
            if (!target->considered(again)) continue;
            Candidate c;
            try {
                c = target->candidates(definition, program, again, Range::Best).front();
            } catch (const RuntimeError& error) {  // of a version that had other schedules
                c.target = target, c.wishes = again.wishes;
                c.refusal = Refusal{target->name, "Measured", error.what(), "measure again with forge tune"};
            }
            c.measured_s = m.seconds, c.under_load = m.under_load();
            found.push_back(std::move(c));
        }
    }
    std::stable_sort(found.begin(), found.end(), better);
    return found;
}

/// Unless the same was measured.
void add(std::vector<Candidate>& candidates, Candidate candidate) {
    const auto same = [&](const Candidate& c) {
        return c.measured_s > 0 && c.possible() && candidate.possible() && same_choice(c.schedule, candidate.schedule);
    };
    if (std::none_of(candidates.begin(), candidates.end(), same)) candidates.push_back(std::move(candidate));
}

/// The candidates of all targets in order; as soon as the best guess of one can be had, no more of best guesses.
std::vector<Candidate> candidates_of(const ir::Definition& definition, const ir::Function& program,
                                     const Question& question, Range range) {
    std::vector<Candidate> best, others;
    if (question.gpu()) best = measured_before(definition, program, question);
    for (const Target* target : all_targets()) {
        if (!target->considered(question)) continue;
        if (range == Range::Best && std::any_of(best.begin(), best.end(), [](const auto& c) { return c.possible(); }))
            break;
        std::vector<Candidate> all = target->candidates(definition, program, question, range);
        if (all.empty()) continue;
        add(best, std::move(all.front()));
        others.insert(others.end(), std::make_move_iterator(all.begin() + 1), std::make_move_iterator(all.end()));
    }
    for (Candidate& c : others) add(best, std::move(c));
    return best;
}

/// Of the best guesses before the first that can be had.
std::vector<Refusal> refused_before(const std::vector<Candidate>& candidates) {
    std::vector<Refusal> refused;
    for (const Candidate& c : candidates) {
        if (c.possible()) break;
        if (c.measured_s == 0) refused.push_back(*c.refusal);
    }
    return refused;
}

[[noreturn]] void refuse_all(const ir::Definition& definition, const Choice& choice) {
    const Wishes& wishes = choice.question.wishes;
    if (!choice.candidates.empty() && wishes.engine && plan::has_fragments(*wishes.engine))
        throw RuntimeError(fmt::format("{}: engine: expected a program for {}; {}", definition.name,
                                       plan::to_string(*wishes.engine), to_string(*choice.candidates[0].refusal)));
    throw RuntimeError(fmt::format("{}: no schedule with {}", definition.name, to_string(wishes)));
}

}  // namespace

const std::vector<const Target*>& all_targets() {
    static const std::vector<const Target*> kTargets = {&cpu_target(), &channels_target(), &warp_groups_target(),
                                                        &warps_target(), &portable_target()};
    return kTargets;
}

Choice choose(const ir::Definition& definition, const ir::Function& program, const Question& question, Range range) {
    check(definition, question);
    Choice choice{{}, candidates_of(definition, program, question, range), std::nullopt, question};
    const std::vector<Refusal> refused = refused_before(choice.candidates);
    add_measurements(choice.candidates, question.measurements);
    std::stable_sort(choice.candidates.begin(), choice.candidates.end(), better);
    if (choice.candidates.empty() || !choice.candidates[0].possible()) refuse_all(definition, choice);
    Candidate& chosen = choice.candidates[0];
    if (question.gpu()) {
        if (chosen.measured_s > 0) chosen.schedule.reason = "the fastest that forge tune measured";
        else chosen.schedule.refused.insert(chosen.schedule.refused.begin(), refused.begin(), refused.end());
    } else {
        const bool paper = question.wishes.rule == Rule::Paper && !question.wishes.strategy;
        chosen.schedule.reason =
            paper ? paper_rule(definition, question).why : reason_of(choice, to_string(question.wishes));
        choice.floor = floor_of(plan::make_plan(definition, program, question.problem.sizes, chosen.schedule),
                                question.problem, question.cpu());
    }
    choice.schedule = chosen.schedule;
    return choice;
}

}  // namespace forge::target
