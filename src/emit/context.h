/// What the parts of the emitter share while they write one kernel: the text so far, the plan, names of values, and the
/// small questions that all of them ask.
#pragma once

#include "emit/dialect.h"
#include "emit/names.h"
#include "emit/writer.h"
#include "plan/plan.h"

namespace forge::emit {

struct Context {
    Context(Writer& writer, const Dialect& d, const plan::Plan& p, const plan::Kernel& k)
        : out(writer), dialect(d), plan(p), kernel(k), fn(k.tiles.fn), names(cpp_names(fn)) {}

    Writer& out;
    const Dialect& dialect;
    const plan::Plan& plan;
    const plan::Kernel& kernel;
    const ir::Function& fn;
    std::vector<std::string> names;

    // Names in the text and in the kernel's statements.
    static constexpr const char *kScratch = "scratch", *kStages = "stages";
    [[nodiscard]] std::string passing(ir::ValueId v) const { return name(v) + "_passing"; }
    [[nodiscard]] const std::string& name(ir::ValueId v) const { return names[static_cast<std::size_t>(v)]; }
    [[nodiscard]] bool is_param(ir::ValueId v, ir::Role role) const {
        return fn.op(v).code == ir::Opcode::Param && fn.op(v).attrs.role == role;
    }
    [[nodiscard]] bool in_tile(ir::ValueId v) const { return fn.op(v).layout->space == ir::Layout::Space::Tile; }
    /// Whether a value is made where it is stored for other kernels.
    [[nodiscard]] bool made_in_spill(ir::ValueId v) const {
        return fn.op(v).layout->space == ir::Layout::Space::Spill && !is_param(v, ir::Role::Spill);
    }
    /// Whether an operation stands for it: it is loaded by none, no view, and not made within its readers' loops.
    [[nodiscard]] bool is_computed(ir::ValueId v) const {
        const ir::Op& op = fn.op(v);
        return op.code != ir::Opcode::Param && !ir::is_view(op.code) && (in_tile(v) || is_held(v) || made_in_spill(v));
    }
    [[nodiscard]] bool is_operand(ir::ValueId v) const { return fn.op(v).layout->space == ir::Layout::Space::Operand; }
    /// Whether the threads of a block hold it (tile/held.h), or a view of what they hold.
    [[nodiscard]] bool is_held(ir::ValueId v) const { return fn.op(v).layout->space == ir::Layout::Space::Held; }
    [[nodiscard]] bool is_fragment(ir::ValueId v) const {
        return fn.op(v).layout->space == ir::Layout::Space::Fragment ||
               fn.op(v).layout->space == ir::Layout::Space::Transposed;
    }
    /// Whether a kernel is short of instruction cache, without which it takes twice the time: 128 KB are 8000
    /// instructions. Each matrix in registers has a text of its own, 16 of them with their sums and products about as
    /// much as there is room for; decays of channels that are multiplied together have that of five.
    [[nodiscard]] bool long_text() const {
        constexpr int kMany = 16, kWithDecays = 24, kOfDecays = 5;
        int fragments = 0, decays = 0, groups = 0;
        for (ir::ValueId v = 0; v < fn.size(); ++v) {
            if (!fn.op(v).layout || !is_fragment(v)) continue;
            const bool decay = fn.op(v).code == ir::Opcode::DecayMatmul;
            ++fragments, decays += decay, groups += decay && kernel.tiles.work.contains(v);
        }
        return fragments >= kMany || fragments - decays + kOfDecays * groups >= kWithDecays;
    }
    [[nodiscard]] std::int64_t floats(ir::ValueId v) const {
        const ir::Op& op = fn.op(v);
        if (op.code == ir::Opcode::DecayMask && op.layout->strides.empty())
            return op.layout->parts * (tile::size_of(op.type, 0) + 4);  // as sums
        if (op.layout->space == ir::Layout::Space::Operand)
            return op.layout->parts * tile::size_of(op.type, 0) * tile::size_of(op.type, 1) / 2;
        return tile::tile_floats(op.type, plan.schedule.rules());
    }

    /// Where a tile at this offset lies.
    [[nodiscard]] std::string place(std::int64_t offset) const {
        const std::int64_t near = kernel.tiles.scratch_floats;
        return kernel.tiles.far_floats > 0 && offset >= near ? fmt::format("far + {}", offset - near)
                                                             : fmt::format("scratch + {}", offset);
    }
    static constexpr std::int64_t kFloat = 4;
    /// Where a value lies, in all buffers of its ring, or that threads hold it; nothing for values elsewhere.
    [[nodiscard]] kernel::Accesses memory(ir::ValueId v) const;
    /// So many floats of the tiles' memory.
    [[nodiscard]] static kernel::Accesses floats_at(std::int64_t offset, std::int64_t floats);
    /// Whether it is made of sums over a matrix that threads hold, to which warps contribute by way of parts_of_warps.
    [[nodiscard]] bool sums_held(ir::ValueId v) const;
    [[nodiscard]] static kernel::Accesses parts_of_warps();
    /// A tile or a fragment.
    [[nodiscard]] kernel::Accesses held(ir::ValueId v) const {
        return is_fragment(v) ? kernel::Accesses{kernel::registers(name(v))} : memory(v);
    }
    /// Where the next chunk reads what this one carries to it; kNoValue if it does not.
    [[nodiscard]] ir::ValueId carried_param(const ir::Result& r) const;
    /// Whether a value wants more than the 10 mantissa bits of tf32: unless tensors are bf16 (f16 has as many bits
    /// itself, and sums that cancel would lose some), and for what is inverted.
    [[nodiscard]] bool needs_float(ir::ValueId v) const;
    /// Whether the value may go to where a small error becomes a whole step, such as a floor or a comparison.
    [[nodiscard]] bool needs_exactness(ir::ValueId v) const;

    /// The lines that come next compute, or move.
    void next(const std::string& what, kernel::Accesses reads, kernel::Accesses writes) {
        out.next({kernel::Kind::Compute, what, std::move(reads), std::move(writes)});
    }
    void moves(const std::string& what, kernel::Accesses reads, kernel::Accesses writes) {
        out.next({kernel::Kind::Move, what, std::move(reads), std::move(writes)});
    }
    /// … and write a value's buffer, or read it.
    void writes(ir::ValueId v) { next("load " + name(v), {}, memory(v)); }
    void reads(ir::ValueId v) { next("store " + name(v), memory(v), {}); }
};

}  // namespace forge::emit
