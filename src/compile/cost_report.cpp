// Costs as text, as a page, and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "compile/html.h"
#include "forge/cost.h"

namespace forge {
namespace {

std::string seconds_in_words(double s) {
    return s < 1e-3 ? fmt::format("{:.1f} us", s * 1e6)
           : s < 1  ? fmt::format("{:.2f} ms", s * 1e3)
                    : fmt::format("{:.2f} s", s);
}

std::string quantity(double x, const char* unit) {
    constexpr std::array<std::pair<double, const char*>, 4> kUnits = {
        {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
    for (const auto& [size, letter] : kUnits)
        if (x >= size) return fmt::format("{:.3g} {}{}", x / size, letter, unit);
    return fmt::format("{:.3g} {}", x, unit);
}

/// What a kernel would take of each resource alone.
std::array<std::pair<const char*, double>, 4> resources_of(const StageCost& k) {
    return {{{"memory", k.memory_seconds},
             {"matrix units", k.matrix_seconds},
             {"arithmetic", k.arithmetic_seconds},
             {"latency", k.latency_seconds}}};
}

/// The time that fills a picture's width.
double widest(const std::vector<CallCost>& calls) {
    double most = 0;
    for (const CallCost& call : calls) {
        most = std::max(most, call.seconds);
        for (const StageCost& k : call.kernels) most = std::max(most, k.seconds);
    }
    return most;
}

std::string title_of(const CallCost& call) {
    return fmt::format("{}, {}: {} x {} tokens of {} heads on {}", call.name, call.entry, call.sequences, call.tokens,
                       call.heads, call.device);
}

std::string summary_of(const CallCost& call) {
    return fmt::format(
        "Predicted {}, bound by {}; no kernels of such chunks take less than {}. {} tasks{}. "
        "Arguments and results {}, between kernels {}, a state {}.",
        seconds_in_words(call.seconds), to_string(call.bound), seconds_in_words(call.roofline_seconds), call.tasks,
        call.beside ? ", the last two kernels beside each other" : "", quantity(call.floor_bytes, "B"),
        quantity(call.workspace_bytes, "B"), quantity(call.state_bytes, "B"));
}

std::string bar(double share) {
    constexpr int kWidth = 40;
    const int full = std::clamp(static_cast<int>(std::lround(share * kWidth)), share > 0 ? 1 : 0, kWidth);
    std::string text;
    for (int i = 0; i < full; ++i) text += "█";
    return text + std::string(static_cast<std::size_t>(kWidth - full), ' ');
}

std::string text_of(const CallCost& call, double width) {
    std::string text =
        fmt::format("{}\n{}\n\n  {:<28} {:>7} {:>7} {:>10} {:>11} {:>10} {:>10}  {}\n", title_of(call), call.schedule,
                    "kernel", "tasks", "hops", "products", "elementwise", "memory", "predicted", "bound by");
    for (const StageCost& k : call.kernels)
        text += fmt::format("  {:<28} {:>7} {:>7} {:>10} {:>11} {:>10} {:>10}  {}\n", k.name, k.tasks, k.hops,
                            quantity(k.flops, "F"), quantity(k.elementwise, "op"), quantity(k.bytes, "B"),
                            seconds_in_words(k.seconds), to_string(k.bound));
    text += fmt::format("\n{}\nPredictions are by {}.\n\n", summary_of(call), call.basis);
    for (const StageCost& k : call.kernels) {
        text += fmt::format("  {}\n", k.name);
        for (const auto& [what, seconds] : resources_of(k))
            text += fmt::format("    {:<12} {} {}\n", what, bar(seconds / width), seconds_in_words(seconds));
        text += fmt::format("    {:<12} {} {}\n", "predicted", bar(k.seconds / width), seconds_in_words(k.seconds));
    }
    return text;
}

/// Bars of one kernel, as SVG: what each resource takes alone, and the prediction.
std::string picture_of(const StageCost& k, double width) {
    constexpr double kLabel = 110, kBars = 420, kRow = 18;
    std::string bars;
    double y = 0;
    const auto add = [&](const char* what, double seconds, const char* cls) {
        const double length = std::clamp(seconds / width, 0.0, 1.0) * kBars;
        bars += fmt::format(
            "<text x=\"0\" y=\"{:.0f}\">{}</text><rect class=\"{}\" x=\"{}\" y=\"{:.0f}\" width=\"{:.1f}\" "
            "height=\"12\"/><text x=\"{:.1f}\" y=\"{:.0f}\">{}</text>",
            y + 11, what, cls, kLabel, y + 1, length, kLabel + length + 6, y + 11, seconds_in_words(seconds));
        y += kRow;
    };
    for (const auto& [what, seconds] : resources_of(k)) add(what, seconds, "alone");
    add("predicted", k.seconds, "all");
    return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"times of {}\">{}</svg>",
                       kLabel + kBars + 90, y, compiler::escaped(k.name), bars);
}

constexpr const char* kBarStyle = R"css(
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; } svg text { fill: currentColor; }
.alone { fill: #8fb3d9; } .all { fill: #1f5fa8; }
@media (prefers-color-scheme: dark) { .alone { fill: #4d6e91; } .all { fill: #9cc4f0; } }
)css";

nlohmann::ordered_json json_of_kernel(const StageCost& k) {
    return {{"name", k.name},
            {"task", k.task},
            {"tasks", k.tasks},
            {"hops", k.hops},
            {"flops", k.flops},
            {"elementwise", k.elementwise},
            {"bytes", k.bytes},
            {"memory_seconds", k.memory_seconds},
            {"matrix_seconds", k.matrix_seconds},
            {"arithmetic_seconds", k.arithmetic_seconds},
            {"latency_seconds", k.latency_seconds},
            {"seconds", k.seconds},
            {"bound", to_string(k.bound)}};
}

nlohmann::ordered_json json_of_call(const CallCost& c) {
    nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
    for (const StageCost& k : c.kernels) kernels.push_back(json_of_kernel(k));
    return {{"name", c.name},
            {"entry", c.entry},
            {"device", c.device},
            {"schedule", c.schedule},
            {"engine", c.engine},
            {"tokens", c.tokens},
            {"sequences", c.sequences},
            {"heads", c.heads},
            {"flops", c.flops},
            {"elementwise", c.elementwise},
            {"bytes", c.bytes},
            {"floor_bytes", c.floor_bytes},
            {"workspace_bytes", c.workspace_bytes},
            {"state_bytes", c.state_bytes},
            {"tasks", c.tasks},
            {"roofline_seconds", c.roofline_seconds},
            {"seconds", c.seconds},
            {"bound", to_string(c.bound)},
            {"beside", c.beside},
            {"basis", c.basis},
            {"kernels", kernels}};
}

}  // namespace

const char* to_string(Bound bound) {
    switch (bound) {
        case Bound::Memory:
            return "memory";
        case Bound::MatrixUnits:
            return "matrix units";
        case Bound::Arithmetic:
            return "arithmetic";
        case Bound::Latency:
            return "latency";
        case Bound::Launch:
            return "launch";
    }
    return "?";
}

std::string cost_text(const std::vector<CallCost>& calls) {
    std::string text;
    for (const CallCost& call : calls) text += (text.empty() ? "" : "\n") + text_of(call, widest({call}));
    return text;
}

std::string cost_page(const std::vector<CallCost>& calls) {
    const std::string title = calls.empty() ? "cost" : "The cost of " + compiler::escaped(calls[0].name);
    std::string page = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width, initial-scale=1\"><title>{0}</title><style>{1}{2}</style></head>\n<body>"
        "<h1>{0}</h1><p>Of every kernel, what each resource would take alone, and the predicted time.</p><main>\n",
        title, compiler::page_style(), kBarStyle);
    for (const CallCost& call : calls) {
        page += fmt::format("<section><h2>{}</h2><p>{}<br>{}<br>By {}.</p>\n", compiler::escaped(title_of(call)),
                            compiler::escaped(call.schedule), compiler::escaped(summary_of(call)),
                            compiler::escaped(call.basis));
        for (const StageCost& k : call.kernels)
            page +=
                fmt::format("<h3>{}</h3><p>{}: {} tasks of {} hops; bound by {}.</p>{}\n", compiler::escaped(k.name),
                            k.task, k.tasks, k.hops, to_string(k.bound), picture_of(k, widest({call})));
        page += "</section>\n";
    }
    return page + "</main></body></html>\n";
}

std::string cost_json(const std::vector<CallCost>& calls) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const CallCost& call : calls) all.push_back(json_of_call(call));
    return all.dump(2);
}

}  // namespace forge
