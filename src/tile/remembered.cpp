#include "tile/remembered.h"

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "ir/text.h"

namespace forge::tile {
namespace {

using Lowerings = std::map<std::tuple<std::string, Sizes, FragmentRules, Rewriting>, TileKernel>;

/// Of each thread its own: others may compile meanwhile.
std::optional<Lowerings>& lowerings() {
    thread_local std::optional<Lowerings> found;
    return found;
}

}  // namespace

Remembering::Remembering() : outermost_(!lowerings()) {
    if (outermost_) lowerings().emplace();
}
Remembering::~Remembering() {
    if (outermost_) lowerings().reset();
}

TileKernel remembered(const ir::Function& kernel, const Sizes& sizes, const FragmentRules& rules, Rewriting how,
                      const std::function<TileKernel()>& lower) {
    if (!lowerings()) return lower();
    Lowerings::key_type key(ir::print(kernel, {.locations = true}), sizes, rules, how);
    if (const auto known = lowerings()->find(key); known != lowerings()->end()) return known->second;
    return lowerings()->emplace(std::move(key), lower()).first->second;
}

}  // namespace forge::tile
