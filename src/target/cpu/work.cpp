#include "target/cpu/work.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "forge/error.h"

namespace forge::target {
namespace {

using ir::Along;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::Tri;
using ir::ValueId;
using Space = ir::Layout::Space;

constexpr double kTriangleBlock = 16;  ///< rows of the blocks in inverses and decayed products
constexpr double kRowBlock = 6;        ///< rows of a product's register block: what a triangle is cut by

/// Elements of a lowered type.
double elements(const ir::Type& type) {
    double n = 1;
    for (int axis = 0; axis < type.rank(); ++axis) n *= static_cast<double>(tile::size_of(type, axis));
    return n;
}

double size(const ir::Type& type, int axis) { return static_cast<double>(tile::size_of(type, axis)); }

class Counter {
  public:
    Counter(const plan::Plan& plan, const plan::Kernel& kernel)
        : plan_(plan), kernel_(kernel), fn_(kernel.tiles.fn), width_(static_cast<double>(plan.schedule.vector_width)) {}

    Work count() {
        work_.useful_flops = plan::useful_flops(fn_);
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (fn_.op(v).code == Opcode::Param) parameter(v);
            else operation(v);
        }
        for (const ir::Result& r : fn_.results) result(r);
        return work_;
    }

  private:
    /// Vectors that a value takes, rows padded.
    [[nodiscard]] double vectors(const ir::Type& type) const {
        if (type.rank() == 0) return 1;
        const double columns = size(type, type.rank() - 1);
        return elements(type) / columns * std::ceil(columns / width_);
    }

    [[nodiscard]] bool in_spill(ValueId v) const { return fn_.op(v).layout->space == Space::Spill; }
    [[nodiscard]] bool in_tile(ValueId v) const { return fn_.op(v).layout->space == Space::Tile || in_spill(v); }

    void parameter(ValueId v) {
        const Op& op = fn_.op(v);
        const double floats = elements(op.type);
        switch (op.attrs.role) {
            case Role::Input:
            case Role::Shifted: {
                const auto& slot =
                    plan_.tensors[static_cast<std::size_t>(plan_.tensor(plan::TensorSlot::Kind::Input, op.attrs.name))];
                const double bytes = floats * static_cast<double>(size_in_bytes(slot.type.dtype));
                move_tokens(v, slot.type.dtype, streamed(&tile::Stream::inputs, v));
                if (!seen_.insert(op.attrs.name).second) return;  // the same rows, one token earlier, lie in the cache
                work_.input_bytes += bytes;
                work_.token_rows += rows(op.type);
                if (!tiled(slot.type)) work_.shared_bytes += bytes;
                return;
            }
            case Role::Spill: {
                const auto& slot = plan_.spills[static_cast<std::size_t>(plan_.spill(op.attrs.name))];
                if (plan_.in_stretches()) {
                    work_.passed_bytes += floats * sizeof(float);
                    return;
                }
                work_.spill_read_bytes += floats * sizeof(float);
                if (!tiled(slot.type)) work_.shared_bytes += floats * sizeof(float);
                return;
            }
            case Role::State:
                work_.state_bytes += floats * sizeof(float);
                return;
            case Role::Head:
            case Role::Scalar:
            case Role::Mask:
            case Role::Chunk:
            case Role::Cached:
            case Role::Ones:
            case Role::Eye:
            case Role::Before:
            case Role::After:
                return;
        }
    }

    /// Between a token tensor and a tile, or registers.
    void move_tokens(ValueId v, DType dtype, bool streamed) {
        const ir::Type& type = fn_.op(v).type;
        const double convert = dtype == DType::F32 ? 0 : 1;
        work_.vectors += vectors(type) * ((streamed ? 0.5 : 2) + convert);
        if (streamed) work_.streamed_bytes += elements(type) * static_cast<double>(size_in_bytes(dtype));
    }

    [[nodiscard]] bool streamed(std::vector<ValueId> tile::Stream::* side, ValueId v) const {
        return std::any_of(kernel_.tiles.streams.begin(), kernel_.tiles.streams.end(), [&](const tile::Stream& s) {
            return std::find((s.*side).begin(), (s.*side).end(), v) != (s.*side).end();
        });
    }

    static double rows(const ir::Type& type) {
        return type.rank() == 0 ? 1 : elements(type) / size(type, type.rank() - 1);
    }

