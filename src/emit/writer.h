/// Builds a source file: lines and blocks of emitted code, and the statements (kernel/kernel.h) that they belong to.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "kernel/kernel.h"

namespace forge::emit {

/// A source file before it is text. Kernels stand among the statements; `kernels` is what else is known of them, in
/// that order.
struct Source {
    std::vector<kernel::Statement> statements;
    std::vector<kernel::Kernel> kernels;  ///< without their statements
};
/// Every kernel with its statements.
std::vector<kernel::Kernel> kernels_of(const Source& source);
/// The text, line by line.
std::string print(const Source& source);

class Writer {
  public:
    Writer() { open_.emplace_back(); }

    template <class... Args>
    void line(fmt::format_string<Args...> format, Args&&... args) {
        put(fmt::format(format, std::forward<Args>(args)...));
    }
    void put(const std::string& text);
    void open(const std::string& head) {
        put(head.empty() ? "{" : head + " {");
        ++depth_;
    }
    void close(const std::string& tail = "}") {
        --depth_;
        put(tail);
    }
    void indent() { ++depth_; }

    /// The lines that come next belong to this statement.
    void next(kernel::Statement statement);
    /// … to none.
    void next() { in_statement_ = false; }
    /// A statement that has no lines but what follows from it.
    void add(kernel::Statement statement);
    /// A statement that has a body; `head` without its brace.
    void begin(kernel::Statement statement, const std::string& head);
    /// `tail` goes on where a block follows it: `} else {`.
    void end(const std::string& tail = "}");

    void begin_kernel(kernel::Kernel kernel, const std::string& head);
    /// The one that was begun last.
    [[nodiscard]] kernel::Kernel& kernel() { return source_.kernels.back(); }

    [[nodiscard]] Source source() const;
    [[nodiscard]] std::string text() const { return print(source()); }

  private:
    [[nodiscard]] std::vector<kernel::Statement>& body() { return open_.back().body; }
    /// Of lines, within what they stand in.
    [[nodiscard]] int inner_depth() const;

    std::vector<kernel::Statement> open_;  ///< the file, and what in it has begun
    Source source_;
    bool in_statement_ = false;
    int depth_ = 0;
};

}  // namespace forge::emit
