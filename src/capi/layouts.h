/// The layouts of calls on a GPU that were launched before: a call of a known one is not checked and laid out again,
/// and nothing is allocated for it.
#pragma once

#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "forge_c.h"
#include "runtime/prepared_call.h"

namespace forge::capi {

class Layouts {
  public:
    /// How many tensors and scalars a call has.
    Layouts(std::size_t tensors, std::size_t scalars) : tensors_(tensors), scalars_(scalars) {}

    /// Launches a call of a known layout. False, and nothing has happened, if it is not known or its workspace does not
    /// do: the long way then says what is wrong, or makes it known.
    [[nodiscard]] bool launch(const forge_args& args) const;
    /// Makes the layout of a call known.
    void remember(const forge_args& args, std::shared_ptr<const runtime::PreparedCall> prepared);

  private:
    using Key = std::vector<std::int64_t>;
    struct Hash {
        std::size_t operator()(const Key& key) const;
    };
    [[nodiscard]] bool describe(const forge_args& args, Key& key) const;
    [[nodiscard]] std::shared_ptr<const runtime::PreparedCall> find(const Key& key) const;
    [[nodiscard]] runtime::Addresses addresses_of(const forge_args& args) const;

    std::size_t tensors_, scalars_;
    mutable std::shared_mutex mutex_;
    std::unordered_map<Key, std::shared_ptr<const runtime::PreparedCall>, Hash> known_;
};

}  // namespace forge::capi
