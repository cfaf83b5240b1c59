/// Forge's C ABI (C99): compile a variant of linear attention from its text form, describe it, launch it on the
/// caller's memory and stream. No C++, Python or CUDA types; every symbol of the library is hidden but forge_*.
///
/// Promises. Functions never throw or abort: they return a status, and forge_error() says why in words that name the
/// argument. All of them may be called from several threads at once; launches of one compiled variant need distinct
/// outputs and workspaces. A launch allocates no device memory, synchronises nothing, reads no file and no environment,
/// and uses only the caller's stream and workspace: on a GPU it can be captured in a graph, whose replays may see other
/// cu_seqlens of the same count with no more tokens in all. Sizes and strides are 64-bit; zero tokens or sequences are
/// a success that launches nothing. The same compiled variant, shapes and device give the same bits.
///
/// Versions. A library serves a program compiled against the same major version and a minor version no larger than its
/// own. Structs begin with their size, and grow at the end only: what a caller's struct lacks counts as zero, and bytes
/// beyond those that the library knows must be zero.
///
/// SPDX-License-Identifier: Apache-2.0
#ifndef FORGE_C_H
#define FORGE_C_H

#include "forge_call.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FORGE_ABI_MAJOR 1
#define FORGE_ABI_MINOR 5
#define FORGE_ABI_VERSION ((uint32_t)FORGE_ABI_MAJOR << 16 | FORGE_ABI_MINOR)

/// major << 16 | minor of the library.
FORGE_API uint32_t forge_abi_version(void);
/// The version of Forge and, in parentheses, of the compiler that built the library.
FORGE_API const char* forge_build(void);
/// "FORGE_OK", …
FORGE_API const char* forge_status_string(forge_status status);
/// The message of the calling thread's last call that failed; valid until its next call fails.
FORGE_API const char* forge_error(void);
/// Frees a text that a function returned through char**. NULL is allowed.
FORGE_API void forge_free(char* text);

/* ---------------------------------------------------------------------------------------------- definitions */

/// The ready-made variants, by index from 0; NULL past the last.
FORGE_API const char* forge_variant_name(size_t index);
/// Their recurrences, in a line each.
FORGE_API const char* forge_variant_summary(size_t index);
/// The definition of a ready-made variant in text form, with source locations. The text belongs to the library.
FORGE_API forge_status forge_variant_definition(const char* name, const char** text);

/// Names of inputs, states and outputs are identifiers, whatever C++ or CUDA may mean by them, each of one tensor only.
/// The text form begins `linear_attention @name {`, or `linear_attention @name chunk=64 {` where the definition fixes
/// its chunk; inputs may end in `pad=1` and `range=[0, 1]`, what checks draw from. `state last_k: f32[K] of k` says
/// what follows from prev_token of k; it may be left out.

/// A definition at a stage of the compiler, printed: "definition", "joined" (one function) or "optimized" (after all
/// graph passes, canonical). `dtype` replaces its 16-bit types: bf16, f16 or f32. forge_free(*text).
FORGE_API forge_status forge_lower(const char* definition, const char* dtype, const char* stage, char** text);
/// The type of one operation's result by the language's rules, for front ends that trace:
/// `matmul(bf16[C, K], bf16[K, V]) {trans_a=false}` gives `bf16[C, V]`. `type` holds `bytes` bytes, terminator
/// included.
FORGE_API forge_status forge_infer(const char* operation, char* type, size_t bytes);

/* ---------------------------------------------------------------------------------------------- compiling */

/// A compiled variant.
typedef struct forge_attention forge_attention;

