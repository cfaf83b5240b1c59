/// What it takes to call a plan's kernels, as plain data: the tensors of a call, what passes between kernels, how each
/// of them is started. The compiler makes it of a plan (emit/callable.h) and packages hold it, so that the same code
/// binds and launches calls where there is a compiler and where there is none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "forge/types.h"

namespace forge::runtime {

enum class TensorKind : std::uint8_t { Input, Head, Output, InitialState, FinalState, ChunkState };

/// Units of work that a kernel has tasks for.
enum class Loop : std::uint8_t {
    Scan,       ///< one task per (sequence, head, tile): chunks in order
    Chunks,     ///< one task per (chunk, head)
    Summaries,  ///< one task per (segment, head): chunks in order, states from nothing, transitions from the identity
    Carries,    ///< one task per (sequence, head): segments in order, each one's incoming state stored
    Segments,   ///< one task per (segment, head): chunks in order, states from the carries
    Relay,      ///< one task per (segment, head): chunks in order, states from the task of the segment before
};
/// Whether there is one task per segment.
constexpr bool per_segment(Loop loop) {
    return loop == Loop::Summaries || loop == Loop::Segments || loop == Loop::Relay;
}

/// What has a block of a value that passes from kernel to kernel, for each head: or each of the blocks of threads that
/// have tiles in global memory.
enum class Per : std::uint8_t { Chunk, Segment, Sequence, Worker };

/// Tensors of the call that hold what prev_token of an input reads before the first token, and the same for the next
/// call.
struct LastRowSlots {
    int input = 0, initial = 0, final = 0;
    bool in_place = false;  ///< of a state: only stored at the end where it may lie in its initial one's memory
    friend bool operator==(const LastRowSlots&, const LastRowSlots&) = default;
};

/// How a kernel is started on a GPU.
struct Launch {
    int threads = 256;              ///< per block
    std::int64_t shared_bytes = 0;  ///< dynamic
    /// Tasks per unit of work and head. A unit is a sequence, chunk or segment, as the kernel's loop says; or the
    /// `unit_rows` tokens of a segment that is the engine's own, where that is not 0.
    std::int64_t parts = 1;
    std::int64_t unit_rows = 0;
    /// Up to so many heads are one, whose channels they are; 0: each has tasks of its own.
    std::int64_t head_channels = 0;
    /// 0: one block of threads per task. Otherwise at most so many blocks per multiprocessor, which take tasks in
    /// order, unless they are clusters.
    int resident_blocks = 0;
    int most_blocks = 0;  ///< of the launch, if not 0, which take tasks in order
    bool beside = false;  ///< the next kernel runs beside it; blocks take tasks one after the other
    /// A task may be shared by up to so many blocks, a cluster, each of which has `cluster_rows` of its tokens at a
    /// time.
    int cluster_blocks = 1;
    std::int64_t cluster_rows = 0;
    /// It may start before the plan's kernel ahead of it has ended, and waits for that itself before it reads results.
    bool waits = false;
    /// … at its own end, as it reads nothing that the kernel ahead makes. That one lets it start when what came before
    /// has ended.
    bool waits_late = false;
    /// It may start before what the stream has ahead of the call has ended, and waits for that before it reads
    /// anything.
    bool early = false;
    /// Tensors of the call that the kernel moves by tensor copies, in the order of their maps.
    std::vector<int> maps = {};
    /// Workspace in which the tasks of one launch leave each other results: set to 0xFF, in the stream, before each
    /// launch.
    std::int64_t exchange_bytes = 0;         ///< per task
    std::int64_t exchange_header_bytes = 0;  ///< and once
    friend bool operator==(const Launch&, const Launch&) = default;
};

/// The size of one axis, as far as it is known before there is a call.
struct Axis {
    enum class Of : std::uint8_t { Number, Tokens, Heads } of = Of::Number;
    std::int64_t number = 1;  ///< the size, or so many per token
    int heads = 0;            ///< which of the call's numbers of heads
    friend bool operator==(const Axis&, const Axis&) = default;
};

/// Axes of a tensor of a call, more than device::CallTensor has strides for.
inline constexpr int kMostRank = 8;

/// A tensor of the call. States have neither the axis of sequences nor that of heads here.
struct TensorOfCall {
    TensorKind kind = TensorKind::Input;
    std::string name;
    DType dtype = DType::F32;
    Shape shape;             ///< as declared, for messages
    std::vector<Axis> axes;  ///< the same in numbers
    /// Of a state that holds the last rows of an input: that input's.
    std::optional<Axis> heads = {};
    bool given = false;  ///< of a chunk state: kernels read it
    bool inner = false;  ///< of a state: no call has it

