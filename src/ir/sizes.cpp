#include "ir/sizes.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "ir/definition.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::ir {
namespace {

/// Elements that the op needs its axis to have; 0 if it takes the axis as it is.
std::int64_t least_extent(const Op& op) {
    const std::int64_t start = op.attrs.start;
    if (op.code == Opcode::Select) return start < 0 ? -start : start + 1;
    if (op.code != Opcode::Slice || op.attrs.length == 0) return 0;
    return start < 0 ? -start : start + (op.attrs.length - 1) * op.attrs.step + 1;
}

}  // namespace

std::map<std::string, LeastSize> least_sizes(const Function& fn) {
    std::map<std::string, LeastSize> least;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        const std::int64_t extent = least_extent(op);
        if (extent == 0) continue;
        const Shape& shape = fn.op(op.args[0]).type.shape;
        const Dim& d = shape[static_cast<std::size_t>(*normal_axis(op.attrs.dim, shape.size()))];
        if (d.is_constant() || d.symbol == kChunkSymbol) continue;
        const std::int64_t size = (extent + d.factor - 1) / d.factor;
        LeastSize& known = least[d.symbol];
        if (size > known.size || known.needed_by == kNoValue) known = {std::max(size, known.size), v};
    }
    return least;
}

Function with_bound_sizes(const Function& fn, const std::map<std::string, std::int64_t>& sizes) {
    std::vector<Diagnostic> found;
    for (const auto& [symbol, least] : least_sizes(fn)) {
        const auto it = sizes.find(symbol);
        if (it == sizes.end() || it->second >= least.size) continue;
        const Op& op = fn.op(least.needed_by);
        found.push_back({fmt::format("{}: not within the axis: {} is {}", info(op.code).name, symbol, it->second),
                         fmt::format("{} of at least {}", symbol, least.size), to_string(fn.op(op.args[0]).type),
                         op.where, ""});
    }
    if (!found.empty()) throw CompileError(std::move(found));
    return rebuild(fn, [&](Function& out, const Op& op, std::vector<ValueId> args) {
        if (op.code != Opcode::Size) return keep(out, op, std::move(args));
        const auto it = sizes.find(op.attrs.name);
        if (it == sizes.end())
            throw CompileError(Diagnostic{fmt::format("size: no axis is called '{}'", op.attrs.name),
                                          "a dimension of an input or a state", "", op.where, ""});
        return emit_constant(out, static_cast<double>(op.attrs.count * it->second), op.where);
    });
}

}  // namespace forge::ir
