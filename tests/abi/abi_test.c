/* The C ABI from C99: scalar_gla, S = e^g S + k v^T, o = scale S^T q, is compiled for the CPU and called in every way that the
   header describes; results are compared with the recurrence in double precision, written out below. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forge_c.h"
#include "forge_dlpack.h"

enum { H = 2, K = 20, V = 12, ROW = 2 * K + V, TOKENS = 150, CHANNELS = H * ROW };

static int failures = 0;

#define EXPECT(condition)                                                                                   \
    do {                                                                                                    \
        if (!(condition)) {                                                                                 \
            fprintf(stderr, "%s:%d: expected %s\n    %s\n", __FILE__, __LINE__, #condition, forge_error()); \
            ++failures;                                                                                     \
        }                                                                                                   \
    } while (0)

static void* take(size_t bytes) {
    void* memory = NULL;
    if (posix_memalign(&memory, 64, bytes > 0 ? bytes : 64) != 0) abort();
    return memory;
}

static float noise(unsigned* seed) {
    *seed = *seed * 1664525U + 1013904223U;
    return (float)(*seed >> 8) / 8388608.0F - 1.0F;
}

/* ------------------------------------------------------------------------------------------------------------ a call */

/* q, k and v are strided views of one row per token and head, as a fused projection leaves them: [T, H, K + K + V]. */
typedef struct Problem {
    float mixed[TOKENS * CHANNELS], g[TOKENS * H], o[TOKENS * H * V];
    float initial[3 * H * K * V], final[3 * H * K * V];
    int64_t cu_seqlens[4];
    int64_t shape_qk[3], shape_v[3], shape_g[2], shape_o[3], shape_state[4], stride_mixed[3], shape_cu[1];
    forge_tensor tensors[7], cu;
    double scale;
    forge_args args;
} Problem;

static Problem* new_problem(unsigned seed) {
    Problem* p = take(sizeof(Problem));
    memset(p, 0, sizeof *p);
    for (int i = 0; i < TOKENS * CHANNELS; ++i) p->mixed[i] = noise(&seed);
    for (int i = 0; i < TOKENS * H; ++i) p->g[i] = -0.1F - 0.1F * noise(&seed);
    for (int i = 0; i < 3 * H * K * V; ++i) p->initial[i] = noise(&seed);
    const int64_t offsets[4] = {0, 70, 70, TOKENS}, qk[3] = {TOKENS, H, K}, v[3] = {TOKENS, H, V}, state[4] = {3, H, K, V},
                  mixed[3] = {CHANNELS, ROW, 1};
    memcpy(p->cu_seqlens, offsets, sizeof offsets), memcpy(p->shape_qk, qk, sizeof qk), memcpy(p->shape_v, v, sizeof v);
    memcpy(p->shape_o, v, sizeof v), memcpy(p->shape_state, state, sizeof state), memcpy(p->stride_mixed, mixed, sizeof mixed);
    p->shape_g[0] = TOKENS, p->shape_g[1] = H, p->shape_cu[0] = 4;
    p->scale = 0.5;
    const forge_tensor tensors[7] = {{p->mixed, p->shape_qk, p->stride_mixed, 3, FORGE_F32},
                                     {p->mixed + K, p->shape_qk, p->stride_mixed, 3, FORGE_F32},
                                     {p->mixed + 2 * K, p->shape_v, p->stride_mixed, 3, FORGE_F32},
                                     {p->g, p->shape_g, NULL, 2, FORGE_F32},
                                     {p->o, p->shape_o, NULL, 3, FORGE_F32},
                                     {p->initial, p->shape_state, NULL, 4, FORGE_F32},
                                     {p->final, p->shape_state, NULL, 4, FORGE_F32}};
    memcpy(p->tensors, tensors, sizeof tensors);
    const forge_tensor cu = {p->cu_seqlens, p->shape_cu, NULL, 1, FORGE_I64};
    p->cu = cu;
    p->args.struct_size = sizeof(forge_args);
    p->args.tensors = p->tensors, p->args.tensor_count = 7;
    p->args.scalars = &p->scale, p->args.scalar_count = 1;
    p->args.cu_seqlens = &p->cu;
    return p;
}

static void give_workspace(Problem* p, const forge_attention* attention) {
    const forge_bounds bounds = {sizeof(forge_bounds), 3, TOKENS, H, 1};
    size_t bytes = 0, alignment = 0;
    EXPECT(forge_workspace_bytes(attention, &bounds, &bytes, &alignment) == FORGE_OK);
    EXPECT(alignment == 64);
    p->args.workspace = take(bytes);
    p->args.workspace_bytes = bytes;
}

