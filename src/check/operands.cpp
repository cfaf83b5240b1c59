#include "check/operands.h"

#include <array>
#include <cmath>

#include "check/element.h"
#include "ir/rebuild.h"
#include "program/backward.h"
#include "program/entry_point.h"

namespace forge::check {
namespace {

/// Of its first two operands.
bool is_product(ir::Opcode code) {
    return ir::is_matmul(code) || code == ir::Opcode::DecayMatmul || code == ir::Opcode::DecayApply;
}

/// Every matrix that a product takes is a copy of its own, so that what else reads it reads what it was.
ir::Function with_operands(const ir::Function& fn) {
    return ir::rebuild(fn, [](ir::Function& out, const ir::Op& op, std::vector<ir::ValueId> args) {
        if (is_product(op.code))
            for (std::size_t i = 0; i < 2; ++i) {
                ir::Op copy;
                copy.code = ir::Opcode::Copy, copy.args = {args[i]};
                args[i] = out.add(std::move(copy));
            }
        return ir::keep(out, op, std::move(args));
    });
}

double rounded(double x, DType dtype) {
    std::array<std::byte, sizeof(double)> element{};
    store(element.data(), dtype, x);
    return load(element.data(), dtype);
}

double in_two_parts(double x) {
    const double first = rounded(x, BF16);
    return std::isfinite(first) ? first + rounded(x - first, BF16) : first;
}

/// The program has no other copies: they are made when kernels are.
interp::Touch rounding(DType dtype, bool in_parts) {
    return [=](const ir::Function& fn, ir::ValueId v, interp::Value& value) {
        if (fn.op(v).code != ir::Opcode::Copy) return;
        for (double& x : value.data) x = in_parts ? in_two_parts(x) : rounded(x, dtype);
    };
}

}  // namespace

Report with_rounded_operands(const Buffers& buffers, const ir::Definition& declared, const std::string& entry,
                             std::int64_t chunk, const Reference& reference) {
    interp::Sizes sizes = sizes_for(declared, buffers.problem());
    sizes[ir::kChunkSymbol] = declared.fixed_chunk != 0 ? declared.fixed_chunk : chunk;
    const DType dtype = buffers.problem().dtype;
    const interp::Touch touch = rounding(dtype, dtype == F32 && program::is_backward(entry));
    if (!program::is_backward(entry)) {
        const ir::Function program = with_operands(program::entry_named(entry, declared).optimised);
        return compare(buffers,
                       outcomes_of(buffers,
                                   [&](const interp::Sequence& sequence) {
                                       return interp::run_program(program, declared, sequence, sizes, touch);
                                   }),
                       reference);
    }
    const program::Backward made = program::backward_of(declared);
    const ir::Function program = with_operands(made.program), adjoint = with_operands(made.adjoint);
    const interp::Backward backward{declared, made.interface, program, adjoint};
    return compare(buffers,
                   outcomes_of(buffers,
                               [&](const interp::Sequence& sequence) {
                                   return interp::run_program_gradient(backward, sequence, sizes, touch);
                               }),
                   reference);
}

}  // namespace forge::check
