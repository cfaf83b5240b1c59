#include "ir/levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "ir/definition.h"
#include "ir/infer.h"
#include "ir/text.h"
#include "ir/triangular.h"

namespace forge::ir {
namespace {

using Space = Layout::Space;

class Spec {
  public:
    Spec(const Function& fn, Level level) : fn_(fn), level_(level) {}

    std::vector<std::string> run() {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (well_formed(v)) operation(v);
        for (const Result& r : fn_.results) result(r);
        return std::move(found_);
    }

  private:
    void report(ValueId v, const std::string& what) {
        found_.push_back(fmt::format("value {} ({}): {}", v, info(fn_.op(v).code).name, what));
    }

    /// Whether operands and type are such that the op can be looked at.
    bool well_formed(ValueId v) {
        const Op& op = fn_.op(v);
        std::vector<Type> types;
        for (const ValueId a : op.args) {
            if (a < 0 || a >= v) return report(v, fmt::format("reads value {}, which is not made before it", a)), false;
            types.push_back(computed(fn_.op(a).type));
        }
        const Inferred inferred = infer(op.code, types, op.attrs, computed(op.type));
        if (const auto* fault = std::get_if<TypeFault>(&inferred)) return report(v, fault->what), false;
        const Shape& made = std::get<Type>(inferred).shape;
        const bool repeats = is_elementwise(op.code) && broadcast(made, op.type.shape) == op.type.shape;
        if (made == op.type.shape || repeats) return true;
        report(v, fmt::format("is {}, its operands make {}", forge::to_string(op.type.shape), forge::to_string(made)));
        return false;
    }

    /// Storage types count from `widen` on, which takes all of them to float32.
    [[nodiscard]] Type computed(Type type) const {
        if (level_ == Level::Program && is_float(type.dtype)) type.dtype = DType::F32;
        return type;
    }

    void operation(ValueId v) {
        const Op& op = fn_.op(v);
        if (op.code == Opcode::Param) parameter(v);
        if (level_ >= Level::Graph && is_float(op.type.dtype) && op.type.dtype != DType::F32)
            report(v, fmt::format("is {}, but all is computed in float32", to_string(op.type)));
        if (level_ == Level::Program && made_by_the_compiler(op.code)) report(v, "is an operation of later levels");
        if (level_ >= Level::Graph && (op.code == Opcode::CacheResult || op.code == Opcode::PrevToken))
            report(v, "is an operation of phases");
        if (level_ >= Level::Kernel && (ir::along(op.code) == Along::Normalised || op.code == Opcode::Size))
            report(v, "was to be replaced before kernels were made");
        if (level_ <= Level::Graph && op.code == Opcode::Inverse && triangle_of(fn_, op.args[0]) != Triangle::UnitLower)
            report(v, "inverts a matrix that is not provably unit lower-triangular");
        if (level_ >= Level::Sized)
            for (const Dim& d : op.type.shape)
                if (!d.is_constant()) report(v, fmt::format("has an axis of no number, {}", forge::to_string(d)));
        if (level_ < Level::Tile && op.layout) report(v, "has a layout already");
        if (level_ == Level::Tile) layout(v);
    }

    static bool made_by_the_compiler(Opcode code) {
        return code == Opcode::Copy || code == Opcode::LinearScanFrom || code == Opcode::MatmulAdd ||
               code == Opcode::MatmulSub || along(code) == Along::Pairs || along(code) == Along::Rows;
    }

    void parameter(ValueId v) {
        const Attrs& attrs = fn_.op(v).attrs;
        const bool arrives = attrs.role == Role::Input || attrs.role == Role::Shifted || attrs.role == Role::Spill ||
                             attrs.role == Role::Before;  // in memory, more than once
        if (!parameters_.insert({attrs.role, attrs.name, attrs.at}).second && !(level_ >= Level::Sized && arrives))
            report(v, fmt::format("is the second parameter for {} '{}'", to_string(attrs.role), attrs.name));
        if (!may_be(attrs.role, false))
            report(v, fmt::format("no parameter has the role {} on this level", to_string(attrs.role)));
    }

