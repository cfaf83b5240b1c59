#include "emit/asked_rows.h"

#include <algorithm>

namespace forge::emit {
namespace {

using ir::Role;
using ir::ValueId;
using tile::size_of;

constexpr int kLanes = 32;
constexpr std::int64_t kFour = 4;  ///< numbers of a thread

}  // namespace

/// Which threads are taken: whole warps, or lanes of the warp that has least to ask for. The last ones come first, as
/// vectors are computed with by the first.
class AskedTokens::Threads {
  public:
    explicit Threads(int threads) : warps_(static_cast<std::size_t>(threads / kLanes)) {}

    Place take(int count) {
        const std::size_t span = static_cast<std::size_t>((count + kLanes - 1) / kLanes);
        std::size_t best = taken_.size();
        for (std::size_t w = taken_.size(); w-- > 0;)
            if (fits(w, count, span) && (best == taken_.size() || taken_[w].tensors < taken_[best].tensors)) best = w;
        if (best == taken_.size()) taken_.resize(++rounds_ * warps_.size()), best = taken_.size() - span;
        const Place place{best / warps_.size(), static_cast<int>(best % warps_.size()) * kLanes + taken_[best].lanes};
        for (std::size_t w = best; w < best + span; ++w)
            taken_[w].lanes += std::min(count, kLanes), ++taken_[w].tensors, count -= kLanes;
        return place;
    }
    [[nodiscard]] std::size_t rounds() const { return rounds_; }

  private:
    struct Warp {
        int lanes = 0, tensors = 0;
    };
    [[nodiscard]] bool fits(std::size_t warp, int count, std::size_t span) const {
        if (span <= 1) return taken_[warp].lanes + count <= kLanes;
        return warp % warps_.size() + span <= warps_.size() &&
               std::all_of(taken_.begin() + static_cast<std::ptrdiff_t>(warp),
                           taken_.begin() + static_cast<std::ptrdiff_t>(warp + span),
                           [](const Warp& w) { return w.lanes == 0; });
    }

    std::vector<Warp> warps_, taken_;
    std::size_t rounds_ = 0;
};

AskedTokens::AskedTokens(Context& context, const Transfers& transfers) : c_(context), transfers_(transfers) {
    if (!c_.plan.schedule.holds_states) return;
    Threads threads(c_.dialect.threads);
    for (const bool matrices : {true, false})  // which take whole warps
        for (ValueId v = 0; v < c_.fn.size(); ++v)
            if (const std::int64_t count = threads_for(v); count > 0 && (c_.fn.op(v).type.rank() == 2) == matrices)
                places_[v] = threads.take(static_cast<int>(count));
    rounds_ = threads.rounds();
}

/// 0: it is not asked for so.
std::int64_t AskedTokens::threads_for(ValueId v) const {
    const ir::Op& op = c_.fn.op(v);
    const auto& streams = c_.kernel.tiles.streams;
    const bool streamed = std::any_of(streams.begin(), streams.end(), [&](const tile::Stream& s) {
        return std::find(s.inputs.begin(), s.inputs.end(), v) != s.inputs.end();
    });
    if (!c_.is_param(v, Role::Input) || !c_.in_tile(v) || !op.attrs.at.empty() || streamed) return 0;
    std::int64_t count = 0;
    if (op.type.rank() == 1) count = size_of(op.type, 0);
    if (op.type.rank() == 2 && size_of(op.type, 1) % kFour == 0)
        count = size_of(op.type, 0) * size_of(op.type, 1) / kFour;
    return count <= c_.dialect.threads ? count : 0;
}

std::string AskedTokens::name(std::size_t round) {
    return round == 0 ? "rows_ahead" : fmt::format("rows_ahead_{}", round + 1);
}

/// `what<type, rows, columns, first thread`, what comes after them, and `>`.
std::string AskedTokens::call(ValueId v, const char* what, const std::string& last) const {
    const ir::Op& op = c_.fn.op(v);
    const Place& place = places_.at(v);
    const auto& tensor = c_.plan.tensors[static_cast<std::size_t>(transfers_.tensor_of(op))];
    const bool matrix = op.type.rank() == 2;
    return fmt::format("{}.{}{}<{}, {}, {}{}{}>", name(place.round), what, matrix ? "" : "_numbers",
                       storage_type(tensor.type.dtype), size_of(op.type, 0),
                       matrix ? fmt::format("{}, ", size_of(op.type, 1)) : "", place.first, matrix ? last : "");
}

void AskedTokens::declare() const {
    if (places_.empty()) return;
    for (std::size_t round = 0; round < rounds_; ++round) c_.out.line("AskedRows {};", name(round));
    c_.out.open("const auto ask_for_rows = [&](const Task& at, Size token)");
    c_.out.put("if (token >= at.end) return;");
    for (const auto& [v, place] : places_) {
        const int tensor = transfers_.tensor_of(c_.fn.op(v));
        const std::string column =
            c_.fn.op(v).type.rank() == 2 ? fmt::format(", {}", transfers_.first_column(tensor)) : "";
        c_.out.line("{}(call, {}, at, token{});", call(v, "ask", ""), tensor, column);
    }
    c_.out.close("};");
}

void AskedTokens::ask(const std::string& line) const {
    if (places_.empty()) return;
    kernel::Accesses all;
    for (std::size_t round = 0; round < rounds_; ++round) append(all, {kernel::registers(name(round))});
    c_.next("ask for rows", {}, all);
    c_.out.put(line);
}

void AskedTokens::place(ValueId v) const {
    c_.next("place " + c_.name(v), {kernel::registers(name(places_.at(v).round))}, c_.memory(v));
    c_.out.line("{}({});", call(v, "place", fmt::format(", {}", c_.fn.op(v).layout->strides[0])), c_.name(v));
}

}  // namespace forge::emit
