#include "ir/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "ir/infer.h"
#include "ir/text.h"
#include "ir/triangular.h"

namespace forge::ir {
namespace {

enum class Phase : std::uint8_t { Chunk, Decay, Merge, Step };

class Verifier {
  public:
    explicit Verifier(const Definition& def) : def_(def) {}

    std::vector<Diagnostic> run() {
        found_ = check_names_and_constants(def_);
        if (!found_.empty()) return std::move(found_);
        declarations();
        if (!found_.empty()) return std::move(found_);  // the phases' types follow from them
        if (!is_step_alone(def_)) {
            phase(def_.chunk, Phase::Chunk);
            phase(def_.decay, Phase::Decay);
            phase(def_.merge, Phase::Merge);
        }
        if (def_.step) phase(*def_.step, Phase::Step);
        if (found_.empty()) found_ = last_rows_conflicts(def_);
        return std::move(found_);
    }

  private:
    void report(const Location& where, std::string what, std::string expected, std::string got) {
        found_.push_back({std::move(what), std::move(expected), std::move(got), where, ""});
    }

    static bool has_tokens(const Type& type) { return type.rank() >= 2 && type.shape[0].symbol == kTokenSymbol; }

    void declarations() {
        for (const InputDecl& in : def_.inputs) {
            const std::string shape = forge::to_string(in.type.shape);
            if (in.type.dtype != F32 && !is_half(in.type.dtype))
                report(in.where,
                       fmt::format("{} '{}': not of a type that tensors of a call have", to_string(in.role), in.name),
                       "bf16, f16 or f32", forge::to_string(in.type.dtype));
            if (in.role == Role::Input && !has_tokens(in.type))
                report(in.where, fmt::format("input '{}': not a token input", in.name), "[T, heads, …]", shape);
            if (in.role == Role::Head && (in.type.rank() < 1 || in.type.shape[0].is_constant()))
                report(in.where, fmt::format("head '{}': not per head", in.name), "[heads, …]", shape);
            if (in.role == Role::Scalar && in.type.rank() != 0)
                report(in.where, fmt::format("scalar '{}': not a number", in.name), "[]", shape);
            if (in.range && !(in.range->low <= in.range->high))
                report(in.where, fmt::format("{} '{}': an empty range", to_string(in.role), in.name),
                       "two numbers, the lower one first", fmt::format("[{}, {}]", in.range->low, in.range->high));
        }
        for (const OutputDecl& out : def_.outputs)
            if (!has_tokens(out.type))
                report(out.where, fmt::format("output '{}': has no token axis", out.name), "[T, heads, …]",
                       forge::to_string(out.type.shape));
        if (def_.fixed_chunk != 0 && !is_chunk_size(def_.fixed_chunk) && !is_sequential(def_))
            report(def_.where, fmt::format("'{}' fixes its chunk at a size that there are no kernels for", def_.name),
                   "16, 32, 64 or 128 tokens, or 1 of a step alone", std::to_string(def_.fixed_chunk));
        if (def_.states.empty())
            report(def_.where, fmt::format("'{}' has no state", def_.name), "at least one state", "none");
        if (def_.outputs.empty())
            report(def_.where, fmt::format("'{}' has no output", def_.name), "at least one output", "none");
        if (std::none_of(def_.inputs.begin(), def_.inputs.end(),
                         [](const InputDecl& in) { return in.role == Role::Input; }))
            report(def_.where, fmt::format("'{}' has no token input", def_.name), "at least one input", "none");
    }

    /// What can stand for a size in a phase: symbols of declared axes, and the chunk's tokens but in `step`.
    [[nodiscard]] std::set<std::string> sizes_in(Phase which) const {
        std::set<std::string> symbols;
        const auto add = [&](const Shape& shape) {
            for (const Dim& d : shape) symbols.insert(d.symbol);
        };
        for (const InputDecl& in : def_.inputs) add(phase_type(in).shape);
        for (const StateDecl& s : def_.states) add(s.type.shape);
        for (const OutputDecl& o : def_.outputs) add(phase_type(o).shape);
        if (which == Phase::Step) symbols.erase(kChunkSymbol);
        else symbols.insert(kChunkSymbol);
        symbols.insert("");  // numbers have none
        return symbols;
    }

    void sizes(const Function& fn, const Op& op, const std::set<std::string>& known) {
        std::vector<std::string> symbols;
        for (const Dim& d : op.type.shape) symbols.push_back(d.symbol);
        if (op.code == Opcode::Size) symbols.push_back(op.attrs.name);
        const auto unknown = std::find_if(symbols.begin(), symbols.end(),
                                          [&](const std::string& symbol) { return !known.contains(symbol); });
        if (unknown != symbols.end())
            report(op.where, fmt::format("{}: {}: no axis has the size '{}'", fn.name, info(op.code).name, *unknown),
                   "a size of an input, state or output", to_string(op.type));
    }

