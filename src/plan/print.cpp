/// Schedules and kernels in words.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/plan.h"

namespace forge::plan {

const char* to_string(Engine engine) {
    switch (engine) {
        case Engine::Tiles:
            return "tiles";
        case Engine::WarpGroups:
            return "warp groups";
        case Engine::Warps:
            return "warps";
        case Engine::Channels:
            return "channels";
    }
    return "?";
}

std::string tasks_of(const Kernel& kernel) {
    const std::string own = kernel.graph.own_axis.empty() ? ""
                                                          : fmt::format(", and {} of {}", kernel.cut.size,
                                                                        forge::to_string(Dim(kernel.cut.axis)));
    return to_string(kernel.graph.loop) + own;
}

std::string to_string(const Schedule& s) {
    if (s.engine == Engine::Channels)
        return fmt::format("strategy {}, token by token in the registers of {} threads{}", to_string(s.strategy),
                           s.block_threads, s.clusters ? ", in clusters" : "");
    std::string text = fmt::format("strategy {}, chunk {}", to_string(s.strategy), s.chunk);
    if (s.is_relay()) text += fmt::format(", up to {} segments per sequence one after the other", s.segments);
    if (s.strategy == Strategy::Segmented)
        text += fmt::format(", up to {} segments per sequence{}", s.segments,
                            s.summaries > 1        ? fmt::format(" of {} summaries", s.summaries)
                            : s.forgetting         ? ", transitions by columns where they do not forget"
                            : s.transition_columns ? ", transitions by columns"
                                                   : "");
    if (s.tiles > 1)
        text += fmt::format(", {} in {} tiles of {}", forge::to_string(Dim(s.tile_axis)), s.tiles, s.tile_size);
    for (const auto& [axis, size] : s.padded) text += fmt::format(", {} held as {}", forge::to_string(Dim(axis)), size);
    if (s.has_fragments())
        text += fmt::format(", for {}{}{}{}", to_string(s.engine),
                            s.beside_groups > 0 ? ", with work beside the scan"
                            : s.share           ? ", with work ahead of the scan"
                                                : "",
                            s.tiles_ahead ? ", work of tiles ahead of it"
                            : s.folds     ? ", inverses multiplied there"
                                          : "",
                            s.output_groups     ? fmt::format(", roles for {}", s.output_groups + 2)
                            : s.paired          ? ", a producer of inputs for each of two tasks"
                            : s.producer        ? ", a producer of inputs"
                            : s.block_tiles > 1 ? fmt::format(", blocks of {} tiles", s.block_tiles)
                                                : "");
    if (!s.early.empty()) text += fmt::format(", {} in a scan of their own", fmt::join(s.early, ", "));
    if (s.scans_apart) text += ", scans for states that do not need each other";
    if (s.epilogue) text += ", what needs all of an output behind it";
    if (s.between) text += ", what reads states before chunks made between the scans";
    if (!s.trailing.empty()) text += fmt::format(", then {} in a scan of their own", fmt::join(s.trailing, ", "));
    if (s.operand_parts > 1)
        text += fmt::format(", operands in {} parts{}", s.operand_parts, s.float_images ? " split by each kernel" : "");
    else if (s.inverse_parts == 1) text += ", inverses in one part";
    if (s.wide_late) text += s.all_late ? ", all wide inputs as chunks begin" : ", wide inputs as chunks begin";
    if (!s.outputs_axis.empty()) text += fmt::format(", outputs by parts of {}", forge::to_string(Dim(s.outputs_axis)));
    if (!s.halved.empty()) text += fmt::format(", two kernels for {}", fmt::join(s.halved, ", "));
    if (!s.whole.empty()) text += fmt::format(", all tiles in one task of {}", fmt::join(s.whole, ", "));
    if (!s.split.empty()) text += fmt::format(", axes split in {}", fmt::join(s.split, ", "));
    if (s.holds_states)
        text += fmt::format(", states in the registers of {} threads{}, {} blocks per multiprocessor", s.block_threads,
                            s.states_ahead ? ", the next task's on their way to shared memory" : "", s.resident_blocks);
    if (s.far_blocks > 0) text += ", tiles beyond shared memory in global memory";
    return text + fmt::format(", vectors of {} floats{}{}", s.vector_width, s.reason.empty() ? "" : ": ", s.reason);
}

}  // namespace forge::plan
