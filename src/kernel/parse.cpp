#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "forge/error.h"
#include "kernel/kernel.h"
#include "kernel/words.h"

namespace forge::kernel {
namespace {

/// Words, numbers, names in quotes and single characters.
class Parser {
  public:
    explicit Parser(const std::string& text) : text_(text) { next(); }

    Kernel kernel() {
        Kernel k;
        expect("kernel");
        k.name = name();
        k.overlaps = accept("overlaps"), k.publishes = accept("publishes"), k.arrivals = accept("arrivals");
        while (accept("role")) k.roles.push_back(role());
        while (accept("channel")) k.channels.push_back(channel());
        k.body = block();
        if (!token_.empty()) fail("the end");
        return k;
    }

  private:
    Role role() {
        Role r;
        r.name = word(), expect(":");
        r.instances = number<int>(), expect("of");
        r.warps = number<int>(), expect("warps");
        r.products_apart = accept("apart"), expect("makes");
        while (is_name()) r.values.push_back(name());
        return r;
    }

    Channel channel() {
        Channel c;
        c.name = word(), expect(":");
        c.depth = number<int>(), expect("buffers"), expect("by");
        c.turn = word(), expect("from");
        c.writer = word(), expect("to");
        while (token_ != "filled") c.readers.push_back(word());
        expect("filled"), c.filled = number<int>();
        expect("empty"), c.empty = number<int>();
        expect("at"), c.barriers = access();
        return c;
    }

    std::vector<Statement> block() {
        std::vector<Statement> statements;
        expect("{");
        while (!accept("}")) statements.push_back(statement());
        return statements;
    }

    Statement statement() {
        Statement s{kind()};
        if (is_name()) s.what = name();
        while (attribute(s)) {}
        if (accept("reads")) s.reads = accesses();
        if (accept("writes")) s.writes = accesses();
        if (has_body(s.kind)) s.body = block();
        return s;
    }

    Kind kind() {
        const std::string text = word();
        for (int k = 0; k < kKinds; ++k)
            if (text == to_string(static_cast<Kind>(k))) return static_cast<Kind>(k);
        return fail("a statement"), Kind::Code;
    }

    bool attribute(Statement& s) {
        if (accept("by")) return s.by = one_of<By>(kBy), true;
        if (accept("when")) return s.when = one_of<When>(kWhen), true;
        if (accept("pending")) return s.pending = number<int>(), true;
        if (accept("ahead")) return s.ahead = number<int>(), true;
        if (accept("copied")) return s.copied = true;
        if (accept("from")) return s.first = number<int>(), true;
        if (accept("step")) return s.step = number<int>(), true;
        if (accept("count")) return s.count = number<int>(), true;
        if (accept("by_turns")) return s.by_turns = true;
        if (accept("of_tasks")) return s.tasks = true;
        if (accept("within")) return s.within = true;
        if (accept("over")) return s.over = true;
        if (accept("of") || accept("and")) return s.values.push_back(name()), true;
        if (!is_word() || peek() != '.') return false;
        s.channel = word(), expect(".");
        return s.side = one_of<Side>(kSide), true;
    }

    Accesses accesses() {
        Accesses list;
        do list.push_back(access());
        while (accept(","));
        return list;
    }

    Access access() {
        if (accept("%")) return registers(word());
        Access a;
        if (is_word() && token_ != "global") a.channel = word();
        if (accept("global")) a.memory = Memory::Global;
        a.buffer = name(), expect("[");
        a.begin = number<std::int64_t>(), expect(":");
        a.end = number<std::int64_t>();
        while (accept("+")) {
            const auto factor = number<std::int64_t>();
            expect("*");
            if (accept("group")) {
                a.of_instance = factor;
                continue;
            }
            a.stride = factor;
            if (!accept("chunk")) expect("("), expect("chunk"), expect("+"), a.ahead = number<int>(), expect(")");
            expect("%"), a.depth = number<int>();
            if (a.depth < 1) fail("a number of buffers");
        }
        expect("]");
        return a;
    }

    // Tokens.

    [[nodiscard]] bool is_name() const { return !token_.empty() && token_[0] == '"'; }
    [[nodiscard]] bool is_word() const {
        return !token_.empty() && (std::isalpha(static_cast<unsigned char>(token_[0])) != 0 || token_[0] == '_');
    }
    [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

    bool accept(const char* wanted) {
        if (token_ != wanted) return false;
        next();
        return true;
    }
    void expect(const char* wanted) {
        if (!accept(wanted)) fail(wanted);
    }
    std::string take() {
        std::string token = std::move(token_);
        next();
        return token;
    }
    std::string word() {
        if (!is_word()) fail("a word");
        return take();
    }
    std::string name() {
        if (!is_name()) fail("a name in quotes");
        return take().substr(1);
    }
    template <class T>
    T number() {
        T value = 0;
        const char* const end = token_.data() + token_.size();
        if (const auto [stop, error] = std::from_chars(token_.data(), end, value); error != std::errc() || stop != end)
            fail("a number");
        next();
        return value;
    }
    template <class Enum, std::size_t N>
    Enum one_of(const std::array<const char*, N>& words) {
        const auto found = std::find(words.begin(), words.end(), token_);
        if (found == words.end()) fail(words[0]);
        next();
        return static_cast<Enum>(found - words.begin());
    }

    void next() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0)
            line_ += text_[at_++] == '\n' ? 1 : 0;
        token_.clear();
        if (at_ == text_.size()) return;
        const auto in_word = [&] {
            const char c = peek();
            return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
        };
        if (peek() == '"') return quoted();
        if (peek() == '-' || in_word()) {
            token_ += text_[at_++];
            while (in_word()) token_ += text_[at_++];
        } else {
            token_ += text_[at_++];
        }
    }
    /// The token keeps the first quote, which says what it is.
    void quoted() {
        token_ += text_[at_++];
        for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
            if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
            token_ += text_[at_];
        }
        if (at_ == text_.size()) fail("a closing quote");
        ++at_;
    }

    [[noreturn]] void fail(const std::string& wanted) const {
        throw CompileError(Diagnostic{
            fmt::format("the text of a kernel, line {}", line_), wanted, token_.empty() ? "nothing" : token_, {}, ""});
    }

    const std::string& text_;
    std::size_t at_ = 0;
    int line_ = 1;
    std::string token_;
};

}  // namespace

Kernel parse(const std::string& text) { return Parser(text).kernel(); }

}  // namespace forge::kernel
