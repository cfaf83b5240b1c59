// A rank's call: its summary, the exchange, and the pass itself from the states that came.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "dist/call.h"
#include "dist/gpu.h"
#include "graph/gradient.h"
#include "graph/summary.h"
#include "program/entry_point.h"
#include "support/random.h"

namespace forge::dist {
namespace detail {
namespace {

using Map = Carried::Map;

/// The way of states over the borders in one direction: forwards, or backwards for gradients.
struct Leg {
    bool reverse = false;
    bool receives = false, sends = false;
    std::int64_t in_row = 0, out_row = 0;  ///< of the sequences that cross

    /// Whether what is sent is of the sequence that came.
    [[nodiscard]] bool carries() const { return receives && in_row == out_row; }
};

bool has_transition(const Item& item) { return item.map != Map::Identity && item.map != Map::None; }

/// The transitions of states as states of the summary.
Items transitions_of(const Items& items) {
    Items found;
    for (const Item& item : items)
        if (has_transition(item)) found.push_back({graph::transition_name(item.name), item.heads, item.map_shape});
    return found;
}

/// One of the calls that a rank's call is made of: `call` as it came, with other states at the borders.
class Bordered {
  public:
    Bordered(Call call, const Geometry& geometry, Store& store)
        : call_(std::move(call)), geometry_(geometry), store_(store) {}

    /// The states of the sequences that cross at `row` are these.
    void begin(const Items& items, std::int64_t row, const States& states) {
        for (const Item& item : items) {
            float* all = states.at(item.name);
            if (geometry_.crossing() < geometry_.sequences) {
                const auto given = call_.initial_states.find(item.name);
                const auto count = static_cast<std::size_t>(geometry_.sequences * item.block());
                all = store_.take(count);
                if (given != call_.initial_states.end()) store_.read(given->second, all);
                else store_.fill(all, count, item.absent);
                store_.copy(states.at(item.name), static_cast<std::size_t>(item.block()), all + row * item.block());
            }
            call_.initial_states[item.name] = view_of(all, item, geometry_.sequences);
        }
    }

    /// Final states are wanted, by the caller or not.
    void want(const Items& items) {
        for (const Item& item : items)
            if (!call_.final_states.contains(item.name))
                call_.final_states[item.name] =
                    view_of(store_.take(static_cast<std::size_t>(geometry_.sequences * item.block())), item,
                            geometry_.sequences);
    }

    /// `given`: as large as the call's workspace is.
    void run(const Attention& attention, std::size_t given) {
        const std::size_t needed = attention.workspace_bytes(call_);
        if (!call_.workspace || needed > given) call_.workspace = store_.workspace(needed), call_.workspace_size = {};
        attention(call_);
    }

    /// The same in two steps, of which the first needs no states.
    void summarise(const Attention& attention, std::size_t given, bool every) {
        const std::size_t needed = attention.workspace_bytes(call_);
        if (!call_.workspace || needed > given)
            call_.workspace = store_.lasting_workspace(needed), call_.workspace_size = {};
        attention.summarise(call_, every);
    }
    [[nodiscard]] SegmentSummaries summaries(const Attention& attention, std::int64_t row) const {
        return attention.segment_summaries(call_, row, geometry_.offsets);
    }
    void resume(const Attention& attention) const { attention.resume(call_); }

    void take(const Items& items, std::int64_t row, const States& states) const {
        for (const Item& item : items)  // where they are sent from
            store_.read(rows_of(call_.final_states.at(item.name), row, geometry_.crossing()), states.at(item.name));
    }

  private:
    Call call_;
    const Geometry& geometry_;
    Store& store_;
};

class RankCall {
  public:
    RankCall(const Attention& attention, const Call& call, const Geometry& geometry, Space& space, Store& store,
             Gpu* gpu, const Part& part)
        : attention_(attention),
          call_(call),
          space_(space),
          store_(store),
          gpu_(gpu),
          part_(part),
          back_(program::is_backward(attention.entry())),
          geometry_(geometry),
          last_(last_row_items(attention.definition(), call)),
          states_(carried_items(attention, "forward", geometry_.heads)) {
        if (back_) gradients_ = carried_items(attention, attention.entry(), geometry_.heads);
        if (call.workspace) workspace_ = attention.workspace_bytes(call);
    }

