#include "rt/dispatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace forge::rt {

using runtime::Arguments;
using runtime::TensorOfCall;
using runtime::View;

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// The call's size of an axis as declared; -1 for a tensor that has not that many.
std::int64_t size_at(const TensorOfCall& tensor, const View& view, int axis) {
    const int lead = view.rank - tensor.rank() + axis;
    return view.is_given() && lead >= 0 && lead < view.rank ? view.shape[lead] : -1;
}

/// Rows of a table: the values of each feature for which the same kernels are taken.
struct Row {
    std::vector<std::int64_t> least, most;
};

class Rows {
  public:
    Rows(const Manifest& manifest, const Table& table)
        : manifest_(manifest), table_(table), entry_(manifest.entries[static_cast<std::size_t>(table.entry)]) {
        const std::size_t features = entry_.symbols.size() + 3;
        visit(table.root, {std::vector<std::int64_t>(features, 0), std::vector<std::int64_t>(features, kMost)});
    }
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    void visit(int at, const Row& row) {
        if (at < 0) return print(row, manifest_.kernels[static_cast<std::size_t>(-1 - at)]);
        const Node& node = table_.nodes[static_cast<std::size_t>(at)];
        const auto feature = static_cast<std::size_t>(node.feature);
        Row below = row, above = row;
        below.most[feature] = std::min(row.most[feature], node.limit);
        above.least[feature] = std::max(row.least[feature], node.limit == kMost ? kMost : node.limit + 1);
        visit(node.at_most, below), visit(node.above, above);
    }

    void print(const Row& row, const Compiled& kernels) {
        const std::size_t tokens = entry_.symbols.size() + 1;
        text_ += fmt::format("  {:<28} {:<18} {:<18} {}{}\n",
                             shown(entry_, static_cast<std::int64_t>(kernels.dtype), kernels.sizes.data()),
                             range(row, tokens, "tokens"), range(row, tokens + 1, "tasks"), kernels.schedule,
                             kernels.reason.empty() ? "" : " (" + kernels.reason + ")");
    }

    static std::string range(const Row& row, std::size_t feature, const char* what) {
        const std::int64_t least = row.least[feature], most = row.most[feature];
        if (most == kMost) return least == 0 ? fmt::format("any {}", what) : fmt::format("{}.. {}", least, what);
        return fmt::format("{}..{} {}", least, most, what);
    }

    const Manifest& manifest_;
    const Table& table_;
    const Entry& entry_;
    std::string text_;
};

}  // namespace

Features features_of(const Entry& entry, const Compiled& any, const Arguments& call) {
    const std::vector<TensorOfCall>& tensors = any.callable.tensors;
    Features features;
    features.symbols = static_cast<int>(entry.symbols.size());
    features.values[0] = static_cast<std::int64_t>(
        entry.dtype_tensor < 0 ? any.dtype : call.tensors[static_cast<std::size_t>(entry.dtype_tensor)].dtype);
    for (int s = 0; s < features.symbols; ++s) {
        const Symbol& symbol = entry.symbols[static_cast<std::size_t>(s)];
        const auto tensor = static_cast<std::size_t>(symbol.tensor);
        features.values[1 + s] = symbol.tensor < 0
                                     ? any.sizes[static_cast<std::size_t>(s)]
                                     : size_at(tensors[tensor], call.tensors[tensor], symbol.axis) / symbol.factor;
    }
    std::int64_t tokens = 0, sequences = 1, heads = 1;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (!tensors[i].has_tokens()) continue;
        tokens = size_at(tensors[i], call.tensors[i], 0) / tensors[i].axes[0].number;
        heads = std::max(heads, size_at(tensors[i], call.tensors[i], 1));
        if (call.tensors[i].rank > tensors[i].rank()) sequences = call.tensors[i].shape[0];
    }
    if (call.cu_seqlens.rank == 1) {
        sequences = std::max<std::int64_t>(1, call.cu_seqlens.shape[0] - 1);
        tokens /= sequences;
    }
    features.tokens() = tokens;
    features.tasks() = sequences > kMost / std::max<std::int64_t>(1, heads) ? kMost : sequences * heads;
    return features;
}

std::size_t look_up(const Table& table, const Features& features) {
    int at = table.root;
    while (at >= 0) {
        const Node& node = table.nodes[static_cast<std::size_t>(at)];
        at = features.values[node.feature] <= node.limit ? node.at_most : node.above;
    }
    return static_cast<std::size_t>(-1 - at);
}

bool are_for(const Compiled& kernels, const Features& features) {
    if (features.dtype() != static_cast<std::int64_t>(kernels.dtype)) return false;
    for (int s = 0; s < features.symbols; ++s)
        if (features.size(s) != kernels.sizes[static_cast<std::size_t>(s)]) return false;
    return true;
}

std::string shown(const Entry& entry, std::int64_t dtype, const std::int64_t* sizes) {
    std::string text = to_string(static_cast<DType>(dtype));
    for (std::size_t s = 0; s < entry.symbols.size(); ++s)
        text += fmt::format(", {} = {}", entry.symbols[s].name, sizes[s]);
    return text;
}

std::string explain(const Manifest& manifest) {
    std::string text = fmt::format("package {}, built by Forge {}\n", manifest.name, manifest.build);
    for (const Table& table : manifest.tables) {
        const Entry& entry = manifest.entries[static_cast<std::size_t>(table.entry)];
        text += fmt::format("\n{} {} on {}\n{}", manifest.definitions[static_cast<std::size_t>(entry.definition)].name,
                            entry.name, manifest.targets[static_cast<std::size_t>(table.target)].name,
                            Rows(manifest, table).text());
    }
    return text;
}

}  // namespace forge::rt
