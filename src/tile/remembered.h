/// Kernels that were lowered before: of the schedules that a target tries most differ in few kernels.
#pragma once

#include <functional>

#include "tile/fragments.h"

namespace forge::tile {

/// While one lives, its thread remembers what it lowers; within another one's life it adds nothing.
class Remembering {
  public:
    Remembering();
    ~Remembering();
    Remembering(const Remembering&) = delete;
    Remembering& operator=(const Remembering&) = delete;

  private:
    bool outermost_;
};

/// What the thread, if it remembers, lowered for the same arguments before, else what `lower` returns.
TileKernel remembered(const ir::Function& kernel, const Sizes& sizes, const FragmentRules& rules, bool remade,
                      const std::function<TileKernel()>& lower);

}  // namespace forge::tile
