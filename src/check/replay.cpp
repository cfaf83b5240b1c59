#include "check/replay.h"

#include <algorithm>
#include <optional>

#include "forge/error.h"
#include "graph/early_states.h"
#include "graph/summary.h"
#include "interp/arrays.h"

namespace forge::check {
namespace {

using interp::Bindings;
using interp::Value;
using ir::Role;
using plan::Loop;

Value filled(const Shape& shape, const interp::Sizes& sizes, double x) {
    Value value = interp::zeros(interp::concrete(shape, sizes));
    std::fill(value.data.begin(), value.data.end(), x);
    return value;
}

class Replay {
  public:
    Replay(const plan::Plan& plan, const interp::Sequence& sequence)
        : plan_(plan), def_(plan.definition), sequence_(sequence), sizes_(plan.sizes), chunk_(plan.schedule.chunk) {
        sizes_[ir::kChunkSymbol] = chunk_;
        chunks_ = (sequence.tokens + chunk_ - 1) / chunk_;
        const std::int64_t most = plan.schedule.strategy == plan::Strategy::Segmented ? plan.schedule.segments : 1;
        per_segment_ = std::max<std::int64_t>(1, (chunks_ + most - 1) / std::max<std::int64_t>(1, most));
        for (const ir::StateDecl& s : def_.states)
            initial_[s.name] = interp::chunk_bindings(def_, sequence, sizes_, 0).at(s.name);
    }

    interp::Outcome run(const std::vector<ReplayKernel>& kernels) {
        outcome_.states = initial_;
        for (const ReplayKernel& kernel : kernels) {
            kernel_ = &kernel;
            switch (kernel.planned->graph.loop) {
                case Loop::Chunks:
                    for (std::int64_t c = 0; c < chunks_; ++c) {
                        Bindings none;
                        chunk(c, none);
                    }
                    break;
                case Loop::Relay:  // the segments are one after the other anyway
                case Loop::Scan:
                    keep(scan(0, chunks_, initial_));
                    break;
                case Loop::Summaries:
                    summaries();
                    break;
                case Loop::Carries:
                    carries(kernel.fn);
                    break;
                case Loop::Segments:
                    segments();
                    break;
            }
        }
        return finished();
    }

  private:
    [[nodiscard]] const ir::Function& fn() const { return kernel_->fn; }
    [[nodiscard]] std::int64_t segment_count() const { return (chunks_ + per_segment_ - 1) / per_segment_; }
    [[nodiscard]] std::int64_t end_of(std::int64_t segment) const {
        return std::min(chunks_, (segment + 1) * per_segment_);
    }

    /// Of the states, those that the kernel carries.
    void keep(const Bindings& after) {
        for (const ir::Result& r : kernel_->planned->graph.fn.results)
            if (r.role == Role::State) outcome_.states[r.name] = after.at(r.name);
    }

    /// From the states before the first chunk to those after the last. Token programs go on token by token.
    Bindings scan(std::int64_t first, std::int64_t end, Bindings carried) {
        for (std::int64_t c = first; c < end; ++c) chunk(c, carried);
        return carried;
    }

    void chunk(std::int64_t c, Bindings& carried) {
        if (!token_by_token()) return step(c, c * chunk_, carried, sizes_);
        interp::Sizes one = sizes_;
        one[ir::kChunkSymbol] = 1;
        for (std::int64_t t = c * chunk_; t < std::min(sequence_.tokens, (c + 1) * chunk_); ++t)
            step(c, t, carried, one);
    }

    /// Whether the function has no axis of tokens though its graph has: channels.
    [[nodiscard]] bool token_by_token() const {
        return kernel_->planned->engine == plan::Engine::Channels && !has_tokens(fn());
    }
    static bool has_tokens(const ir::Function& f) {
        return std::any_of(f.ops.begin(), f.ops.end(), [](const ir::Op& op) {
            return std::any_of(op.type.shape.begin(), op.type.shape.end(),
                               [](const Dim& d) { return d.symbol == ir::kChunkSymbol; });
        });
    }

