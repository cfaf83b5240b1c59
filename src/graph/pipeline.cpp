#include "graph/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "graph/passes.h"
#include "graph/slice.h"
#include "ir/text.h"

namespace forge::graph {
namespace {

constexpr int kMostRounds = 16;

/// Simplifies until nothing changes.
ir::Function simplify(const ir::Function& fn) {
    ir::Function now = fn;
    std::string text = ir::print(now);
    for (int round = 0; round < kMostRounds; ++round) {
        now = dce(cse(canonicalize(now)));
        std::string next = ir::print(now);
        if (next == text) break;
        text = std::move(next);
    }
    return now;
}

constexpr Pass kPipeline[] = {
    {"widen", widen, "compute in float32: conversions are storage, not arithmetic"},
    {"simplify", simplify, "one form for each thing, before anything is recognised"},
    {"stabilize", stabilize, "decays from sums of gates between tokens, never from differences of running sums"},
    {"simplify", simplify, "share what stabilisation made"},
    {"reassociate", reassociate, "products that share a factor become one; no K x K matrix"},
    {"decompose", decompose, "norms in terms of reductions, so that their elementwise parts fuse"},
    {"simplify", simplify, ""},
    {"fuse_products", fuse_products, "accumulating products; structural zeros"},
};

/// The axis that back ends would cut: the first in order of preference.
std::string value_axis(const ir::Function& fn) {
    const auto axes = parallel_axes(fn);
    return axes.empty() ? "" : axes[0];
}

// Those that the pipeline is made of, and those that plans for warp groups run after it.
constexpr Pass kSingle[] = {
    {"canonicalize", canonicalize, ""},
    {"cse", cse, ""},
    {"dce", dce, ""},
    {"late_factors", late_factors, "a factor that two terms share is applied once, last"},
    {"hoist_scales", [](const ir::Function& fn) { return hoist_scales(fn, value_axis(fn)); },
     "products read inputs as they came"},
    {"merge_scales", [](const ir::Function& fn) { return merge_scales(fn, value_axis(fn)); },
     "scales leave what every task computes"},
    {"decay_rows", decay_rows, "rows decayed to either end of the chunk follow from what a decay product computes"},
    {"deepest_last", deepest_last, "a product runs while the other's operands are made"},
};

const Pass& pass_named(const std::string& name) {
    for (const Pass& p : kPipeline)
        if (name == p.name) return p;
    for (const Pass& p : kSingle)
        if (name == p.name) return p;
    std::vector<std::string> names;
    for (const Pass& p : kPipeline)
        if (std::find(names.begin(), names.end(), p.name) == names.end()) names.emplace_back(p.name);
    for (const Pass& p : kSingle) names.emplace_back(p.name);
    throw CompileError(Diagnostic{
        fmt::format("unknown pass '{}'", name), fmt::format("one of: {}", fmt::join(names, ", ")), "", {}, ""});
}

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

ir::Function optimize(ir::Function program, const std::function<void(const Pass&, const ir::Function&)>& after) {
    for (const Pass& pass : kPipeline) {
        program = pass.run(program);
        if (after) after(pass, program);
    }
    return program;
}

ir::Function differentiable(ir::Function program) {
    for (const Pass& pass : kPipeline)
        if (pass.run != fuse_products) program = pass.run(program);
    return program;
}

ir::Function optimize_gradient(ir::Function adjoint) {
    for (const auto run : {simplify, reassociate, simplify, fuse_products}) adjoint = run(adjoint);
    return adjoint;
}

std::string run_passes(const std::string& text, const std::vector<std::string>& passes, const std::string& file) {
    ir::Function fn = ir::parse_function(text, file);
    for (const std::string& name : passes) fn = pass_named(name).run(fn);
    return ir::print(fn);
}

}  // namespace forge::graph
