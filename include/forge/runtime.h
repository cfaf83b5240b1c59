/// Compiling a definition for concrete sizes and calling the result on this machine's CPU or GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "forge/cost.h"
#include "forge/language.h"
#include "forge/refusal.h"

namespace forge {

/// A tensor that the caller owns: element type, shape and strides in elements (any strides; negative ones too).
struct TensorView {
    void* data = nullptr;
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
};
/// A dense row-major tensor.
TensorView dense(void* data, DType dtype, std::vector<std::int64_t> shape);

struct CompileOptions {
    std::string device = "cpu";  ///< cpu, cuda or cuda:<number> (compute capability 8.0 or later)
    /// The GPU to plan, emit and compile for, if not this machine's: h200, or another of facts/, the name of a file
    /// in a folder of $FORGE_FACTS, or the path of a file of such facts; with device = cuda. Needs neither that GPU nor
    /// a driver. The result is not to be called.
    std::string on = {};
    /// Which of the definition's programs: forward, for whole sequences; decode, for a few tokens of each of many
    /// sequences: made of `step` where there is one, token by token in one kernel, so that a call is one launch, with
    /// the same arguments; or backward, the gradients of all that forward takes. Its calls have the inputs and initial
    /// states of forward, grad_<output> as further inputs, grad_<input> as outputs in place of the outputs, and as
    /// states grad_<state> (going in, of the state after the last token; coming out, of the initial one; so for last
    /// rows too) and grad_<input> of inputs per head and of numbers, sums over the tokens that begin with what goes in.
    /// Gradients are per head of the outputs, for the caller to sum where fewer heads share an input, and of the
    /// inputs' types. "backward of q, k" has the gradients of these inputs only, and computes no others but states'.
    /// "backward to inputs", perhaps "of" some: calls have no gradients of states, neither of final nor of initial
    /// ones; what only keeps exponents small, such as an mLSTM's running maximum, then has none at all.
    /// "backward from states", perhaps "of" some inputs: the states before chunks are not made again but the call's
    /// (Call::chunk_states), as a forward pass with chunk_states and the same `chunk` left them; such calls have no
    /// initial or final states of the definition's own.
    /// "summary" and "summary of backward" have no outputs: they are what a rank's tokens do to the states
    /// (forge/dist.h). Beside a state s, which starts from zeros there, stands transition_s, which starts from ones, or
    /// if it is a matrix from the identity: a part of a sequence that begins with S ends with transition_s ∘ S + s.
    std::string entry = "forward";
    DType dtype = BF16;  ///< replaces the definition's 16-bit type: BF16, F16 or F32
    /// Every symbol but T and the head axes, e.g. {{"K", 128}, {"V", 128}}.
    std::map<std::string, std::int64_t> sizes = {};
    std::string strategy = "auto";  ///< auto, one-pass, fused, decoupled, segmented
    std::int64_t chunk = 0;         ///< tokens per chunk: 16, 32, 64 or 128; 0: the definition's, or chosen
    std::string isa = "auto";       ///< auto (this machine's best), avx512, avx2, plain
    int threads = 0;                ///< of the CPU, 0: all cores; on a GPU 128, 256 or 512 per task, 0: chosen
    std::string engine =
        "auto";  ///< on a GPU: auto, portable, or matrix units, or an error: warps, or Hopper's warp-groups
    std::string cache_dir = {};  ///< empty: $FORGE_CACHE_DIR, else $XDG_CACHE_HOME/forge, else ~/.cache/forge
    std::int64_t tiles = 0;      ///< parts of the value axis: a divisor of its size; 0: chosen
    std::int64_t segments = 0;   ///< per sequence: at the same time (segmented), or in one pass in order; 0: chosen
    std::string rule = "cost";   ///< what chooses: cost, or paper (fused or decoupled, by Algorithm 1)
    /// What states in memory are made of, for entry = "decode": F32, BF16 or F16. They are computed with in float32;
    /// those before tokens, and last rows, are float32.
    DType state_dtype = F32;
    /// Whether calls of forward and decode can have the states before every chunk (Call::chunk_states). The schedule is
    /// chosen among those that keep them; set `chunk` too, as it decides how many there are.
    bool chunk_states = false;
    /// Whether the bits of a sequence's results are to follow from its own tokens and state alone, not from how many
    /// others there are, how long they are, or whether they are packed: every call has the same kernels, chosen for
    /// calls of medium size rather than for those expected, and no segments, whose length is that of the longest
    /// sequence.
    bool batch_invariant = false;
    bool tuned = true;  ///< whether to use what `forge tune` measured on this machine
    /// The file with what was measured, if not the cache's own: of the machine that is compiled for.
    std::string database = {};
    /// Whether kernels are compiled and loaded. Without them there are plans, sources and explanations, which need no
    /// compiler; the result is not to be called.
    bool load = true;
    /// The expected shape of calls, for the scheduler only; any shape is accepted at run time.
    std::int64_t expected_tokens = 4096, expected_sequences = 1, expected_heads = 4;
};

/// Runs body(task, worker) for every task in [0, tasks), each worker number in [0, workers) on one thread at a time,
/// and returns when all are done.
using ParallelBody = std::function<void(std::int64_t task, int worker)>;
using ParallelFor = std::function<void(std::int64_t tasks, int workers, const ParallelBody& body)>;

/// Upper bounds of calls to come: what a workspace is sized by.
struct Bounds {
    std::int64_t sequences = 1;  ///< the batch, or the number of packed sequences
    std::int64_t tokens = 0;     ///< of each sequence; of all together when they are packed
    std::int64_t heads = 1;      ///< of the tensor that has most
    bool packed = false;         ///< whether cu_seqlens is given
};

/// The arguments of one call, by the definition's names.
struct Call {
    /// Token inputs and outputs: [B, T, heads, …], or [T, heads, …] when packed (with cu_seqlens) or for one sequence;
    /// a factor on T multiplies that axis. Head inputs: [heads, …].
    std::map<std::string, TensorView> tensors;
    std::map<std::string, double> scalars;
    /// f32 [N, heads, …], N sequences; absent: zeros. Also last_<x>, what prev_token(x) reads before the first token:
    /// x's last rows in the call before, f32 [N, x's heads, …], [N, heads, n, …] with n rows per token; absent: x's
    /// pad.
    std::map<std::string, TensorView> initial_states;
    std::map<std::string, TensorView> final_states;  ///< of the same names and shapes; absent: not wanted
    /// f32 [B, chunks, heads, …], or [chunks, heads, …] when packed or for one sequence; absent: not wanted. The chunks
    /// of Attention::chunk() tokens that a sequence begins, of packed ones those of all in a row; an empty one has
    /// none, and of a skipped one nothing is written. Only if compiled with chunk_states.
    std::map<std::string, TensorView> chunk_states = {};
    /// i32 or i64 [B, chunks], or [chunks] when packed or for one sequence: chunk_states then are pools [slots, heads,
    /// …], and the state before chunk c of sequence b goes to slot chunk_slots[b, c], or nowhere if that is negative.
    /// No slot twice, and none that the call reads or writes otherwise.
    std::optional<TensorView> chunk_slots = {};
    /// States in a pool [slots, heads, …]: sequence n reads slot initial_slots[n] and writes slot final_slots[n] (i32
    /// or i64 [N], dense; absent: slot n). They may be the same slots of the same pool. A sequence with a negative slot
    /// is skipped: its outputs are zero, and its states stay. has_initial_state (bool [N]): whether a sequence has a
    /// state, or starts from zeros. Sequences run at once: several may read one slot, but no two write one, and in
    /// place none reads a slot that another one writes. On the CPU such a call is refused; on a GPU, where only the
    /// kernels read the slots, nobody checks them, and the states of such a call are undefined. There outputs must be
    /// dense.
    std::optional<TensorView> initial_slots = {}, final_slots = {}, has_initial_state = {};
    /// Packed sequences: i32 or i64 [N + 1], offsets in tokens, from 0 to T; B must be 1 (or absent).
    std::optional<TensorView> cu_seqlens;
    /// At least workspace_bytes(call); 64-byte aligned, on a GPU 256. nullptr: allocated for the call (CPU only).
    void* workspace = nullptr;
    std::optional<std::size_t> workspace_size = {};  ///< in bytes, if it is to be checked
    /// GPU: all pointers above are the device's, and the kernels run on this CUstream (nullptr: the default one). A
    /// call only launches, and may be captured in a graph; replays may see other lengths in cu_seqlens, of the same sum
    /// or less.
    void* stream = nullptr;
    ParallelFor parallel_for = {};  ///< CPU: the caller's threads; empty: the library's own
};

namespace runtime {
class PreparedCall;
}

/// A generated source file.
struct GeneratedSource {
    std::string name;
    std::string text;
};

/// What a kernel takes of a GPU, by its assembler.
struct KernelResources {
    std::string kernel;
    int registers = 0;    ///< of a thread
    int spill_bytes = 0;  ///< stored and loaded by a thread for want of registers
    int stack_bytes = 0;  ///< of a thread
};

/// How a part of a sequence changes a state, S -> D∘S + B: what ranks exchange where each has such a part.
struct Carried {
    enum class Map : std::uint8_t {
        Identity,  ///< S + B
        Factors,   ///< D * S + B; an axis of length 1 of D counts for the whole axis of S
        Left,      ///< D @ S + B
        Right,     ///< S @ D + B
        None,      ///< not affine, or with other states: nothing sums a part up
    };
    std::string state;
    Map map = Map::None;
    std::string transition;                      ///< its class, in words
    std::vector<std::int64_t> shape, map_shape;  ///< of S and D, without sequences and heads
    std::string obstacle;                        ///< None: the operation that stands in the way, and its source line
};

/// Where the workspace of a call has what the segments of one sequence do to the states, for the library's own front
/// ends: of head h, segment i, block (first + i) * heads + h of a buffer.
struct SegmentSummaries {
    struct OfState {
        std::string state;
        const float *added = nullptr, *map = nullptr;          ///< S -> D∘S + B: B, and D; null: the identity
        std::int64_t added_block = 0, map_block = 0;           ///< numbers of a block
        std::vector<std::int64_t> added_strides, map_strides;  ///< within it
    };
    std::vector<OfState> states;
    std::int64_t heads = 1, first = 0, count = 0;
};

/// A compiled variant. Calls are thread-safe as long as they use distinct workspaces and outputs.
class Attention {
  public:
    /// The same definition with the same options, but another of its programs: forward or decode
    /// (CompileOptions::entry). It is compiled when it is first asked for, of this Attention or of a copy.
    [[nodiscard]] Attention entry(const std::string& name) const;
    [[nodiscard]] const std::string& entry() const;  ///< which of them this is

