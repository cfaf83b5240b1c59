#include "emit/cuda/fragment_roles.h"

#include "emit/cuda/fragment_body.h"
#include "emit/cuda/fragment_states.h"

namespace forge::emit {
namespace {

using tile::Roles;

/// Registers per thread of the first group, the states' and each of the outputs', of 512 for as many groups.
struct Registers {
    int inputs, states, outputs;
};

/// Groups that make outputs by turns hold little at a time.
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
        begin_handovers();
        out_.open("if (group() == 0)");
        take_registers("fewer", registers_.inputs);
        inputs_.ask_for_all();
        next_role(has_outputs() ? "else if (group() == 1)" : "else");
        go_from_state_to_state();
        if (has_outputs()) {
            next_role("else");
            make_outputs();
        }
        out_.close();
    }

  private:
    [[nodiscard]] bool has_outputs() const { return roles_.output_groups > 0; }

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
        out_.line("if (group() == 0 && thread() == 0) {{ {} }}", begin);
        out_.line("__syncthreads();");
    }

    /// Two groups need not share registers out.
    void take_registers(const char* how, int count) {
        if (has_outputs()) out_.line("ptx::{}_registers<{}>();", how, count);
    }

    void next_role(const char* condition) {
        out_.close(fmt::format("}} {} {{", condition));
        out_.indent();
    }

    void go_from_state_to_state() {
        FragmentBody body(c_, transfers_, inputs_, Roles::kStates);
        FragmentStates states(c_, transfers_);
        take_registers("more", registers_.states);
        body.declare_buffers();
        states.start();
        out_.line("Turn<kStages> stage;");
        if (has_outputs()) out_.line("[[maybe_unused]] Turn<kOutputs> to;");
        out_.open(
            fmt::format("for (; row < at.end; row += kChunk, stage.next(){})", has_outputs() ? ", to.next()" : ""));
        body.begin_chunk(body.writes_memory() ? "stages.wait_filled(stage), sync();" : "stages.wait_filled(stage);");
        states.store_before();
        body.operations();
        body.keep_carried();
        out_.close();
        if (body.writes_memory()) out_.line("sync();");
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
        out_.open(
            "for (row += own_turn * kChunk; row < at.end; row += kOutputs * kChunk, stage.skip(kOutputs), to.lap ^= "
            "1u)");
        body.begin_chunk("stores_read(), stages.wait_filled(stage), sync();");
        body.operations();
        out_.close();
        out_.line("stores_read();");
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
