#include "tile/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/infer.h"
#include "tile/compact.h"
#include "tile/far.h"
#include "tile/held.h"
#include "tile/join_scans.h"
#include "tile/layout.h"
#include "tile/legalize.h"
#include "tile/order.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Space = Layout::Space;

/// Whether a value is computed in its user's loop: an elementwise op that one elementwise op reads, in the same space
/// (or cheap and smaller), or a number.
bool computed_in_place(const Function& fn, ValueId v, const std::vector<ValueId>& users, bool is_result) {
    const Op& op = fn.op(v);
    if (op.code == Opcode::Constant || op.code == Opcode::Identity || op.code == Opcode::Arange) return true;
    if (op.code == Opcode::Param)
        return op.type.rank() == 0 && (op.attrs.role == Role::Scalar || op.attrs.role == Role::Head);
    if (!ir::is_elementwise(op.code) || is_result || users.empty()) return false;
    if (!std::all_of(users.begin(), users.end(),
                     [&](ValueId u) { return ir::is_elementwise(fn.op(u).code) || fn.op(u).code == Opcode::Copy; }))
        return false;
    const bool bool_valued = op.type.dtype == DType::Bool;  // masks live in registers only
    const std::set<ValueId> distinct(users.begin(), users.end());
    if (distinct.size() > 1 && !bool_valued) return false;
    return bool_valued || fn.op(*distinct.begin()).type.shape == op.type.shape || !costly(op.code);
}

/// Whether threads that hold matrices make each number of an outer product where one elementwise op reads it, rather
/// than hold them all.
bool multiplied_in_place(const Function& fn, ValueId v, const std::vector<ValueId>& users, bool is_result) {
    constexpr std::int64_t kMostTerms = 4;
    const Op& op = fn.op(v);
    if (!ir::is_matmul(op.code) || op.args.size() != 2 || is_result || users.size() != 1) return false;
    const Op& user = fn.op(users.front());
    const std::int64_t depth = size_of(fn.op(op.args[0]).type, op.attrs.trans_a ? 0 : 1);
    return depth <= kMostTerms && ir::is_elementwise(user.code) && user.type.shape == op.type.shape;
}

/// Whether a value is made by the product that is added to it: a matrix times a number, or a number per row, both kept.
bool scaled_in_product(const Function& fn, ValueId v, const std::vector<ValueId>& users, bool is_result) {
    const Op& op = fn.op(v);
    if (op.code != Opcode::Mul || op.type.rank() != 2 || is_result || users.size() != 1) return false;
    const Op& product = fn.op(users.front());
    if (!ir::is_matmul(product.code) || product.args.size() != 3 || product.args[2] != v) return false;
    return scaled_operand(fn, op) >= 0;
}

constexpr int kForever = 1 << 30;

using SpillStrides = std::map<std::string, std::vector<std::int64_t>>;

class Allocator {
  public:
    Allocator(Streamed streamed, SpillStrides spills, const Rules& rules)
        : held_(rules.holding_threads > 0 ? held_values(streamed.fn, rules.holding_threads) : Held{}),
          fn_(std::move(streamed.fn)),
          streams_(std::move(streamed.streams)),
          spills_(std::move(spills)),
          rules_(rules) {}

