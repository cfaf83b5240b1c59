#include "ir/definition.h"

#include <set>

namespace forge::ir {
namespace {

template <class Decl>
const Decl* find(const std::vector<Decl>& list, const std::string& name) {
    for (const Decl& d : list)
        if (d.name == name) return &d;
    return nullptr;
}

Dim chunk_axis(Dim token_axis) {
    token_axis.symbol = kChunkSymbol;
    return token_axis;
}

}  // namespace

const InputDecl* Definition::input(const std::string& wanted) const { return find(inputs, wanted); }
const StateDecl* Definition::state(const std::string& wanted) const { return find(states, wanted); }
const OutputDecl* Definition::output(const std::string& wanted) const { return find(outputs, wanted); }

bool is_step_alone(const Definition& def) {
    return def.step && def.chunk.ops.empty() && def.decay.ops.empty() && def.merge.ops.empty();
}

bool is_sequential(const Definition& def) { return def.fixed_chunk == 1 && is_step_alone(def); }

bool is_chunk_size(std::int64_t tokens) { return tokens == 16 || tokens == 32 || tokens == 64 || tokens == 128; }

std::vector<LastRows> last_rows(const Definition& def) {
    std::set<std::string> read;
    const auto look = [&](const Function& fn) {
        for (const Op& op : fn.ops)
            if (op.code == Opcode::PrevToken) read.insert(fn.op(op.args[0]).attrs.name);
    };
    look(def.chunk), look(def.decay), look(def.merge);
    if (def.step) look(*def.step);
    std::vector<LastRows> found;
    for (const InputDecl& in : def.inputs)  // the verifier refuses what has no tokens and heads
        if (read.contains(in.name) && in.role == Role::Input && in.type.shape.size() >= 2)
            found.push_back({"last_" + in.name, in.name, {DType::F32, step_type(in).shape}, in.type.shape[1]});
    return found;
}

std::vector<Diagnostic> last_rows_conflicts(const Definition& def) {
    std::vector<Diagnostic> found;
    for (const LastRows& last : last_rows(def)) {
        const InputDecl* in = def.input(last.name);
        const StateDecl* state = def.state(last.name);
        if (!in && !state) continue;
        found.push_back(
            {"'" + last.name + "' is declared, and the state that prev_token carries of '" + last.input + "'",
             "a name of its own", "", in ? in->where : state->where, ""});
    }
    return found;
}

std::string prev_name(const Definition& /*def*/, const StateDecl& state) { return "prev_" + state.name; }

std::string chunk_name(const Definition& def, const StateDecl& state) {
    return def.states.size() == 1 ? "chunk_state" : "chunk_" + state.name;
}

Type phase_type(const InputDecl& input) {
    Type t = input.type;
    if (input.role == Role::Input) {
        t.shape[0] = chunk_axis(t.shape[0]);
        t.shape.erase(t.shape.begin() + 1);
    } else if (input.role == Role::Head) {
        t.shape.erase(t.shape.begin());
    }
    return t;
}

Type step_type(const InputDecl& input) {
    Type t = phase_type(input);
    if (input.role != Role::Input) return t;
    if (t.shape[0].factor == 1) t.shape.erase(t.shape.begin());
    else t.shape[0] = Dim(t.shape[0].factor);  // n rows per token
    return t;
}

Type phase_type(const OutputDecl& output) {
    Type t = output.type;
    t.shape[0] = chunk_axis(t.shape[0]);
    t.shape.erase(t.shape.begin() + 1);
    return t;
}

}  // namespace forge::ir
