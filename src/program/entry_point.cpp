#include "program/entry_point.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <sstream>

#include "forge/error.h"
#include "frontend/join.h"
#include "graph/gradient.h"
#include "graph/pipeline.h"
#include "ir/infer.h"
#include "ir/rebuild.h"
#include "program/backward.h"

namespace forge::program {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

/// A type of a chunk of one token.
ir::Type of_one_token(ir::Type type) {
    for (Dim& d : type.shape)
        if (d.symbol == ir::kChunkSymbol) d = Dim(d.factor);
    return type;
}

/// A parameter of `step` that has a value per token, as the rows of a chunk of one token.
ValueId token_parameter(Function& out, const Op& op, Role role, const ir::InputDecl& input) {
    Op param = op;
    param.type = of_one_token(ir::phase_type(input));
    param.attrs.role = role;
    if (role == Role::Shifted) param.name = "prev_" + param.attrs.name;
    const ValueId rows = out.add(std::move(param));
    if (input.type.shape[0].factor > 1) return rows;  // `step` has several rows as a chunk does
    return ir::emit(out, Opcode::Squeeze, {rows}, Attrs{}, op.where);
}

/// A token's output as such rows.
ValueId as_rows(Function& out, ValueId v, const ir::OutputDecl& output) {
    if (output.type.shape[0].factor > 1) return v;
    const Op op = out.op(v);
    return ir::emit(out, Opcode::Unsqueeze, {v}, Attrs{}, op.where, op.name);
}

/// `step` in the form of the joined phases, for chunks of one token.
Function step_of_chunks(const ir::Definition& def) {
    const Function& step = *def.step;
    Function out = ir::rebuild(step, [&](Function& fn, const Op& op, std::vector<ValueId> args) -> ValueId {
        const bool shifted = op.code == Opcode::PrevToken;
        const Op& param = shifted ? step.op(op.args[0]) : op;
        if (shifted || (op.code == Opcode::Param && op.attrs.role == Role::Input))
            return token_parameter(fn, param, shifted ? Role::Shifted : Role::Input, *def.input(param.attrs.name));
        if (op.code == Opcode::Param && op.attrs.role == Role::Mask)
            return ir::emit_constant(fn, 1, op.where);  // a chunk of one token has no padding
        return ir::keep(fn, op, std::move(args));
    });
    out.name = def.name;
    const std::vector<ir::Result> results = std::exchange(out.results, {});
    for (const Role role : {Role::Input, Role::State})  // outputs first, as in the joined phases
        for (ir::Result r : results) {
            if (r.role != role) continue;
            if (role == Role::Input) r.value = as_rows(out, r.value, *def.output(r.name));
            out.results.push_back(std::move(r));
        }
    return out;
}

template <class Join>
EntryPoint entry(std::string name, Join&& join, std::int64_t chunk, const ir::Definition& def,
                 const ir::PassRunner& passes) {
    Function joined = passes.run(ir::Pass::Join, join);
    Function optimised = graph::optimize(joined, passes);
    return {std::move(name), std::move(joined), std::move(optimised), chunk, def};
}

const std::string kBackward = "backward", kBackwardOf = kBackward + " of ";

/// The inputs that a backward pass is asked for; nothing: all.
std::optional<std::set<std::string>> wanted(const std::string& entry, const ir::Definition& def) {
    if (entry == kBackward) return {};
    std::set<std::string> names;
    std::istringstream list(entry.substr(kBackwardOf.size()));
    for (std::string name; std::getline(list >> std::ws, name, ',');) {
        name.erase(name.find_last_not_of(' ') + 1);
        if (!def.input(name))
            throw RuntimeError(
                fmt::format("{}: entry: expected 'backward of' names of inputs, got '{}'", def.name, name));
        names.insert(name);
    }
    return names;
}

}  // namespace

EntryPoint forward(const ir::Definition& def, const ir::PassRunner& passes) {
    return entry("forward", [&] { return frontend::join(def); }, def.fixed_chunk, def, passes);
}

EntryPoint decode(const ir::Definition& def, const ir::PassRunner& passes) {
    if (!has_decode(def))
        throw RuntimeError(
            fmt::format("{}: entry: decode needs a step, as the phases depend on chunks of {} tokens; add a step",
                        def.name, def.fixed_chunk));
    return entry("decode", [&] { return def.step ? step_of_chunks(def) : frontend::join(def); }, 1, def, passes);
}

bool is_backward(const std::string& entry) { return entry == kBackward || entry.starts_with(kBackwardOf); }

EntryPoint backward(const ir::Definition& def, const ir::PassRunner& passes, const std::string& name) {
    const auto of = wanted(name, def);
    Backward made = backward_of(def, passes, of ? &*of : nullptr);
    return {name, std::move(made.program), std::move(made.adjoint), def.fixed_chunk, std::move(made.interface)};
}

ir::Definition tensors_of(const std::string& entry, const ir::Definition& def) {
    if (!is_backward(entry)) return def;
    const auto of = wanted(entry, def);
    return graph::gradient_interface(def, of ? &*of : nullptr);
}

EntryPoint entry_named(const std::string& name, const ir::Definition& def, const ir::PassRunner& passes) {
    if (name == "forward") return forward(def, passes);
    if (name == "decode") return decode(def, passes);
    if (is_backward(name)) return backward(def, passes, name);
    throw RuntimeError(
        fmt::format("entry: expected forward, decode, backward or 'backward of' inputs, got '{}'", name));
}

}  // namespace forge::program
