#include "dist/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "dist/fold.h"
#include "support/random.h"

namespace forge::dist::detail {
namespace {

using Map = Carried::Map;

constexpr std::int64_t kTileFloats = 4096;
constexpr std::size_t kHead = 16;  ///< floats before a summary's tile, the first of which says what it is
constexpr float kNothing = 0, kAdded = 1, kMapped = 2;  ///< no state goes on; B alone, as D is 0; D and B

std::int64_t product(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool is_matrix(Map map) { return map == Map::Left || map == Map::Right; }

}  // namespace

std::int64_t Field::block() const { return product(shape); }
std::int64_t Field::map_block() const { return map == Map::Identity || map == Map::None ? 0 : product(map_shape); }

Exchange::Exchange(std::vector<Field> fields, std::uint64_t plan, bool reverse)
    : fields_(std::move(fields)), plan_(support::mix(plan ^ (reverse ? 1U : 0U))), reverse_(reverse) {
    for (std::size_t f = 0; f < fields_.size(); ++f) {
        const Field& field = fields_[f];
        const std::int64_t block = field.block(), map = field.map_block();
        const std::int64_t rows = field.shape.empty() ? 1 : field.shape[0], width = rows > 0 ? block / rows : 0;
        const std::int64_t most =
            is_matrix(field.map) ? rows
                                 : std::clamp<std::int64_t>(kTileFloats / std::max<std::int64_t>(1, width), 1, rows);
        const bool map_has_rows = map > 0 && !is_matrix(field.map) && !field.shape.empty() && field.map_shape[0] != 1;
        for (std::int64_t lane = 0; lane < field.lanes; ++lane)
            for (std::int64_t row = 0; row < rows; row += most) {
                const std::int64_t count = std::min(most, rows - row);
                Tile tile{f, lane * block + row * width, count * width, lane * map, map, count, total_};
                if (map_has_rows) tile.map += row * (map / rows), tile.map_count = count * (map / rows);
                tiles_.push_back(tile);
                total_ += static_cast<std::size_t>(tile.count);
                entry_ = std::max(entry_, kHead + static_cast<std::size_t>(tile.count + tile.map_count));
            }
        for (const std::int64_t n : {field.lanes, static_cast<std::int64_t>(field.map), block, map})
            plan_ = support::mix(plan_ ^ static_cast<std::uint64_t>(n));
    }
}

bool Exchange::summed() const {
    return std::none_of(fields_.begin(), fields_.end(), [](const Field& f) { return f.map == Map::None; });
}

Scheme Exchange::scheme(const Space& space, const Gpu* gpu) const {
    Volume volume{space.size(), 0, 0, false, summed()};
    for (const Field& f : fields_) {
        volume.state_bytes += 4.0 * static_cast<double>(f.lanes * f.block());
        volume.map_bytes += 4.0 * static_cast<double>(f.lanes * f.map_block());
        volume.matrices = volume.matrices || is_matrix(f.map);
    }
    const Scheme wanted = space.options().scheme;
    for (const Priced& p : price(volume, gpu && gpu->reaches() ? link_named("nvlink") : space.link())) {
        if (wanted == Scheme::Auto) return p.scheme;
        const bool direct = space.size() == 2 && p.scheme == Scheme::Direct && p.why.empty() &&
                            (wanted == Scheme::Ring || wanted == Scheme::ScatterScanGather);
        if (p.scheme != wanted && !direct) continue;
        if (!p.why.empty())
            throw RuntimeError(fmt::format("scheme: expected one that these ranks and states can have, got {}: {}",
                                           to_string(wanted), p.why));
        return p.scheme;
    }
    throw InternalError("exchange: no scheme");
}

std::uint64_t Exchange::begin(Space& space, Scheme scheme) const {
    space.note(scheme);
    const auto ranks = static_cast<std::size_t>(space.size()), tiles = tiles_.size();
    std::size_t entries = 0, flags = tiles;
    if (scheme == Scheme::ScatterScanGather) entries = ranks * ((tiles + ranks - 1) / ranks), flags += tiles;
    if (scheme == Scheme::AllGather) entries = ranks * tiles;
    return space.begin(support::mix(plan_ ^ static_cast<std::uint64_t>(scheme)), total_ + entries * entry_,
                       std::max<std::size_t>(flags, 1));
}

void Exchange::apply(const Tile& tile, const float* map, const float* before, const float* added, float* after) const {
    detail::apply(fields_[tile.field], tile.rows, tile.count, map, before, added, after);
}

/// Factors that have fallen to 0: usual after a few thousand tokens with gates. Nothing of the state before is left, so
/// that nobody needs to wait for it.
bool Exchange::is_zero(const Summary& summary, const Tile& tile) const {
    if (summary.fresh) return true;
    if (tile.map_count == 0) return false;
    const float* map = summary.maps[tile.field] + tile.map;
    return std::all_of(map, map + tile.map_count, [](float x) { return x == 0; });
}

std::size_t Exchange::size_of(std::size_t field) const {
    return static_cast<std::size_t>(fields_[field].lanes * fields_[field].block());
}

void Exchange::scan(Space& space, Gpu* gpu, const Summary& summary, const std::vector<float*>& incoming) {
    if (space.size() == 1 || tiles_.empty()) return;
    if (!gpu) return scan_on_host(space, summary, incoming);
    if (!gpu->reaches()) return scan_staged(space, *gpu, summary, incoming);
    // Where summaries are there, what goes from rank to rank in turn is a ring.
    const Scheme wanted = scheme(space, gpu), taken = wanted == Scheme::Serial ? Scheme::Ring : wanted;
    space.note(taken);
    gpu->exchange(fields_, taken, reverse_, support::mix(plan_ ^ static_cast<std::uint64_t>(taken)), summary, incoming);
}

/// By way of the host, where ranks cannot write into each other's GPUs.
void Exchange::scan_staged(Space& space, Gpu& gpu, const Summary& summary, const std::vector<float*>& incoming) {
    HostCopies copies(gpu);
    Summary staged = summary;
    std::vector<float*> came;
    for (std::size_t f = 0; f < fields_.size(); ++f) {
        const auto maps = static_cast<std::size_t>(fields_[f].lanes * fields_[f].map_block());
        if (summary.sends) staged.states[f] = copies.fetch(summary.states[f], size_of(f));
        if (summary.sends && summary.maps[f]) staged.maps[f] = copies.fetch(summary.maps[f], maps);
        came.push_back(copies.take(size_of(f)));
    }
    scan_on_host(space, staged, came);
    for (std::size_t f = 0; summary.receives && f < fields_.size(); ++f) gpu.upload(came[f], size_of(f), incoming[f]);
}

void Exchange::scan_on_host(Space& space, const Summary& summary, const std::vector<float*>& incoming) {
    const Scheme taken = scheme(space);
    if (taken == Scheme::Serial) return scan_serially(space, summary, incoming);
    begin(space, taken);
    switch (taken) {
        case Scheme::Direct:
        case Scheme::Ring:
            ring(space, summary, incoming);
            break;
        case Scheme::ScatterScanGather:
            scatter_scan_gather(space, summary, incoming);
            break;
        case Scheme::AllGather:
            space.shares_memory() ? all_gather(space, summary, incoming)
                                  : all_gather_messages(space, summary, incoming);
            break;
        case Scheme::Serial:
        case Scheme::Auto:
            throw InternalError("exchange: this scheme sums nothing up");
    }
    space.end();
}

/// Summaries that are passed on one after the other.
void Exchange::scan_serially(Space& space, const Summary& summary, const std::vector<float*>& incoming) {
    std::vector<std::vector<float>> sums;
    std::vector<float*> outgoing;
    for (const Field& f : fields_)
        outgoing.push_back(sums.emplace_back(static_cast<std::size_t>(f.lanes * f.block())).data());
    serial_on_host(space, summary.receives, summary.sends, incoming, outgoing, [&] {
        for (const Tile& tile : tiles_) {
            if (!summary.sends) return;
            float* after = outgoing[tile.field] + tile.state;
            const float* added = summary.states[tile.field] + tile.state;
            const float* map = tile.map_count > 0 && !summary.fresh ? summary.maps[tile.field] + tile.map : nullptr;
            if (is_zero(summary, tile)) std::copy_n(added, tile.count, after);
            else apply(tile, map, incoming[tile.field] + tile.state, added, after);
        }
    });
}

/// A tile is summed up and sent on as soon as it is there, so that the tiles of a border are under way to different
/// ranks at a time. The waits have no cycle: a rank waits for the rank before, and the first one for nobody.
void Exchange::ring(Space& space, const Summary& summary, const std::vector<float*>& incoming) {
    const int p = position(space), before = at(space, p - 1), after = at(space, p + 1);
    const auto send = [&](std::size_t t, const float* data) {
        space.put(after, tiles_[t].place, data, static_cast<std::size_t>(tiles_[t].count));
        space.signal(after, t);
    };
    if (summary.sends) space.wait_credit(after);
    std::vector<bool> sent(tiles_.size());
    for (std::size_t t = 0; summary.sends && t < tiles_.size(); ++t)
        if (is_zero(summary, tiles_[t])) send(t, summary.states[tiles_[t].field] + tiles_[t].state), sent[t] = true;
    if (!summary.receives) return;
    std::vector<float> sum;
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
        const Tile& tile = tiles_[t];
        space.wait(t, before);
        const float* came = space.ptr(space.rank(), tile.place);
        if (summary.sends && !sent[t]) {
            const float* map = tile.map_count > 0 ? summary.maps[tile.field] + tile.map : nullptr;
            sum.resize(static_cast<std::size_t>(tile.count));
            apply(tile, map, came, summary.states[tile.field] + tile.state, sum.data());
            send(t, sum.data());
        }
        std::copy_n(came, tile.count, incoming[tile.field] + tile.state);
    }
}

/// A tile of a summary as it is sent: what it is, the state, the transition.
void Exchange::pack(const Summary& summary, const Tile& tile, float* entry) const {
    const float kind = !summary.sends ? kNothing : is_zero(summary, tile) ? kAdded : kMapped;
    entry[0] = kind;
    if (kind == kNothing) return;
    std::copy_n(summary.states[tile.field] + tile.state, tile.count, entry + kHead);
    if (kind == kMapped && tile.map_count > 0)
        std::copy_n(summary.maps[tile.field] + tile.map, tile.map_count, entry + kHead + tile.count);
}

/// The sum of the ranks so far, over one more; returns whether a state goes on.
bool Exchange::fold(const Tile& tile, const float* entry, bool there, std::vector<float>& sum) const {
    if (entry[0] == kNothing) return false;
    const float *added = entry + kHead, *map = added + tile.count;
    const auto count = static_cast<std::size_t>(tile.count);
    if (entry[0] == kAdded) {
        sum.assign(added, added + count);
        return true;
    }
    if (!there)
        throw RuntimeError(
            "has_prev: expected a rank whose first sequence goes on from the rank before, which ends one");
    std::vector<float> after(count);
    apply(tile, map, sum.data(), added, after.data());
    sum = std::move(after);
    return true;
}

void Exchange::receive(Space& space, int from, const Summary& summary, const std::vector<float*>& incoming) const {
    if (!summary.receives) return;
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
        const Tile& tile = tiles_[t];
        space.wait(t, from >= 0 ? from : at(space, static_cast<int>(t) % space.size()));
        std::copy_n(space.ptr(space.rank(), tile.place), tile.count, incoming[tile.field] + tile.state);
    }
}

