#include "emit/cuda/fragment_inputs.h"

#include <algorithm>
#include <set>

#include "emit/last_rows.h"
#include "emit/loops.h"
#include "emit/statements.h"
#include "forge/error.h"
#include "tile/fragment_steps.h"
#include "tile/warp_vectors.h"

namespace forge::emit {

using ::forge::kernel::Accesses;
using ::forge::kernel::By;
using ::forge::kernel::Kind;
using ::forge::kernel::Statement;
using ::forge::kernel::When;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using plan::TensorSlot;
using tile::size_of;
using Space = Layout::Space;

void FragmentInputs::declare() {
    declare_start();
    declare_vectors();
}

std::string FragmentInputs::half() const {
    const auto& inputs = plan_.definition.inputs;
    const bool bf16 =
        plan_.schedule.operand_parts > 1 ||
        std::any_of(inputs.begin(), inputs.end(), [](const ir::InputDecl& in) { return in.type.dtype == BF16; });
    return bf16 ? "bf16" : "f16";
}

std::string FragmentInputs::buffer_type(ValueId v) const {
    const Op& op = fn_.op(v);
    if (!c_.is_param(v, Role::Spill) || !transfers_.is_split_later(op.attrs.name)) return operand_type(v);
    if (op.layout->space == Space::Spill) return fmt::format("FloatImage<{}>", transfers_.rows_of_image(op.attrs.name));
    return arrives_as_floats(v) ? operand_type(v) : fmt::format("FloatImage<{}>", size_of(op.type, 0));
}

std::string FragmentInputs::operand_type(ValueId v, int beside) const {
    const Op& op = fn_.op(v);
    const std::string parts = op.layout->parts == 1 ? "" : fmt::format(", {}", op.layout->parts);
    return fmt::format("Operand<{}, {}, {}{}>", half(), size_of(op.type, 0), beside * size_of(op.type, 1), parts);
}

int FragmentInputs::beside(ValueId v) const { return c_.kernel.tiles.roles ? c_.kernel.tiles.roles->beside(v) : 1; }

std::string FragmentInputs::arriving_operand(ValueId v) const {
    return fmt::format("{}({})", operand_type(v, beside(v)), arriving(v));
}

Accesses FragmentInputs::arriving_memory(ValueId v) const {
    Accesses all = c_.memory(v);
    if (const int count = beside(v); count > 1) all[0].end += (count - 1) * all[0].of_instance, all[0].of_instance = 0;
    return all;
}

bool FragmentInputs::is_vector(ValueId v) const {
    const auto& vectors = c_.kernel.tiles.vectors;
    return std::find(vectors.begin(), vectors.end(), v) != vectors.end();
}

bool FragmentInputs::through_registers(ValueId v) const { return c_.is_param(v, Role::Input) && is_vector(v); }

std::string FragmentInputs::row_count(const plan::Plan& plan, int tensor, const std::string& rows) {
    const std::int64_t factor = plan.tensors[static_cast<std::size_t>(tensor)].type.shape[0].factor;
    return factor == 1 ? rows : fmt::format("{} * {}", factor, rows);
}

std::string FragmentInputs::token_matrix(const plan::Plan& plan, const std::string& name, int tensor,
                                         const Transfers::At& at) {
    return fmt::format("{0}_rows + {2} * call.tensors[{1}].token{3}, call.tensors[{1}].token, call.tensors[{1}].dim[0]",
                       cpp_identifier(name), tensor, row_count(plan, tensor, "row"),
                       Transfers::column_offset(tensor, at));
}

std::string FragmentInputs::token_vector(ValueId v) const {
    const int tensor = transfers_.tensor_of(fn_.op(v));
    return fmt::format("{0}_rows + {2} * call.tensors[{1}].token, call.tensors[{1}].token",
                       cpp_identifier(fn_.op(v).attrs.name), tensor, row_count(plan_, tensor, "row"));
}

std::string FragmentInputs::place(ValueId v, const char* matrices, const char* numbers) const {
    const Layout& layout = *fn_.op(v).layout;
    if (!layout.staged) return fmt::format("scratch + {}", layout.offset);
    const std::int64_t first_number = c_.kernel.tiles.stage_floats;
    return layout.offset < first_number ? fmt::format("{} + {}", matrices, layout.offset)
                                        : fmt::format("{} + {}", numbers, layout.offset - first_number);
}

void FragmentInputs::declare_stage(const char* matrices, const char* numbers, const char* stage) {
    if (!plan::in_order(loop_)) return;
    const tile::TileKernel& tiles = c_.kernel.tiles;
    out_.line("[[maybe_unused]] float* const {} = scratch + {} * {};", matrices, stage, tiles.stage_floats);
    if (tiles.number_floats > 0)
        out_.line("[[maybe_unused]] float* const {} = scratch + {} + {} * {};", numbers, tiles.stage_numbers, stage,
                  tiles.number_floats);
}

std::string FragmentInputs::arriving(ValueId v) const { return place(v, "arriving", "arriving_numbers"); }

void FragmentInputs::begin_start() {
    out_.begin({Kind::Function, "start"},
               "const auto start = [&](Size row, [[maybe_unused]] int rows, [[maybe_unused]] Size block, "
               "[[maybe_unused]] int stage)");
    declare_stage("arriving", "arriving_numbers", "stage");
}

void FragmentInputs::declare_start() {
    begin_start();
    for (ValueId v = 0; v < fn_.size(); ++v)
        if (through_registers(v)) {
            copies(v, When::Always, By::Warp);
            out_.line("start_vector({}, {}, rows, row + rows == at.tokens);", arriving(v), token_vector(v));
        }
    const bool single = !plan::in_order(loop_);
    const Statement group = arrivals_in(arrivals_, commit());
    if (single && has_vectors()) out_.add(group);  // what follows from them is made while matrices arrive
    std::vector<ValueId> early;
    for (ValueId v = 0; v < fn_.size(); ++v)
        if (!tile::arrives_late(fn_, v)) early.push_back(v);
    start_all(early);
    if (single) out_.add(group);
    out_.end("};");
}

void FragmentInputs::start_late(ValueId v) {
    start_all({v});
    out_.add(arrivals_in(arrivals_, commit()));
}

void FragmentInputs::start_one(ValueId v) {
    if (is_matrix(v)) return start_matrix(v, c_.long_text() ? "start_operand_briefly" : "start_operand");
    if (!c_.is_param(v, Role::Spill) || fn_.op(v).layout->space == Space::Spill) return;
    copies(v, When::Always);
    const std::string from = transfers_.spill_pointer(fn_.op(v).attrs.name, "block", fn_.op(v).attrs.at);
    if (is_float_image(v))
        out_.line("start_float_image<{}>({}({}), {});", transfers_.rows_of_image(fn_.op(v).attrs.name), operand_type(v),
                  arriving(v), from);
    else if (c_.is_operand(v))
        out_.line("start_image{}({}({}), {});", transfers_.part_of_image(fn_.op(v).attrs.name, fn_.op(v).type),
                  operand_type(v), arriving(v), from);
    else start_spill(v, from);
}

/// Whether a spill's tile is a part of the columns of rows that are longer.
bool FragmentInputs::is_part_of_rows(ValueId v) const {
    const Op& op = fn_.op(v);
    return c_.in_tile(v) && op.type.rank() == 2 && size_of(op.type, 0) > 1 &&
           transfers_.spill_slot(op.attrs.name).strides[0] != op.layout->strides[0];
}

void FragmentInputs::start_spill(ValueId v, const std::string& from) {
    if (!is_part_of_rows(v)) return out_.line("start_floats<{}>({}, {});", c_.floats(v), arriving(v), from);
    const Op& op = fn_.op(v);
    const std::int64_t rows = size_of(op.type, 0);
    out_.line("start_tile<{}, {}, {}>({}, {}, {}, 1, {});", rows, size_of(op.type, 1), op.layout->strides[0],
              arriving(v), from, transfers_.spill_slot(op.attrs.name).strides[0], rows);
}

void FragmentInputs::copies(ValueId v, When when, By by) {
    Statement copy{Kind::Copy, c_.name(v), transfers_.source(v), arriving_memory(v)};
    copy.when = when, copy.by = by;
    out_.next(std::move(copy));
}

bool FragmentInputs::is_float_image(ValueId v) const {
    return c_.is_operand(v) && c_.is_param(v, Role::Spill) && transfers_.is_split_later(fn_.op(v).attrs.name);
}

bool FragmentInputs::arrives_as_floats(ValueId v) const {
    if (!c_.is_operand(v)) return false;
    if (is_float_image(v)) return tile::is_multiplied(fn_, v);
    return c_.is_param(v, Role::Input) && !is_half(input_slot(v).type.dtype);
}

bool FragmentInputs::is_matrix(ValueId v) const {
    if (c_.is_param(v, Role::Shifted)) return c_.is_operand(v);
    return c_.is_param(v, Role::Input) && !through_registers(v) && fn_.op(v).layout->space != Space::Spill;
}

void FragmentInputs::start_shifted(ValueId v, const std::string& from, const std::string& rows) {
    const int tensor = transfers_.tensor_of(fn_.op(v)), before = rows_before(plan_, tensor);
    const std::int64_t factor = input_slot(v).type.shape[0].factor;
    const std::string stride = fmt::format("call.tensors[{}].dim[{}]", before, factor == 1 ? 0 : 1);
    const std::string part = transfers_.columns_of(tensor, fn_.op(v).attrs.at),
                      first = transfers_.tile_offset(before, 0) +
                              Transfers::column_offset(before, fn_.op(v).attrs.at, factor == 1 ? 0 : 1);
    out_.line(
        "start_shifted<{}, {}>({}, {}, {}, row == 0, RowsBefore{{row == 0 ? last_rows<const float>(call, {}, at) "
        ": nullptr, {}, {}{}}}{});",
        c_.kernel.tiles.roles ? "Warp" : "Group", factor, arriving_operand(v), from, rows, before,
        factor == 1 ? "0" : fmt::format("call.tensors[{}].dim[0]", before), stride, first.empty() ? "" : ", 0" + first,
        part.empty() ? "" : ", " + part);
}

/// The rows of a chunk that are read of a tensor: none where columns of a transition are made, of what has tiles.
std::string FragmentInputs::rows_there(int tensor) const {
    const std::string rows = row_count(plan_, tensor);
    const bool of_tile = input_of(tensor).type.shape.back().symbol == plan_.schedule.tile_axis;
    if (!c_.kernel.graph.transition_columns || !of_tile) return rows;
    return fmt::format("(at.tile < {} ? {} : 0)", c_.kernel.cut.count, rows);
}

void FragmentInputs::start_matrix(ValueId v, const char* operand_function, When when) {
    copies(v, when);
    write_matrix(v, operand_function);
}

void FragmentInputs::write_matrix(ValueId v, const char* operand_function) {
    const Op& op = fn_.op(v);
    const int tensor = transfers_.tensor_of(op);
    const std::string from = token_matrix(plan_, op.attrs.name, tensor, op.attrs.at), rows = rows_there(tensor);
    const char* const who = c_.kernel.tiles.roles ? "Warp" : "Group";
    if (op.attrs.role == Role::Shifted) return start_shifted(v, from, rows);
    const std::string part = transfers_.columns_of(tensor, op.attrs.at);
    if (op.type.rank() == 1)
        out_.line("start_numbers<{}, {}>({}, {}, {}, {});", who, size_of(op.type, 0), arriving(v), token_vector(v),
                  rows, float_literal(input_slot(v).pad));
    else if (!part.empty() && c_.is_operand(v))
        out_.line("start_part<{}>({}, {}, {}, {});", who, arriving_operand(v), from, rows, part);
    else if (c_.is_operand(v)) out_.line("{}({}, {}, {});", operand_function, arriving_operand(v), from, rows);
    else if (!part.empty())
        out_.line("start_tile_part<{}, {}, {}, {}>({}, {}, {}, {});", size_of(op.type, 0), size_of(op.type, 1),
                  op.layout->strides[0], who, arriving(v), from, rows, part);
    else
        out_.line("start_tile<{}, {}, {}{}>({}, {}, {});", size_of(op.type, 0), size_of(op.type, 1),
                  op.layout->strides[0], c_.kernel.tiles.roles ? ", Warp" : "", arriving(v), from, rows);
}

/// What one warp makes ahead from the vectors of a chunk, two tokens per lane.
void FragmentInputs::declare_vectors() {
    if (!has_vectors()) return;
    out_.begin({Kind::Function, "make_vectors"},
               "const auto make_vectors = [&](Size row, int rows, [[maybe_unused]] int stage)");
    if (!c_.kernel.tiles.roles) {
        out_.line("if (warp() != 0) return;");
        Statement arrived = plan::in_order(loop_) ? copy_wait(c_.kernel.tiles.stages - 2, "kStages - 2") : copy_wait(1);
        arrived.by = By::Warp;
        out_.add(std::move(arrived));
    }
    declare_stage("arriving", "arriving_numbers", "stage");
    out_.line("const int j = 2 * lane();");
    for (const ValueId v : c_.kernel.tiles.vectors) vector(v);
    out_.end("};");
}

const TensorSlot& FragmentInputs::input_of(int tensor) const { return plan_.tensors[static_cast<std::size_t>(tensor)]; }

const TensorSlot& FragmentInputs::input_slot(ValueId v) const { return input_of(transfers_.tensor_of(fn_.op(v))); }

std::string FragmentInputs::next_vector(ValueId v) const { return c_.name(v) + "_next"; }

/// A vector of the chunk at `row`, or so many rows later; beyond the sequence's ends it has no elements.
std::string FragmentInputs::later_vector(ValueId v, const std::string& rows) const {
    const int tensor = transfers_.tensor_of(fn_.op(v));
    const std::string row = rows.empty() ? "row" : direction_.row(rows);
    const char* const there = direction_.reverse ? "rows_from_start" : "rows_of";
    return fmt::format("token_pair({}_rows + {} * call.tensors[{}].token, call.tensors[{}].token, {}({}), {})",
                       cpp_identifier(fn_.op(v).attrs.name), rows.empty() ? row : "(" + row + ")", tensor, tensor,
                       there, row, float_literal(input_slot(v).pad));
}

/// A number that is no vector's: of parameters, constants, and what follows from them.
std::string FragmentInputs::number(ValueId v) const {
    const Op& op = fn_.op(v);
    if (op.code == Opcode::Param) return fmt::format("broadcast_pair({})", c_.name(v));
    if (op.code == Opcode::Constant) return fmt::format("broadcast_pair({})", float_literal(op.attrs.value));
    if (!tile::is_number_anywhere(fn_, v)) throw InternalError("emit: no number: " + c_.name(v));
    std::vector<std::string> operands;
    for (const ValueId a : op.args) operands.push_back(number(a));
    return expression(fn_, op, operands, "broadcast_pair(0.0f)");
}

void FragmentInputs::vector(ValueId v) {
    const Op& op = fn_.op(v);
    const auto name = [&](ValueId a) { return c_.name(a) + "_j"; };
    const bool stored = op.layout->space == Space::Tile && !through_registers(v);
    if (!tile::one_warp_makes(op))
        throw InternalError(fmt::format("emit: one warp does not make {} = {}", c_.name(v), ir::info(op.code).name));
    Statement made{Kind::Compute, c_.name(v), {}, stored || op.code == Opcode::DecayMask ? c_.memory(v) : Accesses{}};
    if (through_registers(v) && !c_.kernel.tiles.roles) made.reads = c_.memory(v);
    made.by = By::Warp;
    out_.next(std::move(made));
    if (op.code == Opcode::DecayMask) return out_.line("store_decay_sums({}, {});", arriving(v), name(op.args[0]));
    std::string value;
    if (c_.is_param(v, Role::Mask)) value = "mask_pair(rows)";
    else if (c_.kernel.tiles.roles && op.code == Opcode::Param) value = next_vector(v);
    else if (op.code == Opcode::Param)
        value = fmt::format("arrived_pair({}, {}, rows, {})", arriving(v), token_vector(v),
                            float_literal(input_slot(v).pad));
    else if (op.code == Opcode::Cumsum)
        value = fmt::format("running_sum<{}, {}>({})", op.attrs.reverse, op.attrs.exclusive, name(op.args[0]));
    else if (op.code == Opcode::LinearScan)
        value = fmt::format("running_map<{}, {}>({}, {})", op.attrs.reverse, op.attrs.exclusive, name(op.args[0]),
                            name(op.args[1]));
    else if (op.code == Opcode::Sum) value = fmt::format("sum_of({})", name(op.args[0]));
    else if (op.code == Opcode::Amax) value = fmt::format("greatest_of({})", name(op.args[0]));
    else {
        std::vector<std::string> operands;
        for (const ValueId a : op.args) operands.push_back(is_vector(a) ? name(a) : number(a));
        value = expression(fn_, op, operands, "broadcast_pair(0.0f)");
    }
    out_.line("const pair {} = {};", name(v), value);
    if (stored)
        out_.line("{}, {});",
                  op.type.rank() == 0 ? "store_first(" + arriving(v) : fmt::format("store_pair({} + j", arriving(v)),
                  name(v));
}

bool FragmentInputs::has_vectors() const { return !c_.kernel.tiles.vectors.empty(); }

void FragmentInputs::declare_rows() {
    out_.line(
        "const auto rows_of = [&](Size row) {{ return static_cast<int>(at.tokens - row < kChunk ? at.tokens - row : "
        "kChunk); }};");
    if (!direction_.reverse) return out_.line("[[maybe_unused]] Size row = at.row, block = at.block;");
    out_.line("const Size last = (at.end - at.row + kChunk - 1) / kChunk - 1;  // of a sequence without tokens -1");
    out_.line("[[maybe_unused]] Size row = at.row + last * kChunk, block = at.block + last * call.heads;");
}

/// Each warp has a stage, so that vectors are prefetched as many chunks ahead as there are stages. What threads copy
/// has arrived when a chunk is announced; other copies report to the barriers themselves.
void FragmentInputs::ask_for_all() {
    transfers_.declare_inputs();
    std::set<std::string> declared;
    for (ValueId v = 0; v < fn_.size(); ++v) {
        const bool tensor = c_.is_param(v, Role::Input) || c_.is_param(v, Role::Shifted);
        if (const std::string& name = fn_.op(v).attrs.name; tensor && declared.insert(name).second)
            declare_map(name, transfers_.tensor_of(fn_.op(v)));
    }
    out_.line("Turn<kStages> stage;");
    out_.line("stage.skip(warp()), row {0}= warp() * kChunk, block {0}= warp() * call.heads;", direction_.sign());
    std::vector<std::string> ask_for_next;
    for (ValueId v = 0; v < fn_.size(); ++v) {
        if (!through_registers(v)) continue;
        if (direction_.reverse && ask_for_next.empty())
            out_.line("const auto rows_from_start = [&](Size row) {{ return row < 0 ? 0 : rows_of(row); }};");
        out_.line("pair {} = {};", next_vector(v), later_vector(v, ""));
        ask_for_next.push_back(fmt::format("{} = {};", next_vector(v), later_vector(v, "kStages * kChunk")));
    }
    declare_copying_start();
    declare_vectors();
    Statement loop{Kind::Loop, "chunks"};
    loop.step = c_.kernel.tiles.stages, loop.by_turns = true;
    out_.begin(
        std::move(loop),
        fmt::format("for (; warp() < kStages && {0}; row {1}= kStages * kChunk, block {1}= kStages * call.heads, "
                    "stage.lap ^= 1u)",
                    direction_.within("row"), direction_.sign()));
    const bool beside = plan_.is_beside(c_.kernel, plan::Loop::Scan);
    if (beside) {
        Statement made{Kind::WaitKernel};
        made.code = {fmt::format("if (lane() == 0) wait_until_made(call, call.spills[{}], block);",
                                 plan_.spill(plan::kMadeSpill))};
        out_.add(std::move(made));
    }
    out_.add(wait_for(Context::kStages, kernel::Side::Empty, "stage"));
    uses("start", 0, "start(row, rows_of(row), block, stage.at);");
    out_.add(commit());
    if (has_vectors()) uses("make_vectors", 0, "make_vectors(row, rows_of(row), stage.at);");
    out_.add(copy_wait(0));
    out_.add(line_of_all({fence(), arrive_at(Context::kStages, kernel::Side::Filled, "stage")}));
    for (const std::string& ask : ask_for_next) out_.put(ask);  // after the barrier, which would wait for it
    out_.end();
    if (beside) out_.line("ptx::wait_for_kernel_before();  // what follows in the stream relies on it");
}

void FragmentInputs::start_first() {
    if (!plan::in_order(loop_)) return uses("start", 0, "start(row, rows_of(row), block, 0);");
    out_.line("[[maybe_unused]] const auto after = [](int stage) {{ return stage + 1 == kStages ? 0 : stage + 1; }};");
    out_.line("int stage = 0;");
    Statement loop{Kind::Loop, "first chunks"};
    loop.count = c_.kernel.tiles.stages - 1;
    out_.begin(std::move(loop), "for (int ahead = 0; ahead < kStages - 1; ++ahead)");
    const std::string row = direction_.row("ahead * kChunk");
    uses("start", 0,
         fmt::format("if ({}) start({}, rows_of({}), {}, ahead);", direction_.within(row), row, row,
                     direction_.block("ahead * call.heads")));
    out_.add(commit());
    out_.end();
}

void FragmentInputs::make_first_vectors() {
    if (!has_vectors()) return;
    uses("make_vectors", 0,
         plan::in_order(loop_) ? "if (row < at.end) make_vectors(row, rows_of(row), stage);"
                               : "make_vectors(row, rows_of(row), 0);");
}

void FragmentInputs::start_later() {
    if (!plan::in_order(loop_)) return;
    const int stages = c_.kernel.tiles.stages;
    out_.begin({Kind::Later}, "");
    uses("start", stages - 1,
         fmt::format(
             "if (const Size later = {}; {}) start(later, rows_of(later), {}, stage == 0 ? kStages - 1 : stage - "
             "1);",
             direction_.row("(kStages - 1) * kChunk"), direction_.within("later"),
             direction_.block("(kStages - 1) * call.heads")));
    out_.add(commit());
    if (stages > 2) make_next_vectors();  // they have arrived, and the other warps wait for products
    out_.end();
    if (stages == 2) make_next_vectors();
}

void FragmentInputs::make_next_vectors() {
    const std::string next = direction_.row("kChunk");
    if (has_vectors())
        uses("make_vectors", 1,
             fmt::format("if ({}) make_vectors({}, rows_of({}), after(stage));", direction_.within(next), next, next));
}

void FragmentInputs::uses(const char* function, int ahead, const std::string& text) {
    Statement use{Kind::Use, function};
    use.ahead = ahead;
    out_.next(std::move(use));
    out_.put(text);
    out_.next();
}

}  // namespace forge::emit