    void step(std::int64_t c, std::int64_t token, Bindings& carried, const interp::Sizes& sizes) {
        Bindings bound = interp::chunk_bindings(def_, sequence_, sizes, token);
        for (const ir::Op& op : kernel_->planned->graph.fn.ops)
            if (without_values_ && op.code == ir::Opcode::Param && op.attrs.role == Role::Input &&
                tile_axis(op.attrs.role, op.attrs.name))
                std::fill(bound.at(op.attrs.name).data.begin(), bound.at(op.attrs.name).data.end(), 0.0);
        for (const auto& [name, value] : carried) bound.insert_or_assign(name, value);
        bind_spills(bound, c);
        for (auto& [result, value] : evaluated(bound)) {
            if (result->role == Role::Input) append(result->name, value);
            else if (result->role == Role::Spill) spills_[result->name][c] = std::move(value);
            else if (result->role != Role::Before)
                carried.insert_or_assign(interp::binding_name(result->name, result->role), std::move(value));
        }
    }

    void bind_spills(Bindings& bound, std::int64_t block) {
        for (const ir::Op& op : fn().ops) {
            if (op.code != ir::Opcode::Param || op.attrs.role != Role::Spill) continue;
            const auto& blocks = spills_[op.attrs.name];
            const auto it = blocks.find(block);
            if (it == blocks.end()) throw InternalError("replay: nobody has stored " + op.attrs.name);
            bound.insert_or_assign(interp::binding_name(op.attrs.name, Role::Spill), it->second);
        }
    }

    void summaries() {
        for (std::int64_t segment = 0; segment < segment_count(); ++segment) {
            if (kernel_->planned->graph.transition_columns) transition_columns(segment);
            Bindings carried;
            for (const ir::Op& op : kernel_->planned->graph.fn.ops) {
                if (op.code != ir::Opcode::Param) continue;
                const std::string name = interp::binding_name(op.attrs.name, op.attrs.role);
                if (op.attrs.role == Role::Ones) carried[name] = filled(op.type.shape, sizes_, 1);
                if (op.attrs.role == Role::Eye)
                    carried[name] = interp::identity(interp::concrete(op.type.shape, sizes_));
            }
            for (const ir::StateDecl& s : def_.states) carried[s.name] = filled(s.type.shape, sizes_, 0);
            carried = scan(segment * per_segment_, end_of(segment), std::move(carried));
            for (const ir::StateDecl& s : def_.states) {
                spills_[graph::input_spill(s.name)][segment] = carried.at(s.name);
                for (const Role role : {Role::Ones, Role::Eye})
                    if (const auto it = carried.find(interp::binding_name(s.name, role)); it != carried.end())
                        spills_[graph::transition_spill(s.name)][segment] = it->second;
            }
        }
    }

    /// What the kernel makes of the columns of the identity, as many at a time as a state has, where all that has the
    /// tiled axis is zero.
    void transition_columns(std::int64_t segment) {
        for (const ir::StateDecl& s : def_.states) {
            const Value state = filled(s.type.shape, sizes_, 0);
            const std::int64_t rows = state.shape[0], width = state.shape[1];
            Value transition = interp::zeros({rows, rows});
            for (std::int64_t first = 0; first < rows; first += width) {
                Bindings carried;
                for (const ir::StateDecl& other : def_.states)
                    carried[other.name] = filled(other.type.shape, sizes_, 0);
                Value& columns = carried[s.name];
                for (std::int64_t j = 0; j < std::min(width, rows - first); ++j)
                    columns.data[static_cast<std::size_t>((first + j) * width + j)] = 1;
                without_values_ = true;
                const Value made = scan(segment * per_segment_, end_of(segment), std::move(carried)).at(s.name);
                without_values_ = false;
                for (std::int64_t i = 0; i < rows; ++i)
                    for (std::int64_t j = 0; j < std::min(width, rows - first); ++j)
                        transition.data[static_cast<std::size_t>(i * rows + first + j)] =
                            made.data[static_cast<std::size_t>(i * width + j)];
            }
            spills_[graph::transition_spill(s.name)][segment] = std::move(transition);
        }
    }