/// To scans what reduce-scatter and all-gather are to all-reduce: two steps, however many ranks. Everything is sent
/// before anything is waited for.
void Exchange::scatter_scan_gather(Space& space, const Summary& summary, const std::vector<float*>& incoming) {
    const int p = position(space), P = space.size();
    const auto ranks = static_cast<std::size_t>(P), tiles = tiles_.size(), owned = (tiles + ranks - 1) / ranks;
    const auto slot = [&](int from, std::size_t t) {
        return total_ + (static_cast<std::size_t>(from) * owned + t / ranks) * entry_;
    };
    std::vector<float> entry(entry_);
    for (int q = 0; q < P; ++q)
        if (q != p) space.wait_credit(at(space, q));
    for (std::size_t i = 0; p < P - 1 && i < tiles; ++i) {
        const std::size_t t = (i + static_cast<std::size_t>(p)) % tiles;  // not all ranks at the same owner at a time
        const int owner = at(space, static_cast<int>(t % ranks));
        pack(summary, tiles_[t], entry.data());
        space.put(owner, slot(p, t), entry.data(),
                  kHead + static_cast<std::size_t>(tiles_[t].count + tiles_[t].map_count));
        space.signal(owner, tiles + t);
    }
    std::vector<float> sum;
    for (std::size_t t = static_cast<std::size_t>(p); t < tiles; t += ranks) {
        bool there = false;
        for (int s = 0; s < P - 1; ++s) {
            space.wait(tiles + t, at(space, s));
            there = fold(tiles_[t], space.ptr(space.rank(), slot(s, t)), there, sum);
            if (!there) continue;
            space.put(at(space, s + 1), tiles_[t].place, sum.data(), sum.size());
            space.signal(at(space, s + 1), t);
        }
    }
    receive(space, -1, summary, incoming);
}

