#include "emit/cuda/channels.h"

#include <algorithm>
#include <set>

#include "device/cuda/channels/sizes.h"
#include "emit/cuda/channel_walks.h"
#include "emit/expression.h"
#include "emit/kernel.h"
#include "emit/last_rows.h"
#include "emit/names.h"
#include "emit/statements.h"
#include "graph/saved_states.h"
#include "graph/token_kernels.h"
#include "graph/token_program.h"

namespace forge::emit {
namespace {

using ::forge::kernel::By;
using ::forge::kernel::Kind;
using ::forge::kernel::Memory;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Slot = plan::TensorSlot::Kind;

/// A bit for each state.
unsigned maxima_of(const std::vector<ChannelState>& states) {
    unsigned bits = 0, bit = 1;
    for (const ChannelState& s : states) bits |= s.maximum ? bit : 0, bit *= 2;
    return bits;
}

class ChannelWriter {
  public:
    ChannelWriter(Writer& out, const plan::Plan& plan, const plan::Kernel& kernel)
        : out_(out),
          plan_(plan),
          kernel_(kernel),
          fn_(kernel.tiles.fn),
          names_(cpp_names(fn_)),
          states_(states_of(fn_)),
          saved_(saved_states_of(fn_)),
          sums_(contributions_of(fn_)),
          walks_(fn_),
          state_rows_(state_rows(plan)),
          channels_(channels_are_heads(plan.definition) ? "channels_of<kChannels>(call)" : "kChannels") {}

    void write() {
        out_.begin_kernel(
            {kernel_symbol(kernel_)},
            fmt::format("FORGE_KERNEL void {}(const __grid_constant__ Call call)", kernel_symbol(kernel_)));
        begin();
        if (state_rows_) out_.line("int round = 0;");
        else first_loads();
        take_and_place(1, "shared.places[1]", "shared.places[0]");
        out_.add(group_barrier());
        out_.begin({Kind::Loop, "tiles"},
                   "for (int turn = 0; !shared.places[turn].tile.done; turn = (turn + 1) % kPlaces)");
        next("part_of", tile(0), {});
        out_.line("const auto &places = shared.places[turn], &following = shared.places[(turn + 1) % kPlaces];");
        out_.line("auto& next = shared.places[(turn + 2) % kPlaces];");
        out_.line("const Tile& at = places.tile;");
        out_.line("const Part part = part_of(at, {});", channels_);
        before_tokens(false);
        if (state_rows_) walk_rows();
        else walk_tokens();
        out_.end();
        out_.end();
    }

  private:
    /// Where states are vectors: what a tile's tokens do to them, and what they make of those before.
    void walk_tokens() {
        make_saved_states();
        first_walk();
        next_loads();
        take_and_place(2, "next", "following");
        join();
        second_walk();
        store_sums(false);
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (is_tensor(v)) out_.line("{0} = {0}_next;", name(v));
        for (const SavedState& s : saved_) out_.line("{0} = {0}_next;", strip_state(s));
    }

    /// Where states are matrices: what all rows have in common, one row after another, and what sums over them lead to.
    void walk_rows() {
        load_now(false);
        once();
        take_and_place(2, "next", "following");
        ::forge::kernel::Statement loop{Kind::Loop, "rows"};
        loop.within = true;
        out_.begin(std::move(loop), "for (int state_row = 0; state_row < kStateRows; ++state_row, ++round)");
        load_now(true);
        before_tokens(true);
        make_saved_states();
        first_walk();
        out_.add(group_barrier());
        join();
        second_walk();
        store_sums(true);
        out_.end();
        last_walk();
        store_sums(false);
    }

    // Shared memory.
    using Accesses = ::forge::kernel::Accesses;

