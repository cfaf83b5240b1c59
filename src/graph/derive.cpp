#include "graph/derive.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "graph/derive_chunk.h"
#include "graph/derive_coupled.h"
#include "graph/derive_phases.h"
#include "graph/derive_rows_apart.h"
#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"
#include "ir/verify.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

/// `step` in one form: float32, rows of a token one by one, transposes as operations of their own, equal operations
/// once.
Function prepared(const Function& step, const ir::Definition& def) {
    const Function plain =
        ir::rebuild(widen(step), [](Function& out, const Op& op, std::vector<ValueId> args) -> ValueId {
            if (op.code != Opcode::Matmul || (!op.attrs.trans_a && !op.attrs.trans_b))
                return ir::keep(out, op, std::move(args));
            ir::Attrs swap;
            swap.perm = {1, 0};
            if (op.attrs.trans_a) args[0] = ir::emit(out, Opcode::Permute, {args[0]}, swap, op.where);
            if (op.attrs.trans_b) args[1] = ir::emit(out, Opcode::Permute, {args[1]}, swap, op.where);
            return ir::emit(out, Opcode::Matmul, std::move(args), {}, op.where, op.name);
        });
    return dce(cse(rows_apart(dce(cse(plain)), def)));
}

class Deriver {
  public:
    explicit Deriver(const ir::Definition& def)
        : def_(def), step_(prepared(*def.step, def)), writer_(def), rows_(step_, writer_) {
        reads_.resize(step_.ops.size());
        for (ValueId v = 0; v < step_.size(); ++v) {
            const Op& op = step_.op(v);
            if (op.code == Opcode::Param && op.attrs.role == Role::State) reads_of(v).insert(op.attrs.name);
            for (const ValueId a : op.args) reads_of(v).insert(reads_of(a).begin(), reads_of(a).end());
        }
        for (const ir::StateDecl& s : def.states)
            for (ValueId v = 0; v < step_.size(); ++v)
                if (step_.op(v).code == Opcode::Param && step_.op(v).attrs.role == Role::State &&
                    step_.op(v).attrs.name == s.name)
                    params_[s.name] = v;
    }

    ir::Definition run() {
        std::map<std::string, Derived> made;
        for (const std::vector<const ir::StateDecl*>& group : in_order()) {
            if (group.size() == 1) solve(*group[0]);
            else solve_together(group);
            for (const ir::StateDecl* s : group) solved_in_order_.push_back(s->name);
            for (const ir::StateDecl* s : group) {
                const ChunkResult r = solved_.at(s->name).result(s->name);
                made[s->name] = {r.next, r.contribution};
            }
        }
        std::vector<std::pair<std::string, ValueId>> outputs;
        for (const ir::OutputDecl& o : def_.outputs) outputs.emplace_back(o.name, output(o));
        ir::Definition result = def_;
        std::vector<Derived> states;
        for (const ir::StateDecl& s : def_.states) states.push_back(made.at(s.name));
        cut_into_phases(writer_.fn, states, outputs, result);
        if (auto found = ir::verify(result); !found.empty()) throw CompileError(std::move(found));
        return result;
    }

  private:
    std::set<std::string>& reads_of(ValueId v) { return reads_[static_cast<std::size_t>(v)]; }
    [[nodiscard]] bool reads(ValueId v, const std::string& state) const {
        return reads_[static_cast<std::size_t>(v)].contains(state);
    }

    /// What forms of one state take for granted: everything that does not read it.
    class Known final : public KnownValues {
      public:
        Known(Deriver& deriver, std::vector<std::string> states) : deriver_(deriver), states_(std::move(states)) {}
        [[nodiscard]] bool is_known(ValueId v) const override {
            return std::none_of(states_.begin(), states_.end(), [&](const auto& s) { return deriver_.reads(v, s); });
        }
        TokenRow known(ValueId v) override { return deriver_.value(v); }

      private:
        Deriver& deriver_;
        std::vector<std::string> states_;
    };

