#include "compile/html.h"

namespace forge::compiler {

const char* page_style() {
    return R"css(
:root { color-scheme: light dark; --text: #1c1e21; --quiet: #5b6169; --back: #ffffff; --card: #f5f6f8; --line: #d9dce1;
  --added: #d8f3dc; --removed: #fde2e1; --wrong: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e6eb; --quiet: #a0a7b0; --back: #17181a; --card: #202225;
  --line: #383b40; --added: #1d4428; --removed: #552523; --wrong: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1rem; background: var(--back); color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .25rem; } h2 { font-size: 1rem; margin: 0 0 .5rem; }
p { margin: .25rem 0 1rem; color: var(--quiet); max-width: 60rem; }
main { display: grid; gap: 1rem; align-items: start; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
section { min-width: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .75rem; }
details { border-top: 1px solid var(--line); padding: .35rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; } summary small { color: var(--quiet); }
summary:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
pre { margin: .4rem 0 0; overflow-x: auto; max-height: 32rem; font: 12px/1.5 ui-monospace, monospace; tab-size: 4; }
pre span { display: block; min-width: max-content; padding: 0 .4rem; } pre span::before { content: "  "; }
.added { background: var(--added); } .added::before { content: "+ " !important; }
.removed { background: var(--removed); } .removed::before { content: "- " !important; }
.wrong { color: var(--wrong); }
)css";
}

std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) {
        if (c == '<') result += "&lt;";
        else if (c == '>') result += "&gt;";
        else if (c == '&') result += "&amp;";
        else if (c == '"') result += "&quot;";
        else result += c;
    }
    return result;
}

}  // namespace forge::compiler