    /// Throws RuntimeError naming the argument, what was expected and what came.
    void operator()(const Call& call) const;
    /// For the library's own front ends: on a GPU the call, checked and laid out once for launches with other
    /// addresses, which end before this Attention and its copies do; nullptr on the CPU. Throws as a call does; the
    /// workspace is left aside.
    [[nodiscard]] std::shared_ptr<const runtime::PreparedCall> prepare(const Call& call) const;
    /// For ranks: the segments per sequence, at most, of which kernels make summaries before they need a state; 0:
    /// none. Such a call can be made in two steps with one workspace, in which the summaries lie in between:
    /// `summarise`, which reads no initial state (`every`: those of last segments too, which the call does not need),
    /// and `resume`, which does the rest.
    [[nodiscard]] std::int64_t summarised_segments() const;
    /// The same program in segments, whether or not the scheduler finds that one rank gains by it. nullopt where
    /// another strategy was asked for, or no engine has such kernels of it.
    [[nodiscard]] std::optional<Attention> in_segments() const;
    void summarise(const Call& call, bool every) const;
    void resume(const Call& call) const;
    /// Of sequence n. `offsets`: those of packed sequences, which are not read here.
    [[nodiscard]] SegmentSummaries segment_summaries(const Call& call, std::int64_t n,
                                                     std::span<const std::int64_t> offsets) const;
    [[nodiscard]] std::size_t workspace_bytes(const Call& call) const;
    /// Enough for every call within the bounds; does not fall when a bound rises.
    [[nodiscard]] std::size_t workspace_bytes(const Bounds& bounds) const;