static void end_problem(Problem* p) {
    free(p->args.workspace);
    free(p);
}

/* The largest error of outputs and final states over the largest value. */
static double worst_error(const Problem* p) {
    double worst = 0, largest = 0;
    for (int n = 0; n < 3; ++n)
        for (int h = 0; h < H; ++h) {
            double s[K][V];
            for (int i = 0; i < K * V; ++i) s[i / V][i % V] = p->initial[(n * H + h) * K * V + i];
            for (int64_t t = p->cu_seqlens[n]; t < p->cu_seqlens[n + 1]; ++t) {
                const float *q = p->mixed + t * CHANNELS + h * ROW, *k = q + K, *v = k + K;
                for (int j = 0; j < V; ++j) {
                    double o = 0;
                    for (int i = 0; i < K; ++i) {
                        s[i][j] = s[i][j] * exp((double)p->g[t * H + h]) + (double)k[i] * (double)v[j];
                        o += s[i][j] * (double)q[i] * p->scale;
                    }
                    const double error = fabs(o - (double)p->o[(t * H + h) * V + j]);
                    if (!(error <= worst)) worst = error; /* NaN too */
                    if (fabs(o) > largest) largest = fabs(o);
                }
            }
            for (int i = 0; i < K * V; ++i) {
                const double error = fabs(s[i / V][i % V] - (double)p->final[(n * H + h) * K * V + i]);
                if (!(error <= worst)) worst = error;
            }
        }
    return worst / largest;
}

static void forget_results(Problem* p) {
    for (int i = 0; i < TOKENS * H * V; ++i) p->o[i] = NAN;
    for (int i = 0; i < 3 * H * K * V; ++i) p->final[i] = NAN;
}

static void expect_right(Problem* p, const forge_attention* attention) {
    forget_results(p);
    EXPECT(forge_launch(attention, &p->args) == FORGE_OK);
    EXPECT(worst_error(p) < 1e-5);
}

/* ------------------------------------------------------------------------------------------------------------ tests */

static forge_attention* compile(const char* strategy) {
    const char* text = NULL;
    EXPECT(forge_variant_definition("scalar_gla", &text) == FORGE_OK);
    const forge_option options[] = {{"dtype", "f32"}, {"size.K", "20"}, {"size.V", "12"}, {"strategy", strategy},
                                    {"chunk", "16"},  {"threads", "2"}, {"segments", "2"}};
    forge_attention* attention = NULL;
    EXPECT(forge_compile(text, NULL, options, 7 - (strcmp(strategy, "segmented") != 0), &attention) == FORGE_OK);
    if (!attention) exit(1);
    return attention;
}

static void test_slots(const forge_attention* attention);

static void test_results(void) {
    const char* strategies[] = {"one-pass", "fused", "decoupled", "segmented"};
    for (int i = 0; i < 4; ++i) {
        forge_attention* attention = compile(strategies[i]);
        Problem* p = new_problem(7);
        give_workspace(p, attention);
        expect_right(p, attention);
        end_problem(p);
        test_slots(attention);
        forge_destroy(attention);
    }
}

static void test_description(const forge_attention* attention) {
    const char* json = forge_describe(attention);
    EXPECT(strstr(json, "\"name\":\"scalar_gla\"") && strstr(json, "\"strategy\":\"one-pass\"") && strstr(json, "\"scalars\":[\"scale\"]"));
    EXPECT(strstr(json, "{\"name\":\"g\",\"kind\":\"input\",\"dtype\":\"f32\",\"shape\":[\"T\",\"HV\"]}"));
    EXPECT(strstr(json, "{\"name\":\"s\",\"kind\":\"final_state\",\"dtype\":\"f32\",\"shape\":[\"N\",\"heads\",\"K\",\"V\"]}"));
    char* resources = NULL;
    EXPECT(forge_resources(attention, &resources) == FORGE_OK && strcmp(resources, "[]") == 0);
    forge_free(resources);
    const char* explanation = forge_explain(attention);
    EXPECT(explanation && strstr(explanation, "state-bound"));
    const char *name = NULL, *text = NULL;
    EXPECT(forge_source(attention, 0, &name, &text) == FORGE_OK && strcmp(name, "scalar_gla.cpp") == 0 && strstr(text, "#include"));
    EXPECT(forge_source(attention, 1, &name, &text) == FORGE_OK && text == NULL);
}

