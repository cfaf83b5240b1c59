#include "emit/kernel.h"

#include <algorithm>
#include <map>

#include "emit/asked_rows.h"
#include "emit/held_states.h"
#include "emit/loads_ahead.h"
#include "emit/loops.h"
#include "emit/transfers.h"
#include "graph/summary.h"
#include "tile/order.h"

namespace forge::emit {
namespace {

using ::forge::kernel::Kind;
using ::forge::kernel::Statement;
using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using plan::Loop;
using tile::size_of;

class KernelWriter {
  public:
    KernelWriter(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel)
        : c_(out, dialect, plan, kernel),
          transfers_(c_),
          held_states_(c_, transfers_),
          asked_(c_, transfers_),
          loads_(c_, transfers_),
          out_(out),
          plan_(plan),
          loop_(kernel.graph.loop),
          reverse_(kernel.graph.reverse),
          fn_(c_.fn) {}

    void write() {
        ::forge::kernel::Kernel time{kernel_symbol(c_.kernel)};
        time.publishes = c_.dialect.publishes, time.overlaps = c_.dialect.overlaps;
        out_.begin_kernel(std::move(time),
                          fmt::format("FORGE_KERNEL void {}({})", kernel_symbol(c_.kernel), c_.dialect.arguments));
        for (const std::string& line : c_.dialect.prologue) out_.put(line);
        if (c_.dialect.early) begin_early();
        if (c_.dialect.overlaps) out_.add({Kind::WaitKernel});
        if (takes_tasks_in_turn()) begin_tasks();
        begin_task();
        if (holds_states()) transfers_.clear_outputs();
        out_.line("[[maybe_unused]] const vec zero = broadcast(0.0f);");
        if (holds_states() && !plan_.schedule.states_ahead) held_states_.ask();
        declare_tiles();
        if (holds_states()) transfers_.declare_inputs([&](ValueId v) { return asked_.has(v); });
        else transfers_.declare_tensors();
        before_chunks();
        if (!holds_states()) loads_.choose();
        begin_chunk();
        transfers_.spread_requests(products());
        declare_spills();
        chunk_body();
        if (plan::in_order(loop_)) {
            out_.add({Kind::Rest, "the next chunk finds all tiles at rest"});
            out_.end();
            if (plan_.schedule.states_ahead) {
                asked_.ask("if (at.end == 0) ask_for_rows(next, 0);");
                out_.put("after_next = task_after(call, task + gridDim.x);");
            }
            store_carried();
        }
        if (takes_tasks_in_turn()) end_tasks_in_turn(out_);
        out_.end();
    }

  private:
    [[nodiscard]] bool has_far_tiles() const { return c_.kernel.tiles.far_floats > 0; }

    [[nodiscard]] bool holds_states() const { return plan_.schedule.holds_states; }

    /// Blocks that have tiles in global memory, or ask for a next task's states, take one task after the other.
    [[nodiscard]] bool takes_tasks_in_turn() const { return has_far_tiles() || plan_.schedule.states_ahead; }

    /// Only blocks that take tasks in turn have states come early: of a block per task most would ask for what they are
    /// about to read, which took float32 states 1.02 to 1.07 times as long.
    void begin_early() {
        if (plan_.schedule.states_ahead) held_states_.expect();
        out_.put("ptx::wait_for_kernel_before();");
    }

    void begin_tasks() {
        if (has_far_tiles()) declare_far_tiles(out_, plan_);
        if (plan_.schedule.states_ahead) {
            asked_.declare();
            held_states_.declare();
            out_.line("HoldingTask next = holding_task(call, blockIdx.x);");
            asked_.ask("ask_for_rows(next, 0);");
            held_states_.ask_for_next();
            out_.line("HoldingTask after_next = task_after(call, blockIdx.x);");
        }
        begin_tasks_in_turn(out_);
    }

    void begin_task() {
        const auto chunk = plan_.schedule.chunk;
        switch (loop_) {
            case Loop::Scan:
                if (holds_states()) return begin_holding_task();
                out_.put("const Task at = scan_task(call, task);");
                break;
            case Loop::Carries:
                out_.line("const Task at = carry_task(call, task);");
                break;
            case Loop::Chunks:
                out_.line("const Task at = chunk_task(call, task, {});", chunk);
                break;
            case Loop::Segments:
            case Loop::Summaries:
                out_.line("const Task at = segment_task(call, task, {});", chunk);
                break;
            case Loop::Relay:
                throw InternalError("emit: kernels of the portable library pass on no states");
        }
        if (!c_.dialect.idle.empty()) out_.put(c_.dialect.idle);
        if (loop_ == Loop::Summaries)
            out_.line(
                "if (at.last && !call.every_summary) return;  // no segment follows that would ask for its summary");
    }

