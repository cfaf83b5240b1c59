// The page of `forge explain --html`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "compile/html.h"
#include "compile/inspect.h"

namespace forge::compiler {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

/// A line but for the numbers of values without a name, which change with every value that comes or goes.
std::string without_numbers(const std::string& line) {
    std::string result;
    for (std::size_t i = 0; i < line.size(); ++i) {
        result += line[i];
        if (line[i] != '%') continue;
        while (i + 1 < line.size() && line[i + 1] >= '0' && line[i + 1] <= '9') ++i;
    }
    return result;
}

struct Line {
    enum class Kind : std::uint8_t { Kept, Added, Removed } kind;
    std::string text;
};

/// From one text to the next by the longest common subsequence of their lines.
std::vector<Line> difference(const std::string& from, const std::string& to) {
    const std::vector<std::string> a = lines_of(from), b = lines_of(to);
    std::vector<std::string> x, y;
    std::transform(a.begin(), a.end(), std::back_inserter(x), without_numbers);
    std::transform(b.begin(), b.end(), std::back_inserter(y), without_numbers);
    std::vector<std::vector<int>> common(a.size() + 1, std::vector<int>(b.size() + 1, 0));
    for (std::size_t i = a.size(); i-- > 0;)
        for (std::size_t j = b.size(); j-- > 0;)
            common[i][j] = x[i] == y[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
    std::vector<Line> lines;
    std::size_t i = 0, j = 0;
    while (i < a.size() || j < b.size()) {
        if (i < a.size() && j < b.size() && x[i] == y[j]) lines.push_back({Line::Kind::Kept, b[j]}), ++i, ++j;
        else if (i < a.size() && (j == b.size() || common[i + 1][j] >= common[i][j + 1]))
            lines.push_back({Line::Kind::Removed, a[i++]});
        else lines.push_back({Line::Kind::Added, b[j++]});
    }
    return lines;
}

std::string code(const std::vector<Line>& lines) {
    std::string text = "<pre tabindex=\"0\">";
    for (const Line& line : lines)
        text += fmt::format("<span{}>{}</span>",
                            line.kind == Line::Kind::Added     ? " class=\"added\""
                            : line.kind == Line::Kind::Removed ? " class=\"removed\""
                                                               : "",
                            escaped(line.text));
    return text + "</pre>";
}

class Page {
  public:
    explicit Page(const std::vector<PassStep>& steps) : steps_(steps) {}

    std::string text(const std::string& title) {
        std::string page = fmt::format(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
            "content=\"width=device-width, initial-scale=1\"><title>{0}</title><style>{1}</style></head>\n<body>"
            "<h1>{0}</h1><p>Each column is a level of the IR, with the passes that lead to it in order. A pass shows "
            "what "
            "it changed: lines that it added and removed, apart from the numbers of values without a name.</p><main>\n",
            escaped(title), page_style());
        for (std::size_t i = 0; i < steps_.size(); ++i) levels_[ir::info(steps_[i].pass).level] += step(i);
        for (const auto& [level, passes] : levels_)
            page += fmt::format("<section><h2>{}</h2>{}</section>\n", ir::to_string(level), passes);
        return page + "</main></body></html>\n";
    }

  private:
    std::string step(std::size_t i) {
        const PassStep& now = steps_[i];
        const std::string before = text_before(now);
        last_[now.kernel] = now.text;
        const bool sources = ir::info(now.pass).level == ir::Level::Text;
        const std::vector<Line> lines = difference(before.empty() || sources ? now.text : before, now.text);
        const auto count = [&](Line::Kind kind) {
            return std::count_if(lines.begin(), lines.end(), [&](const Line& l) { return l.kind == kind; });
        };
        const auto added = count(Line::Kind::Added), removed = count(Line::Kind::Removed);
        const std::string change = sources || before.empty() ? fmt::format("{} lines", lines.size())
                                   : added + removed == 0    ? std::string("no change")
                                                             : fmt::format("+{} −{} lines", added, removed);
        std::string body;
        for (const std::string& fault : now.faults)
            body += fmt::format("<div class=\"wrong\">{}</div>", escaped(fault));
        if (!now.note.empty()) body += fmt::format("<small>{}</small>", escaped(now.note));
        return fmt::format("<details{}><summary><b>{}</b>{} <small>{}; {:.0f} µs. {}</small></summary>{}{}</details>\n",
                           now.faults.empty() ? "" : " open", escaped(ir::info(now.pass).name),
                           now.kernel.empty() ? "" : " of " + escaped(now.kernel), change, now.seconds * 1e6,
                           escaped(ir::info(now.pass).why), body, code(lines));
    }

    /// What the pass had: of its kernel, or, where that begins, of the program.
    [[nodiscard]] std::string text_before(const PassStep& now) const {
        for (const std::string& of : {now.kernel, std::string()})
            if (const auto it = last_.find(of); it != last_.end()) return it->second;
        return "";
    }

    const std::vector<PassStep>& steps_;
    std::map<std::string, std::string> last_;  ///< by kernel
    std::map<ir::Level, std::string> levels_;
};

}  // namespace

std::string html(const std::vector<PassStep>& steps, const std::string& title) { return Page(steps).text(title); }

}  // namespace forge::compiler
