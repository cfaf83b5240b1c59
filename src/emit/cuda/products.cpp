#include "emit/cuda/products.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace forge::emit {

void Products::need(const std::string& fragment) {
    for (std::size_t i = groups_.size(); i > 0; --i)
        if (groups_[i - 1].fragment == fragment) return finish(i);
}

void Products::overwrite(const Ranges& writes) {
    for (std::size_t i = groups_.size(); i > 0; --i)
        if (meet(groups_[i - 1].reads, writes)) return finish(i);
}

void Products::finish(std::size_t count) {
    if (count == 0) return;
    const auto end = groups_.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<std::string> done;
    for (auto it = groups_.begin(); it != end; ++it) {
        barriers_.read(it->reads);
        const bool again =
            std::any_of(end, groups_.end(), [&](const Group& later) { return later.fragment == it->fragment; });
        if (!again && std::find(done.begin(), done.end(), it->fragment) == done.end()) done.push_back(it->fragment);
    }
    groups_.erase(groups_.begin(), end);
    out_.line("finish<{}>({});", groups_.size(), fmt::join(done, ", "));
}

}  // namespace forge::emit