static void test_workspace(const forge_attention* attention) {
    size_t last = 0;
    for (int64_t tokens = 0; tokens <= 4096; tokens += 128) {
        const forge_bounds bounds = {sizeof(forge_bounds), 3, tokens, H, 1};
        size_t bytes = 0, alignment = 0;
        EXPECT(forge_workspace_bytes(attention, &bounds, &bytes, &alignment) == FORGE_OK);
        EXPECT(bytes >= last);
        last = bytes;
    }
    const int64_t extremes[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX / 2, (int64_t)1 << 50};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; ++i)
        for (int which = 0; which < 3; ++which) {
            const int64_t n = extremes[i];
            const forge_bounds bounds = {sizeof(forge_bounds), which == 0 ? n : 3, which == 1 ? n : 4096, which == 2 ? n : H, 0};
            size_t bytes = 0, alignment = 0;
            const forge_status status = forge_workspace_bytes(attention, &bounds, &bytes, &alignment);
            EXPECT(status == FORGE_RUNTIME_ERROR || (status == FORGE_OK && n > 0 && bytes >= last));
        }
    Problem* p = new_problem(1);
    give_workspace(p, attention);
    p->args.workspace_bytes = 64;
    EXPECT(forge_launch(attention, &p->args) == FORGE_RUNTIME_ERROR);
    EXPECT(strstr(forge_error(), "workspace") != NULL);
    end_problem(p);
}

static void test_compositions(void) {
    char *parts = NULL, *text = NULL;
    EXPECT(forge_composition_parts(&parts) == FORGE_OK && strstr(parts, "\"zero-order-hold\"") != NULL);
    forge_free(parts);
    const forge_option delta[] = {{"decay", "vector"}, {"update", "delta"}, {"name", "mine"}}, none[] = {{"decay", NULL}},
                       apart[] = {{"decay", "value"}, {"update", "delta"}};
    EXPECT(forge_compose(delta, 3, &text) == FORGE_OK && strstr(text, "linear_attention @mine {") == text);
    EXPECT(forge_verify(text, NULL, NULL, 0) == FORGE_OK);
    forge_free(text);
    EXPECT(forge_compose(NULL, 0, &text) == FORGE_OK && strstr(text, "@composed ") != NULL);
    forge_free(text);
    EXPECT(forge_compose(apart, 2, &text) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "columns that decay apart"));
    EXPECT(forge_compose(none, 1, &text) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "choices: value"));
    EXPECT(forge_compose(NULL, 1, &text) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "choices"));
    EXPECT(forge_compose(NULL, 0, NULL) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "definition"));
}

static void test_errors(const forge_attention* attention) {
    const char* text = NULL;
    EXPECT(forge_variant_definition("no_such", &text) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "no_such"));
    EXPECT(forge_variant_definition("scalar_gla", &text) == FORGE_OK);
    forge_attention* other = NULL;
    const forge_option unknown[] = {{"chunks", "16"}}, letters[] = {{"chunk", "many"}},
                       device[] = {{"device", "tpu"}, {"size.K", "4"}, {"size.V", "4"}},
                       wide[] = {{"threads", "4294967297"}}, wider[] = {{"size.K", "18446744073709551616"}};
    EXPECT(forge_compile(text, NULL, wide, 1, &other) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "'threads': 4294967297 is beyond"));
    EXPECT(forge_compile(text, NULL, wider, 1, &other) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "64 bits"));
    EXPECT(forge_compile(text, NULL, unknown, 1, &other) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "'chunks'"));
    EXPECT(forge_compile(text, NULL, letters, 1, &other) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "'many'"));
    EXPECT(forge_compile(text, NULL, NULL, 0, &other) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "sizes"));
    EXPECT(forge_compile(text, NULL, device, 3, &other) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "tpu"));
    EXPECT(forge_compile("linear_attention @x {", "mine.ir", NULL, 0, &other) == FORGE_COMPILE_ERROR && strstr(forge_error(), "mine.ir:1:"));
    EXPECT(forge_compile(NULL, NULL, NULL, 0, &other) == FORGE_INVALID_ARGUMENT);
    EXPECT(other == NULL);

    Problem* p = new_problem(1);
    give_workspace(p, attention);
    p->tensors[3].rank = 0;
    EXPECT(forge_launch(attention, &p->args) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "'g'"));
    p->tensors[3].rank = 2;
    p->tensors[2].dtype = FORGE_BF16;
    EXPECT(forge_launch(attention, &p->args) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "'v': expected element type f32, got bf16"));
    p->tensors[2].dtype = 77;
    EXPECT(forge_launch(attention, &p->args) == FORGE_INVALID_ARGUMENT);
    p->tensors[2].dtype = FORGE_F32;
    p->shape_qk[0] = TOKENS - 1;
    EXPECT(forge_launch(attention, &p->args) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "tokens"));
    p->shape_qk[0] = TOKENS;
    p->args.tensor_count = 6;
    EXPECT(forge_launch(attention, &p->args) == FORGE_INVALID_ARGUMENT);
    p->args.tensor_count = 7;
    p->cu.data = NULL;
    EXPECT(forge_launch(attention, &p->args) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "'cu_seqlens': expected a pointer, got null"));
    p->cu.data = p->cu_seqlens;
    p->shape_cu[0] = INT64_MIN;
    EXPECT(forge_launch(attention, &p->args) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "'cu_seqlens'"));
    p->shape_cu[0] = 4;
    p->shape_g[0] = INT64_MAX, p->shape_g[1] = INT64_MAX;
    EXPECT(forge_launch(attention, &p->args) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "'g': expected fewer than 2^63 bytes"));
    p->shape_g[0] = TOKENS, p->shape_g[1] = H;
    p->tensors[3].rank = -1;
    EXPECT(forge_launch(attention, &p->args) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "'g': expected a rank of 0 to 8, got -1"));
    p->tensors[3].rank = 2;
    p->tensors[3].shape = NULL;
    EXPECT(forge_launch(attention, &p->args) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "g: expected a pointer"));
    p->tensors[3].shape = p->shape_g;
    p->args.workspace = (char*)p->args.workspace + 4;
    EXPECT(forge_launch(attention, &p->args) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "multiple of 64"));
    p->args.workspace = (char*)p->args.workspace - 4;
    EXPECT(forge_launch(NULL, &p->args) == FORGE_INVALID_ARGUMENT && forge_launch(attention, NULL) == FORGE_INVALID_ARGUMENT);
    expect_right(p, attention);
    end_problem(p);
}

