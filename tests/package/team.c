/// A package called as operators of ggml are computed (forge_team.h): plain pointers with strides in bytes, and threads of
/// the caller's, each of which calls every operator of a graph with its own number. Results are held bit for bit against
/// calls on one thread.
///
///   team PACKAGE     # of scalar_gla with K = V = 32, f32: forward and decode
#include "forge_team.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 3, T = 70, H = 4, K = 32, THREADS = 4, TOKENS = 40 };

/// As ggml_tensor: axes from the fastest on, strides in bytes.
typedef struct tensor {
    void* data;
    int64_t ne[4];
    size_t nb[4];
} tensor;

/// A view of it as Forge takes it. `shape` and `strides` are the caller's, of 4 numbers.
static forge_tensor view_of(const tensor* t, int32_t rank, int64_t* shape, int64_t* strides) {
    for (int32_t axis = 0; axis < rank; ++axis) {
        shape[axis] = t->ne[rank - 1 - axis];
        strides[axis] = (int64_t)(t->nb[rank - 1 - axis] / sizeof(float));
    }
    const forge_tensor made = {t->data, shape, strides, rank, FORGE_F32};
    return made;
}

/// q, k and v are parts of one buffer, [B, T, H, 3 K], as a projection leaves them.
static float together[B * T * H * 3 * K], gates[B * T * H], outputs[2][B * T * H * K], states[2][B * H * K * K];

typedef struct graph {
    forge_team team;
    const forge_rt_entry *forward, *decode;
    void* workspace;
    size_t workspace_bytes;
    int failures;
} graph;

static void fail(graph* g, const char* what) {
    fprintf(stderr, "%s: %s\n", what, forge_rt_error());
    ++g->failures;
}

/// One operator: `tokens` from `first` on. `nth` 0: on the calling thread alone, without a team.
static void compute(graph* g, const forge_rt_entry* entry, int to, int64_t first, int64_t tokens, int ith, int nth) {
    const size_t f = sizeof(float), row = 3 * K * f;
    tensor parts[3], gate = {gates + first * H, {H, tokens, B, 1}, {f, H * f, T * H * f, 0}},
                     o = {outputs[to] + first * H * K, {K, H, tokens, B}, {f, K * f, H * K * f, T * H * K * f}},
                     s = {states[to], {K, K, H, B}, {f, K * f, K * K * f, H * K * K * f}};
    for (int i = 0; i < 3; ++i) {
        const tensor part = {together + first * H * 3 * K + i * K, {K, H, tokens, B}, {f, row, H * row, T * H * row}};
        parts[i] = part;
    }
    int64_t numbers[7][2][4];
    forge_tensor given[7];
    for (int i = 0; i < 3; ++i) given[i] = view_of(&parts[i], 4, numbers[i][0], numbers[i][1]);
    given[3] = view_of(&gate, 3, numbers[3][0], numbers[3][1]);
    given[4] = view_of(&o, 4, numbers[4][0], numbers[4][1]);
    given[5] = view_of(&s, 4, numbers[5][0], numbers[5][1]), given[6] = given[5];
    const double scale = 0.25;
    forge_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args, args.tensors = given, args.tensor_count = 7;
    args.scalars = &scale, args.scalar_count = 1;
    args.workspace = g->workspace, args.workspace_bytes = g->workspace_bytes;
    const forge_status status = nth ? forge_team_launch(&g->team, entry, &args, ith, nth) : forge_rt_launch(entry, &args);
    if (status != FORGE_OK && ith == 0) fail(g, "launch");
}

/// A prompt, then one token after the other.
static void compute_graph(graph* g, int to, int ith, int nth) {
    compute(g, g->forward, to, 0, T - TOKENS, ith, nth);
    for (int64_t t = T - TOKENS; t < T; ++t) compute(g, g->decode, to, t, 1, ith, nth);
}

typedef struct worker {
    graph* g;
    int ith;
} worker;

static void* run(void* data) {
    const worker* w = (const worker*)data;
    compute_graph(w->g, 1, w->ith, THREADS);
    return NULL;
}

int main(int argc, char** argv) {
    static graph g;
    forge_rt_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options, options.threads = THREADS;
    forge_rt_package* package = NULL;
    if (argc < 2 || forge_rt_open(argv[1], &options, &package) != FORGE_OK ||
        forge_rt_find(package, "scalar_gla", "forward", &g.forward) != FORGE_OK ||
        forge_rt_find(package, "scalar_gla", "decode", &g.decode) != FORGE_OK)
        return fail(&g, "open"), 1;
    const forge_bounds bounds = {sizeof bounds, B, T, H, 0};
    size_t alignment = 0, more = 0;
    if (forge_rt_workspace_bytes(g.forward, NULL, &bounds, &g.workspace_bytes, &alignment) != FORGE_OK ||
        forge_rt_workspace_bytes(g.decode, NULL, &bounds, &more, &alignment) != FORGE_OK)
        return fail(&g, "workspace"), 1;
    if (more > g.workspace_bytes) g.workspace_bytes = more;
    if (posix_memalign(&g.workspace, alignment, g.workspace_bytes + 1) != 0) return 1;
    for (size_t i = 0; i < sizeof together / sizeof *together; ++i) together[i] = 0.01F * (float)(i * 7 % 31) - 0.1F;
    for (size_t i = 0; i < sizeof gates / sizeof *gates; ++i) gates[i] = -0.01F * (float)(i % 9);

    compute_graph(&g, 0, 0, 0);
    for (int again = 0; again < 3; ++again) {
        memset(states[1], 0, sizeof states[1]), memset(outputs[1], 0, sizeof outputs[1]);
        pthread_t threads[THREADS];
        worker workers[THREADS];
        for (int i = THREADS - 1; i >= 0; --i) {
            workers[i].g = &g, workers[i].ith = i;
            if (i > 0 && pthread_create(&threads[i], NULL, run, &workers[i]) != 0) return 1;
        }
        run(&workers[0]);
        for (int i = 1; i < THREADS; ++i) pthread_join(threads[i], NULL);
        if (memcmp(outputs[0], outputs[1], sizeof outputs[0]) != 0 || memcmp(states[0], states[1], sizeof states[0]) != 0)
            fail(&g, "results differ from those of one thread");
    }
    float largest = 0;
    for (size_t i = 0; i < sizeof outputs[0] / sizeof(float); ++i)
        if (outputs[0][i] > largest) largest = outputs[0][i];
    if (!(largest > 0)) fail(&g, "no results");
    if (forge_team_launch(&g.team, g.forward, NULL, 3, 3) != FORGE_INVALID_ARGUMENT) fail(&g, "a thread too many");
    printf("%lld calls by %d threads, %d failures\n", g.team.made[0], THREADS, g.failures);
    forge_rt_close(package), free(g.workspace);
    return g.failures ? 1 : 0;
}
