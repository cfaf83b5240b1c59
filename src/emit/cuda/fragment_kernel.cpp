#include "emit/cuda/fragment_kernel.h"

#include "emit/cuda/fragment_body.h"
#include "emit/cuda/fragment_roles.h"
#include "emit/cuda/fragment_states.h"
#include "emit/cuda/vector_scan.h"
#include "emit/kernel.h"
#include "emit/statements.h"
#include "forge/error.h"
#include "graph/log_norm.h"
#include "tile/fragments.h"

namespace forge::emit {
namespace {

using ir::Role;
using ir::ValueId;
using plan::Loop;

class FragmentKernel {
  public:
    FragmentKernel(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel)
        : c_(out, dialect, plan, kernel),
          transfers_(c_),
          inputs_(c_, transfers_),
          out_(out),
          plan_(plan),
          loop_(kernel.graph.loop),
          beside_(runs_beside_kernel_before(plan, kernel)),
          fn_(c_.fn) {}

    void write() {
        kernel::Kernel time{kernel_symbol(c_.kernel)};
        time.publishes = c_.dialect.publishes, time.overlaps = waits_for_kernel_before(plan_, c_.kernel) && !beside_;
        time.arrivals = has_arrivals(plan_, c_.kernel);
        out_.begin_kernel(
            std::move(time),
            fmt::format("{} void {}({}{})", launch_bounds(), kernel_symbol(c_.kernel), c_.dialect.arguments,
                        takes_maps(plan_, c_.kernel) ? ", const __grid_constant__ TensorMaps maps" : ""));
        for (const std::string& line : c_.dialect.prologue) out_.put(line);
        if (!has_far_tiles()) declare_constants();
        if (plan_.is_beside(c_.kernel, Loop::Chunks)) write_tasks_beside();
        else if (has_far_tiles()) write_tasks_in_turn();
        else write_one_task();
        out_.end();
    }

  private:
    [[nodiscard]] static std::string constants_of(const tile::Roles& roles) {
        if (roles.by_tiles)
            return fmt::format(", kTiles = {}, kFirstOfTiles = {}{}", roles.takers, roles.first_taker,
                               roles.has_giver() ? fmt::format(", kBuffers = {}", roles.buffers) : "");
        return roles.takers > 0 ? fmt::format(", kOutputs = {}", roles.takers) : "";
    }

    void declare_constants() {
        out_.line("constexpr int kChunk = {}{}{};", plan_.schedule.chunk,
                  plan::in_order(loop_) ? fmt::format(", kStages = {}", c_.kernel.tiles.stages) : "",
                  c_.kernel.tiles.roles ? constants_of(*c_.kernel.tiles.roles) : "");
    }

    [[nodiscard]] bool has_far_tiles() const { return c_.kernel.tiles.far_floats > 0; }

    void write_one_task() {
        if (forgets()) return write_forgetting();
        write_task(own_tile(fmt::format("{}(call, task{})", task_function(), loop_ == Loop::Scan ? "" : ", kChunk")),
                   c_.dialect.idle);
    }

    /// Tiles in global memory are those of all kernels of a call, one after the other.
    void write_tasks_in_turn() {
        if (waits_for_kernel_before(plan_, c_.kernel)) out_.add({kernel::Kind::WaitKernel});
        declare_far_tiles(out_, plan_);
        begin_tasks_in_turn(out_);
        declare_constants();
        write_one_task();
        end_tasks_in_turn(out_);
    }

    /// Of a block's tiles, that of the group.
    [[nodiscard]] std::string own_tile(const std::string& task) const {
        const bool by_tiles = c_.kernel.tiles.roles && c_.kernel.tiles.roles->by_tiles;
        return by_tiles ? fmt::format("with_own_tile<kTiles, kFirstOfTiles>({})", task) : task;
    }

    [[nodiscard]] std::string launch_bounds() const {
        const bool small =
            loop_ == Loop::Summaries && plan_.schedule.summaries > 0;  // there are as many as two per multiprocessor
        if (const auto& roles = c_.kernel.tiles.roles)
            return fmt::format("FORGE_KERNEL_OF({}, {})", roles->groups(),
                               (small && roles->takers == 0) || plan_.is_paired(c_.kernel) ? 2 : 1);
        if (plan_.is_beside(c_.kernel, Loop::Chunks))
            return fmt::format("FORGE_KERNEL_OF({}, 1)", plan_.schedule.beside_groups);
        return plan::in_order(loop_) ? "FORGE_KERNEL"
                                     : fmt::format("FORGE_KERNEL_TASKS({})", tile::tasks_at_once(c_.kernel.tiles));
    }

    [[nodiscard]] const char* task_function() const {
        switch (loop_) {
            case Loop::Scan:
                return "scan_task";
            case Loop::Chunks:
                return "chunk_task";
            case Loop::Summaries:
                return "summary_task";
            case Loop::Segments:
                return "segment_task";
            case Loop::Relay:
                return "segment_task";  // whose number next_of_relay has found
            case Loop::Carries:
                break;
        }
        throw InternalError("emit: carries are no work for warp groups");
    }

    /// Summaries that may begin late read what the kernels before have made to know their task.
    [[nodiscard]] bool forgets() const { return loop_ == Loop::Summaries && plan_.schedule.forgetting; }

