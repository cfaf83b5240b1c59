/// Elementwise expressions that write operations: `y * (1.0 - y)` on values of a function under construction. Numbers
/// stay numbers until a value needs them, so that 1 and 0 leave no operation.
#pragma once

#include "ir/infer.h"

namespace forge::graph {

class Expression {
  public:
    Expression(double number) : number_(number) {}  // NOLINT(google-explicit-constructor): numbers stand for themselves
    Expression(ir::Function& fn, ir::ValueId value, const Location& where) : fn_(&fn), where_(&where), value_(value) {}

    [[nodiscard]] bool is_number() const { return fn_ == nullptr; }
    [[nodiscard]] bool is(double number) const { return is_number() && number_ == number; }
    /// As a value of the function; numbers become constants.
    [[nodiscard]] ir::ValueId value_in(ir::Function& fn, const Location& where) const {
        return is_number() ? ir::emit_constant(fn, number_, where) : value_;
    }

    friend Expression operator+(const Expression& a, const Expression& b) { return made(ir::Opcode::Add, {a, b}); }
    friend Expression operator-(const Expression& a, const Expression& b) { return made(ir::Opcode::Sub, {a, b}); }
    friend Expression operator*(const Expression& a, const Expression& b) {
        if (a.is(1)) return b;
        if (b.is(1)) return a;
        if (b.is(-1)) return -a;
        return a.is(-1) ? -b : made(ir::Opcode::Mul, {a, b});
    }
    friend Expression operator/(const Expression& a, const Expression& b) { return made(ir::Opcode::Div, {a, b}); }
    friend Expression operator-(const Expression& a) {
        return a.is_number() ? Expression(-a.number_) : made(ir::Opcode::Neg, {a});
    }
    friend Expression operator<(const Expression& a, const Expression& b) { return made(ir::Opcode::Lt, {a, b}); }
    friend Expression operator>(const Expression& a, const Expression& b) { return made(ir::Opcode::Gt, {a, b}); }
    friend Expression operator==(const Expression& a, const Expression& b) { return made(ir::Opcode::Eq, {a, b}); }
    friend Expression where(const Expression& c, const Expression& a, const Expression& b) {
        return made(ir::Opcode::Where, {c, a, b});
    }
    friend Expression pow(const Expression& a, const Expression& b) { return made(ir::Opcode::Pow, {a, b}); }
    friend Expression exp(const Expression& x) { return made(ir::Opcode::Exp, {x}); }
    friend Expression sigmoid(const Expression& x) { return made(ir::Opcode::Sigmoid, {x}); }
    friend Expression log(const Expression& x) { return made(ir::Opcode::Log, {x}); }
    friend Expression sign(const Expression& x) { return made(ir::Opcode::Sign, {x}); }
    friend Expression sin(const Expression& x) { return made(ir::Opcode::Sin, {x}); }
    friend Expression cos(const Expression& x) { return made(ir::Opcode::Cos, {x}); }

  private:
    /// Of operands of which one at least is no number.
    static Expression made(ir::Opcode code, const std::vector<Expression>& operands) {
        const Expression* at = nullptr;
        for (const Expression& e : operands)
            if (!e.is_number()) at = &e;
        std::vector<ir::ValueId> args;
        args.reserve(operands.size());
        for (const Expression& e : operands) args.push_back(e.value_in(*at->fn_, *at->where_));
        return {*at->fn_, ir::emit(*at->fn_, code, std::move(args), {}, *at->where_), *at->where_};
    }

    ir::Function* fn_ = nullptr;
    const Location* where_ = nullptr;
    ir::ValueId value_ = ir::kNoValue;
    double number_ = 0;
};

}  // namespace forge::graph
