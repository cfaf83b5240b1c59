// CPUs: every strategy, chunk size, cut and number of segments, priced.
#include "target/cpu/cpu.h"

#include <fmt/format.h>

#include "emit/cpu/emit_cpu.h"
#include "target/cpu/algorithm1.h"
#include "target/cpu/candidates.h"
#include "target/target.h"

namespace forge::target {
namespace {

using plan::Schedule;
using plan::Strategy;

/// Prices every schedule. Schedules that differ in segments alone share their plan.
std::vector<Candidate> price_all(const ir::Definition& definition, const ir::Function& program, const Problem& problem,
                                 const Device& device, const std::vector<Schedule>& schedules) {
    std::vector<Candidate> candidates;
    std::optional<plan::Plan> plan;
    for (const Schedule& s : schedules) {
        const bool same_kernels = plan && s.strategy == Strategy::Segmented && plan->schedule.strategy == s.strategy &&
                                  plan->schedule.chunk == s.chunk;
        if (same_kernels) plan->schedule.segments = s.segments;
        else plan = plan::make_plan(definition, program, problem.sizes, s);
        Candidate c;
        c.target = &cpu_target(), c.wishes = wishes_of(s, false), c.schedule = s;
        c.cost = price(*plan, problem, device);
        if (!c.cost->fits) c.refusal = Refusal{"cpu", "OnChip", "its tiles do not fit on chip", ""};
        else if (c.cost->tasks < device.slots)
            c.note = fmt::format("{} of {} {} busy", c.cost->tasks, device.slots, device.gpu ? "SMs" : "threads");
        candidates.push_back(std::move(c));
    }
    return candidates;
}

/// The sizes of the first state as the paper's d_k and d_v, with the device as its P_max and P_min.
Algorithm1Inputs paper_inputs(const ir::Definition& definition, const Problem& problem, const Device& device,
                              std::int64_t chunk) {
    Algorithm1Inputs in;
    in.batch = problem.sequences, in.tokens = problem.tokens, in.heads = problem.heads;
    const auto size = [&](std::size_t axis) {
        if (definition.states.empty() || axis >= definition.states[0].type.shape.size()) return std::int64_t{1};
        const Dim& d = definition.states[0].type.shape[axis];
        return d.factor * (d.is_constant() ? 1 : problem.sizes.at(d.symbol));
    };
    in.key_size = in.key_tile = size(0), in.value_size = in.value_tile = size(1);
    in.chunk = chunk;
    in.bandwidth = device.memory_bandwidth / device.slots;
    in.most_tasks = in.enough_tasks = device.slots;
    return in;
}

}  // namespace

PaperRule paper_rule(const ir::Definition& definition, const Question& question) {
    constexpr std::int64_t kPaperChunk = 64;
    const Device& device = question.cpu();
    const Algorithm1 a = algorithm1(paper_inputs(definition, question.problem, device,
                                                 question.wishes.chunk ? question.wishes.chunk : kPaperChunk));
    return {a.strategy, a.saturated
                            ? fmt::format("Algorithm 1: {} tasks saturate {} slots", a.fused_tasks, device.slots)
                            : fmt::format("Algorithm 1: fused {:.2e} s against decoupled {:.2e} s per chunk", a.fused_s,
                                          a.decoupled_s)};
}

const Target& cpu_target() {
    static const Target kTarget = {
        "cpu",
        "tiles in a thread's own cache, vectors of the instruction set",
        true,
        [](const Question& q) { return q.gpu() == nullptr; },
        [](const ir::Definition& definition, const ir::Function& program, const Question& question, Range) {
            Wishes wishes = question.wishes;
            if (wishes.rule == Rule::Paper && !wishes.strategy)
                wishes.strategy = paper_rule(definition, question).strategy;
            return price_all(definition, program, question.problem, question.cpu(),
                             enumerate_schedules(program, question.problem, question.cpu(), wishes));
        },
        emit::emit_cpu,
        ".cpp"};
    return kTarget;
}

}  // namespace forge::target