/* What is wrong whatever the sizes and the machine are, without compiling. */
static void test_verify(void) {
    const char* text = NULL;
    EXPECT(forge_variant_definition("gla", &text) == FORGE_OK);
    const forge_option right[] = {{"strategy", "fused"}, {"size.K", "64"}};
    EXPECT(forge_verify(text, NULL, right, 2) == FORGE_OK && forge_verify(text, NULL, NULL, 0) == FORGE_OK);
    const struct {
        forge_option option;
        forge_status status;
        const char* message;
    } wrong[] = {
        {{"strateg", "fused"}, FORGE_INVALID_ARGUMENT, "option 'strateg': expected one of"},
        {{"strategy", "fsed"}, FORGE_RUNTIME_ERROR, "strategy: expected one of"},
        {{"threads", "-1"}, FORGE_RUNTIME_ERROR, "threads: expected 0 to 65536, got -1"},
        {{"expected_heads", "-9223372036854775808"}, FORGE_RUNTIME_ERROR, "expected_heads: expected 0 to"},
        {{"size.Z", "64"}, FORGE_RUNTIME_ERROR, "there is no size 'Z'; expected K, V"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
        forge_attention* attention = NULL;
        const forge_option with_sizes[] = {wrong[i].option, {"size.K", "64"}, {"size.V", "64"}};
        EXPECT(forge_verify(text, NULL, &wrong[i].option, 1) == wrong[i].status && strstr(forge_error(), wrong[i].message));
        EXPECT(forge_compile(text, NULL, with_sizes, 3, &attention) == wrong[i].status && strstr(forge_error(), wrong[i].message));
    }
    EXPECT(forge_verify("linear_attention @x {", "mine", NULL, 0) == FORGE_COMPILE_ERROR && strstr(forge_error(), "mine:1:"));
    EXPECT(forge_verify(NULL, NULL, NULL, 0) == FORGE_INVALID_ARGUMENT && forge_verify(text, NULL, NULL, 1) == FORGE_INVALID_ARGUMENT);
}

/* A program compiled against a later header: its struct is larger. One compiled against an earlier: smaller. */
static void test_versions(const forge_attention* attention) {
    EXPECT(forge_abi_version() == FORGE_ABI_VERSION);
    EXPECT(strlen(forge_build()) > 0 && strcmp(forge_status_string(FORGE_COMPILE_ERROR), "FORGE_COMPILE_ERROR") == 0);
    struct {
        forge_args args;
        void* later;
    } larger;
    Problem* p = new_problem(2);
    give_workspace(p, attention);
    larger.args = p->args, larger.later = NULL;
    larger.args.struct_size = sizeof larger;
    forget_results(p);
    EXPECT(forge_launch(attention, &larger.args) == FORGE_OK && worst_error(p) < 1e-5);
    larger.later = p;
    EXPECT(forge_launch(attention, &larger.args) == FORGE_INVALID_ARGUMENT);
    p->args.struct_size = offsetof(forge_args, parallel_for);
    expect_right(p, attention);
    p->args.struct_size = SIZE_MAX;
    EXPECT(forge_launch(attention, &p->args) == FORGE_INVALID_ARGUMENT && strstr(forge_error(), "struct_size"));
    p->args.struct_size = 0;
    EXPECT(forge_launch(attention, &p->args) == FORGE_INVALID_ARGUMENT);
    end_problem(p);
}

static void count_and_run(void* context, int64_t tasks, int32_t workers, void (*body)(void*, int64_t, int32_t), void* data) {
    *(int64_t*)context += tasks;
    for (int64_t t = tasks; t-- > 0;) body(data, t, (int32_t)(t % workers));
}

static void test_own_threads(const forge_attention* attention) {
    int64_t tasks = 0;
    Problem* p = new_problem(3);
    give_workspace(p, attention);
    p->args.parallel_for = count_and_run, p->args.parallel_context = &tasks;
    expect_right(p, attention);
    EXPECT(tasks >= 3 * H);
    end_problem(p);
}

static void test_without_states(const forge_attention* attention) {
    Problem* p = new_problem(4);
    give_workspace(p, attention);
    memset(p->initial, 0, sizeof p->initial);
    expect_right(p, attention);
    float* with_states = take(sizeof p->o);
    memcpy(with_states, p->o, sizeof p->o);
    p->tensors[5].rank = p->tensors[6].rank = 0;
    forget_results(p);
    EXPECT(forge_launch(attention, &p->args) == FORGE_OK);
    EXPECT(memcmp(with_states, p->o, sizeof p->o) == 0);
    free(with_states);
    end_problem(p);
}

/* A pool of states as serving engines have it: slots in any order, used in place, a padded sequence, one that starts anew. */
static void test_slots(const forge_attention* attention) {
    enum { SLOTS = 6, STATE = H * K * V };
    Problem* p = new_problem(9);
    give_workspace(p, attention);
    const int64_t offsets[4] = {0, 70, 100, TOKENS};
    memcpy(p->cu_seqlens, offsets, sizeof offsets);
    memset(p->initial + 2 * STATE, 0, STATE * sizeof(float)); /* the last sequence starts anew */
    expect_right(p, attention);
    float *wanted = take(sizeof p->o), *pool = take(SLOTS * STATE * sizeof(float)), *before = take(SLOTS * STATE * sizeof(float));
    memcpy(wanted, p->o, sizeof p->o);
    for (int i = 0; i < SLOTS * STATE; ++i) pool[i] = 7.0F;
    const int32_t slots[3] = {4, -1, 1};
    const int64_t wide[3] = {4, -1, 1};
    const unsigned char has[3] = {1, 1, 0};
    memcpy(pool + 4 * STATE, p->initial, STATE * sizeof(float));
    memcpy(before, pool, SLOTS * STATE * sizeof(float));
    p->shape_state[0] = SLOTS;
    p->tensors[5].data = p->tensors[6].data = pool;
    p->args.has_initial_state = has;
    for (int round = 0; round < 2; ++round) {
        memcpy(pool, before, SLOTS * STATE * sizeof(float));
        p->args.wide_slots = round;
        p->args.initial_slots = p->args.final_slots = round ? (const void*)wide : (const void*)slots;
        for (int i = 0; i < TOKENS * H * V; ++i) p->o[i] = NAN;
        EXPECT(forge_launch(attention, &p->args) == FORGE_OK);
        for (int i = 0; i < TOKENS * H * V; ++i) EXPECT(p->o[i] == (i >= 70 * H * V && i < 100 * H * V ? 0.0F : wanted[i]));
        EXPECT(memcmp(pool + 4 * STATE, p->final, STATE * sizeof(float)) == 0);
        EXPECT(memcmp(pool + 1 * STATE, p->final + 2 * STATE, STATE * sizeof(float)) == 0);
        for (int slot = 0; slot < SLOTS; ++slot)
            if (slot != 4 && slot != 1) EXPECT(memcmp(pool + slot * STATE, before + slot * STATE, STATE * sizeof(float)) == 0);
    }
    const int32_t beyond[3] = {4, 0, SLOTS};
    p->args.wide_slots = 0, p->args.final_slots = beyond;
    EXPECT(forge_launch(attention, &p->args) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "'final_slots': expected slots below 6"));
    free(wanted), free(pool), free(before);
    end_problem(p);
}

