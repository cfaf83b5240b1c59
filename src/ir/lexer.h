/// The text form cut into tokens, one ahead of the parser, each with its place. No grammar: that is text_reader.h and
/// parse.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "forge/error.h"

namespace forge::ir {

/// A token: an identifier or number (letters, digits, `_`, `.`, `%`/`@` prefix), a quoted string, or one punctuation
/// character. Numbers keep their sign.
struct Token {
    enum class Kind : std::uint8_t { Word, String, Punct, End } kind = Kind::End;
    std::string text;
    unsigned line = 1, column = 1;
};

class Lexer {
  public:
    /// The text must outlive this.
    Lexer(const std::string& text, std::string file) : text_(text), file_(std::move(file)) { advance(); }

    [[nodiscard]] const Token& peek() const { return token_; }
    Token next();
    [[nodiscard]] Location where(const Token& t) const { return {file_, t.line, t.column}; }
    /// CompileError at a token: what is wrong, what was expected there, and the token as what came.
    [[noreturn]] void fail(const Token& at, const std::string& what, const std::string& expected) const;

  private:
    [[nodiscard]] bool done() const { return pos_ >= text_.size(); }
    char take();
    void skip_blank();
    void advance();
    /// Up to the closing quote; what `escaped` wrote is taken back.
    void string_content();
    char after_backslash();

    const std::string& text_;
    std::string file_;
    std::size_t pos_ = 0;
    unsigned line_ = 1, column_ = 1;
    Token token_;
};

}  // namespace forge::ir