/// Every rank has what all ranks before it have, and sums it up itself.
void Exchange::all_gather(Space& space, const Summary& summary, const std::vector<float*>& incoming) {
    const int p = position(space), P = space.size();
    const std::size_t tiles = tiles_.size();
    const auto slot = [&](int from, std::size_t t) {
        return total_ + (static_cast<std::size_t>(from) * tiles + t) * entry_;
    };
    std::vector<float> packed(tiles * entry_);
    for (std::size_t t = 0; t < tiles; ++t) pack(summary, tiles_[t], packed.data() + t * entry_);
    for (int q = p + 1; q < P; ++q) {
        space.wait_credit(at(space, q));
        space.put(at(space, q), slot(p, 0), packed.data(), packed.size());
        space.signal(at(space, q), 0);
    }
    for (int s = 0; s < p; ++s) space.wait(0, at(space, s));
    std::vector<float> sum;
    for (std::size_t t = 0; summary.receives && t < tiles; ++t) {
        bool there = false;
        for (int s = 0; s < p; ++s) there = fold(tiles_[t], space.ptr(space.rank(), slot(s, t)), there, sum);
        if (there) std::copy(sum.begin(), sum.end(), incoming[tiles_[t].field] + tiles_[t].state);
    }
}

void Exchange::all_gather_messages(Space& space, const Summary& summary, const std::vector<float*>& incoming) {
    const int p = position(space);
    const std::size_t tiles = tiles_.size(), each = tiles * entry_;
    std::vector<float> packed(each), all(each * static_cast<std::size_t>(space.size()));
    for (std::size_t t = 0; t < tiles; ++t) pack(summary, tiles_[t], packed.data() + t * entry_);
    space.gather(packed.data(), all.data(), each * sizeof(float));
    std::vector<float> sum;
    for (std::size_t t = 0; summary.receives && t < tiles; ++t) {
        bool there = false;
        for (int s = 0; s < p; ++s)
            there =
                fold(tiles_[t], all.data() + static_cast<std::size_t>(at(space, s)) * each + t * entry_, there, sum);
        if (there) std::copy(sum.begin(), sum.end(), incoming[tiles_[t].field] + tiles_[t].state);
    }
}

