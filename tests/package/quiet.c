/// Opens a package, as an engine would, and counts what its launches ask of the system: memory, files, the environment,
/// threads. Each such function stands in front of the C library's. Exit code 0: nothing at all.
///
///   quiet PACKAGE [cuda]     # of scalar_gla with K = V = 32, f32: forward and decode
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "forge_rt.h"

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

static volatile int counting;
static long allocations, opens, lookups;

void* malloc(size_t bytes) {
    allocations += counting;
    return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
    allocations += counting;
    return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
    allocations += counting;
    return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
    allocations += counting;
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
    allocations += counting;
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : 12;
}
int open(const char* path, int flags, ...) {
    opens += counting;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
}
char* getenv(const char* name) {
    static char* (*next)(const char*);
    lookups += counting;
    if (!next) next = (char* (*)(const char*))dlsym(RTLD_NEXT, "getenv");
    return next(name);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*run)(void*), void* data) {
    static int (*next)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    allocations += counting;
    if (!next)
        next = (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT, "pthread_create");
    return next(thread, how, run, data);
}

enum { B = 3, T = 40, H = 2, K = 32, MOST = B * T * H * K };

static float numbers[MOST], gates[B * T * H], outputs[MOST], states[4][H][K][K];

static int fail(const char* what) {
    fprintf(stderr, "%s: %s\n", what, forge_rt_error());
    return 1;
}

static int run(const forge_rt_package* package, const char* name, int64_t tokens) {
    const int64_t matrix[] = {B, tokens, H, K}, gate[] = {B, tokens, H}, pool[] = {4, H, K, K};
    const forge_tensor m = {numbers, matrix, NULL, 4, FORGE_F32}, g = {gates, gate, NULL, 3, FORGE_F32},
                       o = {outputs, matrix, NULL, 4, FORGE_F32}, s = {states, pool, NULL, 4, FORGE_F32};
    const forge_tensor tensors[] = {m, m, m, g, o, s, s};
    const int32_t slots[B] = {2, -1, 0};
    const double scale = 0.5;
    const forge_rt_entry* entry = NULL;
    forge_args args = {sizeof args, tensors, 7, &scale, 1};
    const forge_bounds bounds = {sizeof bounds, B, tokens, H, 0};
    size_t alignment = 0;
    if (forge_rt_find(package, "scalar_gla", name, &entry) != FORGE_OK) return fail(name);
    if (forge_rt_workspace_bytes(entry, &args, &bounds, &args.workspace_bytes, &alignment) != FORGE_OK)
        return fail("workspace");
    if (posix_memalign(&args.workspace, alignment, args.workspace_bytes + 1) != 0) return 1;
    args.initial_slots = args.final_slots = slots;
    counting = 1;
    for (int i = 0; i < 10; ++i)
        if (forge_rt_launch(entry, &args) != FORGE_OK) return fail("launch");
    counting = 0;
    return 0;
}

int main(int argc, char** argv) {
    const forge_rt_options options = {sizeof options, argc > 2 ? argv[2] : "cpu", 2};
    forge_rt_package* package = NULL;
    for (size_t i = 0; i < MOST; ++i) numbers[i] = 0.01F * (float)(i % 17);
    if (argc < 2 || forge_rt_open(argv[1], &options, &package) != FORGE_OK) return fail("open");
    counting = 1;
    void* volatile memory = malloc(1);  // else the compiler leaves both out
    (void)getenv("HOME"), (void)open("/nowhere", O_RDONLY);
    counting = 0;
    free(memory);
    if (allocations != 1 || lookups != 1 || opens != 1) return fail("the counters do not count");
    if (run(package, "forward", T) != 0 || run(package, "decode", 1) != 0) return 1;
    printf("%ld allocations, %ld files, %ld variables\n", allocations - 1, opens - 1, lookups - 1);
    forge_rt_close(package);
    return allocations == 1 && lookups == 1 && opens == 1 ? 0 : 1;
}
