#include <algorithm>
#include <set>

#include "tile/arena.h"
#include "tile/fragment_steps.h"
#include "tile/layout.h"
#include "tile/order.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Space = Layout::Space;

/// Vectors of one number per token, and what follows from them alone: one warp can make them ahead, in its registers.
std::vector<ValueId> vectors_alone(const Function& fn) {
    std::vector<bool> alone(fn.ops.size(), false);
    std::vector<ValueId> found;
    const auto small = [](const ir::Type& type) { return type.rank() == 0 || (type.rank() == 1 && type.shape[0].factor == kBlock); };
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        const auto i = static_cast<std::size_t>(v);
        const bool from_numbers = std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) {
            const Op& arg = fn.op(a);
            return alone[static_cast<std::size_t>(a)] || (arg.layout->space == Space::Reg && arg.type.rank() == 0);
        });
        const bool from_vectors = std::any_of(op.args.begin(), op.args.end(), [&](ValueId a) { return alone[static_cast<std::size_t>(a)]; });
        if (op.code == Opcode::Param) alone[i] = op.attrs.role == Role::Input && op.type.rank() == 1 && small(op.type);
        else if (op.code == Opcode::DecayMask) alone[i] = from_vectors && small(fn.op(op.args[0]).type);
        else if (op.code == Opcode::Cumsum || op.code == Opcode::Sum) alone[i] = from_vectors && small(fn.op(op.args[0]).type);
        else if (ir::is_elementwise(op.code) || op.code == Opcode::Copy) alone[i] = from_vectors && from_numbers && small(op.type) && op.type.dtype != DType::Bool;
        if (alone[i]) found.push_back(v);
    }
    return found;
}

/// Memory for tiles and operands: what arrives from global memory in stages, the rest by its lives. Operands begin at
/// multiples of 1024 bytes, so they and all that is large share one arena, and vectors another.
class Memory {
 public:
    Memory(Function fn, int stages) : fn_(std::move(fn)), stages_(stages), vectors_(vectors_alone(fn_)) {}

