/// What the text form is made of, read token by token: words, numbers, strings, types, attributes, layouts, locations.
/// Each function takes what it names from the text, or throws a CompileError at the token that is something else. How
/// these make up functions and definitions is in parse.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/definition.h"
#include "ir/lexer.h"

namespace forge::ir {

/// By the words of the text form.
const std::map<std::string, Role>& roles();

class TextReader {
  public:
    TextReader(const std::string& text, const std::string& file) : lex_(text, file) {}

  protected:
    [[nodiscard]] bool at_word(const char* w) const;
    void word(const char* w);
    bool accept(const char* p);  ///< a punctuation character, if it is next
    void punct(const char* p);
    void end();

    std::int64_t integer();
    std::int64_t integer(std::int64_t least, std::int64_t most);
    std::vector<std::int64_t> integers();
    double number();
    bool boolean();
    std::string string();
    std::string prefixed(char sigil);  ///< a name behind `%` or `@`
    std::string symbol();
    template <class T>
    T choice(const std::map<std::string, T>& options, const char* expected) {
        const Token t = lex_.next();
        const auto it = options.find(t.text);
        if (it == options.end()) lex_.fail(t, "unknown word", expected);
        return it->second;
    }

    Dim dim();
    Type type();
    Range range();
    Location location();
    Location optional_location(const Token& otherwise);
    void attributes(Op& op);
    Layout layout();

    Lexer lex_;

  private:
    void attribute(Op& op);
    int parts();
};

}  // namespace forge::ir
