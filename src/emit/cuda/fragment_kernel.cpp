#include "emit/cuda/fragment_kernel.h"

#include <algorithm>
#include <set>

#include "emit/cuda/decay_groups.h"
#include "emit/cuda/fragment_inputs.h"
#include "emit/cuda/fragment_loops.h"
#include "emit/cuda/products.h"
#include "emit/kernel.h"
#include "emit/loops.h"
#include "emit/transfers.h"
#include "graph/transition.h"
#include "tile/fragments.h"
#include "tile/order.h"

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
using Space = Layout::Space;

class FragmentKernel {
 public:
    FragmentKernel(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel)
        : c_(out, dialect, plan, kernel), transfers_(c_), inputs_(c_, transfers_), decays_(c_, transfers_), products_(out, c_.barriers), out_(out), plan_(plan), loop_(kernel.graph.loop), fn_(c_.fn), roles_(kernel.tiles.roles ? &*kernel.tiles.roles : nullptr) {}

    void write() {
        const std::string macro = roles_ ? fmt::format("FORGE_KERNEL_OF({})", roles_->groups()) : plan::in_order(loop_) ? "FORGE_KERNEL" : fmt::format("FORGE_KERNEL_TASKS({})", tasks_at_once());
        out_.open(fmt::format("{} void {}({}{})", macro, kernel_symbol(c_.kernel), c_.dialect.arguments, roles_ ? ", const __grid_constant__ TensorMaps maps" : ""));
        for (const std::string& line : c_.dialect.prologue) out_.put(line);
        begin_task();
        if (!roles_) transfers_.declare_tensors();
        declare_parameters();
        inputs_.declare_rows();
        if (roles_) write_roles();
        else write_alone();
        out_.close();
    }

 private:
    /// How many tasks of single chunks share a multiprocessor: as many as its memory holds, but each with 100 registers per
    /// thread.
    [[nodiscard]] std::int64_t tasks_at_once() const {
        constexpr std::int64_t kBytes = 228 * 1024, kReserved = 1024, kMostTasks = 5;  // of memory: for each task, beside its own
        return std::clamp<std::int64_t>(kBytes / (4 * c_.kernel.tiles.scratch_floats + kReserved), 1, kMostTasks);
    }

    /// One warp group does everything.
    void write_alone() {
        declare_buffers(false);
        start_states();
        inputs_.declare();
        inputs_.start_first();
        sum_first_gates();
        inputs_.make_first_vectors();
        if (plan::in_order(loop_)) out_.open("for (; row < at.end; row += kChunk, block += call.heads, stage = after(stage))");
        begin_chunk("arrive<kStages - 2>();");
        for (ValueId v = 0; v < fn_.size(); ++v) operation(v);
        inputs_.start_later();
        inputs_.make_next_vectors();
        products_.finish_all();
        if (!plan::in_order(loop_)) return;
        keep_all();
        out_.close();
        out_.put(c_.dialect.barrier);
        store_carried();
    }

    // Several warp groups, each with a role.

    /// Registers per thread of the first group, the states' and the outputs', of 512 for as many groups.
    struct Registers {
        int inputs, states, outputs;
    };
    [[nodiscard]] Registers registers() const { return roles_->output_groups == 1 ? Registers{72, 216, 216} : Registers{72, 184, 128}; }

    void write_roles() {
        out_.line("const Handover<kStages, {}> stages(scratch + {});", roles_->output_groups > 0 ? 2 : 1, roles_->barriers);
        std::string begin = "stages.begin();";
        std::int64_t barriers = roles_->barriers + 4 * c_.kernel.tiles.stages;
        for (const tile::Roles::Passed& p : roles_->passed) {
            out_.line("const Handover<kOutputs, 1> {}_passing(scratch + {});", c_.name(p.value), barriers);
            begin += fmt::format(" {}_passing.begin();", c_.name(p.value));
            barriers += 4 * roles_->output_groups;
        }
        out_.line("if (group() == 0 && thread() == 0) {{ {} }}", begin);
        out_.line("__syncthreads();");
        out_.open("if (group() == 0)");
        if (roles_->output_groups > 0) out_.line("ptx::fewer_registers<{}>();", registers().inputs);
        inputs_.ask_for_all();
        write_role(tile::Roles::kStates);
        if (roles_->output_groups > 0) write_role(tile::Roles::kOutputs);
        out_.close();
    }

