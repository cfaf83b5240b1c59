#include "emit/cpu/kernel.h"

#include "emit/cpu/emit_cpu.h"
#include "emit/cpu/loops.h"
#include "emit/cpu/names.h"
#include "forge/error.h"
#include "graph/transition.h"

namespace forge::emit {
namespace {

using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using plan::Loop;
using plan::TensorSlot;
using tile::size_of;
using Kind = TensorSlot::Kind;

class KernelWriter {
 public:
    KernelWriter(Writer& out, const plan::Plan& plan, const plan::Kernel& kernel)
        : out_(out), plan_(plan), loop_(kernel.graph.loop), kernel_(kernel), fn_(kernel.tiles.fn), names_(cpp_names(fn_)) {}

    void write() {
        out_.open(fmt::format("FORGE_KERNEL void {}(const Call& call, Size task, float* scratch)", kernel_symbol(kernel_)));
        begin_task();
        out_.line("[[maybe_unused]] const vec zero = broadcast(0.0f);");
        declare_tiles();
        declare_tensors();
        before_chunks();
        begin_chunk();
        declare_spills();
        chunk_body();
        if (plan::in_order(loop_)) {
            out_.close();
            store_carried();
        }
        out_.close();
    }

 private:
    void begin_task() {
        const auto chunk = plan_.schedule.chunk;
        switch (loop_) {
            case Loop::Scan: return out_.line("const Task at = scan_task(call, task);");
            case Loop::Carries: return out_.line("const Task at = carry_task(call, task);");
            case Loop::Chunks: return out_.line("const Task at = chunk_task(call, task, {});", chunk);
            case Loop::Segments: return out_.line("const Task at = segment_task(call, task, {});", chunk);
            case Loop::Summaries:
                out_.line("const Task at = segment_task(call, task, {});", chunk);
                return out_.line("if (at.last) return;  // no segment follows that would ask for its summary");
        }
    }

    /// The loop over chunks (or segments), and the valid rows of a chunk.
    void begin_chunk() {
        if (loop_ == Loop::Chunks) out_.line("const Size row = at.row, block = at.block;");
        else out_.line("Size block = at.block;");
        const std::int64_t step = loop_ == Loop::Carries ? 1 : plan_.schedule.chunk;
        if (plan::in_order(loop_)) out_.open(fmt::format("for (Size row = at.row; row < at.end; row += {}, block += call.heads)", step));
        if (loop_ != Loop::Carries) out_.line("[[maybe_unused]] const int rows = static_cast<int>(at.tokens - row < {0} ? at.tokens - row : {0});", plan_.schedule.chunk);
    }

    [[nodiscard]] const std::string& name(ValueId v) const { return names_[static_cast<std::size_t>(v)]; }
    [[nodiscard]] bool is_param(ValueId v, Role role) const { return fn_.op(v).code == Opcode::Param && fn_.op(v).attrs.role == role; }
    [[nodiscard]] bool in_tile(ValueId v) const { return fn_.op(v).layout->space == Layout::Space::Tile; }
    [[nodiscard]] const TensorSlot& slot(int index) const { return plan_.tensors[static_cast<std::size_t>(index)]; }

    static std::string pad_literal(double pad) { return float_literal(pad); }

    /// One pointer per buffer, with its shape.
    void declare_tiles() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if (!in_tile(v) || ir::is_view(op.code)) continue;
            out_.line("float* const {} = scratch + {};  // {}", name(v), op.layout->offset, forge::to_string(op.type.shape));
        }
    }

    [[nodiscard]] const plan::SpillSlot& spill_slot(const std::string& spill) const { return plan_.spills[static_cast<std::size_t>(plan_.spill(spill))]; }

