#include "graph/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "graph/passes.h"
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

constexpr Pass kSingle[] = {
    {"canonicalize", canonicalize, ""},
    {"cse", cse, ""},
    {"dce", dce, ""},
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
    throw CompileError(Diagnostic{fmt::format("unknown pass '{}'", name), fmt::format("one of: {}", fmt::join(names, ", ")), "", {}, ""});
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

std::string run_passes(const std::string& text, const std::vector<std::string>& passes, const std::string& file) {
    ir::Function fn = ir::parse_function(text, file);
    for (const std::string& name : passes) fn = pass_named(name).run(fn);
    return ir::print(fn);
}

}  // namespace forge::graph
