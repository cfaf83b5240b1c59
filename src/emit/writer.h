/// Indented text: lines and blocks of emitted code.
#pragma once

#include <fmt/format.h>

#include <string>

namespace forge::emit {

class Writer {
  public:
    template <class... Args>
    void line(fmt::format_string<Args...> format, Args&&... args) {
        put(fmt::format(format, std::forward<Args>(args)...));
    }
    void put(const std::string& text) {
        text_ += text.empty() ? "\n" : std::string(static_cast<std::size_t>(depth_) * 4, ' ') + text + "\n";
    }
    void open(const std::string& head) {
        put(head.empty() ? "{" : head + " {");
        ++depth_;
    }
    void close(const std::string& tail = "}") {
        --depth_;
        put(tail);
    }
    void indent() { ++depth_; }
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    std::string text_;
    int depth_ = 0;
};

}  // namespace forge::emit
