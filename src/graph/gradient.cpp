#include "graph/gradient.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/gradient_parts.h"
#include "graph/pullback.h"
#include "ir/infer.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::kNoValue;
using ir::Op;
using ir::Opcode;
using ir::Result;
using ir::Role;
using ir::Type;
using ir::ValueId;

Type float_type(Shape shape) { return {DType::F32, std::move(shape)}; }

/// The adjoint under construction: first the program's own ops, then their gradients from the last to the first.
class Adjoint {
  public:
    Adjoint(const Function& program, const ir::Definition& def, Unit unit, std::vector<bool> constant = {})
        : program_(program), def_(def), unit_(unit), constant_(std::move(constant)) {
        constant_.resize(program.ops.size());
        out_.name = program.name + "_gradient";
        for (const Op& op : program.ops) {
            Op copy = op;
            if (op.code == Opcode::Param && op.attrs.role == Role::State) copy.attrs.role = Role::Before;
            out_.add(std::move(copy));
        }
        gradients_.resize(program.ops.size());
    }

    Function run() {
        for (const Result& r : program_.results)
            if (r.role == Role::Input || r.role == Role::State) add(r.value, given(r));
        for (ValueId v = program_.size() - 1; v >= 0; --v) {
            const ValueId dy = constant_[static_cast<std::size_t>(v)] ? kNoValue : gradient_of(v);
            if (dy == kNoValue) continue;
            const Op op = program_.op(v);
            const std::vector<ValueId> parts = pullback(out_, op, v, dy);
            for (std::size_t i = 0; i < parts.size(); ++i)
                if (parts[i] != kNoValue) add(op.args[i], parts[i]);
        }
        file();
        return std::move(out_);
    }

  private:
    void file() {
        const std::vector<ir::LastRows> last = ir::last_rows(def_);
        for (const ir::InputDecl& in : def_.inputs)
            if (in.role == Role::Input) {
                const auto looked_back =
                    std::find_if(last.begin(), last.end(), [&](const auto& rows) { return rows.input == in.name; });
                file_input(in, looked_back == last.end() ? nullptr : &*looked_back);
            }
        for (const ir::StateDecl& state : def_.states) file_state(state);
        for (const ir::InputDecl& in : def_.inputs)
            if (in.role != Role::Input) file_sum(in);
    }

    /// Of an input's value as the program has it.
    [[nodiscard]] Type type_of(const ir::InputDecl& in) const {
        return unit_ == Unit::Token ? ir::step_type(in) : ir::phase_type(in);
    }

    ValueId emit(Opcode code, std::vector<ValueId> args, Attrs attrs = {}) {
        return ir::emit(out_, code, std::move(args), std::move(attrs));
    }

    ValueId param(const std::string& name, Role role, Shape shape) {
        Attrs attrs;
        attrs.name = name, attrs.role = role;
        return out_.add({Opcode::Param, float_type(std::move(shape)), {}, attrs, name, {}, std::nullopt});
    }

    ValueId given(const Result& r) { return param(grad_name(r.name), r.role, out_.op(r.value).type.shape); }

    void add(ValueId v, ValueId part) { gradients_[static_cast<std::size_t>(v)].push_back(part); }

    /// The sum of a value's parts, all of which have been found.
    ValueId gradient_of(ValueId v) {
        if (v == kNoValue) return kNoValue;
        std::vector<ValueId>& parts = gradients_[static_cast<std::size_t>(v)];
        if (parts.size() > 1) parts = {summed_parts(out_, program_, v, parts)};
        return parts.empty() ? kNoValue : parts[0];
    }

    ValueId zeros(const Shape& shape) {
        const ValueId zero = ir::emit_constant(out_, 0);
        if (shape.empty()) return zero;
        return out_.add({Opcode::Expand, float_type(shape), {zero}, {}, "", {}, std::nullopt});
    }

    /// The parameter of that name and role; of `step`, what prev_token makes of the input counts as the shifted one.
    [[nodiscard]] ValueId find(const std::string& name, Role role) const {
        for (ValueId v = 0; v < program_.size(); ++v) {
            const Op& op = program_.op(v);
            if (op.code == Opcode::Param && op.attrs.role == role && op.attrs.name == name) return v;
            if (op.code == Opcode::PrevToken && role == Role::Shifted && program_.op(op.args[0]).attrs.name == name)
                return v;
        }
        return kNoValue;
    }

    void file_state(const ir::StateDecl& state) {
        const ValueId d = gradient_of(find(state.name, Role::State));
        out_.results.push_back({grad_name(state.name), Role::State, d == kNoValue ? zeros(state.type.shape) : d});
    }