    [[nodiscard]] bool tiled(const ir::Type& type) const {
        return std::any_of(type.shape.begin(), type.shape.end(),
                           [&](const Dim& d) { return d.symbol == plan_.schedule.tile_axis; });
    }

    void operation(ValueId v) {
        const Op& op = fn_.op(v);
        if (ir::is_view(op.code)) return;
        if (in_row_loop(v)) return row_of_loop(v);
        switch (ir::along(op.code)) {
            case Along::Pointwise:
            case Along::Triangle:
                return elementwise(v);
            case Along::Contracted:
                return product(v);
            case Along::Matrix:
                return inverse(op);
            case Along::Pairs:
                if (op.code == Opcode::DecayMask) return walk(op);
                return decay_product(op, size(fn_.op(op.args[0]).type, 1));
            case Along::Rows:
                return decay_product(op, size(op.type, 1));
            case Along::Leaf:
            case Along::Place:
                if (in_tile(v)) work_.vectors += vectors(op.type);
                return;
            case Along::Copied:
            case Along::Shifted:
            case Along::Reduced:
            case Along::Scanned:
            case Along::RowScan:
            case Along::Normalised:
            case Along::Permuted:
            case Along::Inserted:
            case Along::Removed:
            case Along::Selected:
            case Along::Cut:
            case Along::Broadcast:
            case Along::Repeated:
            case Along::Joined:
                return walk(op);
        }
    }

    /// One loop nest per value that lies in a tile; what it reads was counted where it was made, up to the loads.
    void elementwise(ValueId v) {
        const Op& op = fn_.op(v);
        const double n = vectors(op.type) * (triangle(v) ? 0.5 : 1);
        work_.exps += n * ir::cost(op.code).exponentials;
        work_.vectors += n * ir::cost(op.code).vectors;
        if (in_tile(v)) work_.vectors += n * (1 + 0.5 * static_cast<double>(tile::tiles_read_by(fn_, v).size()));
    }

    [[nodiscard]] bool in_row_loop(ValueId v) const {
        return std::any_of(kernel_.tiles.streams.begin(), kernel_.tiles.streams.end(),
                           [&](const tile::Stream& s) { return s.has(v); });
    }

    /// Operands of a row loop are in registers; what a scan carries from row to row goes through memory.
    void row_of_loop(ValueId v) {
        const Op& op = fn_.op(v);
        const double n = vectors(op.code == Opcode::Sum ? fn_.op(op.args[0]).type : op.type);
        if (!ir::is_elementwise(op.code)) {
            work_.vectors += 3 * n;
            return;
        }
        work_.exps += n * ir::cost(op.code).exponentials;
        work_.vectors += n * (ir::cost(op.code).vectors + (in_tile(v) ? 1 : 0));
    }

    [[nodiscard]] bool triangle(ValueId v) const {
        return fn_.op(v).code == Opcode::Tril || fn_.op(v).code == Opcode::Triu;
    }

    void product(ValueId v) {
        const Op& op = fn_.op(v);
        const ir::Type& a = fn_.op(op.args[0]).type;
        const double m = size(op.type, 0), n = std::ceil(size(op.type, 1) / width_) * width_,
                     k = size(a, op.attrs.trans_a ? 0 : 1);
        add_product(m, n, k, op.attrs.tri);
        const bool accumulates = op.args.size() == 3;
        if (accumulates && !tile::same_buffer(fn_, op.args[2], v)) work_.vectors += 2 * vectors(op.type);
    }

    void add_product(double m, double n, double k, Tri tri) {
        const double all = 2 * m * n * k;
        double part = 1;  // a triangle is skipped by whole register blocks
        if (tri == Tri::OutLower) part = std::min(1.0, 0.5 + (kRowBlock + width_) / (2 * n));
        if (tri == Tri::ALower || tri == Tri::AUpper) part = std::min(1.0, 0.5 + kRowBlock / (2 * k));
        work_.product_flops += all * part;
        work_.calls += 1;
        work_.vectors += 2 * m * n / width_;  // into the tile, and out of registers
    }

