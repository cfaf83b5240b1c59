#include "schedule/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace forge::schedule {
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
    const Cost &o = other.cost, &c = chosen.cost;
    const double move = o.move_s - c.move_s, compute = o.compute_s - c.compute_s, wait = o.wait_s - c.wait_s;
    if (move >= compute && move >= wait) {
        if (o.bytes > c.bytes) return fmt::format("moves {:.2g}x the bytes", o.bytes / c.bytes);
        return o.again_bytes > c.again_bytes ? "reads shared values again for every tile" : "keeps fewer slots busy";
    }
    if (wait >= compute) return fmt::format("starts {} kernels", o.kernels.size());
    if (other.cost.tasks < chosen.cost.tasks)
        return fmt::format("has {} tasks at a time against {}", other.cost.tasks, chosen.cost.tasks);
    return o.flops > 1.02 * c.flops ? fmt::format("computes {:.2g}x the operations", o.flops / c.flops)
                                    : "computes longer";
}

std::string shape(const plan::Schedule& s) {
    if (s.strategy == plan::Strategy::Segmented) return fmt::format("{} segments", s.segments);
    return s.tiles > 1 ? fmt::format("{} x {} of {}", s.tiles, s.tile_size, forge::to_string(Dim(s.tile_axis))) : "";
}

std::string measured_text(const Candidate& c) { return time_text(c.measured_s) + (c.under_load ? " under load" : ""); }

std::string row(const Candidate& c, bool chosen) {
    std::string note = c.measured_s > 0 ? "  measured " + measured_text(c) : "";
    if (!c.note.empty()) note += (note.empty() ? "  " : "; ") + c.note;
    return fmt::format("// {} {:<10} {:>5}  {:<12} {:>10} {:>10} {:>10} {:>7} {:>6} {:>10} {:>10} {:>10}{}",
                       chosen ? "*" : " ", plan::to_string(c.schedule.strategy), c.schedule.chunk, shape(c.schedule),
                       amount(c.cost.bytes, "B"), amount(c.cost.spill_bytes, "B"), amount(c.cost.flops, "F"),
                       c.cost.tasks, c.cost.hops, time_text(c.cost.compute_s), time_text(c.cost.move_s),
                       time_text(c.cost.seconds), note);
}

}  // namespace

std::string reason_of(const Choice& choice, const std::string& asked) {
    const Candidate& chosen = choice.candidates[0];
    std::string text = asked.empty() ? "" : "asked for " + asked + "; ";
    if (choice.candidates.size() == 1) return text + "the only candidate";
    text += chosen.measured_s > 0 ? "fastest measured, " + measured_text(chosen)
                                  : fmt::format("cheapest, {}", time_text(chosen.cost.seconds));
    std::vector<plan::Strategy> seen = {chosen.schedule.strategy};
    for (const Candidate& c : choice.candidates) {
        if (std::find(seen.begin(), seen.end(), c.schedule.strategy) != seen.end() || !c.possible) continue;
        seen.push_back(c.schedule.strategy);
        if (c.cost.seconds > chosen.cost.seconds)
            text += fmt::format("; {} {}", plan::to_string(c.schedule.strategy), drawback(c, chosen));
    }
    return text;
}

std::string explain(const Choice& choice, std::size_t most) {
    std::string text = fmt::format("// {} x {} tokens of {} heads on {}.\n", choice.problem.sequences,
                                   choice.problem.tokens, choice.problem.heads, to_string(choice.device));
    text += fmt::format("//   {:<10} {:>5}  {:<12} {:>10} {:>10} {:>10} {:>7} {:>6} {:>10} {:>10} {:>10}\n", "strategy",
                        "chunk", "cut", "memory", "workspace", "useful", "tasks", "hops", "computing", "moving",
                        "estimate");
    for (std::size_t i = 0; i < std::min(most, choice.candidates.size()); ++i)
        text += row(choice.candidates[i], i == 0) + "\n";
    if (choice.candidates.size() > most)
        text += fmt::format("//   ... and {} more, none of them cheaper\n", choice.candidates.size() - most);
    const Floor& f = choice.floor;
    text += fmt::format(
        "// Floor: {} once over the bandwidth is {}; {} of chunks of {} at the peak is {}. The estimate is {:.2g} "
        "times the larger.\n",
        amount(f.bytes, "B"), time_text(f.memory_s), amount(f.flops, "F"), choice.schedule.chunk,
        time_text(f.compute_s), choice.candidates[0].cost.seconds / f.seconds());
    return text;
}

}  // namespace forge::schedule