    void run() {
        choose_spaces();
        find_lives();
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (owns_buffer(v)) begin(v);
            const std::int64_t work = work_floats(fn_, v, rules_);
            if (work > 0) uses_.push_back({{v, true}, work, true});
            release(v);
            if (work > 0) uses_.push_back({{v, true}, work, false});
        }
        arenas_ = placed(uses_, far(), rules_.shared_memory);
        lay_out();
    }
    Function take() { return std::move(fn_); }
    [[nodiscard]] std::int64_t floats() const { return arenas_.shared_floats; }
    [[nodiscard]] std::int64_t far_floats() const { return arenas_.far_floats; }
    [[nodiscard]] std::map<ValueId, std::int64_t> work() const {
        std::map<ValueId, std::int64_t> work;
        for (const auto& [name, offset] : arenas_.offsets)
            if (name.work) work[name.value] = offset;
        return work;
    }
    [[nodiscard]] const std::string& why_not_held() const { return held_.why_not; }

  private:
    [[nodiscard]] bool owns_buffer(ValueId v) const {
        return fn_.op(v).layout->space == Space::Tile && !ir::is_view(fn_.op(v).code);
    }
    [[nodiscard]] bool is_state(ValueId v) const {
        return fn_.op(v).code == Opcode::Param && is_carried(fn_.op(v).attrs.role);
    }

    [[nodiscard]] bool holds(ValueId v) const {
        return !held_.values.empty() && held_.values[static_cast<std::size_t>(v)];
    }

    void choose_spaces() {
        const auto users = ir::users_of(fn_);
        const auto results = ir::result_uses(fn_);
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const auto i = static_cast<std::size_t>(v);
            fn_.op(v).layout = Layout{};
            const Stream* const stream = stream_of(v);
            const bool in_place =
                stream ? in_registers(*stream, v, users[i])
                       : computed_in_place(fn_, v, users[i], results[i] > 0) ||
                             (holds(v) && multiplied_in_place(fn_, v, users[i], results[i] > 0)) ||
                             (!rules_.shared_memory && scaled_in_product(fn_, v, users[i], results[i] > 0));
            if (!in_place) fn_.op(v).layout->space = holds(v) ? Space::Held : Space::Tile;
            if (stream && is_scan(fn_.op(v)) && results[i] == 0 && rows_stay_inside(*stream, users[i]))
                rolling_.insert(v);
            if (!rules_.shared_memory && fn_.op(v).code == Opcode::Param && fn_.op(v).attrs.role == Role::Spill)
                fn_.op(v).layout = Layout{Space::Spill, 0, spills_.at(fn_.op(v).attrs.name)};
            if (!stream && results[i] == 1) make_in_spill(v);
            if (ir::is_view(fn_.op(v).code)) fn_.op(v).layout->space = fn_.op(buffer_of(fn_, v)).layout->space;
        }
    }

    /// A matrix that passes to another kernel, laid out there as a tile, is made (an input: loaded) where it is stored.
    void make_in_spill(ValueId v) {
        Op& op = fn_.op(v);
        const bool kept = op.code == Opcode::Param && op.attrs.role != Role::Input;
        if (rules_.shared_memory || kept || ir::is_view(op.code) || op.type.rank() != 2) return;
        const auto r = std::find_if(fn_.results.begin(), fn_.results.end(),
                                    [&](const ir::Result& result) { return result.value == v; });
        if (r->role == Role::Spill && spills_.at(r->name) == tile_strides(op.type, rules_))
            op.layout = Layout{Space::Spill, 0, spills_.at(r->name)};
    }

    [[nodiscard]] const Stream* stream_of(ValueId v) const {
        const auto it = std::find_if(streams_.begin(), streams_.end(), [&](const Stream& s) { return s.has(v); });
        return it == streams_.end() ? nullptr : &*it;
    }

    /// In a row loop, what no other op wants is held in registers; an output tensor is written by the loop itself.
    [[nodiscard]] bool in_registers(const Stream& stream, ValueId v, const std::vector<ValueId>& users) const {
        if (is_scan(fn_.op(v)) || fn_.op(v).code == Opcode::Sum) return false;
        const auto stored = [&](const ir::Result& r) { return r.value == v; };
        if (std::any_of(fn_.results.begin(), fn_.results.end(), stored)) return false;
        return std::all_of(users.begin(), users.end(), [&](ValueId u) { return stream.has(u); });
    }

    /// Whether nothing outside the loop reads a scan's rows, but for the last one.
    [[nodiscard]] bool rows_stay_inside(const Stream& stream, const std::vector<ValueId>& users) const {
        return std::all_of(users.begin(), users.end(), [&](ValueId u) { return stream.has(u) || is_last_row(fn_, u); });
    }

    /// The last position at which each buffer is read. State results are read at the end of the chunk.
    void find_lives() {
        last_read_.assign(fn_.ops.size(), -1);
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (ir::is_view(fn_.op(v).code) || (fn_.op(v).layout->space == Space::Reg && !stream_of(v))) continue;
            const Stream* const stream = stream_of(v);
            const ValueId when = stream ? stream->members.back() : v;  // a row loop uses all its buffers to its end
            for (const ValueId t : tiles_read_by(fn_, v)) last_read_[static_cast<std::size_t>(t)] = when;
            last_read_[static_cast<std::size_t>(v)] = std::max(last_read_[static_cast<std::size_t>(v)], when);
        }
        for (const ir::Result& r : fn_.results)
            if (is_carried(r.role)) last_read_[static_cast<std::size_t>(buffer_of(fn_, r.value))] = kForever;
        read_last_at_.resize(fn_.ops.size());
        for (ValueId t = 0; t < fn_.size(); ++t)
            if (const int last = last_read_[static_cast<std::size_t>(t)]; last >= t && last < fn_.size())
                read_last_at_[static_cast<std::size_t>(last)].push_back(t);
    }

    void begin(ValueId v) {
        if (const ValueId from = reusable(v); from != ir::kNoValue) {
            owners_[v] = owners_.at(from);
            moved_.insert(from);
            if (permanent_.contains(from)) permanent_.insert(v);
            return;
        }
        owners_[v] = v;
        uses_.push_back({{v, false}, floats_of(v), true});
        if (is_state(v) || hoisted(v)) permanent_.insert(v);
    }

    /// Parameters that are loaded once, before the loop over chunks.
    [[nodiscard]] bool hoisted(ValueId v) const {
        return fn_.op(v).code == Opcode::Param && fn_.op(v).attrs.role == Role::Head;
    }

    /// An operand whose buffer the result may take over: read for the last time here, element by element.
    [[nodiscard]] ValueId reusable(ValueId v) const {
        const Op& op = fn_.op(v);
        if (stream_of(v)) return ir::kNoValue;
        if (op.code == Opcode::MatmulAdd || op.code == Opcode::MatmulSub) {
            const ValueId c = base_of(fn_, op), base = buffer_of(fn_, c);
            const bool shared = buffer_of(fn_, op.args[0]) == base || buffer_of(fn_, op.args[1]) == base;
            return c == base && dies_at(c, v) && !shared && may_take(v, c) ? c : ir::kNoValue;
        }
        if (!ir::is_elementwise(op.code)) return ir::kNoValue;
        for (const ValueId t : tiles_read_by(fn_, v))
            if (dies_at(t, v) && fn_.op(t).type.shape == op.type.shape && !read_through_view(v, t) && may_take(v, t))
                return t;
        return ir::kNoValue;
    }

    [[nodiscard]] bool dies_at(ValueId t, ValueId v) const {
        return fn_.op(t).layout->space == Space::Tile && last_read_[static_cast<std::size_t>(t)] == v && !hoisted(t) &&
               t != v;
    }

    /// What is kept of a state for the next chunk may take its own place, but not that of another state, whose next
    /// value is copied there while the first one waits for being copied.
    [[nodiscard]] bool may_take(ValueId v, ValueId t) const {
        const ValueId owner = owners_.at(t);
        if (!is_state(owner)) return true;
        const ir::Attrs& state = fn_.op(owner).attrs;
        return std::all_of(fn_.results.begin(), fn_.results.end(), [&](const ir::Result& r) {
            return buffer_of(fn_, r.value) != v || !is_carried(r.role) ||
                   (r.role == state.role && r.name == state.name);
        });
    }

    [[nodiscard]] bool read_through_view(ValueId v, ValueId tile) const {
        std::vector<ValueId> inside = {v};
        std::set<ValueId> seen;
        while (!inside.empty()) {
            const ValueId user = inside.back();
            inside.pop_back();
            for (const ValueId a : fn_.op(user).args) {
                if (ir::is_view(fn_.op(a).code) && buffer_of(fn_, a) == tile) return true;
                if (fn_.op(a).layout->space == Space::Reg && seen.insert(a).second) inside.push_back(a);
            }
        }
        return false;
    }

    /// The uses that end with what is read for the last time at v.
    void release(ValueId v) {
        constexpr std::int64_t kSmall = 256;  // where states are held, a barrier costs more than such memory
        for (const ValueId t : read_last_at_[static_cast<std::size_t>(v)]) {
            if (rules_.holding_threads > 0 && owns_buffer(t) && floats_of(t) <= kSmall) continue;
            if (!owns_buffer(t) || permanent_.contains(t) || moved_.contains(t)) continue;
            uses_.push_back({{owners_.at(t), false}, floats_of(t), false});
        }
    }

    /// Nothing where all fits shared memory, or else what is read least.
    [[nodiscard]] std::set<BufferName> far() const {
        if (rules_.shared_floats == 0) return {};
        const auto shared_floats = shared_floats_of(uses_);
        if (shared_floats({}) <= rules_.shared_floats) return {};
        return far_buffers(buffers(), rules_.shared_floats, shared_floats);
    }

    /// All that has memory of its own, in the order in which it begins to be used.
    [[nodiscard]] std::vector<Buffer> buffers() const {
        std::map<BufferName, double> reads;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!owns_buffer(v)) continue;
            for (const ValueId t : tiles_read_by(fn_, v))
                if (fn_.op(t).layout->space == Space::Tile) reads[{owners_.at(t), false}] += reads_of(fn_, v, t);
        }
        std::vector<Buffer> buffers;
        for (const BufferUse& use : uses_)
            if (use.begins) buffers.push_back({use.name, use.floats, use.name.work ? 1 : reads[use.name]});
        return buffers;
    }

    void lay_out() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            Op& op = fn_.op(v);
            if (owns_buffer(v)) {
                op.layout->offset = arenas_.offsets.at({owners_.at(v), false});
                op.layout->strides = tile_strides(op.type, rules_);
                if (rolling_.contains(v)) op.layout->strides[0] = 0;
            } else if (ir::is_view(op.code)) {
                const Op& base = fn_.op(op.args[0]);
                if (base.layout->space != Space::Held) op.layout = view_layout(op, base.type, *base.layout);
            }
        }
    }

    /// A scan of which only the row before counts takes one row.
    [[nodiscard]] std::int64_t floats_of(ValueId v) const {
        const ir::Type& type = fn_.op(v).type;
        return rolling_.contains(v) ? tile_floats({type.dtype, {type.shape.back()}}, rules_)
                                    : tile_floats(type, rules_);
    }

    Held held_;
    Function fn_;
    std::vector<Stream> streams_;
    SpillStrides spills_;
    Rules rules_;
    std::map<ValueId, ValueId> owners_;  ///< whose memory a value has
    std::vector<BufferUse> uses_;
    std::vector<int> last_read_;
    std::vector<std::vector<ValueId>> read_last_at_;
    std::set<ValueId> moved_, permanent_, rolling_;
    Arenas arenas_;
};

