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

/// A state that the way back reads as it was before each token: made anew from what it was before a thread's tokens,
/// which lies in the workspace.
struct SavedState {
    std::string name;
    ir::ValueId before = ir::kNoValue, after = ir::kNoValue;
};

/// Whether the channels are heads, and how many of a head there are otherwise.
bool channels_are_heads(const ir::Definition& definition);
std::int64_t channels_of(const plan::Plan& plan);
/// How many rows states have that are matrices; none, of vectors.
std::int64_t state_rows(const plan::Plan& plan);
/// How many of them a task has: all, where they meet.
int tile_channels(const plan::Plan& plan);

/// In the order of the function's results.
std::vector<ChannelState> states_of(const ir::Function& fn);
std::vector<SavedState> saved_states_of(const ir::Function& fn);
/// What each token adds to a state that another kernel sums.
std::vector<ir::Result> contributions_of(const ir::Function& fn);
/// Whether a kernel is that one.
bool is_sums(const plan::Kernel& kernel);

/// The tensors with tokens that a kernel reads and writes, by their numbers in the plan: inputs first.
std::vector<int> token_tensors(const plan::Plan& plan, const ir::Function& fn);

/// When a value is computed.
enum class ChannelWalk : std::uint8_t {
    None,    ///< before the tokens: it depends on none
    Once,    ///< for all rows of matrices, which the walks below go through one after another
    First,   ///< for the states
    Second,  ///< for the outputs
    Both,    ///< from a state, which is another one in each walk, or again rather than kept
    Saved,   ///< for saved states alone
    Last,    ///< from sums over all rows
    Each,    ///< in whichever needs it, of matrices: it follows from which tokens are there
};

/// Which values each walk computes, and which of those before it a walk reads. Saved states are made before the first
/// one.
class Walks {
  public:
    explicit Walks(const ir::Function& fn);

    [[nodiscard]] bool in(ir::ValueId v, ChannelWalk walk) const {
        const ChannelWalk w = walks_[static_cast<std::size_t>(v)];
        return w == walk || (w == ChannelWalk::Both && (walk == ChannelWalk::First || walk == ChannelWalk::Second));
    }
    [[nodiscard]] bool before_tokens(ir::ValueId v) const {
        return walks_[static_cast<std::size_t>(v)] == ChannelWalk::None;
    }
    [[nodiscard]] bool in_each(ir::ValueId v) const { return walks_[static_cast<std::size_t>(v)] == ChannelWalk::Each; }
    [[nodiscard]] bool kept(ir::ValueId v) const { return kept_[static_cast<std::size_t>(v)]; }
    [[nodiscard]] bool saves(ir::ValueId v) const {
        return saves_[static_cast<std::size_t>(v)] && !before_tokens(v) && !in(v, ChannelWalk::Once) && !in_each(v);
    }

  private:
    void apart_from_rows(const ir::Function& fn, const std::vector<bool>& per_token);
    void repeat_for_rows(const ir::Function& fn);
    [[nodiscard]] bool is_read_later(const ir::Function& fn, ir::ValueId v) const;

    std::vector<ChannelWalk> walks_;
    std::vector<bool> kept_, saves_;
};

/// Of the rows of the tokens before, where a kernel has an input's own rows too: these; kNoValue else.
ir::ValueId unshifted(const ir::Function& fn, ir::ValueId v);

/// A block has at most so many threads if each is to have 255 registers, as gradients of matrices have.
inline constexpr int kMostThreadsOfMatricesBack = 256;

/// Tokens per thread, of four channels each: of one of the program's kernels (graph::token_kernels) with so many
/// threads per block, whose tiles are joined by clusters or not, and of all.
int rows_of(const ir::Definition& definition, const ir::Function& token, bool reverse, bool clusters, int threads);
int rows_of(const plan::Plan& plan);

/// Whether rows that are not there are left out, rather than change nothing by what they hold: where chunks have no
/// such rows, and on the way back.
bool leaves_rows_out(const ir::Definition& definition, bool reverse);

}  // namespace forge::emit
