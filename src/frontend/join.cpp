#include "frontend/join.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "forge/error.h"

namespace forge::frontend {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

class Joiner {
  public:
    explicit Joiner(const ir::Definition& def) { program_.name = def.name; }

    /// Appends a phase and remembers its results for the phases that follow.
    void append(const Function& phase) {
        std::vector<ValueId> map;
        for (const Op& op : phase.ops) map.push_back(append(phase, op, map));
        for (const ir::Result& r : phase.results) made_[{r.role, r.name}] = map[static_cast<std::size_t>(r.value)];
    }

    Function finish(const ir::Definition& def) {
        for (const auto& o : def.outputs) add_result(o.name, Role::Input);
        for (const auto& s : def.states) add_result(s.name, Role::State);
        return std::move(program_);
    }

  private:
    /// What the phases do not make is made by no phase: gradients, of a definition that has tensors for them.
    void add_result(const std::string& name, Role role) {
        const auto made = made_.find({role, name});
        if (made != made_.end()) program_.results.push_back({name, role, made->second});
    }

    ValueId append(const Function& phase, const Op& op, const std::vector<ValueId>& map) {
        if (op.code == Opcode::Param) return param(op);
        if (op.code == Opcode::PrevToken) {
            Op shifted = phase.op(op.args[0]);
            shifted.attrs.role = Role::Shifted;
            shifted.name = "prev_" + shifted.attrs.name;
            return param(shifted);
        }
        Op copy = op;
        for (ValueId& a : copy.args) a = map[static_cast<std::size_t>(a)];
        return program_.add(std::move(copy));
    }

    ValueId param(const Op& op) {
        const std::pair key{op.attrs.role, op.attrs.name};
        if (op.attrs.role == Role::Chunk || op.attrs.role == Role::Cached) {
            const auto made = made_.find(key);
            if (made == made_.end())
                throw InternalError(fmt::format("join: '{}' is used before it is made", op.attrs.name));
            return made->second;
        }
        const auto [it, fresh] = params_.try_emplace(key, ir::kNoValue);
        if (fresh) {
            it->second = program_.add(op);
            if (op.attrs.role == Role::State) program_.op(it->second).name = "prev_" + op.attrs.name;
        }
        return it->second;
    }

    Function program_;
    std::map<std::pair<Role, std::string>, ValueId> params_, made_;
};

}  // namespace

Function join(const ir::Definition& def) {
    if (ir::is_sequential(def)) return join_step(def);
    Joiner joiner(def);
    for (const Function* phase : {&def.chunk, &def.decay, &def.merge}) joiner.append(*phase);
    return joiner.finish(def);
}

ir::Definition with_dtype(ir::Definition def, DType dtype) {
    const auto replace = [dtype](DType& d) {
        if (is_half(d)) d = dtype;
    };
    for (auto& in : def.inputs) replace(in.type.dtype);
    for (auto& out : def.outputs) replace(out.type.dtype);
    const auto replace_all = [&](Function& fn) {
        for (Op& op : fn.ops) {
            replace(op.type.dtype);
            replace(op.attrs.dtype);
        }
    };
    for (Function* fn : {&def.chunk, &def.decay, &def.merge}) replace_all(*fn);
    if (def.step) replace_all(*def.step);
    return def;
}

}  // namespace forge::frontend
