#include "charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace forge::tools {
namespace {

constexpr double kUnits = 1000;  ///< of the drawing, whatever its size

/// Steps of 1, 2 or 5 times a power of ten, about `count` of them up to `most`.
double nice_step(double most, double count) {
    const double rough = most / count, power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= rough) return factor * power;
    return 10 * power;
}

const char* entity(char c) {
    switch (c) {
        case '&':
            return "&amp;";
        case '<':
            return "&lt;";
        case '>':
            return "&gt;";
        case '"':
            return "&quot;";
        case '\'':
            return "&#39;";
        default:
            return nullptr;
    }
}

std::string polyline(const Line& line, std::size_t colour, double y_max) {
    std::string points;
    const auto count = static_cast<double>(line.values.size());
    for (std::size_t j = 0; j < line.values.size(); ++j)
        points += fmt::format("{:.1f},{:.1f} ", kUnits * static_cast<double>(j + 1) / count,
                              kUnits * (1 - line.values[j] / y_max));
    return fmt::format("<polyline class='line c{}' points='{}'><title>{}</title></polyline>\n", colour, points,
                       escape_html(line.label));
}

}  // namespace

const char* const kChartStyle = R"(
.plot { position:relative; height:20rem; margin:.6rem 1.2rem 1.6rem 3.2rem; font-size:.8rem; color:var(--soft); }
.plot svg { position:absolute; inset:0; width:100%; height:100%; overflow:visible; }
.plot span { position:absolute; white-space:nowrap; line-height:1; }
.plot .y { right:100%; transform:translate(-.5rem,-50%); } .plot .x { top:100%; transform:translate(-50%,.5rem); }
.axis { text-align:center; font-size:.8rem; color:var(--soft); }
.grid { stroke:var(--rule); } .line { fill:none; stroke-width:2; stroke-linejoin:round; } .plot svg * { vector-effect:non-scaling-stroke; }
.bars { display:grid; grid-template-columns:auto 1fr auto auto; gap:.7rem 1rem; align-items:center; margin-top:.6rem; font-size:.9rem; }
.bars div { display:contents; } .track { min-width:0; } .bar { display:block; height:1.25rem; min-width:2px; border-radius:4px; }
.bars .value { text-align:right; font-variant-numeric:tabular-nums; } .bars .note { color:var(--soft); }
@media (max-width:40rem) { .plot { height:15rem; margin-left:2.6rem; } .plot .odd { display:none; }
  .bars { display:block; } .bars div { display:grid; grid-template-columns:1fr auto; margin-top:.8rem; }
  .bars .track { grid-column:1/-1; } .bars .label { order:-2; } .bars .value { order:-1; } .bars .note { grid-column:1/-1; } }
)";

std::size_t character_bytes(const std::string& text, std::size_t at) {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    const unsigned first = byte(at), second = byte(at + 1);
    if (at >= text.size()) return 0;
    if (first < 0x80) return 1;
    const std::size_t length = first >= 0xC2 && first < 0xE0   ? 2
                               : (first & 0xF0) == 0xE0        ? 3
                               : first >= 0xF0 && first < 0xF5 ? 4
                                                               : 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((byte(at + i) & 0xC0) != 0x80) return 0;
    // Longer than needed, halves of UTF-16's pairs, beyond the last character.
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) || (first == 0xF0 && second < 0x90) ||
        (first == 0xF4 && second >= 0x90))
        return 0;
    return length;
}

std::string escape_html(const std::string& text) {
    std::string result;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = character_bytes(text, i);
        if (length == 0) result += "\uFFFD";
        else if (const char* name = entity(text[i])) result += name;
        else result.append(text, i, length);
        i += std::max<std::size_t>(length, 1);
    }
    return result;
}

std::string line_chart(const std::vector<Line>& lines, double x_max, const std::string& x_label) {
    double largest = 0.1;
    for (const Line& line : lines)
        for (const double value : line.values) largest = std::max(largest, value);
    const double y_max = std::ceil(largest * 10 - 1e-9) / 10;
    const auto tens = static_cast<int>(std::lround(y_max * 10));

    std::string drawn, text;
    for (int i = 0; i <= tens; ++i) {
        const double down = 1 - static_cast<double>(i) / tens;
        drawn += fmt::format("<line class='grid' x1='0' x2='{}' y1='{:.1f}' y2='{:.1f}'/>\n", kUnits, kUnits * down,
                             kUnits * down);
        text += fmt::format("<span class='y' style='top:{:.2f}%'>{} %</span>\n", 100 * down, 10 * i);
    }
    const double step = nice_step(x_max, 7);
    for (int i = 0; i * step <= x_max; ++i)
        text += fmt::format("<span class='x{}' style='left:{:.2f}%'>{:.0f}</span>\n", i % 2 != 0 ? " odd" : "",
                            100 * i * step / x_max, i * step);
    for (std::size_t i = 0; i < lines.size(); ++i) drawn += polyline(lines[i], i, y_max);
    return fmt::format(
        "<div class='plot'><svg viewBox='0 0 {0} {0}' preserveAspectRatio='none' role='img' aria-label='line "
        "chart'>\n{1}</svg>\n{2}</div>\n<div class='axis'>{3}</div>\n",
        kUnits, drawn, text, escape_html(x_label));
}

std::string bar_chart(const std::vector<Bar>& bars) {
    double largest = 1e-30;
    for (const Bar& bar : bars) largest = std::max(largest, bar.value);
    std::string html = "<div class='bars'>\n";
    for (const Bar& bar : bars)
        html += fmt::format(
            "<div><span class='label'>{}</span><span class='track'><span class='bar c{}' style='width:{:.1f}%'>"
            "</span></span><span class='value'>{}</span><span class='note'>{}</span></div>\n",
            escape_html(bar.label), bar.colour, 100 * bar.value / largest, escape_html(bar.value_text),
            escape_html(bar.note));
    return html + "</div>\n";
}

}  // namespace forge::tools
