// LinearAttention: declarations, and the tracing of the phases into an ir::Definition.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "frontend/trace.h"
#include "ir/definition.h"
#include "ir/verify.h"

namespace forge {

using ir::Role;

struct LinearAttention::Declared {
    struct PhaseDecl {
        std::vector<std::string> args;
        PhaseFn fn;
        std::size_t arity = 0;
        Location where;
    };
    ir::Definition decls;  ///< inputs, states and outputs only
    std::optional<PhaseDecl> phases[4];
};

namespace {

using frontend::Trace;
using Phase = LinearAttention::Phase;

const char* phase_name(Phase p) {
    switch (p) {
        case Phase::Chunk:
            return "chunk";
        case Phase::Decay:
            return "decay";
        case Phase::Merge:
            return "merge";
        case Phase::Step:
            return "step";
    }
    return "?";
}

void throw_if_any(std::vector<Diagnostic> diagnostics) {
    if (!diagnostics.empty()) throw CompileError(std::move(diagnostics));
}

/// Traces one phase of a definition whose earlier phases are already there.
class PhaseTracer {
  public:
    PhaseTracer(const ir::Definition& def, Phase which)
        : def_(def), which_(which), trace_(std::make_shared<Trace>(phase_name(which))) {}

    ir::Function run(const LinearAttention::Declared::PhaseDecl& decl) {
        if (decl.args.size() != decl.arity)
            throw CompileError(
                Diagnostic{fmt::format("{}: the function's parameters do not match the names", phase_name(which_)),
                           fmt::format("{} parameters, one per name", decl.args.size()), std::to_string(decl.arity),
                           decl.where, ""});
        std::vector<Tensor> args;
        for (const std::string& name : decl.args) args.push_back(argument(name, decl.where));
        take_results(decl.fn(args), decl.where);
        throw_if_any(std::move(trace_->diagnostics));
        return std::move(trace_->fn);
    }

  private:
    Tensor param(const std::string& shown, const std::string& name, Role role, ir::Type type, const Location& where) {
        if (which_ == Phase::Step && is_half(type.dtype)) type.dtype = DType::F32;  // the specification is exact
        ir::Attrs attrs;
        attrs.name = name;
        attrs.role = role;
        Tensor t = trace_->record(ir::Opcode::Param, {}, attrs, where, type);
        trace_->fn.op(t.id()).name = shown;
        return t;
    }

    Tensor argument(const std::string& name, const Location& where) {
        if (const ir::InputDecl* in = def_.input(name))
            return param(name, name, in->role, which_ == Phase::Step ? ir::step_type(*in) : ir::phase_type(*in), where);
        if (name == ir::kTokenMaskName)
            return param(name, name, Role::Mask,
                         {DType::F32, which_ == Phase::Step ? Shape{} : Shape{Dim(ir::kChunkSymbol)}}, where);
        if (const auto t = state_argument(name, where)) return *t;
        if (const auto t = cached_argument(name, where)) return *t;
        return trace_->error(unknown(name, where));
    }

    /// What is declared or cached, but not to be seen in this phase, is told apart from what is not known at all.
    [[nodiscard]] Diagnostic unknown(const std::string& name, const Location& where) const {
        const bool state = std::any_of(def_.states.begin(), def_.states.end(), [&](const ir::StateDecl& s) {
            return name == ir::prev_name(def_, s) || name == ir::chunk_name(def_, s) ||
                   (def_.states.size() == 1 && name == "prev_s");
        });
        const bool cached = which_ == Phase::Step && (def_.chunk.result(name, Role::Cached) != ir::kNoValue ||
                                                      def_.decay.result(name, Role::Cached) != ir::kNoValue);
        Diagnostic found{fmt::format("{}: unknown input '{}'", phase_name(which_), name), "one of: " + known_names(),
                         "'" + name + "'", where,
                         "declare it with input, or cache it in an earlier phase with cache_result"};
        if (state) {
            found.what = fmt::format("{}: '{}' is a state, which this phase does not see", phase_name(which_), name);
            found.hint = which_ == Phase::Chunk
                             ? "a chunk's own contribution does not depend on states; take it in decay or merge"
                             : "step is the recurrence of one token; it takes the state before the token";
        } else if (cached) {
            found.what = fmt::format("step: '{}' was cached in a phase of chunks, which a token does not see", name);
            found.hint = "compute it from the inputs of one token here";
        }
        return found;
    }

