#include "tile/far.h"

#include <algorithm>

#include "tile/arena.h"
#include "tile/lower.h"

namespace forge::tile {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

Arenas placed(const std::vector<BufferUse>& uses, const std::set<BufferName>& far, bool join) {
    Arena shared(join), distant(join);
    Arenas arenas;
    for (const BufferUse& use : uses) {
        Arena& arena = far.contains(use.name) ? distant : shared;
        if (use.begins) arenas.offsets[use.name] = arena.take(use.floats);
        else arena.give(arenas.offsets.at(use.name), use.floats);
    }
    arenas.shared_floats = shared.size();
    arenas.far_floats = distant.size();
    for (const BufferName& name : far) arenas.offsets.at(name) += arenas.shared_floats;
    return arenas;
}

double reads_of(const Function& fn, ValueId v, ValueId operand) {
    constexpr double kPatch = 16;  // rows and columns of results that a warp makes from what it has read once
    const Op& op = fn.op(v);
    const auto blocks = [&](int axis) { return std::max(1.0, static_cast<double>(size_of(op.type, axis)) / kPatch); };
    const bool product = ir::is_matmul(op.code) || op.code == Opcode::DecayMatmul || op.code == Opcode::DecayApply;
    double reads = 0;
    for (std::size_t i = 0; i < op.args.size(); ++i)
        if (buffer_of(fn, op.args[i]) == operand) reads += !product || i == 2 ? 1 : blocks(i == 0 ? 1 : 0);
    return std::max(reads, op.code == Opcode::Inverse ? blocks(0) : 1.0);
}

std::set<BufferName> far_buffers(std::vector<Buffer> buffers, std::int64_t most,
                                 const std::function<std::int64_t(const std::set<BufferName>&)>& shared_floats) {
    std::stable_sort(buffers.begin(), buffers.end(), [](const Buffer& a, const Buffer& b) {
        return a.reads != b.reads ? a.reads < b.reads : a.floats > b.floats;
    });
    std::set<BufferName> far;
    for (const Buffer& b : buffers) {
        if (shared_floats(far) <= most) break;
        far.insert(b.name);
    }
    for (auto b = buffers.rbegin(); b != buffers.rend(); ++b)
        if (far.erase(b->name) > 0 && shared_floats(far) > most) far.insert(b->name);
    return far;
}

}  // namespace forge::tile