void Exchange::serial(Space& space, Gpu* gpu, bool receives, bool sends, const std::vector<float*>& incoming,
                      const std::vector<float*>& outgoing, const std::function<void()>& compute) {
    if (!gpu) return serial_on_host(space, receives, sends, incoming, outgoing, compute);
    space.note(Scheme::Serial);
    const std::uint64_t plan = support::mix(plan_ ^ static_cast<std::uint64_t>(Scheme::Serial));
    if (gpu->reaches()) return gpu->serial(fields_, reverse_, plan, receives, sends, incoming, outgoing, compute);
    HostCopies copies(*gpu);
    std::vector<float*> came, left;
    for (std::size_t f = 0; f < fields_.size(); ++f)
        came.push_back(copies.take(size_of(f))), left.push_back(copies.take(size_of(f)));
    serial_on_host(space, receives, sends, came, left, [&] {
        for (std::size_t f = 0; receives && f < fields_.size(); ++f) gpu->upload(came[f], size_of(f), incoming[f]);
        compute();
        for (std::size_t f = 0; sends && f < fields_.size(); ++f) gpu->download(outgoing[f], size_of(f), left[f]);
    });
}

void Exchange::serial_on_host(Space& space, bool receives, bool sends, const std::vector<float*>& incoming,
                              const std::vector<float*>& outgoing, const std::function<void()>& compute) {
    begin(space, Scheme::Serial);
    const int p = position(space), P = space.size();
    Summary in;
    in.receives = receives;
    const auto each = [&](const std::vector<float*>& states, auto&& visit) {
        for (const Tile& tile : tiles_) visit(tile, states[tile.field] + tile.state);
    };
    if (space.shares_memory()) {
        receive(space, p > 0 ? at(space, p - 1) : 0, in, incoming);
        compute();
        if (sends) {
            space.wait_credit(at(space, p + 1));
            std::size_t t = 0;
            each(outgoing, [&](const Tile& tile, const float* data) {
                space.put(at(space, p + 1), tile.place, data, static_cast<std::size_t>(tile.count));
                space.signal(at(space, p + 1), t++);
            });
        }
        space.end();
        return;
    }
    // By turns: in each round one rank computes, and all learn what it leaves.
    std::vector<float> mine(total_), all(total_ * static_cast<std::size_t>(P));
    for (int turn = 0; turn < P; ++turn) {
        if (turn == p) compute();
        if (turn == P - 1) break;
        if (turn == p && sends)
            each(outgoing,
                 [&](const Tile& tile, const float* data) { std::copy_n(data, tile.count, mine.data() + tile.place); });
        space.gather(mine.data(), all.data(), total_ * sizeof(float));
        if (turn != p - 1 || !receives) continue;
        const float* came = all.data() + static_cast<std::size_t>(at(space, turn)) * total_;
        each(incoming, [&](const Tile& tile, float* data) { std::copy_n(came + tile.place, tile.count, data); });
    }
}

}  // namespace forge::dist::detail
