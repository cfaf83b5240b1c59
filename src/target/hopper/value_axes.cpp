#include "target/hopper/value_axes.h"

#include <algorithm>

#include "graph/epilogue.h"
#include "graph/saved_states.h"
#include "graph/slice.h"
#include "graph/trailing_states.h"
#include "plan/place.h"
#include "support/reasons.h"
#include "tile/fragments.h"

namespace forge::target {
namespace {

using graph::Sums;
using graph::Whole;
using plan::Strategy;
using tile::kBlock;

/// Those that are not there yet.
void add(std::vector<ValueAxis>& axes, const std::vector<std::string>& names, const ValueAxis& how = {}) {
    for (const std::string& name : names)
        if (std::none_of(axes.begin(), axes.end(), [&](const ValueAxis& axis) { return axis.name == name; }))
            axes.push_back({name, how.between, how.ahead, how.epilogue});
}

std::vector<ValueAxis> axes_forwards(const ir::Function& program, Strategy strategy) {
    std::vector<ValueAxis> axes;
    const auto add_if_none = [&](const std::vector<std::string>& names, const ValueAxis& how = {}) {
        if (axes.empty()) add(axes, names, how);
    };
    add(axes, plan::cut_axes(program, strategy));
    add_if_none(graph::parallel_axes(program, Whole::Some));
    add_if_none(graph::parallel_axes(program, Whole::Some, Sums::Ahead), {.ahead = true});
    if (makes_outputs_apart(strategy)) {
        add_if_none(graph::scan_axes(program, Whole::Some));
        add_if_none(graph::scan_axes(program, Whole::Some, Sums::Ahead), {.ahead = true});
    } else {
        add_if_none(graph::axes_but_for_epilogue(program), {.epilogue = true});
        add_if_none(graph::axes_but_for_epilogue(program, Sums::Ahead), {.ahead = true, .epilogue = true});
    }
    return axes;
}

std::vector<ValueAxis> axes_backwards(const ir::Function& program, Strategy strategy, bool always_between) {
    std::vector<ValueAxis> axes;
    if (!always_between) add(axes, plan::cut_axes(program, strategy));
    // What decoupled scans leave for a kernel of whole chunks has 16 bits, too few for sums over values that cancel.
    if (strategy != Strategy::Fused) return axes;
    const auto add_all = [&](bool between) {
        add(axes, graph::axes_but_for_trailing_states(program, between), {.between = between});
        add(axes, graph::axes_but_for_trailing_states(program, between, Sums::Ahead),
            {.between = between, .ahead = true});
    };
    if (!always_between) add_all(false);
    if (axes.empty()) add_all(true);
    return axes;
}

}  // namespace

std::vector<ValueAxis> value_axes(const ir::Function& program, Strategy strategy, const tile::Sizes& sizes,
                                  bool always_between) {
    std::vector<ValueAxis> axes = graph::has_saved_states(program) ? axes_backwards(program, strategy, always_between)
                                                                   : axes_forwards(program, strategy);
    if (axes.empty()) refuse(Reason::NoValueAxis);
    const std::string first = axes[0].name;
    std::erase_if(axes, [&](const ValueAxis& axis) {
        const auto it = sizes.find(axis.name);
        return it == sizes.end() || it->second % kBlock != 0;
    });
    if (axes.empty()) {
        const std::int64_t size = sizes.at(first);
        refuse(Reason::SizeOfValueAxis, first, size, (size + kBlock - 1) / kBlock * kBlock);
    }
    return axes;
}

bool outputs_mix_axes(const ir::Function& program) {
    return graph::parallel_axes(program, Whole::Some, Sums::Ahead).empty() &&
           !graph::scan_axes(program, Whole::Some, Sums::Ahead).empty();
}

bool makes_outputs_apart(Strategy strategy) { return strategy == Strategy::Fused || strategy == Strategy::Decoupled; }

}  // namespace forge::target