    void next(const char* what, Accesses reads, Accesses writes, By by = By::All) {
        out_.next({Kind::Compute, what, std::move(reads), std::move(writes), by});
    }
    [[nodiscard]] static Accesses all_of(const char* buffer) { return {{Memory::Shared, buffer, 0, 1}}; }
    /// Of the tile so many after the one under way; its addresses; both.
    [[nodiscard]] static Accesses tile(int ahead) { return one_of_places("places.tile", ahead); }
    [[nodiscard]] static Accesses addresses(int ahead) { return one_of_places("places.first", ahead); }
    [[nodiscard]] static Accesses one_of_places(const char* buffer, int ahead) {
        ::forge::kernel::Access access{Memory::Shared, buffer, 0, 1};
        access.depth = cuda::kPlaces, access.stride = 1, access.ahead = ahead;
        return {access};
    }
    [[nodiscard]] static Accesses place(int ahead) {
        Accesses both = tile(ahead);
        ::forge::kernel::append(both, addresses(ahead));
        return both;
    }
    /// By clusters a warp finds the next tile and its addresses from those of the one before; else one thread takes a
    /// tile, and all find the addresses.
    void take_tile(int ahead) {
        if (plan_.schedule.clusters) return out_.next();
        next("take_tile", tile(ahead - 1), tile(ahead), By::Warp);
    }
    void place_tile(int ahead) {
        if (plan_.schedule.clusters) next("place_tile", place(ahead - 1), place(ahead), By::LastWarp);
        else next("place_tile", tile(ahead), addresses(ahead));
    }

    [[nodiscard]] const Op& op(ValueId v) const { return fn_.op(v); }
    [[nodiscard]] bool is_param(ValueId v, Role role) const {
        return op(v).code == Opcode::Param && op(v).attrs.role == role;
    }
    [[nodiscard]] bool is_tensor(ValueId v) const { return is_param(v, Role::Input) || is_param(v, Role::Shifted); }
    [[nodiscard]] bool has_results_beside_states() const {
        return std::any_of(fn_.results.begin(), fn_.results.end(),
                           [](const ir::Result& r) { return r.role != Role::State && r.role != Role::Ones; });
    }
    [[nodiscard]] bool is_saved(ValueId v) const { return is_param(v, Role::Before); }
    [[nodiscard]] bool goes_back() const { return kernel_.graph.reverse; }
    /// The order as the last template argument, behind others or alone: forwards is the default.
    [[nodiscard]] const char* and_order() const { return goes_back() ? ", Order::Backwards" : ""; }
    [[nodiscard]] const char* order() const { return goes_back() ? "<Order::Backwards>" : ""; }
    [[nodiscard]] bool has_channels(ValueId v) const { return graph::has_channels(op(v).type); }
    [[nodiscard]] bool has_rows(ValueId v) const { return graph::has_rows(op(v).type); }

    /// Which row the thread is at, behind others or of a token tensor, and where it is in the workspace.
    [[nodiscard]] static const char* and_row(bool rows) { return rows ? ", state_row" : ""; }
    [[nodiscard]] static const char* of_row(bool rows) { return rows ? ".of_row(state_row)" : ""; }
    [[nodiscard]] std::string spilled_row(const std::string& name, bool rows) const {
        return spill(name) + (rows ? fmt::format(" + state_row * {}", floats(name) / state_rows_) : "");
    }
    [[nodiscard]] int tensor_of(ValueId v) const {
        return plan_.tensor(op(v).attrs.role == Role::Head ? Slot::Head : Slot::Input, op(v).attrs.name);
    }
    [[nodiscard]] const plan::TensorSlot& slot(int tensor) const {
        return plan_.tensors[static_cast<std::size_t>(tensor)];
    }
    [[nodiscard]] std::string storage(int tensor) const { return storage_type(slot(tensor).type.dtype); }
    static std::string rows(const std::string& tensor) { return cpp_identifier(tensor) + "_rows"; }
    static std::string tokens(const std::string& tensor) { return cpp_identifier(tensor) + "_tokens"; }
    [[nodiscard]] std::string type(ValueId v) const { return op(v).type.dtype == DType::Bool ? "mask" : "vec"; }