static void test_nothing_to_do(const forge_attention* attention) {
    Problem* p = new_problem(5);
    give_workspace(p, attention);
    p->shape_qk[0] = p->shape_v[0] = p->shape_g[0] = p->shape_o[0] = 0;
    memset(p->cu_seqlens, 0, sizeof p->cu_seqlens);
    forget_results(p);
    EXPECT(forge_launch(attention, &p->args) == FORGE_OK);
    EXPECT(memcmp(p->initial, p->final, sizeof p->final) == 0); /* states of empty sequences pass through */
    p->shape_cu[0] = 1, p->shape_state[0] = 0;
    EXPECT(forge_launch(attention, &p->args) == FORGE_OK);
    end_problem(p);
}

static void* launch_many(void* attention) {
    Problem* p = new_problem(6);
    give_workspace(p, attention);
    for (int i = 0; i < 20; ++i) expect_right(p, attention);
    end_problem(p);
    return NULL;
}

static void test_threads(forge_attention* attention) {
    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, launch_many, attention);
    for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
}

/* Two ranks, which are threads here: the launcher's all-gather is a barrier and an array that both see. */
typedef struct Rank {
    int32_t rank;
    const forge_attention* attention;
    Problem* problem; /* of all tokens, and for all results */
} Rank;
static pthread_barrier_t meeting;
static unsigned char gathered[2][4096];

