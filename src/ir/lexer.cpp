#include "ir/lexer.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace forge::ir {
namespace {

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '%' || c == '@' || c == '-' ||
           c == '+';
}

}  // namespace

Token Lexer::next() {
    Token t = token_;
    advance();
    return t;
}

void Lexer::fail(const Token& at, const std::string& what, const std::string& expected) const {
    throw CompileError(
        Diagnostic{what, expected, at.kind == Token::Kind::End ? "end of text" : "'" + at.text + "'", where(at), ""});
}

char Lexer::take() {
    const char c = text_[pos_++];
    if (c == '\n') {
        ++line_;
        column_ = 1;
    } else {
        ++column_;
    }
    return c;
}

void Lexer::skip_blank() {
    while (!done()) {
        if (std::isspace(static_cast<unsigned char>(text_[pos_]))) {
            take();
        } else if (text_.compare(pos_, 2, "//") == 0) {
            while (!done() && text_[pos_] != '\n') take();
        } else {
            return;
        }
    }
}

void Lexer::advance() {
    skip_blank();
    token_ = Token{Token::Kind::End, "", line_, column_};
    if (done()) return;
    const char c = take();
    token_.text = c;
    token_.kind = Token::Kind::Punct;
    if (c == '@' && (done() || !is_word(text_[pos_]))) return;  // a layout's `@`
    if (c == '"') {
        token_.text.clear();
        token_.kind = Token::Kind::String;
        string_content();
    } else if (is_word(c)) {
        token_.kind = Token::Kind::Word;
        while (!done() && is_word(text_[pos_])) token_.text += take();
    }
}

void Lexer::string_content() {
    while (!done() && text_[pos_] != '"' && text_[pos_] != '\n') {
        const char c = take();
        token_.text += c == '\\' && !done() ? after_backslash() : c;
    }
    if (done() || text_[pos_] != '"') fail(token_, "unterminated string", "a closing quote");
    take();
}

char Lexer::after_backslash() {
    const char c = take();
    if (c == '"' || c == '\\') return c;
    unsigned byte = 0;
    const char* const from = text_.data() + pos_;
    const char* const to = from + std::min<std::size_t>(2, text_.size() - pos_);
    if (c != 'x' || std::from_chars(from, to, byte, 16).ptr != from + 2)
        fail(token_, "unknown escape in a string", "\\\\, \\\" or \\xNN");
    take(), take();
    return static_cast<char>(byte);
}

}  // namespace forge::ir