    TileKernel run() {
        keep_in_registers();
        find_lives();
        for (const ValueId v : vectors_) place(v);  // they are made before anything else
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!is_vector(v)) place(v);
            if (const std::int64_t work = work_floats(fn_, v, rules()); work > 0) work_[v] = large_.take(rounded(work));
            release(v);
            if (work_.contains(v)) large_.give(work_[v], rounded(work_floats(fn_, v, rules())));
        }
        join_regions();
        TileKernel kernel{std::move(fn_), 0, std::move(work_)};
        kernel.stage_floats = stage_;
        kernel.stages = stages_;
        kernel.vectors = vectors_;
        kernel.scratch_floats = stages() * stage_ + rounded(large_.size()) + rounded(small_.size());
        return kernel;
    }

    static Rules rules() { return {4, true}; }

 private:
    static constexpr std::int64_t kOperandFloats = 256;  ///< of 1024 bytes
    static std::int64_t rounded(std::int64_t floats) { return (floats + kOperandFloats - 1) / kOperandFloats * kOperandFloats; }

    [[nodiscard]] bool owns_buffer(ValueId v) const { return in_memory(fn_.op(v).layout->space) && !ir::is_view(fn_.op(v).code); }
    [[nodiscard]] bool is_param(ValueId v, Role role) const { return fn_.op(v).code == Opcode::Param && fn_.op(v).attrs.role == role; }
    [[nodiscard]] bool is_vector(ValueId v) const { return std::find(vectors_.begin(), vectors_.end(), v) != vectors_.end(); }
    [[nodiscard]] bool is_staged(ValueId v) const { return stages_ > 1 && (is_param(v, Role::Input) || is_param(v, Role::Spill) || is_vector(v)); }
    /// Filled before the chunks, or, like what one warp makes ahead, before the first operation of one.
    [[nodiscard]] bool is_permanent(ValueId v) const {
        return is_vector(v) || (fn_.op(v).code == Opcode::Param && (stages_ > 1 || !(is_param(v, Role::Input) || is_param(v, Role::Spill))));
    }

    /// Vectors that only other vectors are made from need no memory.
    void keep_in_registers() {
        const auto users = ir::users_of(fn_);
        const auto results = ir::result_uses(fn_);
        for (const ValueId v : vectors_) {
            const auto& readers = users[static_cast<std::size_t>(v)];
            if (fn_.op(v).code == Opcode::Param) continue;  // as it lies in global memory
            const bool inside = results[static_cast<std::size_t>(v)] == 0 && std::all_of(readers.begin(), readers.end(), [&](ValueId u) { return is_vector(u); });
            if (inside) fn_.op(v).layout->space = Space::Reg;
        }
    }

    [[nodiscard]] std::int64_t floats(ValueId v) const {
        const Op& op = fn_.op(v);
        if (op.code == Opcode::DecayMask) return size_of(op.type, 0) + 4;
        if (op.layout->space == Space::Operand) return op.layout->parts * size_of(op.type, 0) * size_of(op.type, 1) / 2;
        return tile_floats(op.type, rules());
    }
    [[nodiscard]] bool is_large(ValueId v) const { return fn_.op(v).layout->space == Space::Operand || floats(v) >= kOperandFloats; }

    void find_lives() {
        last_read_.assign(fn_.ops.size(), -1);
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (fn_.op(v).layout->space == Space::Reg || ir::is_view(fn_.op(v).code)) continue;
            for (const ValueId t : tiles_read_by(fn_, v)) last_read_[static_cast<std::size_t>(t)] = v;
            last_read_[static_cast<std::size_t>(v)] = std::max(last_read_[static_cast<std::size_t>(v)], v);
        }
        for (const ir::Result& r : fn_.results)
            if (is_carried(r.role)) last_read_[static_cast<std::size_t>(buffer_of(fn_, r.value))] = fn_.size();
    }

    void place(ValueId v) {
        Op& op = fn_.op(v);
        if (ir::is_view(op.code) && op.layout->space == Space::Tile) {
            const Op& base = fn_.op(op.args[0]);
            if (base.layout->space != Space::Tile) refuse(fn_, v, "a view of a matrix");
            op.layout = view_layout(op, base.type, *base.layout);
            op.layout->staged = base.layout->staged;
            return;
        }
        if (!owns_buffer(v)) return;
        if (op.layout->space == Space::Tile && op.code != Opcode::DecayMask) op.layout->strides = tile_strides(op.type, rules());
        const bool large = is_large(v);
        const std::int64_t size = large ? rounded(floats(v)) : (floats(v) + 3) / 4 * 4;
        if (const ValueId from = taken_over(v); from != ir::kNoValue) {
            op.layout->offset = fn_.op(from).layout->offset;
            moved_.insert(from);
        } else if (is_staged(v)) {
            op.layout->staged = true;
            op.layout->offset = large ? stage_large_ : stage_small_;
            (large ? stage_large_ : stage_small_) += size;
        } else {
            op.layout->offset = (large ? large_ : small_).take(size);
        }
    }

    /// A matrix that another of the same shape and form may be written over: each element is read last, and by the thread that
    /// writes it.
    [[nodiscard]] ValueId taken_over(ValueId v) const {
        const Op& op = fn_.op(v);
        const bool down_columns = op.code == Opcode::Cumsum && op.attrs.dim == 0;  // a thread has a column
        if (!in_memory(op.layout->space) || !is_block_matrix(op.type) || !(ir::is_elementwise(op.code) || down_columns)) return ir::kNoValue;
        for (const ValueId t : tiles_read_by(fn_, v)) {
            const Op& from = fn_.op(t);
            const bool dies = last_read_[static_cast<std::size_t>(t)] == v && !is_permanent(t) && !is_staged(t) && !moved_.contains(t) && !viewed(t);
            if (dies && from.code != Opcode::DecayMask && from.layout->space == op.layout->space && from.type.shape == op.type.shape && from.layout->parts == op.layout->parts) return t;
        }
        return ir::kNoValue;
    }

    [[nodiscard]] bool viewed(ValueId t) const {
        return std::any_of(fn_.ops.begin(), fn_.ops.end(), [&](const Op& op) { return ir::is_view(op.code) && op.args[0] == t; });
    }

    void release(ValueId v) {
        for (ValueId t = 0; t <= v; ++t) {
            if (last_read_[static_cast<std::size_t>(t)] != v || !owns_buffer(t) || is_permanent(t) || moved_.contains(t)) continue;
            const bool large = is_large(t);
            (large ? large_ : small_).give(fn_.op(t).layout->offset, large ? rounded(floats(t)) : (floats(t) + 3) / 4 * 4);
        }
    }

    [[nodiscard]] std::int64_t stages() const { return stages_ > 1 ? stages_ : 0; }

    /// A stage: its large buffers, then its small ones. All stages, then the large arena, then the small one.
    void join_regions() {
        stage_ = stage_large_ + rounded(stage_small_);
        const std::int64_t large = stages() * stage_, small = large + rounded(large_.size());
        for (auto& [v, offset] : work_) offset += large;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            Op& op = fn_.op(v);
            if (!in_memory(op.layout->space)) continue;
            const ValueId base = buffer_of(fn_, v);
            if (op.layout->staged) op.layout->offset += is_large(base) ? 0 : stage_large_;
            else op.layout->offset += is_large(base) ? large : small;
        }
    }

    Function fn_;
    int stages_;
    std::vector<ValueId> vectors_;
    Arena large_{true}, small_{true};
    std::int64_t stage_large_ = 0, stage_small_ = 0, stage_ = 0;
    std::vector<int> last_read_;
    std::map<ValueId, std::int64_t> work_;
    std::set<ValueId> moved_;  ///< whose buffer another value has taken over
};

}  // namespace

TileKernel with_memory(Function fn, int stages) { return Memory(std::move(fn), stages).run(); }

}  // namespace forge::tile