TileKernel laid_out(const Streamed& streamed, const SpillStrides& spills, const Rules& rules) {
    TileKernel tiled;
    tiled.streams = streamed.streams;
    Allocator allocator(streamed, spills, rules);
    allocator.run();
    tiled.fn = allocator.take();
    tiled.scratch_floats = allocator.floats();
    tiled.far_floats = allocator.far_floats();
    tiled.work = allocator.work();
    tiled.not_held = allocator.why_not_held();
    return tiled;
}

/// The same function if its tiles fit into shared memory, or else in the order that leaves least in global memory. Gaps
/// between tiles are not foreseen: some room is left for them.
Function fitted(const Function& fn, const SpillStrides& spills, const Rules& rules) {
    const TileKernel plain = laid_out({fn, {}}, spills, rules);
    Function best = fn;
    std::int64_t least = plain.far_floats;
    for (const int percent : {100, 90}) {
        if (least == 0) break;
        Function tried = compact(plain.fn, rules, rules.shared_floats * percent / 100);
        const std::int64_t far = laid_out({tried, {}}, spills, rules).far_floats;
        if (far < least) best = std::move(tried), least = far;
    }
    return best;
}

}  // namespace

int scaled_operand(const Function& fn, const Op& mul) {
    const auto kept = [&](ValueId v) { return fn.op(buffer_of(fn, v)).layout->space != Space::Reg; };
    for (int n = 0; n < 2; ++n) {
        const ValueId x = mul.args[static_cast<std::size_t>(n)], scale = mul.args[static_cast<std::size_t>(1 - n)];
        const ir::Type &of_x = fn.op(x).type, &of_scale = fn.op(scale).type;
        const bool per_row = of_scale.rank() == 0 || (of_scale.rank() == 2 && size_of(of_scale, 1) == 1);
        if (per_row && of_x.shape == mul.type.shape && !ir::is_view(fn.op(x).code) && kept(x) && kept(scale)) return n;
    }
    return -1;
}

