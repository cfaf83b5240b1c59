#include "check/suite.h"

#include <fmt/format.h>

#include <cmath>

#include "interp/semantics.h"

namespace forge::check {

std::vector<Case> awkward_cases(const ir::Definition& def, DType dtype,
                                const std::map<std::string, std::int64_t>& sizes, std::uint64_t seed) {
    std::vector<Case> cases;
    const auto add = [&](const std::string& name, auto&& change) {
        Problem problem;
        problem.dtype = dtype, problem.sizes = sizes, problem.seed = seed;
        change(problem);
        cases.push_back({name, problem});
    };
    add("whole chunks", [](Problem& p) { p.T = 128, p.H = 1; });
    add("ragged", [](Problem& p) { p.T = 100; });
    add("shorter than a chunk", [](Problem& p) { p.T = 3, p.B = 2, p.initial_state = true; });
    add("one token", [](Problem& p) { p.T = 1; });
    add("no tokens", [](Problem& p) { p.T = 0, p.initial_state = true; });
    add("strided, batch of 2, initial state",
        [](Problem& p) { p.T = 70, p.B = 2, p.strided = true, p.initial_state = true; });
    // A call begins a chunk: where a chunk is part of the definition, only whole ones can be cut off.
    const std::int64_t some = def.fixed_chunk != 0 ? def.fixed_chunk : 37;
    add("in two calls", [&](Problem& p) { p.T = some + 33, p.B = 2, p.H = 1, p.cut = some; });
    if (!ir::last_rows(def).empty() && def.fixed_chunk == 0)
        add("in two calls, the first of one token",
            [](Problem& p) { p.T = 20, p.cut = 1, p.strided = true, p.initial_state = true; });
    if (has_keys(def))
        add("correlated keys, beta near 1", [](Problem& p) { p.T = 200, p.H = 1, p.correlated_keys = true; });
    add("packed, int32 offsets", [](Problem& p) { p.lengths = {0, 1, 64, 0, 0, 65, 17, 0}, p.H = 1; });
    add("packed, int64 offsets, strided, initial states", [](Problem& p) {
        p.lengths = {5, 0, 129, 16}, p.H = 1, p.int64_offsets = true, p.strided = true, p.initial_state = true;
    });
    if (has_grouped_heads(def)) add("grouped heads", [](Problem& p) { p.T = 70, p.H = 2, p.HV = 4; });
    if (!has_gates(def)) return cases;
    for (const double gate : {0.0, -1e-3, -5.0, -100.0, -1000.0, -HUGE_VAL}) {
        if ((std::isinf(gate) && !has_gates(def, true)) || !interp::admits_gates(def, gate)) continue;
        add(fmt::format("gate {:g}", gate), [&](Problem& p) { p.T = 100, p.H = 1, p.gate = gate; });
    }
    return cases;
}

}  // namespace forge::check
