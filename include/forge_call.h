/// What Forge's C interfaces share: statuses, and the arguments of a call. Included by forge_c.h, the compiler, and
/// forge_rt.h, which runs what was compiled ahead.
///
/// SPDX-License-Identifier: Apache-2.0
#ifndef FORGE_CALL_H
#define FORGE_CALL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): these are C's names

#if defined(__GNUC__)
#define FORGE_API __attribute__((visibility("default")))
#else
#define FORGE_API
#endif

typedef enum forge_status {
    FORGE_OK = 0,
    /// The definition is wrong: where (`mine.txt:12:3`), what, expected, got, for each mistake.
    FORGE_COMPILE_ERROR = 1,
    /// A call's tensors or the machine are wrong; the message names the argument.
    FORGE_RUNTIME_ERROR = 2,
    /// This interface was misused: a null pointer, an unknown option, a struct of a newer version.
    FORGE_INVALID_ARGUMENT = 3,
    FORGE_OUT_OF_MEMORY = 4,
    /// A bug in Forge.
    FORGE_INTERNAL_ERROR = 5,
    /// A package is damaged, something else or of a newer format, or has no kernels for this machine or this call.
    FORGE_PACKAGE_ERROR = 6,
    /// Several ranks: one died, or did not come within the timeout. The group is of no more use, as after the next two.
    FORGE_PEER_TIMEOUT = 7,
    /// Several ranks: they made different calls.
    FORGE_PLAN_MISMATCH = 8,
    /// Several ranks: one gave up.
    FORGE_GROUP_ABORTED = 9
} forge_status;

typedef enum forge_dtype {
    FORGE_I32 = 1,
    FORGE_I64 = 2,
    FORGE_F16 = 3,
    FORGE_BF16 = 4,
    FORGE_F32 = 5,
    FORGE_F64 = 6
} forge_dtype;

/// A tensor that the caller owns; any strides, in elements (NULL: dense, row-major). rank 0: absent.
typedef struct forge_tensor {
    void* data;
    const int64_t* shape;
    const int64_t* strides;
    int32_t rank;
    int32_t dtype; /* forge_dtype */
} forge_tensor;

/// Runs body(data, task, worker) for every task in [0, tasks), on at most `workers` threads at once, each with its own
/// worker number in [0, workers), and returns when all are done.
typedef void (*forge_parallel_for)(void* context, int64_t tasks, int32_t workers,
                                   void (*body)(void* data, int64_t task, int32_t worker), void* data);

/// One call. Token tensors are [B, T, heads, …], or [T, heads, …] for one sequence or packed ones; outputs likewise.
typedef struct forge_args {
    size_t struct_size; /* sizeof(forge_args) */
    const forge_tensor*
        tensors; /* as many as, and in the order of, "tensors" of forge_describe; initial states that are absent
                    are zero, final states that are absent are not written; the others must be there */
    size_t tensor_count;
    const double* scalars; /* in the order of "scalars" */
    size_t scalar_count;
    const forge_tensor*
        cu_seqlens;  /* NULL, or i32 or i64 [N + 1] for packed sequences: offsets in tokens, from 0 to T */
    void* workspace; /* at least forge_workspace_bytes, aligned as it says (else refused); need not be cleared */
    size_t workspace_bytes;
    void* stream; /* CUstream, NULL the default one; NULL on the CPU. On a GPU every pointer here but to structs
                     and shapes is the device's */
    forge_parallel_for parallel_for; /* CPU: NULL for the library's own threads */
    void* parallel_context;
    /* States in a pool [slots, heads, …]: sequence n reads slot initial_slots[n] of the initial states and writes slot
       final_slots[n] of the final ones; NULL: slot n. Both may be the same array, and both states the same pool, in
       place. A sequence with a negative slot is skipped: its outputs are zero, its states stay. Sequences run at once:
       several may read one slot, but no two write one, and in place none reads a slot that another one writes. On the
       CPU such a call is refused; on a GPU, where only the kernels read the slots, nobody checks them, and the states
       of such a call are undefined. There outputs must be dense. */
    const void* initial_slots; /* [N], i64 if wide_slots, else i32 */
    const void* final_slots;
    const unsigned char* has_initial_state; /* [N], 0: start from zeros; NULL: all have a state */
    int32_t wide_slots;
    /* NULL, or i32 or i64 [B, chunks], or [chunks] when packed (those that each sequence begins, in a row) or for one
       sequence: the states before chunks are then pools [slots, heads, …], and the one before chunk c of sequence b is
       written to slot chunk_slots[b, c], or not at all if that is negative: checkpoints for a cache of prefixes. They
       are the bits with which a call of the same kernels over these tokens alone ends. No slot may be there twice, nor
       one that the call reads or writes otherwise: on the CPU such a call is refused. */
    const forge_tensor* chunk_slots;
} forge_args;

/// Upper bounds of calls to come.
typedef struct forge_bounds {
    size_t struct_size; /* sizeof(forge_bounds) */
    int64_t sequences;  /* B, or the number of packed sequences */
    int64_t tokens;     /* of each sequence; packed: of all together */
    int64_t heads;      /* of the tensor that has most */
    int32_t packed;     /* whether cu_seqlens is given */
} forge_bounds;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif

#endif