    void result(const Result& r) {
        if (r.value < 0 || r.value >= fn_.size()) {
            found_.push_back(fmt::format("the result '{}' is no value", r.name));
            return;
        }
        if (!results_.insert({r.role, r.name, r.at}).second)
            report(r.value, fmt::format("is the second result for {} '{}'", to_string(r.role), r.name));
        if (!may_be(r.role, true))
            report(r.value, fmt::format("no result has the role {} on this level", to_string(r.role)));
    }

    [[nodiscard]] bool may_be(Role role, bool of_result) const {
        switch (role) {
            case Role::State:
            case Role::Input:
                return true;
            case Role::Shifted:
            case Role::Head:
            case Role::Scalar:
            case Role::Mask:
                return !of_result;
            case Role::After:
                return of_result && level_ >= Level::Graph;
            case Role::Before:
                return level_ != Level::Program;
            case Role::Spill:
            case Role::Ones:
            case Role::Eye:
                return level_ >= Level::Kernel;
            case Role::Chunk:  // of what another kernel adds up
                return of_result && level_ >= Level::Kernel;
            case Role::Cached:
                return false;
        }
        return false;
    }

    void layout(ValueId v) {
        const Op& op = fn_.op(v);
        if (!op.layout) return report(v, "has no layout");
        const Layout& l = *op.layout;
        if (l.offset < 0) report(v, "lies before the beginning");
        if (l.parts < 1 || l.parts > 3) report(v, fmt::format("has {} parts, 1 to 3 are known", l.parts));
        const bool strided = l.space == Space::Tile || l.space == Space::Spill;
        if (strided && !l.strides.empty() && static_cast<int>(l.strides.size()) != op.type.rank())
            report(v, fmt::format("has {} strides for {} axes", l.strides.size(), op.type.rank()));
        const bool in_blocks = l.space == Space::Operand || l.space == Space::Fragment || l.space == Space::Transposed;
        constexpr std::int64_t kBlock = 64;
        if (in_blocks &&
            (op.type.rank() != 2 || op.type.shape[0].factor % kBlock != 0 || op.type.shape[1].factor % kBlock != 0))
            report(v, fmt::format("is {}, but matrix units have whole blocks of 64 x 64", to_string(op.type)));
        if (l.space == Space::Held && op.type.rank() != 2)
            report(v, fmt::format("is {}, but threads hold matrices", to_string(op.type)));
        if (is_view(op.code) && fn_.op(op.args[0]).layout && fn_.op(op.args[0]).layout->space != l.space &&
            !is_found_by_loops(op))
            report(v, "is a view into another space than its operand's");
    }

    /// A part of an operand, which loops read where it lies.
    [[nodiscard]] bool is_found_by_loops(const Op& op) const {
        return op.code == Opcode::Slice && op.layout->space == Space::Reg &&
               fn_.op(op.args[0]).layout->space == Space::Operand;
    }

    const Function& fn_;
    Level level_;
    std::set<std::tuple<Role, std::string, std::vector<std::int64_t>>> parameters_, results_;
    std::vector<std::string> found_;
};

}  // namespace

const char* to_string(Level level) {
    switch (level) {
        case Level::Program:
            return "program";
        case Level::Graph:
            return "graph";
        case Level::Kernel:
            return "kernel";
        case Level::Sized:
            return "sized";
        case Level::Tile:
            return "tile";
        case Level::Text:
            return "text";
    }
    return "?";
}

bool is_whole(const Function& fn) {
    const auto is_value = [&](ValueId v) { return v >= 0 && v < fn.size(); };
    return std::all_of(fn.ops.begin(), fn.ops.end(),
                       [&](const Op& op) { return std::all_of(op.args.begin(), op.args.end(), is_value); }) &&
           std::all_of(fn.results.begin(), fn.results.end(), [&](const Result& r) { return is_value(r.value); });
}

std::vector<std::string> faults(const Function& fn, Level level) {
    return level == Level::Text ? std::vector<std::string>{} : Spec(fn, level).run();
}

}  // namespace forge::ir