    std::optional<Tensor> state_argument(const std::string& name, const Location& where) {
        if (which_ == Phase::Chunk) return std::nullopt;
        for (const ir::StateDecl& s : def_.states) {
            const bool prev = name == ir::prev_name(def_, s) || (def_.states.size() == 1 && name == "prev_s");
            const bool chunk = name == ir::chunk_name(def_, s) && which_ != Phase::Step;
            if (prev || (chunk && which_ == Phase::Merge)) return param(name, s.name, Role::State, s.type, where);
            if (chunk) return param(name, s.name, Role::Chunk, s.type, where);
        }
        return std::nullopt;
    }

    std::optional<Tensor> cached_argument(const std::string& name, const Location& where) {
        if (which_ == Phase::Step) return std::nullopt;
        std::vector<const ir::Function*> earlier;
        if (which_ != Phase::Chunk) earlier.push_back(&def_.chunk);
        if (which_ == Phase::Merge) earlier.push_back(&def_.decay);
        for (const ir::Function* fn : earlier)
            if (const ir::ValueId v = fn->result(name, Role::Cached); v != ir::kNoValue)
                return param(name, name, Role::Cached, fn->op(v).type, where);
        return std::nullopt;
    }

    [[nodiscard]] std::string known_names() const {
        std::vector<std::string> names;
        for (const auto& in : def_.inputs) names.push_back(in.name);
        names.push_back(ir::kTokenMaskName);
        for (const auto& s : def_.states) {
            if (which_ != Phase::Chunk) names.push_back(ir::prev_name(def_, s));
            if (which_ == Phase::Decay || which_ == Phase::Merge) names.push_back(ir::chunk_name(def_, s));
        }
        for (const ir::Function* fn : {&def_.chunk, &def_.decay})
            if (which_ == Phase::Decay || which_ == Phase::Merge)
                for (const ir::Result& r : fn->results)
                    if (r.role == Role::Cached) names.push_back(r.name);
        return fmt::format("{}", fmt::join(names, ", "));
    }

    void take_results(const Results& results, const Location& where) {
        std::vector<std::pair<std::string, Tensor>> named = results.named;
        if (named.empty()) named.emplace_back(single_name(where), results.single);
        for (const auto& [name, tensor] : named) take_result(name, tensor, where);
        if (which_ != Phase::Merge)
            for (const ir::StateDecl& s : def_.states) require(s.name, state_role(), where);
        if (which_ == Phase::Merge || which_ == Phase::Step)
            for (const ir::OutputDecl& o : def_.outputs) require(o.name, Role::Input, where);
    }

    [[nodiscard]] Role state_role() const { return which_ == Phase::Chunk ? Role::Chunk : Role::State; }

    std::string single_name(const Location& where) {
        const std::size_t count =
            which_ == Phase::Merge ? std::max<std::size_t>(def_.outputs.size(), 1) : def_.states.size();
        if (which_ == Phase::Step || count != 1)
            trace_->error({fmt::format("{}: returns several values, so they need names", phase_name(which_)),
                           "Results{{\"name\", value}, …}", "one tensor", where, ""});
        if (which_ == Phase::Merge) return def_.outputs.empty() ? "o" : def_.outputs[0].name;
        return def_.states.empty() ? "" : def_.states[0].name;
    }

    void take_result(const std::string& name, const Tensor& tensor, const Location& where) {
        if (tensor.id() < 0) {
            failed_.push_back(name);
            if (!tensor.trace())
                trace_->error(
                    {fmt::format("{}: returns an empty Tensor as '{}'", phase_name(which_), name), "", "", where, ""});
            return;
        }
        const ir::StateDecl* state = which_ == Phase::Merge ? nullptr : def_.state(name);
        const bool output = which_ == Phase::Merge || which_ == Phase::Step;
        if (state) check_state(*state, tensor);
        else if (!output || (!def_.output(name) && !(def_.outputs.empty() && name == "o") && which_ != Phase::Step))
            trace_->error({fmt::format("{}: returns '{}', which is not declared", phase_name(which_), name),
                           output ? "the name of an output" : "the name of a state", "'" + name + "'", where, ""});
        else if (const ir::OutputDecl* o = def_.output(name)) check_output(*o, tensor);
        trace_->fn.op(tensor.id()).name =
            trace_->fn.op(tensor.id()).name.empty() ? name : trace_->fn.op(tensor.id()).name;
        trace_->fn.results.push_back({name, state ? state_role() : Role::Input, tensor.id()});
    }

    void check_state(const ir::StateDecl& state, const Tensor& tensor) {
        const ir::Op& op = trace_->fn.op(tensor.id());
        if (op.type.shape != state.type.shape)
            trace_->error(
                {fmt::format("{}: state '{}' has another shape than declared", phase_name(which_), state.name),
                 to_string(state.type.shape), to_string(op.type.shape), op.where,
                 fmt::format("declared at {}", to_string(state.where))});
    }

