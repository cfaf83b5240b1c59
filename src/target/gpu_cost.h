/// The cost of a plan's kernels on a GPU: what is counted (operations, bytes, tasks, hops), what each resource would
/// take alone at its peak, and what the kernels are predicted to take, by the engine that they are made for. Nothing is
/// chosen by it but for bytes, by which Hopper's strategies are compared.
#pragma once

#include "forge/cost.h"
#include "target/target.h"

namespace forge::target {

/// What a GPU sustains, by its generation and the bandwidth in its facts.
struct GpuPeaks {
    double memory = 0;      ///< bytes per second
    double matrix = 0;      ///< operations per second of products of 16-bit matrices, a multiply-add is two
    double arithmetic = 0;  ///< simple operations per second on single numbers
};
GpuPeaks peaks_of(const GpuFacts& gpu);

/// Bytes that one chunk (or segment) of one sequence and head moves from and to memory, each once.
double bytes_per_hop(const plan::Plan& plan, const plan::Kernel& kernel);
/// … that all of the kernel's hops move.
double bytes_of_hops(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem);
/// Operations of all its tasks but products and inverses, number by number; an exponential counts as several.
double elementwise_operations(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem);
/// Of the carried states of one sequence and head.
double state_bytes(const plan::Plan& plan);

/// Everything but the prediction: `seconds` of each kernel is the longest of its resources.
CallCost counted(const plan::Plan& plan, const Problem& problem, const GpuFacts& gpu);
/// With the prediction of the plan's engine.
CallCost cost_on_gpu(const plan::Plan& plan, const Problem& problem, const GpuFacts& gpu);

/// What a schedule is chosen by.
struct Takes {
    double time = 0;   ///< seconds, or others' microseconds
    double bytes = 0;  ///< that pass between kernels
    /// Sooner over, if it does not take much more of a GPU's memory.
    [[nodiscard]] bool better_than(const Takes& other) const;
};

/// Says of each kernel, and of the call, what it waits for most, from the times in it.
void find_bounds(CallCost& cost);

}  // namespace forge::target
