#include "rt/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "forge/error.h"

namespace forge::rt {
namespace {

constexpr int kMostDepth = 32;
constexpr int kOpenLevels = 2;  ///< that print with a line for each item

const char* to_string(Json::Kind kind) {
    switch (kind) {
        case Json::Kind::Null:
            return "null";
        case Json::Kind::Bool:
            return "true or false";
        case Json::Kind::Integer:
            return "a whole number";
        case Json::Kind::Number:
            return "a number";
        case Json::Kind::Text:
            return "a text";
        case Json::Kind::List:
            return "a list";
        case Json::Kind::Object:
            return "an object";
    }
    return "?";
}

[[noreturn]] void refuse(Json::Kind expected, Json::Kind got) {
    throw RuntimeError(fmt::format("expected {}, got {}", to_string(expected), to_string(got)));
}

void print_text(std::string& out, const std::string& text) {
    out += '"';
    for (const char c : text) {
        if (c == '"' || c == '\\') (out += '\\') += c;
        else if (c == '\n') out += "\\n";
        else if (c == '\t') out += "\\t";
        else if (static_cast<unsigned char>(c) < ' ') out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else out += c;
    }
    out += '"';
}

}  // namespace

class JsonReader {
  public:
    JsonReader(const std::string& text, const std::string& file)
        : begin_(text.data()), at_(begin_), end_(begin_ + text.size()), file_(file) {}

    Json all() {
        Json json = value(0);
        skip();
        if (at_ != end_) fail("the end");
        return json;
    }

  private:
    [[noreturn]] void fail(const char* expected) const {
        throw RuntimeError(fmt::format("{}:{}: expected {}{}", file_, 1 + std::count(begin_, at_, '\n'), expected,
                                       at_ == end_ ? ", got the end" : ""));
    }
    void skip() {
        while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
    }
    [[nodiscard]] bool take(char c) {
        skip();
        if (at_ == end_ || *at_ != c) return false;
        ++at_;
        return true;
    }
    [[nodiscard]] bool take_word(std::string_view word) {
        if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word)) return false;
        at_ += word.size();
        return true;
    }

    Json value(int depth) {
        skip();
        if (depth > kMostDepth) fail("fewer levels");
        if (take('{')) return object(depth);
        if (take('[')) return list(depth);
        if (at_ != end_ && *at_ == '"') return text();
        if (take_word("true")) return true;
        if (take_word("false")) return false;
        if (take_word("null")) return {};
        return number();
    }

    Json object(int depth) {
        Json made(Json::Kind::Object);
        if (take('}')) return made;
        do {
            skip();
            std::string name = text();
            if (!take(':')) fail("':'");
            made.members_.emplace_back(std::move(name), value(depth + 1));
        } while (take(','));
        if (!take('}')) fail("',' or '}'");
        return made;
    }

    Json list(int depth) {
        Json made(Json::Kind::List);
        if (take(']')) return made;
        do made.items_.push_back(value(depth + 1));
        while (take(','));
        if (!take(']')) fail("',' or ']'");
        return made;
    }

    std::string text() {
        if (at_ == end_ || *at_ != '"') fail("a text in quotes");
        ++at_;
        std::string made;
        for (;;) {
            const char* const plain = at_;
            while (at_ != end_ && *at_ != '"' && *at_ != '\\') ++at_;
            made.append(plain, at_);
            if (at_ == end_) fail("the end of a text");
            if (*at_++ == '"') return made;
            made += escaped();
        }
    }

    /// Of the escapes those that this library writes, and what JSON's other writers may put for them.
    char escaped() {
        if (at_ == end_) fail("a character after '\\'");
        switch (*at_++) {
            case 'n':
                return '\n';
            case 't':
                return '\t';
            case 'r':
                return '\r';
            case '"':
                return '"';
            case '\\':
                return '\\';
            case '/':
                return '/';
            case 'u':
                return control();
            default:
                fail("n, t, r, u, \", / or \\ after '\\'");
        }
    }

    char control() {
        unsigned code = 0;
        if (end_ - at_ < 4) fail("four digits");
        const auto read = std::from_chars(at_, at_ + 4, code, 16);
        if (read.ec != std::errc() || read.ptr != at_ + 4 || code >= 0x80) fail("\\u0000 to \\u007f");
        at_ += 4;
        return static_cast<char>(code);
    }

    Json number() {
        std::int64_t integer = 0;
        const auto whole = std::from_chars(at_, end_, integer);
        const bool ends = whole.ptr == end_ || (*whole.ptr != '.' && *whole.ptr != 'e' && *whole.ptr != 'E');
        if (whole.ec == std::errc() && ends) {
            at_ = whole.ptr;
            return integer;
        }
        double number = 0;
        const auto read = std::from_chars(at_, end_, number);
        if (read.ec != std::errc()) fail("a value");
        at_ = read.ptr;
        return number;
    }

    const char *begin_, *at_, *end_;
    const std::string& file_;
};

