/// The axes along which scans on warp groups can be cut, most often that of the values, and what else must be done for
/// it.
#pragma once

#include <string>
#include <vector>

#include "ir/function.h"
#include "plan/strategy.h"
#include "tile/lower.h"

namespace forge::target {

struct ValueAxis {
    std::string name = {};
    bool between = false;   ///< scans can be cut along it if a kernel between them does what cannot (Schedule::between)
    bool ahead = false;     ///< … if one ahead of them makes sums over it (graph::Sums)
    bool epilogue = false;  ///< … if one behind them makes what of outputs needs all of it (Schedule::epilogue)
};

/// In order of preference, those of whole blocks; Refused if there is none. `sizes`: on chip. `always_between`: of a
/// backward pass with a kernel between the scans, even if there are axes without.
std::vector<ValueAxis> value_axes(const ir::Function& program, plan::Strategy strategy, const tile::Sizes& sizes,
                                  bool always_between);

/// Whether outputs mix every axis along which scans can be cut, so that only a kernel of whole chunks can make them, or
/// their epilogue.
bool outputs_mix_axes(const ir::Function& program);

/// Whether a strategy leaves outputs to kernels of whole chunks.
bool makes_outputs_apart(plan::Strategy strategy);

}  // namespace forge::target