static int32_t allgather(void* context, const void* in, void* out, size_t bytes) {
    if (bytes > sizeof gathered[0]) return 1;
    memcpy(gathered[((Rank*)context)->rank], in, bytes);
    pthread_barrier_wait(&meeting);
    for (size_t r = 0; r < 2; ++r) memcpy((unsigned char*)out + r * bytes, gathered[r], bytes);
    pthread_barrier_wait(&meeting);
    return 0;
}

/* The third sequence goes on on the second rank, after ten of its tokens. */
static void* be_a_rank(void* context) {
    enum { BORDER = 80 };
    Rank* self = context;
    Problem p = *self->problem;
    const int64_t first = self->rank ? BORDER : 0, tokens = self->rank ? TOKENS - BORDER : BORDER, sequences = self->rank ? 1 : 3;
    const int64_t offsets[4] = {0, self->rank ? tokens : 70, 70, BORDER};
    memcpy(p.cu_seqlens, offsets, sizeof offsets);
    p.shape_qk[0] = p.shape_v[0] = p.shape_g[0] = p.shape_o[0] = tokens, p.shape_state[0] = sequences, p.shape_cu[0] = sequences + 1;
    const size_t mixed = (size_t)first * CHANNELS, row = self->rank ? (size_t)2 * H * K * V : 0;
    const forge_tensor tensors[7] = {{self->problem->mixed + mixed, p.shape_qk, p.stride_mixed, 3, FORGE_F32},
                                     {self->problem->mixed + mixed + K, p.shape_qk, p.stride_mixed, 3, FORGE_F32},
                                     {self->problem->mixed + mixed + 2 * K, p.shape_v, p.stride_mixed, 3, FORGE_F32},
                                     {self->problem->g + first * H, p.shape_g, NULL, 2, FORGE_F32},
                                     {self->problem->o + first * H * V, p.shape_o, NULL, 3, FORGE_F32},
                                     {self->problem->initial + row, p.shape_state, NULL, 4, FORGE_F32},
                                     {p.final, p.shape_state, NULL, 4, FORGE_F32}};
    const forge_tensor cu = {p.cu_seqlens, p.shape_cu, NULL, 1, FORGE_I64};
    p.args.tensors = tensors, p.args.cu_seqlens = &cu, p.args.workspace = NULL, p.args.workspace_bytes = 0;
    const forge_option options[] = {{"timeout_ms", "20000"}, {"scheme", "direct"}};
    forge_group* group = NULL;
    EXPECT(forge_group_create(self->rank, 2, allgather, self, options, 2, &group) == FORGE_OK);
    EXPECT(forge_group_rank(group) == self->rank && forge_group_size(group) == 2);
    give_workspace(&p, self->attention);
    EXPECT(forge_launch_ranks(self->attention, &p.args, group, self->rank == 1, self->rank == 0) == FORGE_OK);
    /* The last sequence ends on the second rank. */
    memcpy(self->problem->final + row, p.final, (size_t)(self->rank ? 1 : 2) * H * K * V * sizeof(float));
    EXPECT(strstr(forge_group_describe(group), "latest exchange: direct") != NULL);
    EXPECT(forge_group_check(group) == FORGE_OK);
    pthread_barrier_wait(&meeting);
    if (self->rank == 0) EXPECT(forge_group_abort(group) == FORGE_OK);
    pthread_barrier_wait(&meeting);
    EXPECT(forge_launch_ranks(self->attention, &p.args, group, self->rank == 1, self->rank == 0) == FORGE_GROUP_ABORTED);
    EXPECT(strstr(forge_error(), "rank 0 gave up") != NULL);
    free(p.args.workspace);
    forge_group_destroy(group);
    return NULL;
}