    /// What all tokens have a part in.
    void file_sum(const ir::InputDecl& in) {
        const std::string name = grad_name(in.name);
        const ValueId so_far = param(name, Role::State, type_of(in).shape), d = gradient_of(find(in.name, in.role));
        out_.results.push_back({name, Role::State, d == kNoValue ? so_far : emit(Opcode::Add, {so_far, d})});
    }

    void file_input(const ir::InputDecl& in, const ir::LastRows* looked_back) {
        ValueId d = gradient_of(find(in.name, Role::Input));
        if (looked_back) {
            const ValueId from_next = of_shifted(in, *looked_back);
            d = d == kNoValue ? from_next : emit(Opcode::Add, {d, from_next});
        }
        out_.results.push_back({grad_name(in.name), Role::Input, d == kNoValue ? zeros(type_of(in).shape) : d});
    }

    /// What a shifted input's gradient gives to the tokens themselves: each token has its successor's, a chunk's last
    /// one what the chunk behind it left in the state of the last rows.
    ValueId of_shifted(const ir::InputDecl& in, const ir::LastRows& rows_before) {
        const Shape shape = type_of(in).shape;
        const std::string last = grad_name(rows_before.name);
        ValueId d = gradient_of(find(in.name, Role::Shifted));
        if (d == kNoValue) d = zeros(shape);
        const std::int64_t rows = in.type.shape[0].factor;
        const ValueId behind = param(last, Role::State, rows_before.type.shape);
        if (unit_ == Unit::Token) {
            out_.results.push_back({last, Role::State, d});
            return behind;
        }
        return rows == 1 ? shifted_back(d, behind, last) : shifted_back_rows(d, behind, last, rows);
    }

    /// One row per token.
    ValueId shifted_back(ValueId d, ValueId behind, const std::string& last) {
        const Shape shape = out_.op(d).type.shape;
        Attrs of_first, front;
        of_first.start = 0, front.dim = 0;
        out_.results.push_back({last, Role::State, emit(Opcode::Select, {d}, of_first)});
        const ValueId next = next_rows(within(d)), is_last = along_rows(last_token(), shape);
        const ValueId rows = emit(Opcode::Unsqueeze, {behind}, front);
        return emit(Opcode::Where, {is_last, rows, next});
    }

    /// Several: each of a token's rows goes to the same row of the token before.
    ValueId shifted_back_rows(ValueId d, ValueId behind, const std::string& last, std::int64_t rows) {
        Attrs slice, join, select;
        slice.step = rows;
        std::vector<ValueId> firsts, shifted;
        for (slice.start = 0; slice.start < rows; ++slice.start) {
            const ValueId part = emit(Opcode::Slice, {d}, slice);
            const Shape shape = out_.op(part).type.shape;
            select.start = 0;
            firsts.push_back(emit(Opcode::Unsqueeze, {emit(Opcode::Select, {part}, select)}, join));
            select.start = slice.start;
            const ValueId row = emit(Opcode::Unsqueeze, {emit(Opcode::Select, {behind}, select)}, join);
            const ValueId next = next_rows(within(part));
            shifted.push_back(emit(Opcode::Where, {along_rows(last_token(), shape), row, next}));
        }
        out_.results.push_back({last, Role::State, emit(Opcode::Concat, firsts, join)});
        return emit(Opcode::Interleave, shifted, join);
    }

    ValueId token_mask() {
        if (const ValueId v = out_.param(ir::kTokenMaskName); v != kNoValue) return v;
        return param(ir::kTokenMaskName, Role::Mask, {Dim(ir::kChunkSymbol)});
    }

    /// Rows of tokens that are there; those of padding as 0.
    ValueId within(ValueId d) {
        const Shape shape = out_.op(d).type.shape;
        const ValueId there = emit(Opcode::Gt, {token_mask(), ir::emit_constant(out_, 0)});
        return emit(Opcode::Where, {along_rows(there, shape), d, ir::emit_constant(out_, 0)});
    }

    /// Whether a token is the last one of those that are there: none follows it.
    ValueId last_token() {
        Attrs from_end;
        from_end.reverse = true;
        return emit(Opcode::Eq, {emit(Opcode::Cumsum, {token_mask()}, from_end), ir::emit_constant(out_, 1)});
    }

    /// A value per token against rows of a shape.
    ValueId along_rows(ValueId v, const Shape& shape) {
        for (std::size_t i = 1; i < shape.size(); ++i) {
            Attrs at;
            at.dim = static_cast<std::int64_t>(i);
            v = emit(Opcode::Unsqueeze, {v}, at);
        }
        return v;
    }

