/// The work in one run of a kernel's body, counted on its tiles: operations of products and of vectors, and the bytes
/// that come from outside the task. Counting goes by operation, sizes and layouts; no speeds in here.
#pragma once

#include "plan/plan.h"

namespace forge::target {

struct Work {
    double useful_flops = 0;   ///< of products and inverses, structural zeros not counted
    double product_flops = 0;  ///< that are carried out in blocks: padded columns and blocks on a diagonal included
    double calls = 0;          ///< products, scans and inverses started
    double vectors = 0;        ///< simple operations on one vector: arithmetic, a load, a store
    double exps = 0;           ///< exponentials, logarithms, divisions, square roots of one vector
    double input_bytes = 0;    ///< token inputs, read once per body
    double shared_bytes = 0;   ///< the part of them (and of spills read) that every tile of the same chunk reads again
    double output_bytes = 0;
    double token_rows = 0;      ///< the pieces of memory in which token inputs and outputs lie
    double streamed_bytes = 0;  ///< of inputs and outputs: by loops that compute while they move
    double spill_read_bytes = 0, spill_write_bytes = 0;  ///< through memory
    double passed_bytes = 0;  ///< of spills that are read and written while they lie in caches
    double state_bytes = 0;   ///< read and written once per task: states before the first chunk and after the last
};

Work work_of(const plan::Plan& plan, const plan::Kernel& kernel);

}  // namespace forge::target
