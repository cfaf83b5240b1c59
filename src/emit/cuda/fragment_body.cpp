#include "emit/cuda/fragment_body.h"

#include <algorithm>

#include "emit/cuda/fragment_loops.h"
#include "emit/cuda/fragment_states.h"
#include "emit/kernel.h"
#include "emit/statements.h"
#include "tile/fragments.h"
#include "tile/order.h"

namespace forge::emit {

using ::forge::kernel::Kind;
using ::forge::kernel::Statement;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using tile::Roles;
using tile::size_of;
using Slot = plan::TensorSlot::Kind;
using Space = ir::Layout::Space;

FragmentBody::FragmentBody(Context& context, Transfers& transfers, FragmentInputs& inputs, std::uint8_t role)
    : c_(context),
      transfers_(transfers),
      inputs_(inputs),
      out_(context.out),
      plan_(context.plan),
      loop_(context.kernel.graph.loop),
      fn_(context.fn),
      roles_(context.kernel.tiles.roles ? &*context.kernel.tiles.roles : nullptr),
      role_(role),
      decays_(context, transfers) {}

bool FragmentBody::is_written(ValueId v) const {
    const Op& op = fn_.op(v);
    return op.code != Opcode::Param && !ir::is_view(op.code) && op.layout->space != Space::Reg && !inputs_.is_vector(v);
}

bool FragmentBody::loads_shifted() const {
    for (ValueId v = 0; v < fn_.size(); ++v)
        if (c_.is_param(v, Role::Shifted) && !c_.is_operand(v)) return true;
    return false;
}

bool FragmentBody::writes_memory() const {
    if (loads_shifted()) return true;
    for (ValueId v = 0; v < fn_.size(); ++v)
        if (is_written(v) && is_mine(v) && !is_passed(v) &&
            (c_.in_tile(v) || c_.is_operand(v) || c_.kernel.tiles.work.contains(v)))
            return true;
    return false;
}

/// Whether the group reads or writes the value's buffer.
bool FragmentBody::touches(ValueId v) const {
    if (role_ == 0 || (is_mine(v) && fn_.op(v).code != Opcode::Param)) return true;
    for (ValueId u = 0; u < fn_.size(); ++u) {
        const auto read = tile::tiles_read_by(fn_, u);
        if (is_mine(u) && std::find(read.begin(), read.end(), v) != read.end()) return true;
    }
    return false;
}

namespace {

/// The operand of a product that shares the rows of its result as the fragment has them.
ValueId first_operand(const Op& product) { return product.args[product.layout->space == Space::Transposed ? 1 : 0]; }

}  // namespace

// Memory.

void FragmentBody::declare_buffer(ValueId v, const std::string& place) {
    const bool image = c_.is_operand(v) || fn_.op(v).layout->space == Space::Spill;
    if (image) out_.line("const {} {}({});", inputs_.buffer_type(v), c_.name(v), place);
    else out_.line("float* const {} = {};  // {}", c_.name(v), place, forge::to_string(fn_.op(v).type.shape));
}

void FragmentBody::declare_buffers() {
    if (takes() && writes_memory())
        out_.line("float* const own = scratch + (group() - {}) * {};", roles_->first_taker, roles_->taker_floats);
    for (ValueId v = 0; v < fn_.size(); ++v) {
        const Op& op = fn_.op(v);
        if ((!c_.in_tile(v) && !c_.is_operand(v)) || ir::is_view(op.code) || op.layout->staged || is_passed(v) ||
            !touches(v))
            continue;
        const bool own = takes() && op.code != Opcode::Param;
        declare_buffer(v, own ? fmt::format("own + {}", op.layout->offset) : c_.place(op.layout->offset));
    }
}

/// What arrived for the chunk, and, with roles, what passes from group to group: they have a buffer each.
void FragmentBody::declare_arrived() {
    inputs_.declare_stage("arrived", "arrived_numbers", role_ != 0 ? "stage.at" : "stage");
    for (ValueId v = 0; v < fn_.size(); ++v) {
        const bool buffer = (c_.in_tile(v) || c_.is_operand(v)) && !ir::is_view(fn_.op(v).code);
        if (!buffer || !fn_.op(v).layout->staged || !touches(v)) continue;
        const bool of_tiles = role_ != 0 && roles_->beside(v) > 1;
        declare_buffer(v, inputs_.place(v, "arrived", "arrived_numbers") +
                              (of_tiles ? fmt::format(" + own_tile<kFirstOfTiles>() * {}", c_.floats(v)) : ""));
    }
    if (role_ == 0) return;
    for (const Roles::Passed& p : roles_->passed)
        declare_buffer(p.value, fmt::format("scratch + {} + to.at * {}", p.offset, p.floats));
}

/// What other kernels left and loops read where it lies.
void FragmentBody::declare_images() {
    for (ValueId v = 0; v < fn_.size(); ++v)
        if (c_.is_param(v, Role::Spill) && fn_.op(v).layout->space == Space::Spill) {
            if (!transfers_.is_split_later(fn_.op(v).attrs.name) &&
                !transfers_.part_of_image(fn_.op(v).attrs.name, fn_.op(v).type).empty())
                throw InternalError("emit: some rows of an image are read where they lie: " + ir::described(fn_, v));
            declare_buffer(v, transfers_.spill_pointer(fn_.op(v).attrs.name, "block", fn_.op(v).attrs.at));
        }
}

void FragmentBody::begin_chunk(Statement arrive) {
    out_.next();
    out_.line("[[maybe_unused]] const int rows = rows_of(row);");
    if (plan::in_order(loop_)) declare_arrived();
    declare_images();
    pack_states();
    if (role_ != 0 && loads_shifted()) out_.add(group_barrier());  // the chunk before has read them
    for (ValueId v = 0; v < fn_.size(); ++v) {
        if (c_.is_param(v, Role::Mask) && !inputs_.is_vector(v))
            c_.next("token_mask", {}, c_.memory(v)),
                out_.line("token_mask<{}>({}, rows);", size_of(fn_.op(v).type, 0), c_.name(v));
        if (c_.is_param(v, Role::Shifted) && !c_.is_operand(v)) transfers_.load_tokens(v);
    }
    out_.add(std::move(arrive));
}

/// Of what this operation has read, what later products multiply: packed, it waits in half the registers.
void FragmentBody::pack_what_is_read(ValueId v) {
    if (!ir::is_elementwise(fn_.op(v).code)) return;
    for (const ValueId t : tile::tiles_read_by(fn_, v)) {
        if (!c_.is_fragment(t) || fn_.op(t).code == Opcode::Param) continue;
        for (ValueId u = v + 1; u < fn_.size(); ++u)
            if (is_mine(u) && ir::is_matmul(fn_.op(u).code) && first_operand(fn_.op(u)) == t) pack(t);
    }
}

/// The same of what this operation has made, if nothing but products will read it.
void FragmentBody::pack_what_is_multiplied(ValueId v) {
    if (!ir::is_elementwise(fn_.op(v).code) || !c_.is_fragment(v) || plan_.schedule.operand_parts > 1) return;
    bool multiplied = false;
    for (ValueId u = v + 1; u < fn_.size(); ++u) {
        const auto read = tile::tiles_read_by(fn_, u);
        if (std::find(read.begin(), read.end(), v) == read.end()) continue;
        if (!ir::is_matmul(fn_.op(u).code) || first_operand(fn_.op(u)) != v) return;
        multiplied = true;
    }
    if (multiplied) pack(v);
}

/// What only products will read from here on.
void FragmentBody::pack_what_waits(ValueId v) {
    for (ValueId t = 0; t < v; ++t) {
        if (!c_.is_fragment(t) || fn_.op(t).code == Opcode::Param || !is_mine(t) || !is_written(t)) continue;
        bool multiplied = false, read = false;
        for (ValueId u = v; u < fn_.size(); ++u) {
            const auto tiles = tile::tiles_read_by(fn_, u);
            if (std::find(tiles.begin(), tiles.end(), t) == tiles.end()) continue;
            const bool product = ir::is_matmul(fn_.op(u).code) && first_operand(fn_.op(u)) == t;
            (product ? multiplied : read) = true;
        }
        if (multiplied && !read) pack(t);
    }
}

/// While no product is under way: the compiler would wait for one before it lets go of registers that the last chunk's
/// products wrote.
void FragmentBody::pack_states() {
    for (ValueId v = 0; v < fn_.size(); ++v) {
        if (!ir::is_matmul(fn_.op(v).code) || !is_mine(v)) continue;
        const ValueId a = first_operand(fn_.op(v));
        if (c_.is_fragment(a) && fn_.op(a).code == Opcode::Param && !is_in_pieces(a)) pack(a);
    }
}

// Operations.

void FragmentBody::operations() {
    out_.begin({Kind::Body, "chunk"}, "");
    for (ValueId v = 0; v < fn_.size(); ++v)
        if (is_mine(v)) operation(v);
    if (role_ == 0) inputs_.start_later();
    out_.end();
}

void FragmentBody::operation(ValueId v) {
    const Op& op = fn_.op(v);
    const bool in_loops = op.layout->space == Space::Reg || ir::is_view(op.code);
    if (!in_loops) out_.begin({Kind::Operation, c_.name(v)}, "");
    if (tile::arrives_late(fn_, v)) inputs_.start_late(v);
    if (is_written(v)) {
        split_what_is_read(v);
        if (const tile::DecayGroup* const group = decays_.with(v)) {
            if (group->head() == v) decay_group(*group);
        } else if (ir::is_matmul(op.code)) product(v);
        else if (op.code == Opcode::Copy && c_.is_operand(v) && c_.is_fragment(op.args[0])) store_fragment(v);
        else if (op.code == Opcode::Copy && c_.is_fragment(v) && c_.is_operand(op.args[0])) load_fragment(v);
        else if (op.code == Opcode::Interleave && c_.is_operand(v) && op.attrs.dim == 0) store_by_turns(v);
        else if (!c_.kernel.tiles.joined.contains(v)) compute(v);
        if (takes() && roles_->by_tiles) pack_what_is_read(v);
        if (!plan::in_order(loop_)) pack_what_is_multiplied(v);
    }
    for (const ir::Result& r : fn_.results)
        if (r.value == v) store_result(r);
    if (!in_loops) out_.end();
}

/// Of what this operation reads, and what its loop makes beside it, inputs that have arrived as floats.
void FragmentBody::split_what_is_read(ValueId v) {
    std::vector<ValueId> reads = tile::tiles_read_by(fn_, v);
    for (const ValueId u : joined_to(v))
        for (const ValueId t : tile::tiles_read_by(fn_, u)) reads.push_back(t);
    for (const ValueId t : reads) split(t);
}

void FragmentBody::split(ValueId v) {
    if (!inputs_.arrives_as_floats(v) || !split_.insert(v).second) return;
    c_.next("split " + c_.name(v), c_.memory(v), c_.memory(v));
    out_.line("split_floats({});", c_.name(v));
}

void FragmentBody::sum_first_gates() {
    if (plan::in_order(loop_) || !decays_.starts_kernel()) return;
    const tile::DecayGroup& first = decays_.groups()[0];
    c_.next("sum_gates", decays_.gates(first), decays_.room(first));
    decays_.sum_gates(first, "rows_of(row)");
    summed_ = true;
}

void FragmentBody::decay_group(const tile::DecayGroup& group) {
    const kernel::Accesses room = decays_.room(group);
    if (!summed_) {
        c_.next("sum_gates", decays_.gates(group), room);
        decays_.sum_gates(group, "rows");
    }
    summed_ = false;
    kernel::Accesses reads = decays_.operands(group), writes = room;
    kernel::append(reads, room);
    for (const ValueId v : group.members())
        if (c_.is_fragment(v)) kernel::append(writes, c_.held(v));
        else if (c_.is_operand(v)) kernel::append(writes, c_.memory(v));
    c_.next("decay_products", reads, writes);
    decays_.multiply(group);
}

/// What decays from token to token: the sums of the gates, then the product.
void FragmentBody::decay_apply(ValueId v) {
    const Op& op = fn_.op(v);
    const kernel::Accesses room = Context::floats_at(c_.kernel.tiles.work.at(v), tile::fragment_work_floats(fn_, v));
    if (!c_.kernel.tiles.summed.contains(v)) {
        c_.next("sum_gates " + c_.name(v), c_.memory(op.args[2]), room);
        decays_.sum_gates_of(v);
    }
    kernel::Accesses reads = room;
    for (const ValueId a : {op.args[0], op.args[1]}) kernel::append(reads, c_.memory(a));
    c_.next("decay_apply " + c_.name(v), reads, c_.held(v));
    decays_.apply(v);
}

void FragmentBody::compute(ValueId v) {
    const Op& op = fn_.op(v);
    if (op.code == Opcode::DecayApply && c_.is_fragment(v)) return decay_apply(v);
    const std::vector<ValueId> joined = joined_to(v);
    kernel::Accesses reads, writes = c_.held(v);
    for (const ValueId t : tile::tiles_read_by(fn_, v)) kernel::append(reads, c_.held(t));
    for (const ValueId u : joined) {
        for (const ValueId t : tile::tiles_read_by(fn_, u))
            if (t != v && std::find(joined.begin(), joined.end(), t) == joined.end()) kernel::append(reads, c_.held(t));
        kernel::append(writes, c_.held(u));
    }
    if (const auto work = c_.kernel.tiles.work.find(v); work != c_.kernel.tiles.work.end())
        kernel::append(writes, Context::floats_at(work->second, tile::fragment_work_floats(fn_, v)));
    c_.next(fmt::format("{} {}", ir::info(op.code).name, c_.name(v)), reads, writes);
    if (op.code == Opcode::DecayMask) {
        out_.line("if (warp() == 0) store_decay_sums({}, load_pair({} + 2 * lane()));", c_.name(v),
                  c_.name(op.args[0]));
    } else if (op.code == Opcode::Inverse && c_.is_fragment(v)) {
        out_.line("const {} {} = unit_lower_inverse({}, scratch + {});", fragment_type(fn_, v), c_.name(v),
                  c_.name(op.args[0]), c_.kernel.tiles.work.at(v));
    } else if (op.code == Opcode::Cumsum && c_.is_fragment(v)) {
        out_.line("const {} {} = running_sums<{}, {}>({}, scratch + {});", fragment_type(fn_, v), c_.name(v),
                  op.attrs.reverse, op.attrs.exclusive, c_.name(op.args[0]), c_.kernel.tiles.work.at(v));
    } else if (tile::is_fragment_sum(fn_, v)) {
        const auto work = c_.kernel.tiles.work.find(v);
        write_fragment_sum(c_, v, work == c_.kernel.tiles.work.end() ? "" : c_.place(work->second));
    } else if (ir::is_elementwise(op.code) || op.code == Opcode::Copy || op.code == Opcode::Constant ||
               op.code == Opcode::Identity || op.code == Opcode::Arange ||
               (op.code == Opcode::Interleave && c_.is_operand(v))) {
        if (op.code == Opcode::Copy && c_.is_fragment(op.args[0]) && c_.in_tile(v)) spread_fragment(v);
        else write_fragment_loop(c_, v, joined);
    } else {
        write_device_call(c_, v);
    }
}

/// What stands in the value's loop beside it.
std::vector<ValueId> FragmentBody::joined_to(ValueId v) const {
    const auto& joined = c_.kernel.tiles.joined;
    std::vector<ValueId> found;
    for (ValueId u = v + 1; u < fn_.size(); ++u) {
        if (joined.contains(u)) found.push_back(u);
        else if (is_written(u)) break;
    }
    return found;
}

namespace {

/// The operand's axis that a product contracts, in memory.
const char* along(const Op& op, std::size_t operand) {
    const bool rows = operand == 0 ? op.attrs.trans_a : !op.attrs.trans_b;
    return rows ? "Along::Rows" : "Along::Columns";
}

}  // namespace

bool FragmentBody::is_in_pieces(ValueId v) const { return roles_ && roles_->in_pieces.contains(v); }

void FragmentBody::product(ValueId v) {
    const Op& op = fn_.op(v);
    const std::size_t first = op.layout->space == Space::Transposed ? 1 : 0, second = 1 - first;
    const ValueId a = op.args[first], b = op.args[second];
    const bool in_pieces = is_in_pieces(a);
    if (in_pieces) pack_what_waits(v);
    else if (c_.is_fragment(a)) pack(a);
    const std::string& name = c_.name(v);
    kernel::Accesses reads = c_.memory(b);
    if (op.args.size() == 3) kernel::append(reads, c_.held(op.args[2]));
    kernel::append(reads, in_pieces           ? c_.held(a)
                          : c_.is_fragment(a) ? kernel::Accesses{kernel::registers(c_.name(a) + "_packed")}
                                              : c_.memory(a));
    Statement issue{Kind::Issue, "multiply " + name, reads, c_.held(v)};
    issue.over = in_pieces;
    out_.next(std::move(issue));
    const char* acc = op.code == Opcode::MatmulAdd ? "Add" : op.code == Opcode::MatmulSub ? "Sub" : "Set";
    out_.line("{} {}{};", fragment_type(fn_, v), name, op.args.size() == 3 ? " = " + c_.name(op.args[2]) : "");
    if (in_pieces) {
        const bool again = !in_pieces_.insert(a).second;
        out_.line("multiply_in_pieces<{}, Acc::{}, {}{}>({}, {}, {});", inputs_.half(), acc, along(op, second),
                  again ? ", true" : "", name, c_.name(a), c_.name(b));
    } else if (c_.is_fragment(a)) {
        out_.line("issue_multiply<Acc::{}, {}>({}, {}_packed, {});", acc, along(op, second), name, c_.name(a),
                  c_.name(b));
    } else {
        const std::int64_t depth = size_of(fn_.op(op.args[0]).type, op.attrs.trans_a ? 0 : 1);
        const bool briefly = c_.kernel.engine == plan::Engine::Warps && c_.long_text();
        out_.line("issue_multiply<Acc::{}, {}, {}, {}{}>({}, {}, {});", acc, along(op, first), along(op, second), depth,
                  briefly ? ", 1" : "", name, c_.name(a), c_.name(b));
    }
}

void FragmentBody::store_fragment(ValueId v) {
    const ValueId from = fn_.op(v).args[0];
    const bool packed = packed_.contains(from) && fn_.op(v).layout->parts == plan_.schedule.operand_parts;
    c_.moves("store_fragment " + c_.name(v), {kernel::registers(c_.name(from) + (packed ? "_packed" : ""))},
             c_.memory(v));
    out_.line("store_fragment<{}>({}, {}{});", fn_.op(from).layout->space == Space::Transposed, c_.name(v),
              c_.name(from), packed ? "_packed" : "");
}

/// Rows of fragments, by turns, to an operand.
void FragmentBody::store_by_turns(ValueId v) {
    const std::vector<ValueId>& from = fn_.op(v).args;
    kernel::Accesses reads;
    for (const ValueId a : from) kernel::append(reads, c_.held(a));
    c_.moves("store_by_turns " + c_.name(v), reads, c_.memory(v));
    for (std::size_t n = 0; n < from.size(); ++n)
        out_.line("store_by_turns<{}, {}, {}>({}, {});", fn_.op(from[n]).layout->space == Space::Transposed, n,
                  from.size(), c_.name(v), c_.name(from[n]));
}

void FragmentBody::load_fragment(ValueId v) {
    const ValueId from = fn_.op(v).args[0];
    c_.moves("load_fragment " + c_.name(v), c_.memory(from), c_.held(v));
    const std::string parameters = fragment_parameters(fn_, v).substr(1);
    out_.line("{} {} = load_fragment<{}, {}({});", fragment_type(fn_, v), c_.name(v),
              fn_.op(v).layout->space == Space::Transposed, parameters, c_.name(from));
}

/// A fragment into a tile.
void FragmentBody::spread_fragment(ValueId v) {
    const ValueId from = fn_.op(v).args[0];
    const std::int64_t row = fn_.op(v).layout->strides[0];
    const std::string &to = c_.name(v), &fragment = c_.name(from);
    out_.open(fmt::format("each{}([&](const Spot& spot)", fragment_parameters(fn_, from)));
    if (fn_.op(from).layout->space == Space::Transposed)
        out_.line(
            "{0}[spot.j * {1} + spot.i] = {2}.at(spot).x[0], {0}[(spot.j + 1) * {1} + spot.i] = {2}.at(spot).x[1];", to,
            row, fragment);
    else out_.line("store_pair({} + spot.i * {} + spot.j, {}.at(spot));", to, row, fragment);
    out_.close("});");
}

void FragmentBody::pack(ValueId v) {
    if (!packed_.insert(v).second) return;
    c_.moves("pack " + c_.name(v), c_.held(v), {kernel::registers(c_.name(v) + "_packed")});
    const int parts = plan_.schedule.operand_parts;
    const std::string function =
        parts == 1 ? "pack<" + inputs_.half() : fmt::format("pack_parts<{}, {}", inputs_.half(), parts);
    out_.line("const auto {0}_packed = {1}>({0});", c_.name(v), function);
}

// Results.

void FragmentBody::store_result(const ir::Result& r) {
    if (tile::is_carried(r.role) || r.role == Role::Before) return;
    const ValueId v = r.value;
    if (fn_.op(v).layout->space == Space::Spill) return;  // as it is made
    if (r.role == Role::Spill && (c_.is_fragment(v) || c_.is_operand(v)) && transfers_.is_split_later(r.name))
        return store_float_image(r);
    if (c_.is_fragment(v)) return store_rows(r);
    if (!c_.is_operand(v))
        return r.role == Role::Spill ? transfers_.store_spill(r.name, v, "block", r.at) : transfers_.store_output(r);
    if (r.role == Role::Spill) {
        c_.reads(v);
        const std::string part = transfers_.part_of_image(r.name, fn_.op(v).type);
        if (part.empty() && inputs_.stores_by_copy()) {
            stores_by_copy_ = true;
            out_.next({Kind::Store, "store_image " + c_.name(v), c_.memory(v)});
            return out_.line("store_image_by_copy({}, {});", transfers_.spill_pointer(r.name, "block", r.at),
                             c_.name(v));
        }
        return out_.line("store_image{}({}, {});", part, transfers_.spill_pointer(r.name, "block", r.at), c_.name(v));
    }
    const int tensor = plan_.tensor(Slot::Output, r.name);
    const std::string rows = FragmentInputs::token_matrix(plan_, r.name, tensor, r.at);
    const ir::Type& type = plan_.tensors[static_cast<std::size_t>(tensor)].type;
    const std::string part = output_part(r);
    if (!inputs_.is_mapped(tensor)) {
        c_.reads(v);
        const Transfers::ByOne by_one(transfers_, type);
        return out_.line("store_operand({}, {}, {}{});", rows, c_.name(v), FragmentInputs::row_count(plan_, tensor),
                         part);
    }
    out_.next({Kind::Store, "store_operand " + c_.name(v), c_.memory(v)});
    stores_by_copy_ = true;
    const Transfers::ByOne by_one(transfers_, type);
    inputs_.store_rows(tensor, r.name, r.at, rows, part, c_.name(v));
}

/// `, …`: the columns of a matrix that an output has, where those are not all.
std::string FragmentBody::output_part(const ir::Result& r) const {
    const std::string part = transfers_.columns_of(plan_.tensor(Slot::Output, r.name), r.at);
    return part.empty() ? "" : ", " + part;
}

/// As readers split it, from registers where it is a fragment.
void FragmentBody::store_float_image(const ir::Result& r) {
    split(r.value);
    const bool transposed = fn_.op(r.value).layout->space == Space::Transposed;
    c_.next("store " + c_.name(r.value), c_.held(r.value), {});
    out_.line("store_float_image{}<{}>({}, {});", transposed ? "_of_transpose" : "", transfers_.rows_of_image(r.name),
              transfers_.spill_pointer(r.name, "block", r.at), c_.name(r.value));
}

/// From registers, row by row.
void FragmentBody::store_rows(const ir::Result& r) {
    const int tensor = plan_.tensor(Slot::Output, r.name);
    c_.next("store " + c_.name(r.value), c_.held(r.value), {});
    const Transfers::ByOne by_one(transfers_, plan_.tensors[static_cast<std::size_t>(tensor)].type);
    const bool transposed = fn_.op(r.value).layout->space == Space::Transposed;
    out_.line("store_{}({}, {}, {}{});", transposed ? "columns" : "rows",
              FragmentInputs::token_matrix(plan_, r.name, tensor, r.at), c_.name(r.value),
              FragmentInputs::row_count(plan_, tensor), output_part(r));
}

void FragmentBody::keep_carried() {
    for (const ir::Result& r : fn_.results)
        if (tile::is_carried(r.role)) keep(r);
}

void FragmentBody::keep(const ir::Result& r) {
    const ValueId kept = c_.carried_param(r);
    if (kept == ir::kNoValue || kept == r.value) return;
    const std::string &to = c_.name(kept), &from = c_.name(r.value);
    Statement keep{Kind::Keep, to, c_.held(r.value), c_.held(kept)};
    keep.values = {to, from};
    if (c_.is_fragment(kept)) return out_.add(std::move(keep));
    out_.next(std::move(keep));
    out_.line("copy_floats<{}>({}, {});", c_.floats(kept), to, from);
}

}  // namespace forge::emit
