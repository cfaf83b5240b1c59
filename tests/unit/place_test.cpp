/// Which kernels a strategy makes, and what passes between them.
#include "plan/place.h"

#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include "forge/error.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "tests/support/entries.h"

namespace forge::plan {
namespace {

/// "name: spills read -> spills written, states and outputs made", one per kernel.
std::vector<std::string> kernels_of(const std::string& variant, Strategy strategy, const std::string& tile_axis = "") {
    const ir::Function program = graph::optimize(frontend::join(variants::find(variant)->make().define()));
    std::vector<std::string> lines;
    for (const KernelGraph& kernel : place(program, strategy, tile_axis)) {
        std::vector<std::string> reads, writes;
        for (const ir::Op& op : kernel.fn.ops)
            if (op.code == ir::Opcode::Param && op.attrs.role == ir::Role::Spill) reads.push_back(op.attrs.name);
        for (const ir::Result& r : kernel.fn.results) writes.push_back(r.role == ir::Role::Spill ? r.name : fmt::format("{} {}", to_string(r.role), r.name));
        lines.push_back(fmt::format("{}: {} -> {}", kernel.name.substr(variant.size() + 1), fmt::join(reads, " "), fmt::join(writes, ", ")));
    }
    return lines;
}

TEST(Place, Print) {
    for (const char* v : {"linear_attention", "scalar_gla", "delta_net", "hgrn"})
        for (Strategy s : all_strategies())
            for (const char* axis : {"", "V"})
                fmt::print("{} {} {}:\n  {}\n", v, to_string(s), axis, fmt::join(kernels_of(v, s, axis), "\n  "));
}

}  // namespace
}  // namespace forge::plan
