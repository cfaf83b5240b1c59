#include "emit/held_states.h"

#include "emit/coming.h"
#include "emit/loops.h"

namespace forge::emit {
namespace {

using ir::ValueId;
using tile::size_of;
using SlotKind = plan::TensorSlot::Kind;

}  // namespace

HeldStates::HeldStates(Context& context, const Transfers& transfers) : c_(context), transfers_(transfers) {
    for (ValueId v = 0; v < c_.fn.size(); ++v)
        if (c_.is_param(v, ir::Role::State) && c_.is_held(v)) states_.push_back(v);
}

void HeldStates::expect() const {
    for (const ValueId v : states_) {
        const ir::Type& type = c_.fn.op(v).type;
        c_.out.line("expect_state<{}, {}, {}>(call, {});", storage_type(c_.plan.state_dtype), size_of(type, 0),
                    size_of(type, 1), initial_of(v));
    }
}

void HeldStates::ask() {
    for (const ValueId v : states_) {
        declare(v);
        c_.next("ask for " + c_.name(v), {}, {kernel::registers(coming(v))});
        ask_for(v);
    }
}

void HeldStates::declare() const {
    for (const ValueId v : states_) declare(v);
    c_.out.open("const auto ask_for_states = [&](const HoldingTask& at)");
    for (const ValueId v : states_) ask_for(v);
    c_.out.close("};");
}

void HeldStates::ask_for_next() const {
    c_.out.line("next.find_states();");
    ask_for_all("ask_for_states(next);");
}

void HeldStates::take() {
    for (const ValueId v : states_) take(v);
    if (!states_.empty() && c_.plan.schedule.states_ahead) ask_for_next();
}

std::string HeldStates::coming(ValueId v) const { return c_.name(v) + "_coming"; }

void HeldStates::declare(ValueId v) const {
    const ir::Type& type = c_.fn.op(v).type;
    const std::string of = fmt::format("<{}, {}, {}> {}", storage_type(c_.plan.state_dtype), size_of(type, 0),
                                       size_of(type, 1), coming(v));
    if (c_.plan.schedule.states_ahead) c_.out.line("const Coming{}(scratch + {});", of, place(v));
    else c_.out.line("Asked{};", of);
}

std::int64_t HeldStates::place(ValueId v) const {
    std::int64_t place = floats_of_tiles(c_.kernel);
    for (const ValueId before : states_)
        if (before < v) place += coming_floats(c_.plan, c_.fn.op(before).type);
    return place;
}

int HeldStates::initial_of(ValueId v) const { return c_.plan.tensor(SlotKind::InitialState, c_.fn.op(v).attrs.name); }

void HeldStates::ask_for(ValueId v) const {
    const int initial = initial_of(v);
    const std::string offset = transfers_.tile_offset(initial, 0);
    constexpr std::size_t kPlus = 3;  // " + "
    c_.out.line("{}.ask(held_block<const {}>(call, {}, at), {}, {});", coming(v), storage_type(c_.plan.state_dtype),
                initial, offset.empty() ? "0" : offset.substr(kPlus), Transfers::state_strides(initial));
}

void HeldStates::ask_for_all(const char* line) const {
    kernel::Accesses all;
    for (const ValueId v : states_) append(all, {kernel::registers(coming(v))});
    c_.next("ask for states", {}, all);
    c_.out.put(line);
}

void HeldStates::take(ValueId v) {
    c_.next("take " + c_.name(v), {kernel::registers(coming(v))}, {kernel::registers(c_.name(v))});
    c_.out.line("{} {} = {}.take();", held_type(c_.fn.op(v).type), c_.name(v), coming(v));
}

}  // namespace forge::emit