ValueId base_of(const Function& fn, const Op& product) {
    const Op& c = fn.op(product.args[2]);
    const bool scaled = c.code == Opcode::Mul && c.layout->space == Space::Reg;
    return scaled ? c.args[static_cast<std::size_t>(scaled_operand(fn, c))] : product.args[2];
}

ir::ValueId buffer_of(const Function& fn, ValueId v) {
    while (ir::is_view(fn.op(v).code)) v = fn.op(v).args[0];
    return v;
}

bool same_buffer(const Function& fn, ValueId a, ValueId b) {
    const Layout &x = *fn.op(a).layout, &y = *fn.op(b).layout;
    return a == b || (x.space == Space::Tile && y.space == Space::Tile && x.offset == y.offset);
}

std::vector<ValueId> tiles_read_by(const Function& fn, ValueId v) {
    std::vector<ValueId> tiles,
        inside = {v};  // what is computed in the value's loop, each once however often it is read
    std::set<ValueId> seen;
    while (!inside.empty()) {
        const ValueId user = inside.back();
        inside.pop_back();
        for (const ValueId a : fn.op(user).args) {
            const ValueId base = buffer_of(fn, a);
            if (fn.op(base).layout->space != Space::Reg) tiles.push_back(base);
            else if (seen.insert(base).second) inside.push_back(base);
        }
    }
    return tiles;
}