    /// The token tensors, inputs first: what is the same for all tiles, and the first tile.
    void begin() {
        const Launch how = launch_of_channels(plan_, kernel_);
        const std::vector<int> numbers = token_tensors(plan_, fn_);
        const unsigned maxima = maxima_of(states_);
        out_.line("constexpr int kChannels = {}, kStates = {}, kTensors = {};",
                  channels_are_heads(plan_.definition) ? 0 : channels_of(plan_), states_.size(), numbers.size());
        if (maxima) out_.line("constexpr unsigned kMaxima = {}u;  // a bit for each state", maxima);
        if (state_rows_) out_.line("constexpr int kStateRows = {};", state_rows_);
        const std::string kinds = state_rows_
                                      ? fmt::format(", {}, {}, kStateRows", maxima ? "kMaxima" : "0", sums_.size())
                                  : !sums_.empty() ? fmt::format(", {}, {}", maxima ? "kMaxima" : "0", sums_.size())
                                  : maxima         ? ", kMaxima"
                                                   : "";
        std::vector<std::string> states;
        for (const ChannelState& s : states_)
            states.push_back(fmt::format("{{{}, {}}}", plan_.tensor(Slot::InitialState, s.name),
                                         plan_.tensor(Slot::FinalState, s.name)));
        out_.line("const StateOf states[kStates] = {{{}}};", fmt::join(states, ", "));
        if (!has_results_beside_states()) out_.line("if (!are_wanted(call, states)) return;");
        out_.line("auto& shared = shared_memory<Shared<kStates, kTensors{}>, {}>();", kinds, how.shared_bytes);
        out_.line("start(shared);");
        std::vector<std::string> tensors;
        for (const int t : numbers) {
            const bool of_rows = slot(t).type.rank() > 3, channels = has_channels_per_token(slot(t).type.shape);
            const std::int64_t per_token = slot(t).type.shape[0].factor;
            const std::string more = of_rows         ? fmt::format(", {}, true", per_token)
                                     : per_token > 1 ? fmt::format(", {}", per_token)
                                                     : "";
            out_.line("const Tokens<{}{}> {}(call, {}, {});", storage(t), more, tokens(slot(t).name), t,
                      tensors.size());
            tensors.push_back(fmt::format("{{{}, {}, {}{}}}", t, size_in_bytes(slot(t).type.dtype), channels, more));
        }
        out_.line("const TensorOf tensors[kTensors] = {{{}}};", fmt::join(tensors, ", "));
        out_.line("[[maybe_unused]] const vec zero = broadcast(0.0f);");
        next("first_tile", {}, tile(0), By::Warp);
        out_.line("if (thread() == 0) shared.places[0].tile = first_tile<kChannels{}>(call);", and_order());
        out_.add(group_barrier());
        next("find_places", tile(0), addresses(0));
        out_.line("find_places(shared.places[0], call, tensors);");
        out_.add(group_barrier());
    }

    /// Whether a token has a number of each channel.
    [[nodiscard]] bool has_channels_per_token(const Shape& shape) const {
        if (channels_are_heads(plan_.definition)) return true;
        return shape.size() > 2 && shape.back().symbol == plan_.definition.states[0].type.shape.back().symbol;
    }

    /// All token inputs of a tile are loaded before any is used: of the first one before the loop.
    void first_loads() {
        next("load", place(0), {});
        out_.line("const Part part_first = part_of(shared.places[0].tile, {});", channels_);
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (is_tensor(v)) out_.line("auto {} = {};", name(v), load(v, "shared.places[0]", "part_first"));
        for (const SavedState& s : saved_)
            out_.line("vec {} = {};", strip_state(s), load(s, "shared.places[0].tile", "part_first"));
    }

    /// The tile behind another one and its addresses, so many tiles after the one under way.
    void take_and_place(int ahead, const char* next, const char* before) {
        take_tile(ahead);
        out_.line("take_tile<kChannels{}>({}, {}, call);", and_order(), next, before);
        out_.add(group_barrier());
        place_tile(ahead);
        out_.line("place_tile{}({}, {}, call, tensors);", order(), next, before);
    }

