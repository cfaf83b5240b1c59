/// Inputs that the hardware copies, asked by one thread: those of all chunks by the producer of a task's warp groups,
/// those of a task of one chunk in groups that report to barriers (device/cuda/warpgroup/arrivals.h); and what maps of
/// tensors say of where they lie.
#include <algorithm>

#include "emit/cuda/fragment_inputs.h"
#include "emit/statements.h"

namespace forge::emit {

using ::forge::kernel::By;
using ::forge::kernel::Kind;
using ::forge::kernel::Statement;
using ::forge::kernel::When;
using ir::Op;
using ir::Role;
using ir::ValueId;
using Space = ir::Layout::Space;

bool FragmentInputs::is_mapped(int tensor) const {
    return std::find(maps_.begin(), maps_.end(), tensor) != maps_.end();
}

void FragmentInputs::declare_map(const std::string& name, int tensor) {
    const auto map = std::find(maps_.begin(), maps_.end(), tensor);
    if (map == maps_.end()) return;
    const std::int64_t factor = input_of(tensor).type.shape[0].factor;
    out_.line("const Mapped {}_map(maps, {}, call, {}, at, {}{});", cpp_identifier(name), map - maps_.begin(), tensor,
              transfers_.first_column(tensor), factor == 1 ? "" : fmt::format(", {}", factor));
}

std::string FragmentInputs::map_of(const std::string& name, const Transfers::At& at) const {
    const std::string map = cpp_identifier(name) + "_map";
    return arrivals_ ? fmt::format("{}.at({})", map, at.empty() ? 0 : at.back()) : map;
}

namespace {

/// Whether the hardware copies a chunk's rows of tensors.
constexpr const char* kByCopies = "by_copies(maps, call, rows, kChunk)";

}  // namespace

void FragmentInputs::store_rows(int tensor, const std::string& name, const Transfers::At& at, const std::string& rows,
                                const std::string& part, const std::string& operand) {
    out_.line("store_operand{}({}, {}, {}, {}, {}, {}{});", arrivals_ && part.empty() ? "_briefly" : "",
              arrivals_ ? "by_copy" : kByCopies, map_of(name, at), row_count(plan_, tensor, "row"), rows, operand,
              row_count(plan_, tensor), part);
}

/// Of the tensor's rows that a chunk has of it.
std::string FragmentInputs::first_row(ValueId v) const {
    const std::string row = row_count(plan_, transfers_.tensor_of(fn_.op(v)), "row");
    return c_.is_param(v, Role::Shifted) ? fmt::format("{} - {}", row, input_slot(v).type.shape[0].factor) : row;
}

bool FragmentInputs::is_copied_spill(ValueId v) const {
    const Op& op = fn_.op(v);
    return c_.is_param(v, Role::Spill) && op.layout->space != Space::Spill && !is_part_of_rows(v) &&
           (!c_.is_operand(v) || is_float_image(v) || transfers_.part_of_image(op.attrs.name, op.type).empty());
}

bool FragmentInputs::is_copied_matrix(ValueId v) const {
    return is_matrix(v) && c_.is_operand(v) && is_mapped(transfers_.tensor_of(fn_.op(v)));
}

void FragmentInputs::begin_arrivals() {
    if (!arrivals_) return;
    const tile::TileKernel& tiles = c_.kernel.tiles;
    std::string boxes;
    for (const int tensor : maps_) {
        const std::int64_t factor = input_of(tensor).type.shape[0].factor;
        const auto part = transfers_.part_of_tile(tensor, 2);
        boxes += fmt::format("{}{{{}{}{}}}", boxes.empty() ? "" : ", ", tensor,
                             part || factor != 1 ? fmt::format(", {}", factor) : "",
                             part ? fmt::format(", {}", part->numbers) : "");
    }
    if (!boxes.empty()) {
        out_.line("static constexpr BoxOf kBoxes[] = {{{}}};", boxes);
        out_.line("keep_boxes(call, at, kBoxes, scratch + {});", tiles.boxes);
    }
    out_.line("const bool by_copy = by_copies(maps, call, rows_of(row), kChunk);");
    out_.line("Arrivals<{}> arrivals(scratch + {});", tiles.arriving_groups, tiles.arrivals);
    for (std::size_t n = 0; n < maps_.size(); ++n)
        out_.line("const KeptBoxes {}_map{{maps.map[{}], scratch + {}}};", cpp_identifier(input_of(maps_[n]).name), n,
                  tiles.boxes + 4 * static_cast<std::int64_t>(n));
    if (transfers_.has_tensors()) return;  // whose addresses are kept by threads that then meet
    out_.add(group_barrier());
}

/// Of a group; where they report to barriers, those that the hardware can copy first.
void FragmentInputs::start_all(const std::vector<ValueId>& values) {
    std::vector<ValueId> spills, mapped;
    for (const ValueId v : values) {
        if (arrivals_ && is_copied_spill(v)) spills.push_back(v);
        else if (arrivals_ && is_copied_matrix(v) && c_.is_param(v, Role::Input)) mapped.push_back(v);
        else start_one(v);
    }
    if (spills.empty() && mapped.empty()) return;
    copy_by_one_thread(spills, mapped);
    if (mapped.empty()) return;
    out_.open("if (!by_copy)");
    for (const ValueId v : mapped) write_matrix(v, "start_rows<Group>");
    out_.close();
}

/// Where warps do nothing else: one thread has the hardware copy spills, and matrices that have maps; vectors are
/// read later.
void FragmentInputs::declare_copying_start() {
    std::vector<ValueId> spills, mapped;
    for (ValueId v = 0; v < fn_.size(); ++v) {
        if (c_.is_param(v, Role::Spill)) spills.push_back(v);
        else if (is_copied_matrix(v)) mapped.push_back(v);
    }
    const bool shifted =
        std::any_of(mapped.begin(), mapped.end(), [&](ValueId v) { return c_.is_param(v, Role::Shifted); });
    begin_start();
    if (!mapped.empty())  // rows before those of a chunk may be another sequence's, and one too many where it ends
        out_.line("const bool by_copy = {}{};", kByCopies, shifted ? " && row > 0 && rows == kChunk" : "");
    if (!spills.empty() || !mapped.empty()) copy_by_one_thread(spills, mapped);
    for (ValueId v = 0; v < fn_.size(); ++v)
        if (is_matrix(v) && std::find(mapped.begin(), mapped.end(), v) == mapped.end())
            start_matrix(v, "start_rows<Warp>");
    out_.next();
    if (!mapped.empty()) out_.line("if (by_copy) return;");
    for (const ValueId v : mapped) start_matrix(v, "start_rows<Warp>", When::ByThreads);
    out_.end("};");
}

std::int64_t FragmentInputs::floats_that_arrive(ValueId v) const {
    const ir::Type& type = fn_.op(v).type;
    const bool numbers_alone = is_float_image(v) || arrives_as_floats(v) || is_part_of_rows(v);
    return numbers_alone ? tile::size_of(type, 0) * tile::size_of(type, 1) : c_.floats(v);
}

void FragmentInputs::copy_by_one_thread(const std::vector<ValueId>& spills, const std::vector<ValueId>& mapped) {
    const auto bytes = [&](const std::vector<ValueId>& values) {
        std::int64_t sum = 0;
        for (const ValueId v : values)
            sum += beside(v) * floats_that_arrive(v) * static_cast<std::int64_t>(sizeof(float));
        return sum;
    };
    const std::int64_t least = bytes(spills), all = least + bytes(mapped);
    const std::string expected = mapped.empty() ? std::to_string(all) : fmt::format("by_copy ? {} : {}", all, least);
    announce(spills, mapped);
    out_.open(arrivals_ ? "if (thread() == 0)" : "if (lane() == 0)");
    out_.line("const unsigned filled = {}{});", arrivals_ ? "arrivals.expect(" : "stages.expect(stage, ", expected);
    for (const ValueId v : spills) {
        const std::string from = transfers_.spill_pointer(fn_.op(v).attrs.name, "block", fn_.op(v).attrs.at);
        if (is_float_image(v))
            out_.line("copy_float_image<{}>(filled, {}({}), {});", transfers_.rows_of_image(fn_.op(v).attrs.name),
                      operand_type(v), arriving(v), from);
        else if (c_.is_operand(v)) out_.line("copy_image(filled, {}({}), {});", operand_type(v), arriving(v), from);
        else if (const Op& op = fn_.op(v); is_part_of_rows(v))
            out_.line("copy_parts_of_rows<{}, {}, {}>(filled, {}, {}, {});", tile::size_of(op.type, 0),
                      tile::size_of(op.type, 1), op.layout->strides[0], arriving(v), from,
                      transfers_.spill_slot(op.attrs.name).strides[0]);
        else out_.line("copy_numbers<{}>(filled, {}, {});", c_.floats(v), arriving(v), from);
    }
    if (!mapped.empty()) {
        out_.open("if (by_copy)");
        for (const ValueId v : mapped)
            out_.line("{}(filled, {}, {}, {});", arrives_as_floats(v) ? "copy_operand_of_floats" : "copy_operand",
                      arriving_operand(v), map_of(fn_.op(v).attrs.name, fn_.op(v).attrs.at), first_row(v));
        out_.close();
    }
    out_.close();
}

/// What the lines that follow ask for. A task of one chunk waits for its groups itself, however they are copied.
void FragmentInputs::announce(const std::vector<ValueId>& spills, const std::vector<ValueId>& mapped) {
    const auto comes = [&](ValueId v, When when) {
        if (arrivals_) return copies(v, When::Always);
        Statement copy{Kind::BulkCopy, c_.name(v), transfers_.source(v), arriving_memory(v)};
        copy.when = when, copy.by = By::Warp, copy.channel = Context::kStages;
        out_.next(std::move(copy));
    };
    for (const ValueId v : spills) comes(v, When::Always);
    for (const ValueId v : mapped) comes(v, When::ByHardware);
}

}  // namespace forge::emit