    void run() {
        const Leg forwards = leg(false), backwards = leg(true);
        exchange_last_rows(forwards);
        if (!back_)
            if (const std::optional<Attention> segmented = sums_segments(forwards))
                return forward_in_segments(*segmented, forwards);
        if (!back_) return pass(states_, forwards, states_before_, [&](States* out) { forward(out); });
        pass(states_, forwards, states_before_, [&](States* out) { forward_again(out); });
        pass(gradients_, backwards, gradients_after_, [&](States* out) { backward(out); });
    }

  private:
    [[nodiscard]] Leg leg(bool reverse) const {
        Leg made{reverse, part_.has_prev, part_.has_next, geometry_.row_of(false), geometry_.row_of(true)};
        if (reverse) std::swap(made.receives, made.sends), std::swap(made.in_row, made.out_row);
        return made;
    }

    [[nodiscard]] Exchange exchange_of(const Items& items, const char* what, bool reverse) const {
        std::vector<Field> fields;
        for (const Item& item : items)
            fields.push_back({item.map, item.shape, item.map_shape, item.heads * geometry_.crossing()});
        const std::uint64_t plan =
            support::mix(support::mix(support::mix(1, attention_.definition().name), attention_.entry()), what);
        return {std::move(fields), plan, reverse};
    }

    [[nodiscard]] std::size_t count_of(const Item& item) const {
        return static_cast<std::size_t>(item.block() * geometry_.crossing());
    }
    /// Room for the states of the sequences that cross a border.
    [[nodiscard]] States room_for(const Items& items) const {
        States room;
        for (const Item& item : items) room[item.name] = store_.take(count_of(item));
        return room;
    }
    static std::vector<float*> pointers(const States& states, const Items& items) {
        std::vector<float*> found;
        for (const Item& item : items) found.push_back(states.at(item.name));
        return found;
    }
    /// What the call has for sequences that begin on this rank, where it has something.
    [[nodiscard]] std::map<std::string, TensorView> given(const Items& items, std::int64_t row) const {
        std::map<std::string, TensorView> found;
        for (const Item& item : items)
            if (const auto state = call_.initial_states.find(item.name); state != call_.initial_states.end())
                found[item.name] = rows_of(state->second, row, geometry_.crossing());
        return found;
    }
    /// The same as states of their own.
    void fill(const States& states, const Items& items, const std::map<std::string, TensorView>& with) const {
        for (const Item& item : items) {
            const auto found = with.find(item.name);
            if (found != with.end()) store_.read(found->second, states.at(item.name));
            else store_.fill(states.at(item.name), count_of(item), item.absent);
        }
    }

    /// What prev_token reads before a rank's first token. A rank that has tokens need not wait for the one before.
    void exchange_last_rows(const Leg& leg) {
        last_before_ = room_for(last_);
        if (last_.empty()) return;
        const bool tokens = leg.sends && geometry_.token_count(leg.out_row) > 0;
        const States mine = room_for(last_);
        const auto declared = ir::last_rows(attention_.definition());
        Summary summary{tokens || !leg.carries(), leg.receives, leg.sends, {}, {}};
        if (leg.sends && !tokens && !leg.carries()) fill(mine, last_, given(last_, leg.out_row));
        for (std::size_t i = 0; i < last_.size(); ++i) {
            float* rows = mine.at(last_[i].name);
            if (tokens)
                store_.read(last_rows_of(declared[i], attention_.definition(), call_, geometry_, leg.out_row), rows);
            else if (leg.carries()) store_.fill(rows, count_of(last_[i]), 0);  // what came goes on
            summary.states.push_back(rows), summary.maps.push_back(nullptr);
        }
        exchange_of(last_, "last rows", false).scan(space_, gpu_, summary, pointers(last_before_, last_));
    }

