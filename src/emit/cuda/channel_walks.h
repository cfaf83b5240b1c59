/// What a channel kernel does when (plan::Engine::Channels): which values of the token program are computed before the
/// tokens, which on each of the two walks over them, what is kept in between, and how many tokens a thread can hold so.
#pragma once

#include "plan/plan.h"

namespace forge::emit {

inline constexpr int kChannelWidth = 4;  ///< channels of a thread; kWidth of the device library

struct ChannelState {
    std::string name;
    ir::ValueId before = ir::kNoValue;  ///< the parameter; none if nothing reads it
    ir::ValueId after = ir::kNoValue;
    ir::ValueId factor = ir::kNoValue, next_factor = ir::kNoValue;  ///< of its map; none: it leaves states as they are
    bool maximum = false;                                           ///< a running maximum, whose factor is added

    /// From which addends and factors a map is made: it does nothing.
    [[nodiscard]] const char* no_addend() const { return maximum ? "broadcast(-__builtin_inff())" : "zero"; }
    [[nodiscard]] const char* no_factor() const { return maximum ? "zero" : "broadcast(1.0f)"; }
};

/// Whether the channels of a plan are heads, and how many of a head there are otherwise.
bool channels_are_heads(const plan::Plan& plan);
std::int64_t channels_of(const plan::Plan& plan);
/// How many of them a task has: all, where they meet.
int tile_channels(const plan::Plan& plan);

/// In the order of the function's results.
std::vector<ChannelState> states_of(const ir::Function& fn);

/// The tensors with tokens that a kernel reads and writes, by their numbers in the plan: inputs first.
std::vector<int> token_tensors(const plan::Plan& plan, const ir::Function& fn);

/// When a value is computed.
enum class ChannelWalk : std::uint8_t {
    None,    ///< before the tokens: it depends on none
    First,   ///< for the states
    Second,  ///< for the outputs
    Both,    ///< from a state, which is another one in each walk
};

/// Which values each walk computes, and which of the first walk's the second one reads.
class Walks {
  public:
    explicit Walks(const ir::Function& fn);

    [[nodiscard]] bool in(ir::ValueId v, ChannelWalk walk) const {
        const ChannelWalk w = walks_[static_cast<std::size_t>(v)];
        return w == walk || (w == ChannelWalk::Both && walk != ChannelWalk::None);
    }
    [[nodiscard]] bool before_tokens(ir::ValueId v) const {
        return walks_[static_cast<std::size_t>(v)] == ChannelWalk::None;
    }
    [[nodiscard]] bool kept(ir::ValueId v) const { return kept_[static_cast<std::size_t>(v)]; }

  private:
    std::vector<ChannelWalk> walks_;
    std::vector<bool> kept_;
};

/// Tokens per thread, of four channels each.
int rows_of(const plan::Plan& plan, const ir::Function& fn);

}  // namespace forge::emit