/// Options, as texts. Unknown names, of sizes too, and negative numbers are refused.
///   device              cpu, cuda or cuda:<number>; default cpu
///   on                  with device = cuda: the GPU to compile for, if not this machine's: h200, or another of facts/,
///   or
///                       the path of a file of such facts. Needs neither that GPU nor a driver; what comes is
///                       explained and shows its sources and resources, and launches are refused
///   entry               forward (default), for whole sequences, decode, for a few tokens of each of many sequences, or
///                       backward, for gradients.
///                       decode: the definition's step, token by token in one kernel; without a step its phases on
///                       chunks of one token. Calls have the same arguments, and states as a rule in slots, see
///                       forge_args. strategy and chunk are then decode's, and left out.
///                       backward: calls take what forward takes and grad_<output>, further inputs; their outputs are
///                       grad_<input> of the token inputs. Further states: grad_<state> (going in, of the state after
///                       the last token; coming out, of the initial one) and grad_<input> of inputs per head and of
///                       numbers, [N, heads, …], sums over tokens on top of what goes in. Gradients are per head of the
///                       outputs, for the caller to sum where fewer heads share an input, and of the inputs' types.
///                       backward of q, k: of the gradients of inputs only these, and none that they do not need.
///                       backward to inputs, perhaps of some: without gradients of states, which calls leave out
///                       (rank 0); what only keeps exponents small then has none at all
///                       backward from states, perhaps of some: calls bring the states before chunks (chunk_state), as
///                       forward with chunk_states and the same chunk left them, which are not made again then; they
///                       have no initial or final states of the definition's own
///                       summary, summary of backward: what a rank's tokens do to the states (forge/dist.h)
///   dtype               bf16 (default), f16 or f32: replaces the definition's 16-bit types
///   size.<symbol>       the size of every symbol but T and the heads: size.K = 128
///   strategy            auto (default), one-pass, fused, decoupled, segmented
///   chunk, tiles, segments, threads     numbers; 0 (default): chosen. A chunk that the definition fixes is kept to
///   expected_tokens, expected_sequences, expected_heads     the calls to come, for the scheduler only
///   chunk_states        1: calls can have the states before every chunk, of decode before every token; default 0. Set
///                       chunk too, but for decode, as it decides how many there are
///   state_dtype         of decode: f32 (default), bf16 or f16, what states are made of in memory; they are computed
///                       with in float32. Those before tokens, and last rows, are f32
///   batch_invariant     1: the bits of a sequence's results follow from its own tokens and state alone, however many
///                       others a call has and whether they are packed: one set of kernels for all calls, whatever is
///                       expected, without segments; default 0
///   engine              of a GPU: auto (default), portable, or matrix units, or an error: warps, or warp-groups
///   (Hopper's) isa                 of the CPU: auto (default), avx512, avx2, plain rule                cost (default)
///   or paper: what chooses the strategy tuned               1 (default) or 0: whether to use what `forge tune`
///   measured on this machine cache_dir           where compiled kernels are kept; default: as FORGE_CACHE_DIR, else
///   ~/.cache/forge
typedef struct forge_option {
    const char* name;
    const char* value;
} forge_option;

/// What a variant can be composed of: JSON [{"name", "meaning", "choices": [{"name", "meaning"}]}], a part each, with
/// its default as the first choice. Since ABI 1.5. forge_free(*json).
FORGE_API forge_status forge_composition_parts(char** json);
/// The variant of these parts (forge/compose.h), as a definition in text form: a name and a choice each, {"update",
/// "delta"}; also rank, the keys per token of updates with several, name, the variant's, functions, a mask and a
/// transition of one's own in text form (forge/compose.h), and sequential (1). A FORGE_INVALID_ARGUMENT
/// for what there is not, and for choices that make no variant together, with the reason. Since ABI 1.5.
/// forge_free(*definition).
FORGE_API forge_status forge_compose(const forge_option* choices, size_t choice_count, char** definition);

/// The errors of forge_compile that depend neither on sizes nor on the machine: mistakes in the definition, options
/// that there are not. Compiles and reads nothing. Since ABI 1.2.
FORGE_API forge_status forge_verify(const char* definition, const char* file, const forge_option* options,
                                    size_t option_count);
/// Compiles a definition in text form; it runs the system's C++ compiler, or NVRTC, unless the kernels are cached. Do
/// not call it while a stream is being captured. `file` names the text in messages (NULL: `<text>`).
FORGE_API forge_status forge_compile(const char* definition, const char* file, const forge_option* options,
                                     size_t option_count, forge_attention** attention);
/// NULL is allowed. Launches on a GPU must have ended.
FORGE_API void forge_destroy(forge_attention* attention);

/// Called with how many of all programs are compiled, and which one is the last, from threads of the library, one at a
/// time.
typedef void (*forge_progress)(void* context, size_t done, size_t all, const char* what);

