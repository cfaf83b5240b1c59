/// JSON, as far as a package's manifest needs it: objects keep their order, numbers are 64-bit integers or doubles.
/// What is no JSON is a RuntimeError with the line.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace forge::rt {

class Json {
  public:
    enum class Kind : std::uint8_t { Null, Bool, Integer, Number, Text, List, Object };
    using Member = std::pair<std::string, Json>;

    Json() = default;
    Json(bool value) : kind_(Kind::Bool), integer_(value) {}               // NOLINT(google-explicit-constructor)
    Json(int value) : kind_(Kind::Integer), integer_(value) {}             // NOLINT(google-explicit-constructor)
    Json(std::int64_t value) : kind_(Kind::Integer), integer_(value) {}    // NOLINT(google-explicit-constructor)
    Json(double value) : kind_(Kind::Number), number_(value) {}            // NOLINT(google-explicit-constructor)
    Json(std::string text) : kind_(Kind::Text), text_(std::move(text)) {}  // NOLINT(google-explicit-constructor)
    Json(const char* text) : kind_(Kind::Text), text_(text) {}             // NOLINT(google-explicit-constructor)
    static Json list() { return Json(Kind::List); }
    static Json object(std::vector<Member> members) {
        Json made(Kind::Object);
        made.members_ = std::move(members);
        return made;
    }

    void add(Json item) { items_.push_back(std::move(item)); }
    void add(std::string name, Json value) { members_.emplace_back(std::move(name), std::move(value)); }

    [[nodiscard]] Kind kind() const { return kind_; }
    /// RuntimeErrors, which say what was expected, for a value of another kind.
    [[nodiscard]] bool as_bool() const;
    [[nodiscard]] std::int64_t as_integer(std::int64_t least, std::int64_t most) const;
    [[nodiscard]] double as_number() const;
    [[nodiscard]] const std::string& as_text() const;
    [[nodiscard]] const std::vector<Json>& as_list() const;
    /// A member of an object, with a RuntimeError that names it for one that is missing.
    [[nodiscard]] const Json& at(const char* name) const;
    [[nodiscard]] const Json* find(const char* name) const;

  private:
    explicit Json(Kind kind) : kind_(kind) {}
    friend class JsonReader;
    friend void print(std::string& out, const Json& json, int indent);
    Kind kind_ = Kind::Null;
    std::int64_t integer_ = 0;
    double number_ = 0;
    std::string text_;
    std::vector<Json> items_;
    std::vector<Member> members_;
};

Json parse_json(const std::string& text, const std::string& file);
/// A line for each member or item down to so many levels; what is below stands on one line.
std::string print(const Json& json);

}  // namespace forge::rt
