/// Two charts for a page of HTML: lines over a common axis, and bars. All text is the page's own, beside or above what
/// is drawn, so that it keeps its size however narrow the page is. Colours are the page's CSS classes `c0`, `c1`, …;
/// data in, markup out; labels are escaped here.
#pragma once

#include <string>
#include <vector>

namespace forge::tools {

/// For HTML's text and attributes. What is no UTF-8 becomes U+FFFD.
std::string escape_html(const std::string& text);
/// How many bytes of `text` from `at` on are one character of UTF-8; 0 if they are none.
std::size_t character_bytes(const std::string& text, std::size_t at);

extern const char* const kChartStyle;  ///< the CSS of both

struct Line {
    std::string label;
    std::vector<double> values;  ///< equally spaced, the last at the right edge
};
/// The vertical axis goes from 0 to the next 10 % above the largest value; values are fractions.
std::string line_chart(const std::vector<Line>& lines, double x_max, const std::string& x_label);

struct Bar {
    std::string label, value_text, note;  ///< left of the bar, right of it, and after that if there is room
    double value = 0;
    std::size_t colour = 0;
};
std::string bar_chart(const std::vector<Bar>& bars);

}  // namespace forge::tools
