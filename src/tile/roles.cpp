#include "tile/roles.h"

#include <algorithm>

#include "tile/fragment_steps.h"
#include "tile/order.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Space = ir::Layout::Space;

/// What both divisions ask.
class Division {
  public:
    Division(const Function& fn, const std::vector<ValueId>& vectors, int takers) : fn_(fn), vectors_(vectors) {
        roles_.of.assign(fn.ops.size(), 0);
        roles_.takers = takers;
    }

  protected:
    [[nodiscard]] std::uint8_t& role(ValueId v) { return roles_.of[static_cast<std::size_t>(v)]; }
    [[nodiscard]] bool is_param(ValueId v) const { return fn_.op(v).code == Opcode::Param; }
    [[nodiscard]] bool is_vector(ValueId v) const {
        return std::find(vectors_.begin(), vectors_.end(), v) != vectors_.end();
    }
    /// Whether there is text of its own for the value in a group's loop.
    [[nodiscard]] bool is_written(ValueId v) const {
        const Op& op = fn_.op(v);
        return !is_param(v) && !ir::is_view(op.code) && op.layout->space != Space::Reg && !is_vector(v);
    }
    /// A copy of a fragment into an operand.
    [[nodiscard]] bool is_stored_fragment(ValueId v) const {
        const Op& op = fn_.op(v);
        return op.code == Opcode::Copy && op.layout->space == Space::Operand &&
               is_fragment(fn_.op(op.args[0]).layout->space);
    }

    template <class Which>
    void refuse_spills(Which which) const {
        for (const ir::Result& r : fn_.results)
            if (r.role == Role::Spill && which(r)) refuse(Reason::StoredForLater, ir::described(fn_, r.value));
    }
    void mark(const std::vector<ValueId>& roots, std::uint8_t role) {
        const auto needed = ir::needed_for(fn_, roots);
        for (std::size_t v = 0; v < needed.size(); ++v)
            if (needed[v]) roles_.of[v] |= role;
    }

    /// Device functions that have shared memory of their own cannot be called by two groups at a time.
    void check_function(ValueId v) const {
        const Op& op = fn_.op(v);
        const bool simple = ir::is_matmul(op.code) || ir::is_elementwise(op.code) || op.code == Opcode::Copy ||
                            op.code == Opcode::Constant || op.code == Opcode::Identity;
        if (!simple) refuse(Reason::OneGroupAtATime, ir::described(fn_, v));
    }
    void check_parameters(ValueId v) const {
        for (const ValueId t : tiles_read_by(fn_, v)) check_parameter(t);
    }
    void check_parameter(ValueId t) const {
        const Op& op = fn_.op(t);
        if (!is_param(t)) return;
        const bool copied = op.attrs.role == Role::Shifted && op.layout->space == Space::Operand;
        const bool staged = op.attrs.role == Role::Input || op.attrs.role == Role::Spill || copied || is_vector(t);
        const bool fixed = op.attrs.role == Role::Scalar || op.attrs.role == Role::Head;
        if (!staged && !fixed && !is_fragment(op.layout->space)) refuse(Reason::SharedParameter, ir::described(fn_, t));
    }

    /// What an operation of the groups that take reads must be theirs, arrive with the chunk, or be passed.
    void get_operands(ValueId v) {
        for (const ValueId t : tiles_read_by(fn_, v)) {
            const Op& op = fn_.op(t);
            const bool state = is_param(t) && is_fragment(op.layout->space) && !roles_.by_tiles;
            if (!state && (is_param(t) || is_vector(t) || roles_.does(Roles::kTakes, t) || roles_.find(t))) continue;
            const bool loaded =
                op.code == Opcode::Copy && is_param(op.args[0]) && !is_fragment(fn_.op(op.args[0]).layout->space);
            if (!loaded || !is_fragment(op.layout->space)) refuse(Reason::SharedValue, ir::described(fn_, t));
            role(t) |= Roles::kTakes;  // each loads it for itself
        }
    }

    const Function& fn_;
    const std::vector<ValueId>& vectors_;
    Roles roles_;
};

/// The carried states and, in other groups, the outputs. Values computed in their users' loops, and views, belong to
/// the roles that read them: nothing is stored for them.
class BySlices : Division {
  public:
    BySlices(const Function& fn, const std::vector<ValueId>& vectors, int output_groups, bool left_outputs)
        : Division(fn, vectors, output_groups) {
        if (!left_outputs) refuse_spills([](const ir::Result&) { return true; });
        std::vector<ValueId> carried, others;
        for (const ir::Result& r : fn.results) {
            if (r.role == Role::Before) continue;  // stored by the states' group
            (is_carried(r.role) ? carried : others).push_back(r.value);
        }
        mark(carried, Roles::kGives);
        mark(others, Roles::kTakes);
        for (std::uint8_t& of : roles_.of)
            if ((of & Roles::kGives) != 0) of = Roles::kGives;
        refuse_spills([&](const ir::Result& r) { return roles_.does(Roles::kGives, r.value); });
        if (others.empty()) roles_.takers = 0;
        roles_.buffers = roles_.takers;
    }

