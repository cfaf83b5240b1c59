#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "check/parallel.h"
#include "check/random.h"
#include "check/tolerance.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "interp/semantics.h"
#include "tests/random/examine.h"

namespace forge::fuzz {
namespace {

constexpr double kLastBits = 0x1p-22;   ///< of float32: two units in the last place
constexpr double kTimesSpread = 4;      ///< of a root mean square
constexpr double kNothingToSay = 0.25;  ///< relative: a bound beyond says nothing
constexpr int kTrials = 3;
constexpr double kFloat64 = 1e-8;  ///< relative; float64 rounds at 1e-16, a wrong term shows at 1e-3

double half_bits(DType dtype, const UnitsRound& units) {
    return dtype == BF16 ? 0x1p-8 : dtype == F16 ? 0x1p-11 : units.floats;
}

/// Moves every value by what rounding may.
class Rounding {
  public:
    Rounding(DType dtype, std::uint64_t seed, const UnitsRound& units)
        : random_(seed), half_(half_bits(dtype, units)), units_(units) {}

    void operator()(const ir::Function& fn, ir::ValueId v, interp::Value& value) {
        const ir::Op& op = fn.op(v);
        const bool is_given = op.code == ir::Opcode::Param && op.attrs.role != ir::Role::State;
        if (op.code == ir::Opcode::Constant || op.type.dtype == DType::Bool) return;
        const bool in_half = is_half(op.type.dtype), is_operand = operands_of(fn)[static_cast<std::size_t>(v)];
        if (is_given && (in_half || !is_operand)) return;
        const double bits = in_half || is_operand ? half_ : decays(op) ? units_.decayed : kLastBits;
        for (double& x : value.data) x *= 1 + bits * (2 * random_.uniform() - 1);
    }

  private:
    static bool decays(const ir::Op& op) {
        return op.code == ir::Opcode::DecayMatmul || op.code == ir::Opcode::DecayApply;
    }

    /// The values that products multiply.
    const std::vector<bool>& operands_of(const ir::Function& fn) {
        std::vector<bool>& found = operands_[&fn];
        if (!found.empty()) return found;
        found.resize(fn.ops.size());
        for (const ir::Op& op : fn.ops)
            if (ir::is_matmul(op.code) || (units_.decays_operands && decays(op)))
                for (std::size_t i = 0; i < 2; ++i) found[static_cast<std::size_t>(op.args[i])] = true;
        return found;
    }

