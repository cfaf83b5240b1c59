#include "graph/sums.h"

#include "ir/infer.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

void collect(const Function& fn, ValueId v, bool negative, const ir::Type& type, std::vector<Addend>& sum) {
    constexpr std::size_t kMostAddends = 64;  // a sum of more is an addend itself
    const Op& op = fn.op(v);
    if (sum.size() < kMostAddends && (op.code == Opcode::Add || op.code == Opcode::Sub) && op.type == type &&
        fn.op(op.args[0]).type == type && fn.op(op.args[1]).type == type) {
        collect(fn, op.args[0], negative, type, sum);
        collect(fn, op.args[1], negative != (op.code == Opcode::Sub), type, sum);
    } else {
        sum.push_back({v, negative});
    }
}

}  // namespace

std::vector<Addend> addends(const Function& fn, ValueId v) {
    std::vector<Addend> sum;
    collect(fn, v, false, fn.op(v).type, sum);
    return sum;
}

ValueId emit_sum(Function& fn, const std::vector<Addend>& sum, const Location& where) {
    std::size_t first = 0;
    while (first < sum.size() && sum[first].negative) ++first;
    const bool all_negative = first == sum.size();
    if (all_negative) first = 0;
    ValueId v = sum[first].v;
    for (std::size_t i = 0; i < sum.size(); ++i) {
        if (i == first) continue;
        const bool subtract = sum[i].negative != all_negative;
        v = ir::emit(fn, subtract ? Opcode::Sub : Opcode::Add, {v, sum[i].v}, {}, where);
    }
    return all_negative ? ir::emit(fn, Opcode::Neg, {v}, {}, where) : v;
}

}  // namespace forge::graph
