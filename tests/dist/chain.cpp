#include "tests/dist/chain.h"

#include <random>

namespace forge::tests {

using dist::detail::Field;
using Map = Carried::Map;

Chain random_chain(int size, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    Chain chain;
    const auto lanes = static_cast<std::int64_t>(1 + random() % 3);
    chain.fields = {{Map::Identity, {3, 5}, {}, lanes},       {Map::Factors, {70, 90}, {1, 1}, lanes},
                    {Map::Factors, {70, 90}, {70, 1}, lanes}, {Map::Factors, {4, 3, 5}, {1, 3, 1}, lanes},
                    {Map::Factors, {9}, {9}, lanes},          {Map::Left, {6, 5}, {6, 6}, lanes},
                    {Map::Right, {6, 5}, {5, 5}, lanes},      {Map::Factors, {}, {}, lanes}};
    for (int r = 0; r < size; ++r) {
        auto& states = chain.states.emplace_back();
        auto& maps = chain.maps.emplace_back();
        for (const Field& field : chain.fields) {
            auto& s = states.emplace_back(static_cast<std::size_t>(lanes * field.block()));
            auto& m = maps.emplace_back(static_cast<std::size_t>(lanes * field.map_block()));
            for (float& x : s) x = normal(random);
            const bool zero = random() % 4 == 0;  // a gate that has closed
            for (float& x : m) x = zero ? 0 : 0.4F * normal(random);
        }
        chain.open.push_back(random() % 5 != 0);
        chain.fresh.push_back(r == 0 || !chain.open[static_cast<std::size_t>(r) - 1] || random() % 5 == 0);
    }
    return chain;
}

std::vector<std::vector<double>> folded(const Chain& chain, std::size_t f, int size) {
    const Field& field = chain.fields[f];
    const std::int64_t block = field.block();
    std::vector<std::vector<double>> before(static_cast<std::size_t>(size));
    std::vector<double> sum;
    for (std::size_t r = 0; r < before.size(); ++r) {
        before[r] = sum;
        const std::vector<float>&added = chain.states[r][f], &map = chain.maps[r][f];
        std::vector<double> after(added.begin(), added.end());
        for (std::int64_t i = 0; !chain.fresh[r] && i < field.lanes * block; ++i) {
            const std::int64_t lane = i / block, at = i % block, base = lane * field.map_block();
            double& x = after[static_cast<std::size_t>(i)];
            const auto m = [&](std::int64_t n) { return double{map[static_cast<std::size_t>(base + n)]}; };
            const auto s = [&](std::int64_t n) { return sum[static_cast<std::size_t>(lane * block + n)]; };
            if (field.map == Map::Identity) x += s(at);
            if (field.map == Map::Factors) {
                std::int64_t rest = at, stride = 1, from = 0;
                for (std::size_t axis = field.shape.size(); axis-- > 0;) {
                    if (field.map_shape[axis] > 1) from += rest % field.shape[axis] * stride;
                    rest /= field.shape[axis], stride *= field.map_shape[axis];
                }
                x += m(from) * s(at);
            }
            const std::int64_t rows = field.shape.size() == 2 ? field.shape[0] : 0,
                               columns = field.shape.size() == 2 ? field.shape[1] : 1;
            if (field.map == Map::Left)
                for (std::int64_t k = 0; k < rows; ++k) x += m(at / columns * rows + k) * s(k * columns + at % columns);
            if (field.map == Map::Right)
                for (std::int64_t k = 0; k < columns; ++k)
                    x += s(at / columns * columns + k) * m(k * columns + at % columns);
        }
        sum = std::move(after);
    }
    return before;
}

}  // namespace forge::tests
