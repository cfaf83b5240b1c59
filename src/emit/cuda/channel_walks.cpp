#include "emit/cuda/channel_walks.h"

#include <algorithm>

#include "device/cuda/channels/sizes.h"
#include "graph/channel_maps.h"
#include "graph/token_kernels.h"
#include "graph/token_program.h"

namespace forge::emit {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

constexpr int kMostRows = 8;  ///< tokens of a thread
// Of the 128 registers that a thread has, for what is counted here; on the way back, of which more is counted, in
// clusters and elsewhere.
constexpr std::int64_t kRegisters = 84, kRegistersBack = 108, kRegistersBackByLooks = 100;
// Of matrices, whose rows leave little else to be held; on the way back of 255.
constexpr std::int64_t kMoreOfMatrices = 18, kMoreOfMatricesByLooks = 10, kMoreOfMatricesBack = 124;

ValueId param_of(const Function& fn, const std::string& name, Role role) {
    for (ValueId v = 0; v < fn.size(); ++v)
        if (fn.op(v).code == Opcode::Param && fn.op(v).attrs.role == role && fn.op(v).attrs.name == name) return v;
    return ir::kNoValue;
}

}  // namespace

ValueId unshifted(const Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    const bool shifted = op.code == Opcode::Param && op.attrs.role == Role::Shifted && graph::has_channels(op.type);
    return shifted && !graph::rows_of(fn) ? param_of(fn, op.attrs.name, Role::Input) : ir::kNoValue;
}

namespace {

bool is_saved(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::Before; }

constexpr std::int64_t kRegistersOfHeads = 32;  ///< for how many channels there are, where the call alone says so
constexpr std::int64_t kRegistersOfRows = 24;   ///< for which rows are there, where others are left out

/// What a thread holds of a token between the walks: the inputs that a later one reads, as they lie in memory, what is
/// kept for it, and all inputs of the next tile; of matrices those of a row, and of no other tile.
std::int64_t registers_per_row(const ir::Definition& definition, const Function& fn) {
    const Walks walks(fn);
    std::vector<bool> read_again(fn.ops.size(), false);
    for (ValueId v = 0; v < fn.size(); ++v)
        if (walks.in(v, ChannelWalk::Second) || walks.in(v, ChannelWalk::Last))
            for (const ValueId a : fn.op(v).args) read_again[static_cast<std::size_t>(a)] = true;
    for (const ir::Result& r : fn.results) read_again[static_cast<std::size_t>(r.value)] = true;
    for (ValueId v = 0; v < fn.size(); ++v)
        if (const ValueId rows = unshifted(fn, v); rows != ir::kNoValue && read_again[static_cast<std::size_t>(v)])
            read_again[static_cast<std::size_t>(rows)] = true;
    std::int64_t count = 0;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        if (walks.kept(v) || is_saved(op)) count += kChannelWidth;
        if (op.code != Opcode::Param || (op.attrs.role != Role::Input && op.attrs.role != Role::Shifted)) continue;
        if (unshifted(fn, v) != ir::kNoValue) continue;  // of which there is one row
        const DType dtype = definition.input(op.attrs.name)->type.dtype;
        const std::int64_t registers =
            !graph::has_channels(op.type) ? 1 : kChannelWidth * static_cast<std::int64_t>(size_in_bytes(dtype)) / 4;
        const bool again = read_again[static_cast<std::size_t>(v)];
        if (graph::rows_of(fn)) count += again || graph::has_rows(op.type) ? registers : 0;
        else count += again ? 2 * registers : registers;
    }
    for (const ir::Result& r : fn.results)  // channels of a row, as they come and as they will be stored
        if (r.role == Role::Input && graph::has_rows(fn.op(r.value).type) && graph::has_channels(fn.op(r.value).type))
            count += 2 * kChannelWidth;
    return std::max<std::int64_t>(count, 1);
}

/// Parameters that say more of a token than whether it is there.
std::vector<ValueId> token_inputs(const Function& fn) {
    std::vector<ValueId> found;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Role role = fn.op(v).attrs.role;
        if (fn.op(v).code == Opcode::Param && (role == Role::Input || role == Role::Shifted || role == Role::Before))
            found.push_back(v);
    }
    return found;
}

bool is_cheap(Opcode code) {
    return code == Opcode::Mul || code == Opcode::Add || code == Opcode::Sub || code == Opcode::Neg ||
           code == Opcode::Unsqueeze;
}

}  // namespace

bool channels_are_heads(const ir::Definition& definition) {
    const Shape& shape = definition.states[0].type.shape;
    return std::all_of(shape.begin(), shape.end(), [](const Dim& d) { return d == Dim(1); });
}

