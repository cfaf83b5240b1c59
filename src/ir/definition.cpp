#include "ir/definition.h"

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