    /// A state whose values over the chunk are known.
    struct Solved {
        std::unique_ptr<Known> known;
        std::unique_ptr<StateForms> forms;
        std::unique_ptr<MatrixChunk> matrix;
        std::unique_ptr<TokenStates> values;
        std::shared_ptr<CoupledChunk> coupled;  ///< which its members share
        ChunkResult result(const std::string& state) {
            return coupled ? coupled->result(state) : matrix ? matrix->result() : values->result();
        }
        TokenRow read(ValueId v) {
            const ReadForm form = forms->read(v);
            const Read& read = form.reads[0];
            return coupled ? coupled->read(read.key, *read.of) : matrix->read(read.key, *read.of);
        }
        TokenRow read_across(ValueId v) {
            const Read read = forms->across(v);
            return matrix->read_across(read.key, *read.of);
        }
    };

    ValueId after(const std::string& state) const { return step_.result(state, Role::State); }

    /// States after those that they read, and together those that need one another or are added to one another whole.
    std::vector<std::vector<const ir::StateDecl*>> in_order() {
        std::vector<std::vector<const ir::StateDecl*>> groups;
        for (const ir::StateDecl& s : def_.states) {
            std::vector<const ir::StateDecl*> group;
            for (auto it = groups.begin(); it != groups.end();) {
                const bool together = std::any_of(it->begin(), it->end(), [&](const ir::StateDecl* other) {
                    return are_together(s, *other) || are_together(*other, s);
                });
                if (together) group.insert(group.end(), it->begin(), it->end());
                it = together ? groups.erase(it) : it + 1;
            }
            group.push_back(&s);
            groups.push_back(std::move(group));
        }
        std::vector<std::vector<const ir::StateDecl*>> order;
        std::set<std::string> done;
        while (!groups.empty()) {
            const auto ready = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
                return std::all_of(group.begin(), group.end(), [&](const ir::StateDecl* s) {
                    const std::set<std::string>& needs = reads_of(after(s->name));
                    return std::all_of(needs.begin(), needs.end(), [&](const std::string& n) {
                        return done.contains(n) || std::any_of(group.begin(), group.end(),
                                                               [&](const ir::StateDecl* o) { return o->name == n; });
                    });
                });
            });
            if (ready == groups.end()) {
                const std::string& name = groups[0][0]->name;
                throw CompileError(Diagnostic{
                    fmt::format("derive: the state '{}' and others need one another's values before a token", name),
                    "states of which each reads itself and those that do not read it, or matrices", "",
                    step_.op(after(name)).where, "write the phases chunk, decay and merge by hand"});
            }
            for (const ir::StateDecl* s : *ready) done.insert(s->name);
            order.push_back(std::move(*ready));
            groups.erase(ready);
        }
        return order;
    }

    /// Whether matrix `s` takes `other` whole, or both read one another.
    bool are_together(const ir::StateDecl& s, const ir::StateDecl& other) {
        if (wide_axes(s.type.shape).size() != 2 || wide_axes(other.type.shape).size() != 2) return false;
        return reads(after(s.name), other.name) && (reads(after(other.name), s.name) || takes(s, other));
    }

    /// Whether `other`, a matrix, stands whole in what `s` becomes, not only in what is read of it.
    bool takes(const ir::StateDecl& s, const ir::StateDecl& other) {
        Known known(*this, {other.name});
        const StateForms rows(step_, writer_, known, other.name, other.type.shape, 0),
            columns(step_, writer_, known, other.name, other.type.shape, 1);
        std::vector<int> seen(step_.ops.size(), 0);
        const auto whole = [&](auto&& self, ValueId v) -> bool {
            if (!reads(v, other.name) || rows.is_read(v) || columns.is_read(v)) return false;
            if (v == params_.at(other.name) || v == after(other.name)) return true;
            if (seen[static_cast<std::size_t>(v)]++ > 0) return false;
            const Op& op = step_.op(v);
            return std::any_of(op.args.begin(), op.args.end(), [&](ValueId a) { return self(self, a); });
        };
        return whole(whole, after(s.name));
    }

    void solve_together(std::vector<const ir::StateDecl*> group) {
        // Those that take no other whole first.
        std::stable_sort(group.begin(), group.end(), [&](const ir::StateDecl* a, const ir::StateDecl* b) {
            return takes(*b, *a) && !takes(*a, *b);
        });
        std::vector<std::string> names;
        for (const ir::StateDecl* s : group) names.push_back(s->name);
        std::optional<CompileError> first;
        for (const int key_axis : {0, 1}) {
            try {
                std::map<std::string, Solved> solved;
                std::vector<CoupledChunk::Member> members;
                for (const ir::StateDecl* s : group) {
                    Solved& one = solved[s->name];
                    std::map<ValueId, std::string> others;
                    for (const ir::StateDecl* o : group)
                        if (o != s) others[after(o->name)] = o->name;
                    one.known = std::make_unique<Known>(*this, names);
                    one.forms = std::make_unique<StateForms>(step_, writer_, *one.known, s->name, s->type.shape,
                                                             key_axis, std::move(others));
                    members.push_back({s, one.forms->state(after(s->name))});
                }
                const auto chunk = std::make_shared<CoupledChunk>(writer_, members, key_axis);
                for (const ir::StateDecl* s : group) {
                    check_reads(s->name, *solved[s->name].forms, false, names);
                    solved[s->name].coupled = chunk;
                }
                for (auto& [name, one] : solved) solved_[name] = std::move(one);
                return;
            } catch (const CompileError& refused) {
                if (!first) first = refused;
            }
        }
        throw *first;
    }

    /// Whether everything outside reads the state through contractions only, of which there is one.
    bool is_contracted(const std::string& state, const StateForms& forms) {
        bool contracted = false;
        std::vector<int> seen(step_.ops.size(), 0);
        const auto whole = [&](auto&& self, ValueId v) -> bool {
            if (!reads(v, state)) return false;
            if (forms.is_read(v)) {
                contracted = true;
                return false;
            }
            if (v == after(state) || v == params_.at(state)) return true;
            if (seen[static_cast<std::size_t>(v)]++ > 0) return false;
            const Op& op = step_.op(v);
            return std::any_of(op.args.begin(), op.args.end(), [&](ValueId a) { return self(self, a); });
        };
        for (const ir::Result& r : step_.results)
            if ((r.role != Role::State || r.name != state) && whole(whole, r.value)) return false;
        return contracted;
    }

    void solve(const ir::StateDecl& s) {
        const std::size_t rank = wide_axes(s.type.shape).size();
        std::optional<CompileError> first;
        // Reads along the axis of values cost more: only where there is no other way.
        for (const bool across : {false, true})
            for (int key_axis = 0; key_axis < static_cast<int>(rank) && rank <= 2; ++key_axis) {
                if (across && rank == 1) break;
                Solved solved;
                solved.known = std::make_unique<Known>(*this, std::vector{s.name});
                solved.forms =
                    std::make_unique<StateForms>(step_, writer_, *solved.known, s.name, s.type.shape, key_axis);
                if (rank == 1 && !is_contracted(s.name, *solved.forms)) break;
                try {
                    solved.matrix =
                        std::make_unique<MatrixChunk>(writer_, s, key_axis, solved.forms->state(after(s.name)));
                    check_reads(s.name, *solved.forms, across);
                    solved_[s.name] = std::move(solved);
                    return;
                } catch (const NegativeFactor&) {
                    if (rank == 2) throw;
                    break;
                } catch (const CompileError& refused) {
                    if (!first) first = refused;
                }
            }
        Solved solved;
        solved.known = std::make_unique<Known>(*this, std::vector{s.name});
        try {
            solved.values = std::make_unique<ElementwiseChunk>(step_, writer_, *solved.known, s, after(s.name));
        } catch (const CompileError& refused) {
            if (!first) first = refused;
            try {
                solved.values = std::make_unique<MaximumChunk>(step_, writer_, *solved.known, s, after(s.name));
            } catch (const CompileError&) {
                throw *first;
            }
        }
        solved_[s.name] = std::move(solved);
    }

    /// That outputs and other states read the state along the axis of its keys, or `across` it too.
    void check_reads(const std::string& state, StateForms& forms, bool across,
                     const std::vector<std::string>& within = {}) {
        std::vector<int> seen(step_.ops.size(), 0);
        const auto visit = [&](auto&& self, ValueId v) -> void {
            if (!reads(v, state) || forms.is_read(v) || seen[static_cast<std::size_t>(v)]++ > 0) return;
            if (across && forms.is_read_across(v)) return;
            const Op& op = step_.op(v);
            if (v == after(state) || op.code == Opcode::Param)
                throw CompileError(Diagnostic{
                    fmt::format("derive: the state '{}' is used whole, or read along the axis that is written", state),
                    "reads of it with a key: matmul(key, state)", "", op.where,
                    "write the phases chunk, decay and merge by hand"});
            for (const ValueId a : op.args) self(self, a);
        };
        for (const ir::Result& r : step_.results)
            if (r.role != Role::State || (r.name != state && !std::count(within.begin(), within.end(), r.name)))
                visit(visit, r.value);
    }

    /// A value of `step` for all tokens, where the states that it reads are solved.
    TokenRow value(ValueId v) {
        if (const auto known = values_.find(v); known != values_.end()) return known->second;
        return values_[v] = made(v);
    }

    TokenRow made(ValueId v) {
        const Op& op = step_.op(v);
        for (const std::string& name : reads_of(v))
            if (!solved_.contains(name))
                throw CompileError(Diagnostic{
                    fmt::format("derive: {} needs the state '{}' before it is there", ir::info(op.code).name, name),
                    "states that follow one from the other", "", op.where, ""});
        // Of several states the one that was solved last: its forms know the others.
        for (auto last = solved_in_order_.rbegin(); last != solved_in_order_.rend(); ++last) {
            const std::string& name = *last;
            if (!reads(v, name)) continue;
            Solved& s = solved_.at(name);
            if (s.values && v == after(name)) return s.values->after();
            if (s.values && v == params_.at(name)) return s.values->before();
            if (s.forms && s.forms->is_read(v)) return s.read(v);
            if (s.matrix && s.forms->is_read_across(v)) return s.read_across(v);
        }
        if (op.code == Opcode::Param && op.attrs.role == Role::State)
            throw CompileError(
                Diagnostic{fmt::format("derive: the matrix '{}' is used whole for every token", op.attrs.name),
                           "reads of it with a key: matmul(key, state)", "", op.where, ""});
        std::vector<TokenRow> args;
        for (const ValueId a : op.args) args.push_back(value(a));
        return rows_.operation(v, args);
    }

    ValueId output(const ir::OutputDecl& declared) {
        const ValueId v = step_.result(declared.name, Role::Input);
        const Shape wanted = ir::phase_type(declared).shape;
        const std::int64_t count = wanted[0].factor;
        const Op& op = step_.op(v);
        Shape per_token{wanted.begin() + 1, wanted.end()};
        if (count > 1) per_token.insert(per_token.begin(), Dim(count));
        if (op.type.shape != per_token)
            throw CompileError(
                Diagnostic{fmt::format("step: output '{}' has another shape than declared", declared.name),
                           to_string(per_token), to_string(op.type.shape), op.where, ""});
        ValueId rows = ir::kNoValue;
        if (count == 1) {
            rows = writer_.per_token(value(v));
        } else {
            const bool joined = (op.code == Opcode::Concat || op.code == Opcode::Interleave) && op.attrs.dim == 0 &&
                                static_cast<std::int64_t>(op.args.size()) == count;
            if (!joined)
                throw CompileError(
                    Diagnostic{fmt::format("derive: output '{}' has several rows per token", declared.name),
                               "stack({row, …}, 0) of its rows", ir::info(op.code).name, op.where, ""});
            std::vector<ValueId> parts;
            for (const ValueId a : op.args) parts.push_back(writer_.per_token(value(a)));
            rows = writer_.interleave(parts);
        }
        return as_declared(writer_, rows, {wanted.begin() + 1, wanted.end()}, 1);
    }

    const ir::Definition& def_;
    Function step_;
    ChunkWriter writer_;
    TokenRows rows_;
    std::vector<std::set<std::string>> reads_;  ///< the states that a value of `step` depends on
    std::map<std::string, ValueId> params_;
    std::map<std::string, Solved> solved_;
    std::vector<std::string> solved_in_order_;
    std::map<ValueId, TokenRow> values_;
};

}  // namespace

ir::Definition derive(const ir::Definition& def) {
    if (!def.step)
        throw CompileError(Diagnostic{fmt::format("derive: '{}' has no step", def.name),
                                      "step, the recurrence of one token", "", def.where, ""});
    return Deriver(def).run();
}

ir::Definition with_phases(ir::Definition def) {
    if (!ir::is_step_alone(def) || ir::is_sequential(def)) return def;
    ir::Definition made = derive(def);
    made.derived = true;
    return made;
}

}  // namespace forge::graph