    /// Blocks by substitution, one dependent step per row; the rest by products of halves.
    void inverse(const Op& op) {
        const double n = size(op.type, 0), blocks = std::ceil(n / kTriangleBlock);
        work_.vectors += blocks * kTriangleBlock * kTriangleBlock * std::ceil(kTriangleBlock / width_) * 1.5;
        work_.calls += 2 * blocks;
        for (double half = kTriangleBlock; half < n; half *= 2)
            for (double at = half; at < n; at += 2 * half) {
                add_product(half, half, half, Tri::None);
                add_product(half, half, half, Tri::ALower);
            }
    }

    /// Channels decay token by token within blocks; a product between blocks.
    void decay_product(const Op& op, double k) {
        const double n = size(op.type, 0), blocks = std::ceil(n / kTriangleBlock), row = std::ceil(k / width_);
        work_.exps += n * row;
        const double pairs = std::min(n, kTriangleBlock) * (std::min(n, kTriangleBlock) + 1) / 2;
        work_.vectors += blocks * pairs * (3 * row + 8);  // decay, multiply, add; a sum over lanes
        work_.vectors += n * row * 10;                    // decays to the block's borders, and a transposition
        work_.vectors += k * n * n / (2 * kTriangleBlock) / width_ * 3;  // earlier rows decay over each block
        for (double block = 1; block < blocks; ++block)
            add_product(kTriangleBlock, block * kTriangleBlock, k, Tri::None);
    }

    /// Reductions, scans, copies: so many operations on each vector of the larger side.
    void walk(const Op& op) {
        const ir::Type& x = fn_.op(op.args[0]).type;
        const bool along_rows = x.rank() > 0 && op.attrs.dim == x.rank() - 1;
        const double n = std::max(vectors(x), vectors(op.type));
        work_.calls += 1;
        if (ir::along(op.code) == Along::Reduced) {
            work_.vectors += along_rows ? n + 6 * vectors(op.type) * width_ : 2 * n;
        } else if (ir::along(op.code) == Along::Scanned) {
            work_.vectors += along_rows ? 10 * n : 3 * n;
        } else if (op.code == Opcode::LinearScan) {
            work_.vectors += op.type.rank() == 1 ? 2 * n * width_ : 4 * n;
        } else if (op.code == Opcode::DecayMask) {
            work_.vectors += 4 * vectors(op.type), work_.exps += vectors(x);
        } else {
            work_.vectors += (op.code != Opcode::Copy ? 3 : transposes(op) ? 6 : 2) * n;
        }
    }

    [[nodiscard]] bool transposes(const Op& copy) const {
        const auto& strides = fn_.op(copy.args[0]).layout->strides;
        return strides.size() > 1 && strides.back() != 1;
    }

    void result(const ir::Result& r) {
        const Op& op = fn_.op(r.value);
        const double floats = elements(op.type);
        if (r.role == Role::Input) {
            const auto& slot =
                plan_.tensors[static_cast<std::size_t>(plan_.tensor(plan::TensorSlot::Kind::Output, r.name))];
            work_.output_bytes += floats * static_cast<double>(size_in_bytes(slot.type.dtype));
            work_.token_rows += rows(op.type);
            move_tokens(r.value, slot.type.dtype, streamed(&tile::Stream::outputs, r.value));
        }
        if (r.role == Role::Spill) {
            (plan_.in_stretches() ? work_.passed_bytes : work_.spill_write_bytes) += floats * sizeof(float);
            if (!in_spill(r.value)) work_.vectors += 2 * vectors(op.type);
        }
        if (r.role == Role::Before) {
            work_.output_bytes += floats * sizeof(float);
            work_.vectors += 2 * vectors(op.type);
        }
        if (r.role == Role::State || r.role == Role::Ones || r.role == Role::Eye) {
            work_.state_bytes += floats * sizeof(float);
            if (!made_in_place(r)) work_.vectors += 2 * vectors(op.type);
        }
    }

    /// Whether the state after the chunk lies where the next chunk reads it.
    [[nodiscard]] bool made_in_place(const ir::Result& r) const {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if (op.code == Opcode::Param && op.attrs.role == r.role && op.attrs.name == r.name)
                return op.layout->offset == fn_.op(r.value).layout->offset;
        }
        return true;
    }

    const plan::Plan& plan_;
    const plan::Kernel& kernel_;
    const Function& fn_;
    double width_;
    Work work_;
    std::set<std::string> seen_;
};

}  // namespace

Work work_of(const plan::Plan& plan, const plan::Kernel& kernel) { return Counter(plan, kernel).count(); }

}  // namespace forge::target
