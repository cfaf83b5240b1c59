// States between global memory and tiles, or the threads that hold them: before the first token, after the last, and
// those before every chunk.
#include <algorithm>

#include "emit/last_rows.h"
#include "emit/transfers.h"
#include "graph/summary.h"

namespace forge::emit {
namespace {

using ir::Op;
using ir::Role;
using ir::ValueId;
using tile::size_of;
using SlotKind = plan::TensorSlot::Kind;

}  // namespace

/// For few tokens, where moving states is most of the work: whole matrices of which no other tile has a part.
bool Transfers::stays_in_memory(ValueId v) const {
    const Op& op = fn_.op(v);
    if (c_.dialect.cooperative || c_.kernel.graph.loop != plan::Loop::Scan || plan_.schedule.chunk != 1) return false;
    if (plan_.state_dtype != F32) return false;
    if (!c_.is_param(v, Role::State) || !c_.in_tile(v) || op.type.rank() != 2 || c_.kernel.graph.tiled) return false;
    const std::int64_t columns = size_of(op.type, 1), floats = size_of(op.type, 0) * columns, begin = op.layout->offset;
    if (columns % plan_.schedule.vector_width != 0 || op.layout->strides != std::vector<std::int64_t>{columns, 1})
        return false;
    for (ValueId other = 0; other < fn_.size(); ++other) {
        if (!c_.in_tile(other) || ir::is_view(fn_.op(other).code)) continue;
        const std::int64_t at = fn_.op(other).layout->offset, end = at + c_.floats(other);
        if (at == begin ? end > begin + floats : at < begin + floats && end > begin) return false;
    }
    return true;
}

std::string Transfers::state_home(ValueId v) const {
    const Op& op = fn_.op(v);
    return fmt::format("state_home<{}, {}>(call, {}, {}, at, {})", size_of(op.type, 0), size_of(op.type, 1),
                       plan_.tensor(SlotKind::InitialState, op.attrs.name),
                       plan_.tensor(SlotKind::FinalState, op.attrs.name), c_.place(op.layout->offset));
}

void Transfers::load_initial_state(ValueId v) {
    const Op& op = fn_.op(v);
    const int tensor = plan_.tensor(SlotKind::InitialState, op.attrs.name);
    c_.writes(v);
    const std::string type = storage_type(plan_.state_dtype);
    out_.open(fmt::format("if (const {0}* const initial = state_block<const {0}>(call, {1}, at))", type, tensor));
    const bool stays = stays_in_memory(v);
    if (stays) out_.open(fmt::format("if (initial != {})", c_.name(v)));
    transfer(whole(v, tensor, 0, type, "initial" + tile_offset(tensor, 0), "0.0f"));
    if (stays) out_.close();
    out_.close("} else {");
    out_.line("    fill<{}>({}, 0.0f);", c_.floats(v), c_.name(v));
    out_.line("}}");
}

std::string Transfers::state_strides(int tensor) {
    return fmt::format("call.tensors[{0}].dim[0], call.tensors[{0}].dim[1]", tensor);
}

void Transfers::store_held(const std::string& to, int tensor, ValueId v) {
    out_.line("store_held({}{}, {}, {});", to, tile_offset(tensor, 0), state_strides(tensor), c_.name(v));
}

void Transfers::store_final_state(const std::string& state, ValueId v) {
    const int tensor = plan_.tensor(SlotKind::FinalState, state);
    c_.reads(v);
    if (c_.is_held(v)) {
        out_.open(fmt::format("if ({0}* const final = held_block<{0}>(call, {1}, at))", storage_type(plan_.state_dtype),
                              tensor));
        store_held("final", tensor, v);
        return out_.close();
    }
    const std::string elsewhere = stays_in_memory(v) ? fmt::format("; final && final != {}", c_.name(v)) : "";
    const auto store = [&] {
        transfer(whole(v, tensor, 0, storage_type(plan_.state_dtype), "final" + tile_offset(tensor, 0), ""));
    };
    store_final(tensor, elsewhere, store, [&] { copy_spill(graph::final_spill(state), v, kSequenceBlock, false, {}); });
}

void Transfers::store_final(int tensor, const std::string& elsewhere, const std::function<void()>& store,
                            const std::function<void()>& leave) {
    const bool late = plan_.late_state(tensor) != nullptr;
    std::optional<ByOne> by_one;
    if (late) by_one.emplace(*this, slot(tensor).type);
    out_.open(fmt::format("if ({0}* const final = state_block<{0}>(call, {1}, at){2})", storage_type(plan_.state_dtype),
                          tensor, elsewhere));
    if (late) {
        out_.line("// Other tasks may still read the initial state there.");
        out_.open("if (call.in_place)");
        leave();
        out_.close("} else {");
        out_.indent();
    }
    store();
    if (late) out_.close();
    out_.close();
}

void Transfers::declare_chunk_states() {
    const bool stores =
        std::any_of(fn_.results.begin(), fn_.results.end(), [](const ir::Result& r) { return r.role == Role::Before; });
    const bool loads = std::any_of(fn_.ops.begin(), fn_.ops.end(), [](const Op& op) {
        return op.code == ir::Opcode::Param && op.attrs.role == Role::Before;
    });
    if (stores || loads)
        out_.line("const Size chunks_before = chunks_packed_before(call, at, {});", plan_.schedule.chunk);
}

std::string Transfers::chunk_state(const std::string& state) const {
    const int tensor = plan_.tensor(SlotKind::ChunkState, state);
    return fmt::format("float* const before = {}chunk_state(call, {}, at, chunks_before + row / {})",
                       is_shared(slot(tensor).type) ? "at.tile > 0 ? nullptr : " : "", tensor, plan_.schedule.chunk);
}

void Transfers::load_chunk_state(ValueId v) {
    const int tensor = plan_.tensor(SlotKind::ChunkState, fn_.op(v).attrs.name);
    c_.writes(v);
    transfer(whole(v, tensor, 0, "float",
                   fmt::format("chunk_state(call, {}, at, chunks_before + row / {})", tensor, plan_.schedule.chunk) +
                       tile_offset(tensor, 0),
                   "0.0f"));
}

void Transfers::store_chunk_state(const ir::Result& r) {
    const int tensor = plan_.tensor(SlotKind::ChunkState, r.name);
    c_.reads(r.value);
    out_.open(fmt::format("if ({})", chunk_state(r.name)));
    if (c_.is_held(r.value)) {
        store_held("before", tensor, r.value);
        return out_.close();
    }
    transfer(whole(r.value, tensor, 0, "float", "before" + tile_offset(tensor, 0), ""));
    out_.close();
}

}  // namespace forge::emit
