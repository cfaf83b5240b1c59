#include "tile/vector_scan.h"

#include <algorithm>

#include "ir/infer.h"
#include "tile/order.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

/// A number, or numbers along one axis, two for each thread.
bool is_vector(const ir::Type& type) {
    constexpr std::int64_t kOfThread = 2;
    const std::int64_t count = numbers_of(type);
    return count == 1 || (count % kOfThread == 0 && std::any_of(type.shape.begin(), type.shape.end(),
                                                                [&](const Dim& d) { return d.factor == count; }));
}

/// Whether threads can have it as it lies in memory.
bool is_parameter(const Op& op) {
    switch (op.attrs.role) {
        case Role::State:
        case Role::Spill:
            return op.type.rank() <= 1;
        case Role::Scalar:
        case Role::Head:
            return op.type.rank() == 0;
        default:
            return false;
    }
}

bool is_spill(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::Spill; }

/// One of the numbers that another kernel left.
bool is_number_of_spill(const Function& fn, const Op& op) {
    return op.code == Opcode::Select && is_spill(fn.op(op.args[0])) && fn.op(op.args[0]).type.rank() == 1;
}

/// Whether each number of the result follows from the same one of every operand, or from operands that are one number.
bool is_by_element(const Function& fn, const Op& op) {
    const bool view = op.code == Opcode::Unsqueeze || op.code == Opcode::Squeeze || op.code == Opcode::Copy;
    if (!view && ir::along(op.code) != ir::Along::Pointwise) return false;
    return std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) {
        const std::int64_t count = numbers_of(fn.op(a).type);
        return count == 1 || count == numbers_of(op.type);
    });
}

bool is_held_by_threads(const Function& fn, const Op& op) {
    if (!is_vector(op.type)) return false;
    if (op.code == Opcode::Param) return is_parameter(op);
    return op.code == Opcode::Constant || is_number_of_spill(fn, op) || is_by_element(fn, op);
}

bool is_stored(const Function& fn, const ir::Result& r) {
    const bool somewhere = r.role == Role::State || r.role == Role::Spill || r.role == Role::Before;
    return somewhere && fn.op(r.value).type.rank() <= 1;
}

/// Chunks whose inputs a thread asks for at a time, in so many of its registers.
int chunks_ahead(const Function& fn) {
    constexpr std::int64_t kMost = 16, kRegisters = 128;
    std::int64_t registers = 0;
    for (ValueId v = 0; v < fn.size(); ++v)
        if (arrives_with_chunk(fn, v)) registers += numbers_of(fn.op(v).type) == 1 ? 1 : 2;
    return static_cast<int>(std::clamp<std::int64_t>(kRegisters / std::max<std::int64_t>(1, registers), 1, kMost));
}

}  // namespace

std::int64_t numbers_of(const ir::Type& type) {
    std::int64_t count = 1;
    for (int axis = 0; axis < type.rank(); ++axis) count *= size_of(type, axis);
    return count;
}

bool arrives_with_chunk(const Function& fn, ValueId v) {
    if (!is_spill(fn.op(v))) return fn.op(v).code == Opcode::Select;
    const auto reads_all = [&](const Op& op) {
        return op.code != Opcode::Select && std::find(op.args.begin(), op.args.end(), v) != op.args.end();
    };
    return std::any_of(fn.ops.begin(), fn.ops.end(), reads_all) ||
           std::any_of(fn.results.begin(), fn.results.end(), [&](const ir::Result& r) { return r.value == v; });
}

std::optional<TileKernel> as_vector_scan(const Function& kernel, const Sizes& sizes) {
    TileKernel scan;
    scan.fn = with_carried_params(kernel);
    for (Op& op : scan.fn.ops) op.type = with_sizes(std::move(op.type), sizes), op.layout = ir::Layout{};
    const bool held = std::all_of(scan.fn.ops.begin(), scan.fn.ops.end(),
                                  [&](const Op& op) { return is_held_by_threads(scan.fn, op); }) &&
                      std::all_of(scan.fn.results.begin(), scan.fn.results.end(),
                                  [&](const ir::Result& r) { return is_stored(scan.fn, r); });
    if (!held) return std::nullopt;
    scan.stages = chunks_ahead(scan.fn);
    scan.by_element = true;
    return scan;
}

}  // namespace forge::tile