    /// Where a block of a spill begins for this task: scans that take part of an axis see their part.
    [[nodiscard]] std::string spill_pointer(const std::string& spill, const char* block) const {
        const plan::SpillSlot& slot = spill_slot(spill);
        std::string text = fmt::format("call.spills[{}] + {} * {}", plan_.spill(spill), block, slot.floats);
        for (std::size_t axis = 0; kernel_.graph.tiled && axis < slot.type.shape.size(); ++axis)
            if (slot.type.shape[axis].symbol == plan_.schedule.tile_axis)
                text += fmt::format(" + at.tile * {}", slot.type.shape[axis].factor * plan_.schedule.tile_size * slot.strides[axis]);
        return text;
    }

    void declare_spills() {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (is_param(v, Role::Spill)) out_.line("const float* const {} = {};", name(v), spill_pointer(fn_.op(v).attrs.name, "block"));
    }

    void store_spill(const std::string& spill, ValueId v, const char* block) {
        const plan::SpillSlot& slot = spill_slot(spill);
        const Op& op = fn_.op(v);
        const auto& strides = op.layout->strides;
        if (strides == slot.strides || op.type.rank() < 2)
            return out_.line("copy_floats<{}>({}, {});", tile::tile_floats(op.type, plan_.schedule.vector_width), spill_pointer(spill, block), name(v));
        if (op.type.rank() != 2) throw InternalError("emit: a part of a spill of rank 3 or more");
        out_.line("copy_tile<{}, {}, {}, {}>({}, {});", size_of(op.type, 0), size_of(op.type, 1), slot.strides[0], strides[0], spill_pointer(spill, block), name(v));
    }

    /// Which tensor a parameter or a result is, in the call.
    [[nodiscard]] int tensor_of(const Op& param) const {
        return plan_.tensor(param.attrs.role == Role::Head ? Kind::Head : Kind::Input, param.attrs.name);
    }

    /// The offset of this task's part of the tiled axis: dims are the tensor's axes after token and head.
    [[nodiscard]] std::string tile_offset(int tensor, std::size_t leading) const {
        const ir::Type& t = slot(tensor).type;
        for (std::size_t axis = leading; kernel_.graph.tiled && axis < t.shape.size(); ++axis)
            if (t.shape[axis].symbol == plan_.schedule.tile_axis)
                return fmt::format(" + at.tile * {} * call.tensors[{}].dim[{}]", t.shape[axis].factor * plan_.schedule.tile_size, tensor, axis - leading);
        return "";
    }

    void declare_token_tensor(const std::string& pointer, int tensor, bool constant) {
        const ir::Type& t = slot(tensor).type;
        const std::int64_t factor = t.shape[0].factor;
        out_.line("{0}* const {1} = token_rows<{0}>(call, {2}, at{3}){4};", (constant ? "const " : "") + storage_type(t.dtype), pointer, tensor,
                  factor == 1 ? "" : fmt::format(", {}", factor), tile_offset(tensor, 2));
    }

