/// How accurate kernels for warp groups are where channels decay on their own: their errors beside those of float64
/// arithmetic that rounds only what it must, once, to 16 bits: operands of products, and outputs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "check/check.h"
#include "emit/cuda/emit_cuda.h"
#include "forge/error.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "graph/pipeline.h"
#include "interp/recurrence.h"
#include "ir/infer.h"
#include "ir/rebuild.h"
#include "target/hopper/warp_groups.h"
#include "tests/cuda/emulated/program.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// The value rounded to 16 bits, by operations that the interpreter has: x (1 + 2^n) less the difference of that and x
/// loses n of a double's 53 bits.
ValueId rounded(Function& fn, ValueId x, DType dtype) {
    ir::Attrs factor;
    factor.value = 1 + std::ldexp(1.0, dtype == BF16 ? 45 : 42);
    const ValueId c = fn.add({Opcode::Constant, {F32, {}}, {}, factor, "", {}, std::nullopt});
    const ValueId t = ir::emit(fn, Opcode::Mul, {x, c}, {}, {}, "");
    return ir::emit(fn, Opcode::Sub, {t, ir::emit(fn, Opcode::Sub, {t, x}, {}, {}, "")}, {}, {}, "");
}

/// The program with operands of products and outputs rounded, but not inverses, which kernels have in two parts.
Function rounded(const Function& program, DType dtype) {
    std::vector<bool> precise;
    Function out = ir::rebuild(program, [&](Function& fn, const Op& op, std::vector<ValueId> args) {
        if (ir::is_matmul(op.code))
            for (std::size_t i = 0; i < 2; ++i)
                if (fn.op(args[i]).code != Opcode::Inverse) args[i] = rounded(fn, args[i], dtype);
        return ir::keep(fn, op, std::move(args));
    });
    for (ir::Result& r : out.results)
        if (r.role == ir::Role::Input) r.value = rounded(out, r.value, dtype);
    return out;
}

/// The root mean square of the difference over that of what is wanted.
double relative(const interp::Value& got, const interp::Value& wanted) {
    double squares = 0, all = 0;
    for (std::size_t i = 0; i < wanted.data.size(); ++i)
        squares += std::pow(got.data[i] - wanted.data[i], 2), all += std::pow(wanted.data[i], 2);
    return std::sqrt(squares / all);
}

struct Example {
    std::string program;
    DType dtype = BF16;
    std::int64_t size = 64;
};
void PrintTo(const Example& e, std::ostream* out) { *out << e.program << ", " << to_string(e.dtype) << ", " << e.size; }

plan::Plan plan_for(const ir::Definition& def, const Function& program, const tile::Sizes& sizes) {
    target::FitWishes wishes;
    wishes.strategy = plan::Strategy::OnePass, wishes.expected_tasks = 32, wishes.expected_tokens = 32768;
    const target::SharedMemory hopper{220 * 1024, 132, 227 * 1024};
    return plan::make_plan(def, program, sizes, target::fit_warp_groups(def, program, sizes, hopper, wishes));
}

class Precision : public testing::TestWithParam<Example> {};

// From no decay to hardly any memory. States are sums of what is rounded here: their error is this, but for the order
// of fp32 sums, where nothing is rounded at all. Of outputs also scores between blocks of 16 tokens, which are products
// of tf32: that shows beside the rounding of an f16.
TEST_P(Precision, IsThatOfOneRounding) {
    constexpr double kStates = 1.1, kOutputs = 1.2, kSums = 1e-6;
    const Example& example = GetParam();
    const ir::Definition declared = program_named(example.program).make().define(),
                         def = frontend::with_dtype(declared, example.dtype);
    const Function graph = graph::optimize(frontend::join(def)), once = rounded(graph, example.dtype);
    check::Problem problem{.T = 250, .H = 1, .sizes = {{"K", example.size}, {"V", example.size}}};
    problem.dtype = example.dtype;
    interp::Sizes sizes = check::sizes_for(declared, problem);
    const emulated::Program program("precision_" + example.program, plan_for(def, graph, sizes));
    sizes[ir::kChunkSymbol] = program.plan().schedule.chunk;
    for (const double gate : {std::nan(""), 0.0, -0.01, -0.2}) {
        problem.gate = gate;
        check::Buffers buffers(declared, problem);
        program.run(buffers.call(), 1);
        const interp::Sequence sequence = buffers.sequence(0, 0);
        const interp::Outcome exact = interp::run_steps(declared, sequence, sizes),
                              ideal = interp::run_program(once, declared, sequence, sizes);
        for (const auto& [name, wanted] : exact.outputs)
            EXPECT_LE(relative(buffers.output(name, 0, 0), wanted), kOutputs * relative(ideal.outputs.at(name), wanted))
                << name << ", gates " << gate;
        for (const auto& [name, wanted] : exact.states)
            EXPECT_LE(relative(buffers.final_state(name, 0, 0), wanted),
                      kStates * relative(ideal.states.at(name), wanted) + kSums)
                << name << ", gates " << gate;
    }
}

INSTANTIATE_TEST_SUITE_P(OfVectorDecay, Precision,
                         testing::Values(Example{"gla"}, Example{"gla", F16}, Example{"gla", F16, 128},
                                         Example{"rwkv6"}, Example{"rwkv6", F16}, Example{"kda"}, Example{"kda", F16}),
                         [](const auto& test) {
                             return fmt::format("{}_{}_{}", test.param.program, to_string(test.param.dtype),
                                                test.param.size);
                         });

}  // namespace
}  // namespace forge::tests
