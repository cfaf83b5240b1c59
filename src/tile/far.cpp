#include "tile/far.h"

#include <algorithm>

#include "tile/arena.h"
#include "tile/lower.h"

namespace forge::tile {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

namespace {

/// What lies in one memory, from its first use to its last.
struct Life {
    BufferName name;
    std::int64_t floats = 0;
    std::size_t begin = 0, end = 0;
    std::int64_t offset = 0;

    [[nodiscard]] bool is_beside(const Life& other) const { return begin < other.end && other.begin < end; }
};

/// The largest first.
std::vector<Life> lives_of(const std::vector<BufferUse>& uses) {
    std::vector<Life> lives;
    std::map<BufferName, std::size_t> known;
    for (std::size_t at = 0; at < uses.size(); ++at) {
        if (uses[at].begins) {
            known[uses[at].name] = lives.size();
            lives.push_back({uses[at].name, uses[at].floats, at, uses.size()});
        } else {
            lives[known.at(uses[at].name)].end = at;
        }
    }
    std::stable_sort(lives.begin(), lives.end(), [](const Life& a, const Life& b) { return a.floats > b.floats; });
    return lives;
}

/// One after the other, each as low as those that live at the same time leave room for. Returns the floats of all.
std::int64_t pack(std::vector<Life>& lives) {
    std::int64_t size = 0;
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;  // from, to
    for (auto life = lives.begin(); life != lives.end(); ++life) {
        taken.clear();
        for (auto other = lives.begin(); other != life; ++other)
            if (other->is_beside(*life)) taken.emplace_back(other->offset, other->offset + other->floats);
        std::sort(taken.begin(), taken.end());
        for (const auto& [from, to] : taken) {
            if (life->offset + life->floats <= from) break;
            life->offset = std::max(life->offset, to);
        }
        size = std::max(size, life->offset + life->floats);
    }
    return size;
}

/// Buffers one after the other, in those that have become free.
std::int64_t handed_out(const std::vector<BufferUse>& uses, std::map<BufferName, std::int64_t>& offsets) {
    Arena arena(false);
    for (const BufferUse& use : uses) {
        if (use.begins) offsets[use.name] = arena.take(use.floats);
        else arena.give(offsets.at(use.name), use.floats);
    }
    return arena.size();
}

}  // namespace

Arenas placed(const std::vector<BufferUse>& uses, const std::set<BufferName>& far, bool short_of_memory) {
    Arenas arenas;
    if (!short_of_memory) {
        arenas.shared_floats = handed_out(uses, arenas.offsets);
        return arenas;
    }
    std::vector<Life> near, distant;
    for (const Life& life : lives_of(uses)) (far.contains(life.name) ? distant : near).push_back(life);
    arenas.shared_floats = pack(near), arenas.far_floats = pack(distant);
    for (const Life& life : near) arenas.offsets[life.name] = life.offset;
    for (const Life& life : distant) arenas.offsets[life.name] = arenas.shared_floats + life.offset;
    return arenas;
}

std::function<std::int64_t(const std::set<BufferName>&)> shared_floats_of(const std::vector<BufferUse>& uses) {
    return [lives = lives_of(uses)](const std::set<BufferName>& far) {
        std::vector<Life> near;
        for (const Life& life : lives)
            if (!far.contains(life.name)) near.push_back(life);
        return pack(near);
    };
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
