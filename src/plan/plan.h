/// A plan: everything that is decided before code is emitted. The kernels at graph and tile level, and the interface
/// through which the runtime calls them: which tensor, scalar and spill stands at which index.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/definition.h"
#include "ir/pass.h"
#include "plan/place.h"
#include "support/reasons.h"
#include "tile/lower.h"

namespace forge::plan {

/// What a kernel's graph is lowered to, and so which emitter writes it and how it is launched.
enum class Engine : std::uint8_t {
    Tiles,       ///< tile operations in a task's own memory: the CPU, and the portable path of GPUs
    WarpGroups,  ///< fragments and operands of a Hopper GPU's warp-group matrix units, by one group of 128 threads or
                 ///< several
    Warps,       ///< the same by one group, whose four warps multiply by instructions of their own
    Channels,    ///< the work of one token and channel, in the registers of a GPU's thread; segments are joined on the
                 ///< way
};
const char* to_string(Engine engine);

/// Whether kernels hold matrices as fragments and operands (tile/fragments.h).
constexpr bool has_fragments(Engine engine) { return engine == Engine::WarpGroups || engine == Engine::Warps; }

/// What was chosen for one program on one device; printable and comparable.
struct Schedule {
    Strategy strategy = Strategy::OnePass;
    std::int64_t chunk = 64;
    std::string tile_axis;       ///< empty: the kernels take whole states
    std::int64_t tile_size = 0;  ///< of tile_axis, per task
    std::int64_t tiles = 1;
    std::int64_t segments = 1;  ///< per sequence, for the segmented strategy, or in one pass for a relay
    /// … of which so many heads of sequences are under way at a time: a call has segments if they fill the last round
    /// better than whole sequences do. 0: each call has them.
    std::int64_t relay_lanes = 0;
    /// Per segment, which scans of later segments join as they start; 0: one, and a kernel joins them.
    std::int64_t summaries = 0;
    /// … whose transitions are matrices, made column by column by tiles of their own (KernelGraph::transition_columns).
    bool transition_columns = false;
    /// … where it is not sure that nothing is left of the states before: summaries of segments that forget them (by the
    /// norms of graph/log_norm.h) begin late and have no transition.
    bool forgetting = false;
    /// Kernels of single chunks take a part of tile_axis too (where on-chip memory is short).
    bool tile_chunks = false;
    std::int64_t vector_width = 16;
    bool shared_memory = false;  ///< tiles lie in a GPU's shared memory, and a block of threads works on each task
    int block_threads = 256;     ///< … of so many
    /// Sizes on chip of axes that are shorter in memory: what is loaded has zeros behind an axis's end, and nothing is
    /// stored from there. tile_size and tiles are of this size.
    tile::Sizes padded = {};
    std::string outputs_axis = {};        ///< warp groups: along which outputs are cut (plan::PlaceRules)
    bool tiles_ahead = false;             ///< warp groups: plan::PlaceRules
    bool epilogue = false;                ///< … and what of outputs needs all of tile_axis (plan::PlaceRules)
    std::set<std::string> early = {};     ///< warp groups: states that have a scan of their own (plan::PlaceRules)
    std::set<std::string> trailing = {};  ///< … after that of the others (plan::PlaceRules)
    bool between = false;      ///< … and what reads states before chunks alone ahead of it (plan::PlaceRules)
    bool scans_apart = false;  ///< … and states that need not each other by scans of their own (plan::PlaceRules)
    /// … matrices of several blocks are held of one chunk only, for which they arrive late: all but the first that is
    /// read, or all.
    bool wide_late = false, all_late = false;
    std::set<std::string> split;  ///< warp groups: kernels of single chunks whose long axes are split (tile/split.h)
    std::set<std::string> halved = {};  ///< … that are two (plan/halves.h)
    std::set<std::string> whole = {};   ///< … that have all of tile_axis, tile_chunks or not
    int operand_parts = 1;  ///< warp groups: bf16 parts of operands; several where all inputs are of 32 bits
    /// … whose matrices pass between kernels as floats, which each reader splits, rather than in their parts. What no
    /// product multiplies always does.
    bool float_images = false;
    int inverse_parts = 2;  ///< … of operands that are inverses; one, where two would not fit
    int stages = 2;  ///< warp groups: chunks whose inputs are held at a time by kernels that go through chunks in order
    /// … which, if not 0, have a warp group for inputs, one for states, and so many that make outputs.
    int output_groups = 0;
    bool producer = false;      ///< … or one for inputs, and one for everything else
    bool paired = false;        ///< … of which blocks there are two on a multiprocessor
    bool images_apart = false;  ///< … which has memory of its own for each matrix that it stores for other kernels
    /// … or one for inputs, one for what tiles have in common, and so many, with a tile each, for the rest.
    int block_tiles = 1;
    int buffers = 1;          ///< … of each value that is handed over
    bool share = true;        ///< what does not depend on tile_axis is made once, by a kernel ahead of the scan
    bool folds = false;       ///< … and inverses are multiplied there by what multiplies their products (fold_factors)
    int beside_groups = 0;    ///< … which, if not 0, runs beside the scan, with so many warp groups per block
                              ///< (device/cuda/warpgroup/beside.h)
    double beside_steps = 0;  ///< … a task of which costs a multiprocessor so many of the scan's chunks
    /// Channels: tiles of a sequence are joined by blocks that run side by side, not through the workspace.
    bool clusters = false;
    /// Threads hold matrices of states in registers, from the first token of a call to its last (tile/held.h).
    bool holds_states = false;
    /// … of so many blocks per multiprocessor at least.
    int resident_blocks = 0;
    /// … which take tasks in turn: the next one's states come to shared memory meanwhile.
    bool states_ahead = false;
    /// Floats of shared memory that a kernel may have for tiles, of portable kernels and where one warp group does all;
    /// 0: it is not looked at. What does not fit lies in global memory, and so many blocks of threads, with such memory
    /// each, take its tasks in turn; 0: all fit.
    std::int64_t shared_floats = 0;
    int far_blocks = 0;
    /// Warp groups: of shared memory, what a multiprocessor's tasks have together.
    std::int64_t processor_bytes = tile::kProcessorBytes;
    /// What should pass from kernel to kernel at a time, for it to stay in caches; 0: a whole call's.
    std::int64_t stretch_bytes = 0;
    Engine engine = Engine::Tiles;
    std::string reason;
    std::vector<Refusal> refused;  ///< what would have been taken before this, in order