    void write_role(std::uint8_t role) {
        role_ = role;
        packed_.clear(), waited_.clear(), c_.barriers.passed();
        storing_ = released_ = false;
        last_arrived_ = last_reader();
        const bool states = role == tile::Roles::kStates;
        out_.close(states && roles_->output_groups > 0 ? "} else if (group() == 1) {" : "} else {");
        out_.indent();
        if (roles_->output_groups > 0) out_.line("ptx::{}_registers<{}>();", states || registers().outputs >= 128 ? "more" : "fewer", states ? registers().states : registers().outputs);
        declare_buffers(false);
        if (states) {
            start_states();
            out_.line("Turn<kStages> stage;");
            if (roles_->output_groups > 0) out_.line("[[maybe_unused]] Turn<kOutputs> to;");
            out_.open(fmt::format("for (; row < at.end; row += kChunk, stage.next(){})", roles_->output_groups > 0 ? ", to.next()" : ""));
        } else {
            transfers_.declare_outputs();
            for (const ir::Result& r : fn_.results)
                if (r.role == Role::Input) inputs_.declare_map(r.name, plan_.tensor(Kind::Output, r.name));
            out_.line("Turn<kStages> stage;");
            out_.line("[[maybe_unused]] Turn<kOutputs> to;");
            out_.line("stage.skip(group() - 2), to.skip(group() - 2);");
            out_.open("for (row += (group() - 2) * kChunk; row < at.end; row += kOutputs * kChunk, stage.skip(kOutputs), to.lap ^= 1u)");
        }
        begin_chunk(!states ? "stores_read(), stages.wait_filled(stage), sync();" : writes_memory() ? "stages.wait_filled(stage), sync();" : "stages.wait_filled(stage);");
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (roles_->does(role, v)) {
                operation(v);
                release_after(v + 1);
            }
        products_.finish_all();
        release();
        if (states) keep_all();
        out_.close();
        if (states) store_carried();
        else out_.line("stores_read();");
    }

    [[nodiscard]] bool is_mine(ValueId v) const { return !roles_ || role_ == 0 || roles_->does(role_, v); }
    [[nodiscard]] bool writes_memory() const {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (!roles_->find(v) && fn_.op(v).code != Opcode::Param && !ir::is_view(fn_.op(v).code) && roles_->does(role_, v) && !inputs_.is_vector(v) && (c_.in_tile(v) || c_.is_operand(v))) return true;
        return false;
    }