    /// A task's rows are asked for before it is known where its states lie. Of several tasks, that is asked for before
    /// the final states of the task two before are stored, and known when the next states are to be asked for.
    void begin_holding_task() {
        if (plan_.schedule.states_ahead) {
            out_.line("const HoldingTask at = next;");
            out_.line("next = after_next;");
            return;
        }
        out_.line("HoldingTask at = holding_task(call, task);");
        asked_.declare();
        asked_.ask("ask_for_rows(at, 0);");
        out_.line("at.find_states();");
    }

    /// The next token, of this task or, if it has no more and the next task's states come, of that. What comes first in
    /// a token's work is done to vectors, by few warps: the others ask meanwhile.
    void ask_for_next_rows() {
        if (!plan_.schedule.states_ahead) return asked_.ask("ask_for_rows(anew(at), row + 1);");
        asked_.ask("ask_for_rows(row + 1 < at.end ? anew(at) : anew(next), row + 1 < at.end ? row + 1 : 0);");
    }

    /// Once all blocks have come to their last tasks, not before: blocks that wait for the end of this kernel would
    /// come to multiprocessors unevenly, as the first places there become free, and take tasks in turn where they are.
    void let_next_kernel_start() { out_.put("if (task + gridDim.x >= call.tasks) ptx::let_next_kernel_start();"); }

    /// The loop over chunks (or segments), and the valid rows of a chunk.
    void begin_chunk() {
        if (loop_ == Loop::Chunks) out_.line("const Size row = at.row, block = at.block;");
        else if (!reverse_) out_.line("Size block = at.block;");
        else begin_at_last_chunk();
        if (plan::in_order(loop_)) {
            out_.add({Kind::Rest, "before the first chunk"});
            loads_.fetch_first();
            held_states_.take();
            if (plan_.schedule.states_ahead) let_next_kernel_start();
            out_.begin({Kind::Loop, "chunks"},
                       reverse_
                           ? fmt::format("for (Size row = last_row; row >= at.row; row -= {}, block -= call.heads)",
                                         loads_.step())
                           : fmt::format("for (Size row = at.row; row < at.end; row += {}, block += call.heads)",
                                         loads_.step()));
        }
        if (loop_ == Loop::Carries && plan_.schedule.forgetting) start_anew();
        if (loop_ != Loop::Carries) out_.line("[[maybe_unused]] const int rows = {};", loads_.rows_from("row"));
        if (!plan::in_order(loop_)) loads_.fetch_first();
    }

    /// What the segment before has forgotten does not matter here: its summary is the state. If this one forgets it
    /// too, nobody asks for more.
    void start_anew() {
        const std::string forgets = fmt::format("call.spills[{}]", plan_.spill(plan::kForgetsSpill));
        c_.next("start anew", Transfers::spilled(plan::kForgetsSpill), {});
        out_.line("const bool anew = starts_anew(call, {}, block, row == at.row);", forgets);
        out_.line("if (anew && (row + 1 == at.end || number_of({}, block) != 0.0f)) continue;", forgets);
        out_.open("if (anew)");
        loads_.fetch_again();  // the segments between were passed over
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (c_.is_param(v, Role::State))
                transfers_.load_spill(v, graph::input_spill(fn_.op(v).attrs.name), "(block - call.heads)");
        out_.close();
    }

    /// Of a sequence without tokens the last chunk is before the first.
    void begin_at_last_chunk() {
        const std::int64_t chunk = plan_.schedule.chunk;
        out_.line("const Size last = (at.end - at.row + {}) / {} - 1, last_row = at.row + last * {};", chunk - 1, chunk,
                  chunk);
        out_.line("Size block = at.block + last * call.heads;");
    }

