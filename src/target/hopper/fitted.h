/// Times of warp-group kernels on one GPU, fitted to measurements there: the only such numbers, and nothing but ratios
/// of them matters. All are microseconds, unless they say otherwise.
///
/// The measurements are bench/results/2026-11-22-h200-vs-fla.csv (bench/vs_fla.py --csv on an H200). With new ones
///
///     bench/fit_scans.py bench/results/2026-11-22-h200-vs-fla.csv
///
/// fits `product` and `matrix` again, and holds what the table says of every scan in the file against its times. Those
/// of segments whose transitions are matrices are of bench/results/2026-11-24-h200-segments.csv (bench/segments.py).
/// `bench/fit_groups.py` fits those of scans of one group (`alone_…`) to the times of 25 programs and of eight in
/// batches, which they meet within 30 % in the mean (bench/results/2026-11-26-h200-batches-groups.csv), but for decays
/// and registers; `paired` is of scans without decay, or with a number's, of 64 x 64 and 128 x 64
/// (bench/results/2026-11-29-h200-pairs.csv).
/// `side_…` are of the calls in bench/results/2026-11-28-h200-tiles-apart.csv, less their work ahead, and of others
/// like them. The other numbers were set by hand until schedules chosen by them were the fastest of `forge tune
/// --device cuda` for linear and delta rules with scalar, vector and no decay.
#pragma once

namespace forge::target {

struct ScanTimes {
    // A chunk of a scan with roles, alone on its multiprocessor.
    double product;                ///< of two matrices
    double matrix;                 ///< an operation on a matrix, number by number
    double bytes_per_microsecond;  ///< of all scans together, from and to global memory

    // Segments.
    double summary_chunk;  ///< a chunk of a summary
    double join;           ///< what scans take that join summaries as they start
    double kernel;         ///< … and a kernel that joins them
    // … whose transitions are matrices, made by columns: a task has a multiprocessor to itself, and a kernel joins
    // them.
    double matrix_summary_chunk;  ///< a chunk of a task
    double matrix_join;           ///< a segment that is joined
    double matrix_kernels;        ///< what the two kernels add else
    double matrix_bytes;          ///< per microsecond, of scans that are as many as multiprocessors
    double forgotten;             ///< the share of summaries' chunks that is counted where segments may forget
    double worth_it;              ///< segments are taken if they need no more than this share of one pass
    // … that come one after the other: what a task takes beside its chunks, of it per block of 64 x 64 numbers of a
    // warp group's states; what the call takes more; the same share.
    double relay_task, relay_block, relay_call, relay_worth_it;

    // A task of the work ahead of a scan, on a multiprocessor that is full of them.
    double ahead_product, ahead_inverse, ahead_mask, ahead_stored;
    double ahead_floats, ahead_function, ahead_sum;  ///< per block of 64 x 64, which matrix units do not touch
    double ahead_decays, ahead_more_decays;  ///< the first product with decays of channels, and each further one

    // A task of a chunk: what others hide of its waits, where kFull share a multiprocessor.
    double waits;

    // A chunk of a scan of one warp group that has its multiprocessor to itself: a product, and its blocks of 64 x 64 x
    // 64 beyond two; decays of channels; a function of anything, and of vectors that one warp makes ahead; per block of
    // 64 x 64, what is kept as floats, operations number by number and functions, and what is stored for later kernels;
    // inputs that all arrive as the chunk begins, unless another task fills the time; a register of a thread beyond
    // those that it has.
    double alone_stored, alone_late, alone_product, alone_block, alone_decays, alone_vector, alone_ahead, alone_floats,
        alone_matrix, alone_function, alone_spilled, registers;
    double role;              ///< what share of it a group of a task with roles takes for what it computes of a chunk
    double kilobyte_of_text;  ///< what a task of a single chunk waits for a kilobyte of instructions that were not kept
    double paired;            ///< what share of this it takes where two tasks of a multiprocessor have a producer each
    double early;             ///< … of states that are no fragments, which have a scan of their own,
    double by_element;        ///< and of such that threads hold

    // A chunk of a block of tiles, which is over when both are: what tiles have in common, in a group of its own, takes
    // so many times what it takes a task of the work ahead; an operation of a tile's group beside that of another one.
    double block_common, block_product, block_matrix;

    // A chunk of a block of tiles that have nothing in common: a product, its blocks of 64 x 64 x 64 beyond two, and
    // per block of 64 x 64 an operation number by number; and how many times as long it takes beside work ahead.
    double side_product, side_block, side_matrix, side_beside;

    // A chunk of a scan that has work ahead: of what was made ahead, what two stages cost that three do not, and how
    // many times as long it takes where products are larger, beside what follows from their sizes.
    double beside_product, beside_kilobyte, beside_wait, beside_wide;
};

/// Tasks that fill a multiprocessor, as those have of which `ahead_…` were measured.
constexpr double kFull = 4;

constexpr ScanTimes kH200 = {.product = 0.145,
                             .matrix = 0.083,
                             .bytes_per_microsecond = 4.2e6,
                             .summary_chunk = 1.25,
                             .join = 16,
                             .kernel = 30,
                             .matrix_summary_chunk = 0.97,
                             .matrix_join = 2,
                             .matrix_kernels = 32,
                             .matrix_bytes = 3.0e6,
                             .forgotten = 0.5,
                             .worth_it = 0.97,
                             .relay_task = 7,
                             .relay_block = 1,
                             .relay_call = 4,
                             .relay_worth_it = 0.95,
                             .ahead_product = 0.33,
                             .ahead_inverse = 1.1,
                             .ahead_mask = 0.45,
                             .ahead_stored = 0.25,
                             .ahead_floats = 0.25,
                             .ahead_function = 0.12,
                             .ahead_sum = 0.2,
                             .ahead_decays = 4,
                             .ahead_more_decays = 0.6,
                             .waits = 0.45,
                             .alone_stored = 0,
                             .alone_late = 0,
                             .alone_product = 0.32,
                             .alone_block = 0.17,
                             .alone_decays = 2.3,
                             .alone_vector = 0.61,
                             .alone_ahead = 0.19,
                             .alone_floats = 0.28,
                             .alone_matrix = 0.126,
                             .alone_function = 0.42,
                             .alone_spilled = 0.15,
                             .registers = 288,
                             .role = 0.48,
                             .kilobyte_of_text = 0.21,
                             .paired = 0.6,
                             .early = 0.33,
                             .by_element = 0.06,
                             .block_common = 1.7,
                             .block_product = 0.43,
                             .block_matrix = 0.1,
                             .side_product = 0.38,
                             .side_block = 0.25,
                             .side_matrix = 0.06,
                             .side_beside = 1.2,
                             .beside_product = 0.2,
                             .beside_kilobyte = 0.008,
                             .beside_wait = 0.2,
                             .beside_wide = 1.3};

/// Where warps multiply by instructions of their own: products are over where they are issued, and threads store what
/// passes between kernels. By the times of scans of one group in bench/results/2026-11-30-h200-warps.csv.
constexpr ScanTimes kH200Warps = [] {
    ScanTimes times = kH200;
    times.alone_product = 0.4;
    times.alone_stored = 0.33;
    times.alone_late = 2.1;
    return times;
}();

/// What predictions of whole calls need besides (`forge cost`); schedules do not depend on these.
struct CallTimes {
    double start;    ///< launch, first loads and last stores
    double crowded;  ///< what a chunk takes of a multiprocessor that several scans share, beside one that has it alone
};
/// Held against the measurements by bench/cost_against_measured.py.
constexpr CallTimes kH200Calls = {.start = 9, .crowded = 1.46};

}  // namespace forge::target