    /// The exchange of a program's states. `compute` is called when those that come are in `came`; it leaves those to
    /// send where it is told to, if it is.
    template <class Compute>
    void pass(const Items& items, const Leg& leg, States& came, const Compute& compute) {
        came = room_for(items);
        if (items.empty()) return compute(nullptr);
        Exchange exchange = exchange_of(items, "states", leg.reverse);
        const bool summed = exchange.summed() && geometry_.heads == geometry_.input_heads;
        if (!summed || exchange.scheme(space_, gpu_) == Scheme::Serial) {
            States out = room_for(items);
            exchange.serial(space_, gpu_, leg.receives, leg.sends, pointers(came, items), pointers(out, items),
                            [&] { compute(leg.sends ? &out : nullptr); });
            return;
        }
        const States states = room_for(items);
        std::map<std::string, const float*> maps;
        if (leg.sends) summarise(items, leg, states, maps);
        Summary summary{!leg.carries(), leg.receives, leg.sends, {}, {}};
        for (const Item& item : items) {
            const auto map = maps.find(graph::transition_name(item.name));
            summary.states.push_back(states.at(item.name));
            summary.maps.push_back(map == maps.end() ? nullptr : map->second);
        }
        exchange.scan(space_, gpu_, summary, pointers(came, items));
        compute(nullptr);
    }

    /// The pass, if it makes summaries of its segments itself, from which that of the rank follows. On a GPU a pass of
    /// its own for transitions that are matrices has no fast kernels, and all but two ranks need it.
    [[nodiscard]] std::optional<Attention> sums_segments(const Leg& leg) const {
        const Exchange exchange = exchange_of(states_, "states", leg.reverse);
        const std::vector<Field>& fields = exchange.fields();
        const auto folds = [&](const Field& field) { return store_.folds(field); };
        const auto is_matrix = [](const Field& f) { return f.map == Map::Left || f.map == Map::Right; };
        if (fields.empty() || geometry_.heads != geometry_.input_heads ||
            !std::all_of(fields.begin(), fields.end(), folds) || exchange.scheme(space_, gpu_) == Scheme::Serial)
            return std::nullopt;
        if (attention_.summarised_segments() > 0) return attention_;
        const bool gains = gpu_ && space_.size() > 2 && std::any_of(fields.begin(), fields.end(), is_matrix);
        return gains ? attention_.in_segments() : std::nullopt;
    }

    /// The kernels that need no state, the exchange of what they say of the rank's tokens, and the others.
    void forward_in_segments(const Attention& attention, const Leg& leg) {
        states_before_ = room_for(states_);
        Bordered call(call_, geometry_, store_);
        if (part_.has_prev) call.begin(last_, 0, last_before_);
        call.summarise(attention, workspace_, leg.sends);
        Summary summary{!leg.carries(), leg.receives, leg.sends, {}, {}};
        if (leg.sends) fold_segments(call.summaries(attention, leg.out_row), leg, summary);
        summary.states.resize(states_.size()), summary.maps.resize(states_.size());
        exchange_of(states_, "states", leg.reverse).scan(space_, gpu_, summary, pointers(states_before_, states_));
        if (part_.has_prev) call.begin(states_, 0, states_before_);
        call.resume(attention);
    }

    /// Of the sequences that go on behind the rank. What goes on from a rank before begins with zeros here.
    void fold_segments(const SegmentSummaries& segments, const Leg& leg, Summary& summary) const {
        std::map<std::string, TensorView> begun;
        if (!leg.carries()) begun = given(states_, leg.out_row);
        for (const Item& item : states_) {
            const auto of = std::find_if(segments.states.begin(), segments.states.end(),
                                         [&](const auto& state) { return state.state == item.name; });
            Fold fold;
            fold.field = {item.map, item.shape, item.map_shape, item.heads * geometry_.crossing()};
            fold.added = of->added, fold.added_block = of->added_block, fold.added_strides = of->added_strides;
            fold.map = of->map, fold.map_block = of->map_block, fold.map_strides = of->map_strides;
            fold.heads = segments.heads, fold.first = segments.first, fold.count = segments.count;
            if (const auto found = begun.find(item.name); found != begun.end()) {
                float* states = store_.take(count_of(item));
                store_.read(found->second, states);
                fold.begun = states;
            }
            fold.state = store_.take(count_of(item));
            if (leg.carries() && has_transition(item))
                fold.transition = store_.take(static_cast<std::size_t>(fold.field.lanes * fold.field.map_block()));
            store_.fold(fold);
            summary.states.push_back(fold.state), summary.maps.push_back(fold.transition);
        }
    }

