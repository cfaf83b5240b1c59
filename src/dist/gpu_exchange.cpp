// The exchange between GPUs as launches of one kernel.
#include <fmt/format.h>

#include <algorithm>

#include "dist/gpu.h"
#include "dist/space.h"
#include "support/random.h"

namespace forge::dist::detail {
namespace {

namespace ranks = cuda::ranks;
using Map = Carried::Map;

/// Neighbouring axes that the transition has both of, or neither, count as one.
void describe_factors(const Field& field, ranks::Field& f) {
    std::int64_t step = 1;
    for (std::size_t axis = field.shape.size(); axis-- > 0;) {
        const bool whole = field.map_shape[axis] == field.shape[axis];
        const std::int64_t own = whole ? step : 0;
        const auto size = static_cast<int>(field.shape[axis]);
        if (whole) step *= field.map_shape[axis];
        if (field.shape[axis] == 1) continue;
        if (f.axes > 0 && (f.step[0] == 0) == (own == 0)) {
            f.shape[0] *= size;
            continue;
        }
        if (f.axes == ranks::kMaxAxes) throw RuntimeError("ranks: a transition of so many axes is not for GPUs");
        std::copy_backward(f.shape, f.shape + f.axes, f.shape + f.axes + 1);
        std::copy_backward(f.step, f.step + f.axes, f.step + f.axes + 1);
        f.shape[0] = size, f.step[0] = static_cast<int>(own), ++f.axes;
    }
}

int round_down(std::int64_t n, std::int64_t step) { return static_cast<int>(n >= step ? n / step * step : n); }

ranks::Field described_field(const Field& field) {
    ranks::Field f{};
    f.block = field.block(), f.map_block = field.map_block();
    constexpr std::int64_t kMost = std::int64_t{1} << 30U;
    if (f.block > kMost) throw RuntimeError(fmt::format("ranks: a state of {} numbers is not for GPUs", f.block));
    bool four = f.block % 4 == 0;
    std::int64_t tiles = (f.block + ranks::kTileFloats - 1) / ranks::kTileFloats;
    if (field.map == Map::Factors) {
        f.map_kind = ranks::kFactors;
        describe_factors(field, f);
        four = four && (f.axes == 0 || f.map_block == f.block || f.shape[f.axes - 1] % 4 == 0);
    } else if (field.map != Map::Identity) {
        f.map_kind = field.map == Map::Left ? ranks::kLeft : ranks::kRight;
        f.rows = static_cast<int>(field.shape[0]), f.columns = static_cast<int>(field.shape[1]);
        const int size = f.map_kind == ranks::kLeft ? f.rows : f.columns,
                  others = f.map_kind == ranks::kLeft ? f.columns : f.rows;
        if (size > ranks::kTileFloats)
            throw RuntimeError(fmt::format("ranks: a transition of {} x {} numbers is not for GPUs", size, size));
        f.across = std::min(round_down(std::min(ranks::kTileFloats / std::max(size, 1), ranks::kColumns), 4), others);
        f.across = std::max(f.across, 1);
        tiles = (others + f.across - 1) / f.across;
        four = f.map_kind == ranks::kLeft ? f.columns % 4 == 0 && f.across % 4 == 0 : f.columns % 4 == 0;
    }
    f.four = four ? 1 : 0, f.tiles = static_cast<int>(tiles);
    return f;
}

ranks::Size round_up(ranks::Size n, ranks::Size step) { return (n + step - 1) / step * step; }

}  // namespace

ranks::Exchange Gpu::described(const Field* fields, std::size_t count, int scheme, bool reverse) {
    ranks::Exchange x{};
    ranks::Size maps = 0, staged = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (fields[i].lanes * fields[i].block() == 0) continue;  // and has no tiles
        ranks::Field& f = x.fields[x.field_count++] = described_field(fields[i]);
        f.place = x.total, f.map_place = maps, f.first_tile = x.tiles, f.first_unit = x.units;
        const auto lanes = static_cast<int>(fields[i].lanes);
        const bool matrix = f.map_kind == ranks::kLeft || f.map_kind == ranks::kRight;
        x.total = round_up(x.total + lanes * f.block, 32), maps = round_up(maps + lanes * f.map_block, 32);
        x.tiles += lanes * f.tiles, x.units += matrix ? lanes : lanes * f.tiles;
        const int n = f.map_kind == ranks::kLeft ? f.rows : f.columns;
        const ranks::Size room = matrix                                                    ? ranks::Size{n} * (n + 1)
                                 : f.map_kind == ranks::kFactors && f.map_block == f.block ? ranks::kTileFloats
                                                                                           : f.map_block;
        const ranks::Size most = device_.shared_bytes / 4 - 2 * ranks::kTileFloats - 1024;
        if (room <= most) staged = std::max(staged, room);  // others are read where they are
    }
    x.slot = x.total + maps, x.staged = static_cast<int>(staged), x.spread = 132, x.scheme = scheme;
    x.ranks = space_.size(), x.position = reverse ? x.ranks - 1 - space_.rank() : space_.rank(), x.reverse = reverse;
    x.timeout = static_cast<ranks::Word>(space_.options().timeout.count()) * 1000000U;
    x.failed = reinterpret_cast<ranks::Word*>(failed_), x.late = Space::late();  // NOLINT: the driver's are numbers
    return x;
}

