#include "emit/cuda/fragment_roles.h"

#include <algorithm>

#include "emit/cuda/direction.h"
#include "emit/cuda/fragment_body.h"
#include "emit/cuda/fragment_states.h"
#include "emit/statements.h"

namespace forge::emit {
namespace {

using ::forge::kernel::Kind;
using ::forge::kernel::Statement;
using tile::Roles;

constexpr const char *kInputs = "inputs", *kStates = "states", *kOutputs = "outputs", *kCommon = "common",
                     *kTiles = "tiles";
constexpr int kWarps = 4;  ///< of a group

/// Registers per thread of the first group, the second and each of the others, of 512 for as many groups.
struct Registers {
    int inputs, gives, takes;
};

/// Several groups of outputs, each of every other chunk, hold little at a time; what tiles have in common does, too. Of
/// two groups one has nearly all, where another block has as many.
Registers registers_for(const Roles& roles, bool paired) {
    if (paired) return Registers{40, 216, 0};
    if (roles.by_tiles) return roles.has_giver() ? Registers{40, 88, 192} : Registers{40, 0, 232};
    return roles.takers == 1 ? Registers{80, 208, 208} : Registers{72, 184, 128};
}

class RolesWriter {
  public:
    RolesWriter(Context& context, Transfers& transfers, FragmentInputs& inputs)
        : c_(context),
          transfers_(transfers),
          inputs_(inputs),
          out_(context.out),
          roles_(*context.kernel.tiles.roles),
          registers_(registers_for(roles_, context.plan.is_paired(context.kernel))) {}

    void write() {
        declare_roles();
        begin_handovers();
        out_.begin({Kind::Role, kInputs}, "if (group() == 0)");
        take_registers("fewer", registers_.inputs);
        inputs_.ask_for_all();
        out_.end("");
        if (roles_.has_giver()) {
            out_.begin({Kind::Role, giver()}, has_takers() ? "} else if (group() == 1)" : "} else");
            take_every_chunk(Roles::kGives, !roles_.by_tiles);
            out_.end(has_takers() ? "" : "}");
        }
        if (has_takers()) {
            out_.begin({Kind::Role, taker()}, "} else");
            if (roles_.by_tiles) take_every_chunk(Roles::kTakes, true);
            else make_outputs();
            out_.end();
        }
    }

  private:
    [[nodiscard]] bool has_takers() const { return roles_.takers > 0; }
    [[nodiscard]] const char* giver() const { return roles_.by_tiles ? kCommon : kStates; }
    [[nodiscard]] const char* taker() const { return roles_.by_tiles ? kTiles : kOutputs; }
    /// The constant that says how many buffers there are of what is handed over.
    [[nodiscard]] const char* buffers() const { return roles_.by_tiles ? "kBuffers" : "kOutputs"; }
    /// The groups that read each such buffer, and each stage.
    [[nodiscard]] int readers() const { return roles_.tiles(); }
    [[nodiscard]] int readers_of_stages() const {
        return (roles_.has_giver() ? 1 : 0) + (has_takers() ? readers() : 0);
    }

    void declare_roles() {
        kernel::Kernel& time = out_.kernel();
        const auto values = [&](std::uint8_t role) {
            std::vector<std::string> names;
            for (ir::ValueId v = 0; v < c_.fn.size(); ++v)
                if (roles_.does(role, v) && c_.fn.op(v).code != ir::Opcode::Param) names.push_back(c_.name(v));
            return names;
        };
        const int stages = c_.kernel.tiles.stages;
        std::vector<std::string> made_ahead;
        for (const ir::ValueId v : c_.kernel.tiles.vectors) made_ahead.push_back(c_.name(v));
        time.roles = {{kInputs, std::min(stages, kWarps), 1, made_ahead}};
        kernel::Channel arrived{Context::kStages, "stage", stages, kInputs, {}, 1, readers_of_stages() * kWarps};
        if (roles_.has_giver()) {
            time.roles.push_back({giver(), 1, kWarps, values(Roles::kGives)});
            arrived.readers.emplace_back(giver());
        }
        std::int64_t barriers = roles_.barriers;
        const auto add = [&](kernel::Channel channel) {
            channel.barriers = Context::floats_at(barriers, Roles::kHandoverFloats * channel.depth)[0];
            barriers += Roles::kHandoverFloats * channel.depth;
            time.channels.push_back(std::move(channel));
        };
        if (has_takers()) {
            const bool apart = roles_.by_tiles && (roles_.has_giver() || !roles_.in_pieces.empty());
            time.roles.push_back({taker(), roles_.takers, kWarps, values(Roles::kTakes), apart});
            arrived.readers.emplace_back(taker());
        }
        add(arrived);
        for (const Roles::Passed& p : roles_.passed)
            add({c_.passing(p.value), "to", roles_.buffers, giver(), {taker()}, kWarps, readers() * kWarps});
    }

    void begin_handovers() {
        std::int64_t barriers = roles_.barriers;
        out_.line("const Handover<kStages, {}, 1> stages(scratch + {});", readers_of_stages(), barriers);
        barriers += Roles::kHandoverFloats * c_.kernel.tiles.stages;
        std::string begin = "stages.begin();";
        for (const Roles::Passed& p : roles_.passed) {
            out_.line("const Handover<{}, {}> {}_passing(scratch + {});", buffers(), readers(), c_.name(p.value),
                      barriers);
            begin += fmt::format(" {}_passing.begin();", c_.name(p.value));
            barriers += Roles::kHandoverFloats * roles_.buffers;
        }
        load_heads();
        out_.next({Kind::Begin});
        out_.line("if (group() == 0 && thread() == 0) {{ {} }}", begin);
        out_.add({Kind::BlockBarrier});
    }