    /// Of each other tile its inputs are loaded while the states of the one before are awaited.
    void next_loads() {
        next("load", place(1), {});
        out_.line("const Part part_next = part_of(following.tile, {});", channels_);
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (is_tensor(v)) out_.line("const auto {}_next = {};", name(v), load(v, "following", "part_next"));
        for (const SavedState& s : saved_)
            out_.line("const vec {}_next = {};", strip_state(s), load(s, "following.tile", "part_next"));
    }

    /// Where states are matrices, a tile's inputs are loaded as it begins, and those of rows as these do.
    void load_now(bool rows) {
        next("load", place(0), {});
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (is_tensor(v) && has_rows(v) == rows)
                out_.line("const auto {} = {};", name(v), load(v, "places", "part"));
        if (!rows) return;
        for (const SavedState& s : saved_) out_.line("const vec {} = {};", strip_state(s), load(s, "at", "part"));
    }

    /// Saved states as they were before a thread's rows.
    [[nodiscard]] std::string strip_state(const SavedState& s) const { return name(s.before) + "_strip"; }
    [[nodiscard]] std::string load(const SavedState& s, const char* tile, const char* part) const {
        const std::string saved = graph::saved_spill(s.name);
        return fmt::format("load_saved({}, call, {}, {}, {})", spilled_row(saved, state_rows_), tile, part,
                           floats(saved));
    }
    [[nodiscard]] std::string spill(const std::string& name) const {
        return fmt::format("call.spills[{}]", plan_.spill(name));
    }
    [[nodiscard]] std::int64_t floats(const std::string& name) const {
        return plan_.spills[static_cast<std::size_t>(plan_.spill(name))].floats;
    }

    [[nodiscard]] std::string load(ValueId v, const char* places, const char* part) const {
        const std::string arguments = fmt::format("{}{}, {}, {}, {}", tokens(op(v).attrs.name), of_row(has_rows(v)),
                                                  places, part, float_literal(slot(tensor_of(v)).pad));
        const char* what = has_channels(v) ? "rows" : "numbers";
        if (!is_param(v, Role::Shifted)) return fmt::format("load_{}({})", what, arguments);
        if (unshifted(fn_, v) != ir::kNoValue)
            return fmt::format("load_row_before({}, call, {})", arguments, rows_before(plan_, tensor_of(v)));
        return fmt::format("load_shifted_{}({}, call, {})", what, arguments, rows_before(plan_, tensor_of(v)));
    }

    /// What no token changes, of all rows or of the one that the thread is at.
    void before_tokens(bool rows) {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!walks_.before_tokens(v) || op(v).code == Opcode::Constant || has_rows(v) != rows) continue;
            if (is_param(v, Role::Scalar))
                out_.line("const vec {} = broadcast(call.scalars[{}]);", name(v), plan_.scalar(op(v).attrs.name));
            else if (is_param(v, Role::Head)) load_head(v);
            else compute(v, "const " + type(v) + " " + name(v));
        }
    }

    void load_head(ValueId v) {
        const int t = tensor_of(v);
        if (has_channels(v))
            return out_.line("const vec {} = load_head<{}>(call, {}, at, part{});", name(v), storage(t), t,
                             and_row(has_rows(v)));
        const std::string before = has_rows(v) ? fmt::format(" + before_row(call.tensors[{}], state_row)", t) : "";
        out_.line("const vec {} = broadcast(load_number(head_block<const {}>(call, {}, at){}));", name(v), storage(t),
                  t, before);
    }

