#include <map>
#include <tuple>

#include "graph/passes.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

/// What makes two ops the same: everything but the name hint and the source location.
struct Key {
    const ir::Op* op;
    [[nodiscard]] auto attributes() const {
        const ir::Attrs& x = op->attrs;
        return std::tuple(op->type.dtype, shape(), x.name, x.role, x.value, x.dtype, x.dim, x.start, x.step, x.count,
                          x.perm, x.diagonal, std::tuple(x.at, x.reverse, x.exclusive, x.trans_a, x.trans_b, x.tri));
    }
    /// Not as it prints: axes of their own may have the same spelling.
    [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> shape() const {
        std::vector<std::pair<std::string, std::int64_t>> dims;
        for (const Dim& d : op->type.shape) dims.emplace_back(d.symbol, d.factor);
        return dims;
    }
    /// Most differ in what they do and read.
    friend bool operator<(const Key& a, const Key& b) {
        const auto operation = [](const Key& k) { return std::tie(k.op->code, k.op->args); };
        return operation(a) != operation(b) ? operation(a) < operation(b) : a.attributes() < b.attributes();
    }
};

}  // namespace

ir::Function cse(const ir::Function& fn) {
    std::vector<ir::Op> pinned;
    pinned.reserve(fn.ops.size());
    std::map<Key, ir::ValueId> seen;
    return ir::rebuild(fn, [&](ir::Function& out, const ir::Op& op, std::vector<ir::ValueId> args) {
        pinned.push_back(op);
        pinned.back().args = args;
        const auto [it, fresh] = seen.try_emplace(Key{&pinned.back()}, out.size());
        if (fresh) return ir::keep(out, op, std::move(args));
        if (out.op(it->second).name.empty()) out.op(it->second).name = op.name;
        return it->second;
    });
}

ir::Function dce(const ir::Function& fn) {
    std::vector<ir::ValueId> roots;
    for (const ir::Result& r : fn.results) roots.push_back(r.value);
    const auto needed = ir::needed_for(fn, roots);
    std::size_t index = 0;
    return ir::rebuild(fn, [&](ir::Function& out, const ir::Op& op, std::vector<ir::ValueId> args) {
        return needed[index++] ? ir::keep(out, op, std::move(args)) : ir::kNoValue;
    });
}

}  // namespace forge::graph
