#include "plan/halves.h"

#include <algorithm>
#include <array>
#include <utility>

#include "graph/passes.h"

namespace forge::plan {
namespace {

using ir::Function;

/// Roughly, instructions of an operation: of matrices, which are what is long; of other work next to nothing.
double length_of(const Function& fn, const ir::Op& op) {
    const auto is_matrix = [](const ir::Op& o) { return o.type.rank() == 2; };
    const bool of_matrix =
        std::any_of(op.args.begin(), op.args.end(), [&](ir::ValueId a) { return is_matrix(fn.op(a)); });
    if (op.args.empty() || ir::is_view(op.code)) return 0;
    if (!is_matrix(op) && !of_matrix) return 0.01;
    if (op.code == ir::Opcode::Inverse) return 16;
    return ir::is_elementwise(op.code) ? 1 : 4;
}

/// What work a set of results needs, and how long that is.
class Work {
  public:
    explicit Work(const Function& fn) : fn_(fn) {}
    [[nodiscard]] std::vector<bool> needed(std::size_t result) const {
        return ir::needed_for(fn_, {fn_.results[result].value});
    }
    /// Of what is in `work` and not in `others`.
    [[nodiscard]] double length(const std::vector<bool>& work, const std::vector<bool>& others) const {
        double sum = 0;
        for (ir::ValueId v = 0; v < fn_.size(); ++v) {
            const auto i = static_cast<std::size_t>(v);
            if (work[i] && !others[i]) sum += length_of(fn_, fn_.op(v));
        }
        return sum;
    }
    [[nodiscard]] double length(const std::vector<bool>& work) const {
        return length(work, std::vector<bool>(work.size()));
    }

  private:
    const Function& fn_;
};

/// The two results that have most work each that the other has not.
std::pair<std::size_t, std::size_t> most_apart(const Work& work, const std::vector<std::vector<bool>>& needed) {
    std::pair<std::size_t, std::size_t> found = {0, 1};
    double most = -1;
    for (std::size_t a = 0; a < needed.size(); ++a)
        for (std::size_t b = a + 1; b < needed.size(); ++b) {
            const double apart = std::min(work.length(needed[a], needed[b]), work.length(needed[b], needed[a]));
            if (apart > most) found = {a, b}, most = apart;
        }
    return found;
}

/// Which results are the second half's: of the two that are most apart one, and of the others, the longest first, those
/// that leave the longer half shorter there.
std::vector<bool> in_second_half(const Function& fn) {
    const Work work(fn);
    std::vector<std::vector<bool>> needed;
    for (std::size_t i = 0; i < fn.results.size(); ++i) needed.push_back(work.needed(i));
    const auto [first, second] = most_apart(work, needed);
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < needed.size(); ++i)
        if (i != first && i != second) others.push_back(i);
    std::stable_sort(others.begin(), others.end(),
                     [&](std::size_t a, std::size_t b) { return work.length(needed[a]) > work.length(needed[b]); });
    std::vector<bool> found(needed.size());
    found[second] = true;
    std::array<std::vector<bool>, 2> halves = {needed[first], needed[second]};
    for (const std::size_t i : others) {
        const auto price = [&](std::size_t half) {  // the longer half's length, then what is added
            const double added = work.length(needed[i], halves[half]);
            return std::pair(std::max(work.length(halves[half]) + added, work.length(halves[1 - half])), added);
        };
        const std::size_t half = price(1) < price(0) ? 1 : 0;
        found[i] = half == 1;
        for (std::size_t v = 0; v < needed[i].size(); ++v) halves[half][v] = halves[half][v] || needed[i][v];
    }
    return found;
}

KernelGraph half(const KernelGraph& kernel, const std::string& name, const std::vector<bool>& second, bool which) {
    KernelGraph made = kernel;
    made.name = made.fn.name = name;
    made.fn.results.clear();
    for (std::size_t i = 0; i < second.size(); ++i)
        if (second[i] == which) made.fn.results.push_back(kernel.fn.results[i]);
    made.fn = graph::dce(made.fn);
    return made;
}

void add(std::vector<KernelGraph>& made, KernelGraph kernel, const std::set<std::string>& names) {
    if (kernel.loop != Loop::Chunks || !names.contains(kernel.name) || kernel.fn.results.size() < 2)
        return made.push_back(std::move(kernel));
    const std::vector<bool> second = in_second_half(kernel.fn);
    add(made, half(kernel, kernel.name + "_first", second, false), names);
    add(made, half(kernel, kernel.name + "_second", second, true), names);
}

}  // namespace

std::vector<KernelGraph> with_halves(std::vector<KernelGraph> kernels, const std::set<std::string>& names) {
    std::vector<KernelGraph> made;
    for (KernelGraph& kernel : kernels) add(made, std::move(kernel), names);
    return made;
}

}  // namespace forge::plan