/// Compiles entry points of definitions ahead of time into a package that libforge_rt loads (forge_rt.h): a folder, and
/// with shared = 1 a lib<name>.so beside it. Machines need not be there. What was compiled stays in the cache, so that
/// what was interrupted goes on. `progress`: NULL for none. *files gets the written files, a line each; forge_free; or
/// NULL. Since ABI 1.3. Options:
///   output, name         the folder to write, and the package's name, an identifier
///   targets              sm_90a,sm_80,sm_89,x86-64,x86-64-v3,x86-64-v4: some of these, or an architecture that
///                        FORGE_FACTS has a GPU of, or native: this machine's CPU
///   entries              forward;decode (default), also backward; separated by semicolons
///   dtypes               bf16 (default), f16, f32: one or more
///   size.<symbol>        its values, size.K = 64,128; of size.K=V both have the same. All choices are made with all
///   tokens, tasks        of the calls to choose kernels for: tokens per sequence, sequences times heads
///   threads              of a CPU that is compiled for; default: as many as here
///   database             what `forge tune` measured on a machine with the target, a file
///   chunk_states, batch_invariant, state_dtype    as above
///   jobs                 compilations at a time; default: one for each core
///   shared               1: also the shared library; default 0
///   cache_dir            as above
FORGE_API forge_status forge_package(const char* const* definitions, size_t definition_count,
                                     const forge_option* options, size_t option_count, forge_progress progress,
                                     void* context, char** files);

/* The texts below belong to the compiled variant. */

/// JSON: {"name", "device", "arch", "dtype", "engine", "refused", "strategy", "chunk", "sizes": {symbol: size},
/// "tensors": [{"name", "kind", "dtype", "shape"}], "scalars": [names], "kernels": [symbols], "flops_per_token",
/// "build_seconds", "from_cache"}, and "on" if that option was given. "engine": cpu, channels, warp-groups or portable;
/// "refused": why those that are faster where they can be had were not taken, [{"engine", "reason", "why", "way_out"}]
/// in words, "way_out" "" if there is none. "tensors" has the order of forge_args.tensors; kinds are input, head,
/// output, initial_state, final_state, and, with the option chunk_states, chunk_state. Symbols in "shape" are strings:
/// "T" the tokens ("2*T": rows per token), then the heads; states are [N, heads, …], N the number of sequences. After
/// the states stand those that prev_token(x) carries, last_x: the rows of x's last token, with x's heads; where they
/// are absent, the first token looks back to x's pad. States before chunks are f32 [B, chunks, heads, …], packed ones
/// [chunks, heads, …], the chunks of all sequences in a row, of which an empty one has none; they may be absent, too.
FORGE_API const char* forge_describe(const forge_attention* attention);
/// Every stage of the compiler, and the schedule with its reasons; NULL after an error.
FORGE_API const char* forge_explain(const forge_attention* attention);
/// What calls of the expected shape (expected_tokens, …) cost on the machine that is compiled for, also one of the
/// option `on`: JSON [{"name", "entry", "device", "schedule", "engine", "tokens", "sequences", "heads", "flops",
/// "elementwise", "bytes", "floor_bytes", "workspace_bytes", "state_bytes", "tasks", "roofline_seconds", "seconds",
/// "bound", "beside", "basis", "kernels": [{"name", "task", "tasks", "hops", "flops", "elementwise", "bytes",
/// "memory_seconds", "matrix_seconds", "arithmetic_seconds", "latency_seconds", "seconds", "bound"}]}], of one element;
/// forge/cost.h says what each is. Counted and predicted; nothing runs. "bound": memory, matrix units, arithmetic,
/// latency or launch. `form`: json, text (a table and bars) or html (a page). Since ABI 1.4. forge_free(*text).
FORGE_API forge_status forge_cost(const forge_attention* attention, const char* form, char** text);
/// The generated sources, by index from 0: *text is NULL past the last.
FORGE_API forge_status forge_source(const forge_attention* attention, size_t index, const char** name,
                                    const char** text);
/// What the kernels take of a GPU, by its assembler: JSON [{"kernel", "registers", "spill_bytes", "stack_bytes"}] of a
/// thread, in the order of "kernels"; [] on the CPU. With the option `on` this compiles them, by NVRTC or nvcc, and is
/// a FORGE_RUNTIME_ERROR where neither is found. Since ABI 1.1. forge_free(*json).
FORGE_API forge_status forge_resources(const forge_attention* attention, char** json);
/// Runs the awkward problems of `forge check` on the compiled variant (on the CPU) and compares them in float64 with
/// the definition's `step`; without one, also whether the size of the chunks makes a difference. JSON: {"ok",
/// "against_step", "tolerance", "chunk_dependence" (a sentence, if there is one), "cases": [{"name", "ok", "admitted",
/// "values": [{"name", "relative_rms", "max_abs", "ok", "token", "sequence", "head"}]}]}, with null for what is not
/// finite. forge_free(*report).
FORGE_API forge_status forge_check(const forge_attention* attention, char** report);

