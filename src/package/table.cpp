#include "package/table.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace forge::package {
namespace {

class TableBuilder {
  public:
    explicit TableBuilder(std::size_t features) : features_(features) {}

    /// The node, or the kernels, that calls like these cells go to.
    int add(const std::vector<Cell>& cells) {
        const int kernels = cells.front().kernels;
        if (std::all_of(cells.begin(), cells.end(), [&](const Cell& c) { return c.kernels == kernels; }))
            return -1 - kernels;
        for (std::size_t feature = 0; feature < features_; ++feature) {
            std::set<std::int64_t> values;
            for (const Cell& cell : cells) values.insert(cell.features[feature]);
            if (values.size() < 2 || !matters(cells, feature)) continue;
            return split(cells, feature, {values.begin(), values.end()});
        }
        return -1 - kernels;  // twice the same call: the first counts
    }

    std::vector<rt::Node> nodes;

  private:
    /// Whether cells that differ in nothing else have other kernels. Of what is no number of a call all differ.
    [[nodiscard]] bool matters(const std::vector<Cell>& cells, std::size_t feature) const {
        if (feature + 2 < features_) return true;
        for (const Cell& a : cells)
            for (const Cell& b : cells) {
                bool alike = a.kernels != b.kernels;
                for (std::size_t f = 0; f < features_ && alike; ++f)
                    alike = f == feature || a.features[f] == b.features[f];
                if (alike) return true;
            }
        return false;
    }

    int split(const std::vector<Cell>& cells, std::size_t feature, const std::vector<std::int64_t>& values) {
        const std::size_t middle = (values.size() - 1) / 2;
        const std::int64_t low = values[middle], next = values[middle + 1];
        const bool is_length = feature + 2 >= features_;
        const std::int64_t limit =
            is_length
                ? std::clamp(static_cast<std::int64_t>(std::sqrt(static_cast<double>(low) * static_cast<double>(next))),
                             low, next - 1)
                : low;
        std::vector<Cell> below, above;
        for (const Cell& cell : cells) (cell.features[feature] <= low ? below : above).push_back(cell);
        const auto at = nodes.size();
        nodes.push_back({static_cast<int>(feature), limit, 0, 0});
        const int at_most = add(below), over = add(above);
        nodes[at].at_most = at_most, nodes[at].above = over;
        return static_cast<int>(at);
    }

    std::size_t features_;
};

}  // namespace

rt::Table table_of(const std::vector<Cell>& cells, std::size_t features) {
    TableBuilder builder(features);
    rt::Table table;
    table.root = builder.add(cells);
    table.nodes = std::move(builder.nodes);
    return table;
}

}  // namespace forge::package
