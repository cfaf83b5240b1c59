/// libforge_rt (C99): loads packages of kernels that `forge build` compiled ahead, and calls them. No compiler, no
/// Python, no CUDA library at link time; it needs libc, libm, libdl and threads, and on a GPU the driver.
///
/// Promises. Functions never throw or abort: they return a status, and forge_rt_error() says why in words. All of them
/// may be called from several threads at once; launches need distinct outputs and workspaces. All files are read, and
/// all kernels loaded, by forge_rt_open. A launch allocates no memory, reads no file and no environment, synchronises
/// nothing, and uses only the caller's stream and workspace; on a GPU it can be captured in a graph. Which kernels a
/// call gets is decided by comparisons that stand in the package: of its element type, its sizes, its tokens per
/// sequence and its tasks (sequences times heads). The same call gets the same kernels, and the same bits.
///
/// Structs begin with their size, and grow at the end only: what a caller's struct lacks counts as zero, and bytes
/// beyond those that the library knows must be zero.
///
/// SPDX-License-Identifier: Apache-2.0
#ifndef FORGE_RT_H
#define FORGE_RT_H

#include "forge_call.h"

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): these are C's names

#define FORGE_RT_ABI_MAJOR 1
#define FORGE_RT_ABI_MINOR 1
#define FORGE_RT_ABI_VERSION ((uint32_t)FORGE_RT_ABI_MAJOR << 16 | FORGE_RT_ABI_MINOR)

/// major << 16 | minor of the library.
FORGE_API uint32_t forge_rt_abi_version(void);
/// The version of Forge and, in parentheses, of the compiler that built the library.
FORGE_API const char* forge_rt_build(void);
/// "FORGE_OK", …
FORGE_API const char* forge_rt_status_string(forge_status status);
/// The message of the calling thread's last call that failed; valid until its next call fails.
FORGE_API const char* forge_rt_error(void);

/// A package whose kernels for one device are loaded.
typedef struct forge_rt_package forge_rt_package;

typedef struct forge_rt_options {
    size_t struct_size;      /* sizeof(forge_rt_options) */
    const char* device;      /* NULL or "cpu"; "cuda" or "cuda:<number>" */
    int32_t threads;         /* that calls on the CPU run on; 0: one for each core. The caller's threads, too, see
                                forge_args.parallel_for, are at most so many at a time */
    const char* dump_folder; /* NULL, or where every launch is written to a file, call-PROCESS-NUMBER.forgecall, as
                                forge_rt_dump_call does; if NULL, FORGE_DUMP_CALLS of the environment says where. Such
                                launches allocate memory, write, and on a GPU wait for the stream */
    int32_t nvtx; /* 1: a range of NVTX around every launch, "DEFINITION ENTRY", on the thread that calls, for
                     Nsight Systems; or FORGE_NVTX of the environment. FORGE_RUNTIME_ERROR where there is no
                     libnvtx3interop.so.1 or libnvToolsExt.so.1. 0: launches know nothing of it */
} forge_rt_options;

/// Loads a package: the path of a folder that `forge build` wrote, or of a lib<name>.so. `options`: NULL for the CPU.
/// FORGE_PACKAGE_ERROR for what is damaged, truncated, something else or of a newer format, and for a package that has
/// no kernels for the device; FORGE_RUNTIME_ERROR where there is no such device. Not while a stream is being captured.
FORGE_API forge_status forge_rt_open(const char* path, const forge_rt_options* options, forge_rt_package** package);
/// NULL is allowed. Launches must have ended.
FORGE_API void forge_rt_close(forge_rt_package* package);
/// What the package says of itself, in JSON: definitions, entry points, kernels, tables.
FORGE_API const char* forge_rt_manifest(const forge_rt_package* package);
/// Of the package's targets the one whose kernels were loaded: x86-64-v4, sm_90a, …
FORGE_API const char* forge_rt_target(const forge_rt_package* package);

/// An entry point of a definition. It belongs to the package.
typedef struct forge_rt_entry forge_rt_entry;

/// `definition`: its name; `entry`: forward, decode, … FORGE_PACKAGE_ERROR, with what there is, for one that is not in
/// the package.
FORGE_API forge_status forge_rt_find(const forge_rt_package* package, const char* definition, const char* entry,
                                     const forge_rt_entry** found);
/// The kernels that a call gets: what was chosen for them, in words that belong to the package. FORGE_PACKAGE_ERROR if
/// the package has none for its element type and sizes.
FORGE_API forge_status forge_rt_select(const forge_rt_entry* entry, const forge_args* args, const char** schedule);
/// The workspace that every call within the bounds can do with, of the element type and sizes of `like`'s tensors
/// (NULL: of any that the package has); their lengths do not count.
FORGE_API forge_status forge_rt_workspace_bytes(const forge_rt_entry* entry, const forge_args* like,
                                                const forge_bounds* bounds, size_t* bytes, size_t* alignment);
/// Enqueues a call on args->stream, or runs it, on the CPU. The workspace must be there.
FORGE_API forge_status forge_rt_launch(const forge_rt_entry* entry, const forge_args* args);
/// Runs a call, and writes it to a file for `forge replay`: definition, sizes, all tensors before the call, and its
/// results. If the call fails or ends the process, the file is there without results. On a GPU it waits for the stream,
/// before and after; not while that is being captured.
FORGE_API forge_status forge_rt_dump_call(const forge_rt_entry* entry, const forge_args* args, const char* path);

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif

#endif