    /// The states before each segment, by all tiles of the kernel or by a function that has none.
    void carries(const ir::Function& carry) {
        const bool by_kernel = &carry == &fn();
        Bindings carried = initial_;
        for (std::int64_t segment = 0; segment < segment_count(); ++segment) {
            Bindings bound = carried;
            for (const ir::Op& op : carry.ops)
                if (op.code == ir::Opcode::Param && op.attrs.role == Role::Spill)
                    bound[interp::binding_name(op.attrs.name, Role::Spill)] = spills_[op.attrs.name].at(segment);
            std::vector<Value> values;
            if (!by_kernel) values = interp::evaluate(carry, bound, sizes_);
            else
                for (auto& [result, value] : evaluated(bound)) values.push_back(std::move(value));
            for (std::size_t i = 0; i < values.size(); ++i) {
                const ir::Result& r = carry.results[i];
                (r.role == Role::Spill ? spills_[r.name][segment] : carried[r.name]) = values[i];
            }
        }
    }

    /// Without a kernel that joins the summaries, scans do so as they start.
    void segments() {
        if (!std::any_of(plan_.kernels.begin(), plan_.kernels.end(),
                         [](const plan::Kernel& k) { return k.graph.loop == Loop::Carries; }))
            carries(graph::carry(graph::without_early_states(plan_.program, plan_.schedule.early)));
        for (std::int64_t segment = 0; segment < segment_count(); ++segment) {
            Bindings before;
            for (const ir::Result& r : kernel_->planned->graph.fn.results)
                if (r.role == Role::State) before[r.name] = spills_[graph::carry_spill(r.name)].at(segment);
            keep(scan(segment * per_segment_, end_of(segment), std::move(before)));
        }
    }

    using Results = std::vector<std::pair<const ir::Result*, Value>>;

    /// Zeros where a result's blocks belong (tile/split.h).
    [[nodiscard]] Value all_of(const ir::Result& r) const {
        const ir::Function& graph = kernel_->planned->graph.fn;
        Value all{interp::concrete(graph.op(graph.result(r.name, r.role)).type.shape, sizes_), {}};
        all.data.resize(static_cast<std::size_t>(interp::element_count(all.shape)));
        return all;
    }
    /// Of matrices or vectors.
    static Value with_block(Value all, const Value& block, const std::vector<std::int64_t>& at) {
        const std::int64_t cols = all.shape.back(), width = block.shape.back(),
                           rows = at.size() < 2 ? 1 : block.shape[0], first = at.size() < 2 ? 0 : at[0];
        for (std::int64_t i = 0; i < rows; ++i)
            std::copy_n(block.data.begin() + i * width, width, all.data.begin() + (first + i) * cols + at.back());
        return all;
    }

    /// All tiles of the function, one after the other.
    [[nodiscard]] Results evaluated(const Bindings& bound) const {
        const bool numbers = std::all_of(fn().ops.begin(), fn().ops.end(), [](const ir::Op& op) {
            return std::all_of(op.type.shape.begin(), op.type.shape.end(),
                               [](const Dim& d) { return d.is_constant(); });
        });
        const std::int64_t tiles = numbers && !token_by_token() ? kernel_->planned->cut.count : 1;
        std::vector<std::vector<Value>> parts;
        for (std::int64_t tile = 0; tile < tiles; ++tile)
            parts.push_back(interp::evaluate(fn(), tiles > 1 ? part_of(bound, tile, tiles) : shaped(bound), sizes_));
        Results results;
        for (std::size_t i = 0; i < fn().results.size(); ++i) {
            const ir::Result& r = fn().results[i];
            std::vector<Value> of_tiles;
            for (auto& part : parts) of_tiles.push_back(std::move(part[i]));
            const auto axis = tiles > 1 ? tile_axis(r.role, r.name) : std::nullopt;
            Value value = axis ? interp::joined(of_tiles, *axis, false) : std::move(of_tiles[0]);
            const auto same = std::find_if(results.begin(), results.end(), [&](const auto& other) {
                return other.first->name == r.name && other.first->role == r.role;
            });
            if (r.at.empty()) results.emplace_back(&r, std::move(value));
            else if (same == results.end()) results.emplace_back(&r, with_block(all_of(r), value, r.at));
            else same->second = with_block(std::move(same->second), value, r.at);
        }
        return results;
    }

