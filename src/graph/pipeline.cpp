#include "graph/pipeline.h"

#include <fmt/format.h>

#include "forge/error.h"
#include "graph/passes.h"
#include "graph/slice.h"
#include "ir/text.h"

namespace forge::graph {
namespace {

constexpr int kMostRounds = 16;

constexpr Pass kPipeline[] = {
    {ir::Pass::Widen, widen},
    {ir::Pass::Simplify, simplify},
    {ir::Pass::Stabilize, stabilize},
    {ir::Pass::SimplifySums, simplify},
    {ir::Pass::Reassociate, reassociate},
    {ir::Pass::Decompose, decompose},
    {ir::Pass::SimplifyParts, simplify},
    {ir::Pass::JoinRows, join_rows},
    {ir::Pass::FuseProducts, fuse_products},
};

/// The program of a backward pass goes through all of these but the last, becomes the gradient, and then goes on here.
constexpr Pass kAfterGradient[] = {
    {ir::Pass::SimplifyGradient, simplify},  {ir::Pass::ReassociateGradient, reassociate},
    {ir::Pass::MoveSigns, move_signs},       {ir::Pass::ShareProducts, share_products},
    {ir::Pass::ShareFactors, share_factors}, {ir::Pass::SimplifyGradientProducts, simplify},
    {ir::Pass::FuseProducts, fuse_products},
};

/// The axis that back ends would cut: the first in order of preference.
std::string value_axis(const ir::Function& fn) {
    const auto axes = parallel_axes(fn);
    return axes.empty() ? "" : axes[0];
}

struct NamedPass {
    const char* name;
    ir::Function (*run)(const ir::Function&);
};

// Those that the pipeline is made of, and those that plans for warp groups run after it.
constexpr NamedPass kSingle[] = {
    {"canonicalize", canonicalize},
    {"cse", cse},
    {"dce", dce},
    {"mask_pads", [](const ir::Function& fn) { return mask_pads(fn, maskable_pads(fn, {{"padded", 1.0}})); }},
    {"vector_products", vector_products},
    {"late_factors", late_factors},
    {"hoist_scales", [](const ir::Function& fn) { return hoist_scales(fn, value_axis(fn)); }},
    {"merge_scales", [](const ir::Function& fn) { return merge_scales(fn, value_axis(fn)); }},
    {"fold_factors", [](const ir::Function& fn) { return fold_factors(fn, value_axis(fn)); }},
    {"decay_rows", [](const ir::Function& fn) { return decay_rows(fn); }},
    {"deepest_last", deepest_last},
    {"sum_apart", sum_apart},
    {"move_signs", move_signs},
    {"share_products", share_products},
    {"share_masked_products", share_masked_products},
    {"join_products", join_products},
    {"share_factors", share_factors},
};

ir::Function (*pass_named(const std::string& name))(const ir::Function&) {
    std::vector<std::string> names;
    for (const Pass& p : kPipeline) {
        if (name == p.name()) return p.run;
        names.emplace_back(p.name());
    }
    for (const NamedPass& p : kSingle) {
        if (name == p.name) return p.run;
        names.emplace_back(p.name);
    }
    throw CompileError(Diagnostic{
        fmt::format("unknown pass '{}'", name), fmt::format("one of: {}", fmt::join(names, ", ")), "", {}, ""});
}

}  // namespace

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

std::span<const Pass> pipeline() { return kPipeline; }

ir::Function optimize(ir::Function program, const ir::PassRunner& passes) {
    for (const Pass& pass : kPipeline) program = passes.run(pass.id, [&] { return pass.run(program); });
    return program;
}

ir::Function differentiable(ir::Function program, const ir::PassRunner& passes) {
    for (const Pass& pass : kPipeline)
        if (pass.id != ir::Pass::FuseProducts) program = passes.run(pass.id, [&] { return pass.run(program); });
    return program;
}

ir::Function optimize_gradient(ir::Function adjoint, const ir::PassRunner& passes) {
    for (const Pass& pass : kAfterGradient) adjoint = passes.run(pass.id, [&] { return pass.run(adjoint); });
    return adjoint;
}

std::string run_passes(const std::string& text, const std::vector<std::string>& passes, const std::string& file) {
    ir::Function fn = ir::parse_function(text, file);
    for (const std::string& name : passes) fn = pass_named(name)(fn);
    return ir::print(fn);
}

}  // namespace forge::graph
