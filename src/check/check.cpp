#include "check/check.h"

#include <algorithm>
#include <cmath>

#include "check/parallel.h"
#include "check/tolerance.h"
#include "graph/gradient.h"
#include "program/backward.h"
#include "program/entry_point.h"

namespace forge::check {
namespace {

bool all_finite(const interp::Bindings& values) {
    return std::all_of(values.begin(), values.end(), [](const auto& named) {
        const auto& data = named.second.data;
        return std::all_of(data.begin(), data.end(), [](double x) { return std::isfinite(x); });
    });
}

/// Sums over a tensor that arrives head by head.
class Comparison {
  public:
    Comparison(std::string name, bool is_state, DType dtype) : dtype_(dtype) {
        result_.name = std::move(name), result_.is_state = is_state;
    }

    /// `got` and `want` are one head of one sequence.
    void add(const interp::Value& got, const interp::Value& want, std::int64_t sequence, std::int64_t head) {
        parts_.push_back({got, want, sequence, head});
        for (std::size_t i = 0; i < want.data.size(); ++i) {
            const double difference = std::fabs(got.data[i] - want.data[i]);
            error_squares_ += difference * difference;  // NaN stays NaN, as it should
            squares_ += want.data[i] * want.data[i];
            if (std::isnan(difference) || difference > result_.max_abs) result_.max_abs = difference;
            ++count_;
        }
    }

    Difference finish(double tolerance, double least) {
        if (count_ == 0) return result_;
        const double rms = std::max(least, std::sqrt(squares_ / static_cast<double>(count_)));
        const double error = std::sqrt(error_squares_ / static_cast<double>(count_));
        const double scale = error_scale(rms, dtype_, tolerance);
        result_.relative_rms = std::isfinite(error) ? error / scale : HUGE_VAL;
        result_.ok = result_.relative_rms <= tolerance;
        if (!result_.ok) locate(tolerance * scale);
        return result_;
    }

  private:
    struct Part {
        interp::Value got, want;
        std::int64_t sequence, head;
    };

    /// The earliest row (of a state: any) whose own RMS error is beyond what the tensor may have.
    void locate(double bound) {
        for (const Part& part : parts_) {
            const auto rows =
                static_cast<std::size_t>(result_.is_state || part.want.shape.empty() ? 1 : part.want.shape[0]);
            const std::size_t width = rows == 0 ? 0 : part.want.data.size() / rows;
            for (std::size_t row = 0; row < rows; ++row) {
                double squares = 0;
                for (std::size_t i = row * width; i < (row + 1) * width; ++i)
                    squares += (part.got.data[i] - part.want.data[i]) * (part.got.data[i] - part.want.data[i]);
                if (std::sqrt(squares / static_cast<double>(width)) <= bound) continue;
                note(static_cast<std::int64_t>(row), part);
                break;
            }
        }
    }

    void note(std::int64_t row, const Part& part) {
        const bool first = result_.head < 0 || (!result_.is_state && row < result_.first_bad_token);
        if (!first) return;
        result_.first_bad_token = result_.is_state ? -1 : row;
        result_.sequence = part.sequence;
        result_.head = part.head;
    }

    Difference result_;
    DType dtype_;
    std::vector<Part> parts_;
    double squares_ = 0, error_squares_ = 0;
    std::int64_t count_ = 0;
};

/// A definition may have a state axis that step and phases see alike, but an output with several rows per token is
/// [tokens, n, …] from `step` and [n * tokens, …] elsewhere: the order of elements is the same, which is all we use.
using Got = std::function<interp::Value(const std::string& name, bool is_state, std::int64_t head_of_sequence)>;

Difference compare_one(const std::string& name, bool is_state, const Buffers& buffers, const Reference& reference,
                       double bound, const Got& got) {
    Comparison comparison(name, is_state, (is_state ? buffers.final_states : buffers.outputs).at(name).dtype);
    const std::int64_t heads = buffers.heads();
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(reference.outcomes.size()); ++i) {
        const interp::Outcome& outcome = reference.outcomes[static_cast<std::size_t>(i)];
        const interp::Value& want = (is_state ? outcome.states : outcome.outputs).at(name);
        comparison.add(got(name, is_state, i), want, i / heads, i % heads);
    }
    return comparison.finish(bound, reference.least_scale_of(name));
}

Report compare_all(const Buffers& buffers, const Reference& reference, const Got& got) {
    Report report;
    const Problem& problem = buffers.problem();
    report.tolerance = reference.tolerance > 0 ? reference.tolerance : tolerance(problem.dtype, problem.state_dtype);
    report.against_step = reference.against_step;
    report.admitted = reference.finite;
    if (!report.admitted) return report;
    for (const auto& [name, x] : buffers.outputs)
        report.differences.push_back(compare_one(name, false, buffers, reference, report.tolerance, got));
    for (const auto& [name, x] : buffers.final_states)
        report.differences.push_back(compare_one(name, true, buffers, reference, report.tolerance, got));
    report.ok =
        std::all_of(report.differences.begin(), report.differences.end(), [](const Difference& d) { return d.ok; });
    return report;
}

/// The largest root mean square of a result.
double largest_rms(const Reference& reference) {
    std::map<std::string, std::pair<double, double>> sums;  // of squares, and the count
    for (const interp::Outcome& outcome : reference.outcomes)
        for (const interp::Bindings* results : {&outcome.outputs, &outcome.states})
            for (const auto& [name, value] : *results)
                for (const double x : value.data) sums[name].first += x * x, ++sums[name].second;
    double largest = 0;
    for (const auto& [name, sum] : sums) largest = std::max(largest, std::sqrt(sum.first / sum.second));
    return largest;
}

Reference reference_of(const Buffers& buffers, const RunHead& run) {
    Reference result;
    result.outcomes = outcomes_of(buffers, run);
    result.finite = std::all_of(result.outcomes.begin(), result.outcomes.end(), [](const interp::Outcome& outcome) {
        return all_finite(outcome.outputs) && all_finite(outcome.states);
    });
    return result;
}

}  // namespace

