/// Emitted sources as files: every variant in one pass, and the delta rule in every strategy. A change of the emitted
/// code shows here, to be read; scripts/update-tests accepts it.
#include "emit/cpu/emit_cpu.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "schedule/choose.h"
#include "tests/support/expected.h"
#include "variants/variants.h"

namespace forge::tests {
namespace {

constexpr int kThreads = 2, kVectorWidth = 16;  // AVX-512: emitting needs no such machine

std::string emitted(const variants::Entry& entry, plan::Strategy strategy) {
    const ir::Definition def = frontend::with_dtype(entry.make().define(), BF16);
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes sizes = check_sizes(def);
    const auto schedule = schedule::choose_schedule(program, {sizes, 4096, 1, 4}, {kThreads, kVectorWidth}, {strategy, 64});
    return emit::emit_cpu(plan::make_plan(def, program, sizes, schedule));
}

}  // namespace
}  // namespace forge::tests