    /// With the shapes that the function has: one of tokens has no axis for them.
    [[nodiscard]] Bindings shaped(Bindings bound) const {
        if (!token_by_token()) return bound;
        for (const ir::Op& op : fn().ops) {
            if (op.code != ir::Opcode::Param) continue;
            const std::string name = interp::binding_name(op.attrs.name, op.attrs.role);
            if (op.attrs.role == Role::Ones) bound[name] = filled(op.type.shape, sizes_, 1);
            if (const auto it = bound.find(name); it != bound.end())
                it->second.shape = interp::concrete(op.type.shape, sizes_);
        }
        return bound;
    }

    [[nodiscard]] Bindings part_of(const Bindings& bound, std::int64_t tile, std::int64_t tiles) const {
        Bindings part = bound;
        for (const ir::Op& op : fn().ops) {
            if (op.code != ir::Opcode::Param) continue;
            const auto axis = tile_axis(op.attrs.role, op.attrs.name);
            const std::string name = interp::binding_name(op.attrs.name, op.attrs.role);
            if (axis && part.contains(name)) part[name] = interp::part(part[name], *axis, tile, tiles);
        }
        return part;
    }

    /// Which axis of a parameter or result is cut into tiles.
    [[nodiscard]] std::optional<std::int64_t> tile_axis(Role role, const std::string& name) const {
        const ir::Function& graph = kernel_->planned->graph.fn;
        const ir::Type* type = nullptr;
        for (const ir::Op& op : graph.ops)
            if (op.code == ir::Opcode::Param && op.attrs.role == role && op.attrs.name == name) type = &op.type;
        if (const ir::ValueId v = graph.result(name, role); !type && v != ir::kNoValue) type = &graph.op(v).type;
        if (!type) return std::nullopt;
        for (std::size_t i = 0; i < type->shape.size(); ++i)
            if (type->shape[i].symbol == kernel_->planned->cut.axis) return static_cast<std::int64_t>(i);
        return std::nullopt;
    }

    void append(const std::string& name, const Value& value) {
        std::vector<double>& data = outcome_.outputs[name].data;
        data.insert(data.end(), value.data.begin(), value.data.end());
    }

    interp::Outcome finished() {
        for (const ir::OutputDecl& o : def_.outputs) {
            Value& value = outcome_.outputs[o.name];
            interp::Sizes all = sizes_;
            all[ir::kChunkSymbol] = sequence_.tokens;
            value.shape = interp::concrete(ir::phase_type(o).shape, all);
            value.data.resize(static_cast<std::size_t>(interp::element_count(value.shape)));  // without the padding
        }
        Bindings states;
        for (const ir::StateDecl& s : def_.states) states[s.name] = outcome_.states.at(s.name);
        outcome_.states = std::move(states);
        return std::move(outcome_);
    }

    const plan::Plan& plan_;
    const ir::Definition& def_;
    const interp::Sequence& sequence_;
    interp::Sizes sizes_;
    std::int64_t chunk_, chunks_ = 0, per_segment_ = 1;
    Bindings initial_;
    const ReplayKernel* kernel_ = nullptr;
    bool without_values_ = false;                                  ///< all that has the tiled axis is zero
    std::map<std::string, std::map<std::int64_t, Value>> spills_;  ///< by chunk or segment
    interp::Outcome outcome_;
};

}  // namespace

interp::Outcome replay(const plan::Plan& plan, const std::vector<ReplayKernel>& kernels,
                       const interp::Sequence& sequence) {
    return Replay(plan, sequence).run(kernels);
}

}  // namespace forge::check
