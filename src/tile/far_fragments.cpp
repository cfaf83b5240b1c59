#include <map>

#include "tile/decay_group.h"
#include "tile/far.h"
#include "tile/fragment_steps.h"
#include "tile/layout.h"

namespace forge::tile {

using ir::Op;
using ir::Opcode;
using ir::ValueId;

std::vector<Buffer> may_be_far(const ir::Function& fn) {
    constexpr std::int64_t kLeastFar = 1024;  // floats
    std::map<ValueId, Buffer> found;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        const bool tile =
            op.layout->space == ir::Layout::Space::Tile && op.code != Opcode::Param && !ir::is_view(op.code);
        if (tile && op.type.rank() == 2 && tile_floats(op.type, kFragmentRules) >= kLeastFar)
            found[v] = {{v, false}, tile_floats(op.type, kFragmentRules), 0};
    }
    std::set<ValueId> near;
    for (const DecayGroup& group : decay_groups(fn))
        for (const ValueId v : group.members()) near.insert(v);
    for (const ir::Result& r : fn.results)
        if (is_carried(r.role)) near.insert(buffer_of(fn, r.value));
    for (ValueId v = 0; v < fn.size(); ++v)
        for (const ValueId t : tiles_read_by(fn, v)) {
            const Opcode code = fn.op(v).code;
            const bool decays = code == Opcode::DecayMatmul || code == Opcode::DecayApply || code == Opcode::DecayRows;
            if (decays) near.insert(t);
            else if (const auto it = found.find(t); it != found.end()) it->second.reads += reads_of(fn, v, t);
        }
    std::vector<Buffer> buffers;
    for (const auto& [v, buffer] : found)
        if (!near.contains(v)) buffers.push_back(buffer);
    return buffers;
}

}  // namespace forge::tile