/// Windows grow on all ranks alike, as all have the same plans. Older ones stay for what is under way.
void Gpu::reserve(ranks::Exchange& x) {
    const auto flags = 2 * static_cast<std::size_t>(x.tiles);
    const auto numbers = static_cast<std::size_t>(x.scheme == ranks::kRing ? x.total : x.total + x.ranks * x.slot);
    const auto before = [&] {
        return round_up(ranks::Size{2} * x.ranks * static_cast<ranks::Size>(flags_) * ranks::kFlagBytes, 256);
    };
    if (flags > flags_ || numbers > half_) {
        flags_ = std::max(flags_, flags + flags / 2), half_ = std::max(half_, numbers + numbers / 2);
        half_ = (half_ + 31) / 32 * 32;
        shared_.emplace_back(device_, offers_, space_.rank());
        const std::size_t bytes = static_cast<std::size_t>(before()) + 2 * half_ * sizeof(float);
        if (!shared_.back().share(bytes, space_.by_mail())) {
            space_.give_up();
            throw RuntimeError(fmt::format("group: {} bytes of every GPU's memory cannot be had", bytes));
        }
    }
    x.flags = static_cast<ranks::Size>(flags_), x.half = static_cast<ranks::Size>(half_), x.data = before();
    for (int p = 0; p < x.ranks; ++p) {
        const int rank = x.reverse ? x.ranks - 1 - p : p;
        x.controls[p] = shared_.front().at(rank), x.windows[p] = shared_.back().at(rank);
    }
}

void Gpu::launch(ranks::Exchange x, const Launch& how) const {
    x.receives = how.receives, x.sends = how.sends, x.fresh = how.fresh, x.ends = how.ends;
    // All blocks of a grid are resident at a time, if ranks that have the same GPU share it.
    const int most = std::max(1, device_.multiprocessors / sharing_);
    const std::size_t shared =
        (ranks::kHeadFloats + 2 * ranks::kTileFloats + static_cast<std::size_t>(x.staged)) * sizeof(float);
    launch(exchange_, static_cast<unsigned>(std::clamp(x.tiles, 1, most)), static_cast<unsigned>(shared), &x);
}

void Gpu::exchange(const std::vector<Field>& fields, Scheme scheme, bool reverse, std::uint64_t plan,
                   const Summary& summary, const std::vector<float*>& incoming) {
    const int of_kernel = scheme == Scheme::ScatterScanGather ? ranks::kScatterScanGather
                          : scheme == Scheme::AllGather       ? ranks::kAllGather
                                                              : ranks::kRing;
    for (std::size_t first = 0; first < fields.size(); first += ranks::kMaxFields) {
        const std::size_t count = std::min<std::size_t>(fields.size() - first, ranks::kMaxFields);
        ranks::Exchange x = described(&fields[first], count, of_kernel, reverse);
        if (x.tiles == 0) continue;
        for (std::size_t i = first, at = 0; i < first + count; ++i) {
            if (fields[i].lanes * fields[i].block() == 0) continue;
            ranks::Field& f = x.fields[at++];
            f.state = summary.states[i], f.map = summary.maps[i], f.incoming = incoming[i];
        }
        space_.begin_elsewhere(support::mix(plan + first));
        reserve(x);
        launch(x, {of_kernel, summary.receives, summary.sends, summary.fresh, true});
    }
}

void Gpu::serial(const std::vector<Field>& fields, bool reverse, std::uint64_t plan, bool receives, bool sends,
                 const std::vector<float*>& incoming, const std::vector<float*>& outgoing,
                 const std::function<void()>& compute) {
    if (fields.size() > ranks::kMaxFields)
        throw RuntimeError(fmt::format("ranks: expected at most {} states that go from rank to rank, got {}",
                                       ranks::kMaxFields, fields.size()));
    std::vector<Field> plain = fields;  // nothing is applied to them
    for (Field& field : plain) field.map = Map::Identity, field.map_shape.clear();
    ranks::Exchange x = described(plain.data(), plain.size(), ranks::kRing, reverse);
    if (x.tiles == 0) return compute();
    for (std::size_t i = 0, at = 0; i < fields.size(); ++i) {
        if (fields[i].lanes * fields[i].block() == 0) continue;
        ranks::Field& f = x.fields[at++];
        f.state = outgoing[i], f.incoming = incoming[i];
    }
    space_.begin_elsewhere(plan);
    reserve(x);
    if (receives) launch(x, {ranks::kRing, true, false, true, false});
    compute();
    launch(x, {ranks::kRing, false, sends, true, true});
}

}  // namespace forge::dist::detail
