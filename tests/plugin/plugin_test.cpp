/// An operation from outside: a row of the op table (ops.def beside this), a device function for the CPU, and one for
/// GPUs (device/, appended to the library's headers of the same names), and nothing else. It is then in the language,
/// the text form and the interpreter, is priced and emitted for every engine, and runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "build/cuda_binary.h"
#include "check/check.h"
#include "forge/forge.h"
#include "ir/text.h"
#include "support/embedded.h"
#include "support/environment.h"

namespace forge::tests {
namespace {

const Dim T("T"), H("H"), K("K"), V("V"), D("D");

/// S = S + softsign(k) vᵀ, o = softsign(q S).
LinearAttention matrices() {
    LinearAttention a("squashed_sums");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}).state("s", F32, {K, V});
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(transpose(softsign(k)), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor s, Tensor chunk) { return s + chunk; });
    a.merge({"q", "k", "v", "chunk_state"}, [](Tensor q, Tensor k, Tensor v, Tensor before) {
        Tensor within = matmul_out_fp32(tril(matmul(q, transpose(softsign(k)))), v);
        return softsign(within + matmul_out_fp32(q, before.to(q.dtype())));
    });
    a.step({"q", "k", "v", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor s) -> Results {
        Tensor next = s + outer(softsign(k), v);
        return {{"s", next}, {"o", softsign(matmul(q, next))}};
    });
    return a;
}

/// h = e^g h + softsign(x), o = h: what has channels.
LinearAttention vectors() {
    LinearAttention a("squashed_steps");
    a.input("x", BF16, {T, H, D}).input("g", F32, {T, H, D}, kLogDecays).state("h", F32, {D});
    a.chunk({"x", "g"},
            [](Tensor x, Tensor g) { return sum(softsign(x) * exp(unsqueeze(sum(g, 0), 0) - cumsum(g, 0)), 0); });
    a.decay({"prev_h", "chunk_state", "g"},
            [](Tensor h, Tensor chunk, Tensor g) { return h * exp(sum(g, 0)) + chunk; });
    a.merge({"x", "g", "chunk_state"}, [](Tensor x, Tensor g, Tensor before) {
        Tensor decay = exp(g);
        return linear_scan(decay, softsign(x)) + cumprod(decay, 0) * unsqueeze(before, 0);
    });
    a.step({"x", "g", "prev_h"}, [](Tensor x, Tensor g, Tensor h) -> Results {
        Tensor next = h * exp(g) + softsign(x);
        return {{"h", next}, {"o", next}};
    });
    return a;
}

CompileOptions on_h200(const std::string& engine) {
    CompileOptions options;
    options.device = "cuda", options.on = "h200", options.tuned = false, options.engine = engine;
    options.sizes = {{"K", 64}, {"V", 64}, {"D", 64}};
    return options;
}

TEST(PluginOp, IsInTheLanguageAndTheTextForm) {
    const std::string text = ir::print(matrices().define());
    EXPECT_NE(text.find("softsign(%"), std::string::npos) << text;
    EXPECT_EQ(ir::print(ir::parse_definition(text)), text);
}

TEST(PluginOp, HasTheTraitsOfItsRow) {
    const ir::Opcode code = *ir::opcode_named("softsign");
    EXPECT_TRUE(ir::is_elementwise(code));
    EXPECT_EQ(ir::linear(code), ir::Linear::Opaque);
    EXPECT_EQ(ir::cost(code).exponentials, 1);
    EXPECT_EQ(static_cast<std::size_t>(code) + 1, ir::all_opcodes().size()) << "the others keep their numbers";
}

TEST(PluginOp, RunsOnTheCpuAsTheInterpreterSays) {
    for (const LinearAttention& made : {matrices(), vectors()})
        for (const char* entry : {"forward", "decode"}) {
            const ir::Definition def = made.define();
            const check::Problem problem{.T = 150, .sizes = {{"K", 24}, {"V", 40}, {"D", 40}}, .dtype = F32};
            CompileOptions options;
            options.dtype = F32, options.sizes = problem.sizes, options.entry = entry;
            const check::Report report = check::check(compile(def, options), def, problem);
            EXPECT_TRUE(report.admitted);
            EXPECT_TRUE(report.ok) << def.name << " " << entry << ": " << report.worst();
        }
}

TEST(PluginOp, IsEmittedForEveryEngineOfAGpu) {
    const auto expect_engine = [](const LinearAttention& made, const std::string& asked, const std::string& engine) {
        const Attention attention = compile(made, on_h200(asked));
        EXPECT_EQ(attention.engine(), engine);
        EXPECT_NE(attention.sources()[0].text.find("softsign("), std::string::npos) << engine;
        if (!build::has_cuda_compiler(build::CudaCompiler::Any)) return;
        for (const KernelResources& kernel : attention.resources()) EXPECT_EQ(kernel.spill_bytes, 0) << kernel.kernel;
    };
    expect_engine(matrices(), "warp-groups", "warp-groups");
    expect_engine(matrices(), "portable", "portable");
    expect_engine(vectors(), "auto", "channels");
}

}  // namespace
}  // namespace forge::tests
