#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "charts.h"
#include "common.h"
#include "demo.h"

namespace forge::tools {
namespace {

const char* const kStyle = R"(
:root { color-scheme: light dark; --bg:#f6f7f9; --card:#fff; --ink:#1c2430; --soft:#5d6878; --rule:#e1e5eb; --hit:#d5efdc; --hit-ink:#0d4d24;
  --c0:#8a94a3; --c1:#5aa9e6; --c2:#2374ab; --c3:#17a398; --c4:#f2a541; --c5:#e4572e; --c6:#a23b72; }
@media (prefers-color-scheme: dark) { :root { --bg:#12161c; --card:#1a2029; --ink:#e6eaf0; --soft:#97a3b4; --rule:#2b3440; --hit:#1d4a2e; --hit-ink:#b9f0cb;
  --c0:#8b96a7; --c1:#7cc0f2; --c2:#4f9bd9; --c3:#3fc7bb; --c4:#f7bb6a; --c5:#f27955; --c6:#d46fa6; } }
* { box-sizing: border-box; }
body { margin:0; background:var(--bg); color:var(--ink); font:16px/1.55 system-ui, sans-serif; }
main { max-width:64rem; margin:0 auto; padding:2.5rem 1.25rem 4rem; }
h1 { font-size:2rem; line-height:1.2; margin:0 0 .5rem; letter-spacing:-.02em; }
h2 { font-size:1.15rem; margin:0 0 .25rem; }
p { margin:.25rem 0 .9rem; } .soft, figcaption { color:var(--soft); font-size:.92rem; }
section { background:var(--card); border:1px solid var(--rule); border-radius:14px; padding:1.4rem 1.5rem; margin-top:1.25rem; }
.facts { display:grid; grid-template-columns:repeat(auto-fit, minmax(11rem, 1fr)); gap:1rem; margin-top:1.5rem; }
.facts div { background:var(--card); border:1px solid var(--rule); border-radius:14px; padding:1rem 1.2rem; }
.facts b { display:block; font-size:1.7rem; letter-spacing:-.02em; font-variant-numeric:tabular-nums; }
table { border-collapse:collapse; width:100%; font-size:.9rem; font-variant-numeric:tabular-nums; }
th { text-align:left; color:var(--soft); font-weight:500; white-space:nowrap; }
td.whole { white-space:nowrap; }
th, td { padding:.5rem .8rem .5rem 0; border-bottom:1px solid var(--rule); vertical-align:top; }
tr:last-child td { border-bottom:0; } .num { text-align:right; white-space:nowrap; }
.best { font-weight:700; } td.name { white-space:nowrap; }
.dot { display:inline-block; width:.7rem; height:.7rem; border-radius:50%; margin-right:.45rem; }
.legend { display:flex; flex-wrap:wrap; gap:.3rem 1.2rem; font-size:.9rem; margin:.4rem 0; }
figure { margin:.6rem 0 0; }
pre { white-space:pre-wrap; overflow-wrap:anywhere; font:13.5px/1.6 ui-monospace, monospace; margin:.5rem 0 0; color:var(--soft); }
pre mark { background:var(--hit); color:var(--hit-ink); border-radius:3px; }
.pair { display:grid; grid-template-columns:repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap:1.5rem; }
h1, p { overflow-wrap:anywhere; }
@media (max-width:60rem) { table, tbody, tr, td { display:block; } thead { display:none; } tr { padding:.7rem 0; border-bottom:1px solid var(--rule); }
  tr:last-child { border-bottom:0; } td { display:flex; justify-content:space-between; gap:1rem; padding:.15rem 0; border:0; text-align:right; }
  td::before { content:attr(data-label); color:var(--soft); white-space:nowrap; } td.name { font-weight:600; } td.name::before { content:none; }
  td.name { justify-content:flex-start; align-items:center; gap:0; } }
@media (max-width:40rem) { main { padding:1.5rem .8rem 3rem; } section { padding:1rem; } }
)";

std::string colours() {
    std::string css;
    for (int i = 0; i < 7; ++i)
        css +=
            fmt::format(".line.c{0} {{ stroke:var(--c{0}); }} .bar.c{0}, .dot.c{0} {{ background:var(--c{0}); }}\n", i);
    return css;
}

const DemoRow& best_of(const DemoResult& result) {
    return *std::max_element(result.rows.begin(), result.rows.end(),
                             [](const DemoRow& a, const DemoRow& b) { return a.score.accuracy < b.score.accuracy; });
}

/// The one unit of rates on the page; of times it is the millisecond.
std::string rate_text(double tokens_per_second) { return fmt::format("{:.0f} k", tokens_per_second * 1e-3); }
std::string time_text(double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); }

std::string fact(const std::string& value, const std::string& what) {
    return fmt::format("<div><b>{}</b><span class='soft'>{}</span></div>\n", escape_html(value), escape_html(what));
}

std::string facts(const DemoResult& result) {
    const DemoRow& best = best_of(result);
    const DemoRow& plain = result.rows.front();
    return "<div class='facts'>\n" +
           fact(fmt::format("{:.1f} %", 100 * best.score.accuracy),
                best.variant.label + " guesses the next byte, the best of all") +
           fact(fmt::format("{:.1f} %", 100 * plain.score.accuracy),
                plain.variant.label + ", which only adds, never corrects") +
           fact(fmt::format("{:.2f}", best.score.bits_per_byte),
                "bits per byte of " + best.variant.label + "; 8 without any knowledge") +
           fact(rate_text(plain.tokens_per_second), "tokens per second, " + plain.variant.label) + "</div>\n";
}

std::string table(const DemoResult& result) {
    double accuracy = 0, bits = 1e30, seconds = 1e30;
    for (const DemoRow& row : result.rows) {
        accuracy = std::max(accuracy, row.score.accuracy);
        bits = std::min(bits, row.score.bits_per_byte);
        seconds = std::min(seconds, row.seconds);
    }
    constexpr std::array kColumns = {"variant",  "constants, per head", "accuracy", "bits/byte", "time",
                                     "tokens/s", "strategy, chunk",     "deviation"};
    std::string html = "<table><thead><tr>";
    for (std::size_t i = 0; i < kColumns.size(); ++i)
        html += fmt::format("<th class='{}'>{}</th>", i < 2 || i == 6 ? "" : "num", kColumns[i]);
    html += "</tr></thead><tbody>\n";
    for (std::size_t i = 0; i < result.rows.size(); ++i) {
        const DemoRow& row = result.rows[i];
        html +=
            fmt::format("<tr><td class='name'><span class='dot c{}'></span>{}</td>", i, escape_html(row.variant.label));
        std::size_t column = 1;
        const auto cell = [&](const std::string& text, const char* classes) {
            html +=
                fmt::format("<td data-label='{}' class='{}'>{}</td>", kColumns[column++], classes, escape_html(text));
        };
        const auto number = [&](const std::string& text, bool best) { cell(text, best ? "num best" : "num"); };
        cell(row.variant.constants, "");
        number(fmt::format("{:.1f} %", 100 * row.score.accuracy), row.score.accuracy == accuracy);
        number(fmt::format("{:.3f}", row.score.bits_per_byte), row.score.bits_per_byte == bits);
        number(time_text(row.seconds), row.seconds == seconds);
        number(rate_text(row.tokens_per_second), false);
        cell(fmt::format("{}, {}", row.strategy, row.chunk), "whole");
        number(fmt::format("{:.1e}", row.deviation), false);
        html += "</tr>\n";
    }
    return html + "</tbody></table>\n";
}

std::string accuracy_section(const DemoResult& result) {
    constexpr std::size_t kPoints = 240;
    std::vector<Line> lines;
    std::string legend = "<div class='legend'>";
    for (std::size_t i = 0; i < result.rows.size(); ++i) {
        lines.push_back({result.rows[i].variant.label, accuracy_along(result, result.rows[i], kPoints)});
        legend += fmt::format("<span><span class='dot c{}'></span>{}</span>", i, escape_html(lines.back().label));
    }
    return fmt::format(
        "<section><h2>Accuracy along the text</h2>\n<p class='soft'>Next bytes guessed right, over the last {} bytes "
        "at each "
        "point (fewer at the start). A dip that all lines share is a passage unlike the text before it.</p>\n{}</div>\n"
        "<figure>{}</figure></section>\n",
        kAccuracyWindow, legend,
        line_chart(lines, static_cast<double>(result.text.size()), "position in the text, bytes"));
}

std::string bars_section(const DemoResult& result) {
    std::vector<Bar> time, bits;
    for (std::size_t i = 0; i < result.rows.size(); ++i) {
        const DemoRow& row = result.rows[i];
        time.push_back({row.variant.label, time_text(row.seconds),
                        fmt::format("{}, chunks of {}", row.strategy, row.chunk), row.seconds, i});
        bits.push_back({row.variant.label, fmt::format("{:.3f}", row.score.bits_per_byte),
                        fmt::format("temperature {:.2f}", row.score.temperature), row.score.bits_per_byte, i});
    }
    return "<section><h2>Time for the whole text, and the strategy used</h2>\n<p class='soft'>Median of at least five "
           "runs of the "
           "compiled kernels. " +
           escape_html(Contention::warning(most_contention(result))) + "</p>\n<figure>" + bar_chart(time) +
           "</figure></section>\n" +
           "<section><h2>Bits per byte</h2>\n<p class='soft'>What a softmax over the cosines with the 256 codes would "
           "need to store "
           "the text; less is better. One temperature per variant, fitted on the first tenth of the text, measured on "
           "the rest.</p>\n"
           "<figure>" +
           bar_chart(bits) + "</figure></section>\n";
}

/// A character as the page shows it; a dot for what no page shows, U+FFFD for a byte that is no text.
std::string shown(const std::string& character) {
    const char c = character[0];
    return (c >= 0 && c < ' ' && c != '\n' && c != '\t') || c == '\x7f' ? "·" : escape_html(character);
}

/// The same passage twice, with the characters marked of which every byte was expected.
std::string passage(const DemoResult& result, const DemoRow& row) {
    constexpr std::size_t kLength = 700;
    const std::string& text = result.text;
    std::size_t start = text.size() * 3 / 5;
    while (start > 1 && text[start - 1] != '\n') --start;
    start = std::max<std::size_t>(start, 1);
    while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) ++start;
    std::string html;
    bool marked = false;
    for (std::size_t t = start, next = t; t < std::min(text.size(), start + kLength); t = next) {
        next = t + std::max<std::size_t>(character_bytes(text, t), 1);
        bool hit = true;
        for (std::size_t i = t; i < next; ++i)
            hit = hit && row.score.guesses[i - 1] == static_cast<std::uint8_t>(text[i]);
        if (hit != marked) html += hit ? "<mark>" : "</mark>";
        marked = hit;
        html += shown(text.substr(t, next - t));
    }
    return fmt::format("<div><b>{}</b><pre>{}{}</pre></div>\n", escape_html(row.variant.label), html,
                       marked ? "</mark>" : "");
}

std::string how(const DemoResult& result) {
    return fmt::format(
        "<section><h2>What was computed</h2>\n<p>Head <i>h</i> of {} stores, under a pseudo-random unit vector of the "
        "<i>h</i> + 1 bytes before "
        "each position, a fixed code of the byte there; K = V = {}. Then it is asked with the vector of the <i>h</i> + "
        "1 bytes that end at the "
        "position: what comes back, summed over the heads with weights 0.1, 0.2, 0.5 and 1, is compared with the codes "
        "of all 256 bytes, and "
        "the nearest is the guess. Each variant of linear attention is a rule for writing to that memory. Nothing is "
        "trained and no byte is "
        "seen before it is guessed.</p>\n<p>τ: tokens after which 1/e of a memory is left. β: strength with which the "
        "delta rule corrects. "
        "The constants were found on other texts (the MPL 1.1 and the Apache licence), so none is fitted to this one "
        "but the temperature. "
        "Deviation: relative RMS between the kernels and the float64 recurrence over the first {} tokens.</p>\n"
        "<p class='soft'>{} bytes of {} · seed {} · {} · {} threads · {} · same seed, same guesses</p></section>\n",
        kHeads, kSize, result.checked_tokens, result.text.size(), escape_html(result.path), result.seed,
        escape_html(result.dtype), result.threads, escape_html(result.rows.front().isa));
}

}  // namespace

std::string html_report(const DemoResult& result) {
    return "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
           "content='width=device-width, initial-scale=1'>\n"
           "<title>Forge: seven memories read a text</title><style>" +
           std::string(kStyle) + kChartStyle + colours() +
           "</style></head>\n<body><main>\n"
           "<h1>Seven memories read a text</h1>\n<p class='soft'>Seven kinds of linear attention, each compiled by "
           "Forge from three short "
           "functions, read " +
           escape_html(result.path) + " once and guess every next byte.</p>\n" + facts(result) +
           "<section><h2>Results</h2>\n" + table(result) + "</section>\n" + accuracy_section(result) +
           bars_section(result) +
           "<section><h2>A passage, as it was guessed</h2>\n<p class='soft'>Marked: the characters of which every byte "
           "was "
           "expected.</p>\n<div class='pair'>" +
           passage(result, result.rows.front()) + passage(result, best_of(result)) + "</div></section>\n" +
           how(result) + "</main></body></html>\n";
}

}  // namespace forge::tools
