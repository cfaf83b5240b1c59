#include "emit/cuda/vector_scan.h"

#include <algorithm>

#include "emit/cuda/direction.h"
#include "emit/expression.h"
#include "emit/last_rows.h"
#include "emit/statements.h"
#include "graph/summary.h"
#include "tile/vector_scan.h"

namespace forge::emit {
namespace {

using ::forge::kernel::Kind;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using SlotKind = plan::TensorSlot::Kind;

class VectorScan {
  public:
    VectorScan(Context& context, Transfers& transfers)
        : c_(context),
          transfers_(transfers),
          out_(context.out),
          plan_(context.plan),
          fn_(context.fn),
          direction_{context.kernel.graph.reverse} {}

    void write() {
        for (const ir::Result& r : fn_.results)
            if (r.role == Role::State) out_.line("pair {};", c_.name(c_.carried_param(r)));
        transfers_.declare_chunk_states();
        out_.open(fmt::format("for (int j = 2 * thread(); j < {}; j += 2 * kThreads)", longest()));
        begin();
        out_.begin({Kind::Loop, "chunks"}, fmt::format("while ({})", direction_.within("row")));
        ask();
        go_through();
        out_.end();
        for (const ir::Result& r : fn_.results)
            if (r.role == Role::State && numbers(r.value) > 1) store_final(r, "j");
        out_.close();
        store_numbers();
    }

  private:
    [[nodiscard]] std::int64_t numbers(ValueId v) const { return tile::numbers_of(fn_.op(v).type); }
    [[nodiscard]] bool arrives(ValueId v) const { return tile::arrives_with_chunk(fn_, v); }
    /// Which lies in memory as 0 or 1.
    [[nodiscard]] bool is_truth(ValueId v) const { return fn_.op(v).type.dtype == DType::Bool; }
    /// Numbers of the longest vector, but for spills of which threads read one number.
    [[nodiscard]] std::int64_t longest() const {
        std::int64_t most = 1;
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (!c_.is_param(v, Role::Spill) || arrives(v)) most = std::max(most, numbers(v));
        return most;
    }

    void begin() {
        if (!direction_.reverse) {
            out_.line("Size row = at.row, block = at.block;");
        } else {
            out_.line("const Size last = (at.end - at.row + kChunk - 1) / kChunk - 1;");
            out_.line("Size row = at.row + last * kChunk, block = at.block + last * call.heads;");
        }
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (c_.is_param(v, Role::State)) load_initial(v);
    }

    /// By one thread, where all have read what may lie in the same place.
    void store_numbers() {
        const auto is_number = [&](const ir::Result& r) { return r.role == Role::State && numbers(r.value) == 1; };
        if (std::any_of(fn_.results.begin(), fn_.results.end(), is_number)) out_.add(group_barrier());
        for (const ir::Result& r : fn_.results)
            if (is_number(r)) store_final(r, "2 * thread()");
    }

    void load_initial(ValueId v) {
        const int tensor = plan_.tensor(SlotKind::InitialState, fn_.op(v).attrs.name);
        const std::string type = storage_type(plan_.state_dtype), offset = transfers_.tile_offset(tensor, 0),
                          state = fmt::format("state_block<const {}>(call, {}, at)", type, tensor);
        c_.next("start " + c_.name(v), {}, {});
        if (offset.empty())
            return out_.line("{} = state_pair<{}>({}, {}, j{});", c_.name(v), numbers(v), state, stride(v, tensor),
                             valid(v, tensor));
        out_.line("const {}* const {}_initial = {};", type, c_.name(v), state);
        out_.line("{0} = state_pair<{1}>({0}_initial ? {0}_initial{2} : nullptr, {3}, j{4});", c_.name(v), numbers(v),
                  offset, stride(v, tensor), valid(v, tensor));
    }
    [[nodiscard]] std::string stride(ValueId v, int tensor) const {
        return fn_.op(v).type.rank() == 0 ? "0" : fmt::format("call.tensors[{}].dim[0]", tensor);
    }
    /// `, …`: how many numbers a state has in memory, where those are fewer than on chip.
    [[nodiscard]] std::string valid(ValueId v, int tensor) const {
        const std::string part = numbers(v) == 1 ? "" : transfers_.columns_of(tensor, {});
        return part.empty() ? "" : ", " + part;
    }

