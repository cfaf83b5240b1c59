#include "target/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "emit/cuda/launch.h"
#include "support/divide.h"

namespace forge::target {
namespace {

std::string time_text(double s) {
    return s < 1e-3 ? fmt::format("{:.1f} us", s * 1e6)
           : s < 1  ? fmt::format("{:.2f} ms", s * 1e3)
                    : fmt::format("{:.2f} s", s);
}

std::string amount(double x, const char* unit) {
    return x < 1e6   ? fmt::format("{:.1f} k{}", x * 1e-3, unit)
           : x < 1e9 ? fmt::format("{:.1f} M{}", x * 1e-6, unit)
                     : fmt::format("{:.2f} G{}", x * 1e-9, unit);
}

/// What another candidate pays more for than the chosen one: the largest of its extra costs.
std::string drawback(const Candidate& other, const Candidate& chosen) {
    const Cost &o = *other.cost, &c = *chosen.cost;
    const double move = o.move_s - c.move_s, compute = o.compute_s - c.compute_s, wait = o.wait_s - c.wait_s;
    if (move >= compute && move >= wait) {
        if (o.bytes > c.bytes) return fmt::format("moves {:.2g}x the bytes", o.bytes / c.bytes);
        return o.again_bytes > c.again_bytes ? "reads shared values again for every tile" : "keeps fewer slots busy";
    }
    if (wait >= compute) return fmt::format("starts {} kernels", o.kernels.size());
    if (o.tasks < c.tasks) return fmt::format("has {} tasks at a time against {}", o.tasks, c.tasks);
    return o.flops > 1.02 * c.flops ? fmt::format("computes {:.2g}x the operations", o.flops / c.flops)
                                    : "computes longer";
}

std::string cut_of(const plan::Schedule& s) {
    if (s.strategy == plan::Strategy::Segmented) return fmt::format("{} segments", s.segments);
    return s.tiles > 1 ? fmt::format("{} x {} of {}", s.tiles, s.tile_size, forge::to_string(Dim(s.tile_axis))) : "";
}

std::string measured_text(const Candidate& c) { return time_text(c.measured_s) + (c.under_load ? " under load" : ""); }

std::string note_of(const Candidate& c) {
    std::string note = c.measured_s > 0 ? "  measured " + measured_text(c) : "";
    const std::string more = c.refusal ? c.refusal->why : c.note;
    if (!more.empty()) note += (note.empty() ? "  " : "; ") + more;
    return note;
}

std::string priced_row(const Candidate& c, bool chosen) {
    const Cost& cost = *c.cost;
    return fmt::format("// {} {:<10} {:>5}  {:<12} {:>10} {:>10} {:>10} {:>7} {:>6} {:>10} {:>10} {:>10}{}",
                       chosen ? "*" : " ", plan::to_string(c.schedule.strategy), c.schedule.chunk, cut_of(c.schedule),
                       amount(cost.bytes, "B"), amount(cost.spill_bytes, "B"), amount(cost.flops, "F"), cost.tasks,
                       cost.hops, time_text(cost.compute_s), time_text(cost.move_s), time_text(cost.seconds),
                       note_of(c));
}

}  // namespace

std::string reason_of(const Choice& choice, const std::string& asked) {
    const Candidate& chosen = choice.candidates[0];
    std::string text = asked.empty() ? "" : "asked for " + asked + "; ";
    if (choice.candidates.size() == 1) return text + "the only candidate";
    text += chosen.measured_s > 0 ? "fastest measured, " + measured_text(chosen)
                                  : fmt::format("cheapest, {}", time_text(chosen.cost->seconds));
    std::vector<plan::Strategy> seen = {chosen.schedule.strategy};
    for (const Candidate& c : choice.candidates) {
        if (std::find(seen.begin(), seen.end(), c.schedule.strategy) != seen.end() || !c.possible()) continue;
        seen.push_back(c.schedule.strategy);
        if (c.cost->seconds > chosen.cost->seconds)
            text += fmt::format("; {} {}", plan::to_string(c.schedule.strategy), drawback(c, chosen));
    }
    return text;
}

namespace {

std::string priced_table(const Choice& choice, std::size_t most) {
    std::string text = fmt::format("//   {:<10} {:>5}  {:<12} {:>10} {:>10} {:>10} {:>7} {:>6} {:>10} {:>10} {:>10}\n",
                                   "strategy", "chunk", "cut", "memory", "workspace", "useful", "tasks", "hops",
                                   "computing", "moving", "estimate");
    for (std::size_t i = 0; i < std::min(most, choice.candidates.size()); ++i)
        text += priced_row(choice.candidates[i], i == 0) + "\n";
    if (choice.candidates.size() > most)
        text += fmt::format("//   ... and {} more, none of them cheaper\n", choice.candidates.size() - most);
    const Floor& f = *choice.floor;
    return text + fmt::format(
                      "// Floor: {} once over the bandwidth is {}; {} of chunks of {} at the peak is {}. The estimate "
                      "is {:.2g} "
                      "times the larger.\n",
                      amount(f.bytes, "B"), time_text(f.memory_s), amount(f.flops, "F"), choice.schedule.chunk,
                      time_text(f.compute_s), choice.candidates[0].cost->seconds / f.seconds());
}

/// What a plan is on a GPU, in numbers that say why it is fast or slow.
struct KernelShape {
    std::size_t kernels = 0;
    std::int64_t tasks = 0, threads = 0, shared_bytes = 0;  ///< of the kernel that goes through chunks in order
    double workspace = 0;
};

KernelShape shape_of(const plan::Plan& plan, const Problem& problem) {
    KernelShape shape;
    shape.kernels = plan.kernels.size();
    shape.workspace = spill_bytes(plan, problem);
    for (const plan::Kernel& kernel : plan.kernels) {
        if (!plan::is_scan(kernel.graph.loop)) continue;
        const emit::Launch how = emit::launch_of(plan, kernel);
        if (how.shared_bytes < shape.shared_bytes) continue;  // of several, the one that holds most
        const std::int64_t units =
            how.unit_rows > 0 ? problem.sequences * problem.heads * support::divide_up(problem.tokens, how.unit_rows)
                              : extent(plan, kernel, problem).tasks / kernel.parts();
        shape.tasks = units * how.parts;
        shape.threads = how.threads;
        shape.shared_bytes = how.shared_bytes;
    }
    return shape;
}

std::string ordered_row(const Candidate& c, const plan::Plan& plan, const Problem& problem, bool chosen) {
    const KernelShape shape = shape_of(plan, problem);
    return fmt::format("// {} {:<11} {:<10} {:>5}  {:<14} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9}{}", chosen ? "*" : " ",
                       c.target->name, plan::to_string(c.schedule.strategy), c.schedule.chunk, cut_of(c.schedule),
                       shape.kernels, shape.tasks, shape.threads,
                       shape.workspace > 0 ? amount(shape.workspace, "B") : "-",
                       amount(static_cast<double>(shape.shared_bytes), "B"),
                       c.estimate_s > 0 ? time_text(c.estimate_s) : "-", note_of(c));
}

/// Refusals that the schedule has already are not said again.
std::string refusals(const Choice& choice) {
    std::string text;
    for (const Candidate& c : choice.candidates) {
        if (c.possible()) continue;
        const auto& known = choice.schedule.refused;
        const auto same = [&](const Refusal& r) { return to_string(r) == to_string(*c.refusal); };
        if (std::any_of(known.begin(), known.end(), same)) continue;
        const std::string how = to_string(c.wishes);
        const Refusal& r = *c.refusal;
        text += fmt::format("//   not {}{}: {}{}\n", r.engine, how.empty() ? "" : ", " + how, r.why,
                            r.way_out.empty() ? "" : "; way out: " + r.way_out);
    }
    return text;
}

/// How candidates without prices came into their order, for people.
std::string order_of(const Choice& choice) {
    std::string names;
    for (const Target* target : all_targets())
        if (target->considered(choice.question)) names += fmt::format("{}{}", names.empty() ? "" : ", ", target->name);
    return fmt::format(
        "// Taken is what was measured to be the fastest; without measurements (forge tune) the best guess of the "
        "first\n"
        "// engine that can have the program, in the order {}.\n"
        "// Tasks, threads and shared memory are of the scan. Its time is by the model from which segments follow; "
        "there is\n"
        "// no model of the rest.\n",
        names);
}

std::string ordered_table(const Choice& choice, const ir::Definition& definition, const ir::Function& program,
                          std::size_t most) {
    const Problem& problem = choice.question.problem;
    std::string text =
        order_of(choice) + fmt::format("//   {:<11} {:<10} {:>5}  {:<14} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9}\n",
                                       "engine", "strategy", "chunk", "cut", "kernels", "tasks", "threads", "workspace",
                                       "shared", "scan");
    std::size_t possible = 0;
    for (const Candidate& c : choice.candidates) {
        if (!c.possible() || ++possible > most) continue;
        text += ordered_row(c, plan::make_plan(definition, program, problem.sizes, c.schedule), problem, possible == 1);
        text += "\n";
    }
    if (possible > most) text += fmt::format("//   ... and {} more\n", possible - most);
    const double bytes = token_bytes(plan::make_plan(definition, program, problem.sizes, choice.schedule), problem);
    const double bandwidth = choice.question.gpu()->memory_bandwidth;
    return text + fmt::format("// Floor: {} once at the memory's highest rate is {}.\n", amount(bytes, "B"),
                              time_text(bytes / bandwidth));
}

}  // namespace

std::string explain(const Choice& choice, const ir::Definition& definition, const ir::Function& program,
                    std::size_t most) {
    const Problem& problem = choice.question.problem;
    const std::string calls =
        fmt::format("// {} x {} tokens of {} heads on {}.\n", problem.sequences, problem.tokens, problem.heads,
                    choice.question.gpu() ? choice.question.gpu()->name : to_string(choice.question.cpu()));
    return calls + (choice.target().priced ? priced_table(choice, most)
                                           : ordered_table(choice, definition, program, most) + refusals(choice));
}

}  // namespace forge::target