    Roles run() {
        for (ValueId v = 0; v < fn_.size(); ++v) pass(v);
        for (ValueId v = fn_.size() - 1; v >= 0; --v) {
            if (!is_written(v)) continue;
            if (roles_.takers > 0) check_function(v), check_parameters(v);
            if (roles_.does(Roles::kTakes, v)) get_operands(v);
        }
        return std::move(roles_);
    }

  private:
    /// The group that holds a state's fragment copies it into the operand for the outputs.
    void pass(ValueId v) {
        if (!is_stored_fragment(v) || role(v) != Roles::kTakes) return;
        const ValueId from = fn_.op(v).args[0];
        if (!is_param(from) && !roles_.does(Roles::kGives, from)) return;
        role(v) = Roles::kGives;
        roles_.passed.push_back({v});
    }
};

/// What is the same for all tiles, and in other groups all else. What follows from no parameter at all is worked out
/// by each group that reads it.
class ByTiles : Division {
  public:
    ByTiles(const Function& fn, const std::vector<ValueId>& vectors, const std::set<std::string>& of_tiles, int tiles,
            int buffers)
        : Division(fn, vectors, tiles) {
        refuse_spills([](const ir::Result&) { return true; });
        roles_.by_tiles = true, roles_.buffers = buffers;
        std::vector<ValueId> own;
        for (ValueId v = 0; v < fn.size(); ++v) {
            if (!is_param(v)) continue;
            const bool state = is_carried(fn.op(v).attrs.role), tile = of_tiles.contains(fn.op(v).attrs.name);
            if (state || tile) own.push_back(v);
            if (!tile) continue;
            if (fn.op(v).layout->space != Space::Operand) refuse(Reason::SharedParameter, ir::described(fn, v));
            roles_.of_tiles.insert(v);
        }
        const std::vector<bool> follows = ir::depends_on(fn, own), made = made_of_parameters();
        for (ValueId v = 0; v < fn.size(); ++v) {
            const auto i = static_cast<std::size_t>(v);
            role(v) = follows[i] ? Roles::kTakes : made[i] ? Roles::kGives : Roles::kGives | Roles::kTakes;
        }
    }

    Roles run() {
        for (ValueId v = fn_.size() - 1; v >= 0; --v) {
            if (!is_written(v)) continue;
            check_parameters(v);
            if (!roles_.does(Roles::kTakes, v)) continue;
            check_function(v);
            pass_operands(v);
            get_operands(v);
        }
        leave_to_takers();
        const auto gives = [](std::uint8_t of) { return (of & Roles::kGives) != 0; };
        if (std::none_of(roles_.of.begin(), roles_.of.end(), gives)) roles_.first_taker = 1, find_wide_states();
        else if (roles_.passed.empty()) refuse(Reason::NothingInCommon);  // but a result of its own
        return std::move(roles_);
    }

  private:
    /// What of the common values only groups that take read, each of which makes it.
    void leave_to_takers() {
        std::vector<ValueId> given;
        for (const Roles::Passed& p : roles_.passed) given.push_back(p.value);
        for (const ir::Result& r : fn_.results)
            if (role(r.value) == Roles::kGives) given.push_back(r.value);
        const auto needed = ir::needed_for(fn_, given);
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (!needed[static_cast<std::size_t>(v)]) role(v) &= static_cast<std::uint8_t>(~Roles::kGives);
    }

    /// Of a group that has 216 registers.
    void find_wide_states() {
        constexpr std::int64_t kWholeFloats = std::int64_t{64} * 128;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            const bool state = is_param(v) && is_carried(op.attrs.role) && is_fragment(op.layout->space);
            if (state && size_of(op.type, 0) * size_of(op.type, 1) > kWholeFloats) roles_.in_pieces.insert(v);
        }
    }

    [[nodiscard]] std::vector<bool> made_of_parameters() const {
        std::vector<ValueId> params;
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (is_param(v)) params.push_back(v);
        return ir::depends_on(fn_, params);
    }

    void pass_operands(ValueId v) {
        for (const ValueId t : tiles_read_by(fn_, v))
            if (is_stored_fragment(t) && role(t) == Roles::kGives && !roles_.find(t)) roles_.passed.push_back({t});
    }
};

}  // namespace

Roles roles_with_producer(const Function& fn, bool images_apart) {
    Roles roles;
    roles.images_apart = images_apart;
    roles.of.assign(fn.ops.size(), Roles::kGives);
    return roles;
}

Roles roles_by_slices(const Function& fn, const std::vector<ValueId>& vectors, int output_groups, bool left_outputs) {
    return BySlices(fn, vectors, output_groups, left_outputs).run();
}

Roles roles_by_tiles(const Function& fn, const std::vector<ValueId>& vectors, const std::set<std::string>& of_tiles,
                     int tiles, int buffers) {
    return ByTiles(fn, vectors, of_tiles, tiles, buffers).run();
}

}  // namespace forge::tile
