/// What scans by warp groups take, chunk by chunk or in segments, and the work ahead of them: by
/// hopper/fitted.h. Schedules follow from ratios of these alone; what calls are said to cost, from the times.
#pragma once

#include "forge/cost.h"
#include "runtime/beside.h"
#include "target/cpu/cost.h"
#include "target/gpu_facts.h"
#include "target/simt/shared_memory.h"

namespace forge::target {

/// Of 64 x 64 numbers; 0 of what is no matrix of such.
double blocks_of(const ir::Type& type);
/// Blocks of 64 x 64 x 64 that a product of the kernel multiplies beyond two: of those it waits, whatever its size.
double further_blocks(const ir::Function& fn, const ir::Op& product);
/// Products of larger matrices than those of the table take longer: by how much, on average.
double factor_of_sizes(const ir::Function& fn);

/// A scan in one pass, or in segments, one per multiprocessor.
struct SegmentTimes {
    int products = 0, matrices = 0;  ///< operations of a chunk
    double chunk = 0;                ///< of a scan with roles, alone on its multiprocessor
    double memory = 0;               ///< in which all scans' chunks, one of each, pass through global memory
    std::int64_t chunks = 0, segments = 1;
    std::int64_t summaries = 0;  ///< per segment, joined as scans start; 0: one, joined by a kernel of its own

    [[nodiscard]] double in_one_pass() const { return static_cast<double>(chunks) * chunk; }
    [[nodiscard]] double in_segments() const;  ///< with their summaries, and what joins them
    /// Whether segments save enough.
    [[nodiscard]] bool pay() const;
};

/// In one pass.
/// `held`: sizes on chip, of which matrices are made; `sizes`: in memory.
SegmentTimes segment_times(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                           const tile::Sizes& held, const FitWishes& wishes);

/// A scan with work ahead whose transitions are matrices, in segments.
struct MatrixSegmentTimes {
    std::int64_t chunks = 0, heads = 0;  ///< of a sequence; of all sequences
    std::int64_t tiles = 1;              ///< tasks of a segment's summary
    int multiprocessors = 1;
    double chunk = 0;  ///< of the scan, in one pass and in segments
    double bytes = 0;  ///< of a chunk of one head, what was made ahead included
    double ahead = 0;  ///< the work ahead, which in one pass is done beside the scan
    bool forgetting = false;

    [[nodiscard]] double in(std::int64_t segments) const;  ///< 1: in one pass
    /// The number of segments, at most so many, that takes least; 1 if they do not save enough.
    [[nodiscard]] std::int64_t best(std::int64_t most) const;
};
MatrixSegmentTimes matrix_segment_times(const plan::Plan& one_pass, const FitWishes& wishes, int multiprocessors);

/// A scan in one pass, of which multiprocessors take tasks in rounds: of whole sequences, or of their segments, each
/// after the one before.
struct RelayTimes {
    std::int64_t chunks = 0, tasks = 0, at_once = 1;  ///< of a sequence; of all sequences; of a round
    double scan = 0;                                  ///< all chunks of a sequence
    double task = 0;                                  ///< what a task takes beside its chunks
    double memory = 0;  ///< in which all that the call reads and writes passes through global memory

    [[nodiscard]] double in(std::int64_t segments) const;  ///< 1: whole sequences
    /// The number of segments that takes least; 1 if they do not save enough.
    [[nodiscard]] std::int64_t best() const;
};
RelayTimes relay_times(const plan::Plan& one_pass, const FitWishes& wishes, int multiprocessors);

/// What a task of a scan takes beside its chunks, if others take over its states.
double microseconds_of_relay_task(const plan::Kernel& scan);

/// What a task of the work ahead takes a multiprocessor that is full of them; its products are so much larger than
/// those of 64 x 64 x 128.
double microseconds_ahead(const ir::Function& ahead, double size = 1);

/// What a chunk takes a block of tiles.
double microseconds_of_block(const plan::Kernel& kernel);

/// What a chunk takes the scan for which a plan has work ahead.
double microseconds_of_chunk(const plan::Plan& plan, const plan::Kernel& scan);

/// What a task of the work ahead costs a multiprocessor that is full of them, in chunks of the scan.
double steps_of_task_ahead(const plan::Plan& plan, const plan::Kernel& ahead, const plan::Kernel& scan);

/// When a scan is over beside which its work ahead is done, with so many heads of sequences; a task takes so many times
/// what the work says that calls are placed by.
double microseconds_beside(const plan::Plan& plan, runtime::WorkBeside work, double task_factor, std::int64_t lanes,
                           int multiprocessors);

/// When such a scan is over, the tasks of which have multiprocessors of their own, and the work ahead of it, which the
/// others do meanwhile; segments leave none over.
double microseconds_of_scan_and_work(const plan::Plan& plan, const FitWishes& wishes, int multiprocessors);
/// The same of a schedule that says whether work is done beside the scan, of any number of blocks.
double microseconds_of_call(const plan::Plan& plan, const FitWishes& wishes, int multiprocessors);
/// All of a call in segments whose summaries are elementwise: the work ahead of them, they, what joins them, and scans.
double microseconds_of_segments_and_work(const plan::Plan& plan, const FitWishes& wishes, int multiprocessors);
/// The least that blocks of tiles with nothing in common take which do what this plan's scan does: one of its products
/// may be multiplied ahead.
double least_of_tiles_apart(const plan::Plan& other, const FitWishes& wishes);

/// The times of all kernels and of the call, in a cost in which everything is counted.
void predict_warp_groups(CallCost& cost, const plan::Plan& plan, const Problem& problem, const GpuFacts& gpu);

}  // namespace forge::target