    void phase(const Function& fn, Phase which) {
        const std::set<std::string> known = sizes_in(which);
        for (const Op& op : fn.ops) {
            sizes(fn, op, known);
            if (op.code == Opcode::Param) parameter(fn, op, which);
            if ((op.code == Opcode::LinearScan && (op.attrs.reverse || op.attrs.exclusive)) ||
                (op.code == Opcode::DecayApply && op.attrs.reverse))
                report(op.where,
                       fmt::format("{}: {}: from the last token to the first, or before each", fn.name,
                                   info(op.code).name),
                       "a scan from the first token on; the compiler makes others, for gradients", to_string(op.type));
            if (op.code == Opcode::Inverse && triangle_of(fn, op.args[0]) != Triangle::UnitLower)
                report(op.where, fmt::format("{}: inverse: the matrix is not provably unit lower-triangular", fn.name),
                       "identity(x, n) + tril(a, -1), or - instead of +", to_string(fn.op(op.args[0]).type));
            if (op.code == Opcode::PrevToken &&
                (fn.op(op.args[0]).code != Opcode::Param || fn.op(op.args[0]).attrs.role != Role::Input))
                report(op.where, fmt::format("{}: prev_token: only of an input", fn.name), "a param with role=input",
                       info(fn.op(op.args[0]).code).name);
        }
        results(fn, which);
    }

    void parameter(const Function& fn, const Op& op, Phase which) {
        const std::optional<Type> declared = declared_type(op.attrs, which);
        const std::string what = fmt::format("{}: {} '{}'", fn.name, to_string(op.attrs.role), op.attrs.name);
        if (!declared)
            report(op.where, what + " is not known here", "what the definition declares, or an earlier phase made",
                   "'" + op.attrs.name + "'");
        else if (*declared != op.type)
            report(op.where, what + " has another type than declared", to_string(*declared), to_string(op.type));
    }

    /// The type that a parameter must have; nothing if the phase cannot see it.
    [[nodiscard]] std::optional<Type> declared_type(const Attrs& attrs, Phase which) const {
        const InputDecl* in = def_.input(attrs.name);
        const StateDecl* state = def_.state(attrs.name);
        switch (attrs.role) {
            case Role::Input:
            case Role::Head:
            case Role::Scalar:
                if (!in || in->role != attrs.role) return std::nullopt;
                return which == Phase::Step ? exact(step_type(*in)) : phase_type(*in);
            case Role::Mask:
                if (attrs.name != kTokenMaskName) return std::nullopt;
                return Type{DType::F32, which == Phase::Step ? Shape{} : Shape{Dim(kChunkSymbol)}};
            case Role::State:
                if (!state || which == Phase::Chunk) return std::nullopt;
                return state->type;
            case Role::Chunk:
                if (!state || which != Phase::Decay) return std::nullopt;
                return state->type;
            case Role::Cached:
                return cached_type(attrs.name, which);
            case Role::Shifted:
            case Role::Ones:
            case Role::Eye:
            case Role::Spill:
            case Role::Before:
            case Role::After:
                return std::nullopt;  // of joined programs and kernels
        }
        return std::nullopt;
    }

    /// The specification sees 16-bit inputs in float32.
    static Type exact(Type type) {
        if (is_half(type.dtype)) type.dtype = DType::F32;
        return type;
    }

    [[nodiscard]] std::optional<Type> cached_type(const std::string& name, Phase which) const {
        std::vector<const Function*> earlier;
        if (which == Phase::Decay || which == Phase::Merge) earlier.push_back(&def_.chunk);
        if (which == Phase::Merge) earlier.push_back(&def_.decay);
        for (const Function* fn : earlier)
            if (const ValueId v = fn->result(name, Role::Cached); v != kNoValue) return fn->op(v).type;
        return std::nullopt;
    }

    void results(const Function& fn, Phase which) {
        const Role state_role = which == Phase::Chunk ? Role::Chunk : Role::State;
        if (which != Phase::Merge)
            for (const StateDecl& s : def_.states) made(fn, s.name, state_role, &s.type.shape);
        if (which == Phase::Merge || which == Phase::Step)
            for (const OutputDecl& o : def_.outputs) {
                const Shape shape = phase_type(o).shape;
                made(fn, o.name, Role::Input,
                     which == Phase::Merge ? &shape : nullptr);  // a step's outputs have no token axis
            }
        for (const Result& r : fn.results) {
            const bool known =
                r.role == Role::Cached || (r.role == state_role && which != Phase::Merge && def_.state(r.name)) ||
                (r.role == Role::Input && (which == Phase::Merge || which == Phase::Step) && def_.output(r.name));
            if (!known)
                report(fn.op(r.value).where,
                       fmt::format("{}: returns {} '{}', which is not declared", fn.name, to_string(r.role), r.name),
                       "", "");
        }
    }

