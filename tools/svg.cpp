#include "svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace forge::tools {
namespace {

constexpr double kWidth = 900;

/// Steps of 1, 2 or 5 times a power of ten, about `count` of them up to `most`.
double nice_step(double most, double count) {
    const double rough = most / count, power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= rough) return factor * power;
    return 10 * power;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text, const char* classes = "") {
    return fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}' class='{}'>{}</text>\n", x, y, anchor, classes,
                       escape_html(text));
}

}  // namespace

std::string escape_html(const std::string& text) {
    std::string result;
    for (const char c : text) {
        switch (c) {
            case '&':
                result += "&amp;";
                break;
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            case '"':
                result += "&quot;";
                break;
            case '\'':
                result += "&#39;";
                break;
            default:
                result += c;
        }
    }
    return result;
}

std::string line_chart(const std::vector<Line>& lines, double x_max, const std::string& x_label) {
    constexpr double kHeight = 360, kLeft = 52, kRight = 12, kTop = 12, kBottom = 44;
    double largest = 0.1;
    for (const Line& line : lines)
        for (const double value : line.values) largest = std::max(largest, value);
    const double y_max = std::ceil(largest * 10 - 1e-9) / 10;
    const auto x_of = [&](double x) { return kLeft + x / x_max * (kWidth - kLeft - kRight); };
    const auto y_of = [&](double y) { return kHeight - kBottom - y / y_max * (kHeight - kTop - kBottom); };

    std::string svg = fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='line chart'>\n", kWidth, kHeight);
    for (int i = 0; i <= static_cast<int>(std::lround(y_max * 10)); ++i) {
        svg += fmt::format("<line class='grid' x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/>\n", x_of(0),
                           x_of(x_max), y_of(i / 10.0), y_of(i / 10.0));
        svg += text_at(kLeft - 8, y_of(i / 10.0) + 4, "end", fmt::format("{} %", 10 * i), "tick");
    }
    const double step = nice_step(x_max, 7);
    for (double x = 0; x <= x_max; x += step)
        svg += text_at(x_of(x), kHeight - kBottom + 18, "middle", fmt::format("{:.0f}", x), "tick");
    svg += text_at((kLeft + kWidth - kRight) / 2, kHeight - 6, "middle", x_label, "tick");
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::string points;
        const auto count = static_cast<double>(lines[i].values.size());
        for (std::size_t j = 0; j < lines[i].values.size(); ++j)
            points += fmt::format("{:.1f},{:.1f} ", x_of(x_max * static_cast<double>(j + 1) / count),
                                  y_of(lines[i].values[j]));
        svg += fmt::format("<polyline class='line c{}' points='{}'><title>{}</title></polyline>\n", i, points,
                           escape_html(lines[i].label));
    }
    return svg + "</svg>\n";
}

std::string bar_chart(const std::vector<Bar>& bars, const std::string& title) {
    constexpr double kRow = 34, kLeft = 130, kRight = 300, kTop = 4, kBarHeight = 20;
    double largest = 1e-30;
    for (const Bar& bar : bars) largest = std::max(largest, bar.value);
    const double height = kTop + kRow * static_cast<double>(bars.size());
    std::string svg =
        fmt::format("<svg viewBox='0 0 {} {:.0f}' role='img' aria-label='{}'>\n", kWidth, height, escape_html(title));
    for (std::size_t i = 0; i < bars.size(); ++i) {
        const double y = kTop + kRow * static_cast<double>(i),
                     width = bars[i].value / largest * (kWidth - kLeft - kRight);
        svg += text_at(kLeft - 12, y + 19, "end", bars[i].label, "label");
        svg += fmt::format("<rect class='bar c{}' x='{}' y='{:.1f}' width='{:.1f}' height='{}' rx='4'/>\n",
                           bars[i].colour, kLeft, y + 4, std::max(width, 2.0), kBarHeight);
        svg += text_at(kLeft + std::max(width, 2.0) + 10, y + 19, "start", bars[i].note, "note");
    }
    return svg + "</svg>\n";
}

}  // namespace forge::tools