    [[nodiscard]] bool has_fragments() const { return plan::has_fragments(engine); }
    /// Whether a sequence's segments are tasks of one scan, each of which starts from the states of the one before.
    [[nodiscard]] bool is_relay() const { return strategy == Strategy::OnePass && segments > 1; }
    /// An axis's size on chip.
    [[nodiscard]] std::int64_t held(const std::string& axis, const tile::Sizes& sizes) const {
        const auto it = padded.find(axis);
        return it == padded.end() ? sizes.at(axis) : it->second;
    }
    /// All axes' sizes on chip.
    [[nodiscard]] tile::Sizes held(tile::Sizes sizes) const {
        for (const auto& [axis, size] : padded) sizes[axis] = size;
        return sizes;
    }
    /// As if shared memory had room for all tiles.
    [[nodiscard]] Schedule without_far_tiles() const {
        Schedule near = *this;
        near.shared_floats = 0, near.far_blocks = 0;
        return near;
    }
    [[nodiscard]] tile::Rules rules() const { return {vector_width, shared_memory, shared_floats}; }
};
std::string to_string(const Schedule& schedule);

/// A tensor of the call. Strides are read by the kernels in the axis order sequence, token (of states before chunks:
/// chunk), head, rest.
struct TensorSlot {
    using Kind = runtime::TensorKind;
    Kind kind = Kind::Input;
    std::string name;
    ir::Type type;  ///< as declared, symbolic; states without the head axis
    double pad = 0;
    std::optional<Dim> heads = {};  ///< of a state that holds the last rows of an input: that input's
    bool given = false;             ///< of a chunk state: kernels read it
    bool inner = false;             ///< of a state: no call has it
};

using runtime::LastRowSlots;

/// A value that passes from kernel to kernel through the workspace, whole even where scans take parts of it.
struct SpillSlot {
    using Per = runtime::Per;
    std::string name;
    ir::Type type;  ///< of a block, symbolic
    std::vector<std::int64_t> strides;
    std::int64_t floats = 0;  ///< of a block
    Per per = Per::Chunk;
    int parts = 0;  ///< of an operand of the matrix units, which it is stored as; 0: stored as floats
    /// … as the floats that are split into parts where they are read, in the place of two parts.
    bool split_later = false;
};

/// A state whose initial one several tasks of a scan read. Either it lacks the axis along which they take parts, so
/// that each of them computes all of it, the same numbers; or they have segments, which join the summaries before them
/// to it. Where the final state may lie in the initial one's memory it is left in the workspace, and the last kernel
/// stores it, after all that may read the initial one.
struct LateState {
    int spill = 0, initial = 0, final = 0;
};

/// Where work ahead of a scan that runs beside it says what it has made: a word per chunk and head.
constexpr const char* kMadeSpill = "made";
/// A number per segment and head: whether it forgets the states before it, 1 or 0.
constexpr const char* kForgetsSpill = "forgets";
/// Tiles for which shared memory is too small; kernels have them one after the other.
constexpr const char* kFarSpill = "far tiles";

/// What a kernel's tasks have of an axis: `count` parts of `size` numbers.
struct Cut {
    std::string axis;  ///< empty: they take all axes whole
    std::int64_t size = 0, count = 1;
};

struct Kernel {
    KernelGraph graph;
    Cut cut;
    std::int64_t transition_tiles = 0;  ///< further tasks, of transitions (KernelGraph::transition_columns)
    tile::TileKernel tiles;             ///< Channels: the token program with its transitions, which has no tiles
    Engine engine = Engine::Tiles;      ///< the schedule's, but for kernels that want all of float's bits

