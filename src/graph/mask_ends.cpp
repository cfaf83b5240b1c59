// Numbers behind an axis's end that would spoil its padding are replaced: x by where(place < size, x, other).
#include <algorithm>
#include <limits>

#include "graph/padding.h"
#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// What may stand behind the end: what adds nothing, and what is no maximum.
constexpr double kOthers[] = {0, -std::numeric_limits<double>::infinity()};

/// Where a type has the axis, once; nothing if it does not, or more often.
std::optional<std::int64_t> only_place(const ir::Type& type, const std::string& axis) {
    std::optional<std::int64_t> found;
    for (std::size_t d = 0; d < type.shape.size(); ++d) {
        if (type.shape[d].symbol != axis) continue;
        if (found) return std::nullopt;
        found = static_cast<std::int64_t>(d);
    }
    return found;
}

class MaskedEnds {
  public:
    MaskedEnds(const std::string& axis, std::int64_t size) : axis_(axis), size_(size) {}

    struct Found {
        Function fn;
        double numbers = 0;  ///< that are replaced, in vectors
    };
    std::optional<Found> run(const Function& fn, int depth = 0) {
        const auto spoilt = spoils_padding(fn, axis_, size_);
        if (!spoilt) return Found{fn};
        constexpr int kMostDepth = 12, kMostTries = 400;
        std::optional<Found> best;
        if (depth == kMostDepth) return best;
        for (const std::vector<ValueId>& values : candidates(fn, spoilt->value)) {
            if (++tries_ > kMostTries) break;
            const auto masked = masked_so_that_it_helps(fn, values, spoilt->left);
            if (!masked) continue;
            auto found = run(*masked, depth + 1);
            if (!found) continue;
            for (const ValueId v : values) found->numbers += numbers(fn.op(v).type);
            if (!best || found->numbers < best->numbers) best = std::move(found);
        }
        return best;
    }

  private:
    /// What the operation reads, one by one and all, and itself, if it is a result.
    [[nodiscard]] std::vector<std::vector<ValueId>> candidates(const Function& fn, ValueId spoilt) const {
        std::vector<ValueId> all;
        for (const ValueId v : fn.op(spoilt).args)
            if (only_place(fn.op(v).type, axis_) && std::find(all.begin(), all.end(), v) == all.end()) all.push_back(v);
        std::vector<std::vector<ValueId>> found;
        for (const ValueId v : all) found.push_back({v});
        if (all.size() > 1) found.push_back(all);
        if (only_place(fn.op(spoilt).type, axis_)) found.push_back({spoilt});
        return found;
    }

    /// By the first of the other numbers with which something later is spoilt, or nothing.
    [[nodiscard]] std::optional<Function> masked_so_that_it_helps(const Function& fn,
                                                                  const std::vector<ValueId>& values,
                                                                  std::int64_t left) const {
        for (const double other : kOthers) {
            const Function made = masked(fn, values, other);
            const auto next = spoils_padding(made, axis_, size_);
            if (!next || next->left < left) return made;
        }
        return std::nullopt;
    }

    /// Every reader of the values has the masked ones.
    [[nodiscard]] Function masked(const Function& fn, const std::vector<ValueId>& values, double other) const {
        ValueId at = 0;
        return ir::rebuild(fn, [&](Function& out, const Op& op, std::vector<ValueId> args) {
            const ValueId x = ir::keep(out, op, std::move(args));
            if (std::find(values.begin(), values.end(), at++) == values.end()) return x;
            return ir::emit(out, Opcode::Where, {within(out, op), x, ir::emit_constant(out, other, op.where)}, {},
                            op.where, op.name);
        });
    }
    /// Whether a place along the axis lies before its end, in the dimensions of `op`.
    [[nodiscard]] ValueId within(Function& out, const Op& op) const {
        const std::int64_t place = only_place(op.type, axis_).value();
        const Dim& along = op.type.shape[static_cast<std::size_t>(place)];
        const auto end = static_cast<double>(along.factor * size_);
        const ValueId places = out.add({Opcode::Arange, {DType::F32, {along}}, {}, {}, "", op.where, {}});
        ValueId mask = ir::emit(out, Opcode::Lt, {places, ir::emit_constant(out, end, op.where)});
        for (std::int64_t d = place + 1; d < static_cast<std::int64_t>(op.type.rank()); ++d) {
            Attrs attrs;
            attrs.dim = 1;
            mask = ir::emit(out, Opcode::Unsqueeze, {mask}, attrs);
        }
        return mask;
    }

    /// A matrix of a chunk's rows counts as less than a state.
    [[nodiscard]] static double numbers(const ir::Type& type) {
        double count = 1;
        for (const Dim& d : type.shape) count *= d.symbol == ir::kChunkSymbol ? 64 : 128;
        return count;
    }

    const std::string& axis_;
    std::int64_t size_;
    int tries_ = 0;
};

}  // namespace

std::optional<Function> with_masked_ends(const Function& program, const std::string& axis, std::int64_t size) {
    auto found = MaskedEnds(axis, size).run(program);
    if (!found) return std::nullopt;
    return dce(cse(found->fn));
}

}  // namespace forge::graph
