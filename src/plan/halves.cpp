#include "plan/halves.h"

#include <algorithm>

#include "graph/passes.h"

namespace forge::plan {
namespace {

using ir::Function;

/// The products, inverses and decays that each result needs.
std::vector<std::set<ir::ValueId>> costly_work(const Function& fn) {
    std::vector<std::set<ir::ValueId>> work;
    for (const ir::Result& r : fn.results) {
        const auto needed = ir::needed_for(fn, {r.value});
        work.emplace_back();
        for (ir::ValueId v = 0; v < fn.size(); ++v) {
            const ir::Op& op = fn.op(v);
            const bool costly = !op.args.empty() && !ir::is_view(op.code) && !ir::is_elementwise(op.code);
            if (needed[static_cast<std::size_t>(v)] && costly) work.back().insert(v);
        }
    }
    return work;
}

std::size_t in_common(const std::set<ir::ValueId>& a, const std::set<ir::ValueId>& b) {
    return static_cast<std::size_t>(std::count_if(a.begin(), a.end(), [&](ir::ValueId v) { return b.contains(v); }));
}

/// Which results are the second half's: two that have the least work in common, relative to what they need, and of the
/// others those that have more with the second.
std::vector<bool> in_second_half(const Function& fn) {
    const auto work = costly_work(fn);
    const std::size_t count = work.size();
    const auto alike = [&](std::size_t a, std::size_t b) {
        const std::size_t most = std::max<std::size_t>(1, std::max(work[a].size(), work[b].size()));
        return static_cast<double>(in_common(work[a], work[b])) / static_cast<double>(most);
    };
    std::size_t first = 0, second = 1;
    for (std::size_t a = 0; a < count; ++a)
        for (std::size_t b = a + 1; b < count; ++b)
            if (alike(a, b) < alike(first, second)) first = a, second = b;
    std::vector<bool> found;
    for (std::size_t i = 0; i < count; ++i)
        found.push_back(i == second || (i != first && alike(i, second) > alike(i, first)));
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
