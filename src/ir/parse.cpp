#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "forge/error.h"
#include "ir/infer.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace forge::ir {
namespace {

/// A token: an identifier or number (letters, digits, `_`, `.`, `%`/`@` prefix), a quoted string, or one punctuation
/// character. Numbers keep their sign.
struct Token {
    enum class Kind : std::uint8_t { Word, String, Punct, End } kind = Kind::End;
    std::string text;
    unsigned line = 1, column = 1;
};

class Lexer {
  public:
    Lexer(const std::string& text, std::string file) : text_(text), file_(std::move(file)) { advance(); }

    [[nodiscard]] const Token& peek() const { return token_; }
    Token next() {
        Token t = token_;
        advance();
        return t;
    }
    [[nodiscard]] Location where(const Token& t) const { return {file_, t.line, t.column}; }
    [[noreturn]] void fail(const Token& at, const std::string& what, const std::string& expected) const {
        throw CompileError(Diagnostic{what, expected, at.kind == Token::Kind::End ? "end of text" : "'" + at.text + "'",
                                      where(at), ""});
    }

  private:
    static bool is_word(char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '%' || c == '@' ||
               c == '-' || c == '+';
    }
    [[nodiscard]] bool done() const { return pos_ >= text_.size(); }
    char take() {
        const char c = text_[pos_++];
        if (c == '\n') {
            ++line_;
            column_ = 1;
        } else {
            ++column_;
        }
        return c;
    }
    void skip_blank() {
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
    void advance() {
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

    /// Up to the closing quote; what `escaped` wrote is taken back.
    void string_content() {
        while (!done() && text_[pos_] != '"' && text_[pos_] != '\n') {
            const char c = take();
            token_.text += c == '\\' && !done() ? after_backslash() : c;
        }
        if (done() || text_[pos_] != '"') fail(token_, "unterminated string", "a closing quote");
        take();
    }
    char after_backslash() {
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

    const std::string& text_;
    std::string file_;
    std::size_t pos_ = 0;
    unsigned line_ = 1, column_ = 1;
    Token token_;
};

const std::map<std::string, DType> kDTypes = {{"bool", DType::Bool}, {"i32", DType::I32},   {"i64", DType::I64},
                                              {"f16", DType::F16},   {"bf16", DType::BF16}, {"f32", DType::F32},
                                              {"f64", DType::F64}};
const std::map<std::string, Role> kRoles = [] {
    std::map<std::string, Role> m;
    for (const Role r : {Role::Input, Role::Shifted, Role::Head, Role::Scalar, Role::Mask, Role::State, Role::Chunk,
                         Role::Cached, Role::Spill, Role::Ones, Role::Eye, Role::Before})
        m.emplace(to_string(r), r);
    return m;
}();
const std::map<std::string, Tri> kTris = {
    {"none", Tri::None}, {"out_lower", Tri::OutLower}, {"a_lower", Tri::ALower}, {"a_upper", Tri::AUpper}};

class Parser {
  public:
    Parser(const std::string& text, const std::string& file) : lex_(text, file) {}

    Definition definition() {
        Definition def;
        def.where = lex_.where(lex_.peek());
        word("linear_attention");
        def.name = prefixed('@');
        if (at_word("chunk")) {
            lex_.next();
            punct("=");
            def.fixed_chunk = integer();
        }
        if (at_word("loc")) def.where = location();
        punct("{");
        while (!at_word("func")) declaration(def);
        def.chunk = named_function("chunk");
        def.decay = named_function("decay");
        def.merge = named_function("merge");
        if (at_word("func")) def.step = named_function("step");
        punct("}");
        end();
        check_derived(def);
        return def;
    }

    Function function() {
        word("func");
        Function fn;
        fn.name = prefixed('@');
        values_.clear();
        punct("{");
        while (!at_word("return")) statement(fn);
        word("return");
        do result(fn);
        while (accept(","));
        punct("}");
        return fn;
    }

    Type operation() {
        const Token at = lex_.next();
        const auto code = opcode_named(at.text);
        if (!code || at.kind != Token::Kind::Word) lex_.fail(at, "unknown operation", "an operation of docs/ops.md");
        std::vector<Type> types;
        punct("(");
        if (!accept(")")) {
            do types.push_back(type());
            while (accept(","));
            punct(")");
        }
        Op op;
        if (accept("{")) attributes(op);
        const Type own = accept(":") ? type() : Type{};
        end();
        const Inferred inferred = infer(*code, types, op.attrs, own);
        if (const auto* fault = std::get_if<TypeFault>(&inferred))
            throw CompileError(Diagnostic{fault->what, fault->expected, fault->got, {}, fault->hint});
        return std::get<Type>(inferred);
    }

    Function only_function() {
        Function fn = function();
        end();
        return fn;
    }

  private:
    /// States that follow from the program may be left out, but not be others.
    void check_derived(const Definition& def) {
        const std::vector<LastRows> derived = last_rows(def);
        for (const auto& [name, type, input] : derived_) {
            const auto same = [&, n = name.text, t = type, of = input](const LastRows& last) {
                return last.name == n && last.type == t && last.input == of;
            };
            if (std::none_of(derived.begin(), derived.end(), same))
                lex_.fail(name, "not a state that follows from prev_token",
                          "last_<input>: f32[…] of <input>, for an input that prev_token reads, or nothing");
        }
    }

    Function named_function(const std::string& name) {
        const Token at = lex_.peek();
        Function fn = function();
        if (fn.name != name)
            lex_.fail(at, fmt::format("function @{} stands where @{} should", fn.name, name),
                      "the phases in the order chunk, decay, merge, step");
        return fn;
    }

    void declaration(Definition& def) {
        const Token kind = lex_.next();
        const Token name = lex_.next();
        if (kind.kind != Token::Kind::Word || name.kind != Token::Kind::Word)
            lex_.fail(kind, "not a declaration", "input, head, scalar, state, output or func");
        punct(":");
        const Type t = type();
        if (kind.text == "state" && at_word("of")) {
            lex_.next();
            derived_.push_back({name, t, lex_.next().text});
        } else if (kind.text == "state") {
            def.states.push_back({name.text, t, optional_location(name)});
        } else if (kind.text == "output") {
            def.outputs.push_back({name.text, t, optional_location(name)});
        } else if (kind.text == "input" || kind.text == "head" || kind.text == "scalar") {
            InputDecl in{name.text, kRoles.at(kind.text), t, 0, lex_.where(name), {}};
            if (at_word("pad")) {
                lex_.next();
                punct("=");
                in.pad = number();
            }
            if (at_word("range")) {
                lex_.next();
                in.range = range();
            }
            in.where = optional_location(name);
            def.inputs.push_back(in);
        } else {
            lex_.fail(kind, "not a declaration", "input, head, scalar, state, output or func");
        }
    }

    void statement(Function& fn) {
        const Token lhs = lex_.peek();
        const std::string name = prefixed('%');
        if (values_.contains(name)) lex_.fail(lhs, fmt::format("%{} is defined twice", name), "a new name");
        punct(":");
        Op op;
        op.where = lex_.where(lhs);
        op.type = type();
        punct("=");
        const Token opname = lex_.next();
        const auto code = opcode_named(opname.text);
        if (!code || opname.kind != Token::Kind::Word)
            lex_.fail(opname, "unknown operation", "an operation of docs/ops.md");
        op.code = *code;
        op.args = operands();
        if (accept("{")) attributes(op);
        if (accept("@")) op.layout = layout();
        if (at_word("loc")) op.where = location();
        check_type(fn, op, opname);
        if (!std::isdigit(static_cast<unsigned char>(name[0]))) op.name = name.substr(0, name.find('.'));
        values_[name] = fn.add(std::move(op));
    }

    std::vector<ValueId> operands() {
        std::vector<ValueId> args;
        punct("(");
        if (accept(")")) return args;
        do args.push_back(value());
        while (accept(","));
        punct(")");
        return args;
    }

    void check_type(const Function& fn, const Op& op, const Token& at) {
        std::vector<Type> types;
        for (const ValueId a : op.args) types.push_back(fn.op(a).type);
        const Inferred inferred = infer(op.code, types, op.attrs, op.type);
        if (const auto* fault = std::get_if<TypeFault>(&inferred))
            throw CompileError(Diagnostic{fault->what, fault->expected, fault->got, op.where, fault->hint});
        if (std::get<Type>(inferred) != op.type)
            lex_.fail(at,
                      fmt::format("{} has type {}, not {}", info(op.code).name, to_string(std::get<Type>(inferred)),
                                  to_string(op.type)),
                      to_string(std::get<Type>(inferred)));
    }

    void attributes(Op& op) {
        if (accept("}")) return;
        do attribute(op);
        while (accept(","));
        punct("}");
    }

    void attribute(Op& op) {
        const Token key = lex_.next();
        punct("=");
        Attrs& a = op.attrs;
        const std::string& k = key.text;
        if (k == "name") a.name = string();
        else if (k == "role") a.role = choice(kRoles, "a role");
        else if (k == "value") a.value = number();
        else if (k == "dtype") a.dtype = choice(kDTypes, "an element type");
        else if (k == "dim") a.dim = integer();
        else if (k == "start") a.start = integer();
        else if (k == "step") a.step = integer();
        else if (k == "count") a.count = integer();
        else if (k == "length") a.length = integer();
        else if (k == "perm") a.perm = integers();
        else if (k == "diagonal") a.diagonal = integer();
        else if (k == "reverse") a.reverse = boolean();
        else if (k == "exclusive") a.exclusive = boolean();
        else if (k == "trans_a") a.trans_a = boolean();
        else if (k == "trans_b") a.trans_b = boolean();
        else if (k == "tri") a.tri = choice(kTris, "none, out_lower, a_lower or a_upper");
        else lex_.fail(key, "unknown attribute", "an attribute of docs/ops.md");
    }

    Layout layout() {
        Layout l;
        if (at_word("reg")) {
            lex_.next();
            return l;
        }
        static const std::map<std::string, Layout::Space> kSpaces = {{"tile", Layout::Space::Tile},
                                                                     {"spill", Layout::Space::Spill},
                                                                     {"operand", Layout::Space::Operand},
                                                                     {"fragment", Layout::Space::Fragment},
                                                                     {"transposed", Layout::Space::Transposed}};
        l.space = choice(kSpaces, "reg, tile, spill, operand, fragment or transposed");
        if (l.space == Layout::Space::Transposed) return l;
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

    int parts() {
        word("parts");
        punct("=");
        return static_cast<int>(integer(1, 2));
    }

    Location optional_location(const Token& otherwise) { return at_word("loc") ? location() : lex_.where(otherwise); }

    Location location() {
        word("loc");
        punct("(");
        Location loc;
        loc.file = string();
        punct(":");
        loc.line = static_cast<unsigned>(integer(1, std::numeric_limits<unsigned>::max()));
        punct(":");
        loc.column = static_cast<unsigned>(integer(0, std::numeric_limits<unsigned>::max()));
        punct(")");
        return loc;
    }

    void result(Function& fn) {
        Result r;
        r.role = choice(kRoles, "a role");
        r.name = string();
        punct("=");
        r.value = value();
        fn.results.push_back(r);
    }

    Type type() {
        Type t;
        t.dtype = choice(kDTypes, "an element type");
        punct("[");
        if (accept("]")) return t;
        do t.shape.push_back(dim());
        while (accept(","));
        punct("]");
        return t;
    }

    Dim dim() {
        const Token t = lex_.peek();
        if (t.kind != Token::Kind::Word) lex_.fail(t, "not a dimension", "a number or a symbol");
        if (!std::isdigit(static_cast<unsigned char>(t.text[0]))) return Dim(symbol());
        const std::int64_t factor = integer();
        if (factor < 1 || factor > kMostExtent) lex_.fail(t, "not a size", fmt::format("1 to {}", kMostExtent));
        if (!accept("*")) return {factor};
        return factor * Dim(symbol());
    }

    std::string symbol() {
        const Token t = lex_.next();
        if (!is_identifier(t.text)) lex_.fail(t, "size: not a name", "letters, digits and _, no digit first");
        return t.text;
    }

    ValueId value() {
        const Token t = lex_.peek();
        const std::string name = prefixed('%');
        const auto it = values_.find(name);
        if (it == values_.end()) lex_.fail(t, fmt::format("%{} is not defined", name), "a value defined above");
        return it->second;
    }

    template <class T>
    T choice(const std::map<std::string, T>& options, const char* expected) {
        const Token t = lex_.next();
        const auto it = options.find(t.text);
        if (it == options.end()) lex_.fail(t, "unknown word", expected);
        return it->second;
    }

    std::vector<std::int64_t> integers() {
        std::vector<std::int64_t> list;
        punct("[");
        if (accept("]")) return list;
        do list.push_back(integer());
        while (accept(","));
        punct("]");
        return list;
    }

    std::int64_t integer() {
        const Token t = lex_.next();
        std::int64_t n = 0;
        const auto [end, error] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), n);
        if (error != std::errc() || end != t.text.data() + t.text.size()) lex_.fail(t, "not an integer", "an integer");
        return n;
    }

    std::int64_t integer(std::int64_t least, std::int64_t most) {
        const Token t = lex_.peek();
        const std::int64_t n = integer();
        if (n < least || n > most) lex_.fail(t, "out of range", fmt::format("{} to {}", least, most));
        return n;
    }

    double number() {
        const Token t = lex_.next();
        if (t.text == "inf") return std::numeric_limits<double>::infinity();
        if (t.text == "-inf") return -std::numeric_limits<double>::infinity();
        if (t.text == "nan") return std::nan("");
        double x = 0;
        const auto [end, error] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), x);
        if (error != std::errc() || end != t.text.data() + t.text.size()) lex_.fail(t, "not a number", "a number");
        return x;
    }

