#include "compile/dispatcher.h"

#include <fmt/format.h>

#include "forge/error.h"

namespace forge::compiler {
namespace {

bool within(const Bounds& call, const Bounds& most) {
    return call.sequences <= most.sequences && call.tokens <= most.tokens && call.heads <= most.heads &&
           (most.packed || !call.packed);
}

std::string to_string(const Dispatcher::Key& key) {
    std::vector<std::string> sizes;
    for (const auto& [symbol, size] : key.sizes) sizes.push_back(fmt::format("{} = {}", symbol, size));
    return fmt::format("{}, {}, {}", key.entry, forge::to_string(key.dtype), fmt::join(sizes, ", "));
}

}  // namespace

void Dispatcher::add(Key key, Found executable, std::optional<Bounds> most) {
    const std::lock_guard lock(mutex_);
    rows_.push_back({std::move(key), most, std::move(executable)});
}

Dispatcher::Found Dispatcher::at(const Key& key, const Bounds& call) {
    const std::lock_guard lock(mutex_);
    for (const Row& row : rows_)
        if (row.key == key && (!row.most || within(call, *row.most))) return row.executable;
    if (!compile_)
        throw RuntimeError(fmt::format("there are no kernels for {} and {} sequences of {} tokens and {} heads",
                                       to_string(key), call.sequences, call.tokens, call.heads));
    rows_.push_back({key, std::nullopt, compile_(key)});
    return rows_.back().executable;
}

}  // namespace forge::compiler