bool Json::as_bool() const {
    if (kind_ != Kind::Bool) refuse(Kind::Bool, kind_);
    return integer_ != 0;
}

std::int64_t Json::as_integer(std::int64_t least, std::int64_t most) const {
    if (kind_ != Kind::Integer) refuse(Kind::Integer, kind_);
    if (integer_ < least || integer_ > most)
        throw RuntimeError(fmt::format("expected a whole number from {} to {}, got {}", least, most, integer_));
    return integer_;
}

double Json::as_number() const {
    if (kind_ == Kind::Integer) return static_cast<double>(integer_);
    if (kind_ != Kind::Number) refuse(Kind::Number, kind_);
    return number_;
}

const std::string& Json::as_text() const {
    if (kind_ != Kind::Text) refuse(Kind::Text, kind_);
    return text_;
}

const std::vector<Json>& Json::as_list() const {
    if (kind_ != Kind::List) refuse(Kind::List, kind_);
    return items_;
}

const Json* Json::find(const char* name) const {
    if (kind_ != Kind::Object) refuse(Kind::Object, kind_);
    const auto found =
        std::find_if(members_.begin(), members_.end(), [&](const Member& member) { return member.first == name; });
    return found == members_.end() ? nullptr : &found->second;
}

const Json& Json::at(const char* name) const {
    if (const Json* found = find(name)) return *found;
    throw RuntimeError(fmt::format("expected a member '{}'", name));
}

Json parse_json(const std::string& text, const std::string& file) { return JsonReader(text, file).all(); }

void print(std::string& out, const Json& json, int indent) {
    const bool open = indent < kOpenLevels;
    const std::string gap = open ? "\n" + std::string(static_cast<std::size_t>(indent) + 1, ' ') : "";
    const char* separator = "";
    switch (json.kind_) {
        case Json::Kind::Null:
            out += "null";
            return;
        case Json::Kind::Bool:
            out += json.integer_ ? "true" : "false";
            return;
        case Json::Kind::Integer:
            out += std::to_string(json.integer_);
            return;
        case Json::Kind::Number:
            out += fmt::format("{}", json.number_);
            return;
        case Json::Kind::Text:
            return print_text(out, json.text_);
        case Json::Kind::List:
            out += '[';
            for (const Json& item : json.items_) {
                (out += separator) += gap, separator = open ? "," : ", ";
                print(out, item, indent + 1);
            }
            out += ']';
            return;
        case Json::Kind::Object:
            out += '{';
            for (const auto& [name, value] : json.members_) {
                (out += separator) += gap, separator = open ? "," : ", ";
                print_text(out, name);
                out += ": ";
                print(out, value, indent + 1);
            }
            out += '}';
            return;
    }
}

std::string print(const Json& json) {
    std::string text;
    print(text, json, 0);
    return text;
}

}  // namespace forge::rt
