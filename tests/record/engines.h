/// Which kernels an H200 gets for every variant and every recurrence of the literature: the table of
/// docs/performance.md. Nothing is compiled, and no GPU is needed.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "forge/error.h"
#include "forge/runtime.h"
#include "ir/definition.h"
#include "tests/novel/recurrences.h"
#include "variants/variants.h"

namespace forge::tests {

/// What is chosen, and what the engine before the portable one says, if it is that.
struct ChosenEngine {
    std::string name, why;
};

inline ChosenEngine chosen_engine(const ir::Definition& definition, const std::string& entry) {
    CompileOptions o;
    o.device = "cuda", o.on = "h200", o.load = false, o.tuned = false, o.dtype = DType::BF16, o.entry = entry;
    o.expected_tokens = 8192, o.expected_heads = 32;
    o.sizes = {{"K", 128}, {"V", 128}, {"D", 1024}, {"M", 64}};
    const Attention made = compile(definition, o);
    ChosenEngine found{made.cost().engine, {}};
    if (found.name != "tiles") return found;
    found.name = "portable";
    for (const Refusal& refusal : made.refused())
        if (refusal.engine == "warp-groups") found.why = refusal.why;
    return found;
}

/// A row for each program.
inline std::vector<std::string> engine_rows(const std::vector<variants::Entry>& programs) {
    std::vector<std::string> rows;
    for (const variants::Entry& program : programs) {
        const ir::Definition definition = program.make().define();
        const ChosenEngine forward = chosen_engine(definition, "forward"),
                           backward = chosen_engine(definition, "backward");
        rows.push_back(fmt::format("| `{}` | {} | {} | {} |", program.name, forward.name, backward.name,
                                   forward.why.empty() ? backward.why : forward.why));
    }
    return rows;
}

}  // namespace forge::tests