    /// One pointer per buffer, with its shape. What has the place of a state is where the state is.
    void declare_tiles() {
        std::map<std::int64_t, std::string> states;  // by offset
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if (c_.is_held(v) && op.code != Opcode::Param && !ir::is_view(op.code))
                out_.line("{} {};", held_type(c_.fn.op(v).type), c_.name(v));
            if (!c_.in_tile(v) || ir::is_view(op.code)) continue;
            const auto state = states.find(op.layout->offset);
            const bool stays = transfers_.stays_in_memory(v);
            out_.line("float* const {} = {};  // {}", c_.name(v),
                      stays                   ? transfers_.state_home(v)
                      : state == states.end() ? c_.place(op.layout->offset)
                                              : state->second,
                      forge::to_string(op.type.shape));
            if (stays) states.emplace(op.layout->offset, c_.name(v));
        }
    }

    /// Spills that are read where they lie, or made there.
    void declare_spills() {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (c_.is_param(v, Role::Spill) && !c_.in_tile(v)) transfers_.declare_spill(v, fn_.op(v).attrs.name);
        for (const ir::Result& r : fn_.results)
            if (c_.made_in_spill(r.value))
                out_.line("float* const {} = {};", c_.name(r.value), transfers_.spill_pointer(r.name, "block"));
    }

