/// What kernels whose threads hold states (tile/held.h) read of a token: each warp asks for the rows of few tensors
/// (AskedRows in device/cuda/portable/held.h), before states are asked for, or while a token before is computed.
#pragma once

#include <map>
#include <string>

#include "emit/transfers.h"

namespace forge::emit {

class AskedTokens {
  public:
    /// Of a kernel that holds states; of others nothing is asked for so.
    AskedTokens(Context& context, const Transfers& transfers);

    [[nodiscard]] bool has(ir::ValueId v) const { return places_.contains(v); }
    void declare() const;
    void ask(const std::string& line) const;  ///< that calls `ask_for_rows(task, token)`
    void place(ir::ValueId v) const;          ///< what has come, into its tile

  private:
    /// The threads that ask for a value's rows: those from `first` on, for the round-th time.
    struct Place {
        std::size_t round;
        int first;
    };
    class Threads;
    [[nodiscard]] std::int64_t threads_for(ir::ValueId v) const;
    [[nodiscard]] std::string call(ir::ValueId v, const char* what, const std::string& last) const;
    [[nodiscard]] static std::string name(std::size_t round);

    Context& c_;
    const Transfers& transfers_;
    std::map<ir::ValueId, Place> places_;
    std::size_t rounds_ = 0;
};

}  // namespace forge::emit