    check::Random random_;
    double half_;
    UnitsRound units_;
    std::map<const ir::Function*, std::vector<bool>> operands_;
};

interp::Sizes sizes_with(const Program& program, std::int64_t chunk) {
    interp::Sizes sizes = program.sizes;
    sizes[ir::kChunkSymbol] = chunk;
    return sizes;
}

bool is_finite(const interp::Outcome& outcome) {
    for (const auto* group : {&outcome.outputs, &outcome.states})
        for (const auto& [name, value] : *group)
            if (!std::all_of(value.data.begin(), value.data.end(), [](double x) { return std::isfinite(x); }))
                return false;
    return true;
}

template <class Run>
std::vector<interp::Outcome> for_every_head(const check::Buffers& buffers, Run&& run) {
    const std::int64_t heads = buffers.heads();
    std::vector<interp::Outcome> outcomes(static_cast<std::size_t>(heads * buffers.problem().sequences()));
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        outcomes[i] = run(buffers.sequence(at / heads, at % heads), i);
    }
    return outcomes;
}

interp::Outcome run_reference(const Program& program, const ir::Function& optimised, const interp::Sequence& sequence,
                              std::int64_t chunk) {
    const interp::Sizes sizes = sizes_with(program, chunk);
    return program.def.step ? interp::run_steps(program.def, sequence, sizes)
                            : interp::run_program(optimised, program.def, sequence, sizes);
}

check::Reference solve(const Program& program, const ir::Function& optimised, const check::Buffers& buffers,
                       std::int64_t chunk) {
    check::Reference result;
    result.against_step = program.def.step.has_value();
    result.outcomes = for_every_head(buffers, [&](const interp::Sequence& sequence, std::size_t) {
        return run_reference(program, optimised, sequence, chunk);
    });
    result.finite = std::all_of(result.outcomes.begin(), result.outcomes.end(), is_finite);
    return result;
}

/// The first tokens of a sequence, or those after them.
interp::Sequence part_of(const ir::Definition& def, const interp::Sequence& whole, std::int64_t first,
                         std::int64_t count) {
    interp::Sequence part = whole;
    part.tokens = count;
    for (const ir::InputDecl& in : def.inputs) {
        if (in.role != ir::Role::Input || whole.tokens == 0) continue;
        interp::Value& x = part.inputs.at(in.name);
        const std::vector<double> all = x.data;
        const auto per_token = static_cast<std::ptrdiff_t>(all.size()) / whole.tokens;
        x.data.assign(all.begin() + first * per_token, all.begin() + (first + count) * per_token);
        x.shape[0] = x.shape[0] / whole.tokens * count;
    }
    return part;
}

/// The states of the first call go into the second.
interp::Outcome in_two_calls(const ir::Function& program, const ir::Definition& def, const interp::Sequence& sequence,
                             const interp::Sizes& sizes) {
    const std::int64_t cut = sequence.tokens * 2 / 5;
    interp::Outcome result = interp::run_program(program, def, part_of(def, sequence, 0, cut), sizes);
    interp::Sequence rest = part_of(def, sequence, cut, sequence.tokens - cut);
    rest.initial_states = result.states;
    const interp::Outcome last = interp::run_program(program, def, rest, sizes);
    result.states = last.states;
    for (auto& [name, value] : result.outputs) {
        const interp::Value& more = last.outputs.at(name);
        value.data.insert(value.data.end(), more.data.begin(), more.data.end());
    }
    return result;
}

double relative_rms(const std::vector<interp::Outcome>& want, const std::vector<interp::Outcome>& got,
                    const std::string& name, bool is_state) {
    double error = 0, size = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        const interp::Value& a = (is_state ? want[i].states : want[i].outputs).at(name);
        const interp::Value& b = (is_state ? got[i].states : got[i].outputs).at(name);
        for (std::size_t e = 0; e < a.data.size(); ++e) {
            error += std::pow(a.data[e] - b.data[e], 2);
            size += a.data[e] * a.data[e];
        }
    }
    return std::sqrt(error / (size > 0 ? size : 1));
}

}  // namespace

interp::Touch rounding(DType dtype, std::uint64_t seed, const UnitsRound& units) {
    return Rounding(dtype, seed, units);
}

Problem::Problem(const Program& program, const check::Problem& problem, std::int64_t of_chunk)
    : shape(problem),
      buffers(make_buffers(program, problem)),
      chunk(of_chunk),
      program_(program),
      optimised_(graph::optimize(frontend::join(program.def))) {
    reference = solve(program, optimised_, buffers, chunk);
}

double Problem::spread(const std::string& name, bool is_state) const {
    const std::string key = (is_state ? "state " : "output ") + name;
    if (const auto it = spreads_.find(key); it != spreads_.end()) return it->second;
    const interp::Sizes sizes = sizes_with(program_, chunk);
    ir::Function written = frontend::join(frontend::with_dtype(program_.def, program_.dtype));
    const auto run = [&](int trial) {
        return for_every_head(buffers, [&](const interp::Sequence& sequence, std::size_t i) {
            const std::uint64_t seed = check::mix(static_cast<std::uint64_t>(trial), std::to_string(i));
            return interp::run_program(written, program_.def, sequence, sizes, rounding(program_.dtype, seed));
        });
    };
    std::vector<interp::Outcome> first = run(0);
    if (!std::all_of(first.begin(), first.end(), is_finite)) {  // naive forms overflow; what is made of them does not
        written = graph::optimize(written);
        first = run(0);
    }
    for (int trial = 0; trial < kTrials; ++trial) {
        const std::vector<interp::Outcome> outcomes = trial == 0 ? std::move(first) : run(trial);
        const auto note = [&](const std::string& kind, const std::string& which, bool state) {
            const double now = relative_rms(reference.outcomes, outcomes, which, state);
            double& most = spreads_[kind + which];
            most = now <= most ? most : now;
        };
        for (const auto& output : program_.def.outputs) note("output ", output.name, false);
        for (const auto& state : program_.def.states) note("state ", state.name, true);
    }
    return spreads_.at(key);
}

interp::Outcome Problem::after(std::int64_t sequence, std::int64_t head, std::int64_t tokens) const {
    const interp::Sequence before = part_of(program_.def, buffers.sequence(sequence, head), 0, tokens);
    return run_reference(program_, optimised_, before, chunk);
}

