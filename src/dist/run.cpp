// A rank's call: its summary, the exchange, and the pass itself from the states that came.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "dist/call.h"
#include "graph/gradient.h"
#include "graph/transition.h"
#include "program/entry_point.h"
#include "support/random.h"

namespace forge::dist {
namespace detail {
namespace {

using Map = Carried::Map;
using Items = std::vector<Item>;

/// The way of states over the borders in one direction: forwards, or backwards for gradients.
struct Leg {
    bool reverse = false;
    bool receives = false, sends = false;
    std::int64_t in_row = 0, out_row = 0;  ///< of the sequences that cross

    /// Whether what is sent is of the sequence that came.
    [[nodiscard]] bool carries() const { return receives && in_row == out_row; }
};

/// Transitions before the first token: ones, or identities.
std::vector<float> neutral(const Item& item, std::int64_t sequences) {
    std::int64_t count = item.heads * sequences;
    for (const std::int64_t size : item.map_shape) count *= size;
    std::vector<float> values(static_cast<std::size_t>(count), 1);
    if (item.map == Map::Factors) return values;
    const std::int64_t n = item.map_shape[0];
    for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = i / n % n == i % n ? 1 : 0;
    return values;
}

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
    Bordered(Call call, const Geometry& geometry) : call_(std::move(call)), geometry_(geometry) {}

    /// The states of the sequences that cross at `row` are these.
    void begin(const Items& items, std::int64_t row, const States& states) {
        for (const Item& item : items) {
            std::vector<float>& all =
                buffers_.emplace_back(states_of(call_.initial_states, item, 0, geometry_.sequences));
            const std::vector<float>& part = states.at(item.name);
            std::copy(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(row * item.block()));
            call_.initial_states[item.name] = view(all, item);
        }
    }

    /// Final states are wanted, by the caller or not.
    void want(const Items& items) {
        for (const Item& item : items)
            if (!call_.final_states.contains(item.name))
                call_.final_states[item.name] =
                    view(buffers_.emplace_back(states_of({}, item, 0, geometry_.sequences)), item);
    }

    void run(const Attention& attention) const { attention(call_); }

    void take(const Items& items, std::int64_t row, States& states) const {
        for (const Item& item : items) {
            const std::vector<float> values = states_of(call_.final_states, item, row, geometry_.crossing());
            std::copy(values.begin(), values.end(), states.at(item.name).begin());  // where they are sent from
        }
    }

  private:
    [[nodiscard]] TensorView view(std::vector<float>& values, const Item& item) const {
        std::vector<std::int64_t> shape{geometry_.sequences, item.heads};
        shape.insert(shape.end(), item.shape.begin(), item.shape.end());
        return dense(values.data(), DType::F32, shape);
    }

    Call call_;
    const Geometry& geometry_;
    std::deque<std::vector<float>> buffers_;  ///< which stay where they are
};

class RankCall {
  public:
    RankCall(const Attention& attention, const Call& call, Space& space, const Part& part)
        : attention_(attention),
          call_(call),
          space_(space),
          part_(part),
          back_(program::is_backward(attention.entry())),
          geometry_(attention.definition(), call),
          last_(last_row_items(attention.definition(), call)),
          states_(carried_items(attention, "forward", geometry_.heads)) {
        if (back_) gradients_ = carried_items(attention, attention.entry(), geometry_.heads);
    }