static void test_ranks(const forge_attention* attention) {
    Problem* p = new_problem(9);
    forget_results(p);
    Rank ranks[2] = {{0, attention, p}, {1, attention, p}};
    pthread_t threads[2];
    pthread_barrier_init(&meeting, NULL, 2);
    for (int r = 0; r < 2; ++r) pthread_create(&threads[r], NULL, be_a_rank, &ranks[r]);
    for (int r = 0; r < 2; ++r) pthread_join(threads[r], NULL);
    EXPECT(worst_error(p) < 1e-5);
    end_problem(p);
    forge_group* group = NULL;
    const forge_option unknown = {"colour", "red"};
    EXPECT(forge_group_create(0, 1, NULL, NULL, &unknown, 1, &group) == FORGE_INVALID_ARGUMENT);
    EXPECT(strstr(forge_error(), "option 'colour': expected one of scheme") != NULL);
    EXPECT(forge_group_create(0, 2, NULL, NULL, NULL, 0, &group) == FORGE_RUNTIME_ERROR);
    EXPECT(forge_group_create(0, 1, NULL, NULL, NULL, 0, &group) == FORGE_OK);
    EXPECT(forge_launch_ranks(attention, NULL, group, 0, 0) == FORGE_INVALID_ARGUMENT);
    forge_group_destroy(group);
    forge_group_destroy(NULL);
    const int64_t cu_seqlens[] = {0, 700, 1024};
    char* json = NULL;
    EXPECT(forge_partition(cu_seqlens, 3, 2, 4, NULL, &json) == FORGE_OK);
    EXPECT(json && strstr(json, "\"cu_seqlens\": [0, 188, 256]") != NULL);
    forge_free(json);
    EXPECT(forge_explain_ranks(attention, 4, 8, NULL, &json) == FORGE_OK);
    EXPECT(json && strstr(json, "ring") != NULL);
    forge_free(json);
}

static DLTensor as_dlpack(forge_tensor* t) {
    DLTensor d;
    memset(&d, 0, sizeof d);
    d.data = t->data, d.ndim = t->rank, d.shape = (int64_t*)t->shape, d.strides = (int64_t*)t->strides;
    d.device.device_type = kDLCPU;
    d.dtype.code = t->dtype == FORGE_I64 ? kDLInt : kDLFloat;
    d.dtype.bits = t->dtype == FORGE_I64 ? 64 : 32;
    d.dtype.lanes = 1;
    return d;
}

static void test_dlpack(const forge_attention* attention) {
    Problem* p = new_problem(8);
    give_workspace(p, attention);
    DLTensor storage[7], cu = as_dlpack(&p->cu);
    const DLTensor* tensors[7];
    for (int i = 0; i < 7; ++i) storage[i] = as_dlpack(&p->tensors[i]), tensors[i] = &storage[i];
    storage[1].data = p->mixed, storage[1].byte_offset = K * sizeof(float);
    p->args.tensors = NULL, p->args.cu_seqlens = NULL;
    forget_results(p);
    EXPECT(forge_launch_dlpack(attention, &p->args, tensors, &cu) == FORGE_OK && worst_error(p) < 1e-5);
    storage[2].device.device_type = kDLCUDA;
    EXPECT(forge_launch_dlpack(attention, &p->args, tensors, &cu) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "'v': expected a tensor on cpu"));
    end_problem(p);
}