std::int64_t channels_of(const plan::Plan& plan) {
    return plan.sizes.at(plan.definition.states[0].type.shape.back().symbol);
}

std::int64_t state_rows(const plan::Plan& plan) {
    for (const plan::Kernel& kernel : plan.kernels)
        if (const auto rows = graph::rows_of(kernel.tiles.fn))
            return rows->is_constant() ? rows->factor : rows->factor * plan.sizes.at(rows->symbol);
    return 0;
}

int tile_channels(const plan::Plan& plan) {
    const bool meet = std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const plan::Kernel& k) {
        return !is_sums(k) && graph::mixes_channels(k.tiles.fn);
    });
    const bool wide = !channels_are_heads(plan.definition) && meet && channels_of(plan) > cuda::kTileChannels;
    return wide ? cuda::kMostTileChannels : cuda::kTileChannels;
}

std::vector<ChannelState> states_of(const Function& fn) {
    std::vector<ChannelState> states;
    for (const ir::Result& r : fn.results)
        if (r.role == Role::State)
            states.push_back({r.name, param_of(fn, r.name, Role::State), r.value, param_of(fn, r.name, Role::Ones),
                              fn.result(r.name, Role::Ones), graph::is_maximum(fn, r.name)});
    return states;
}

std::vector<SavedState> saved_states_of(const Function& fn) {
    std::vector<SavedState> states;
    for (const ir::Result& r : fn.results)
        if (r.role == Role::After) states.push_back({r.name, param_of(fn, r.name, Role::Before), r.value});
    return states;
}

std::vector<ir::Result> contributions_of(const Function& fn) {
    std::vector<ir::Result> found;
    for (const ir::Result& r : fn.results)
        if (r.role == Role::Chunk) found.push_back(r);
    return found;
}

bool is_sums(const plan::Kernel& kernel) { return graph::adds_up(kernel.tiles.fn); }

std::vector<int> token_tensors(const plan::Plan& plan, const Function& fn) {
    std::vector<int> tensors;
    const auto add = [&](int t) {
        if (std::find(tensors.begin(), tensors.end(), t) == tensors.end()) tensors.push_back(t);
    };
    for (const Op& op : fn.ops)
        if (op.code == Opcode::Param && (op.attrs.role == Role::Input || op.attrs.role == Role::Shifted))
            add(plan.tensor(plan::TensorSlot::Kind::Input, op.attrs.name));
    for (const ir::Result& r : fn.results)
        if (r.role == Role::Input) add(plan.tensor(plan::TensorSlot::Kind::Output, r.name));
    return tensors;
}

Walks::Walks(const Function& fn) : walks_(fn.ops.size(), ChannelWalk::None), kept_(fn.ops.size(), false) {
    std::vector<ValueId> tokens, states, factors, carried, wanted, saved;
    for (ValueId v = 0; v < fn.size(); ++v) {
        if (fn.op(v).code != Opcode::Param) continue;
        const Role role = fn.op(v).attrs.role;
        if (role == Role::Input || role == Role::Shifted || role == Role::Mask || role == Role::Before)
            tokens.push_back(v);
        if (role == Role::State) states.push_back(v);
        if (role == Role::Ones) factors.push_back(v);
    }
    for (const ir::Result& r : fn.results) {
        if (r.role == Role::After) {
            saved.push_back(r.value);
            continue;
        }
        if (r.role != Role::Input && r.role != Role::Chunk) carried.push_back(r.value);
        if (r.role != Role::Ones) wanted.push_back(r.value);
    }
    saves_ = ir::needed_for(fn, saved);
    const auto per_token = ir::depends_on(fn, tokens), of_state = ir::depends_on(fn, states),
               of_factor = ir::depends_on(fn, factors);
    const auto first = ir::needed_for(fn, carried), second = ir::needed_for(fn, wanted);
    for (std::size_t v = 0; v < walks_.size(); ++v) {
        if (of_factor[v]) walks_[v] = ChannelWalk::First;
        else if (of_state[v]) walks_[v] = first[v] && second[v] ? ChannelWalk::Both : ChannelWalk::Second;
        else if (per_token[v])
            walks_[v] = first[v] ? ChannelWalk::First : second[v] ? ChannelWalk::Second : ChannelWalk::Saved;
    }
    if (graph::rows_of(fn)) apart_from_rows(fn, per_token), repeat_for_rows(fn);
    for (ValueId v = 0; v < fn.size(); ++v)
        kept_[static_cast<std::size_t>(v)] = fn.op(v).code != Opcode::Param && is_read_later(fn, v);
}

