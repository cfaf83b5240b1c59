// The grammar of the text form: functions, definitions, and one operation on types.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "ir/infer.h"
#include "ir/text.h"
#include "ir/text_reader.h"
#include "ir/verify.h"

namespace forge::ir {
namespace {

class Parser : private TextReader {
  public:
    using TextReader::TextReader;

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
        const Token first = lex_.peek();
        Function phase = function();
        if (phase.name == "step") {  // alone: the phases are derived from it
            def.step = std::move(phase);
        } else {
            def.chunk = named("chunk", std::move(phase), first);
            def.decay = named_function("decay");
            def.merge = named_function("merge");
            if (at_word("func")) def.step = named_function("step");
        }
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

    Fragment fragment() {
        Fragment all;
        while (at_word("input") || at_word("head") || at_word("scalar") || at_word("state")) declaration(all.declared);
        while (at_word("func")) all.functions.push_back(function());
        end();
        return all;
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
        return named(name, function(), at);
    }

    Function named(const std::string& name, Function fn, const Token& at) {
        if (fn.name != name)
            lex_.fail(at, fmt::format("function @{} stands where @{} should", fn.name, name),
                      "the phases in the order chunk, decay, merge, step, or step alone");
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
            InputDecl in{name.text, roles().at(kind.text), t, 0, lex_.where(name), {}};
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

    void result(Function& fn) {
        Result r;
        r.role = choice(roles(), "a role");
        r.name = string();
        if (at_word("at")) word("at"), r.at = integers();
        punct("=");
        r.value = value();
        fn.results.push_back(r);
    }

    ValueId value() {
        const Token t = lex_.peek();
        const std::string name = prefixed('%');
        const auto it = values_.find(name);
        if (it == values_.end()) lex_.fail(t, fmt::format("%{} is not defined", name), "a value defined above");
        return it->second;
    }

    struct Derived {
        Token name;
        Type type;
        std::string input;
    };

    std::vector<Derived> derived_;  ///< states of inputs that prev_token reads, as the text has them
    std::map<std::string, ValueId> values_;
};

}  // namespace

Definition parse_definition(const std::string& text, const std::string& file) {
    Definition def = Parser(text, file).definition();
    if (auto found = verify(def); !found.empty()) throw CompileError(std::move(found));
    return def;
}
Fragment parse_fragment(const std::string& text, const std::string& file) { return Parser(text, file).fragment(); }
Function parse_function(const std::string& text, const std::string& file) { return Parser(text, file).only_function(); }

Type infer_text(const std::string& text) { return Parser(text, "<text>").operation(); }

bool is_definition(const std::string& text) { return text.find("linear_attention") < text.find("func"); }

}  // namespace forge::ir
