// Forge for bench/peers/torch_eager.py: compile a variant of the zoo, run it on the caller's float32 arrays, report
// times. Plain C functions, so that the comparison runs in one process with PyTorch and needs no binding library.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "forge/forge.h"
#include "variants/variants.h"

namespace {

struct Peer {
    forge::Attention attention;
    std::int64_t tokens, heads, keys, values;
};

}  // namespace

extern "C" void* peer_compile(const char* variant, std::int64_t tokens, std::int64_t heads, std::int64_t keys,
                              std::int64_t values, int threads) {
    try {
        forge::CompileOptions options;
        options.dtype = forge::F32;
        options.sizes = {{"K", keys}, {"V", values}};
        options.threads = threads;
        options.expected_tokens = tokens;
        options.expected_heads = heads;
        return new Peer{forge::compile(forge::variants::find(variant)->make(), options), tokens, heads, keys, values};
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return nullptr;
    }
}

/// One call on [T, H, …] float32 arrays; `beta` may be null. Returns the seconds that it took, or -1.
extern "C" double peer_run(void* handle, float* q, float* k, float* v, float* g, float* beta, double scale, float* o,
                           float* final_state) {
    try {
        const Peer& p = *static_cast<Peer*>(handle);
        const auto rows = [&](float* data, std::int64_t width) {
            return forge::dense(data, forge::F32, {p.tokens, p.heads, width});
        };
        forge::Call call;
        call.tensors = {{"q", rows(q, p.keys)},
                        {"k", rows(k, p.keys)},
                        {"v", rows(v, p.values)},
                        {"o", rows(o, p.values)},
                        {"g", forge::dense(g, forge::F32, {p.tokens, p.heads})}};
        if (beta) call.tensors["beta"] = forge::dense(beta, forge::F32, {p.tokens, p.heads});
        call.scalars = {{"scale", scale}};
        call.final_states = {{"s", forge::dense(final_state, forge::F32, {1, p.heads, p.keys, p.values})}};
        const auto begin = std::chrono::steady_clock::now();
        p.attention(call);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return -1;
    }
}