    /// x[i + 1]: a scan from behind that forgets everything, before it takes the row in.
    ValueId next_rows(ValueId x) {
        Attrs before;
        before.reverse = before.exclusive = true;
        return emit(Opcode::LinearScan, {zeros(Shape(out_.op(x).type.shape)), x}, before);
    }

    const Function& program_;
    const ir::Definition& def_;
    Unit unit_;
    std::vector<bool> constant_;
    Function out_;
    std::vector<std::vector<ValueId>> gradients_;  ///< of the program's values, in parts
};

void check_names(const ir::Definition& def, const ir::Definition& interface) {
    std::vector<std::string> own;
    for (const auto& in : def.inputs) own.push_back(in.name);
    for (const auto& out : def.outputs) own.push_back(out.name);
    for (const auto& s : def.states) own.push_back(s.name);
    const auto taken = [&](const std::string& name) {
        if (!name.starts_with("grad_")) return;
        for (const std::string& used : own)
            if (used == name)
                throw CompileError(Diagnostic{fmt::format("'{}' is the name of a gradient", name), "another name", name,
                                              def.where, "rename it to differentiate the definition"});
    };
    for (const auto& in : interface.inputs) taken(in.name);
    for (const auto& out : interface.outputs) taken(out.name);
    for (const auto& s : interface.states) taken(s.name);
}

}  // namespace

std::string grad_name(const std::string& name) { return "grad_" + name; }

Function gradient(const Function& program, const ir::Definition& def, Unit unit) {
    return Adjoint(program, def, unit).run();
}

Function gradient_with_states(const Function& program, const ir::Definition& def, const ir::Definition& interface,
                              const std::vector<bool>& constant) {
    Function made = Adjoint(program, def, Unit::Chunk, constant).run();
    const auto names = [](const auto& list, const std::string& name) {
        return std::any_of(list.begin(), list.end(), [&](const auto& x) { return x.name == name; });
    };
    std::erase_if(made.results, [&](const Result& r) {
        return r.role == Role::Input ? !names(interface.outputs, r.name) : !names(interface.states, r.name);
    });
    for (const Result& r : program.results)  // its ops come first, with their numbers
        if (r.role == Role::State) made.results.push_back({r.name, Role::After, r.value});
    return made;
}

ir::Definition gradient_interface(const ir::Definition& def, const std::set<std::string>* of) {
    const auto wanted = [&](const ir::InputDecl& in) { return !of || of->contains(in.name); };
    ir::Definition made = def;
    made.outputs.clear();
    const Dim heads = def.outputs.front().type.shape[1];
    for (const auto& out : def.outputs)
        made.inputs.push_back({grad_name(out.name), Role::Input, out.type, 0, out.where});
    for (const auto& in : def.inputs) {
        if (in.role != Role::Input || !wanted(in)) continue;
        Type type = in.type;
        type.shape[1] = heads;
        made.outputs.push_back({grad_name(in.name), type, in.where});
    }
    for (const auto& s : def.states) made.states.push_back({grad_name(s.name), s.type, s.where});
    for (const auto& last : ir::last_rows(def)) made.states.push_back({grad_name(last.name), last.type, def.where});
    for (const auto& in : def.inputs) {
        if (in.role == Role::Input || !wanted(in)) continue;
        Type type = float_type(in.type.shape);
        if (in.role == Role::Head) type.shape.erase(type.shape.begin());
        made.states.push_back({grad_name(in.name), type, in.where});
    }
    check_names(def, made);
    return made;
}

ir::Definition without_gradients(const ir::Definition& interface) {
    ir::Definition def = interface;
    def.outputs.clear();
    std::set<std::string> given;
    for (const Result& r : interface.merge.results) {
        const ir::InputDecl* const in = interface.input(grad_name(r.name));
        if (r.role != Role::Input || !in) continue;
        def.outputs.push_back({r.name, in->type, in->where});
        given.insert(in->name);
    }
    std::erase_if(def.inputs, [&](const ir::InputDecl& in) { return given.contains(in.name); });
    const std::vector<ir::LastRows> last = ir::last_rows(interface);
    const auto is_of = [&](const auto& list, const ir::StateDecl& s) {
        return std::any_of(list.begin(), list.end(), [&](const auto& x) { return s.name == grad_name(x.name); });
    };
    std::erase_if(def.states, [&](const ir::StateDecl& s) {
        return is_of(interface.states, s) || is_of(interface.inputs, s) || is_of(last, s);
    });
    return def;
}

}  // namespace forge::graph
