/// Decoding in an engine's way, in C99 with libforge_rt alone: one pool of states, sequences that come and go, and several
/// threads, each of which advances the sequences of its own by one token at a time. The package is made by
///
///   forge build scalar_gla --size K=V=64 --dtype f32 --targets x86-64,x86-64-v3,x86-64-v4 --name served -o served
///
/// and its header, served.h, has a struct and a function for each entry point.
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "served.h"

enum { THREADS = 2, SEQUENCES = 8, HEADS = 4, SIZE = 64, TOKENS = 100 };

/// What all threads share: the kernels, and the states of all sequences. Slot n is sequence n's.
typedef struct {
    const forge_rt_entry* decode;
    float states[THREADS * SEQUENCES][HEADS][SIZE][SIZE];
} Server;

/// What one thread owns.
typedef struct {
    Server* server;
    int number;
    float q[SEQUENCES][HEADS][SIZE], k[SEQUENCES][HEADS][SIZE], v[SEQUENCES][HEADS][SIZE], g[SEQUENCES][HEADS],
        o[SEQUENCES][HEADS][SIZE];
    int32_t slots[SEQUENCES];
    forge_status status;
} Worker;

static forge_tensor tensor(void* data, const int64_t* shape, int32_t rank) {
    const forge_tensor made = {data, shape, NULL, rank, FORGE_F32};
    return made;
}

static float next_number(uint32_t* seed) {
    *seed = *seed * 1664525U + 1013904223U;
    return (float)(*seed >> 8) / 16777216.0F - 0.5F;
}

/// An engine's layers make these; here they are random.
static void next_token(Worker* w, uint32_t* seed) {
    for (int n = 0; n < SEQUENCES; ++n)
        for (int h = 0; h < HEADS; ++h) {
            for (int i = 0; i < SIZE; ++i) {
                w->q[n][h][i] = next_number(seed);
                w->k[n][h][i] = next_number(seed) / 4;
                w->v[n][h][i] = next_number(seed);
            }
            w->g[n][h] = -0.1F;
        }
}

static void* work(void* data) {
    static const int64_t kMatrix[] = {SEQUENCES, 1, HEADS, SIZE}, kGates[] = {SEQUENCES, 1, HEADS},
                         kPool[] = {THREADS * SEQUENCES, HEADS, SIZE, SIZE};
    Worker* w = data;
    served_scalar_gla_decode_args args = {.scale = 0.125};
    args.q = tensor(w->q, kMatrix, 4), args.k = tensor(w->k, kMatrix, 4), args.v = tensor(w->v, kMatrix, 4);
    args.g = tensor(w->g, kGates, 3), args.o = tensor(w->o, kMatrix, 4);
    args.initial_s = args.final_s = tensor(w->server->states, kPool, 4);  // in place
    for (int n = 0; n < SEQUENCES; ++n) w->slots[n] = w->number * SEQUENCES + n;
    args.call.initial_slots = args.call.final_slots = w->slots;

    const forge_bounds bounds = {sizeof bounds, SEQUENCES, 1, HEADS, 0};
    size_t alignment = 0;
    w->status = forge_rt_workspace_bytes(w->server->decode, NULL, &bounds, &args.call.workspace_bytes, &alignment);
    if (w->status != FORGE_OK) return NULL;
    if (posix_memalign(&args.call.workspace, alignment, args.call.workspace_bytes) != 0) return NULL;

    uint32_t seed = (uint32_t)w->number + 1;
    for (int token = 0; token < TOKENS && w->status == FORGE_OK; ++token) {
        next_token(w, &seed);
        if (token == TOKENS / 2) w->slots[0] = -1;  // a sequence has ended: its output is zero, its state stays
        w->status = served_scalar_gla_decode(w->server->decode, &args);
    }
    if (w->status != FORGE_OK) fprintf(stderr, "thread %d: %s\n", w->number, forge_rt_error());
    free(args.call.workspace);
    return NULL;
}

int main(int argc, char** argv) {
    static Server server;
    static Worker workers[THREADS];
    pthread_t threads[THREADS];
    forge_rt_package* package = NULL;
    const forge_rt_options options = {.struct_size = sizeof options, .device = "cpu", .threads = 1};  // each call on its caller's thread
    if (forge_rt_open(argc > 1 ? argv[1] : "served", &options, &package) != FORGE_OK ||
        served_scalar_gla_decode_find(package, &server.decode) != FORGE_OK) {
        fprintf(stderr, "%s\n", forge_rt_error());
        return 1;
    }
    for (int t = 0; t < THREADS; ++t) {
        workers[t].server = &server, workers[t].number = t;
        if (pthread_create(&threads[t], NULL, work, &workers[t]) != 0) return 1;
    }
    for (int t = 0; t < THREADS; ++t) pthread_join(threads[t], NULL);
    double sum = 0;
    for (int t = 0; t < THREADS; ++t) {
        if (workers[t].status != FORGE_OK) return 1;
        for (int n = 0; n < SEQUENCES; ++n) sum += fabs((double)workers[t].o[n][0][0]);
    }
    printf("%s: %d sequences decoded %d tokens on %d threads; sum of outputs %g\n", forge_rt_target(package),
           THREADS * SEQUENCES, TOKENS, THREADS, sum);
    forge_rt_close(package);
    return sum > 0 && workers[0].o[0][0][0] == 0 ? 0 : 1;
}
