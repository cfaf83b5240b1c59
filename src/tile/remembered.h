/// Kernels that were lowered before: of the schedules that a target tries most differ in few kernels.
#pragma once

#include <functional>

#include "tile/fragments.h"

namespace forge::tile {

/// How a kernel is written before it is lowered: whether light work on inputs is done again by each of its readers
/// (remade_values.h), and work on rows of which every other is read on these (rows_apart.h).
struct Rewriting {
    bool remade = false, apart = false;
    friend auto operator<=>(const Rewriting&, const Rewriting&) = default;
};

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
TileKernel remembered(const ir::Function& kernel, const Sizes& sizes, const FragmentRules& rules, Rewriting how,
                      const std::function<TileKernel()>& lower);

}  // namespace forge::tile