std::vector<interp::Outcome> outcomes_of(const Buffers& buffers, const RunHead& run) {
    const std::int64_t heads = buffers.heads(), pairs = heads * buffers.problem().sequences();
    std::vector<interp::Outcome> outcomes(static_cast<std::size_t>(pairs));
    parallel_for(pairs, [&](std::int64_t i) {
        outcomes[static_cast<std::size_t>(i)] = run(buffers.sequence(i / heads, i % heads));
    });
    return outcomes;
}

double error_scale(double rms, DType result, double tolerance) {
    constexpr double kLeastF32 = 0x1p-103, kSubnormalF16 = 0x1p-24;
    return std::max(rms, result == DType::F16 ? kSubnormalF16 / tolerance : kLeastF32);
}

double Reference::least_scale_of(const std::string& result) const {
    const auto sum = least_scales.find(result);
    return sum == least_scales.end() ? least_scale : std::max(least_scale, sum->second);
}

double Report::worst() const {
    double result = 0;
    for (const Difference& d : differences) result = std::max(result, d.relative_rms);
    return result;
}

Reference reference(const Buffers& buffers, std::int64_t chunk) {
    const ir::Definition& def = buffers.definition();
    interp::Sizes sizes = sizes_for(def, buffers.problem());
    sizes[ir::kChunkSymbol] = def.fixed_chunk != 0 ? def.fixed_chunk : chunk;
    Reference result = reference_of(buffers, [&](const interp::Sequence& sequence) {
        return def.step ? interp::run_steps(def, sequence, sizes) : interp::run_phases(def, sequence, sizes);
    });
    result.against_step = def.step.has_value();
    return result;
}

Reference backward_reference(const Buffers& buffers, const ir::Definition& declared, std::int64_t chunk) {
    constexpr double kLeast = 1e-2;
    const program::Backward made = declared.step ? program::step_backward(declared) : program::backward_of(declared);
    interp::Sizes sizes = sizes_for(declared, buffers.problem());
    sizes[ir::kChunkSymbol] = declared.fixed_chunk != 0 ? declared.fixed_chunk : chunk;
    interp::Backward backward{declared, made.interface, made.program, made.adjoint};
    for (const ir::InputDecl& in : declared.inputs)
        if (in.role != ir::Role::Input) backward.sums.push_back(graph::grad_name(in.name));
    Reference result = reference_of(buffers, [&](const interp::Sequence& sequence) {
        return declared.step ? interp::run_step_gradient(backward, sequence, sizes)
                             : interp::run_program_gradient(backward, sequence, sizes);
    });
    result.against_step = declared.step.has_value();
    result.tolerance = gradient_tolerance(buffers.problem().dtype);
    result.least_scale = kLeast * largest_rms(result);
    std::map<std::string, std::pair<double, double>> sums;  // of squares, and the count
    for (const interp::Outcome& outcome : result.outcomes)
        for (const auto& [name, squares] : outcome.squares)
            for (const double x : squares.data) sums[name].first += x, ++sums[name].second;
    for (const auto& [name, sum] : sums) result.least_scales[name] = std::sqrt(sum.first / sum.second);
    return result;
}

void run(Buffers& buffers, const std::function<void(Buffers&)>& call) {
    const std::int64_t cut = buffers.problem().cut;
    if (cut == 0) return call(buffers);
    Buffers head = buffers.part(0, cut), tail = buffers.part(cut, buffers.problem().T - cut);
    call(head);
    tail.initial_states = head.final_states;
    call(tail);
    buffers.take(head, 0);
    buffers.take(tail, cut);
}

void clear_results(Buffers& buffers) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (auto* group : {&buffers.outputs, &buffers.final_states})
        for (auto& [name, x] : *group)
            for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, nan);
}

Report compare(const Buffers& buffers, const Reference& reference) {
    const std::int64_t heads = buffers.heads();
    return compare_all(buffers, reference, [&](const std::string& name, bool is_state, std::int64_t i) {
        return is_state ? buffers.final_state(name, i / heads, i % heads) : buffers.output(name, i / heads, i % heads);
    });
}

Report compare(const Buffers& buffers, const std::vector<interp::Outcome>& results, const Reference& reference) {
    return compare_all(buffers, reference, [&](const std::string& name, bool is_state, std::int64_t i) {
        const interp::Outcome& outcome = results[static_cast<std::size_t>(i)];
        return (is_state ? outcome.states : outcome.outputs).at(name);
    });
}

Report check(const Attention& attention, const ir::Definition& declared, const Problem& problem,
             const std::string& entry) {
    Buffers buffers(tensors_of(entry, declared), problem);
    run(buffers, [&](Buffers& part) { attention(part.call()); });
    return compare(buffers, program::is_backward(entry) ? backward_reference(buffers, declared, attention.chunk())
                                                        : reference(buffers, attention.chunk()));
}

}  // namespace forge::check
