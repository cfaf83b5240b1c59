/// A call of libforge_rt that several threads of the caller make together, as operators of ggml are computed: each of
/// `nth` threads calls the same function with its own `ith`, and all come back. C11; nothing but this header is needed.
///
///     static forge_team team;                                     // zeros; one for each graph that is computed
///     void compute(int ith, int nth) {                            // on every thread of the caller's pool
///         forge_team_launch(&team, entry, &args, ith, nth);       // one call of forge_rt_launch
///     }
///
/// Threads need not arrive together, and none waits for one that is late: what it would have done, others do. All of
/// them make the same calls in the same order. Between calls nothing is kept but the team, and no thread is started.
///
/// SPDX-License-Identifier: Apache-2.0
#ifndef FORGE_TEAM_H
#define FORGE_TEAM_H

#ifdef __cplusplus
#error "forge_team.h is C11; from C++ call forge_rt_launch with a parallel_for of your own"
#endif

#include <sched.h>
#include <stdatomic.h>

#include "forge_rt.h"

// NOLINTBEGIN(readability-identifier-naming): these are C's names

#define FORGE_TEAM_MOST 256 /* threads */

typedef struct forge_team {
    /* What is to be done at the moment, if `open`. */
    void (*body)(void* data, int64_t task, int32_t worker);
    void* data;
    int64_t tasks;
    int32_t workers;
    atomic_llong next;               /* task that nobody has begun */
    atomic_int open, helping;        /* how many help */
    atomic_llong ended;              /* calls */
    long long made[FORGE_TEAM_MOST]; /* calls, by each thread */
    atomic_int status;               /* of the last call that has ended */
} forge_team;

static inline void forge_team_work(forge_team* team, int32_t worker) {
    const int64_t tasks = team->tasks;
    for (int64_t task; (task = atomic_fetch_add(&team->next, 1)) < tasks;) team->body(team->data, task, worker);
}

/// A forge_parallel_for for the first thread.
static inline void forge_team_run(void* context, int64_t tasks, int32_t workers,
                                  void (*body)(void* data, int64_t task, int32_t worker), void* data) {
    forge_team* team = (forge_team*)context;
    team->body = body, team->data = data, team->tasks = tasks, team->workers = workers;
    atomic_store(&team->next, 0);
    atomic_store(&team->open, 1);
    forge_team_work(team, 0);
    atomic_store(&team->open, 0); /* no task is left; who is still at one says so in `helping` */
    while (atomic_load(&team->helping) > 0) sched_yield();
}

/// One call, made by the threads 0 to nth - 1 of a team; `args` counts on thread 0, which should not be the last to
/// come. Thread 0 gets its status, and has the message of forge_rt_error; the others get that of the
/// last call that has ended. At most forge_rt_options.threads of the threads have work.
static inline forge_status forge_team_launch(forge_team* team, const forge_rt_entry* entry, const forge_args* args,
                                             int ith, int nth) {
    if (ith < 0 || ith >= nth || nth > FORGE_TEAM_MOST) return FORGE_INVALID_ARGUMENT;
    const long long call = ++team->made[ith];
    if (ith == 0) {
        forge_args own = *args;
        own.parallel_for = forge_team_run, own.parallel_context = team;
        const forge_status status = forge_rt_launch(entry, &own);
        atomic_store(&team->status, (int)status);
        atomic_store(&team->ended, call);
        return status;
    }
    while (atomic_load(&team->ended) < call) {
        if (atomic_load(&team->open)) {
            atomic_fetch_add(&team->helping, 1);
            /* What was open may be over by now: then the first thread has not seen this one, and goes on. */
            if (atomic_load(&team->open) && ith < team->workers) forge_team_work(team, ith);
            atomic_fetch_sub(&team->helping, 1);
        }
        sched_yield();
    }
    return (forge_status)atomic_load(&team->status);
}

// NOLINTEND(readability-identifier-naming)

#endif
