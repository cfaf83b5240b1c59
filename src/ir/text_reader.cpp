#include "ir/text_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "ir/infer.h"
#include "ir/text.h"

namespace forge::ir {
namespace {

const std::map<std::string, DType> kDTypes = {{"bool", DType::Bool}, {"i32", DType::I32},   {"i64", DType::I64},
                                              {"f16", DType::F16},   {"bf16", DType::BF16}, {"f32", DType::F32},
                                              {"f64", DType::F64}};
const std::map<std::string, Tri> kTris = {
    {"none", Tri::None}, {"out_lower", Tri::OutLower}, {"a_lower", Tri::ALower}, {"a_upper", Tri::AUpper}};

}  // namespace

const std::map<std::string, Role>& roles() {
    static const std::map<std::string, Role> all = [] {
        std::map<std::string, Role> m;
        for (const Role r : {Role::Input, Role::Shifted, Role::Head, Role::Scalar, Role::Mask, Role::State, Role::Chunk,
                             Role::Cached, Role::Spill, Role::Ones, Role::Eye, Role::Before, Role::After})
            m.emplace(to_string(r), r);
        return m;
    }();
    return all;
}

bool TextReader::at_word(const char* w) const { return lex_.peek().kind == Token::Kind::Word && lex_.peek().text == w; }

Layout TextReader::layout() {
    Layout l;
    if (at_word("reg")) {
        lex_.next();
        return l;
    }
    static const std::map<std::string, Layout::Space> kSpaces = {{"tile", Layout::Space::Tile},
                                                                 {"spill", Layout::Space::Spill},
                                                                 {"operand", Layout::Space::Operand},
                                                                 {"fragment", Layout::Space::Fragment},
                                                                 {"transposed", Layout::Space::Transposed},
                                                                 {"held", Layout::Space::Held}};
    l.space = choice(kSpaces, "reg, tile, spill, operand, fragment, transposed or held");
    if (l.space == Layout::Space::Transposed || l.space == Layout::Space::Held) return l;
    if (l.space == Layout::Space::Fragment) {
        if (!accept("(")) return l;
        l.parts = parts();
        punct(")");
        return l;
    }
    punct("(");
    l.offset = integer();
    punct(",");
    if (l.space == Layout::Space::Operand) l.parts = parts();
    else l.strides = integers();
    l.staged = accept(",");
    if (l.staged) word("staged");
    punct(")");
    return l;
}

int TextReader::parts() {
    word("parts");
    punct("=");
    return static_cast<int>(integer(1, 2));
}

Location TextReader::optional_location(const Token& otherwise) {
    return at_word("loc") ? location() : lex_.where(otherwise);
}

Location TextReader::location() {
    word("loc");
    punct("(");
    const std::string file = string();
    punct(":");
    const auto line = static_cast<unsigned>(integer(1, std::numeric_limits<unsigned>::max()));
    punct(":");
    const auto column = static_cast<unsigned>(integer(0, std::numeric_limits<unsigned>::max()));
    punct(")");
    return {file, line, column};
}

Type TextReader::type() {
    Type t;
    t.dtype = choice(kDTypes, "an element type");
    punct("[");
    if (accept("]")) return t;
    do t.shape.push_back(dim());
    while (accept(","));
    punct("]");
    return t;
}

Dim TextReader::dim() {
    const Token t = lex_.peek();
    if (t.kind != Token::Kind::Word) lex_.fail(t, "not a dimension", "a number or a symbol");
    if (!std::isdigit(static_cast<unsigned char>(t.text[0]))) return Dim(symbol());
    const std::int64_t factor = integer();
    if (factor < 1 || factor > kMostExtent) lex_.fail(t, "not a size", fmt::format("1 to {}", kMostExtent));
    if (!accept("*")) return {factor};
    return factor * Dim(symbol());
}

std::string TextReader::symbol() {
    const Token t = lex_.next();
    if (!is_identifier(t.text)) lex_.fail(t, "size: not a name", "letters, digits and _, no digit first");
    return t.text;
}

std::vector<std::int64_t> TextReader::integers() {
    std::vector<std::int64_t> list;
    punct("[");
    if (accept("]")) return list;
    do list.push_back(integer());
    while (accept(","));
    punct("]");
    return list;
}

std::int64_t TextReader::integer() {
    const Token t = lex_.next();
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), n);
    if (error != std::errc() || end != t.text.data() + t.text.size()) lex_.fail(t, "not an integer", "an integer");
    return n;
}