    /// From the states before the part that is sent to those after it, and their transitions. What goes on from a rank
    /// before begins with zeros here.
    void summarise(const Items& items, const Leg& leg, const States& states,
                   std::map<std::string, const float*>& maps) const {
        const Items transitions = transitions_of(items);
        std::map<std::string, TensorView> begun;
        if (!leg.carries()) begun = given(items, leg.out_row);
        for (const Item& item : items) {
            if (!has_transition(item)) continue;
            std::int64_t count = item.heads * geometry_.crossing();
            for (const std::int64_t size : item.map_shape) count *= size;
            maps[graph::transition_name(item.name)] =
                store_.neutral(static_cast<std::size_t>(count), item.map == Map::Factors ? 0 : item.map_shape[0]);
        }
        if (geometry_.token_count(leg.out_row) == 0) return fill(states, items, begun);
        std::vector<std::string> entries = {leg.reverse ? "summary of backward" : "summary"};
        if (gpu_ && !leg.reverse) entries = {"states of summary", "transitions of summary"};
        std::map<std::string, TensorView> initial = std::move(begun),
                                          final = views_of(states, items, geometry_.crossing());
        for (const Item& item : transitions) {
            float* after = store_.take(count_of(item));
            initial[item.name] = view_of(maps.at(item.name), item, geometry_.crossing());
            final[item.name] = view_of(after, item, geometry_.crossing());
            maps[item.name] = after;
        }
        initial.merge(leg.reverse || leg.carries() ? views_of(last_before_, last_, geometry_.crossing())
                                                   : given(last_, leg.out_row));
        if (leg.reverse) initial.merge(views_of(states_before_, states_, geometry_.crossing()));
        for (const std::string& entry : entries) {
            // What begins on this rank is what it is, whatever came before.
            if (entry == "transitions of summary" && (transitions.empty() || !leg.carries())) continue;
            const Attention summary = attention_.entry(entry);
            Call part = inputs_of(summary.definition(), call_, geometry_, leg.out_row);
            for (const auto& [name, view] : initial)
                if (has_place(summary.definition(), name)) part.initial_states[name] = view;
            for (const auto& [name, view] : final)
                if (has_place(summary.definition(), name)) part.final_states[name] = view;
            part.workspace = store_.workspace(summary.workspace_bytes(part));
            summary(part);
        }
    }
    static bool has_place(const ir::Definition& def, const std::string& state) {
        const auto last = ir::last_rows(def);
        return def.state(state) ||
               std::any_of(last.begin(), last.end(), [&](const ir::LastRows& l) { return l.name == state; });
    }

    void forward(States* out) const {
        Bordered call(call_, geometry_, store_);
        if (part_.has_prev) call.begin(states_, 0, states_before_), call.begin(last_, 0, last_before_);
        finish(call, attention_, states_, geometry_.row_of(true), out);
    }

    void backward(States* out) const {
        Bordered call(call_, geometry_, store_);
        if (part_.has_prev) call.begin(states_, 0, states_before_), call.begin(last_, 0, last_before_);
        if (part_.has_next) call.begin(gradients_, geometry_.row_of(true), gradients_after_);
        finish(call, attention_, gradients_, 0, out);
    }

    /// The forward pass, for its states alone: of programs that have no summary.
    void forward_again(States* out) const {
        if (!out) return;
        const Attention attention = attention_.entry("forward");
        const ir::Definition& def = attention.definition();
        Call again;
        again.scalars = call_.scalars, again.cu_seqlens = call_.cu_seqlens, again.parallel_for = call_.parallel_for;
        again.stream = call_.stream;
        for (const ir::InputDecl& in : def.inputs)
            if (in.role != ir::Role::Scalar) again.tensors[in.name] = call_.tensors.at(in.name);
        for (const ir::OutputDecl& o : def.outputs) {
            const TensorView& gradient = call_.tensors.at(graph::grad_name(o.name));
            std::size_t bytes = size_in_bytes(gradient.dtype);
            for (const std::int64_t n : gradient.shape) bytes *= static_cast<std::size_t>(n);
            again.tensors[o.name] = dense(store_.take((bytes + 3) / sizeof(float)), gradient.dtype, gradient.shape);
        }
        for (const Items* items : {&states_, &last_})
            for (const Item& item : *items)
                if (const auto found = call_.initial_states.find(item.name); found != call_.initial_states.end())
                    again.initial_states[item.name] = found->second;
        Bordered call(std::move(again), geometry_, store_);
        if (part_.has_prev) call.begin(states_, 0, states_before_), call.begin(last_, 0, last_before_);
        finish(call, attention, states_, geometry_.row_of(true), out);
    }

