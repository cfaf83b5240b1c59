#include "tile/decay_group.h"

#include <algorithm>
#include <functional>
#include <map>

#include "forge/error.h"
#include "graph/passes.h"
#include "ir/rebuild.h"
#include "tile/fragment_steps.h"
#include "tile/fragments.h"

namespace forge::tile {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

namespace {

constexpr std::size_t kMostFactors = 2;  ///< whose products fit in registers side by side

bool is_product(const Op& op) { return op.code == Opcode::DecayMatmul && op.layout && is_fragment(op.layout->space); }
bool alike(const Op& a, const Op& b) { return a.args[1] == b.args[1] && a.args[2] == b.args[2] && a.attrs == b.attrs; }

class Groups {
  public:
    explicit Groups(const Function& fn) : fn_(fn), taken_(fn.ops.size(), false) {
        std::vector<ValueId> products;
        for (ValueId v = 0; v < fn.size(); ++v)
            if (is_product(fn.op(v))) products.push_back(v);
        late_ = ir::depends_on(fn, products);
    }

    std::vector<DecayGroup> run() {
        std::vector<DecayGroup> groups;
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (is_product(fn_.op(v)) && !taken_[index(v)]) groups.push_back(with_head(v));
        return groups;
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    DecayGroup with_head(ValueId head) {
        const Op& op = fn_.op(head);
        DecayGroup group;
        for (ValueId v = head; v < fn_.size() && group.factors.size() < kMostFactors; ++v)
            if (v == head || (is_product(fn_.op(v)) && !taken_[index(v)] && alike(fn_.op(v), op) &&
                              !late_[index(fn_.op(v).args[0])]))
                group.factors.push_back({take(v), ir::kNoValue});
        for (DecayGroup::Factor& f : group.factors)
            f.rows = first([&](const Op& u) {
                return is_rows(u, op.args[2], false) && u.args[0] == fn_.op(f.product).args[0] &&
                       u.attrs.exclusive == op.attrs.exclusive;
            });
        group.rows = first([&](const Op& u) { return is_rows(u, op.args[2], true) && u.args[0] == op.args[1]; });
        group.sum =
            first([&](const Op& u) { return u.code == Opcode::Sum && u.attrs.dim == 0 && u.args[0] == op.args[2]; });
        return group;
    }

    static bool is_rows(const Op& op, ValueId gates, bool reverse) {
        return op.code == Opcode::DecayRows && op.args[1] == gates && op.attrs.reverse == reverse;
    }

    template <class Wanted>
    ValueId first(Wanted wanted) {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (!taken_[index(v)] && wanted(fn_.op(v))) return take(v);
        return ir::kNoValue;
    }

    ValueId take(ValueId v) {
        taken_[index(v)] = true;
        return v;
    }

    const Function& fn_;
    std::vector<bool> taken_, late_;
};

}  // namespace

std::vector<ValueId> DecayGroup::members() const {
    std::vector<ValueId> all;
    for (const Factor& f : factors) all.push_back(f.product);
    for (const Factor& f : factors)
        if (f.rows != ir::kNoValue) all.push_back(f.rows);
    if (rows != ir::kNoValue) all.push_back(rows);
    if (sum != ir::kNoValue) all.push_back(sum);
    return all;
}

std::vector<DecayGroup> decay_groups(const Function& fn) { return Groups(fn).run(); }

bool are_gathered(const Function& fn) {
    const std::vector<DecayGroup> groups = decay_groups(fn);
    return std::all_of(groups.begin(), groups.end(), [](const DecayGroup& group) {
        const auto members = group.members();
        return std::adjacent_find(members.begin(), members.end(), [](ValueId a, ValueId b) { return b != a + 1; }) ==
               members.end();
    });
}

namespace {

Function gathered_once(const Function& fn) {
    std::map<ValueId, std::vector<ValueId>> together;
    for (const DecayGroup& group : decay_groups(fn))
        for (const ValueId v : group.members()) together[v] = group.members();
    std::vector<bool> done(fn.ops.size(), false);
    std::vector<ValueId> order;
    const std::function<void(ValueId)> take = [&](ValueId v) {
        if (done[static_cast<std::size_t>(v)]) return;
        const auto it = together.find(v);
        const std::vector<ValueId> values = it == together.end() ? std::vector<ValueId>{v} : it->second;
        for (const ValueId u : values)
            for (const ValueId a : fn.op(u).args) take(a);
        for (const ValueId u : values) done[static_cast<std::size_t>(u)] = true, order.push_back(u);
    };
    for (ValueId v = 0; v < fn.size(); ++v) take(v);
    return ir::permuted(fn, order);
}

}  // namespace

Function gathered(const Function& fn) {
    Function now = fn;
    for (int group = 0; group <= fn.size() && !are_gathered(now); ++group) now = gathered_once(now);
    if (!are_gathered(now)) throw InternalError("tile: decays by the same gates wait for one another: " + fn.name);
    return now;
}

std::int64_t gate_sums_floats(const ir::Type& gates, bool factors) {
    constexpr std::int64_t kTotals = 4, kFactors = 8;  // rows of the device library's GateSums
    return (kBlock + kTotals + (factors ? kFactors : 0)) * size_of(gates, 1);
}

std::int64_t group_floats(const Function& fn, const DecayGroup& group) {
    return gate_sums_floats(fn.op(fn.op(group.head()).args[1]).type, true);
}

bool is_block_decay(const ir::Type& product, const ir::Type& q) {
    return is_block_matrix(q) && product.shape[0].is_constant() && product.shape[0].factor == kBlock;
}

Function with_decay_rows(const Function& fn, const Sizes& sizes, bool multiplied) {
    const bool blocks = std::all_of(fn.ops.begin(), fn.ops.end(), [&](const Op& op) {
        return op.code != Opcode::DecayMatmul ||
               is_block_decay(with_sizes(op.type, sizes), with_sizes(fn.op(op.args[0]).type, sizes));
    });
    return blocks ? graph::decay_rows(fn, multiplied) : fn;
}

bool only_decays(const Function& fn, ValueId gates) {
    bool decays = false;
    for (const Op& op : fn.ops)
        for (std::size_t i = 0; i < op.args.size(); ++i) {
            if (op.args[i] != gates) continue;
            const bool product =
                op.code == Opcode::DecayMatmul && i == 2 && is_block_decay(op.type, fn.op(op.args[0]).type);
            const bool sum = op.code == Opcode::Sum && op.attrs.dim == 0, rows = op.code == Opcode::DecayRows && i == 1;
            if (!product && !sum && !rows) return false;
            decays = decays || product;
        }
    return decays;
}

bool only_first_factor(const Function& fn, ValueId input) {
    const auto product = std::find_if(fn.ops.begin(), fn.ops.end(), [&](const Op& op) {
        return op.code == Opcode::DecayMatmul && op.args[0] == input;
    });
    if (product == fn.ops.end() || !is_block_decay(product->type, fn.op(input).type)) return false;
    return std::all_of(fn.ops.begin(), fn.ops.end(), [&](const Op& op) {
        const auto reads = std::count(op.args.begin(), op.args.end(), input);
        if (op.code == Opcode::DecayMatmul && &op != &*product) return reads == 0 && !alike(op, *product);
        return reads == 0 || (reads == 1 && op.args[0] == input &&
                              (&op == &*product || (op.code == Opcode::DecayRows && !op.attrs.reverse)));
    });
}

}  // namespace forge::tile
