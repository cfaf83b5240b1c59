#include "emit/cuda/fragment_roles.h"

#include <algorithm>

#include "emit/cuda/fragment_body.h"
#include "emit/cuda/fragment_states.h"
#include "emit/statements.h"

namespace forge::emit {
namespace {

using ::forge::kernel::Kind;
using ::forge::kernel::Statement;
using tile::Roles;

constexpr const char *kInputs = "inputs", *kStates = "states", *kOutputs = "outputs";
constexpr int kWarps = 4;  ///< of a group

/// Registers per thread of the first group, the states' and each of the outputs', of 512 for as many groups.
struct Registers {
    int inputs, states, outputs;
};

/// Several groups of outputs, each of every other chunk, hold little at a time.
Registers registers_for(int output_groups) {
    return output_groups == 1 ? Registers{80, 208, 208} : Registers{72, 184, 128};
}

class RolesWriter {
  public:
    RolesWriter(Context& context, Transfers& transfers, FragmentInputs& inputs)
        : c_(context),
          transfers_(transfers),
          inputs_(inputs),
          out_(context.out),
          roles_(*context.kernel.tiles.roles),
          registers_(registers_for(roles_.output_groups)) {}

    void write() {
        declare_roles();
        begin_handovers();
        out_.begin({Kind::Role, kInputs}, "if (group() == 0)");
        take_registers("fewer", registers_.inputs);
        inputs_.ask_for_all();
        out_.end("");
        out_.begin({Kind::Role, kStates}, has_outputs() ? "} else if (group() == 1)" : "} else");
        go_from_state_to_state();
        if (has_outputs()) {
            out_.end("");
            out_.begin({Kind::Role, kOutputs}, "} else");
            make_outputs();
        }
        out_.end();
    }

  private:
    [[nodiscard]] bool has_outputs() const { return roles_.output_groups > 0; }

    void declare_roles() {
        kernel::Kernel& time = out_.kernel();
        const auto values = [&](std::uint8_t role) {
            std::vector<std::string> names;
            for (ir::ValueId v = 0; v < c_.fn.size(); ++v)
                if (roles_.does(role, v) && c_.fn.op(v).code != ir::Opcode::Param) names.push_back(c_.name(v));
            return names;
        };
        const int stages = c_.kernel.tiles.stages, outputs = roles_.output_groups;
        std::vector<std::string> made_ahead;
        for (const ir::ValueId v : c_.kernel.tiles.vectors) made_ahead.push_back(c_.name(v));
        time.roles = {{kInputs, std::min(stages, kWarps), 1, made_ahead}, {kStates, 1, kWarps, values(Roles::kStates)}};
        kernel::Channel arrived{
            Context::kStages, "stage", stages, kInputs, {kStates}, 1, (has_outputs() ? 2 : 1) * kWarps};
        std::int64_t barriers = roles_.barriers;
        const auto add = [&](kernel::Channel channel) {
            channel.barriers = Context::floats_at(barriers, Roles::kHandoverFloats * channel.depth)[0];
            barriers += Roles::kHandoverFloats * channel.depth;
            time.channels.push_back(std::move(channel));
        };
        if (has_outputs()) {
            time.roles.push_back({kOutputs, outputs, kWarps, values(Roles::kOutputs)});
            arrived.readers.emplace_back(kOutputs);
        }
        add(arrived);
        for (const Roles::Passed& p : roles_.passed)
            add({c_.passing(p.value), "to", outputs, kStates, {kOutputs}, kWarps, kWarps});
    }

    void begin_handovers() {
        std::int64_t barriers = roles_.barriers;
        out_.line("const Handover<kStages, {}, 1> stages(scratch + {});", has_outputs() ? 2 : 1, barriers);
        barriers += Roles::kHandoverFloats * c_.kernel.tiles.stages;
        std::string begin = "stages.begin();";
        for (const Roles::Passed& p : roles_.passed) {
            out_.line("const Handover<kOutputs, 1> {}_passing(scratch + {});", c_.name(p.value), barriers);
            begin += fmt::format(" {}_passing.begin();", c_.name(p.value));
            barriers += Roles::kHandoverFloats * roles_.output_groups;
        }
        out_.next({Kind::Begin});
        out_.line("if (group() == 0 && thread() == 0) {{ {} }}", begin);
        out_.add({Kind::BlockBarrier});
    }

    /// Two groups need not share registers out.
    void take_registers(const char* how, int count) {
        if (!has_outputs()) return;
        out_.next({Kind::Registers, std::to_string(count)});
        out_.line("ptx::{}_registers<{}>();", how, count);
    }

    void go_from_state_to_state() {
        FragmentBody body(c_, transfers_, inputs_, Roles::kStates);
        FragmentStates states(c_, transfers_);
        take_registers("more", registers_.states);
        body.declare_buffers();
        states.start();
        out_.line("Turn<kStages> stage;");
        if (has_outputs()) out_.line("[[maybe_unused]] Turn<kOutputs> to;");
        out_.begin({Kind::Loop, "chunks"}, fmt::format("for (; row < at.end; row += kChunk, stage.next(){})",
                                                       has_outputs() ? ", to.next()" : ""));
        const Statement filled = wait_for(Context::kStages, kernel::Side::Filled, "stage");
        body.begin_chunk(body.writes_memory() ? line_of_all({filled, group_barrier()}) : filled);
        states.store_before();
        body.operations();
        body.keep_carried();
        out_.end();
        if (body.writes_memory()) out_.add(group_barrier());
        states.store();
    }

    void make_outputs() {
        FragmentBody body(c_, transfers_, inputs_, Roles::kOutputs);
        take_registers("more", registers_.outputs);
        body.declare_buffers();
        transfers_.declare_outputs();
        for (const ir::Result& r : c_.fn.results)
            if (r.role == ir::Role::Input)
                inputs_.declare_map(r.name, c_.plan.tensor(plan::TensorSlot::Kind::Output, r.name));
        out_.line("const int own_turn = group() - {};", Roles::kFirstOutput);
        out_.line("Turn<kStages> stage;");
        out_.line("[[maybe_unused]] Turn<kOutputs> to;");
        out_.line("stage.skip(own_turn), to.skip(own_turn);");
        Statement loop{Kind::Loop, "chunks"};
        loop.step = roles_.output_groups, loop.by_turns = true;
        out_.begin(std::move(loop),
                   "for (row += own_turn * kChunk; row < at.end; row += kOutputs * kChunk, stage.skip(kOutputs), "
                   "to.lap ^= 1u)");
        body.begin_chunk(
            line_of_all({stores_read(), wait_for(Context::kStages, kernel::Side::Filled, "stage"), group_barrier()}));
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