static void test_definitions(void) {
    size_t count = 0;
    while (forge_variant_name(count)) EXPECT(forge_variant_summary(count++) != NULL);
    EXPECT(count >= 13);
    char type[64];
    EXPECT(forge_infer("matmul(bf16[C, K], bf16[C, K]) {trans_b=true}", type, sizeof type) == FORGE_OK && strcmp(type, "bf16[C, C]") == 0);
    EXPECT(forge_infer("matmul(bf16[C, K], bf16[C, K])", type, sizeof type) == FORGE_COMPILE_ERROR && strstr(forge_error(), "inner sizes differ"));
    EXPECT(forge_infer("exp(f32[C])", type, 3) == FORGE_INVALID_ARGUMENT);
    const char* text = NULL;
    char *once = NULL, *twice = NULL, *program = NULL;
    EXPECT(forge_variant_definition("gated_delta_net", &text) == FORGE_OK);
    EXPECT(forge_lower(text, "bf16", "definition", &once) == FORGE_OK && forge_lower(once, "bf16", "definition", &twice) == FORGE_OK);
    EXPECT(strcmp(once, twice) == 0);
    EXPECT(forge_lower(text, "bf16", "optimized", &program) == FORGE_OK && strstr(program, "matmul_sub"));
    forge_free(once), forge_free(twice), forge_free(program);
}

/* A GPU that is not there: explained, emitted, compiled where there is a compiler, and not launched. */
static void test_facts(void) {
    const char* text = NULL;
    EXPECT(forge_variant_definition("scalar_gla", &text) == FORGE_OK);
    const forge_option options[] = {{"device", "cuda"}, {"on", "h200"}, {"dtype", "f32"}, {"size.K", "20"}, {"size.V", "12"}, {"chunk", "32"}},
                       without_device[] = {{"on", "h200"}, {"size.K", "4"}, {"size.V", "4"}},
                       unknown[] = {{"device", "cuda"}, {"on", "h300"}, {"size.K", "4"}, {"size.V", "4"}};
    forge_attention* attention = NULL;
    EXPECT(forge_compile(text, NULL, without_device, 3, &attention) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "device = cuda"));
    EXPECT(forge_compile(text, NULL, unknown, 4, &attention) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "a100, b200, h200, rtx4090, rtx5090"));
    EXPECT(forge_compile(text, NULL, options, 6, &attention) == FORGE_OK);
    EXPECT(strstr(forge_describe(attention), "\"on\":\"h200\"") && strstr(forge_describe(attention), "\"arch\":\"sm_90a\""));
    EXPECT(strstr(forge_explain(attention), "NVIDIA H200: compute capability 9.0") != NULL);
    char* cost = NULL;
    EXPECT(forge_cost(attention, "json", &cost) == FORGE_OK && strstr(cost, "\"device\": \"NVIDIA H200\"") != NULL);
    forge_free(cost);
    EXPECT(forge_cost(attention, "xml", &cost) == FORGE_RUNTIME_ERROR);
    EXPECT(strstr(forge_error(), "form: expected json, text or html, got 'xml'") != NULL);
    EXPECT(strstr(forge_describe(attention), "\"engine\":\"portable\"") != NULL);
    EXPECT(strstr(forge_describe(attention), "{\"engine\":\"warp-groups\",\"reason\":\"OtherChunk\",\"why\":\"chunks of 32 tokens were asked for, they have 64\"") != NULL);
    EXPECT(strstr(forge_explain(attention), "not warp-groups: chunks of 32 tokens were asked for, they have 64; way out: ") != NULL);
    const char* name = NULL;
    EXPECT(forge_source(attention, 0, &name, &text) == FORGE_OK && strstr(text, "__grid_constant__ Call"));
    char* json = NULL;
    if (forge_resources(attention, &json) == FORGE_OK) {
        EXPECT(strstr(json, "[{\"kernel\":\"forge_scalar_gla_") && strstr(json, "\"registers\":"));
        forge_free(json);
    } else {
        EXPECT(strstr(forge_error(), "no CUDA compiler"));
    }
    Problem* p = new_problem(1);
    EXPECT(forge_launch(attention, &p->args) == FORGE_RUNTIME_ERROR && strstr(forge_error(), "NVIDIA H200, which is not there"));
    end_problem(p);
    forge_destroy(attention);
}

static void test_check(const forge_attention* attention) {
    char* report = NULL;
    EXPECT(forge_check(attention, &report) == FORGE_OK);
    EXPECT(report && strncmp(report, "{\"ok\":true,\"against_step\":true,", 31) == 0 && strstr(report, "in two calls"));
    forge_free(report);
}

int main(void) {
    test_definitions();
    test_results();
    forge_attention* attention = compile("one-pass");
    test_description(attention);
    test_workspace(attention);
    test_errors(attention);
    test_compositions();
    test_verify();
    test_versions(attention);
    test_own_threads(attention);
    test_without_states(attention);
    test_nothing_to_do(attention);
    test_threads(attention);
    test_ranks(attention);
    test_dlpack(attention);
    test_check(attention);
    test_facts();
    forge_destroy(attention);
    forge_destroy(NULL);
    if (failures == 0) puts("the C ABI: ok");
    return failures != 0;
}