    void declare_tensors() {
        std::vector<int> declared;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if (!is_param(v, Role::Input) && !is_param(v, Role::Shifted)) continue;
            const int tensor = tensor_of(op);
            if (std::find(declared.begin(), declared.end(), tensor) == declared.end()) declare_token_tensor(global(op.attrs.name), tensor, true);
            declared.push_back(tensor);
        }
        for (const ir::Result& r : fn_.results)
            if (r.role == Role::Input) declare_token_tensor(global(r.name), plan_.tensor(Kind::Output, r.name), false);
    }

    static std::string global(const std::string& tensor) { return cpp_identifier(tensor) + "_rows"; }

    // ---- loads and stores --------------------------------------------------------------------------------------

    /// How a tensor's axes after the leading ones are walked: `inner` are the last two (or one) of the tile.
    struct Block {
        std::string function, type, tile, memory;
        std::vector<std::int64_t> shape;        ///< of the tile
        std::vector<std::int64_t> tile_strides;
        std::vector<std::string> memory_strides;
        std::string rows;                       ///< valid rows of axis 0
        std::string pad;                        ///< empty: a store
    };

    /// Loops over all axes but the last two, then one load_tile or store_tile.
    void transfer(Block b) {
        int loops = 0;
        while (b.shape.size() > 2) {
            // The token axis stays the rows of the tile; the axis after it is walked here.
            const std::string i = fmt::format("i{}", loops++);
            out_.open(fmt::format("for (Size {0} = 0; {0} < {1}; ++{0})", i, b.shape[1]));
            b.tile += fmt::format(" + {} * {}", i, b.tile_strides[1]);
            b.memory += fmt::format(" + {} * {}", i, b.memory_strides[1]);
            b.shape.erase(b.shape.begin() + 1);
            b.tile_strides.erase(b.tile_strides.begin() + 1);
            b.memory_strides.erase(b.memory_strides.begin() + 1);
        }
        while (b.shape.size() < 2) {  // a vector is one row, a number one row of one
            b.shape.insert(b.shape.begin(), 1);
            b.tile_strides.insert(b.tile_strides.begin(), plan_.schedule.vector_width);
            b.memory_strides.insert(b.memory_strides.begin(), "0");
            b.rows = "1";
        }
        if (b.tile_strides.size() == 1) b.tile_strides.push_back(1);
        if (b.memory_strides.size() == 1) b.memory_strides.emplace_back("1");
        const std::string sizes = fmt::format("<{}, {}, {}, {}>", b.type, b.shape[0], b.shape[1], std::max(b.tile_strides[0], plan_.schedule.vector_width));
        if (b.pad.empty()) out_.line("store_tile{}({}, {}, {}, {}, {});", sizes, b.memory, b.memory_strides[0], b.memory_strides[1], b.tile, b.rows);
        else out_.line("load_tile{}({}, {}, {}, {}, {}, {});", sizes, b.tile, b.memory, b.memory_strides[0], b.memory_strides[1], b.rows, b.pad);
        for (; loops > 0; --loops) out_.close();
    }

    [[nodiscard]] static std::vector<std::int64_t> constants(const ir::Type& type) {
        std::vector<std::int64_t> sizes;
        for (int axis = 0; axis < type.rank(); ++axis) sizes.push_back(size_of(type, axis));
        return sizes;
    }

    [[nodiscard]] static std::vector<std::string> memory_strides(int tensor, int count, bool token) {
        std::vector<std::string> strides;
        if (token) strides.push_back(fmt::format("call.tensors[{}].token", tensor));
        for (int d = 0; d < count; ++d) strides.push_back(fmt::format("call.tensors[{}].dim[{}]", tensor, d));
        return strides;
    }

    void load_tokens(ValueId v) {
        const Op& op = fn_.op(v);
        const int tensor = tensor_of(op);
        const TensorSlot& t = slot(tensor);
        const std::int64_t factor = t.type.shape[0].factor;
        const std::string row = factor == 1 ? "row" : fmt::format("row * {}", factor), rows = factor == 1 ? "rows" : fmt::format("rows * {}", factor);
        const std::string stride = fmt::format("call.tensors[{}].token", tensor), type = storage_type(t.type.dtype), pad = pad_literal(t.pad);
        const std::string memory = fmt::format("{} + {} * {}", global(op.attrs.name), row, stride);
        const bool shifted = op.attrs.role == Role::Shifted;
        if (op.type.rank() == 1) {
            if (!shifted) return out_.line("load_vector<{}, {}>({}, {}, {}, {}, {});", type, size_of(op.type, 0), name(v), memory, stride, rows, pad);
            return out_.line("load_shifted<{}, {}, {}>({}, {}, {}, row == 0, {}, {});", type, size_of(op.type, 0), factor, name(v), memory, stride, rows, pad);
        }
        Block b{"load_tile", type, name(v), memory, constants(op.type), op.layout->strides, memory_strides(tensor, op.type.rank() - 1, true), rows, pad};
        if (!shifted) return transfer(b);
        Block first = b;
        first.shape[0] = factor;
        first.memory += fmt::format(" - {} * {}", factor, stride);
        first.rows = fmt::format("row > 0 ? {} : 0", factor);
        transfer(first);
        b.shape[0] -= factor;
        b.tile += fmt::format(" + {}", factor * op.layout->strides[0]);
        b.rows = fmt::format("{} - {}", rows, factor);
        transfer(b);
    }

    /// Loads of what does not change from chunk to chunk, and the initial states.
    void before_chunks() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if (is_param(v, Role::Scalar)) out_.line("const float {} = call.scalars[{}];", name(v), plan_.scalar(op.attrs.name));
            if (is_param(v, Role::Head)) load_head(v);
            if (is_param(v, Role::State)) load_state(v);
            if (is_param(v, Role::Ones) || is_param(v, Role::Eye)) start_transition(v);
        }
    }

    void load_head(ValueId v) {
        const Op& op = fn_.op(v);
        const int tensor = tensor_of(op);
        const std::string type = storage_type(slot(tensor).type.dtype);
        const std::string memory = fmt::format("head_block<const {}>(call, {}, at){}", type, tensor, tile_offset(tensor, 1));
        if (op.type.rank() == 0) return out_.line("const float {} = load_number({});", name(v), memory);
        transfer({"load_tile", type, name(v), memory, constants(op.type), op.layout->strides, memory_strides(tensor, op.type.rank(), false),
                  std::to_string(size_of(op.type, 0)), "0.0f"});
    }

    void load_state(ValueId v) {
        const Op& op = fn_.op(v);
        const auto floats = tile::tile_floats(op.type, plan_.schedule.vector_width);
        if (loop_ == Loop::Summaries) return out_.line("fill<{}>({}, 0.0f);", floats, name(v));
        if (loop_ == Loop::Segments) return out_.line("copy_floats<{}>({}, {});", floats, name(v), spill_pointer(graph::carry_spill(op.attrs.name), "at.segment"));
        const int tensor = plan_.tensor(Kind::InitialState, op.attrs.name);
        out_.open(fmt::format("if (const float* const initial = state_block<const float>(call, {}, at))", tensor));
        transfer({"load_tile", "float", name(v), "initial" + tile_offset(tensor, 0), constants(op.type), op.layout->strides,
                  memory_strides(tensor, op.type.rank(), false), op.type.rank() == 0 ? "1" : std::to_string(size_of(op.type, 0)), "0.0f"});
        out_.close("} else {");
        out_.line("    fill<{}>({}, 0.0f);", floats, name(v));
        out_.line("}}");
    }

    /// The transition of nothing: ones, or the identity.
    void start_transition(ValueId v) {
        const Op& op = fn_.op(v);
        out_.line("fill<{}>({}, {});", tile::tile_floats(op.type, plan_.schedule.vector_width), name(v), op.attrs.role == Role::Ones ? "1.0f" : "0.0f");
        if (op.attrs.role == Role::Eye) out_.line("for (int i = 0; i < {}; ++i) {}[i * {}] = 1.0f;", size_of(op.type, 0), name(v), op.layout->strides[0] + 1);
    }

    void store_carried() {
        if (loop_ == Loop::Carries) return;
        if (loop_ == Loop::Segments) out_.line("if (!at.last) return;");
        for (const ir::Result& r : fn_.results) {
            if (!is_carried(r.role)) continue;
            const ValueId kept = carried_param(r);
            const ValueId v = kept == ir::kNoValue ? r.value : kept;
            if (loop_ == Loop::Summaries) store_spill(r.role == Role::State ? graph::input_spill(r.name) : graph::transition_spill(r.name), v, "at.segment");
            else store_final(r.name, v);
        }
    }

    void store_final(const std::string& state, ValueId v) {
        const Op& op = fn_.op(v);
        const int tensor = plan_.tensor(Kind::FinalState, state);
        out_.open(fmt::format("if (float* const final = state_block<float>(call, {}, at))", tensor));
        transfer({"store_tile", "float", name(v), "final" + tile_offset(tensor, 0), constants(op.type), op.layout->strides,
                  memory_strides(tensor, op.type.rank(), false), op.type.rank() == 0 ? "1" : std::to_string(size_of(op.type, 0)), ""});
        out_.close();
    }

    static bool is_carried(Role role) { return role == Role::State || role == Role::Ones || role == Role::Eye; }

    /// Where the next chunk reads what this one carries to it.
    [[nodiscard]] ValueId carried_param(const ir::Result& r) const {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (is_param(v, r.role) && fn_.op(v).attrs.name == r.name) return v;
        return ir::kNoValue;
    }

    // ---- the work of one chunk ---------------------------------------------------------------------------------

    void chunk_body() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if (is_param(v, Role::Input) || is_param(v, Role::Shifted)) load_tokens(v);
            else if (is_param(v, Role::Mask)) out_.line("token_mask<{}>({}, rows);", size_of(op.type, 0), name(v));
            else if (op.code != Opcode::Param && in_tile(v) && !ir::is_view(op.code)) compute(v);
            store_results(v);
        }
        for (const ir::Result& r : fn_.results)
            if (is_carried(r.role)) keep(r);
    }

    void compute(ValueId v) {
        const Op& op = fn_.op(v);
        if (op.code == Opcode::Copy && is_matrix_transpose(op)) {
            const ValueId base = op.args[0];
            out_.line("transpose<{}, {}, {}, {}>({}, {});", size_of(op.type, 1), size_of(op.type, 0), fn_.op(base).layout->strides[1], op.layout->strides[0],
                      tile_pointer(fn_, base, names_), name(v));
        } else if (ir::is_elementwise(op.code) || op.code == Opcode::Copy || op.code == Opcode::Constant || op.code == Opcode::Identity) {
            write_loops(out_, fn_, v, names_);
        } else {
            write_device_call(out_, fn_, v, names_);
        }
    }

    [[nodiscard]] bool is_matrix_transpose(const Op& copy) const {
        const Op& from = fn_.op(copy.args[0]);
        if (copy.type.rank() != 2 || from.layout->space == Layout::Space::Reg) return false;
        const auto& s = from.layout->strides;
        return s[0] == 1 && s[1] > 1;
    }

    void store_results(ValueId v) {
        for (const ir::Result& r : fn_.results) {
            if (r.value != v) continue;
            if (r.role == Role::Input) store_output(r);
            if (r.role == Role::Spill) store_spill(r.name, v, "block");
        }
    }

    void store_output(const ir::Result& r) {
        const Op& op = fn_.op(r.value);
        const int tensor = plan_.tensor(Kind::Output, r.name);
        const ir::Type& t = slot(tensor).type;
        const std::int64_t factor = t.shape[0].factor;
        const std::string scale = factor == 1 ? "" : fmt::format(" * {}", factor), stride = fmt::format("call.tensors[{}].token", tensor);
        const std::string memory = fmt::format("{} + row{} * {}", global(r.name), scale, stride);
        if (op.type.rank() == 1)
            return out_.line("store_vector<{}, {}>({}, {}, {}, rows{});", storage_type(t.dtype), size_of(op.type, 0), memory, stride, name(r.value), scale);
        transfer({"store_tile", storage_type(t.dtype), name(r.value), memory, constants(op.type), op.layout->strides,
                  memory_strides(tensor, op.type.rank() - 1, true), "rows" + scale, ""});
    }

    /// The state after the chunk goes where the next chunk reads it, unless it was made there.
    void keep(const ir::Result& r) {
        const ValueId kept = carried_param(r);
        if (kept == ir::kNoValue || fn_.op(kept).layout->offset == fn_.op(r.value).layout->offset) return;
        out_.line("copy_floats<{}>({}, {});", tile::tile_floats(fn_.op(kept).type, plan_.schedule.vector_width), name(kept), name(r.value));
    }

    Writer& out_;
    const plan::Plan& plan_;
    Loop loop_;
    const plan::Kernel& kernel_;
    const Function& fn_;
    std::vector<std::string> names_;
};

}  // namespace

void write_kernel(Writer& out, const plan::Plan& plan, const plan::Kernel& kernel) { KernelWriter(out, plan, kernel).write(); }

}  // namespace forge::emit
