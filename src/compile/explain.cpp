#include "compile/explain.h"

#include <fmt/format.h>

#include "emit/cuda/emit_cuda.h"
#include "graph/norm_bound.h"
#include "graph/slice.h"
#include "graph/transition.h"
#include "ir/text.h"
#include "target/choose.h"

namespace forge::compiler {

std::string engine_of(const Executable& executable) { return executable.choice.target().name; }

std::string explain(const program::Module& module, const std::string& entry, const Executable& executable) {
    const plan::Plan& plan = executable.plan;
    std::string text =
        fmt::format("// The definition.\n{}\n// The joined program: the work of one chunk of one head.\n{}\n",
                    ir::print(module.definition()), ir::print(module.entry(entry).joined));
    text += fmt::format("// Optimised, with its slices.\n");
    const auto marks = graph::slices(plan.program);
    for (ir::ValueId v = 0; v < plan.program.size(); ++v)
        text += fmt::format("//   {:<12} {}\n", graph::to_string(marks[static_cast<std::size_t>(v)]),
                            ir::print_op(plan.program, v));
    text += "\n// The transitions of the states.\n";
    for (const graph::Transition& t : graph::transitions(plan.program))
        text += fmt::format("//   {}: {}{}{}\n", t.state, to_string(t.cls),
                            t.cls == graph::TransitionClass::Identity ? ""
                            : t.data_dependent                        ? ", data-dependent"
                                                                      : ", static",
                            t.obstacle.empty() ? "" : ", because of " + t.obstacle);
    text += "\n// Upper bounds of their norms.\n";
    for (const graph::NormBound& bound : graph::norm_bounds(plan.program, plan.definition))
        text += "// " + to_string(bound);
    if (executable.gpu) {
        text +=
            fmt::format("\n// The GPU: {}.\n// The engine: {}.\n", to_string(*executable.gpu), engine_of(executable));
        for (const Refusal& why : plan.schedule.refused) text += fmt::format("//   not {}\n", to_string(why));
    }
    // Of a GPU's candidates no more were looked at than it took to choose.
    const target::Choice all =
        executable.gpu ? target::choose(plan.definition, plan.program, executable.choice.question, target::Range::All)
                       : executable.choice;
    text += fmt::format("\n// The schedule: {}.\n{}", to_string(executable.choice.schedule),
                        target::explain(all, plan.definition, plan.program));
    for (const auto& kernel : plan.kernels)
        text += fmt::format("\n// Kernel {}: {}.\n{}\n// The same as tiles ({} floats of scratch).\n{}",
                            kernel.graph.name, plan::tasks_of(kernel), ir::print(kernel.graph.fn),
                            kernel.tiles.scratch_floats, ir::print(kernel.tiles.fn));
    if (executable.gpu)
        for (const auto& kernel : emit::kernels_of(emit::cuda_source(plan)))
            text += "\n// The same in time: what waits for what.\n" + kernel::print(kernel);
    return text;
}

}  // namespace forge::compiler