    Range range() {
        Range r;
        punct("=");
        punct("[");
        r.low = number();
        punct(",");
        r.high = number();
        punct("]");
        return r;
    }

    bool boolean() {
        const Token t = lex_.next();
        if (t.text != "true" && t.text != "false") lex_.fail(t, "not a truth value", "true or false");
        return t.text == "true";
    }

    std::string string() {
        const Token t = lex_.next();
        if (t.kind != Token::Kind::String) lex_.fail(t, "not a string", "a string in double quotes");
        return t.text;
    }

    std::string prefixed(char sigil) {
        const Token t = lex_.next();
        if (t.kind != Token::Kind::Word || t.text.size() < 2 || t.text[0] != sigil)
            lex_.fail(t, "not a name", fmt::format("a name with {}", sigil));
        return t.text.substr(1);
    }

    [[nodiscard]] bool at_word(const char* w) const {
        return lex_.peek().kind == Token::Kind::Word && lex_.peek().text == w;
    }
    void word(const char* w) {
        const Token t = lex_.next();
        if (t.kind != Token::Kind::Word || t.text != w) lex_.fail(t, fmt::format("expected '{}'", w), w);
    }
    bool accept(const char* p) {
        if (lex_.peek().kind != Token::Kind::Punct || lex_.peek().text != p) return false;
        lex_.next();
        return true;
    }
    void punct(const char* p) {
        const Token t = lex_.peek();
        if (!accept(p)) lex_.fail(t, fmt::format("expected '{}'", p), p);
    }
    void end() {
        if (lex_.peek().kind != Token::Kind::End) lex_.fail(lex_.peek(), "text after the end", "nothing");
    }

    struct Derived {
        Token name;
        Type type;
        std::string input;
    };

    Lexer lex_;
    std::vector<Derived> derived_;  ///< states of inputs that prev_token reads, as the text has them
    std::map<std::string, ValueId> values_;
};

}  // namespace

Definition parse_definition(const std::string& text, const std::string& file) {
    Definition def = Parser(text, file).definition();
    if (auto found = verify(def); !found.empty()) throw CompileError(std::move(found));
    return def;
}
Function parse_function(const std::string& text, const std::string& file) { return Parser(text, file).only_function(); }

Type infer_text(const std::string& text) { return Parser(text, "<text>").operation(); }

bool is_definition(const std::string& text) { return text.find("linear_attention") < text.find("func"); }

}  // namespace forge::ir
