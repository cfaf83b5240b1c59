#include "compile/cost.h"

#include <algorithm>

#include "target/gpu_cost.h"

namespace forge::compiler {
namespace {

/// What the scheduler's model of CPUs says, in the words of CallCost.
CallCost cost_on_cpu(const plan::Plan& plan, const target::Problem& problem, const target::Device& cpu) {
    const target::Cost price = target::price(plan, problem, cpu);
    const target::Floor floor = target::floor_of(plan, problem, cpu);
    CallCost cost;
    cost.name = plan.definition.name, cost.device = target::to_string(cpu), cost.engine = "cpu";
    cost.schedule = plan::to_string(plan.schedule);
    cost.tokens = problem.tokens, cost.sequences = problem.sequences, cost.heads = problem.heads;
    cost.flops = price.flops, cost.bytes = price.bytes, cost.workspace_bytes = price.spill_bytes;
    cost.floor_bytes = floor.bytes, cost.state_bytes = target::state_bytes(plan);
    cost.roofline_seconds = floor.seconds(), cost.seconds = price.seconds;
    cost.basis = "the model that chooses schedules on a CPU";
    for (std::size_t i = 0; i < price.kernels.size(); ++i) {
        const target::KernelCost& from = price.kernels[i];
        StageCost k;
        k.name = from.name, k.task = plan::to_string(plan.kernels[i].graph.loop);
        k.tasks = from.tasks, k.hops = from.hops;
        k.flops = from.flops, k.bytes = from.bytes;
        k.elementwise = target::elementwise_operations(plan, plan.kernels[i], problem);
        k.memory_seconds = from.move_s;
        k.matrix_seconds = from.flops / (cpu.product_flops * cpu.slots);
        k.arithmetic_seconds = std::max(0.0, from.compute_s - k.matrix_seconds);
        k.seconds = from.seconds;
        cost.elementwise += k.elementwise;
        cost.kernels.push_back(std::move(k));
    }
    target::find_bounds(cost);
    return cost;
}

}  // namespace

CallCost cost_of(const Executable& executable, const std::string& entry) {
    const target::Question& question = executable.choice.question;
    CallCost cost = question.gpu() ? target::cost_on_gpu(executable.plan, question.problem, *question.gpu())
                                   : cost_on_cpu(executable.plan, question.problem, question.cpu());
    cost.entry = entry;
    return cost;
}

}  // namespace forge::compiler