    /// Blocks of threads per unit of work and head.
    [[nodiscard]] std::int64_t parts() const {
        return (cut.count + transition_tiles) / (tiles.roles ? tiles.roles->tiles() : 1);
    }
    /// Whether its blocks have several tiles, which have nothing in common.
    [[nodiscard]] bool has_tiles_apart() const {
        return tiles.roles && tiles.roles->by_tiles && !tiles.roles->has_giver();
    }
    /// Scratch memory where several tasks share a block: operands begin at multiples of 1024 bytes.
    [[nodiscard]] std::int64_t aligned_floats() const { return (tiles.scratch_floats + 255) / 256 * 256; }
};

/// What its tasks do, in words.
std::string tasks_of(const Kernel& kernel);

/// A program cannot have kernels for warp groups, and why.
using NotForWarpGroups = Refused;

struct Plan {
    ir::Definition definition;
    ir::Function program;  ///< joined and optimised
    Schedule schedule;
    tile::Sizes sizes;  ///< every symbol but T and the heads, as the caller gave them
    std::vector<Kernel> kernels;
    std::vector<TensorSlot> tensors;
    std::vector<std::string> scalars;
    std::vector<SpillSlot> spills;
    /// Of every input that prev_token reads. After all kernels, as they may read what lies where these are written, one
    /// more stores them (emit/last_rows.h): it has a task for every sequence and head.
    std::vector<LastRowSlots> last_rows;
    std::vector<LateState> late_states;  ///< this kernel stores them too
    DType state_dtype = F32;             ///< of initial and final states in memory

    [[nodiscard]] bool has_end() const { return !last_rows.empty() || !late_states.empty(); }
    /// The late state whose final tensor it is; null: there is none.
    [[nodiscard]] const LateState* late_state(int final) const;
    /// Whether a kernel's tasks that take parts of an axis all yield such a value, of which one is stored.
    [[nodiscard]] bool is_shared(const Kernel& kernel, const ir::Type& type) const;
    [[nodiscard]] int tensor(TensorSlot::Kind kind, const std::string& name) const;
    [[nodiscard]] int scalar(const std::string& name) const;
    [[nodiscard]] int spill(const std::string& name) const;
    [[nodiscard]] bool has_spill(const std::string& name) const;
    /// The last kernel that goes through chunks in order.
    [[nodiscard]] const Kernel& scan() const;
    /// Whether the kernel is the work ahead of a scan that runs beside it, or that scan: the last two.
    [[nodiscard]] bool is_beside(const Kernel& kernel, Loop loop) const {
        const Kernel& last = kernels.back();
        return schedule.beside_groups > 0 && &kernel == (loop == Loop::Scan ? &last : &last - 1);
    }
    /// Whether two of the kernel's blocks, each of a producer and one group, share a multiprocessor.
    [[nodiscard]] bool is_paired(const Kernel& kernel) const {
        return schedule.paired && kernel.tiles.roles && kernel.tiles.roles->takers == 0;
    }
    /// Whether all kernels go through a stretch of chunks before the first begins the next one. States then wait in
    /// spills.
    [[nodiscard]] bool in_stretches() const;
    /// The chunks of each sequence in a stretch, where so many sequences and heads are under way.
    [[nodiscard]] std::int64_t stretch_chunks(std::int64_t lanes) const;
};

/// `definition` in its final types; `program` joined and optimised from it.
/// For warp groups: NotForWarpGroups if a kernel cannot be lowered so.
Plan make_plan(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
               const Schedule& schedule, const ir::PassRunner& passes = {});

/// Useful floating-point operations per chunk and head of a lowered program: products (a triangle counts half) and
/// inverses; elementwise work is not counted.
double useful_flops(const ir::Function& fn);
/// Of a block of threads, which may have several tiles.
double useful_flops(const Kernel& kernel);

}  // namespace forge::plan