bool Problem::expects(const std::string& name, bool is_state, double relative_rms) const {
    const double expected = kTimesSpread * spread(name, is_state);
    if (!(expected <= kNothingToSay)) ++hopeless;
    else if (relative_rms <= expected) ++excused;
    return !(expected <= kNothingToSay) || relative_rms <= expected;
}

std::vector<std::string> Problem::faults() const {
    std::vector<std::string> found;
    const check::Report report = check::compare(buffers, reference);
    for (const check::Difference& d : report.differences) {
        if (d.ok) continue;
        if (expects(d.name, d.is_state, d.relative_rms)) continue;
        const double expected = kTimesSpread * spread(d.name, d.is_state);
        found.push_back(
            fmt::format("{} {}: relative RMS {:.3g} beyond {:.2g} (rounding: {:.2g}), max error {:.3g}, first at token "
                        "{}, head {} of "
                        "sequence {}; {}",
                        d.is_state ? "state" : "output", d.name, d.relative_rms, report.tolerance, expected, d.max_abs,
                        d.first_bad_token, d.head, d.sequence, describe(shape)));
    }
    return found;
}

std::vector<std::string> faults_in_float64(const Program& program, const check::Problem& problem, std::int64_t chunk) {
    const check::Buffers buffers = make_buffers(program, problem);
    const interp::Sizes sizes = sizes_with(program, chunk);
    const ir::Function joined = frontend::join(program.def), optimised = graph::optimize(joined);
    std::vector<std::string> found;
    const std::int64_t heads = buffers.heads();
    for (std::int64_t i = 0; i < heads * problem.sequences(); ++i) {
        const interp::Sequence sequence = buffers.sequence(i / heads, i % heads);
        const interp::Outcome phases = interp::run_phases(program.def, sequence, sizes);
        const interp::Outcome want = program.def.step ? interp::run_steps(program.def, sequence, sizes)
                                                      : interp::run_program(optimised, program.def, sequence, sizes);
        if (!is_finite(want)) continue;
        const auto compare = [&](const char* what, const interp::Outcome& got) {
            const auto group = [&](const char* kind, const interp::Bindings& a, const interp::Bindings& b) {
                for (const auto& [name, value] : a) {
                    interp::Value other = b.at(name);
                    // Of several rows per token `step` makes [tokens, n, …], phases [n tokens, …].
                    if (other.data.size() == value.data.size()) other.shape = value.shape;
                    const double off = interp::relative_difference(value, other);
                    if (!(off <= kFloat64))
                        found.push_back(fmt::format("{} '{}' of the {} is off by {:.3g} in float64; {}", kind, name,
                                                    what, off, describe(problem)));
                }
            };
            group("output", want.outputs, got.outputs);
            group("state", want.states, got.states);
        };
        // Naive forms may overflow, which the optimised program must not.
        if (is_finite(phases)) compare("phases", phases);
        if (is_finite(phases)) compare("joined program", interp::run_program(joined, program.def, sequence, sizes));
        compare("optimised program", interp::run_program(optimised, program.def, sequence, sizes));
        compare("optimised program in other chunks",
                interp::run_program(optimised, program.def, sequence, sizes_with(program, chunk == 16 ? 24 : 16)));
        compare("program in two calls", in_two_calls(optimised, program.def, sequence, sizes));
        if (!found.empty()) break;
    }
    return found;
}

std::string describe(const check::Problem& p) {
    std::vector<std::string> sizes;
    for (const auto& [symbol, size] : p.sizes) sizes.push_back(fmt::format("{}={}", symbol, size));
    return fmt::format("{}, {}, H={} HV={}{}{}{}{}", to_string(p.dtype),
                       p.lengths.empty() ? fmt::format("B={} T={}", p.B, p.T)
                                         : fmt::format("lengths {}", fmt::join(p.lengths, " ")),
                       p.H, p.HV == 0 ? p.H : p.HV, sizes.empty() ? "" : " ", fmt::join(sizes, " "),
                       p.initial_state ? ", initial states" : "", p.strided ? ", strided" : "") +
           (p.gate == 1          ? ""
            : std::isinf(p.gate) ? ", some gates extreme"
                                 : fmt::format(", gates x {}", p.gate));
}

}  // namespace forge::fuzz
