#include "emit/cuda/fragment_states.h"

#include "emit/last_rows.h"
#include "graph/summary.h"
#include "tile/order.h"

namespace forge::emit {

using ir::Op;
using ir::Role;
using ir::ValueId;
using plan::Loop;
using tile::size_of;
using SlotKind = plan::TensorSlot::Kind;
using Space = ir::Layout::Space;

std::string fragment_parameters(const ir::Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    const bool transposed = op.layout->space == Space::Transposed;
    return fmt::format("<{}, {}>", size_of(op.type, transposed ? 1 : 0), size_of(op.type, transposed ? 0 : 1));
}

std::string fragment_type(const ir::Function& fn, ValueId v) { return "Fragment" + fragment_parameters(fn, v); }

void FragmentStates::start() {
    if (makes_columns())
        out_.line("const int first_column = transition_column(at, {}, {});", c_.kernel.cut.count, c_.kernel.cut.size);
    if (loop_ == Loop::Relay) wait_for_segment_before();
    for (ValueId v = 0; v < fn_.size(); ++v) {
        const bool head = c_.is_param(v, Role::Head) && fn_.op(v).type.rank() > 0;
        if (head && !c_.kernel.tiles.roles) transfers_.load_head(v);
        if (c_.is_param(v, Role::State)) start_state(v);
        if (c_.is_param(v, Role::Ones) || c_.is_param(v, Role::Eye)) start_transition(v);
    }
    transfers_.declare_chunk_states();
}

void FragmentStates::start_state(ValueId v) {
    if (!c_.is_fragment(v)) return start_small_state(v);
    const std::string& name = c_.name(v);
    const std::string& state = fn_.op(v).attrs.name;
    c_.next("start " + name, {}, c_.held(v));
    out_.line("{} {};", fragment_type(fn_, v), name);
    if (makes_columns()) return fill(v, columns_of_identity(v));
    if (loop_ == Loop::Summaries) return fill(v, "broadcast_pair(0.0f)");
    if (loop_ == Loop::Segments && plan_.schedule.summaries == 0) {
        const std::string spill = graph::carry_spill(state);
        kernel::Accesses reads = Transfers::spilled(spill);
        std::string from = transfers_.spill_pointer(spill, "at.segment");
        if (plan_.schedule.forgetting) {
            kernel::append(reads, Transfers::spilled(graph::input_spill(state)));
            kernel::append(reads, Transfers::spilled(plan::kForgetsSpill));
            from = fmt::format("starts_anew(call, call.spills[{}], at.segment, at.row == 0) ? {} : {}",
                               plan_.spill(plan::kForgetsSpill),
                               transfers_.spill_pointer(graph::input_spill(state), "(at.segment - call.heads)"), from);
        }
        c_.next("start " + name, reads, c_.held(v));
        return out_.line("load_state({}, {}, {});", name, from, spill_strides(v, spill));
    }
    if (loop_ == Loop::Relay) {
        const std::string spill = graph::carry_spill(state);
        c_.next("start " + name, Transfers::spilled(spill), c_.held(v));
        out_.open("if (at.row > 0)");
        out_.line("take_over({}, {});", name, place_in_relay(v, spill, "at.segment"));
        out_.close("} else {");
        out_.indent();
    }
    const int tensor = plan_.tensor(SlotKind::InitialState, state);
    const std::string offset = transfers_.tile_offset(tensor, 0) + part_offset(tensor, fn_.op(v).attrs.at);
    out_.line("const float* const {}_initial = state_block<const float>(call, {}, at);", name, tensor);
    out_.line("load_state({0}, {0}_initial{1}, {2}{3});", name,
              offset.empty() ? "" : fmt::format(" ? {}_initial{} : nullptr", name, offset), tensor_strides(v, tensor),
              tensor_part(v, tensor, fn_.op(v).attrs.at));
    if (loop_ == Loop::Segments) join_summaries(v);
    if (loop_ == Loop::Relay) out_.close();
}

void FragmentStates::wait_for_segment_before() {
    kernel::Statement wait{kernel::Kind::Barrier, "wait for the segment before"};
    wait.code = {fmt::format("if (at.row > 0) wait_for_segment_before(call, at, {});", c_.kernel.cut.count)};
    out_.add(std::move(wait));
}

/// A state's memory between the tasks of two segments: that of one tile after the other.
std::string FragmentStates::place_in_relay(ValueId v, const std::string& spill, const char* segment) const {
    const std::int64_t tile = size_of(fn_.op(v).type, 0) * size_of(fn_.op(v).type, 1);
    return fmt::format("call.spills[{}] + ({} * {} + at.tile) * {}", plan_.spill(spill), segment, c_.kernel.cut.count,
                       tile);
}

/// To the task of the next segment, if there is one: the others have no more to do.
void FragmentStates::pass_on() {
    out_.open("if (!at.last)");
    for (const ir::Result& r : fn_.results) {
        if (r.role != Role::State) continue;
        const ValueId v = carried(r);
        c_.next("pass on " + c_.name(v), c_.held(v), {});
        out_.line("leave({}, {});", place_in_relay(v, graph::carry_spill(r.name), "(at.segment + call.heads)"),
                  c_.name(v));
    }
    kernel::Statement passed{kernel::Kind::Barrier, "pass on"};
    passed.code = {fmt::format("pass_on(call, at, {});", c_.kernel.cut.count)};
    out_.add(std::move(passed));
    out_.line("return;");
    out_.close();
}

/// The state at the segment's start, from that at the sequence's.
void FragmentStates::join_summaries(ValueId v) {
    const std::string &state = fn_.op(v).attrs.name, input = graph::input_spill(state),
                      transition = graph::transition_spill(state);
    const auto summary = [&](const std::string& spill) {
        return fmt::format("Summary{{{}, {}}}", transfers_.spill_pointer(spill, "n"), spill_strides(v, spill));
    };
    kernel::Accesses reads = Transfers::spilled(input);
    if (plan_.has_spill(transition)) kernel::append(reads, Transfers::spilled(transition));
    kernel::append(reads, c_.held(v));
    c_.next("join " + c_.name(v), reads, c_.held(v));
    out_.open("for (Size n = first_summary(call, at); n < at.segment; n += call.heads)");
    out_.line("join_summary({}, {}{});", c_.name(v), plan_.has_spill(transition) ? summary(transition) + ", " : "",
              summary(input));
    out_.close();
}

void FragmentStates::start_small_state(ValueId v) {
    if (loop_ == Loop::Segments)
        return transfers_.load_spill(v, graph::carry_spill(fn_.op(v).attrs.name), "at.segment");
    if (loop_ != Loop::Summaries) return transfers_.load_initial_state(v);
    c_.writes(v);
    out_.line("fill<{}>({}, 0.0f);", c_.floats(v), c_.name(v));
}

/// The transition of nothing: ones, or the identity.
void FragmentStates::start_transition(ValueId v) {
    if (c_.is_fragment(v)) {
        c_.next("start " + c_.name(v), {}, c_.held(v));
        out_.line("{} {};", fragment_type(fn_, v), c_.name(v));
        return fill(v, fn_.op(v).attrs.role == Role::Eye ? "eye_pair(spot.i, spot.j)" : "broadcast_pair(1.0f)");
    }
    c_.writes(v);
    out_.line("fill<{}>({}, 1.0f);", c_.floats(v), c_.name(v));
}

/// From `first_column` on; none of them where the task makes a state.
std::string FragmentStates::columns_of_identity(ValueId v) const {
    const bool transposed = fn_.op(v).layout->space == Space::Transposed;
    return transposed ? "eye_pair(spot.i + first_column, spot.j)" : "eye_pair(spot.i - first_column, spot.j)";
}

void FragmentStates::fill(ValueId v, const std::string& value) {
    out_.line("each{}([&](const Spot& spot) {{ {}.put(spot, {}); }});", fragment_parameters(fn_, v), c_.name(v), value);
}

/// For the caller, what the chunk starts from.
void FragmentStates::store_before() {
    for (const ir::Result& r : fn_.results) {
        if (r.role != Role::Before) continue;
        if (!c_.is_fragment(r.value)) {
            transfers_.store_chunk_state(r);
            continue;
        }
        const int tensor = plan_.tensor(SlotKind::ChunkState, r.name);
        c_.next("store " + c_.name(r.value), c_.held(r.value), {});
        out_.open(fmt::format("if ({})", transfers_.chunk_state(r.name)));
        out_.line("store_state(before{}, {}, {}{});", transfers_.tile_offset(tensor, 0),
                  tensor_strides(r.value, tensor), c_.name(r.value), tensor_part(r.value, tensor, r.at));
        out_.close();
    }
}

/// What holds the state after the last chunk.
ValueId FragmentStates::carried(const ir::Result& r) const {
    return c_.carried_param(r) == ir::kNoValue ? r.value : c_.carried_param(r);
}

void FragmentStates::store() {
    if (loop_ == Loop::Segments) out_.line("if (!at.last) return;");
    if (loop_ == Loop::Relay) pass_on();
    for (const ir::Result& r : fn_.results) {
        if (!tile::is_carried(r.role)) continue;
        const ValueId v = carried(r);
        if (loop_ == Loop::Summaries) store_summary(r, v);
        else if (c_.is_fragment(v)) store_final(r, v);
        else transfers_.store_final_state(r.name, v);
    }
}

void FragmentStates::store_summary(const ir::Result& r, ValueId v) {
    if (makes_columns()) return store_columns(r, v);
    const std::string spill = r.role == Role::State ? graph::input_spill(r.name) : graph::transition_spill(r.name);
    if (!c_.is_fragment(v)) return transfers_.store_spill(spill, v, "at.segment");
    store_spilled(spill, v, "at.segment");
}

void FragmentStates::store_columns(const ir::Result& r, ValueId v) {
    const std::string input = graph::input_spill(r.name), transition = graph::transition_spill(r.name);
    const plan::SpillSlot& columns = plan_.spills[static_cast<std::size_t>(plan_.spill(transition))];
    c_.next("store " + c_.name(v), c_.held(v), {});
    out_.open("if (first_column == kNoColumn)");
    out_.line("store_state({}, {}, {});", transfers_.spill_pointer(input, "at.segment"), spill_strides(v, input),
              c_.name(v));
    out_.close("} else {");
    out_.indent();
    out_.line("store_state({} + first_column * {}, {}, {});", transfers_.spill_pointer(transition, "at.segment"),
              columns.strides[1], spill_strides(v, transition), c_.name(v));
    out_.close();
}

void FragmentStates::store_spilled(const std::string& spill, ValueId v, const char* block) {
    c_.next("store " + c_.name(v), c_.held(v), {});
    out_.line("store_state({}, {}, {});", transfers_.spill_pointer(spill, block), spill_strides(v, spill), c_.name(v));
}

void FragmentStates::store_final(const ir::Result& r, ValueId v) {
    const int tensor = plan_.tensor(SlotKind::FinalState, r.name);
    c_.next("store " + c_.name(v), c_.held(v), {});
    const auto store = [&] {
        out_.line("store_state(final{}{}, {}, {}{});", transfers_.tile_offset(tensor, 0), part_offset(tensor, r.at),
                  tensor_strides(v, tensor), c_.name(v), tensor_part(v, tensor, r.at));
    };
    const auto leave = [&] {
        const std::string spill = graph::final_spill(r.name);
        out_.line("store_state({}, {}, {});", transfers_.spill_pointer(spill, kSequenceBlock, r.at),
                  spill_strides(v, spill), c_.name(v));
    };
    transfers_.store_final(tensor, "", store, leave);
}

/// Of the rows and columns of a fragment, from those of the value that it holds.
std::string FragmentStates::strides(ValueId v, const std::string& rows, const std::string& cols) const {
    return fn_.op(v).layout->space == Space::Transposed ? cols + ", " + rows : rows + ", " + cols;
}

std::string FragmentStates::spill_strides(ValueId v, const std::string& spill) const {
    const plan::SpillSlot& slot = plan_.spills[static_cast<std::size_t>(plan_.spill(spill))];
    const auto stride = [&](std::size_t axis) {
        return std::to_string(slot.type.shape[axis] == Dim(1) ? 0 : slot.strides[axis]);
    };
    return strides(v, stride(0), stride(1));
}

std::string FragmentStates::tensor_strides(ValueId v, int tensor) const {
    return strides(v, fmt::format("call.tensors[{}].dim[0]", tensor), fmt::format("call.tensors[{}].dim[1]", tensor));
}

std::string FragmentStates::part_offset(int tensor, const At& at) {
    std::string text;
    for (std::size_t axis = 0; axis < at.size(); ++axis)
        if (at[axis] > 0) text += fmt::format(" + {} * call.tensors[{}].dim[{}]", at[axis], tensor, axis);
    return text;
}

std::string FragmentStates::tensor_part(ValueId v, int tensor, const At& at) const {
    const ir::Type& type = plan_.tensors[static_cast<std::size_t>(tensor)].type;
    const auto part = [&](std::size_t axis) {
        return transfers_.part_of(type.shape[axis], at.empty() ? std::nullopt : std::optional(at[axis]));
    };
    std::string rows = part(0), cols = part(1);
    if (rows.empty() && cols.empty()) return "";
    if (rows.empty()) rows = std::to_string(size_of(fn_.op(v).type, 0));
    if (cols.empty()) cols = std::to_string(size_of(fn_.op(v).type, 1));
    return ", " + strides(v, rows, cols);
}

}  // namespace forge::emit