/* ---------------------------------------------------------------------------------------------- calling */

/// The workspace that every call within the bounds can do with; it does not fall when a bound rises. A
/// FORGE_RUNTIME_ERROR for bounds below 0, or so large that 64 bits do not hold the bytes.
FORGE_API forge_status forge_workspace_bytes(const forge_attention* attention, const forge_bounds* bounds,
                                             size_t* bytes, size_t* alignment);
/// Enqueues a call on args->stream, or runs it, on the CPU. See the promises at the top.
FORGE_API forge_status forge_launch(const forge_attention* attention, const forge_args* args);

/* ------------------------------------------------------------------------------- several ranks, since ABI 1.4 */

/// One sequence, or packed sequences in a row, over several ranks, each of which has a contiguous part of the tokens:
/// threads, processes of a machine, or processes anywhere (docs/distributed.md). All calls with one group are
/// collective: every rank makes the same ones in the same order. On the CPU.
typedef struct forge_group forge_group;

/// An all-gather of the launcher's: every rank gives `bytes` bytes and gets those of all ranks in order. Returns 0, or
/// what failed. Called within forge_group_create, and within launches where ranks share no memory.
typedef int32_t (*forge_allgather)(void* context, const void* in, void* out, size_t bytes);

/// Options, the same on all ranks:
///   timeout_ms           after which a rank that waits for another gives up; default 30000, 0: never
///   scheme               auto (default), direct, ring, scatter-scan-gather, all-gather, serial
///   shared_memory        1 (default), or 0: only the launcher's all-gather
/// With one rank `allgather` may be NULL.
FORGE_API forge_status forge_group_create(int32_t rank, int32_t size, forge_allgather allgather, void* context,
                                          const forge_option* options, size_t option_count, forge_group** group);
/// Of the ranks that mpirun or srun started. Open MPI's library is found at run time, and initialised if it is not.
FORGE_API forge_status forge_group_create_mpi(const forge_option* options, size_t option_count, forge_group** group);
/// NULL is allowed. Of this rank alone.
FORGE_API void forge_group_destroy(forge_group* group);
/// FORGE_OK, or what made the group useless.
FORGE_API forge_status forge_group_check(const forge_group* group);
/// From any thread: all ranks that wait, or will wait, return FORGE_GROUP_ABORTED.
FORGE_API forge_status forge_group_abort(forge_group* group);
FORGE_API int32_t forge_group_rank(const forge_group* group);
FORGE_API int32_t forge_group_size(const forge_group* group);
/// In words; valid until the next time.
FORGE_API const char* forge_group_describe(forge_group* group);

/// forge_launch of a rank, of an entry forward, backward or "backward of" inputs. `has_prev`: the first sequence has
/// begun on a rank before; its initial state, and its last rows, come from there. `has_next`: the last one goes on on a
/// rank after. Without cu_seqlens all sequences go over all ranks: has_prev on all but the first, has_next on all but
/// the last. Final states are those after the rank's last token. Gradients of inputs per head and of numbers are sums
/// over the rank's tokens.
FORGE_API forge_status forge_launch_ranks(const forge_attention* attention, const forge_args* args, forge_group* group,
                                          int32_t has_prev, int32_t has_next);
/// A rank's part of packed sequences: JSON {"begin", "end", "cu_seqlens", "sequences", "has_prev", "has_next",
/// "first_rank", "last_rank"}. `count` offsets; `shard_offsets`: size + 1 offsets in tokens, or NULL for equal parts.
/// forge_free(*json).
FORGE_API forge_status forge_partition(const int64_t* cu_seqlens, size_t count, int32_t rank, int32_t size,
                                       const int64_t* shard_offsets, char** json);
/// The exchange of calls of `lanes` sequences times heads over so many ranks: states, bytes, schemes by price. `link`:
/// shared-memory (NULL), messages or nvlink, which is modelled only. forge_free(*text).
FORGE_API forge_status forge_explain_ranks(const forge_attention* attention, int32_t ranks, int64_t lanes,
                                           const char* link, char** text);

#ifdef __cplusplus
}
#endif

#endif
