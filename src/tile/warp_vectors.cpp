#include "tile/warp_vectors.h"

#include <algorithm>
#include <array>

#include "tile/fragments.h"

namespace forge::tile {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Space = ir::Layout::Space;

bool one_warp_makes(const Op& op) {
    constexpr std::array kFunctions = {Opcode::Sum,        Opcode::Amax,      Opcode::Cumsum,
                                       Opcode::LinearScan, Opcode::DecayMask, Opcode::Copy};  // warpgroup/vectors.h
    if (std::find(kFunctions.begin(), kFunctions.end(), op.code) != kFunctions.end()) return true;
    if (op.code == Opcode::Param) return op.attrs.role == Role::Input || op.attrs.role == Role::Mask;
    return ir::is_elementwise(op.code) && op.type.dtype != DType::Bool;
}

bool is_number_anywhere(const Function& fn, ValueId v) {
    const auto is_made = [&](ValueId u) { return ir::is_elementwise(fn.op(u).code) || fn.op(u).code == Opcode::Copy; };
    const auto lies_elsewhere = [&](ValueId u) {
        const Op& op = fn.op(u);
        if (op.type.rank() != 0 || op.layout->space != Space::Reg) return true;
        return op.code != Opcode::Param && op.code != Opcode::Constant && !is_made(u);
    };
    return !ir::comes_from(fn, v, lies_elsewhere, is_made);
}

std::vector<ValueId> vectors_alone(const Function& fn) {
    std::vector<bool> alone(fn.ops.size(), false);
    std::vector<ValueId> found;
    const auto is_alone = [&](ValueId a) { return alone[static_cast<std::size_t>(a)]; };
    const auto small = [](const ir::Type& type) {
        return type.rank() == 0 || (type.rank() == 1 && type.shape[0].factor == kBlock);
    };
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        if (!one_warp_makes(op)) continue;
        bool can = op.code == Opcode::DecayMask ? op.type.shape[0].factor == kBlock : small(op.type);
        if (op.code == Opcode::Param) can = can && op.type.rank() == 1;
        else
            can = can && std::any_of(op.args.begin(), op.args.end(), is_alone) &&
                  std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) {
                      return is_alone(a) || (op.code != Opcode::LinearScan && is_number_anywhere(fn, a));
                  });
        if (can) found.push_back(v);
        alone[static_cast<std::size_t>(v)] = can;
    }
    return found;
}

}  // namespace forge::tile