    void made(const Function& fn, const std::string& name, Role role, const Shape* shape) {
        const ValueId v = fn.result(name, role);
        if (v == kNoValue)
            report(def_.where, fmt::format("{}: {} '{}' is not returned", fn.name, to_string(role), name), "a result",
                   "nothing");
        else if (shape && fn.op(v).type.shape != *shape)
            report(fn.op(v).where,
                   fmt::format("{}: {} '{}' has another shape than declared", fn.name, to_string(role), name),
                   forge::to_string(*shape), forge::to_string(fn.op(v).type.shape));
    }

    const Definition& def_;
    std::vector<Diagnostic> found_;
};

class NameChecker {
  public:
    std::vector<Diagnostic> run(const Definition& def) {
        name("definition", def.name, def.where);
        for (const InputDecl& in : def.inputs) {
            name("input", in.name, in.where), shape(in.type.shape, in.where);
            constant(in.pad, fmt::format("input '{}': pad", escaped(in.name)), in.where);
        }
        for (const StateDecl& s : def.states) name("state", s.name, s.where), shape(s.type.shape, s.where);
        for (const OutputDecl& o : def.outputs) name("output", o.name, o.where), shape(o.type.shape, o.where);
        for (const Function* fn : {&def.chunk, &def.decay, &def.merge}) function(*fn);
        if (def.step) function(*def.step);
        for (Diagnostic& fault : declaration_faults(def)) found_.push_back(std::move(fault));
        return std::move(found_);
    }

  private:
    void report(std::string what, std::string expected, const std::string& got, const Location& where) {
        found_.push_back({std::move(what), std::move(expected), fmt::format("'{}'", escaped(got)), where, ""});
    }
    void name(const char* of, const std::string& text, const Location& where) {
        if (!is_identifier(text))
            report(fmt::format("{}: not a name", of), "letters, digits and _, no digit first", text, where);
    }
    void shape(const Shape& dims, const Location& where) {
        for (const Dim& d : dims)
            if (!d.is_constant()) name("size", d.symbol, where);
    }
    void constant(double value, const std::string& what, const Location& where) {
        if (std::isfinite(value) && std::fabs(value) > std::numeric_limits<float>::max())
            report(what + ": beyond float32's range", "at most 3.4e38", fmt::format("{}", value), where);
    }
    void identity(const Type& type, const Location& where) {
        if (type.rank() != 2 || !(type.shape[0] == type.shape[1]) || !is_float(type.dtype))
            report("identity: not a square matrix", "as many rows as columns, of floating-point numbers",
                   to_string(type), where);
    }
    void function(const Function& fn) {
        for (const Op& op : fn.ops) {
            shape(op.type.shape, op.where);
            if (info(op.code).attributes & kName) name(info(op.code).name, op.attrs.name, op.where);
            if (op.code == Opcode::Constant) constant(op.attrs.value, "constant", op.where);
            if (op.code == Opcode::Identity) identity(op.type, op.where);
        }
        for (const Result& r : fn.results) name("result", r.name, fn.op(r.value).where);
    }

    std::vector<Diagnostic> found_;
};

}  // namespace

std::vector<Diagnostic> declaration_faults(const Definition& def) {
    std::vector<Diagnostic> found;
    std::set<std::string> seen = {kTokenMaskName};
    const auto look = [&](const auto& declared) {
        for (const auto& d : declared)
            if (!seen.insert(d.name).second)
                found.push_back(
                    {fmt::format("'{}' is declared twice", escaped(d.name)), "a name of its own", "", d.where, ""});
        for (const auto& d : declared)
            if (!has_extents(d.type.shape))
                found.push_back({fmt::format("'{}': an axis of no size", escaped(d.name)),
                                 fmt::format("1 to {}", kMostExtent), forge::to_string(d.type.shape), d.where, ""});
    };
    look(def.inputs), look(def.states), look(def.outputs);
    const auto count_axes = [&](const auto& d, bool tokens, bool heads) {
        // Rows per token are an axis of what prev_token carries.
        const bool rows = tokens && d.type.rank() > 0 && d.type.shape[0].factor > 1;
        if (d.type.rank() - (tokens ? 1 : 0) - (heads ? 1 : 0) + (rows ? 1 : 0) > kMostAxes)
            found.push_back({fmt::format("'{}': too many axes", escaped(d.name)),
                             fmt::format("at most {} beside tokens and heads", kMostAxes),
                             forge::to_string(d.type.shape), d.where, "make one axis of two"});
    };
    for (const InputDecl& in : def.inputs) count_axes(in, in.role == Role::Input, in.role != Role::Scalar);
    for (const OutputDecl& out : def.outputs) count_axes(out, true, true);
    for (const StateDecl& s : def.states) count_axes(s, false, false);
    return found;
}

std::vector<Diagnostic> check_names_and_constants(const Definition& def) { return NameChecker().run(def); }

std::vector<Diagnostic> verify(const Definition& def) { return Verifier(def).run(); }

}  // namespace forge::ir