    /// Loads of what does not change from chunk to chunk, and the initial states.
    void before_chunks() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if (c_.is_param(v, Role::Scalar))
                out_.line("const float {} = call.scalars[{}];", c_.name(v), plan_.scalar(op.attrs.name));
            if (c_.is_param(v, Role::Head)) transfers_.load_head(v);
            if (c_.is_param(v, Role::State)) start_state(v);
            if (c_.is_param(v, Role::Ones) || c_.is_param(v, Role::Eye)) start_transition(v);
        }
        transfers_.declare_chunk_states();
    }

    void start_state(ValueId v) {
        if (c_.is_held(v)) return;  // it has been asked for
        if (loop_ == Loop::Segments)
            return transfers_.load_spill(v, graph::carry_spill(fn_.op(v).attrs.name), "at.segment");
        if (waits_between_stretches()) {
            const std::string waiting = graph::carry_spill(fn_.op(v).attrs.name);
            return either(
                "at.row > 0", [&] { transfers_.load_spill(v, waiting, kLane); },
                [&] { transfers_.load_initial_state(v); });
        }
        if (loop_ != Loop::Summaries) return transfers_.load_initial_state(v);
        c_.writes(v);
        out_.line("fill<{}>({}, 0.0f);", c_.floats(v), c_.name(v));
    }

    /// The transition of nothing: ones, or the identity.
    void start_transition(ValueId v) {
        const Op& op = fn_.op(v);
        const bool eye = op.attrs.role == Role::Eye;
        c_.writes(v);
        if (eye && c_.dialect.cooperative)
            return out_.line("fill_identity<{}, {}>({});", size_of(op.type, 0), op.layout->strides[0], c_.name(v));
        out_.line("fill<{}>({}, {});", c_.floats(v), c_.name(v), eye ? "0.0f" : "1.0f");
        if (eye)
            out_.line("for (int i = 0; i < {}; ++i) {}[i * {}] = 1.0f;", size_of(op.type, 0), c_.name(v),
                      op.layout->strides[0] + 1);
    }

    /// Whether a task may be followed by one that goes on where it ends.
    [[nodiscard]] bool waits_between_stretches() const { return loop_ == Loop::Scan && plan_.in_stretches(); }

    template <class Then, class Else>
    void either(const char* condition, const Then& then, const Else& otherwise) {
        out_.open(fmt::format("if ({})", condition));
        then();
        out_.close("} else {");
        out_.indent();
        otherwise();
        out_.close();
    }

    void store_carried() {
        if (loop_ == Loop::Carries) return;
        if (loop_ == Loop::Segments) out_.line("if (!at.last) return;");
        for (const ir::Result& r : fn_.results) {
            if (!tile::is_carried(r.role)) continue;
            const ValueId kept = c_.carried_param(r);
            const ValueId v = kept == ir::kNoValue ? r.value : kept;
            if (loop_ == Loop::Summaries)
                transfers_.store_spill(
                    r.role == Role::State ? graph::input_spill(r.name) : graph::transition_spill(r.name), v,
                    "at.segment");
            else if (waits_between_stretches())
                either(
                    "!at.last", [&] { transfers_.store_spill(graph::carry_spill(r.name), v, kLane); },
                    [&] { transfers_.store_final_state(r.name, v); });
            else transfers_.store_final_state(r.name, v);
        }
    }

    void chunk_body() {
        bool loading = true;  // parameters come first
        bool asked = !holds_states();
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if (loading && op.code != Opcode::Param) loads_.fetch_next();
            loading = loading && op.code == Opcode::Param;
            if (const tile::Stream* const stream = stream_of(v)) {
                if (v == stream->members.back()) rows(*stream);
                continue;
            }
            if (read_in_rows(v)) continue;
            if (asked_.has(v)) asked_.place(v);
            else if (loads_.has(v)) transfers_.place(v);
            else if (c_.is_param(v, Role::Input) || c_.is_param(v, Role::Shifted)) transfers_.load_tokens(v);
            else if (c_.is_param(v, Role::Mask)) load_mask(v);
            else if (c_.is_param(v, Role::Before)) transfers_.load_chunk_state(v);
            else if (c_.is_param(v, Role::Spill) && c_.in_tile(v)) transfers_.load_spill(v, op.attrs.name, "block");
            else if (c_.is_computed(v)) {
                loads_.fetch_during(v);
                compute(v);
                if (!asked) asked = true, ask_for_next_rows();
            }
            if (ir::is_matmul(op.code)) transfers_.after_product();
            store_results(v);
        }
        if (!asked) ask_for_next_rows();
        for (const ir::Result& r : fn_.results)
            if (tile::is_carried(r.role)) keep(r);
    }

    [[nodiscard]] const tile::Stream* stream_of(ValueId v) const {
        const auto& streams = c_.kernel.tiles.streams;
        const auto it = std::find_if(streams.begin(), streams.end(), [&](const tile::Stream& s) { return s.has(v); });
        return it == streams.end() ? nullptr : &*it;
    }

    [[nodiscard]] bool read_in_rows(ValueId v) const {
        const auto& streams = c_.kernel.tiles.streams;
        return std::any_of(streams.begin(), streams.end(), [&](const tile::Stream& s) {
            return std::find(s.inputs.begin(), s.inputs.end(), v) != s.inputs.end();
        });
    }

    /// A loop over rows, from tensors to tensors.
    void rows(const tile::Stream& stream) {
        RowTensors tensors;
        declare_outputs_late();
        out_.open("");
        for (const ValueId v : stream.inputs) transfers_.read_rows(v, tensors[v] = c_.name(v) + "_in");
        std::vector<ir::Result> stored;
        for (const ir::Result& r : fn_.results)
            if (r.role == Role::Input &&
                std::find(stream.outputs.begin(), stream.outputs.end(), r.value) != stream.outputs.end())
                stored.push_back(r);
        for (const ir::Result& r : stored) transfers_.write_rows(r, tensors[r.value] = c_.name(r.value) + "_out");
        write_rows(out_, fn_, stream, c_.names, tensors);
        for (const ir::Result& r : stored) transfers_.store_rows(r, tensors.at(r.value));
        out_.close();
        for (const ValueId v : stream.members)
            if (!tensors.contains(v)) store_results(v);
    }

    void load_mask(ValueId v) {
        c_.writes(v);
        out_.line("token_mask<{}>({}, rows);", size_of(fn_.op(v).type, 0), c_.name(v));
    }

    void compute(ValueId v) {
        const Op& op = fn_.op(v);
        kernel::Accesses reads, writes = c_.memory(v);
        for (const ValueId t : tile::tiles_read_by(fn_, v)) kernel::append(reads, c_.memory(t));
        if (const auto work = c_.kernel.tiles.work.find(v); work != c_.kernel.tiles.work.end())
            kernel::append(writes, Context::floats_at(work->second, tile::work_floats(fn_, v, plan_.schedule.rules())));
        if (c_.sums_held(v)) kernel::append(writes, Context::parts_of_warps());
        const std::string what = fmt::format("{} {}", ir::info(op.code).name, c_.name(v));
        if (copies_first(v)) {
            out_.begin({Kind::Operation, what, reads, writes}, "");
            write_device_call(c_, v);
            return out_.end();
        }
        c_.next(what, reads, writes);
        if (op.code == Opcode::Copy && is_matrix_transpose(op)) {
            const ValueId base = op.args[0];
            out_.line("transpose<{}, {}, {}, {}>({}, {});", size_of(op.type, 1), size_of(op.type, 0),
                      fn_.op(base).layout->strides[1], op.layout->strides[0], tile_pointer(fn_, base, c_.names),
                      c_.name(v));
        } else if (op.code == Opcode::Concat && c_.is_held(v)) {
            write_joined(out_, fn_, v, c_.names);
        } else if (ir::is_elementwise(op.code) || op.code == Opcode::Copy || op.code == Opcode::Constant ||
                   op.code == Opcode::Identity || op.code == Opcode::Arange) {
            write_loops(out_, fn_, v, c_.names,
                        c_.is_held(v)            ? Walk::Held
                        : c_.dialect.cooperative ? Walk::Shared
                                                 : Walk::Nested);
        } else {
            write_device_call(c_, v);
        }
    }

    [[nodiscard]] std::size_t products() const {
        return static_cast<std::size_t>(
            std::count_if(fn_.ops.begin(), fn_.ops.end(), [](const Op& op) { return ir::is_matmul(op.code); }));
    }

    /// What a product is added to, where threads share the work, before they multiply.
    [[nodiscard]] bool copies_first(ValueId v) const {
        const Op& op = fn_.op(v);
        return c_.dialect.cooperative && ir::is_matmul(op.code) && op.args.size() == 3 && !c_.is_held(v) &&
               !tile::same_buffer(fn_, op.args[2], v);
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
            if (r.role == Role::Input) {
                declare_outputs_late();
                transfers_.store_output(r);
            }
            if (r.role == Role::Before) transfers_.store_chunk_state(r);
            if (r.role == Role::Spill && !c_.made_in_spill(v)) transfers_.store_spill(r.name, v, "block");
        }
    }

    /// Where states take registers, addresses of outputs are found when they are needed.
    void declare_outputs_late() {
        if (!holds_states() || declared_outputs_) return;
        declared_outputs_ = true;
        out_.next();
        transfers_.declare_outputs("anew(at)");
    }

    /// The state after the chunk goes where the next chunk reads it, unless it was made there.
    void keep(const ir::Result& r) {
        const ValueId kept = c_.carried_param(r);
        if (kept == r.value) return;
        if (kept != ir::kNoValue && c_.is_held(kept)) {
            c_.next("keep " + c_.name(kept), c_.memory(r.value), c_.memory(kept));
            return out_.line("{} = {};", c_.name(kept), c_.name(r.value));
        }
        if (kept == ir::kNoValue || fn_.op(kept).layout->offset == fn_.op(r.value).layout->offset) return;
        c_.next("keep " + c_.name(kept), c_.memory(r.value), c_.memory(kept));
        out_.line("copy_floats<{}>({}, {});", c_.floats(kept), c_.name(kept), c_.name(r.value));
    }

    static constexpr const char* kLane = "(at.sequence * call.heads + at.head)";

    Context c_;
    Transfers transfers_;
    HeldStates held_states_;
    AskedTokens asked_;
    LoadsAhead loads_;
    Writer& out_;
    const plan::Plan& plan_;
    Loop loop_;
    bool reverse_;
    const Function& fn_;
    bool declared_outputs_ = false;
};

}  // namespace

void declare_far_tiles(Writer& out, const plan::Plan& plan) {
    const int spill = plan.spill(plan::kFarSpill);
    out.line("float* const far = call.spills[{}] + Size{{blockIdx.x}} * {};", spill,
             plan.spills[static_cast<std::size_t>(spill)].floats);
}

void begin_tasks_in_turn(Writer& out) {
    Statement tasks{Kind::Loop, "tasks"};
    tasks.tasks = true;
    out.begin(std::move(tasks), "");
    out.open("const auto work = [&](const Size task)");
}

void end_tasks_in_turn(Writer& out) {
    out.add({Kind::Rest, "the next task finds all tiles at rest"});
    out.close("};");
    out.put("for (Size task = blockIdx.x; task < call.tasks; task += gridDim.x) work(task);");
    out.end();
}

std::string kernel_symbol(const plan::Kernel& kernel) { return "forge_" + kernel.graph.name; }

void write_kernel(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel) {
    KernelWriter(out, dialect, plan, kernel).write();
}

}  // namespace forge::emit