/// Where states are matrices, what has no rows is computed before all of them or, if it needs their sums or no row
/// needs it, behind.
void Walks::apart_from_rows(const Function& fn, const std::vector<bool>& per_token) {
    std::vector<ValueId> sums, of_rows;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const bool sum = graph::sums_rows(fn, fn.op(v));
        if (sum) sums.push_back(v);
        if (sum || graph::has_rows(fn.op(v).type)) of_rows.push_back(v);
    }
    const std::vector<bool> late = ir::depends_on(fn, sums), early = ir::needed_for(fn, of_rows),
                            of_tokens = ir::depends_on(fn, token_inputs(fn));
    for (ValueId v = 0; v < fn.size(); ++v) {
        const auto i = static_cast<std::size_t>(v);
        if (graph::sums_rows(fn, fn.op(v))) walks_[i] = ChannelWalk::Second;
        else if (!graph::has_rows(fn.op(v).type) && (per_token[i] || late[i]))
            walks_[i] = !late[i] && !of_tokens[i] ? ChannelWalk::Each
                        : late[i] || !early[i]    ? ChannelWalk::Last
                                                  : ChannelWalk::Once;
    }
}

/// What costs little is computed again in the second walk: a thread keeps what all rows have in common, too.
void Walks::repeat_for_rows(const Function& fn) {
    for (ValueId v = fn.size() - 1; v >= 0; --v)
        if (graph::has_rows(fn.op(v).type) && is_cheap(fn.op(v).code) && is_read_later(fn, v))
            walks_[static_cast<std::size_t>(v)] = ChannelWalk::Both;
}

/// Whether a walk behind the one that computes v reads it.
bool Walks::is_read_later(const Function& fn, ValueId v) const {
    const ChannelWalk walk = walks_[static_cast<std::size_t>(v)];
    if (graph::sums_rows(fn, fn.op(v))) return true;
    if (walk != ChannelWalk::First && walk != ChannelWalk::Once) return false;
    const auto reads = [&](ValueId user) {
        const auto& args = fn.op(user).args;
        const bool later = walk == ChannelWalk::First ? in(user, ChannelWalk::Second)
                                                      : !in(user, ChannelWalk::Once) && !before_tokens(user);
        return later && std::find(args.begin(), args.end(), v) != args.end();
    };
    for (ValueId user = 0; user < fn.size(); ++user)
        if (reads(user)) return true;
    return std::any_of(fn.results.begin(), fn.results.end(), [&](const ir::Result& r) {
        return r.value == v && r.role != Role::Ones && r.role != Role::After;
    });
}

int rows_of(const ir::Definition& definition, const Function& fn, bool reverse, bool clusters, int threads) {
    const Walks walks(fn);
    const std::size_t states = states_of(fn).size() + saved_states_of(fn).size();
    std::int64_t registers = (!reverse   ? kRegisters
                              : clusters ? kRegistersBack
                                         : kRegistersBackByLooks) -
                             2 * kChannelWidth * static_cast<std::int64_t>(states) -
                             kChannelWidth * static_cast<std::int64_t>(contributions_of(fn).size());
    if (graph::rows_of(fn) && !reverse) registers += clusters ? kMoreOfMatrices : kMoreOfMatricesByLooks;
    if (graph::rows_of(fn) && reverse && threads <= kMostThreadsOfMatricesBack) registers += kMoreOfMatricesBack;
    std::vector<bool> per_head(fn.ops.size(), false);  // what the walks read of it
    for (ValueId v = 0; v < fn.size(); ++v)
        for (const ValueId a : fn.op(v).args)
            if (!walks.before_tokens(v) && walks.before_tokens(a) && fn.op(a).type.rank() > 0)
                per_head[static_cast<std::size_t>(a)] = true;
    registers -= kChannelWidth * std::count(per_head.begin(), per_head.end(), true);
    if (channels_are_heads(definition)) registers -= kRegistersOfHeads;
    if (leaves_rows_out(definition, reverse) && !reverse) registers -= kRegistersOfRows;
    return static_cast<int>(std::clamp<std::int64_t>(registers / registers_per_row(definition, fn), 1, kMostRows));
}

int rows_of(const plan::Plan& plan) {
    int rows = kMostRows;
    for (const plan::Kernel& kernel : plan.kernels)
        if (!is_sums(kernel))
            rows = std::min(rows, rows_of(plan.definition, kernel.tiles.fn, kernel.graph.reverse,
                                          plan.schedule.clusters, plan.schedule.block_threads));
    return rows;
}

bool leaves_rows_out(const ir::Definition& definition, bool reverse) { return definition.fixed_chunk == 1 || reverse; }

}  // namespace forge::emit
