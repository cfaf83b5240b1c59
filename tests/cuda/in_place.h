/// Calls of emulated kernels whose final states lie where the initial ones do.
#pragma once

#include "check/check.h"
#include "tests/cuda/emulated/program.h"

namespace forge::tests {

inline void run_in_place(const emulated::Program& program, check::Buffers& buffers, unsigned seed = 2) {
    Call call = buffers.call();
    for (auto& [name, x] : buffers.initial_states) {
        buffers.final_states.at(name).storage = x.storage;
        call.initial_states[name] = call.final_states.at(name);
    }
    program.run(call, seed);
}

}  // namespace forge::tests