    void run() {
        const Leg forwards = leg(false), backwards = leg(true);
        exchange_last_rows(forwards);
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

    /// Room for the states of the sequences that cross a border.
    [[nodiscard]] States room_for(const Items& items) const {
        States room;
        for (const Item& item : items) room[item.name] = states_of({}, item, 0, geometry_.crossing());
        return room;
    }
    static std::vector<float*> pointers(States& states, const Items& items) {
        std::vector<float*> found;
        for (const Item& item : items) found.push_back(states.at(item.name).data());
        return found;
    }
    /// What the call has for sequences that begin on this rank.
    [[nodiscard]] States given(const Items& items, std::int64_t row) const {
        States found;
        for (const Item& item : items)
            found[item.name] = states_of(call_.initial_states, item, row, geometry_.crossing());
        return found;
    }

    /// What prev_token reads before a rank's first token. A rank that has tokens need not wait for the one before.
    void exchange_last_rows(const Leg& leg) {
        last_before_ = room_for(last_);
        if (last_.empty()) return;
        const bool tokens = leg.sends && geometry_.token_count(leg.out_row) > 0;
        States mine = tokens || leg.carries() || !leg.sends ? room_for(last_) : given(last_, leg.out_row);
        const auto declared = ir::last_rows(attention_.definition());
        Summary summary{tokens || !leg.carries(), leg.receives, leg.sends, {}, {}};
        for (std::size_t i = 0; i < last_.size(); ++i) {
            std::vector<float>& rows = mine.at(last_[i].name);
            if (tokens) rows = last_rows_of(declared[i], attention_.definition(), call_, geometry_, leg.out_row);
            else if (leg.carries()) std::fill(rows.begin(), rows.end(), 0.0F);  // what came goes on
            summary.states.push_back(rows.data()), summary.maps.push_back(nullptr);
        }
        exchange_of(last_, "last rows", false).scan(space_, summary, pointers(last_before_, last_));
    }

    /// The exchange of a program's states. `compute` is called when those that come are in `came`; it leaves those to
    /// send where it is told to, if it is.
    template <class Compute>
    void pass(const Items& items, const Leg& leg, States& came, const Compute& compute) {
        came = room_for(items);
        if (items.empty()) return compute(nullptr);
        Exchange exchange = exchange_of(items, "states", leg.reverse);
        const bool summed = exchange.summed() && geometry_.heads == geometry_.input_heads;
        if (!summed || exchange.scheme(space_) == Scheme::Serial) {
            States out = room_for(items);
            exchange.serial(space_, leg.receives, leg.sends, pointers(came, items), pointers(out, items),
                            [&] { compute(leg.sends ? &out : nullptr); });
            return;
        }
        States states = leg.carries() || !leg.sends ? room_for(items) : given(items, leg.out_row), maps;
        if (leg.sends) summarise(items, leg, states, maps);
        Summary summary{!leg.carries(), leg.receives, leg.sends, {}, {}};
        for (const Item& item : items) {
            const auto map = maps.find(graph::transition_name(item.name));
            summary.states.push_back(states.at(item.name).data());
            summary.maps.push_back(map == maps.end() ? nullptr : map->second.data());
        }
        exchange.scan(space_, summary, pointers(came, items));
        compute(nullptr);
    }

    /// From the states before the part that is sent to those after it, and their transitions.
    void summarise(const Items& items, const Leg& leg, States& states, States& maps) const {
        const Items transitions = transitions_of(items);
        for (const Item& item : items)
            if (has_transition(item)) maps[graph::transition_name(item.name)] = neutral(item, geometry_.crossing());
        if (geometry_.token_count(leg.out_row) == 0) return;
        const Attention summary = attention_.entry(leg.reverse ? "summary of backward" : "summary");
        Call part = inputs_of(summary.definition(), call_, geometry_, leg.out_row);
        States last = leg.reverse || leg.carries() ? last_before_ : given(last_, leg.out_row), before = states_before_;
        States begun = states, first = maps;
        const auto add = [](std::map<std::string, TensorView>& to, States& from, const Items& of) {
            to.merge(views_of(from, of));
        };
        add(part.initial_states, begun, items), add(part.initial_states, first, transitions);
        add(part.initial_states, last, last_);
        if (leg.reverse) add(part.initial_states, before, states_);
        add(part.final_states, states, items), add(part.final_states, maps, transitions);
        summary(part);
    }

    void forward(States* out) const {
        Bordered call(call_, geometry_);
        if (part_.has_prev) call.begin(states_, 0, states_before_), call.begin(last_, 0, last_before_);
        finish(call, attention_, states_, geometry_.row_of(true), out);
    }

    void backward(States* out) const {
        Bordered call(call_, geometry_);
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
        for (const ir::InputDecl& in : def.inputs)
            if (in.role != ir::Role::Scalar) again.tensors[in.name] = call_.tensors.at(in.name);
        std::deque<std::vector<std::byte>> outputs;
        for (const ir::OutputDecl& o : def.outputs) {
            const TensorView& gradient = call_.tensors.at(graph::grad_name(o.name));
            std::size_t bytes = size_in_bytes(gradient.dtype);
            for (const std::int64_t n : gradient.shape) bytes *= static_cast<std::size_t>(n);
            again.tensors[o.name] = dense(outputs.emplace_back(bytes).data(), gradient.dtype, gradient.shape);
        }
        for (const Items* items : {&states_, &last_})
            for (const Item& item : *items)
                if (const auto found = call_.initial_states.find(item.name); found != call_.initial_states.end())
                    again.initial_states[item.name] = found->second;
        Bordered call(std::move(again), geometry_);
        if (part_.has_prev) call.begin(states_, 0, states_before_), call.begin(last_, 0, last_before_);
        finish(call, attention, states_, geometry_.row_of(true), out);
    }

    static void finish(Bordered& call, const Attention& attention, const Items& items, std::int64_t row, States* out) {
        if (out) call.want(items);
        call.run(attention);
        if (out) call.take(items, row, *out);
    }

    const Attention& attention_;
    const Call& call_;
    Space& space_;
    Part part_;
    bool back_;  ///< whether it is a backward pass
    Geometry geometry_;
    Items last_, states_, gradients_;
    States last_before_, states_before_, gradients_after_;
};

void check_call(const Attention& attention, const Call& call, const Part& part, int size) {
    const auto refuse = [&](const std::string& argument, const std::string& expected, const std::string& got) {
        throw RuntimeError(fmt::format("{}: argument '{}': expected {}, got {}", attention.definition().name, argument,
                                       expected, got));
    };
    const std::string& entry = attention.entry();
    if (entry != "forward" && !program::is_backward(entry))
        refuse("entry", "forward or backward, which ranks share", entry);
    if (attention.engine() != "cpu")
        refuse("device", "cpu: ranks do not exchange states on GPUs yet", attention.engine() + " kernels");
    if (call.initial_slots || call.final_slots || call.has_initial_state)
        refuse("initial_slots", "states of the call's own over ranks", "slots of a pool");
    static_cast<void>(attention.workspace_bytes(call));  // checks all arguments
    const bool borders = part.has_prev || part.has_next;
    if (size == 1 && borders) refuse("has_prev", "no borders with one rank", "some");
    // Where results depend on chunks, those of all ranks are the chunks of the whole sequence.
    const Geometry geometry(attention.definition(), call);
    const std::int64_t chunk = attention.definition().fixed_chunk;
    if (chunk > 0 && part.has_next && geometry.sequences > 0)
        if (const std::int64_t tokens = geometry.token_count(geometry.row_of(true)); tokens % chunk != 0)
            refuse(
                "has_next",
                fmt::format("whole chunks of {} tokens, which the definition fixes, of a sequence that goes on", chunk),
                fmt::format("{} tokens", tokens));
    if (borders && call.cu_seqlens && call.cu_seqlens->shape[0] < 2)
        refuse("cu_seqlens", "the sequence that crosses the border, if only with 0 tokens", "no sequence");
}

}  // namespace
}  // namespace detail

Part part_of(const Group& group) { return {group.rank() > 0, group.rank() + 1 < group.size()}; }

void run(const Attention& attention, const Call& call, Group& group, const Part& part) {
    detail::Space& space = group.space();
    space.check();
    detail::check_call(attention, call, part, group.size());
    if (group.size() == 1) return attention(call);
    try {
        detail::RankCall(attention, call, space, part).run();
    } catch (const GroupError&) {
        throw;
    } catch (...) {
        space.give_up();
        throw;
    }
}

}  // namespace forge::dist
