#include "emit/writer.h"

#include "emit/statements.h"

namespace forge::emit {
namespace {

using kernel::Kind;
using kernel::Statement;

std::string spaces(int depth) { return std::string(static_cast<std::size_t>(depth) * 4, ' '); }

/// Whether its body stands in braces.
bool is_block(const Statement& s) { return kernel::has_body(s.kind) && !s.code.empty(); }

void print_lines(const std::vector<Statement>& statements, int depth, std::string& text) {
    const auto put = [&](const std::string& line, int at) { text += line.empty() ? "\n" : spaces(at) + line + "\n"; };
    for (const Statement& s : statements) {
        for (const std::string& line : s.code) put(line, depth);
        if (is_synchronising(s)) {
            if (const std::string line = s.code.empty() ? line_of(s) : ""; !line.empty()) put(line, depth + s.indent);
            continue;
        }
        print_lines(s.body, depth + s.indent + (is_block(s) ? 1 : 0), text);
        if (!s.tail.empty()) put(s.tail, depth + s.indent);
    }
}

}  // namespace

std::vector<kernel::Kernel> kernels_of(const Source& source) {
    std::vector<kernel::Kernel> kernels;
    for (const Statement& s : source.statements)
        if (s.kind == Kind::Kernel) {
            kernels.push_back(source.kernels.at(kernels.size()));
            kernels.back().body = s.body;
        }
    return kernels;
}

std::string print(const Source& source) {
    std::string text;
    print_lines(source.statements, 0, text);
    return text;
}

int Writer::inner_depth() const {
    int depth = depth_;
    for (std::size_t n = 1; n < open_.size(); ++n) depth -= open_[n].indent + (is_block(open_[n]) ? 1 : 0);
    return depth;
}

void Writer::put(const std::string& text) {
    if (!in_statement_) body().emplace_back(), in_statement_ = true;
    body().back().code.push_back(text.empty() ? "" : spaces(inner_depth()) + text);
}

void Writer::next(Statement statement) {
    add(std::move(statement));
    in_statement_ = true;
}

void Writer::add(Statement statement) {
    statement.indent = inner_depth();
    for (std::string& line : statement.code) line = spaces(statement.indent) + line;
    body().push_back(std::move(statement));
    in_statement_ = false;
}

void Writer::begin(Statement statement, const std::string& head) {
    statement.indent = inner_depth();
    if (!head.empty()) statement.code.push_back(spaces(statement.indent) + head + " {");
    if (is_block(statement)) ++depth_;
    open_.push_back(std::move(statement));
    in_statement_ = false;
}

void Writer::end(const std::string& tail) {
    Statement done = std::move(open_.back());
    open_.pop_back();
    const bool block = is_block(done);
    if (block) --depth_, done.tail = tail;
    body().push_back(std::move(done));
    in_statement_ = false;
}

void Writer::begin_kernel(kernel::Kernel kernel, const std::string& head) {
    Statement statement{Kind::Kernel, kernel.name};
    source_.kernels.push_back(std::move(kernel));
    begin(std::move(statement), head);
}

Source Writer::source() const {
    Source source = source_;
    source.statements = open_.front().body;
    return source;
}

}  // namespace forge::emit
