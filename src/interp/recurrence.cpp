#include "interp/recurrence.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"

namespace forge::interp {
namespace {

using ir::Role;

/// `count` rows from `first` on; rows outside [0, end) read as `pad`.
Value rows(const Value& x, std::int64_t first, std::int64_t count, double pad) {
    const std::int64_t total = x.shape[0], width = total == 0 ? 0 : static_cast<std::int64_t>(x.data.size()) / total;
    Value result{x.shape, {}};
    result.shape[0] = count;
    result.data.assign(static_cast<std::size_t>(element_count(result.shape)), pad);
    const std::int64_t begin = std::max<std::int64_t>(first, 0), end = std::min(first + count, total);
    if (begin < end)
        std::copy(x.data.begin() + begin * width, x.data.begin() + end * width,
                  result.data.begin() + (begin - first) * width);
    return result;
}

/// A sequence on its way through its chunks (or tokens: chunks of one).
class Run {
  public:
    Run(const ir::Definition& def, const Sequence& sequence, const Sizes& sizes, std::int64_t chunk, Touch touch = {})
        : def_(def), sequence_(sequence), sizes_(sizes), touch_(std::move(touch)), chunk_(chunk) {
        for (const ir::StateDecl& s : def.states) {
            const auto given = sequence.initial_states.find(s.name);
            const bool absent = given == sequence.initial_states.end();
            outcome_.states[s.name] = absent ? zeros(concrete(s.type.shape, sizes)) : given->second;
        }
        for (const ir::LastRows& last : ir::last_rows(def)) {
            const auto given = sequence.initial_states.find(last.name);
            before_[last.input] = given != sequence.initial_states.end() ? given->second : padded(last);
        }
    }

    /// What the functions may ask for at the chunk that starts at token `first`.
    [[nodiscard]] Bindings bindings(std::int64_t first) const {
        Bindings result = outcome_.states;
        for (const ir::InputDecl& in : def_.inputs) {
            const auto given = sequence_.inputs.find(in.name);
            if (given == sequence_.inputs.end())
                throw InternalError(fmt::format("interp: no value for input '{}'", in.name));
            if (in.role == Role::Input) bind_rows(result, in, given->second, first);
            else result[in.name] = given->second;
        }
        Value mask = zeros({chunk_});
        std::fill_n(mask.data.begin(), std::min(chunk_, sequence_.tokens - first), 1.0);
        result[ir::kTokenMaskName] = mask;
        return result;
    }

    /// Evaluates `fn` and files its results: states and outputs in the outcome, the rest for later phases.
    void evaluate_and_file(const ir::Function& fn, Bindings& bound) {
        std::vector<Value> values = evaluate(fn, bound, sizes_, touch_);
        for (std::size_t i = 0; i < values.size(); ++i) {
            const ir::Result& r = fn.results[i];
            if (r.role == Role::State) outcome_.states[r.name] = std::move(values[i]);
            else if (r.role == Role::Input) join(r.name, std::move(values[i]));
            else bound[binding_name(r.name, r.role)] = std::move(values[i]);
        }
    }

    /// The outputs have been gathered in whole chunks: drops the rows past the end.
    Outcome finish() {
        for (auto& [name, value] : outcome_.outputs)
            value = rows(value, 0, value.shape[0] / padded_ * sequence_.tokens, 0);
        for (const ir::OutputDecl& o : def_.outputs)
            if (padded_ == 0) outcome_.outputs[o.name] = empty(o);
        for (const ir::LastRows& last : ir::last_rows(def_)) {
            Value& state = outcome_.states[last.name] = before_.at(last.input);
            const Value& x = sequence_.inputs.at(last.input);
            if (sequence_.tokens > 0)
                std::copy(x.data.end() - element_count(state.shape), x.data.end(), state.data.begin());
        }
        return std::move(outcome_);
    }

    /// From the end of another run backwards: outputs are joined in front.
    void turn_back(const Run& forwards) {
        backwards_ = true;
        padded_ = forwards.padded_;
    }
    [[nodiscard]] const Bindings& states() const { return outcome_.states; }