    [[nodiscard]] const ir::Definition& definition() const;  ///< with the element types that were asked for
    /// The states that pass from rank to rank (forge/dist.h), of this program or of another of the definition's: of a
    /// backward pass their gradients. Nothing is compiled.
    [[nodiscard]] std::vector<Carried> carried(const std::string& entry = {}) const;
    [[nodiscard]] std::string strategy() const;  ///< the one that was chosen
    [[nodiscard]] std::int64_t chunk() const;
    [[nodiscard]] std::string isa() const;  ///< of the kernels: avx512, …, on a GPU its architecture, such as sm_90
    [[nodiscard]] std::string schedule() const;  ///< all that was chosen, as text
    /// What the kernels are made for: channels, warp-groups or portable; cpu.
    [[nodiscard]] std::string engine() const;
    [[nodiscard]] const std::string& device() const;  ///< as it was asked for: cpu, cuda, cuda:1
    /// Why engines that are faster where they can be had were not taken, in the order in which they were considered;
    /// roles: several warp groups per task. Empty for an engine that was asked for, and on the CPU.
    [[nodiscard]] const std::vector<Refusal>& refused() const;
    [[nodiscard]] std::vector<std::string> kernels() const;  ///< their symbols, in the order of launches
    [[nodiscard]] const std::vector<GeneratedSource>& sources() const;
    /// Useful floating-point operations per token and head of the chunked algorithm (a multiply-add is two; structural
    /// zeros are not counted).
    [[nodiscard]] double flops_per_token() const;
    /// The definition, the joined program, every kernel at graph and at tile level, the schedule with its reasons.
    [[nodiscard]] std::string explain() const;
    /// What a call of the expected shape costs on the machine that this is compiled for, kernel by kernel. Counted and
    /// predicted; nothing is run, and CompileOptions::load may be false.
    [[nodiscard]] CallCost cost() const;
    [[nodiscard]] double build_seconds() const;  ///< of a checked definition, to loaded kernels
    [[nodiscard]] bool from_cache() const;
    /// Of a GPU's kernels, in the order of launches; empty on the CPU. For CompileOptions::on this is what compiles
    /// them: RuntimeError if there is no CUDA compiler.
    [[nodiscard]] std::vector<KernelResources> resources() const;

  private:
    struct Family;
    struct Impl;
    friend Attention compile(const ir::Definition& definition, const CompileOptions& options);
    Attention(std::shared_ptr<Family> family, const std::string& entry, bool segments = false);
    std::shared_ptr<const Impl> impl_;
};

/// Compiles for this machine's CPU or one of its GPUs, or prepares to for a GPU that is not there (CompileOptions::on).
/// CompileError for a wrong definition, RuntimeError if no compiler is found, or no GPU where one was asked for.
Attention compile(const LinearAttention& definition, const CompileOptions& options);
Attention compile(const ir::Definition& definition, const CompileOptions& options);

}  // namespace forge
