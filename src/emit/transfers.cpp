#include "emit/transfers.h"

#include <algorithm>

#include "emit/last_rows.h"
#include "tile/fragments.h"

namespace forge::emit {
namespace {

using ir::Op;
using ir::Role;
using ir::ValueId;
using plan::TensorSlot;
using tile::size_of;
using SlotKind = TensorSlot::Kind;

std::string global(const std::string& tensor) { return cpp_identifier(tensor) + "_rows"; }

std::vector<std::int64_t> constants(const ir::Type& type) {
    std::vector<std::int64_t> sizes;
    for (int axis = 0; axis < type.rank(); ++axis) sizes.push_back(size_of(type, axis));
    return sizes;
}

std::vector<std::string> memory_strides(int tensor, int count, bool token) {
    std::vector<std::string> strides;
    if (token) strides.push_back(fmt::format("call.tensors[{}].token", tensor));
    for (int d = 0; d < count; ++d) strides.push_back(fmt::format("call.tensors[{}].dim[{}]", tensor, d));
    return strides;
}

/// A row-major value of rank 2 or more as one matrix of rows.
std::int64_t row_count(const ir::Type& type) {
    std::int64_t rows = 1;
    for (int axis = 0; axis + 1 < type.rank(); ++axis) rows *= size_of(type, axis);
    return rows;
}
std::int64_t row_stride(const std::vector<std::int64_t>& strides) { return strides[strides.size() - 2]; }

/// Whether a value of rank 2 or more lies as one matrix of rows: not if it is part of a middle axis.
bool is_one_matrix(const ir::Type& type, const std::vector<std::int64_t>& strides) {
    for (int axis = 0; axis + 2 < type.rank(); ++axis) {
        const auto a = static_cast<std::size_t>(axis);
        if (strides[a] != size_of(type, axis + 1) * strides[a + 1]) return false;
    }
    return true;
}

/// ` + …`, to the part of a per-head input that a parameter is.
std::string head_offset(const Op& op, int tensor) {
    std::string text;
    for (std::size_t axis = 0; axis < op.attrs.at.size(); ++axis)
        if (op.attrs.at[axis] != 0)
            text += fmt::format(" + {} * call.tensors[{}].dim[{}]", op.attrs.at[axis], tensor, axis);
    return text;
}

}  // namespace

/// Which tensor a parameter is, in the call.
int Transfers::tensor_of(const Op& param) const {
    return plan_.tensor(param.attrs.role == Role::Head ? SlotKind::Head : SlotKind::Input, param.attrs.name);
}

/// What this task has of the tiled axis: dims are the tensor's axes after token and head.
std::optional<Transfers::Part> Transfers::part_of_tile(int tensor, std::size_t leading) const {
    const ir::Type& t = slot(tensor).type;
    for (std::size_t axis = leading; axis < t.shape.size(); ++axis)
        if (is_cut(t.shape[axis])) return Part{t.shape[axis].factor * c_.kernel.cut.size, axis - leading};
    return {};
}

std::string Transfers::tile_offset(int tensor, std::size_t leading) const {
    const auto part = part_of_tile(tensor, leading);
    return part ? fmt::format(" + at.tile * {} * call.tensors[{}].dim[{}]", part->numbers, tensor, part->dim) : "";
}

std::string Transfers::first_column(int tensor) const {
    const Dim& columns = slot(tensor).type.shape.back();
    return is_cut(columns) ? fmt::format("at.tile * {}", columns.factor * c_.kernel.cut.size) : "0";
}

std::string Transfers::column_offset(int tensor, const At& at, int dim) {
    return at.empty() || at.back() == 0 ? "" : fmt::format(" + {} * call.tensors[{}].dim[{}]", at.back(), tensor, dim);
}

std::string Transfers::columns_of(int tensor, const At& at) const {
    return part_of(slot(tensor).type.shape.back(), at.empty() ? std::nullopt : std::optional(at.back()));
}

std::string Transfers::part_of(const Dim& axis, std::optional<std::int64_t> from) const {
    if (!plan_.schedule.padded.contains(axis.symbol)) return "";
    const std::int64_t size = axis.factor * plan_.sizes.at(axis.symbol) - from.value_or(0);
    if (is_cut(axis)) return fmt::format("static_cast<int>({} - at.tile * {})", size, axis.factor * c_.kernel.cut.size);
    return !from || size < tile::kBlock ? std::to_string(size) : "";
}

Transfers::Block Transfers::whole(ValueId v, int tensor, std::size_t leading, std::string type, std::string memory,
                                  std::string pad) const {
    const Op& op = fn_.op(v);
    const Shape& shape = slot(tensor).type.shape;
    std::string rows = op.type.rank() == 0 ? "1" : std::to_string(size_of(op.type, 0)), columns;
    const auto from = [&](std::size_t axis) {
        return op.attrs.at.empty() ? std::nullopt : std::optional(op.attrs.at[axis]);
    };
    if (op.type.rank() > 0) columns = part_of(shape.back(), from(op.attrs.at.size() - 1));
    if (const std::string part = op.type.rank() > 1 ? part_of(shape[leading], from(0)) : ""; !part.empty()) rows = part;
    return {std::move(type),    c_.name(v),         std::move(memory),
            constants(op.type), op.layout->strides, memory_strides(tensor, op.type.rank(), false),
            std::move(rows),    std::move(pad),     std::move(columns)};
}

void Transfers::declare_token_tensor(const TokenTensor& t, const char* task) {
    const ir::Type& type = slot(t.tensor).type;
    const std::int64_t factor = type.shape[0].factor;
    out_.line("{0}* const {1} = token_rows<{0}>(call, {2}, {3}{4}){5};",
              (t.constant ? "const " : "") + storage_type(type.dtype), t.pointer, t.tensor, task,
              factor == 1 ? "" : fmt::format(", {}", factor), tile_offset(t.tensor, 2));
}

void Transfers::declare_tensors() {
    if (c_.kernel.tiles.addresses >= 0) return keep_addresses();
    declare_inputs();
    declare_outputs();
}

std::vector<Transfers::TokenTensor> Transfers::token_inputs(const std::function<bool(ValueId)>& skipped) const {
    std::vector<TokenTensor> found;
    for (ValueId v = 0; v < fn_.size(); ++v) {
        if ((!c_.is_param(v, Role::Input) && !c_.is_param(v, Role::Shifted)) || (skipped && skipped(v))) continue;
        const int tensor = tensor_of(fn_.op(v));
        if (std::none_of(found.begin(), found.end(), [&](const TokenTensor& t) { return t.tensor == tensor; }))
            found.push_back({global(fn_.op(v).attrs.name), tensor, true});
    }
    return found;
}

std::vector<Transfers::TokenTensor> Transfers::token_outputs() const {
    std::vector<TokenTensor> found;
    for (const ir::Result& r : fn_.results) {
        const bool first =
            std::all_of(r.at.begin(), r.at.end(), [](std::int64_t i) { return i == 0; });  // of its parts
        if (r.role == Role::Input && first)
            found.push_back({global(r.name), plan_.tensor(SlotKind::Output, r.name), false});
    }
    return found;
}

void Transfers::declare_inputs(const std::function<bool(ValueId)>& skipped) {
    for (const TokenTensor& t : token_inputs(skipped)) declare_token_tensor(t);
}

void Transfers::declare_outputs(const char* task) {
    for (const TokenTensor& t : token_outputs()) declare_token_tensor(t, task);
}

/// The addresses of all in shared memory, each read where it is used.
void Transfers::keep_addresses() {
    std::vector<TokenTensor> tensors = token_inputs();
    for (TokenTensor& t : token_outputs()) tensors.push_back(std::move(t));
    std::string rows;
    for (const TokenTensor& t : tensors) {
        const ir::Type& type = slot(t.tensor).type;
        const auto part = part_of_tile(t.tensor, 2);
        rows += fmt::format("{}{{{}, {}{}{}}}", rows.empty() ? "" : ", ", t.tensor, size_in_bytes(type.dtype),
                            part || type.shape[0].factor != 1 ? fmt::format(", {}", type.shape[0].factor) : "",
                            part ? fmt::format(", {}, {}", part->numbers, part->dim) : "");
    }
    const std::int64_t first = c_.kernel.tiles.addresses;
    if (!tensors.empty()) {
        out_.line("static constexpr RowsOf kRows[] = {{{}}};", rows);
        out_.line("keep_rows(call, at, kRows, scratch + {});", first);
    }
    for (std::size_t n = 0; n < tensors.size(); ++n)
        out_.line("const KeptRows<{}{}> {}{{scratch + {}}};", tensors[n].constant ? "const " : "",
                  storage_type(slot(tensors[n].tensor).type.dtype), tensors[n].pointer,
                  first + 2 * static_cast<std::int64_t>(n));
}

/// Loops over all axes but the last two, then one load_tile or store_tile.
void Transfers::transfer(Block b) {
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
    const std::string sizes = fmt::format("<{}, {}, {}, {}>", b.type, b.shape[0], b.shape[1],
                                          std::max(b.tile_strides[0], plan_.schedule.vector_width));
    const std::string part = b.columns.empty() ? "" : "_part", columns = b.columns.empty() ? "" : ", " + b.columns;
    if (b.pad.empty())
        out_.line("store_tile{}{}({}, {}, {}, {}, {}{});", part, sizes, b.memory, b.memory_strides[0],
                  b.memory_strides[1], b.tile, b.rows, columns);
    else
        out_.line("load_tile{}{}({}, {}, {}, {}, {}, {}{});", part, sizes, b.tile, b.memory, b.memory_strides[0],
                  b.memory_strides[1], b.rows, b.pad, columns);
    for (; loops > 0; --loops) out_.close();
}

std::string Transfers::rows_arguments(ValueId v, const std::string& tensor, int index) const {
    const std::int64_t factor = slot(index).type.shape[0].factor;
    const std::string scale = factor == 1 ? "" : fmt::format(" * {}", factor);
    return fmt::format(
        "{0}, {1} + row{2} * call.tensors[{3}].token, call.tensors[{3}].token, call.tensors[{3}].dim[0], rows{2}",
        c_.name(v), global(tensor), scale, index);
}

void Transfers::read_rows(ValueId v, const std::string& name) {
    const Op& op = fn_.op(v);
    const int tensor = tensor_of(op);
    out_.line("const auto {} = rows_to_read<{}, {}, {}>({}, {});", name, size_of(op.type, 0), size_of(op.type, 1),
              op.layout->strides[0], rows_arguments(v, op.attrs.name, tensor), float_literal(slot(tensor).pad));
}

void Transfers::write_rows(const ir::Result& r, const std::string& name) {
    const Op& op = fn_.op(r.value);
    out_.line("const auto {} = rows_to_write<{}, {}, {}>({}, at.tokens);", name, size_of(op.type, 0),
              size_of(op.type, 1), op.layout->strides[0],
              rows_arguments(r.value, r.name, plan_.tensor(SlotKind::Output, r.name)));
}

void Transfers::store_rows(const ir::Result& r, const std::string& name) {
    const Op& op = fn_.op(r.value);
    out_.line("store_rows<{}, {}>({}, {});", size_of(op.type, 1), op.layout->strides[0], name,
              rows_arguments(r.value, r.name, plan_.tensor(SlotKind::Output, r.name)));
}

const char* Transfers::onwards() const { return c_.kernel.graph.reverse ? "-" : "+"; }

void Transfers::ask_for_next(const ir::Type& type, int tensor, const std::string& pointer, bool write) {
    if (c_.dialect.cooperative || type.rank() > 2) return;
    const std::string stride = fmt::format("call.tensors[{}].token", tensor);
    const std::int64_t factor = slot(tensor).type.shape[0].factor;
    std::string line =
        fmt::format("prefetch_rows<{}, {}, {}>({} + (row {} {}) * {}{}, {});", size_of(type, 0),
                    type.rank() == 2 ? size_of(type, 1) : 1, write, pointer, onwards(), plan_.schedule.chunk,
                    factor == 1 ? "" : fmt::format("{} * ", factor), stride, stride);
    if (write) out_.put(line);
    else request(std::move(line));
}

void Transfers::request(std::string line) {
    if (products_ == 0) return out_.put(line);
    requests_.push_back(std::move(line));
}

void Transfers::after_product() {
    ++computed_;
    for (; written_ * products_ < requests_.size() * computed_; ++written_) out_.put(requests_[written_]);
}

void Transfers::load_tokens(ValueId v) {
    const Op& op = fn_.op(v);
    const int tensor = tensor_of(op);
    const TensorSlot& t = slot(tensor);
    const std::int64_t factor = t.type.shape[0].factor;
    const std::string row = factor == 1 ? "row" : fmt::format("row * {}", factor),
                      rows = factor == 1 ? "rows" : fmt::format("rows * {}", factor);
    const std::string stride = fmt::format("call.tensors[{}].token", tensor), type = storage_type(t.type.dtype),
                      pad = float_literal(t.pad);
    const std::string memory =
        fmt::format("{} + {} * {}{}", global(op.attrs.name), row, stride, column_offset(tensor, op.attrs.at));
    const bool shifted = op.attrs.role == Role::Shifted;
    c_.writes(v);
    if (!shifted) ask_for_next(op.type, tensor, global(op.attrs.name), false);
    if (op.type.rank() == 1 && !shifted)
        return out_.line("load_vector<{}, {}>({}, {}, {}, {}, {});", type, size_of(op.type, 0), c_.name(v), memory,
                         stride, rows, pad);
    Block b{type,
            c_.name(v),
            memory,
            constants(op.type),
            op.layout->strides,
            memory_strides(tensor, op.type.rank() - 1, true),
            rows,
            pad,
            columns_of(tensor, op.attrs.at)};
    if (shifted) return load_shifted(v, std::move(b));
    transfer(std::move(b));
}

/// The rows of the token before: those of a chunk's first token lie before it, and a sequence's first token has those
/// of the call before, if it was given them, or the pad.
void Transfers::load_shifted(ValueId v, Block b) {
    const Op& op = fn_.op(v);
    const TensorSlot& t = slot(tensor_of(op));
    const std::int64_t factor = t.type.shape[0].factor;
    const int kept = rows_before(plan_, tensor_of(op));
    const std::string last = fmt::format("last_rows<const float>(call, {}, at)", kept), stride = b.memory_strides[0];
    std::vector<std::string> strides = memory_strides(kept, op.type.rank() - (factor == 1 ? 1 : 0), false);
    if (factor == 1) strides.insert(strides.begin(), "0");
    if (op.type.rank() == 1)
        return out_.line("load_shifted<{}, {}, {}>({}, {}, {}, row == 0, {}, {}, {}, {});", b.type, b.shape[0], factor,
                         b.tile, b.memory, stride, b.rows, b.pad, last, strides[0]);
    Block first = b;
    first.shape[0] = factor;
    out_.open(fmt::format("if (const float* const last = row == 0 && rows > 0 ? {} : nullptr)", last));
    Block given = first;
    given.type = "float",
    given.memory = "last" + tile_offset(kept, 0) + column_offset(kept, op.attrs.at, factor == 1 ? 0 : 1),
    given.memory_strides = std::move(strides);
    given.rows = std::to_string(factor);
    transfer(std::move(given));
    out_.close();
    out_.open("else");
    first.memory += fmt::format(" - {} * {}", factor, stride);
    first.rows = fmt::format("row > 0 ? {} : 0", factor);
    transfer(std::move(first));
    out_.close();
    if (b.shape[0] == factor) return;  // a chunk of one token
    b.shape[0] -= factor;
    b.tile += fmt::format(" + {}", factor * op.layout->strides[0]);
    b.rows = fmt::format("{} - {}", b.rows, factor);
    transfer(std::move(b));
}

/// The load of a token input or a spill of a chunk, seen as one matrix.
Transfers::Block Transfers::ahead(ValueId v, const Place& place) const {
    const Op& op = fn_.op(v);
    const bool vector = op.type.rank() == 1;
    if (op.attrs.role == Role::Spill) {
        const plan::SpillSlot& slot = spill_slot(op.attrs.name);
        const std::int64_t rows = row_count(op.type), stride = vector ? 0 : row_stride(slot.strides);
        return {"float",
                c_.name(v),
                spill_pointer(op.attrs.name, place.block.c_str()),
                {rows, size_of(op.type, op.type.rank() - 1)},
                {vector ? c_.floats(v) : row_stride(op.layout->strides), 1},
                {std::to_string(stride), "1"},
                place.rows == "rows" ? std::to_string(rows) : fmt::format("{} > 0 ? {} : 0", place.rows, rows),
                "0.0f"};
    }
    const int tensor = tensor_of(op);
    const std::int64_t factor = slot(tensor).type.shape[0].factor;
    const std::string scale = factor == 1 ? "" : fmt::format(" * {}", factor);
    std::vector<std::string> strides = memory_strides(tensor, op.type.rank() - 1, true);
    return {storage_type(slot(tensor).type.dtype),
            c_.name(v),
            fmt::format("{} + {}{} * {}", global(op.attrs.name), place.row, scale, strides[0]),
            constants(op.type),
            op.layout->strides,
            std::move(strides),
            place.rows + scale,
            float_literal(slot(tensor).pad)};
}

std::int64_t Transfers::registers_ahead(ValueId v) const {
    const Op& op = fn_.op(v);
    const bool input = c_.is_param(v, Role::Input) && op.type.rank() <= 2,
               spill = c_.is_param(v, Role::Spill) && op.type.rank() > 0;
    if (!c_.dialect.cooperative || !c_.in_tile(v) || !(input || spill)) return 0;
    if (spill && !is_one_matrix(op.type, spill_slot(op.attrs.name).strides)) return 0;
    constexpr std::int64_t kFour = 4;
    const std::int64_t threads = c_.dialect.threads;
    const Block b = ahead(v, {});
    const auto turns = [&](std::int64_t n) { return (n + threads - 1) / threads; };
    if (b.shape.size() == 1) return turns(b.shape[0]);
    if (b.shape[1] % kFour != 0) return 0;
    return turns(b.shape[0] * b.shape[1] / kFour) * (b.type == "float" ? 4 : 2);
}

std::string Transfers::fetch(ValueId v, const Place& place) const {
    const Block b = ahead(v, place);
    if (b.shape.size() == 1)
        return fmt::format("fetch_vector<{}, {}>({}, {}, {})", b.type, b.shape[0], b.memory, b.memory_strides[0],
                           b.rows);
    return fmt::format("fetch_tile<{}, {}, {}>({}, {}, {}, {})", b.type, b.shape[0], b.shape[1], b.memory,
                       b.memory_strides[0], b.memory_strides[1], b.rows);
}

void Transfers::place(ValueId v) {
    const Block b = ahead(v, {});
    c_.next("place " + c_.name(v), {kernel::registers(c_.name(v) + "_ahead")}, c_.memory(v));
    if (b.shape.size() == 1)
        return out_.line("place_vector({}, {}_ahead, {}, {});", c_.name(v), c_.name(v), b.rows, b.pad);
    out_.line("place_tile<{}>({}, {}_ahead, {}, {}, {}, {}, {});", b.tile_strides[0], c_.name(v), c_.name(v), b.memory,
              b.memory_strides[0], b.memory_strides[1], b.rows, b.pad);
}

void Transfers::load_head(ValueId v) {
    const Op& op = fn_.op(v);
    const int tensor = tensor_of(op);
    const std::string type = storage_type(slot(tensor).type.dtype);
    const std::string memory = fmt::format("head_block<const {}>(call, {}, at){}{}", type, tensor,
                                           tile_offset(tensor, 1), head_offset(op, tensor));
    if (op.type.rank() == 0) return out_.line("const float {} = load_number({});", c_.name(v), memory);
    c_.writes(v);
    transfer(whole(v, tensor, 1, type, memory, "0.0f"));
}

void Transfers::store_output(const ir::Result& r) {
    const Op& op = fn_.op(r.value);
    const int tensor = plan_.tensor(SlotKind::Output, r.name);
    const ir::Type& t = slot(tensor).type;
    const std::int64_t factor = t.shape[0].factor;
    const std::string scale = factor == 1 ? "" : fmt::format(" * {}", factor),
                      stride = fmt::format("call.tensors[{}].token", tensor);
    const std::string memory =
        fmt::format("{} + row{} * {}{}", global(r.name), scale, stride, column_offset(tensor, r.at));
    c_.reads(r.value);
    ask_for_next(op.type, tensor, global(r.name), true);
    const ByOne by_one(*this, t);
    if (op.type.rank() == 1)
        return out_.line("store_vector<{}, {}>({}, {}, {}, rows{});", storage_type(t.dtype), size_of(op.type, 0),
                         memory, stride, c_.name(r.value), scale);
    transfer({storage_type(t.dtype), c_.name(r.value), memory, constants(op.type), op.layout->strides,
              memory_strides(tensor, op.type.rank() - 1, true), "rows" + scale, "", columns_of(tensor, r.at)});
}

void Transfers::clear_outputs() {
    for (const ir::Result& r : fn_.results) {
        if (r.role != Role::Input) continue;
        const int tensor = plan_.tensor(SlotKind::Output, r.name);
        const ir::Type& type = slot(tensor).type;
        std::vector<std::int64_t> sizes = constants(fn_.op(r.value).type);
        sizes.front() = type.shape[0].factor;
        const ByOne by_one(*this, type);
        out_.line("clear_rows<{0}>(token_rows<{1}>(call, {2}, at, {3}){4}{5}, call.tensors[{2}], at);",
                  fmt::join(sizes, ", "), storage_type(type.dtype), tensor, sizes.front(), tile_offset(tensor, 2),
                  column_offset(tensor, r.at));
    }
}

std::int64_t Transfers::rows_of_image(const std::string& spill) const {
    tile::Sizes sizes = plan_.schedule.held(plan_.sizes);
    sizes[ir::kChunkSymbol] = plan_.schedule.chunk;
    return size_of(tile::with_sizes(spill_slot(spill).type, sizes), 0);
}

std::string Transfers::part_of_image(const std::string& spill, const ir::Type& held) const {
    const std::int64_t rows = rows_of_image(spill);
    const plan::SpillSlot& slot = spill_slot(spill);
    const bool one_piece = size_of(held, 1) == tile::kBlock && (slot.parts <= 1 || slot.split_later),
               whole = rows == size_of(held, 0) || one_piece;
    return whole ? "" : fmt::format("_part<{}>", rows);
}

/// Floats from the beginning of a spill to the block of it that begins at `at`: of an image, to a block of a panel.
std::int64_t Transfers::offset_in_spill(const plan::SpillSlot& slot, const At& at) const {
    std::int64_t floats = 0;
    if (at.empty()) return floats;
    const std::int64_t row = slot.split_later ? 2 * tile::kBlock : tile::kBlock;  // in numbers of 16 bits
    if (slot.parts > 0) return (at[1] * rows_of_image(slot.name) * slot.parts + at[0] * row) / 2;
    for (std::size_t axis = 0; axis < at.size(); ++axis) floats += at[axis] * slot.strides[axis];
    return floats;
}

std::string Transfers::spill_pointer(const std::string& spill, const char* block, const At& at) const {
    const plan::SpillSlot& slot = spill_slot(spill);
    std::string text = fmt::format("call.spills[{}] + {} * {}", plan_.spill(spill), block, slot.floats);
    for (std::size_t axis = 0; axis < slot.type.shape.size(); ++axis) {
        if (!is_cut(slot.type.shape[axis])) continue;
        At next(slot.type.shape.size(), 0);  // where the second part begins
        next[axis] = slot.type.shape[axis].factor * c_.kernel.cut.size;
        text += fmt::format(" + at.tile * {}", offset_in_spill(slot, next));
    }
    if (const std::int64_t floats = offset_in_spill(slot, at); floats > 0) text += fmt::format(" + {}", floats);
    return text;
}

void Transfers::declare_spill(ValueId v, const std::string& spill) {
    const Op& op = fn_.op(v);
    out_.line("const float* const {} = {};", c_.name(v), spill_pointer(spill, "block"));
    if (!plan::in_order(c_.kernel.graph.loop)) return;
    const std::int64_t columns = op.type.rank() == 0 ? 1 : size_of(op.type, op.type.rank() - 1),
                       stride = op.type.rank() < 2 ? 0 : row_stride(op.layout->strides);
    constexpr std::int64_t kAtOnce = 32;
    const std::int64_t rows = op.type.rank() < 2 ? 1 : row_count(op.type);
    for (std::int64_t row = 0; row < rows; row += kAtOnce)
        request(fmt::format("prefetch_rows<{}, {}, false>({} {} call.heads * {}{}, {});", std::min(kAtOnce, rows - row),
                            columns, c_.name(v), onwards(), spill_slot(spill).floats,
                            row == 0 ? "" : fmt::format(" + {}", row * stride), stride));
}

/// The tile of a value and its part of a spill, one to the other.
void Transfers::copy_spill(const std::string& spill, ValueId v, const char* block, bool load, const At& at) {
    const plan::SpillSlot& slot = spill_slot(spill);
    const Op& op = fn_.op(v);
    std::string tile = c_.name(v), memory = spill_pointer(spill, block, at);
    if (!load && op.type.rank() == 0 && ir::is_view(op.code))
        return out_.line("copy_floats<1>({}, {});", memory, c_.place(op.layout->offset));
    if (op.layout->strides == slot.strides || op.type.rank() < 2)
        return out_.line("copy_floats<{}>({}, {});", c_.floats(v), load ? tile : memory, load ? memory : tile);
    const int rank = op.type.rank(), loops = is_one_matrix(op.type, slot.strides) ? 0 : rank - 2;
    std::int64_t rows = row_count(op.type);
    for (int axis = 0; axis < loops; ++axis) {
        const auto a = static_cast<std::size_t>(axis);
        out_.open(fmt::format("for (Size i{0} = 0; i{0} < {1}; ++i{0})", axis, size_of(op.type, axis)));
        tile += fmt::format(" + i{} * {}", axis, op.layout->strides[a]);
        memory += fmt::format(" + i{} * {}", axis, slot.strides[a]);
        rows /= size_of(op.type, axis);
    }
    const std::int64_t in_tile = row_stride(op.layout->strides), in_memory = row_stride(slot.strides);
    out_.line("copy_tile<{}, {}, {}, {}>({}, {});", rows, size_of(op.type, rank - 1), load ? in_tile : in_memory,
              load ? in_memory : in_tile, load ? tile : memory, load ? memory : tile);
    for (int axis = 0; axis < loops; ++axis) out_.close();
}

kernel::Accesses Transfers::source(ValueId v) const {
    return c_.is_param(v, Role::Spill) ? spilled(fn_.op(v).attrs.name) : kernel::Accesses{};
}

void Transfers::load_spill(ValueId v, const std::string& spill, const char* block) {
    c_.next("load " + c_.name(v), spilled(spill), c_.memory(v));
    copy_spill(spill, v, block, true, fn_.op(v).attrs.at);
}

void Transfers::store_spill(const std::string& spill, ValueId v, const char* block, const At& at) {
    c_.reads(v);
    copy_spill(spill, v, block, false, at);
}

}  // namespace forge::emit
