#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernel/kernel.h"
#include "kernel/words.h"

namespace forge::kernel {
namespace {

std::string quoted(const std::string& text) {
    std::string all = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') all += '\\';
        all += c;
    }
    return all + "\"";
}

std::string access(const Access& a) {
    if (a.memory == Memory::Registers) return "%" + a.buffer;
    std::string text = a.channel.empty() ? "" : a.channel + " ";
    text += a.memory == Memory::Global ? "global " : "";
    text += fmt::format("{}[{}:{}", quoted(a.buffer), a.begin, a.end);
    if (a.stride != 0 || a.depth != 1 || a.ahead != 0)
        text += fmt::format(" + {} * {} % {}", a.stride, a.ahead == 0 ? "chunk" : fmt::format("(chunk + {})", a.ahead),
                            a.depth);
    if (a.of_instance != 0) text += fmt::format(" + {} * group", a.of_instance);
    return text + "]";
}

std::string accesses(const char* verb, const Accesses& list) {
    std::vector<std::string> all;
    for (const Access& a : list) all.push_back(access(a));
    return list.empty() ? "" : fmt::format(" {} {}", verb, fmt::join(all, ", "));
}

std::string attributes(const Statement& s) {
    std::string text;
    const auto put = [&](bool is, const std::string& attribute) {
        if (is) text += " " + attribute;
    };
    put(!s.what.empty(), quoted(s.what));
    put(s.by != By::All, std::string("by ") + kBy[static_cast<std::size_t>(s.by)]);
    put(s.when != When::Always, std::string("when ") + kWhen[static_cast<std::size_t>(s.when)]);
    put(!s.channel.empty(), fmt::format("{}.{}", s.channel, kSide[static_cast<std::size_t>(s.side)]));
    put(s.pending != 0, fmt::format("pending {}", s.pending));
    put(s.ahead != 0, fmt::format("ahead {}", s.ahead));
    put(s.copied, "copied");
    put(s.over, "over");
    put(s.first != 0, fmt::format("from {}", s.first));
    put(s.step != 1, fmt::format("step {}", s.step));
    put(s.count != 0, fmt::format("count {}", s.count));
    put(s.by_turns, "by_turns");
    put(s.tasks, "of_tasks");
    put(s.within, "within");
    for (std::size_t n = 0; n < s.values.size(); ++n) put(true, (n == 0 ? "of " : "and ") + quoted(s.values[n]));
    return text;
}

/// What is text only is left out.
void put(const std::vector<Statement>& statements, int depth, std::string& text) {
    const std::string indent(static_cast<std::size_t>(depth) * 2, ' ');
    for (const Statement& s : statements) {
        if (s.kind == Kind::Code) continue;
        text += indent + to_string(s.kind) + attributes(s) + accesses("reads", s.reads) + accesses("writes", s.writes);
        if (!has_body(s.kind)) {
            text += "\n";
            continue;
        }
        text += " {\n";
        put(s.body, depth + 1, text);
        text += indent + "}\n";
    }
}

std::vector<std::string> all_quoted(const std::vector<std::string>& names) {
    std::vector<std::string> all;
    for (const std::string& name : names) all.push_back(quoted(name));
    return all;
}

}  // namespace

std::string print(const Kernel& kernel) {
    std::string text = fmt::format("kernel {}{}{}{}\n", quoted(kernel.name), kernel.overlaps ? " overlaps" : "",
                                   kernel.publishes ? " publishes" : "", kernel.arrivals ? " arrivals" : "");
    for (const Role& r : kernel.roles)
        text += fmt::format("role {}: {} of {} warps {}makes {}\n", r.name, r.instances, r.warps,
                            r.products_apart ? "apart " : "", fmt::join(all_quoted(r.values), " "));
    for (const Channel& c : kernel.channels)
        text += fmt::format("channel {}: {} buffers by {} from {} to {} filled {} empty {} at {}\n", c.name, c.depth,
                            c.turn, c.writer, fmt::join(c.readers, " "), c.filled, c.empty, access(c.barriers));
    text += "{\n";
    put(kernel.body, 1, text);
    return text + "}\n";
}

}  // namespace forge::kernel
