#include "graph/derive_phases.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "ir/infer.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

class Phases {
  public:
    Phases(const Function& program, const ir::Definition& def) : program_(program) {
        for (const auto& in : def.inputs) taken_.insert(in.name);
        for (const auto& s : def.states) taken_.insert({s.name, ir::prev_name(def, s), ir::chunk_name(def, s)});
        for (const auto& o : def.outputs) taken_.insert(o.name);
        taken_.insert(ir::kTokenMaskName);
        std::vector<ValueId> states;
        for (ValueId v = 0; v < program.size(); ++v)
            if (program.op(v).code == Opcode::Param && program.op(v).attrs.role == Role::State) states.push_back(v);
        reads_state_ = ir::depends_on(program, states);
    }

    [[nodiscard]] bool reads_state(ValueId v) const { return reads_state_[static_cast<std::size_t>(v)]; }

    void begin(const char* name) {
        phases_.push_back({});
        phases_.back().fn.name = name;
    }

    /// What this phase sees under another role than by computing it: contributions.
    void see(ValueId v, Op param) { phases_.back().made[v] = phases_.back().fn.add(std::move(param)); }

    ValueId make(ValueId v) {
        if (const auto it = phases_.back().made.find(v); it != phases_.back().made.end()) return it->second;
        const Op& op = program_.op(v);
        if (!is_cheap(op))
            for (std::size_t p = 0; p + 1 < phases_.size(); ++p)
                if (phases_[p].computed.contains(v)) return phases_.back().made[v] = cached(p, v);
        std::vector<ValueId> args;
        for (const ValueId a : op.args) args.push_back(make(a));
        Phase& now = phases_.back();
        now.computed.insert(v);
        Op copy = op;
        copy.args = std::move(args);
        return now.made[v] = now.fn.add(std::move(copy));
    }

    void result(const std::string& name, Role role, ValueId v) { phases_.back().fn.results.push_back({name, role, v}); }
    Function& current() { return phases_.back().fn; }
    Function take(std::size_t i) { return std::move(phases_[i].fn); }

  private:
    struct Phase {
        Function fn;
        std::map<ValueId, ValueId> made;
        std::set<ValueId> computed;
    };

    static bool is_cheap(const Op& op) {
        return op.code == Opcode::Param || op.code == Opcode::Constant || op.code == Opcode::PrevToken ||
               op.code == Opcode::To || op.code == Opcode::Identity || op.code == Opcode::Expand ||
               ir::is_view(op.code);
    }

    ValueId cached(std::size_t phase, ValueId v) {
        std::string& name = names_[v];
        if (name.empty()) {
            std::string base = program_.op(v).name;
            if (base.empty()) base = ir::info(program_.op(v).code).name;
            name = base;
            for (int n = 2; !taken_.insert(name).second; ++n) name = fmt::format("{}_{}", base, n);
            Function& fn = phases_[phase].fn;
            Attrs attrs;
            attrs.name = name;
            const ValueId made =
                ir::emit(fn, Opcode::CacheResult, {phases_[phase].made.at(v)}, attrs, program_.op(v).where, name);
            fn.results.push_back({name, Role::Cached, made});
        }
        Op param{Opcode::Param, program_.op(v).type, {}, {}, name, program_.op(v).where, std::nullopt};
        param.attrs.name = name;
        param.attrs.role = Role::Cached;
        return phases_.back().fn.add(std::move(param));
    }

    const Function& program_;
    std::vector<bool> reads_state_;
    std::vector<Phase> phases_;
    std::map<ValueId, std::string> names_;
    std::set<std::string> taken_;
};

}  // namespace

void cut_into_phases(const Function& program, const std::vector<Derived>& states,
                     const std::vector<std::pair<std::string, ValueId>>& outputs, ir::Definition& def) {
    Phases phases(program, def);
    phases.begin("chunk");
    std::vector<bool> contributes;
    for (std::size_t i = 0; i < states.size(); ++i) {
        const ir::StateDecl& s = def.states[i];
        const ValueId v = states[i].contribution;
        contributes.push_back(v != ir::kNoValue && !phases.reads_state(v) && program.op(v).type.shape == s.type.shape);
        if (contributes.back()) {
            phases.result(s.name, Role::Chunk, phases.make(v));
            continue;
        }
        Function& fn = phases.current();
        ValueId zero = ir::emit_constant(fn, 0, s.where);
        if (s.type.rank() > 0)
            zero = fn.add({Opcode::Expand, {DType::F32, s.type.shape}, {zero}, {}, "", s.where, std::nullopt});
        phases.result(s.name, Role::Chunk, zero);
    }
    phases.begin("decay");
    for (std::size_t i = 0; i < states.size(); ++i) {
        if (!contributes[i] || states[i].contribution == states[i].next) continue;
        Op param{
            Opcode::Param, def.states[i].type, {}, {}, ir::chunk_name(def, def.states[i]), def.states[i].where, {}};
        param.attrs.name = def.states[i].name;
        param.attrs.role = Role::Chunk;
        phases.see(states[i].contribution, std::move(param));
    }
    for (std::size_t i = 0; i < states.size(); ++i)
        phases.result(def.states[i].name, Role::State, phases.make(states[i].next));
    phases.begin("merge");
    for (const auto& [name, v] : outputs) phases.result(name, Role::Input, phases.make(v));
    def.chunk = phases.take(0);
    def.decay = phases.take(1);
    def.merge = phases.take(2);
}

}  // namespace forge::graph
