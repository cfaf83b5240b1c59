#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "forge/error.h"
#include "ir/text.h"

namespace forge::ir {
namespace {

std::string number(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    return fmt::format("{}", value);
}

std::string attributes(const Op& op) {
    const unsigned mask = info(op.code).attributes;
    const Attrs& a = op.attrs;
    std::vector<std::string> parts;
    if (mask & kName) parts.push_back(fmt::format("name=\"{}\"", escaped(a.name)));
    if (mask & kRole) parts.push_back(fmt::format("role={}", to_string(a.role)));
    if (mask & kValue) parts.push_back("value=" + number(a.value));
    if (mask & kDType) parts.push_back("dtype=" + forge::to_string(a.dtype));
    if (mask & kDim) parts.push_back(fmt::format("dim={}", a.dim));
    if (mask & kStart) parts.push_back(fmt::format("start={}", a.start));
    if (mask & kStep) parts.push_back(fmt::format("step={}", a.step));
    if ((mask & kLength) && a.length != 0) parts.push_back(fmt::format("length={}", a.length));
    if (mask & kCount) parts.push_back(fmt::format("count={}", a.count));
    if (mask & kPerm) parts.push_back(fmt::format("perm=[{}]", fmt::join(a.perm, ", ")));
    if ((mask & kAt) && !a.at.empty()) parts.push_back(fmt::format("at=[{}]", fmt::join(a.at, ", ")));
    if (mask & kDiagonal) parts.push_back(fmt::format("diagonal={}", a.diagonal));
    if ((mask & kReverse) && a.reverse) parts.emplace_back("reverse=true");
    if ((mask & kExclusive) && a.exclusive) parts.emplace_back("exclusive=true");
    if ((mask & kTransA) && a.trans_a) parts.emplace_back("trans_a=true");
    if ((mask & kTransB) && a.trans_b) parts.emplace_back("trans_b=true");
    if ((mask & kTri) && a.tri != Tri::None) {
        parts.push_back(fmt::format("tri={}", to_string(a.tri)));
        if (a.diagonal != 0) parts.push_back(fmt::format("diagonal={}", a.diagonal));
    }
    return parts.empty() ? "" : fmt::format(" {{{}}}", fmt::join(parts, ", "));
}

std::string layout_text(const Layout& layout) {
    const char* staged = layout.staged ? ", staged" : "";
    switch (layout.space) {
        case Layout::Space::Reg:
            return " @ reg";
        case Layout::Space::Tile:
            return fmt::format(" @ tile({}, [{}]{})", layout.offset, fmt::join(layout.strides, ", "), staged);
        case Layout::Space::Spill:
            return fmt::format(" @ spill({}, [{}])", layout.offset, fmt::join(layout.strides, ", "));
        case Layout::Space::Operand:
            return fmt::format(" @ operand({}, parts={}{})", layout.offset, layout.parts, staged);
        case Layout::Space::Fragment:
            return layout.parts == 1 ? " @ fragment" : fmt::format(" @ fragment(parts={})", layout.parts);
        case Layout::Space::Transposed:
            return " @ transposed";
        case Layout::Space::Held:
            return " @ held";
    }
    throw InternalError("print: unknown layout");
}

std::string location_text(const Location& where) {
    return fmt::format(" loc(\"{}\":{}:{})", escaped(where.file), where.line, where.column);
}

std::string op_text(const Function& fn, ValueId id, const std::vector<std::string>& names, PrintOptions options) {
    const Op& op = fn.op(id);
    std::vector<std::string> args;
    for (const ValueId a : op.args) args.push_back("%" + names[static_cast<std::size_t>(a)]);
    std::string text = fmt::format("%{}: {} = {}({}){}", names[static_cast<std::size_t>(id)], to_string(op.type),
                                   info(op.code).name, fmt::join(args, ", "), attributes(op));
    if (op.layout) text += layout_text(*op.layout);
    if (options.locations && op.where.known()) text += location_text(op.where);
    return text;
}

std::string function_text(const Function& fn, const std::string& indent, PrintOptions options) {
    const auto names = value_names(fn);
    std::string text = fmt::format("{}func @{} {{\n", indent, fn.name);
    for (ValueId v = 0; v < fn.size(); ++v) text += fmt::format("{}  {}\n", indent, op_text(fn, v, names, options));
    std::vector<std::string> results;
    for (const Result& r : fn.results)
        results.push_back(fmt::format("{} \"{}\"{} = %{}", to_string(r.role), escaped(r.name),
                                      r.at.empty() ? "" : fmt::format(" at [{}]", fmt::join(r.at, ", ")),
                                      names[static_cast<std::size_t>(r.value)]));
    return text + fmt::format("{}  return {}\n{}}}\n", indent, fmt::join(results, ", "), indent);
}

}  // namespace

bool is_identifier(const std::string& name) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
    return !name.empty() && letter(name[0]) &&
           std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') (out += '\\') += c;
        else if (byte < 0x20 || byte == 0x7f) out += fmt::format("\\x{:02x}", byte);
        else out += c;
    }
    return out;
}

std::vector<std::string> value_names(const Function& fn) {
    std::vector<std::string> names;
    std::set<std::string> taken;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const std::string& hint = fn.op(v).name;
        std::string name = is_identifier(hint) ? hint : std::to_string(v);
        for (int n = 2; taken.contains(name); ++n) name = fmt::format("{}.{}", hint, n);
        taken.insert(name);
        names.push_back(name);
    }
    return names;
}

std::string print(const Function& fn, PrintOptions options) { return function_text(fn, "", options); }

std::string print_op(const Function& fn, ValueId id) { return op_text(fn, id, value_names(fn), {}); }

std::string print(const Definition& def, PrintOptions options) {
    const auto where = [&](const Location& loc) { return options.locations && loc.known() ? location_text(loc) : ""; };
    const std::string chunk = def.fixed_chunk != 0 ? fmt::format(" chunk={}", def.fixed_chunk) : "";
    std::string text = fmt::format("linear_attention @{}{}{} {{\n", def.name, chunk, where(def.where));
    for (const InputDecl& in : def.inputs)
        text +=
            fmt::format("  {} {}: {}{}{}{}\n", to_string(in.role), in.name, to_string(in.type),
                        in.pad != 0 ? fmt::format(" pad={}", number(in.pad)) : "",
                        in.range ? fmt::format(" range=[{}, {}]", number(in.range->low), number(in.range->high)) : "",
                        where(in.where));
    for (const StateDecl& s : def.states)
        text += fmt::format("  state {}: {}{}\n", s.name, to_string(s.type), where(s.where));
    for (const LastRows& last : last_rows(def))
        text += fmt::format("  state {}: {} of {}\n", last.name, to_string(last.type), last.input);
    for (const OutputDecl& o : def.outputs)
        text += fmt::format("  output {}: {}{}\n", o.name, to_string(o.type), where(o.where));
    if (!is_step_alone(def))
        for (const Function* fn : {&def.chunk, &def.decay, &def.merge}) text += function_text(*fn, "  ", options);
    if (def.step) text += function_text(*def.step, "  ", options);
    return text + "}\n";
}

}  // namespace forge::ir
