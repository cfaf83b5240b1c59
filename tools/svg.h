/// Two charts as inline SVG: lines over a common axis, and bars. Colours are the page's CSS classes `c0`, `c1`, …; text
/// takes the page's font. Data in, markup out; labels are escaped here.
#pragma once

#include <string>
#include <vector>

namespace forge::tools {

std::string escape_html(const std::string& text);

struct Line {
    std::string label;
    std::vector<double> values;  ///< equally spaced, the last at the right edge
};
/// The vertical axis goes from 0 to the next 10 % above the largest value; values are fractions.
std::string line_chart(const std::vector<Line>& lines, double x_max, const std::string& x_label);

struct Bar {
    std::string label, note;  ///< left of the bar and right of it
    double value = 0;
    std::size_t colour = 0;
};
std::string bar_chart(const std::vector<Bar>& bars, const std::string& title);

}  // namespace forge::tools
