#include "tile/remade_values.h"

#include <algorithm>
#include <map>
#include <set>

#include "tile/fragments.h"
#include "tile/layout.h"
#include "tile/order.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

constexpr int kMostOperations = 6, kMostCostly = 1;  ///< of a value that is made again

/// Whether an operation multiplies what it reads as an operand of the matrix units.
bool takes_operands(const Op& op) {
    return ir::is_matmul(op.code) || op.code == Opcode::DecayMatmul || op.code == Opcode::DecayRows ||
           op.code == Opcode::DecayApply;
}

class Remaking {
  public:
    Remaking(const Function& fn, const Sizes& sizes) : fn_(fn), sizes_(sizes), work_(fn.ops.size()) {
        for (ValueId v = 0; v < fn.size(); ++v) measure(v);
        count_readers();
    }

    Function run() {
        out_.name = fn_.name;
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (!work(v).light) kept(v);
        for (const ir::Result& r : fn_.results) out_.results.push_back({r.name, r.role, kept(r.value), r.at});
        return std::move(out_);
    }

  private:
    struct Work {
        bool light = false;  ///< elementwise, of what lies in shared memory
        int operations = 0, costly = 0;
    };

    [[nodiscard]] const Work& work(ValueId v) const { return work_[static_cast<std::size_t>(v)]; }
    [[nodiscard]] bool is_matrix(ValueId v) const { return is_block_matrix(tile::with_sizes(fn_.op(v).type, sizes_)); }
    /// Whether loops find it in shared memory: what has arrived, and numbers of rows or columns.
    [[nodiscard]] bool is_at_hand(ValueId v) const {
        const Op& op = fn_.op(v);
        if (op.code == Opcode::Param) return !is_carried(op.attrs.role);
        return !is_matrix(v);
    }

    void measure(ValueId v) {
        const Op& op = fn_.op(v);
        if (!ir::is_elementwise(op.code) || op.code == Opcode::Copy || op.code == Opcode::Constant || !is_matrix(v))
            return;
        Work sum{true, 1, costly(op.code) ? 1 : 0};
        bool reads_matrix = false;
        for (const ValueId a : op.args) {
            if (is_at_hand(a)) {
                reads_matrix = reads_matrix || is_matrix(a);
                continue;
            }
            if (!work(a).light) return;
            reads_matrix = true;
            sum.operations += work(a).operations, sum.costly += work(a).costly;
        }
        if (reads_matrix && sum.operations <= kMostOperations && sum.costly <= kMostCostly)
            work_[static_cast<std::size_t>(v)] = sum;
    }

    /// All operations that multiply it count as one reader, and so do results.
    void count_readers() {
        readers_.assign(fn_.ops.size(), 0);
        std::vector<bool> multiplied(fn_.ops.size());
        for (const Op& op : fn_.ops)
            for (const ValueId a : std::set<ValueId>(op.args.begin(), op.args.end())) {
                if (takes_operands(op)) multiplied[static_cast<std::size_t>(a)] = true;
                else ++readers_[static_cast<std::size_t>(a)];
            }
        for (const ir::Result& r : fn_.results) multiplied[static_cast<std::size_t>(r.value)] = true;
        for (std::size_t i = 0; i < multiplied.size(); ++i) readers_[i] += multiplied[i] ? 1 : 0;
    }

    [[nodiscard]] bool is_remade(ValueId v) const { return work(v).light && readers_[static_cast<std::size_t>(v)] > 1; }

    /// The one value that stands for it.
    ValueId kept(ValueId v) {
        if (const auto it = kept_.find(v); it != kept_.end()) return it->second;
        const ValueId made = copied(v);
        return kept_[v] = made;
    }
    /// One of those that do, with all light work that leads to it.
    ValueId copied(ValueId v) {
        Op op = fn_.op(v);
        const bool multiplies = takes_operands(op);
        std::map<ValueId, ValueId> read;  // a square's factors are one
        for (ValueId& a : op.args) {
            const bool again = !multiplies && work(a).light && (is_remade(a) || is_remade(v));
            const auto [at, fresh] = read.try_emplace(a);
            if (fresh) at->second = again ? copied(a) : kept(a);
            a = at->second;
        }
        return out_.add(std::move(op));
    }

    const Function& fn_;
    const Sizes& sizes_;
    std::vector<Work> work_;
    std::vector<int> readers_;
    std::map<ValueId, ValueId> kept_;
    Function out_;
};

}  // namespace

Function with_remade_values(const Function& kernel, const Sizes& sizes) { return Remaking(kernel, sizes).run(); }

}  // namespace forge::tile
