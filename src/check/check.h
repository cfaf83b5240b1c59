/// Compares a compiled variant with its specification: the definition's `step`, run token by token in float64 on the
/// same rounded inputs, for every sequence and head. A definition without `step` is compared with its own three phases
/// instead, which finds errors of the compiler but none of the definition; the report says which was used.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "check/problem.h"

namespace forge::check {

/// How far one output or final state is from the reference, over the whole tensor.
struct Difference {
    std::string name;
    bool is_state = false;
    double relative_rms = 0;  ///< rms(got - reference) / scale of the reference; inf if a number is not finite
    double max_abs = 0;       ///< NaN if a number is not
    bool ok = true;
    /// The relative RMS of the program itself with operands of 16 bits (check/operands.h); 0: not asked for.
    double of_operands = 0;
    /// Beyond the tolerance, but no farther than twice what such operands alone make of it.
    [[nodiscard]] bool coarse() const { return !ok && relative_rms <= 2 * of_operands; }
    // Where it goes wrong first, if it is not ok: the earliest token (over all heads) whose row is off.
    std::int64_t first_bad_token = -1, sequence = -1, head = -1;
};

/// What errors are relative to: the reference's root mean square, but no less than numbers of the result's type can
/// resolve. Below the smallest normal float32 over its epsilon, the terms of a sum fall out of float32's range before
/// they are too small to matter; a 16-bit float of 5 exponent bits ends at its last subnormal number.
double error_scale(double rms, DType result, double tolerance);

struct Report {
    std::vector<Difference> differences;
    double tolerance = 0;
    bool ok = true;
    /// Whether the recurrence itself is finite on these inputs. If not, the variant does not admit them: nothing is
    /// compared, and `ok` is true.
    bool admitted = true;
    bool against_step = true;
    [[nodiscard]] double worst() const;  ///< the largest relative RMS
};

/// The float64 results of every (sequence, head), sequence-major. Depends on the inputs only: one reference serves all
/// strategies. Without `step` it depends on the chunk size too, as a definition by chunks may mean that.
struct Reference {
    std::vector<interp::Outcome> outcomes;
    bool against_step = true;
    bool finite = true;
    double tolerance = 0;    ///< of relative errors; 0: check::tolerance of the problem's element type
    double least_scale = 0;  ///< that errors are relative to, of the largest root mean square of a result
    /// The same of sums over all tokens: what these would come to if their terms were of random signs.
    std::map<std::string, double> least_scales = {};
    /// The least that errors of a result are relative to.
    [[nodiscard]] double least_scale_of(const std::string& result) const;
};
/// A chunk that the definition fixes takes precedence.
Reference reference(const Buffers& buffers, std::int64_t chunk);

/// Of the backward pass of a definition: `buffers` are of its graph::gradient_interface. A gradient that is a sum of
/// terms that cancel is held against the other gradients, and against its terms, not against what is left of it.
Reference backward_reference(const Buffers& buffers, const ir::Definition& declared, std::int64_t chunk);

/// One head of one sequence.
using RunHead = std::function<interp::Outcome(const interp::Sequence& sequence)>;
/// `run` of every (sequence, head), sequence-major.
std::vector<interp::Outcome> outcomes_of(const Buffers& buffers, const RunHead& run);

/// Calls with the buffers, or twice if the problem cuts its sequences in two, the second time from where the first
/// ended.
void run(Buffers& buffers, const std::function<void(Buffers&)>& call);

/// Fills outputs and final states with NaN, so that what a call leaves out is found.
void clear_results(Buffers& buffers);
/// What the call left in the buffers against the reference.
Report compare(const Buffers& buffers, const Reference& reference);
/// … what `outcomes_of` made.
Report compare(const Buffers& buffers, const std::vector<interp::Outcome>& results, const Reference& reference);

/// All of it: buffers, call, reference, comparison. `declared` is the definition as written (see `Buffers`), `entry`
/// the entry point that `attention` is compiled of.
Report check(const Attention& attention, const ir::Definition& declared, const Problem& problem,
             const std::string& entry = "forward");

}  // namespace forge::check
