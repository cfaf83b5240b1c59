#include "tile/stream.h"

#include <algorithm>

#include "ir/rebuild.h"
#include "ir/triangular.h"
#include "tile/lower.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

}  // namespace

bool is_scan(const Op& op) {
    return op.code == Opcode::LinearScan || op.code == Opcode::LinearScanFrom || op.code == Opcode::Cumsum;
}

namespace {

/// The [M, N] whose elements an op walks over, row by row; empty if it does anything else.
Shape walked(const Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    if (op.code == Opcode::Sum)
        return op.attrs.dim == 0 && op.type.rank() == 1 ? fn.op(op.args[0]).type.shape : Shape{};
    if (op.type.rank() != 2) return {};
    if (op.code == Opcode::LinearScan || op.code == Opcode::LinearScanFrom)
        return op.attrs.reverse || op.attrs.exclusive ? Shape{} : op.type.shape;
    if (op.code == Opcode::Cumsum)
        return op.attrs.dim == 0 && !op.attrs.reverse && !op.attrs.exclusive ? op.type.shape : Shape{};
    const bool positional = op.code == Opcode::Tril || op.code == Opcode::Triu;
    return ir::is_elementwise(op.code) && !positional && ir::triangle_of(fn, v) == ir::Triangle::Full ? op.type.shape
                                                                                                      : Shape{};
}

/// Grows one loop at a time, in order. An op joins if nothing outside the loop stands between it
/// and the loop.
class Grouping {
  public:
    explicit Grouping(const Function& fn) : fn_(fn), group_of_(fn.ops.size(), -1) {}

    std::vector<int> run() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Shape shape = walked(fn_, v);
            if (!shape.empty()) {
                if (shape != shape_ || reads(v, after_)) begin(shape);
                join(v);
            } else if (reads_group(v) || reads(v, after_)) {
                after_[static_cast<std::size_t>(v)] = true;
            }
        }
        return std::move(group_of_);
    }

  private:
    void begin(const Shape& shape) {
        shape_ = shape;
        ++group_;
        after_.assign(fn_.ops.size(), false);
    }
    /// A sum is known when the loop has ended.
    void join(ValueId v) {
        group_of_[static_cast<std::size_t>(v)] = group_;
        after_[static_cast<std::size_t>(v)] = fn_.op(v).code == Opcode::Sum;
    }
    [[nodiscard]] bool reads(ValueId v, const std::vector<bool>& marked) const {
        const auto& args = fn_.op(v).args;
        return !marked.empty() &&
               std::any_of(args.begin(), args.end(), [&](ValueId a) { return marked[static_cast<std::size_t>(a)]; });
    }
    [[nodiscard]] bool reads_group(ValueId v) const {
        const auto& args = fn_.op(v).args;
        return group_ >= 0 && std::any_of(args.begin(), args.end(),
                                          [&](ValueId a) { return group_of_[static_cast<std::size_t>(a)] == group_; });
    }

    const Function& fn_;
    std::vector<int> group_of_;
    Shape shape_;
    int group_ = -1;
    std::vector<bool> after_;  ///< outside the current loop, and in need of it
};

/// Loops without a scan dissolve.
void drop_plain(const Function& fn, std::vector<int>& group_of) {
    std::vector<bool> scans(fn.ops.size(), false);
    for (ValueId v = 0; v < fn.size(); ++v)
        if (const int g = group_of[static_cast<std::size_t>(v)]; g >= 0 && is_scan(fn.op(v)))
            scans[static_cast<std::size_t>(g)] = true;
    for (int& g : group_of)
        if (g >= 0 && !scans[static_cast<std::size_t>(g)]) g = -1;
}

/// The ops in an order in which each loop's are neighbours, otherwise as they were.
class Order {
  public:
    Order(const Function& fn, const std::vector<int>& group_of)
        : fn_(fn), group_of_(group_of), done_(fn.ops.size(), false) {}

    std::vector<ValueId> run() {
        for (ValueId v = 0; v < fn_.size(); ++v) place(v);
        return std::move(order_);
    }

  private:
    void place(ValueId v) {
        if (done_[static_cast<std::size_t>(v)]) return;
        const int group = group_of_[static_cast<std::size_t>(v)];
        std::vector<ValueId> unit;
        for (ValueId u = 0; u < fn_.size(); ++u)
            if (u == v || (group >= 0 && group_of_[static_cast<std::size_t>(u)] == group)) unit.push_back(u);
        for (const ValueId u : unit) done_[static_cast<std::size_t>(u)] = true;
        for (const ValueId u : unit)
            for (const ValueId a : fn_.op(u).args) place(a);
        order_.insert(order_.end(), unit.begin(), unit.end());
    }

    const Function& fn_;
    const std::vector<int>& group_of_;
    std::vector<bool> done_;
    std::vector<ValueId> order_;
};

/// Which token tensors the loop may read and write where they lie.
void find_tensors(const Function& fn, Stream& stream) {
    const auto users = ir::users_of(fn);
    const auto results = ir::result_uses(fn);
    const Shape shape = walked(fn, stream.members.front());
    const auto only_inside = [&](ValueId v) {
        const auto& readers = users[static_cast<std::size_t>(v)];
        return std::all_of(readers.begin(), readers.end(), [&](ValueId u) { return stream.has(u); });
    };
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        const bool input = op.code == Opcode::Param && op.attrs.role == ir::Role::Input && op.type.shape == shape;
        if (input && results[static_cast<std::size_t>(v)] == 0 && only_inside(v)) stream.inputs.push_back(v);
    }
    for (const ir::Result& r : fn.results)
        if (r.role == ir::Role::Input && stream.has(r.value) && results[static_cast<std::size_t>(r.value)] == 1 &&
            only_inside(r.value) && !is_scan(fn.op(r.value)))
            stream.outputs.push_back(r.value);
}

}  // namespace

bool is_last_row(const Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    if (op.code != Opcode::Select || op.attrs.dim != 0) return false;
    return op.attrs.start == -1 || op.attrs.start + 1 == size_of(fn.op(op.args[0]).type, 0);
}

Streamed find_streams(const Function& fn) {
    std::vector<int> group_of = Grouping(fn).run();
    drop_plain(fn, group_of);
    const std::vector<ValueId> order = Order(fn, group_of).run();
    Streamed out{ir::permuted(fn, order), {}};
    int last = -1;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const int group = group_of[static_cast<std::size_t>(order[i])];
        if (group >= 0 && group != last) out.streams.emplace_back();
        if (group >= 0) out.streams.back().members.push_back(static_cast<ValueId>(i));
        last = group;
    }
    for (Stream& stream : out.streams) find_tensors(out.fn, stream);
    return out;
}

}  // namespace forge::tile