    /// What all groups read, by one of them before the others begin.
    void load_heads() {
        for (ir::ValueId v = 0; v < c_.fn.size(); ++v) {
            if (!c_.is_param(v, ir::Role::Head) || c_.fn.op(v).type.rank() == 0) continue;
            out_.begin({Kind::Role, roles_.has_giver() ? giver() : taker()}, "if (group() == 1)");
            out_.line("float* const {} = scratch + {};", c_.name(v), c_.fn.op(v).layout->offset);
            transfers_.load_head(v);
            out_.end();
        }
    }

    /// Two groups need not share registers out that have a multiprocessor's.
    void take_registers(const char* how, int count) {
        if (!has_takers() && !c_.plan.is_paired(c_.kernel)) return;
        out_.next({Kind::Registers, std::to_string(count)});
        out_.line("ptx::{}_registers<{}>();", how, count);
    }

    void declare_outputs() {
        transfers_.declare_outputs();
        for (const ir::Result& r : c_.fn.results)
            if (r.role == ir::Role::Input)
                inputs_.declare_map(r.name, c_.plan.tensor(plan::TensorSlot::Kind::Output, r.name));
    }
    [[nodiscard]] bool stores(std::uint8_t role, ir::Role results) const {
        return std::any_of(c_.fn.results.begin(), c_.fn.results.end(),
                           [&](const ir::Result& r) { return r.role == results && roles_.does(role, r.value); });
    }

    void begin_chunk(FragmentBody& body, bool stores) {
        const Statement filled = wait_for(Context::kStages, kernel::Side::Filled, "stage");
        if (stores) body.begin_chunk(line_of_all({stores_read(), filled, group_barrier()}));
        else body.begin_chunk(body.writes_memory() ? line_of_all({filled, group_barrier()}) : filled);
    }

    /// A group that has a part in every chunk: what tiles have in common, or one that holds states.
    void take_every_chunk(std::uint8_t role, bool holds_states) {
        FragmentBody body(c_, transfers_, inputs_, role);
        FragmentStates states(c_, transfers_);
        const bool outputs = stores(role, ir::Role::Input), spills = stores(role, ir::Role::Spill);
        if (holds_states) take_registers("more", role == Roles::kGives ? registers_.gives : registers_.takes);
        else take_registers("fewer", registers_.gives);
        body.declare_buffers();
        transfers_.declare_inputs(
            [&](ir::ValueId v) { return !c_.is_param(v, ir::Role::Shifted) || c_.is_operand(v); });
        if (outputs) declare_outputs();
        if (holds_states) states.start();
        out_.line("Turn<kStages> stage;");
        const bool hands_over = !roles_.passed.empty();
        if (hands_over) out_.line("[[maybe_unused]] Turn<{}> to;", buffers());
        const Direction direction{c_.kernel.graph.reverse};
        const bool blocks = c_.plan.schedule.producer;  // of what other kernels read
        out_.begin({Kind::Loop, "chunks"},
                   fmt::format("for (; {}; row {}= kChunk, {}stage.next(){})", direction.within("row"),
                               direction.sign(), blocks ? fmt::format("block {}= call.heads, ", direction.sign()) : "",
                               hands_over ? ", to.next()" : ""));
        begin_chunk(body, outputs && !spills);  // of what other kernels read some may still be on its way
        if (holds_states) states.store_before();
        body.operations();
        if (holds_states) body.keep_carried();
        out_.end();
        if (outputs || spills) out_.add(stores_read());
        else if (holds_states && body.writes_memory()) out_.add(group_barrier());
        if (holds_states) states.store();
    }

    void make_outputs() {
        FragmentBody body(c_, transfers_, inputs_, Roles::kTakes);
        take_registers("more", registers_.takes);
        body.declare_buffers();
        declare_outputs();
        out_.line("const int own_turn = group() - {};", roles_.first_taker);
        out_.line("Turn<kStages> stage;");
        out_.line("[[maybe_unused]] Turn<kOutputs> to;");
        out_.line("stage.skip(own_turn), to.skip(own_turn);");
        Statement loop{Kind::Loop, "chunks"};
        loop.step = roles_.takers, loop.by_turns = true;
        const bool blocks = stores(Roles::kTakes, ir::Role::Spill);  // for a kernel behind this one
        if (blocks) out_.line("block += own_turn * call.heads;");
        out_.begin(std::move(loop),
                   fmt::format("for (row += own_turn * kChunk; row < at.end; row += kOutputs * kChunk, {}"
                               "stage.skip(kOutputs), to.lap ^= 1u)",
                               blocks ? "block += kOutputs * call.heads, " : ""));
        begin_chunk(body, true);
        body.operations();
        out_.end();
        out_.add(stores_read());
    }

    Context& c_;
    Transfers& transfers_;
    FragmentInputs& inputs_;
    Writer& out_;
    const Roles& roles_;
    Registers registers_;
};

}  // namespace

void write_fragment_roles(Context& context, Transfers& transfers, FragmentInputs& inputs) {
    RolesWriter(context, transfers, inputs).write();
}

}  // namespace forge::emit
