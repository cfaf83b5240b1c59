#include "emit/loads_ahead.h"

namespace forge::emit {

using ir::Opcode;
using ir::ValueId;
using plan::Loop;

std::int64_t LoadsAhead::step() const { return loop() == Loop::Carries ? 1 : c_.plan.schedule.chunk; }

std::string LoadsAhead::rows_from(const std::string& row) const {
    if (loop() == Loop::Carries) return fmt::format("static_cast<int>(at.end - {})", row);
    return fmt::format("static_cast<int>(at.tokens - {0} < {1} ? at.tokens - {0} : {1})", row, c_.plan.schedule.chunk);
}

/// None of a chunk before the first.
std::string LoadsAhead::rows_ahead_from(const std::string& row) const {
    return reverse() ? fmt::format("{} < at.row ? 0 : {}", row, rows_from(row)) : rows_from(row);
}

void LoadsAhead::choose() {
    if (loop() == Loop::Carries && !c_.plan.schedule.transition_columns) return;
    constexpr std::int64_t kRegisters = 65536 / 4;  // a quarter of what a multiprocessor has
    // A task that carries states along has little else to hold than a transition.
    const std::int64_t most = (loop() == Loop::Carries ? 2 : 1) * kRegisters / c_.dialect.threads;
    std::int64_t used = 0;
    for (ValueId v = 0; v < c_.fn.size() && c_.fn.op(v).code == Opcode::Param; ++v) {
        const std::int64_t registers = transfers_.registers_ahead(v);
        if (registers == 0 || used + registers > most) continue;
        used += registers;
        ahead_.push_back(v), chosen_.insert(v);
    }
    choose_between(plan::in_order(loop()) ? most - used : most);
}

void LoadsAhead::choose_between(std::int64_t most) {
    ValueId before = ir::kNoValue;
    std::int64_t used = 0;
    for (ValueId v = 0; v < c_.fn.size(); ++v) {
        if (c_.fn.op(v).code != Opcode::Param) {
            if (c_.is_computed(v)) before = v, used = 0;
            continue;
        }
        const std::int64_t registers = transfers_.registers_ahead(v);
        if (before == ir::kNoValue || registers == 0 || used + registers > most) continue;
        used += registers;
        during_[before].push_back(v), chosen_.insert(v);
    }
}

void LoadsAhead::fetch_first() {
    if (ahead_.empty()) return;
    const bool many = plan::in_order(loop());
    const std::string first = reverse() ? "last_row" : "at.row";
    if (many) c_.out.line("int rows_ahead = {};", rows_ahead_from(first));
    for (const ValueId v : ahead_)
        declare(v, many ? Transfers::Place{first, "rows_ahead", "block"} : Transfers::Place{});
}

void LoadsAhead::fetch_next() {
    if (!plan::in_order(loop())) return;
    const char* const sign = reverse() ? "-" : "+";
    fetch({fmt::format("(row {} {})", sign, step()), "rows_ahead", fmt::format("(block {} call.heads)", sign)});
}

void LoadsAhead::fetch_again() { fetch({"row", "rows_ahead", "block"}); }

void LoadsAhead::fetch(const Transfers::Place& place) {
    if (ahead_.empty()) return;
    c_.out.line("rows_ahead = {};", rows_ahead_from(place.row));
    for (const ValueId v : ahead_) {
        fetches(v);
        c_.out.line("{}_ahead = {};", c_.name(v), transfers_.fetch(v, place));
    }
}

void LoadsAhead::fetch_during(ValueId v) {
    const auto loads = during_.find(v);
    if (loads == during_.end()) return;
    for (const ValueId load : loads->second) declare(load, {});
}

void LoadsAhead::declare(ValueId v, const Transfers::Place& place) {
    fetches(v);
    c_.out.line("auto {}_ahead = {};", c_.name(v), transfers_.fetch(v, place));
}

void LoadsAhead::fetches(ValueId v) {
    c_.next("fetch " + c_.name(v), transfers_.source(v), {kernel::registers(c_.name(v) + "_ahead")});
}

}  // namespace forge::emit