    [[nodiscard]] int rank() const { return static_cast<int>(axes.size()); }
    [[nodiscard]] bool is_state() const {
        return kind == TensorKind::InitialState || kind == TensorKind::FinalState || kind == TensorKind::ChunkState;
    }
    [[nodiscard]] bool has_tokens() const { return kind == TensorKind::Input || kind == TensorKind::Output; }
    /// As users write it: "initial_states.s" for a state, else the tensor's name.
    [[nodiscard]] std::string argument() const;
    friend bool operator==(const TensorOfCall&, const TensorOfCall&) = default;
};

/// A value that passes from kernel to kernel through the workspace.
struct Spill {
    std::int64_t floats = 0;  ///< of a block
    Per per = Per::Chunk;
    friend bool operator==(const Spill&, const Spill&) = default;
};

struct KernelOfCall {
    std::string symbol;
    Loop loop = Loop::Scan;
    std::int64_t tiles = 1;           ///< tasks for each unit of work and head
    std::int64_t scratch_floats = 0;  ///< of a task, on the CPU
    Launch how;                       ///< on a GPU
    friend bool operator==(const KernelOfCall&, const KernelOfCall&) = default;
};

struct Callable {
    std::string name;  ///< of the definition, for messages
    std::vector<TensorOfCall> tensors;
    std::vector<std::string> scalars;
    std::vector<Spill> spills;
    std::vector<KernelOfCall> kernels;
    /// Of every input that prev_token reads, and of every state that tasks leave to the end (`input` is its initial
    /// one). After all kernels, as they may read what lies where these are written, one more stores them: it has a task
    /// for every sequence and head.
    std::vector<LastRowSlots> last_rows;
    std::string last_rows_symbol;  ///< empty: there is no such kernel
    int heads = 0;                 ///< how many numbers of heads a call may have
    std::int64_t chunk = 64, segments = 1, summaries = 0, tiles = 1;
    /// Of a relay: so many heads of sequences are under way at a time, so that calls have segments if they fill the
    /// last round of them better than whole sequences do; 0: all calls have.
    std::int64_t relay_lanes = 0;
    /// Whether all kernels go through a stretch of chunks before the first begins the next one, and what should pass
    /// from kernel to kernel at a time.
    bool in_stretches = false;
    std::int64_t stretch_bytes = 0;
    int block_threads = 256;  ///< on a GPU
    int beside_groups = 0;
    double beside_steps = 0;
    /// Whether the kernels write zeros to the outputs of sequences that are skipped. Else all outputs are cleared
    /// before them.
    bool clears_skipped = false;
    friend bool operator==(const Callable&, const Callable&) = default;
};

/// How many kernels there are up to the summaries of segments, which need no state: 0 if there are no such summaries.
std::size_t kernels_of_summaries(const Callable& callable);

/// The chunks of each sequence in a stretch, where so many sequences and heads are under way and so many bytes pass
/// from kernel to kernel for each chunk.
std::int64_t stretch_chunks(std::int64_t stretch_bytes, std::int64_t bytes_per_chunk, std::int64_t lanes);
std::int64_t stretch_chunks(const Callable& callable, std::int64_t lanes);

}  // namespace forge::runtime