    void write_forgetting() {
        if (!has_far_tiles()) out_.add({kernel::Kind::WaitKernel});
        c_.next("forgetting", Transfers::spilled(graph::kLogNorm), {});
        out_.line("const Task all = summary_task(call, task, kChunk);");
        out_.line("const Task at = call.every_summary ? all : forgetting(call, all, call.spills[{}], kChunk);",
                  plan_.spill(graph::kLogNorm));
        out_.put(c_.dialect.idle);
        out_.line("if (at.last && !call.every_summary) return;  // no segment follows that would ask for its summary");
        out_.line("if (thread() == 0) call.spills[{}][at.segment * kNumberFloats] = at.forgets;",
                  plan_.spill(plan::kForgetsSpill));
        out_.line("if (at.forgets && at.tile >= {}) return;  // no transition", c_.kernel.cut.count);
        write_body();
    }

    void write_task(const std::string& task, const std::string& idle) {
        out_.line("const Task at = {};", task);
        if (plan_.is_beside(c_.kernel, Loop::Scan)) out_.line("begin_beside(call);");
        else if (waits_for_kernel_before(plan_, c_.kernel) && !beside_ && !has_far_tiles() &&
                 !plan_.is_beside(c_.kernel, Loop::Chunks))
            out_.add({kernel::Kind::WaitKernel});  // idle tasks too: the next kernel relies on it
        if (has_kernel_beside(plan_, c_.kernel)) out_.line("ptx::let_next_kernel_start();");
        if (!beside_) out_.put(idle);
        if (loop_ == Loop::Summaries)
            out_.line(
                "if (at.last && !call.every_summary) return;  // no segment follows that would ask for its summary");
        write_body();
    }

    void write_body() {
        declare_parameters();
        if (c_.kernel.tiles.by_element) {
            write_vector_scan(c_, transfers_);
        } else {
            inputs_.declare_rows();
            if (c_.kernel.tiles.roles) write_fragment_roles(c_, transfers_, inputs_);
            else write_alone();
        }
        if (beside_) out_.line("ptx::wait_for_kernel_before();  // what follows in the stream relies on both");
    }

    /// Each warp group takes tasks by itself, while the scan waits for them.
    void write_tasks_beside() {
        const std::string made = fmt::format("call.spills[{}]", plan_.spill(plan::kMadeSpill));
        out_.line("constexpr int kGroups = {};", plan_.schedule.beside_groups);
        out_.line("begin_work_beside<kGroups>(call, {}, kChunk);", made);
        if (waits_for_kernel_before(plan_, c_.kernel)) out_.add({kernel::Kind::WaitKernel});
        kernel::Statement tasks{kernel::Kind::Loop, "tasks"};
        tasks.tasks = true;
        out_.begin(std::move(tasks),
                   "for (int task = first_task_beside(call); task < call.tasks; task = next_task_beside<kGroups>(call, "
                   "task))");
        out_.line("float* const scratch = group_scratch({});", c_.kernel.aligned_floats());
        write_task("chunk_task(call, in_order_of_scans(call, task, kChunk), kChunk)", "if (at.idle) continue;");
        kernel::Statement is_made{kernel::Kind::Barrier, "is_made"};
        is_made.code = {fmt::format("is_made(call, {}, at.block);", made)};
        out_.add(std::move(is_made));
        out_.end();
    }

    void declare_parameters() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (c_.is_param(v, Role::Scalar))
                out_.line("const float {} = call.scalars[{}];", c_.name(v), plan_.scalar(fn_.op(v).attrs.name));
            if (c_.is_param(v, Role::Head) && fn_.op(v).type.rank() == 0) transfers_.load_head(v);
        }
    }

    /// One warp group does everything.
    void write_alone() {
        FragmentBody body(c_, transfers_, inputs_, 0);
        FragmentStates states(c_, transfers_);
        inputs_.begin_arrivals();
        transfers_.declare_tensors();
        body.declare_buffers();
        states.start();
        inputs_.declare();
        inputs_.start_first();
        body.sum_first_gates();
        inputs_.make_first_vectors();
        if (!plan::in_order(loop_)) {
            const bool hardware = has_arrivals(plan_, c_.kernel);
            body.begin_chunk(line_of_all({arrivals_in(hardware, copy_wait(0)), fence(), group_barrier()}));
            body.operations();
            if (hardware && body.stores_by_copy()) out_.add(stores_read());
            return;
        }
        const Direction direction{c_.kernel.graph.reverse};
        out_.begin({kernel::Kind::Loop, "chunks"},
                   fmt::format("for (; {}; row {}= kChunk, block {}= call.heads, stage = after(stage))",
                               direction.within("row"), direction.sign(), direction.sign()));
        body.begin_chunk(line_of_all({copy_wait(c_.kernel.tiles.stages - 2, "kStages - 2"), fence(), group_barrier()}));
        states.store_before();
        body.operations();
        body.keep_carried();
        out_.end();
        out_.add(publish());
        states.store();
    }

    Context c_;
    Transfers transfers_;
    FragmentInputs inputs_;
    Writer& out_;
    const plan::Plan& plan_;
    Loop loop_;
    bool beside_;  ///< the kernel before
    const ir::Function& fn_;
};

}  // namespace

void write_fragment_kernel(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel) {
    FragmentKernel(out, dialect, plan, kernel).write();
}

}  // namespace forge::emit