std::string notes_of(const TileKernel& kernel) {
    std::string text = fmt::format("{} floats of scratch", kernel.scratch_floats);
    if (kernel.far_floats > 0) text += fmt::format(", {} of them in global memory", kernel.far_floats);
    if (!kernel.streams.empty()) text += fmt::format(", {} row loops", kernel.streams.size());
    if (kernel.stages > 1)
        text += fmt::format(", {} stages of {} floats", kernel.stages, kernel.stage_floats + kernel.number_floats);
    if (!kernel.joined.empty()) text += fmt::format(", {} loops joined", kernel.joined.size());
    if (kernel.roles) text += fmt::format(", roles for {} warp groups", kernel.roles->groups());
    return text;
}

TileKernel lower(const Function& kernel, const Sizes& sizes, const Sizes& whole, const Rules& rules,
                 const ir::PassRunner& passes) {
    SpillStrides spills;
    for (const Op& op : kernel.ops)
        if (op.code == Opcode::Param && op.attrs.role == Role::Spill)
            spills[op.attrs.name] = tile_strides(with_sizes(op.type, whole), rules);
    for (const ir::Result& r : kernel.results)
        if (r.role == Role::Spill) spills[r.name] = tile_strides(with_sizes(kernel.op(r.value).type, whole), rules);
    Function fn = passes.run(ir::Pass::Legalize, [&] { return legalize(kernel, sizes, rules); });
    if (!rules.shared_memory) fn = passes.run(ir::Pass::JoinScans, [&] { return join_scans(fn); });
    fn = passes.run(ir::Pass::OrderTiles, [&] { return ordered(with_carried_params(fn)); });
    Streamed streamed{std::move(fn), {}};
    if (!rules.shared_memory)
        streamed = passes.run(
            ir::Pass::Streams, [&] { return find_streams(streamed.fn); }, [](Streamed& s) -> Function& { return s.fn; },
            [](const Streamed& s) { return fmt::format("{} row loops", s.streams.size()); });
    if (rules.shared_memory && rules.shared_floats > 0)
        streamed.fn = passes.run(ir::Pass::Compact, [&] { return fitted(streamed.fn, spills, rules); });
    return passes.run(
        ir::Pass::LayOut, [&] { return laid_out(streamed, spills, rules); },
        [](TileKernel& t) -> Function& { return t.fn; }, notes_of);
}

}  // namespace forge::tile