    /// For what the next chunks read.
    void ask() {
        kernel::Accesses reads;
        std::vector<std::string> arrays;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!arrives(v)) continue;
            const Op& from = fn_.op(v).code == Opcode::Select ? fn_.op(fn_.op(v).args[0]) : fn_.op(v);
            kernel::append(reads, Transfers::spilled(from.attrs.name));
            arrays.push_back(c_.name(v) + "_then[kStages]");
        }
        if (arrays.empty()) return;
        c_.next("ask for " + std::to_string(arrays.size()), reads, {});
        out_.line("pair {};", fmt::join(arrays, ", "));
        begin_chunks(direction_.row("n * kChunk"));
        const std::string block = "(" + direction_.block("n * call.heads") + ")";
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (arrives(v)) out_.line("{}_then[n] = {};", c_.name(v), arriving(v, block.c_str()));
        out_.close();
        out_.next();
    }
    void begin_chunks(const std::string& row) {
        out_.put("#pragma unroll");
        out_.open("for (int n = 0; n < kStages; ++n)");
        out_.line("if (!({})) break;", direction_.within(row));
    }
    [[nodiscard]] std::string arriving(ValueId v, const char* block) const {
        const Op& op = fn_.op(v);
        if (op.code != Opcode::Select)
            return fmt::format("spilled_pair<{}>({}, j)", numbers(v), transfers_.spill_pointer(op.attrs.name, block));
        const std::int64_t count = numbers(op.args[0]), start = op.attrs.start;
        return fmt::format("spilled_pair<1>({} + {}, j)",
                           transfers_.spill_pointer(fn_.op(op.args[0]).attrs.name, block),
                           start < 0 ? start + count : start);
    }

    /// Those chunks, one after the other.
    void go_through() {
        begin_chunks("row");
        for (const ir::Result& r : fn_.results)
            if (r.role == Role::Before) store_before(r);
        for (ValueId v = 0; v < fn_.size(); ++v) compute(v);
        for (const ir::Result& r : fn_.results)
            if (r.role == Role::Spill)
                out_.line("store_spilled<{}>({}, j, {});", numbers(r.value), transfers_.spill_pointer(r.name, "block"),
                          is_truth(r.value) ? fmt::format("mask_to_float({})", text(r.value)) : text(r.value));
        keep();
        out_.line("row {0}= kChunk, block {0}= call.heads;", direction_.sign());
        out_.close();
    }
    void compute(ValueId v) {
        const Op& op = fn_.op(v);
        if (arrives(v) && is_truth(v))
            return out_.line("const auto {0} = ne({0}_then[n], broadcast_pair(0.0f));", c_.name(v));
        if (arrives(v)) return out_.line("const pair {0} = {0}_then[n];", c_.name(v));
        if (op.args.empty()) return;
        std::vector<std::string> operands;
        for (const ValueId a : op.args) operands.push_back(text(a));
        const bool same = op.code == Opcode::Copy || op.code == Opcode::Unsqueeze || op.code == Opcode::Squeeze;
        out_.line("const auto {} = {};", c_.name(v),
                  same ? operands[0] : expression(fn_, op, operands, "broadcast_pair(0.0f)"));
    }
    [[nodiscard]] std::string text(ValueId v) const {
        if (fn_.op(v).code == Opcode::Constant)
            return fmt::format("broadcast_pair({})", float_literal(fn_.op(v).attrs.value));
        const bool number = c_.is_param(v, Role::Scalar) || c_.is_param(v, Role::Head);
        return number ? fmt::format("broadcast_pair({})", c_.name(v)) : c_.name(v);
    }
    /// States for the next chunk. One that becomes what another was is read before that is written.
    void keep() {
        std::vector<std::string> lines;
        for (const ir::Result& r : fn_.results) {
            const ValueId to = r.role == Role::State ? c_.carried_param(r) : r.value;
            if (to == r.value) continue;
            const bool other = c_.is_param(r.value, Role::State);
            if (other) out_.line("const pair {}_before = {};", c_.name(to), c_.name(r.value));
            lines.push_back(fmt::format("{0} = {1};", c_.name(to), other ? c_.name(to) + "_before" : text(r.value)));
        }
        for (const std::string& line : lines) out_.put(line);
    }

    void store_before(const ir::Result& r) {
        const int tensor = plan_.tensor(SlotKind::ChunkState, r.name);
        out_.line("if ({}) store_state_pair<{}>(before{}, {}, j, {}{});", transfers_.chunk_state(r.name),
                  numbers(r.value), transfers_.tile_offset(tensor, 0), stride(r.value, tensor), text(r.value),
                  valid(r.value, tensor));
    }

    void store_final(const ir::Result& r, const char* j) {
        const int tensor = plan_.tensor(SlotKind::FinalState, r.name);
        const std::string& state = c_.name(c_.carried_param(r));
        c_.next("store " + state, {}, {});
        const auto store = [&] {
            out_.line("store_state_pair<{}>(final{}, {}, {}, {}{});", numbers(r.value),
                      transfers_.tile_offset(tensor, 0), stride(r.value, tensor), j, state, valid(r.value, tensor));
        };
        const auto leave = [&] {
            out_.line("store_spilled<{}>({}, {}, {});", numbers(r.value),
                      transfers_.spill_pointer(graph::final_spill(r.name), kSequenceBlock), j, state);
        };
        transfers_.store_final(tensor, "", store, leave);
    }

    Context& c_;
    Transfers& transfers_;
    Writer& out_;
    const plan::Plan& plan_;
    const ir::Function& fn_;
    Direction direction_;
};

}  // namespace

void write_vector_scan(Context& context, Transfers& transfers) { VectorScan(context, transfers).write(); }

}  // namespace forge::emit