    void check_output(const ir::OutputDecl& output, const Tensor& tensor) {
        if (which_ == Phase::Step) return;  // its shape has no token axis; `check` compares the numbers
        const ir::Op& op = trace_->fn.op(tensor.id());
        if (op.type.shape != ir::phase_type(output).shape)
            trace_->error({fmt::format("merge: output '{}' has another shape than declared", output.name),
                           to_string(ir::phase_type(output).shape), to_string(op.type.shape), op.where,
                           fmt::format("declared at {}", to_string(output.where))});
    }

    void require(const std::string& name, Role role, const Location& where) {
        if (trace_->fn.result(name, role) != ir::kNoValue || std::count(failed_.begin(), failed_.end(), name)) return;
        trace_->error({fmt::format("{}: '{}' is not returned", phase_name(which_), name),
                       fmt::format("a value for {} '{}'", role == Role::Input ? "output" : "state", name), "nothing",
                       where, ""});
    }

    const ir::Definition& def_;
    Phase which_;
    std::shared_ptr<Trace> trace_;
    std::vector<std::string> failed_;
};

void check_declarations(const ir::Definition& def) {
    std::vector<Diagnostic> found = ir::declaration_faults(def);
    for (const auto& in : def.inputs) {
        if (in.range && !(in.range->low <= in.range->high))
            found.push_back({fmt::format("input '{}': an empty range", in.name), "two numbers, the lower one first",
                             fmt::format("[{}, {}]", in.range->low, in.range->high), in.where, ""});
        if (in.type.dtype != F32 && !is_half(in.type.dtype))
            found.push_back({fmt::format("input '{}': not of a type that tensors of a call have", in.name),
                             "BF16, F16 or F32", to_string(in.type.dtype), in.where, ""});
        if (in.role == Role::Input && (in.type.rank() < 2 || in.type.shape[0].symbol != ir::kTokenSymbol))
            found.push_back({fmt::format("input '{}': not a token input", in.name), "{T, heads, …}",
                             to_string(in.type.shape), in.where,
                             "use head_input for values per head, scalar for numbers"});
        if (in.role == Role::Head && (in.type.rank() < 1 || in.type.shape[0].is_constant()))
            found.push_back({fmt::format("head input '{}': not per head", in.name), "{heads, …}",
                             to_string(in.type.shape), in.where, ""});
    }
    if (!ir::is_chunk_size(def.fixed_chunk) && def.fixed_chunk != 0 && def.fixed_chunk != 1)
        found.push_back({fmt::format("'{}' fixes its chunk at a size that there are no kernels for", def.name),
                         "16, 32, 64 or 128 tokens", std::to_string(def.fixed_chunk), def.where, ""});
    if (def.states.empty())
        found.push_back(
            {fmt::format("'{}' has no state", def.name), "at least one state(name, dtype, shape)", "", def.where, ""});
    if (std::none_of(def.inputs.begin(), def.inputs.end(), [](const auto& in) { return in.role == Role::Input; }))
        found.push_back({fmt::format("'{}' has no token input", def.name),
                         "at least one input(name, dtype, {T, heads, …})", "", def.where, ""});
    throw_if_any(std::move(found));
}

/// Without phases and declarations every output of `step` is one, in the first token input's type, with the last one's
/// heads.
std::vector<ir::OutputDecl> outputs_of_step(const ir::Definition& def) {
    const ir::InputDecl *first = nullptr, *last = nullptr;
    for (const auto& in : def.inputs)
        if (in.role == Role::Input) {
            if (!first) first = &in;
            last = &in;
        }
    std::vector<ir::OutputDecl> outputs;
    for (const ir::Result& r : def.step->results) {
        if (r.role != Role::Input) continue;
        Shape shape = def.step->op(r.value).type.shape;
        shape.insert(shape.begin(), {Dim(ir::kTokenSymbol), last->type.shape[1]});
        outputs.push_back({r.name, {first->type.dtype, std::move(shape)}, def.where});
    }
    if (outputs.empty())
        throw CompileError(
            Diagnostic{"step: there is no output", "a result that is no state: {\"o\", value}", "", def.where, ""});
    return outputs;
}

/// Without a declaration the output is merge's result, in the first token input's type, with the last one's heads.
ir::OutputDecl default_output(const ir::Definition& def) {
    const ir::InputDecl *first = nullptr, *last = nullptr;
    for (const auto& in : def.inputs)
        if (in.role == Role::Input) {
            if (!first) first = &in;
            last = &in;
        }
    const ir::Op& value = def.merge.op(def.merge.results.back().value);
    ir::OutputDecl out{"o", {first->type.dtype, value.type.shape}, def.where};
    if (out.type.shape.empty() || !(out.type.shape[0] == Dim(ir::kChunkSymbol)))
        throw CompileError(
            Diagnostic{"merge: the output has no token axis", "[C, …]", to_string(out.type.shape), value.where, ""});
    out.type.shape[0] = Dim(ir::kTokenSymbol);
    out.type.shape.insert(out.type.shape.begin() + 1, last->type.shape[1]);
    return out;
}

}  // namespace

LinearAttention::LinearAttention(std::string name, Here here) : declared_(std::make_shared<Declared>()) {
    declared_->decls.name = std::move(name);
    declared_->decls.where = here;
}

const std::string& LinearAttention::name() const { return declared_->decls.name; }

LinearAttention& LinearAttention::input(const std::string& name, DType dtype, Shape shape, double pad,
                                        std::optional<Range> range, Here here) {
    declared_->decls.inputs.push_back({name, Role::Input, {dtype, std::move(shape)}, pad, here, range});
    return *this;
}

LinearAttention& LinearAttention::input(const std::string& name, DType dtype, Shape shape, Range range, Here here) {
    return input(name, dtype, std::move(shape), 0, range, here);
}

LinearAttention& LinearAttention::head_input(const std::string& name, DType dtype, Shape shape,
                                             std::optional<Range> range, Here here) {
    declared_->decls.inputs.push_back({name, Role::Head, {dtype, std::move(shape)}, 0, here, range});
    return *this;
}

LinearAttention& LinearAttention::scalar(const std::string& name, std::optional<Range> range, Here here) {
    declared_->decls.inputs.push_back({name, Role::Scalar, {DType::F32, {}}, 0, here, range});
    return *this;
}

LinearAttention& LinearAttention::state(const std::string& name, DType dtype, Shape shape, Here here) {
    declared_->decls.states.push_back({name, {dtype, std::move(shape)}, here});
    return *this;
}

LinearAttention& LinearAttention::output(const std::string& name, DType dtype, Shape shape, Here here) {
    declared_->decls.outputs.push_back({name, {dtype, std::move(shape)}, here});
    return *this;
}

LinearAttention& LinearAttention::fixed_chunk(std::int64_t tokens) {
    declared_->decls.fixed_chunk = tokens;
    return *this;
}

LinearAttention& LinearAttention::sequential() { return fixed_chunk(1); }

LinearAttention& LinearAttention::phase(Phase which, std::vector<std::string> args, PhaseFn fn, std::size_t arity,
                                        Here here) {
    declared_->phases[static_cast<std::size_t>(which)] =
        Declared::PhaseDecl{std::move(args), std::move(fn), arity, here};
    return *this;
}

ir::Definition LinearAttention::define() const {
    ir::Definition def = declared_->decls;
    check_declarations(def);
    const auto has = [&](Phase p) { return declared_->phases[static_cast<std::size_t>(p)].has_value(); };
    const bool step_alone = has(Phase::Step) && !has(Phase::Chunk) && !has(Phase::Decay) && !has(Phase::Merge);
    std::vector<Diagnostic> missing;
    if (def.fixed_chunk == 1 && !step_alone)
        missing.push_back({fmt::format("'{}' is sequential, and has other phases than step", def.name), "step alone",
                           "", def.where, "leave out sequential, or the phases chunk, decay and merge"});
    for (const Phase p : {Phase::Chunk, Phase::Decay, Phase::Merge})
        if (!has(p) && !step_alone)
            missing.push_back({fmt::format("'{}' has no {} phase", def.name, phase_name(p)),
                               fmt::format("{}(names, function)", phase_name(p)), "", def.where,
                               "or give step alone, from which all three are derived"});
    throw_if_any(std::move(missing));
    const auto trace = [&](Phase p) {
        return PhaseTracer(def, p).run(*declared_->phases[static_cast<std::size_t>(p)]);
    };
    if (!step_alone) {
        def.chunk = trace(Phase::Chunk);
        def.decay = trace(Phase::Decay);
        def.merge = trace(Phase::Merge);
        if (def.outputs.empty()) def.outputs.push_back(default_output(def));
    }
    if (has(Phase::Step)) def.step = trace(Phase::Step);
    if (def.outputs.empty()) def.outputs = outputs_of_step(def);
    throw_if_any(ir::check_names_and_constants(def));
    throw_if_any(ir::last_rows_conflicts(def));
    return def;
}

}  // namespace forge