    void advance() { padded_ += chunk_; }
    [[nodiscard]] bool done() const { return padded_ >= sequence_.tokens; }
    [[nodiscard]] std::int64_t first() const { return padded_; }

  private:
    void bind_rows(Bindings& result, const ir::InputDecl& in, const Value& x, std::int64_t first) const {
        const std::int64_t factor = in.type.shape[0].factor;
        result[in.name] = rows(x, first * factor, chunk_ * factor, in.pad);
        // Past the end the shifted rows are pad too, although the first of them has a token before it.
        Value shifted = rows(x, (first - 1) * factor, std::min(chunk_, sequence_.tokens - first) * factor, in.pad);
        if (const auto before = before_.find(in.name); before != before_.end() && first == 0 && sequence_.tokens > 0)
            std::copy(before->second.data.begin(), before->second.data.end(), shifted.data.begin());
        result[binding_name(in.name, Role::Shifted)] = rows(shifted, 0, chunk_ * factor, in.pad);
    }

    void join(const std::string& name, Value value) {
        Value& all = outcome_.outputs.try_emplace(name, Value{value.shape, {}}).first->second;
        if (all.data.empty()) return void(all = std::move(value));
        if (backwards_) std::swap(all, value);
        all.shape[0] += value.shape[0];
        all.data.insert(all.data.end(), value.data.begin(), value.data.end());
    }

    [[nodiscard]] Value padded(const ir::LastRows& last) const {
        Value rows = zeros(concrete(last.type.shape, sizes_));
        std::fill(rows.data.begin(), rows.data.end(), def_.input(last.input)->pad);
        return rows;
    }

    [[nodiscard]] Value empty(const ir::OutputDecl& output) const {
        Sizes none = sizes_;
        none[ir::kChunkSymbol] = 0;
        return zeros(concrete(ir::phase_type(output).shape, none));
    }

    const ir::Definition& def_;
    const Sequence& sequence_;
    const Sizes& sizes_;
    Touch touch_;
    std::int64_t chunk_;
    std::int64_t padded_ = 0;  ///< tokens done, in whole chunks
    bool backwards_ = false;
    Bindings before_;  ///< what prev_token reads before the first token, by input
    Outcome outcome_;
};

/// Puts the values in the form that `step` takes: the token axis goes, unless a token has several rows.
void drop_token_axis(const ir::Definition& def, Bindings& bound) {
    const auto drop = [&](const std::string& name) {
        Value& x = bound.at(name);
        if (!x.shape.empty() && x.shape[0] == 1) x.shape.erase(x.shape.begin());
    };
    drop(ir::kTokenMaskName);
    for (const ir::InputDecl& in : def.inputs) {
        if (in.role != Role::Input) continue;
        drop(in.name);
        drop(binding_name(in.name, Role::Shifted));
    }
}

/// `step` with a token axis of size 1 on its outputs, so that they append like a chunk's. Those of several rows per
/// token have them as their first axis already.
ir::Function with_token_axis(const ir::Definition& def, ir::Function step) {
    for (ir::Result& r : step.results) {
        const ir::OutputDecl* output = r.role == Role::Input ? def.output(r.name) : nullptr;
        if (!output || output->type.shape[0].factor > 1) continue;
        ir::Op op;
        op.code = ir::Opcode::Unsqueeze;
        op.args = {r.value};
        r.value = step.add(std::move(op));
    }
    return step;
}

std::int64_t chunk_size(const Sizes& sizes) {
    const auto it = sizes.find(ir::kChunkSymbol);
    if (it == sizes.end() || it->second < 1) throw InternalError("interp: sizes need a chunk size \"C\"");
    return it->second;
}

}  // namespace

Outcome run_steps(const ir::Definition& def, const Sequence& sequence, const Sizes& sizes) {
    if (!def.step) throw InternalError(fmt::format("interp: '{}' has no step", def.name));
    const ir::Function step = with_token_axis(def, *def.step);
    Run run(def, sequence, sizes, 1);
    for (; !run.done(); run.advance()) {
        Bindings bound = run.bindings(run.first());
        drop_token_axis(def, bound);
        run.evaluate_and_file(step, bound);
    }
    return run.finish();
}

Outcome run_phases(const ir::Definition& def, const Sequence& sequence, const Sizes& sizes) {
    if (ir::is_sequential(def)) return run_steps(def, sequence, sizes);
    Run run(def, sequence, sizes, chunk_size(sizes));
    for (; !run.done(); run.advance()) {
        Bindings bound = run.bindings(run.first());  // its states stay those before the chunk, which merge reads
        for (const ir::Function* phase : {&def.chunk, &def.decay, &def.merge}) run.evaluate_and_file(*phase, bound);
    }
    return run.finish();
}

Bindings chunk_bindings(const ir::Definition& def, const Sequence& sequence, const Sizes& sizes, std::int64_t first) {
    return Run(def, sequence, sizes, chunk_size(sizes)).bindings(first);
}

Outcome run_program(const ir::Function& program, const ir::Definition& def, const Sequence& sequence,
                    const Sizes& sizes, const Touch& touch) {
    Run run(def, sequence, sizes, chunk_size(sizes), touch);
    for (; !run.done(); run.advance()) {
        Bindings bound = run.bindings(run.first());
        run.evaluate_and_file(program, bound);
    }
    return run.finish();
}

namespace {

/// The gradients of what all tokens share, as they grow.
class Sums {
  public:
    explicit Sums(const std::vector<std::string>& names) : names_(names) {}