    void finish(Bordered& call, const Attention& attention, const Items& items, std::int64_t row, States* out) const {
        if (out) call.want(items);
        call.run(attention, workspace_);
        if (out) call.take(items, row, *out);
    }

    const Attention& attention_;
    const Call& call_;
    Space& space_;
    Store& store_;
    Gpu* gpu_;  ///< which the store is then
    Part part_;
    bool back_;  ///< whether it is a backward pass
    const Geometry& geometry_;
    std::size_t workspace_ = 0;  ///< bytes that the caller gave
    Items last_, states_, gradients_;
    States last_before_, states_before_, gradients_after_;
};

class Refusals {
  public:
    explicit Refusals(const Attention& attention) : attention_(attention) {}

    void check_arguments(const Call& call, const Part& part, int size) const {
        const std::string& entry = attention_.entry();
        const bool crosses_borders =  // of states, or of their gradients
            entry == "forward" ||
            (program::is_backward(entry) && !program::is_from_states(entry) && !program::is_to_inputs(entry));
        if (!crosses_borders) refuse("entry", "forward or backward, which ranks share", entry);
        if (call.initial_slots || call.final_slots || call.has_initial_state)
            refuse("initial_slots", "states of the call's own over ranks", "slots of a pool");
        static_cast<void>(attention_.workspace_bytes(call));  // checks all arguments
        const bool borders = part.has_prev || part.has_next;
        if (size == 1 && borders) refuse("has_prev", "no borders with one rank", "some");
        if (borders && call.cu_seqlens && call.cu_seqlens->shape[0] < 2)
            refuse("cu_seqlens", "the sequence that crosses the border, if only with 0 tokens", "no sequence");
    }

    /// Where results depend on chunks, those of all ranks are the chunks of the whole sequence.
    void check_chunks(const Geometry& geometry, const Part& part) const {
        const std::int64_t chunk = attention_.definition().fixed_chunk;
        if (chunk == 0 || !part.has_next || geometry.sequences == 0) return;
        if (const std::int64_t tokens = geometry.token_count(geometry.row_of(true)); tokens % chunk != 0)
            refuse(
                "has_next",
                fmt::format("whole chunks of {} tokens, which the definition fixes, of a sequence that goes on", chunk),
                fmt::format("{} tokens", tokens));
    }

  private:
    [[noreturn]] void refuse(const std::string& argument, const std::string& expected, const std::string& got) const {
        throw RuntimeError(fmt::format("{}: argument '{}': expected {}, got {}", attention_.definition().name, argument,
                                       expected, got));
    }
    const Attention& attention_;
};

}  // namespace
}  // namespace detail

Part part_of(const Group& group) { return {group.rank() > 0, group.rank() + 1 < group.size()}; }

void run(const Attention& attention, const Call& call, Group& group, const Part& part) {
    detail::Space& space = group.space();
    space.check();
    const detail::Refusals refusals(attention);
    refusals.check_arguments(call, part, group.size());
    if (group.size() == 1) return attention(call);
    std::unique_ptr<detail::HostStore> host;
    std::optional<runtime::CudaScope> scope;
    detail::Gpu* gpu = nullptr;
    if (attention.device() == "cpu") {
        host = std::make_unique<detail::HostStore>();
    } else {
        const runtime::CudaDevice& device = runtime::cuda_device(attention.device());
        scope.emplace(device);
        gpu = &space.gpu(device);
        gpu->begin(static_cast<runtime::CudaStream>(call.stream));
    }
    detail::Store& store = gpu ? static_cast<detail::Store&>(*gpu) : *host;
    const detail::Geometry geometry(attention.definition(), call, store);
    refusals.check_chunks(geometry, part);
    try {
        detail::RankCall(attention, call, geometry, space, store, gpu, part).run();
    } catch (const GroupError&) {
        throw;
    } catch (...) {
        space.give_up();
        throw;
    }
}

}  // namespace forge::dist