    /// The last operation of this group that reads what arrived or was passed.
    [[nodiscard]] ValueId last_reader() const {
        ValueId last = 0;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!roles_->does(role_, v) || fn_.op(v).code == Opcode::Param || inputs_.is_vector(v)) continue;
            for (const ValueId t : tile::tiles_read_by(fn_, v))
                if (fn_.op(t).layout->staged || roles_->find(t)) last = v;
        }
        return last;
    }

    /// Before an operation, or at the end: as soon as neither it nor a later one, nor a product, reads what arrived.
    void release_after(ValueId next) {
        if (role_ != 0 && next > last_arrived_ && !products_.any()) release();
    }

    void release() {
        if (released_) return;
        released_ = true;
        out_.line("stages.is_empty(stage);");
        for (const tile::Roles::Passed& p : roles_->passed)
            if (role_ == tile::Roles::kOutputs) out_.line("{}_passing.is_empty(to);", c_.name(p.value));
    }

    /// From the states' group, what an operation reads.
    void wait_for_passed(ValueId v) {
        if (role_ != tile::Roles::kOutputs) return;
        for (const ValueId t : tile::tiles_read_by(fn_, v))
            if (roles_->find(t) && waited_.insert(t).second) out_.line("{}_passing.wait_filled(to);", c_.name(t));
    }

    void begin_task() {
        const bool scan = loop_ == Loop::Scan;
        out_.line("constexpr int kChunk = {}{}{};", plan_.schedule.chunk, plan::in_order(loop_) ? fmt::format(", kStages = {}", c_.kernel.tiles.stages) : "",
                  roles_ && roles_->output_groups > 0 ? fmt::format(", kOutputs = {}", roles_->output_groups) : "");
        out_.line("const Task at = {}(call, task{});", scan ? "scan_task" : loop_ == Loop::Chunks ? "chunk_task" : "segment_task", scan ? "" : ", kChunk");
        if (waits_for_kernel_before(plan_, c_.kernel)) out_.line("ptx::wait_for_kernel_before();");  // idle tasks too: the next kernel relies on it
        out_.put(c_.dialect.idle);
        if (loop_ == Loop::Summaries) out_.line("if (at.last) return;  // no segment follows that would ask for its summary");
    }

    /// Tiles and operands: those that arrive with each chunk, or the others.
    void declare_buffers(bool staged) {
        if (role_ == tile::Roles::kOutputs && !staged && writes_memory()) out_.line("float* const own = scratch + (group() - 2) * {};", roles_->output_floats);
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if ((!c_.in_tile(v) && !c_.is_operand(v)) || ir::is_view(op.code) || op.layout->staged != staged || !is_read_here(v)) continue;
            const bool own = role_ == tile::Roles::kOutputs && !staged && op.code != Opcode::Param;
            const tile::Roles::Passed* passed = roles_ ? roles_->find(v) : nullptr;
            if (passed && !staged) continue;  // a buffer per group: declared for each chunk
            const std::string place = own ? fmt::format("own + {}", op.layout->offset) : inputs_.place(v, "arrived", "arrived_numbers");
            if (c_.is_operand(v)) out_.line("const {} {}({});", inputs_.operand_type(v), c_.name(v), place);
            else out_.line("float* const {} = {};  // {}", c_.name(v), place, forge::to_string(op.type.shape));
        }
    }

    /// Whether the group whose text this is reads or writes the value's buffer.
    [[nodiscard]] bool is_read_here(ValueId v) const {
        if (!roles_ || role_ == 0) return true;
        if (roles_->does(role_, v) && fn_.op(v).code != Opcode::Param) return true;
        for (ValueId u = 0; u < fn_.size(); ++u) {
            if (!roles_->does(role_, u)) continue;
            for (const ValueId t : tile::tiles_read_by(fn_, u))
                if (t == v) return true;
        }
        return false;
    }

    // Before the chunks.

    void declare_parameters() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (c_.is_param(v, Role::Scalar)) out_.line("const float {} = call.scalars[{}];", c_.name(v), plan_.scalar(fn_.op(v).attrs.name));
            if (c_.is_param(v, Role::Head) && fn_.op(v).type.rank() == 0) transfers_.load_head(v);
        }
    }

    void start_states() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (c_.is_param(v, Role::Head) && fn_.op(v).type.rank() > 0) transfers_.load_head(v);
            if (c_.is_param(v, Role::State)) start_state(v);
            if (c_.is_param(v, Role::Ones) || c_.is_param(v, Role::Eye)) start_transition(v);
        }
    }

    [[nodiscard]] std::string fragment_type(ValueId v) const {
        const Op& op = fn_.op(v);
        const bool transposed = op.layout->space == Space::Transposed;
        return fmt::format("Fragment<{}, {}>", size_of(op.type, transposed ? 1 : 0), size_of(op.type, transposed ? 0 : 1));
    }

    /// Strides of the rows and columns of a fragment, from those of the value that it holds.
    template <class T>
    [[nodiscard]] std::string fragment_strides(ValueId v, const T& rows, const T& cols) const {
        return fn_.op(v).layout->space == Space::Transposed ? fmt::format("{}, {}", cols, rows) : fmt::format("{}, {}", rows, cols);
    }

    void start_state(ValueId v) {
        const Op& op = fn_.op(v);
        if (!c_.is_fragment(v)) return start_small_state(v);
        out_.line("{} {};", fragment_type(v), c_.name(v));
        if (loop_ == Loop::Summaries) return fill_fragment(v, "broadcast_pair(0.0f)");
        if (loop_ == Loop::Segments) {
            const std::string spill = graph::carry_spill(op.attrs.name);
            const auto& strides = plan_.spills[static_cast<std::size_t>(plan_.spill(spill))].strides;
            return out_.line("load_state({}, {}, {});", c_.name(v), transfers_.spill_pointer(spill, "at.segment"), fragment_strides(v, strides[0], strides[1]));
        }
        const int tensor = plan_.tensor(Kind::InitialState, op.attrs.name);
        const std::string offset = transfers_.tile_offset(tensor, 0);
        out_.line("const float* const {}_initial = state_block<const float>(call, {}, at);", c_.name(v), tensor);
        out_.line("load_state({0}, {0}_initial{1}, {2});", c_.name(v), offset.empty() ? "" : fmt::format(" ? {}_initial{} : nullptr", c_.name(v), offset),
                  fragment_strides(v, fmt::format("call.tensors[{}].dim[0]", tensor), fmt::format("call.tensors[{}].dim[1]", tensor)));
    }

    void start_small_state(ValueId v) {
        if (loop_ == Loop::Segments) return transfers_.load_spill(v, graph::carry_spill(fn_.op(v).attrs.name), "at.segment");
        if (loop_ != Loop::Summaries) return transfers_.load_initial_state(v);
        c_.writes(v);
        out_.line("fill<{}>({}, 0.0f);", c_.floats(v), c_.name(v));
    }

    /// The transition of nothing: ones, or the identity.
    void start_transition(ValueId v) {
        const bool eye = fn_.op(v).attrs.role == Role::Eye;
        if (c_.is_fragment(v)) {
            out_.line("{} {};", fragment_type(v), c_.name(v));
            return fill_fragment(v, eye ? "eye_pair(spot.i, spot.j)" : "broadcast_pair(1.0f)");
        }
        c_.writes(v);
        out_.line("fill<{}>({}, 1.0f);", c_.floats(v), c_.name(v));
    }

    void fill_fragment(ValueId v, const char* value) {
        const std::string type = fragment_type(v);
        out_.line("each{}([&](const Spot& spot) {{ {}.put(spot, {}); }});", type.substr(std::string("Fragment").size()), c_.name(v), value);
    }

    /// `arrive`: waits until the chunk's inputs are there.
    void begin_chunk(const char* arrive) {
        out_.line("[[maybe_unused]] const int rows = rows_of(row);");
        inputs_.declare_stage("arrived", "arrived_numbers", roles_ ? "stage.at" : "stage");
        if (plan::in_order(loop_)) declare_buffers(true);
        if (roles_)
            for (const tile::Roles::Passed& p : roles_->passed) out_.line("const {} {}(scratch + {} + to.at * {});", inputs_.operand_type(p.value), c_.name(p.value), p.offset, p.floats);
        if (role_ != tile::Roles::kOutputs) pack_states();
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (c_.is_param(v, Role::Mask) && !inputs_.is_vector(v)) out_.line("token_mask<{}>({}, rows);", size_of(fn_.op(v).type, 0), c_.name(v));
            if (c_.is_param(v, Role::Shifted)) transfers_.load_tokens(v);
        }
        out_.put(plan::in_order(loop_) ? arrive : "arrive<0>();");
        c_.barriers.passed();
    }

    /// While no product is under way: the compiler would wait for one before it lets go of registers that the last chunk's
    /// products wrote.
    void pack_states() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!ir::is_matmul(fn_.op(v).code) || !is_mine(v)) continue;
            const ValueId a = fn_.op(v).args[fn_.op(v).layout->space == Space::Transposed ? 1 : 0];
            if (c_.is_fragment(a) && fn_.op(a).code == Opcode::Param) pack(a);
        }
    }

    // The chunk.

    void operation(ValueId v) {
        const Op& op = fn_.op(v);
        if (!roles_ && products_.any() && !ir::is_matmul(op.code) && op.layout->space != Space::Reg && !ir::is_view(op.code)) inputs_.start_later();
        if (op.code != Opcode::Param && !ir::is_view(op.code) && op.layout->space != Space::Reg && !inputs_.is_vector(v)) {
            wait_for_passed(v);
            if (const tile::DecayGroup* const group = decays_.with(v)) {
                if (group->head() == v) decay_group(*group);
            } else if (ir::is_matmul(op.code)) product(v);
            else if (op.code == Opcode::Copy && c_.is_operand(v) && c_.is_fragment(op.args[0])) store_fragment(v);
            else if (op.code == Opcode::Copy && c_.is_fragment(v) && c_.is_operand(op.args[0])) load_fragment(v);
            else compute(v);
        }
        for (const ir::Result& r : fn_.results)
            if (r.value == v) store_result(r);
    }

    /// A decay group that comes before all else may sum its gates while the other inputs are on their way.
    void sum_first_gates() {
        if (plan::in_order(loop_) || !decays_.starts_kernel()) return;
        decays_.sum_gates(decays_.groups()[0], "rows_of(row)");
        summed_ = true;
    }

    void decay_group(const tile::DecayGroup& group) {
        const Ranges room = decays_.room(group);
        if (!summed_) {
            before(decays_.gates(group), room);
            decays_.sum_gates(group, "rows");
        }
        summed_ = false;
        Ranges reads = decays_.operands(group);
        reads.insert(reads.end(), room.begin(), room.end());
        before(reads, room);
        decays_.multiply(group);
    }

    /// Waits for what an operation on memory and fragments needs.
    void before(const Ranges& reads, const Ranges& writes) {
        if (storing_ && !writes.empty()) {
            out_.line("stores_read(), sync();");
            storing_ = false;
        }
        products_.overwrite(writes);
        c_.barriers.before(out_, reads, writes);
    }

    void compute(ValueId v) {
        const Op& op = fn_.op(v);
        Ranges reads, writes = c_.memory(v);
        for (const ValueId t : tile::tiles_read_by(fn_, v)) {
            if (c_.is_fragment(t)) read_fragment(t);
            for (const Range& r : c_.memory(t)) reads.push_back(r);
        }
        release_after(v);
        if (const auto work = c_.kernel.tiles.work.find(v); work != c_.kernel.tiles.work.end())
            writes.push_back({work->second, work->second + tile::fragment_work_floats(fn_, v)});
        before(reads, writes);
        if (op.code == Opcode::DecayMask) {
            out_.line("if (warp() == 0) store_decay_sums({}, load_pair({} + 2 * lane()));", c_.name(v), c_.name(op.args[0]));
        } else if (op.code == Opcode::Inverse && c_.is_fragment(v)) {
            out_.line("const Fragment<64, 64> {} = unit_lower_inverse({}, scratch + {});", c_.name(v), c_.name(op.args[0]), c_.kernel.tiles.work.at(v));
        } else if (ir::is_elementwise(op.code) || op.code == Opcode::Copy || op.code == Opcode::Constant || op.code == Opcode::Identity) {
            if (op.code == Opcode::Copy && c_.is_fragment(op.args[0]) && c_.in_tile(v)) spread_fragment(v);
            else write_fragment_loop(c_, v);
        } else {
            write_device_call(c_, v);
        }
    }

    /// A fragment is about to be read by the threads. The compiler does not see that the last chunk's products have ended
    /// if others have begun since: then the carried fragment must have been copied in between.
    void read_fragment(ValueId v) {
        products_.need(c_.name(v));
        if (fn_.op(v).code == Opcode::Param && products_.any()) copied_.insert(v);
    }

    void store_fragment(ValueId v) {
        const ValueId from = fn_.op(v).args[0];
        const bool passed = roles_ && roles_->find(v);
        const bool packed = packed_.contains(from) && fn_.op(v).layout->parts == 1;
        if (!packed) products_.need(c_.name(from));
        release_after(v);
        if (passed) out_.line("{}_passing.wait_empty(to);", c_.name(v));
        else before({}, c_.memory(v));
        out_.line("store_fragment<{}>({}, {}{});", fn_.op(from).layout->space == Space::Transposed, c_.name(v), c_.name(from), packed ? "_packed" : "");
        if (passed) out_.line("settle(), {}_passing.is_filled(to);", c_.name(v));
    }

    void load_fragment(ValueId v) {
        const ValueId from = fn_.op(v).args[0];
        before(c_.memory(from), {});
        const std::string type = fragment_type(v);
        out_.line("{} {} = load_fragment<{}, {}({});", type, c_.name(v), fn_.op(v).layout->space == Space::Transposed, type.substr(std::string("Fragment<").size()), c_.name(from));
    }

    /// A fragment into a tile.
    void spread_fragment(ValueId v) {
        const ValueId from = fn_.op(v).args[0];
        const bool transposed = fn_.op(from).layout->space == Space::Transposed;
        const std::int64_t row = fn_.op(v).layout->strides[0];
        const std::string type = fragment_type(from);
        out_.open(fmt::format("each{}([&](const Spot& spot)", type.substr(std::string("Fragment").size())));
        if (transposed) out_.line("{0}[spot.j * {1} + spot.i] = {2}.at(spot).x[0], {0}[(spot.j + 1) * {1} + spot.i] = {2}.at(spot).x[1];", c_.name(v), row, c_.name(from));
        else out_.line("store_pair({} + spot.i * {} + spot.j, {}.at(spot));", c_.name(v), row, c_.name(from));
        out_.close("});");
    }

    /// The operand's axis that a product contracts, in memory.
    [[nodiscard]] static const char* along(const Op& op, std::size_t operand) {
        const bool rows = operand == 0 ? op.attrs.trans_a : !op.attrs.trans_b;
        return rows ? "Along::Rows" : "Along::Columns";
    }

    void product(ValueId v) {
        const Op& op = fn_.op(v);
        const std::size_t first = op.layout->space == Space::Transposed ? 1 : 0, second = 1 - first;
        const ValueId a = op.args[first], b = op.args[second];
        const bool registers = c_.is_fragment(a);
        if (registers) pack(a);
        if (op.args.size() == 3) products_.need(c_.name(op.args[2]));
        Ranges reads = c_.memory(b);
        for (const Range& r : c_.memory(a)) reads.push_back(r);
        before(reads, {});
        const std::string type = fragment_type(v);
        out_.line("{} {}{};", type, c_.name(v), op.args.size() == 3 ? " = " + c_.name(op.args[2]) : "");
        const char* acc = op.code == Opcode::MatmulAdd ? "Add" : op.code == Opcode::MatmulSub ? "Sub" : "Set";
        if (registers) out_.line("issue_multiply<Acc::{}, {}>({}, {}_packed, {});", acc, along(op, second), c_.name(v), c_.name(a), c_.name(b));
        else
            out_.line("issue_multiply<Acc::{}, {}, {}, {}>({}, {}, {});", acc, along(op, first), along(op, second), size_of(fn_.op(op.args[0]).type, op.attrs.trans_a ? 0 : 1), c_.name(v),
                      c_.name(a), c_.name(b));
        products_.started(c_.name(v), reads);
    }

    void pack(ValueId v) {
        if (!packed_.insert(v).second) return;
        products_.need(c_.name(v));
        out_.line("const auto {0}_packed = pack<{1}>({0});", c_.name(v), inputs_.half());
    }

    // Results.

    void store_result(const ir::Result& r) {
        if (tile::is_carried(r.role)) return;
        const ValueId v = r.value;
        if (fn_.op(v).layout->space == Space::Spill) return;  // as it is made
        if (!c_.is_operand(v)) return r.role == Role::Spill ? transfers_.store_spill(r.name, v, "block") : transfers_.store_output(r);
        c_.reads(v);
        if (r.role == Role::Spill) return out_.line("store_image({}, {});", transfers_.spill_pointer(r.name, "block"), c_.name(v));
        if (inputs_.is_mapped(plan_.tensor(Kind::Output, r.name))) {
            storing_ = true;
            return out_.line("store_operand(by_copies(maps, call, rows, kChunk), {}_map, row, {}, {}, rows);", cpp_identifier(r.name), FragmentInputs::token_matrix(r.name, plan_.tensor(Kind::Output, r.name)), c_.name(v));
        }
        out_.line("store_operand({}, {}, rows);", FragmentInputs::token_matrix(r.name, plan_.tensor(Kind::Output, r.name)), c_.name(v));
    }

    void keep_all() {
        for (const ir::Result& r : fn_.results)
            if (tile::is_carried(r.role)) keep(r);
    }

    void keep(const ir::Result& r) {
        const ValueId kept = c_.carried_param(r);
        if (kept == ir::kNoValue || kept == r.value || loop_ == Loop::Chunks) return;
        if (c_.is_fragment(kept)) return out_.line("{} = {};", c_.name(kept), copied_.contains(kept) ? fmt::format("copied({})", c_.name(r.value)) : c_.name(r.value));
        before(c_.memory(r.value), c_.memory(kept));
        out_.line("copy_floats<{}>({}, {});", c_.floats(kept), c_.name(kept), c_.name(r.value));
    }

    void store_carried() {
        if (loop_ == Loop::Segments) out_.line("if (!at.last) return;");
        for (const ir::Result& r : fn_.results) {
            if (!tile::is_carried(r.role)) continue;
            const ValueId v = c_.carried_param(r) == ir::kNoValue ? r.value : c_.carried_param(r);
            if (loop_ == Loop::Summaries) store_summary(r, v);
            else if (c_.is_fragment(v)) store_final(r.name, v);
            else transfers_.store_final_state(r.name, v);
        }
    }

    void store_summary(const ir::Result& r, ValueId v) {
        const std::string spill = r.role == Role::State ? graph::input_spill(r.name) : graph::transition_spill(r.name);
        if (!c_.is_fragment(v)) return transfers_.store_spill(spill, v, "at.segment");
        const auto& strides = plan_.spills[static_cast<std::size_t>(plan_.spill(spill))].strides;
        out_.line("store_state({}, {}, {});", transfers_.spill_pointer(spill, "at.segment"), fragment_strides(v, strides[0], strides[1]), c_.name(v));
    }

    void store_final(const std::string& state, ValueId v) {
        const int tensor = plan_.tensor(Kind::FinalState, state);
        out_.open(fmt::format("if (float* const final = state_block<float>(call, {}, at))", tensor));
        out_.line("store_state(final{}, {}, {});", transfers_.tile_offset(tensor, 0),
                  fragment_strides(v, fmt::format("call.tensors[{}].dim[0]", tensor), fmt::format("call.tensors[{}].dim[1]", tensor)), c_.name(v));
        out_.close();
    }

    Context c_;
    Transfers transfers_;
    FragmentInputs inputs_;
    DecayGroups decays_;
    Products products_;
    Writer& out_;
    const plan::Plan& plan_;
    Loop loop_;
    const Function& fn_;
    bool summed_ = false;  ///< the first decay group's gates, ahead of it
    std::set<ValueId> packed_;
    std::set<ValueId> copied_;  ///< carried fragments that must be copied from chunk to chunk
    const tile::Roles* roles_;  ///< null: one warp group does everything
    std::uint8_t role_ = 0;     ///< whose text is being written
    std::set<ValueId> waited_;  ///< passed values that are there
    ValueId last_arrived_ = 0;
    bool released_ = false;
    bool storing_ = false;  ///< a tensor copy that began in this chunk may still read memory
};

}  // namespace

void write_fragment_kernel(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel) { FragmentKernel(out, dialect, plan, kernel).write(); }

}  // namespace forge::emit