    /// Saved states before each of a thread's rows, from those before all of them.
    void make_saved_states() {
        if (saved_.empty()) return;
        for (const SavedState& s : saved_) out_.line("vec {}[kRows];", name(s.before));
        next("saved states", tile(0), {});
        out_.open("");
        read_.clear();
        for (const SavedState& s : saved_) out_.line("vec {} = {};", row_name(s.before), strip_state(s));
        out_.put("#pragma unroll");
        out_.open("for (int row = 0; row < kRows; ++row)");
        for (const SavedState& s : saved_) {
            out_.line("{}[row] = {};", name(s.before), row_name(s.before));
            read_.insert(s.before);
        }
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!walks_.saves(v) || op(v).code == Opcode::Param) continue;
            for (const ValueId a : op(v).args) read(a, Kept::Once);
            compute(v, fmt::format("const {} {}", type(v), name(v)));
        }
        for (const SavedState& s : saved_) {
            read(s.after, Kept::Once);
            out_.line("{} = {};", row_name(s.before), use(s.after));
        }
        out_.close();
        out_.close();
    }

    /// What rows of matrices have in common, and a place for their sums.
    void once() {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (walks_.kept(v) && (walks_.in(v, ChannelWalk::Once) || is_sum(v)))
                out_.line("{} {}[kRows]{};", type(v), name(v), is_sum(v) ? " = {}" : "");
        next("once", tile(0), {});
        walk(ChannelWalk::Once);
    }

    /// What these tokens do to the states: from nothing, and from factors of 1.
    void first_walk() {
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (walks_.kept(v) && walks_.in(v, ChannelWalk::First)) out_.line("{} {}[kRows];", type(v), name(v));
        next("first walk", tile(0), all_of("strips"));
        out_.open("");
        for (const ChannelState& s : states_) {
            out_.line("vec {} = {};", variable(s), s.no_addend());
            if (s.factor != ir::kNoValue) out_.line("vec {} = {};", name(s.factor), s.no_factor());
        }
        walk(ChannelWalk::First);
        for (std::size_t i = 0; i < states_.size(); ++i)
            out_.line("put_map{}(shared, {}, {}, {});", order(), i, factor(states_[i]), variable(states_[i]));
        out_.close();
    }

    /// The states before these tokens arrive.
    void join() {
        Accesses reads = tile(0);
        ::forge::kernel::append(reads, all_of("strips"));
        next("join", reads, all_of("before"));  // and of strips what a warp will read, and then overwrite, alone
        out_.line("join(shared, call, at, {{{}}}, states, {});", state_rows_ ? "round, state_row" : "turn", channels_);
        out_.add(group_barrier());
    }

    void second_walk() {
        Accesses reads = place(0);
        ::forge::kernel::append(reads, all_of("before"));
        next("second walk", reads, {});
        out_.open("");
        for (std::size_t i = 0; i < states_.size(); ++i)
            out_.line("vec {} = state_before{}(shared, {});", variable(states_[i]), order(), i);
        for (const ir::Result& r : fn_.results)
            if (r.role == Role::Spill)
                out_.line("store_saved({}, call, at, part, {}, {});", spilled_row(r.name, state_rows_), floats(r.name),
                          name(r.value));
        walk_to_results(ChannelWalk::Second);
        for (const ChannelState& s : states_)
            out_.line("store_state{}(call, {}, at, part, {}{});", order(), plan_.tensor(Slot::FinalState, s.name),
                      variable(s), and_row(state_rows_));
        put_sums(ChannelWalk::Second);
        out_.close();
    }

    /// What follows from sums over rows, and what no row needs.
    void last_walk() {
        next("last walk", place(0), {});
        out_.open("");
        walk_to_results(ChannelWalk::Last);
        put_sums(ChannelWalk::Last);
        out_.close();
    }

    /// Whether a walk makes a result.
    [[nodiscard]] bool makes(ChannelWalk walk, const ir::Result& r) const {
        return !state_rows_ || has_rows(r.value) == (walk == ChannelWalk::Second);
    }

    void walk_to_results(ChannelWalk how) {
        for (const ir::Result& r : fn_.results)
            if (r.role == Role::Input && makes(how, r))
                out_.line("Rows<{}> {};", storage(plan_.tensor(Slot::Output, r.name)), rows(r.name));
        for (const ir::Result& r : sums_)
            if (makes(how, r)) out_.line("vec {} = zero;", sum(r));
        walk(how);
        for (const ir::Result& r : fn_.results)
            if (r.role == Role::Input && makes(how, r))
                out_.line("store_{}({}{}, places, part, {});", has_channels(r.value) || is_wide(r) ? "rows" : "numbers",
                          tokens(r.name), of_row(has_rows(r.value)), rows(r.name));
    }

    /// Whether an output has channels, whatever is stored in all of them.
    [[nodiscard]] bool is_wide(const ir::Result& r) const {
        return has_channels_per_token(slot(plan_.tensor(Slot::Output, r.name)).type.shape);
    }

    static std::string sum(const ir::Result& r) { return cpp_identifier(r.name) + "_sum"; }

    void put_sums(ChannelWalk how) {
        if (!stores_sums(state_rows_ && how == ChannelWalk::Second)) return;
        next("put sums", {}, all_of(how == ChannelWalk::Last ? "last sums" : "sums"));
        for (std::size_t i = 0; i < sums_.size(); ++i)
            if (makes(how, sums_[i])) out_.line("put_sum(shared, {}, {});", i, sum(sums_[i]));
    }
    /// Whether tokens add to anything, of rows or of none.
    [[nodiscard]] bool stores_sums(bool rows) const {
        return std::any_of(sums_.begin(), sums_.end(), [&](const ir::Result& r) { return has_rows(r.value) == rows; });
    }

    void store_sums(bool rows) {
        if (!stores_sums(rows)) return;
        out_.add(group_barrier());
        Accesses reads = tile(0);
        ::forge::kernel::append(reads, all_of(state_rows_ && !rows ? "last sums" : "sums"));
        next("store sums", reads, {});
        for (std::size_t i = 0; i < sums_.size(); ++i) {
            if (has_rows(sums_[i].value) != rows) continue;
            const std::string left = graph::sum_spill(sums_[i].name);
            out_.line("store_sum(shared, {}, {}, call, at, {}, {});", i, spilled_row(left, rows), floats(left),
                      channels_);
        }
    }

    /// The loop over a thread's tokens.
    void walk(ChannelWalk walk) {
        out_.put("#pragma unroll");
        out_.open(goes_back() ? "for (int row = kRows - 1; row >= 0; --row)" : "for (int row = 0; row < kRows; ++row)");
        read_.clear();
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (walks_.in(v, walk) && op(v).code != Opcode::Param) compute_in_walk(v);
        if (walk == ChannelWalk::Second || walk == ChannelWalk::Last)
            for (const ir::Result& r : fn_.results)
                if (r.role == Role::Input && makes(walk, r)) store(r);
        // Rows that are not there change nothing: by what they hold, or, where chunks have no such rows, because they
        // are left out.
        const bool left_out = leaves_rows_out(plan_.definition, goes_back()) && walk != ChannelWalk::Once;
        if (left_out) out_.open("if (row < part.rows)");
        if (walk == ChannelWalk::First || walk == ChannelWalk::Second)
            for (const ChannelState& s : states_) assign(variable(s), s.after);
        if (walk == ChannelWalk::Second || walk == ChannelWalk::Last)
            for (const ir::Result& r : sums_)
                if (makes(walk, r)) {
                    read(r.value), out_.line("{0} = add({0}, {1});", sum(r), use(r.value));
                }
        if (walk == ChannelWalk::First)
            for (const ChannelState& s : states_)
                if (s.factor != ir::kNoValue) assign(name(s.factor), s.next_factor);
        if (left_out) out_.close();
        out_.close();
    }

    void compute_in_walk(ValueId v) {
        if (is_sum(v)) return add_rows(v);
        for (const ValueId a : op(v).args) read(a);
        const bool keeps = walks_.kept(v);  // in the only walk that computes it
        compute(v, keeps ? fmt::format("{}[row]", name(v)) : fmt::format("const {} {}", type(v), name(v)));
        if (keeps) out_.line("const {} {} = {}[row];", type(v), row_name(v), name(v)), read_.insert(v);
    }

    /// Whether v is a sum over the rows of matrices, which all of them lead to.
    [[nodiscard]] bool is_sum(ValueId v) const { return graph::sums_rows(fn_, op(v)); }
    void add_rows(ValueId v) {
        const ValueId of = op(v).args[0];
        read(of);
        out_.line("{0}[row] = add({0}[row], {1});", name(v), use(of));
    }

    void store(const ir::Result& r) {
        read(r.value);
        out_.line("{}.row[row] = pack<{}>({});", rows(r.name), storage(plan_.tensor(Slot::Output, r.name)),
                  use(r.value));
    }

    /// A carried value takes its next one, which no other carried value is: their order does not matter.
    void assign(const std::string& to, ValueId from) {
        read(from);
        if (to != use(from)) out_.line("{} = {};", to, use(from));
    }

    /// An input, or a value kept from a walk before, as this row's number; `kept`: of which of them.
    enum class Kept : std::uint8_t { All, Once };
    void read(ValueId v, Kept kept = Kept::All) {
        if (walks_.in_each(v) && op(v).code != Opcode::Param) return read_each(v);
        const bool mask = is_param(v, Role::Mask),
                   keeps = walks_.kept(v) && (kept == Kept::All || walks_.in(v, ChannelWalk::Once));
        if (!(is_tensor(v) || is_saved(v) || mask || keeps) || !read_.insert(v).second) return;
        if (mask) out_.line("const vec {} = broadcast(row < part.rows ? 1.0f : 0.0f);", row_name(v));
        else if (const ValueId rows = unshifted(fn_, v); rows != ir::kNoValue)
            out_.line("const {} {} = shifted_row({}, {}, row);", type(v), row_name(v), name(rows), name(v));
        else out_.line("const {} {} = {}[row];", type(v), row_name(v), name(v));
    }

    /// What each walk makes that needs it.
    void read_each(ValueId v) {
        if (op(v).code == Opcode::Constant || !read_.insert(v).second) return;
        for (const ValueId a : op(v).args) read(a);
        compute(v, fmt::format("const {} {}", type(v), row_name(v)));
    }

    [[nodiscard]] std::string use(ValueId v) const {
        if (op(v).code == Opcode::Constant) return fmt::format("broadcast({})", float_literal(op(v).attrs.value));
        return read_.contains(v) ? row_name(v) : name(v);
    }

    void compute(ValueId v, const std::string& to) {
        std::vector<std::string> args;
        for (const ValueId a : op(v).args) args.push_back(use(a));
        if (ir::along(op(v).code) == ir::Along::Inserted) return out_.line("{} = {};", to, args[0]);
        if (ir::along(op(v).code) == ir::Along::Reduced)
            return out_.line("{} = {}_channels({}, part);", to, ir::info(op(v).code).name, args[0]);
        out_.line("{} = {};", to, expression(fn_, op(v), args, "zero", Spelling::Functions));
    }

    [[nodiscard]] const std::string& name(ValueId v) const { return names_[static_cast<std::size_t>(v)]; }
    [[nodiscard]] std::string row_name(ValueId v) const { return name(v) + "_row"; }
    [[nodiscard]] std::string factor(const ChannelState& s) const {
        return s.factor == ir::kNoValue ? s.no_factor() : name(s.factor);
    }
    static std::string after(const ChannelState& s) { return cpp_identifier(s.name) + "_after"; }
    [[nodiscard]] std::string variable(const ChannelState& s) const {
        return s.before != ir::kNoValue ? name(s.before) : after(s);
    }

    Writer& out_;
    const plan::Plan& plan_;
    const plan::Kernel& kernel_;
    const Function& fn_;
    std::vector<std::string> names_;
    std::vector<ChannelState> states_;
    std::vector<SavedState> saved_;
    std::vector<ir::Result> sums_;  ///< what tokens add to them
    Walks walks_;
    std::int64_t state_rows_;  ///< of states that are matrices
    std::string channels_;     ///< how many there are
    std::set<ValueId> read_;   ///< values with a name for this row of tokens
};

}  // namespace

void write_channel_kernel(Writer& out, const plan::Plan& plan, const plan::Kernel& kernel) {
    if (is_sums(kernel)) write_channel_sums(out, plan, kernel);
    else ChannelWriter(out, plan, kernel).write();
}

}  // namespace forge::emit
