/// From a kernel's graph to the tiles of a warp group: matrices of whole 64 x 64 blocks are held as a GPU's matrix
/// units take and leave them, as operands of 16-bit numbers in shared memory or as fragments in registers, and
/// everything else in float tiles. Changes of form become `copy` ops.
///
/// A product's result is a fragment: of itself, or, where its columns run along the value axis, of its transpose, so
/// that a state and all that is computed from it chain through registers. The operand that shares the result's rows
/// then comes from registers or from shared memory, the other always from shared memory.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "tile/lower.h"

namespace forge::tile {

struct FragmentRules {
    struct Input {
        DType dtype = DType::F32;
        double pad = 0;
        auto operator<=>(const Input&) const = default;
    };
    DType half = DType::BF16;             ///< of operands
    std::string value_axis;               ///< empty: no fragment is of a transpose, and threads sum what they hold
    std::map<std::string, Input> inputs;  ///< token inputs, as they lie in memory
    std::set<std::string> wide_outputs;   ///< those of 32 bits, which operands cannot hold
    std::map<std::string, int> parts;     ///< of spills that are operands
    std::set<std::string> wide_spills;    ///< those that are tiles of floats, although matrices of whole blocks
    int operand_parts = 1;                ///< of all operands
    std::set<std::string> float_images;   ///< spills that are operands, but pass as floats
    int inverse_parts = 2;                ///< … that are inverses, or scaled ones
    int stages = 2;                       ///< chunks whose inputs are held at a time; 1: only that which is computed
    bool wide_late = false;               ///< matrices of several blocks arrive as their chunk begins, not with a stage
    bool all_late = false;                ///< … the one that is read first, too
    bool narrow = false;                  ///< inputs come again for two tasks with hardly any room beside matrices
    bool split = false;                   ///< long axes are split into blocks (tile/split.h)
    bool rows_multiplied = false;         ///< decayed rows that products read follow from decay products (decay_rows)
    bool masks_in_loops = false;  ///< … of groups that make outputs, rather than made while products are under way
    bool brought = false;         ///< what loops alone read comes to shared memory, as there is nothing else to do
    bool made_again = false;      ///< loops work out what costs little again, rather than find it in memory
    bool left_outputs = false;    ///< spills are what a kernel behind the scan makes outputs of
    /// Warp groups that compute outputs, each of every other chunk; 0: one group does everything …
    int output_groups = 0;
    bool producer = false;           ///< … beside which another one asks for the inputs,
    bool images_apart = false;       ///< … where what it stores for other kernels shares its memory with nothing else,
    int block_tiles = 1;             ///< … unless so many compute a tile each, and one what these have in common
    int buffers = 1;                 ///< … of each value that it hands over
    std::int64_t shared_floats = 0;  ///< what does not fit into so many lies in global memory; 0: all does
    std::int64_t processor_bytes = kProcessorBytes;  ///< of shared memory, what a multiprocessor's tasks have together
    [[nodiscard]] bool has_far_tiles() const { return shared_floats > 0; }
    auto operator<=>(const FragmentRules&) const = default;
};

inline constexpr std::int64_t kBlock = 64;  ///< rows and columns of the smallest matrix that is held so

/// Whether `v` is what a product multiplies, and nothing else of it: numbers of 16 bits do.
bool is_operand_of(const ir::Op& op, ir::ValueId v);

/// Whether a lowered type is a matrix of whole blocks.
bool is_block_matrix(const ir::Type& type);
/// Whether an inverse is of one to three blocks by as many, which are held in registers.
bool is_fragment_inverse(const ir::Op& op);
/// A decay mask between tokens of which each has several rows or columns.
struct RepeatedMask {
    ir::ValueId mask;  ///< between the tokens
    std::int64_t rows = 1, cols = 1;
};
std::optional<RepeatedMask> repeated_mask(const ir::Function& fn, ir::ValueId v);
/// A part of an operand's matrix, some of its rows or columns, that loops read where it lies.
struct PartInPlace {
    ir::ValueId of;
    std::int64_t row = 0, row_step = 1, col = 0;
    std::int64_t col_step = 1;  ///< 2: every other column, from the first or the second on
};
std::optional<PartInPlace> part_in_place(const ir::Function& fn, ir::ValueId v);
/// Whether a value is two matrices column by column, by turns, each of them an elementwise one that nothing else reads:
/// a loop over these makes it.
bool is_made_by_turns(const ir::Function& fn, ir::ValueId v);
/// A matrix one row further on or back, with zeros for the row that is not there: what is left of a scan along the rows
/// where nothing is kept but the row beside. Loops read it where the matrix lies.
struct RowsBeside {
    ir::ValueId of;
    int step;  ///< 1: the next row
};
std::optional<RowsBeside> rows_beside(const ir::Function& fn, ir::ValueId v);
/// A sum, or the greatest of what a sum would add up.
bool is_reduction(const ir::Op& op);
/// Whether threads reduce what they hold of a matrix, or would hold of it as a fragment, over its rows or columns.
bool is_fragment_sum(const ir::Function& fn, ir::ValueId v);
/// Floats of memory of its own that an operation of these kernels needs.
std::int64_t fragment_work_floats(const ir::Function& fn, ir::ValueId v);
/// The most registers that fragments take of a thread at a time, in the order of the operations. What is carried stays.
/// `roles`: of a thread that has this role.
std::int64_t fragment_registers(const ir::Function& fn, const Roles* roles = nullptr, std::uint8_t role = 0);
/// How many tasks of single chunks share a multiprocessor, its memory and its registers.
std::int64_t tasks_at_once(const TileKernel& kernel);
/// Whether a matrix from global memory comes after something has been computed, when there is room for it.
bool arrives_late(const ir::Function& fn, ir::ValueId v);
/// Products of parts that a product of operands with so many is made of (device/cuda/warpgroup/multiply.h).
int products_of_parts(int left, int right);
/// The same of each product of a kernel's matrices; beside those of inverses, which alone may have several parts.
int products_of_parts(const ir::Function& fn);
/// Whether a product of matrices multiplies a value as it is; else its numbers need be in no parts.
bool is_multiplied(const ir::Function& fn, ir::ValueId v);
/// The parts that an operand with this value has: those of inverses, however scaled; else those of all.
int parts_of(const ir::Function& fn, ir::ValueId v, const FragmentRules& rules);

/// Refused if something stands in the way of holding the kernel so.
TileKernel lower_to_fragments(const ir::Function& kernel, const Sizes& sizes, const FragmentRules& rules,
                              const ir::PassRunner& passes = {});

}  // namespace forge::tile