std::int64_t TextReader::integer(std::int64_t least, std::int64_t most) {
    const Token t = lex_.peek();
    const std::int64_t n = integer();
    if (n < least || n > most) lex_.fail(t, "out of range", fmt::format("{} to {}", least, most));
    return n;
}

double TextReader::number() {
    const Token t = lex_.next();
    if (t.text == "inf") return std::numeric_limits<double>::infinity();
    if (t.text == "-inf") return -std::numeric_limits<double>::infinity();
    if (t.text == "nan") return std::nan("");
    double x = 0;
    const auto [end, error] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), x);
    if (error != std::errc() || end != t.text.data() + t.text.size()) lex_.fail(t, "not a number", "a number");
    return x;
}

Range TextReader::range() {
    Range r;
    punct("=");
    punct("[");
    r.low = number();
    punct(",");
    r.high = number();
    punct("]");
    return r;
}

bool TextReader::boolean() {
    const Token t = lex_.next();
    if (t.text != "true" && t.text != "false") lex_.fail(t, "not a truth value", "true or false");
    return t.text == "true";
}

std::string TextReader::string() {
    const Token t = lex_.next();
    if (t.kind != Token::Kind::String) lex_.fail(t, "not a string", "a string in double quotes");
    return t.text;
}

std::string TextReader::prefixed(char sigil) {
    const Token t = lex_.next();
    if (t.kind != Token::Kind::Word || t.text.size() < 2 || t.text[0] != sigil)
        lex_.fail(t, "not a name", fmt::format("a name with {}", sigil));
    return t.text.substr(1);
}

void TextReader::word(const char* w) {
    const Token t = lex_.next();
    if (t.kind != Token::Kind::Word || t.text != w) lex_.fail(t, fmt::format("expected '{}'", w), w);
}

bool TextReader::accept(const char* p) {
    if (lex_.peek().kind != Token::Kind::Punct || lex_.peek().text != p) return false;
    lex_.next();
    return true;
}

void TextReader::punct(const char* p) {
    const Token t = lex_.peek();
    if (!accept(p)) lex_.fail(t, fmt::format("expected '{}'", p), p);
}

void TextReader::end() {
    if (lex_.peek().kind != Token::Kind::End) lex_.fail(lex_.peek(), "text after the end", "nothing");
}

void TextReader::attributes(Op& op) {
    if (accept("}")) return;
    do attribute(op);
    while (accept(","));
    punct("}");
}

void TextReader::attribute(Op& op) {
    const Token key = lex_.next();
    punct("=");
    Attrs& a = op.attrs;
    const std::string& k = key.text;
    if (k == "name") a.name = string();
    else if (k == "role") a.role = choice(roles(), "a role");
    else if (k == "value") a.value = number();
    else if (k == "dtype") a.dtype = choice(kDTypes, "an element type");
    else if (k == "dim") a.dim = integer();
    else if (k == "start") a.start = integer();
    else if (k == "step") a.step = integer();
    else if (k == "count") a.count = integer();
    else if (k == "length") a.length = integer();
    else if (k == "perm") a.perm = integers();
    else if (k == "at") a.at = integers();
    else if (k == "diagonal") a.diagonal = integer();
    else if (k == "reverse") a.reverse = boolean();
    else if (k == "exclusive") a.exclusive = boolean();
    else if (k == "trans_a") a.trans_a = boolean();
    else if (k == "trans_b") a.trans_b = boolean();
    else if (k == "tri") a.tri = choice(kTris, "none, out_lower, a_lower or a_upper");
    else lex_.fail(key, "unknown attribute", "an attribute of docs/ops.md");
}

}  // namespace forge::ir