    void note(const Bindings& states) {
        for (const std::string& name : names_) {
            const Value& now = states.at(name);
            if (const auto& [at, first] = last_.try_emplace(name, now); first) squares_[name] = zeros(now.shape);
            Value &last = last_.at(name), &sum = squares_.at(name);
            for (std::size_t i = 0; i < now.data.size(); ++i)
                sum.data[i] += (now.data[i] - last.data[i]) * (now.data[i] - last.data[i]);
            last = now;
        }
    }
    [[nodiscard]] Bindings squares() && { return std::move(squares_); }

  private:
    const std::vector<std::string>& names_;
    Bindings last_, squares_;
};

/// `prepare` makes what one function takes of a chunk's bindings.
Outcome run_gradient(const Backward& b, const Sequence& sequence, const Sizes& sizes, std::int64_t chunk,
                     const std::function<void(const ir::Definition&, Bindings&)>& prepare, const Touch& touch = {}) {
    Run forwards(b.definition, sequence, sizes, chunk, touch), backwards(b.interface, sequence, sizes, chunk, touch);
    std::vector<Bindings> before;
    for (; !forwards.done(); forwards.advance()) {
        before.push_back(forwards.states());
        Bindings bound = forwards.bindings(forwards.first());
        prepare(b.definition, bound);
        forwards.evaluate_and_file(b.program, bound);
    }
    backwards.turn_back(forwards);
    Sums sums(b.sums);
    sums.note(backwards.states());
    for (std::size_t n = before.size(); n-- > 0;) {
        Bindings bound = backwards.bindings(static_cast<std::int64_t>(n) * chunk);
        prepare(b.interface, bound);
        for (auto& [name, value] : before[n]) bound[binding_name(name, Role::Before)] = std::move(value);
        backwards.evaluate_and_file(b.adjoint, bound);
        sums.note(backwards.states());
    }
    const Bindings states = forwards.finish().states;
    Outcome outcome = backwards.finish();
    outcome.squares = std::move(sums).squares();
    for (const auto& [name, value] : states) outcome.states[name] = value;
    return outcome;
}

}  // namespace

Outcome run_step_gradient(const Backward& b, const Sequence& sequence, const Sizes& sizes) {
    const ir::Function program = with_token_axis(b.definition, b.program),
                       adjoint = with_token_axis(b.interface, b.adjoint);
    return run_gradient({b.definition, b.interface, program, adjoint, b.sums}, sequence, sizes, 1, drop_token_axis);
}

Outcome run_program_gradient(const Backward& b, const Sequence& sequence, const Sizes& sizes, const Touch& touch) {
    return run_gradient(b, sequence, sizes, chunk_size(sizes), [](const ir::Definition&, Bindings&) {}, touch);
}

}  // namespace forge::interp
