#include "graph/log_norm.h"

#include <algorithm>
#include <map>

#include "forge/error.h"
#include "graph/derive_forms.h"
#include "graph/norm_bound.h"
#include "graph/passes.h"
#include "graph/pipeline.h"
#include "ir/infer.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

/// A function of one token, f32[], of all tokens of a chunk.
TokenRow of_all_tokens(const Function& token, ChunkWriter& out) {
    TokenRows rows(token, out);
    std::vector<TokenRow> made;
    for (ValueId v = 0; v < token.size(); ++v) {
        std::vector<TokenRow> args;
        for (const ValueId a : token.op(v).args) args.push_back(made[static_cast<std::size_t>(a)]);
        made.push_back(rows.operation(v, args));
    }
    return made[static_cast<std::size_t>(token.results.front().value)];
}

/// The operations of `fn` at the end of `out`, whose parameters it shares.
ValueId append(const Function& fn, ValueId result, Function& out) {
    std::map<std::pair<std::string, Role>, ValueId> parameters;
    for (ValueId v = 0; v < out.size(); ++v)
        if (const Op& op = out.op(v); op.code == Opcode::Param) parameters[{op.attrs.name, op.attrs.role}] = v;
    std::map<ValueId, ValueId> map;
    const auto needed = ir::needed_for(fn, {result});
    for (ValueId v = 0; v < fn.size(); ++v) {
        if (!needed[static_cast<std::size_t>(v)]) continue;
        Op op = fn.op(v);
        const auto known = parameters.find({op.attrs.name, op.attrs.role});
        for (ValueId& a : op.args) a = map.at(a);
        const bool shared = op.code == Opcode::Param && known != parameters.end();
        map[v] = shared ? known->second : out.add(std::move(op));
    }
    return map.at(result);
}

}  // namespace

std::optional<Function> with_log_norm(const Function& program, const ir::Definition& def) {
    ChunkWriter chunk(def);
    ValueId largest = ir::kNoValue;
    try {
        for (const NormBound& bound : norm_bounds(program, def)) {
            if (bound.over != NormBound::Over::Token) return std::nullopt;
            const auto log = logarithm(chunk, of_all_tokens(bound.fn, chunk));
            if (!log) return std::nullopt;
            const ValueId norm = chunk.per_token(*log);
            largest = largest == ir::kNoValue ? norm : chunk.emit(Opcode::Maximum, {largest, norm});
        }
    } catch (const CompileError&) {
        return std::nullopt;  // an operation that has no form for all tokens of a chunk
    }
    if (largest == ir::kNoValue) return std::nullopt;
    const bool left_out = std::any_of(chunk.fn.ops.begin(), chunk.fn.ops.end(), [](const Op& op) {
        return op.code == Opcode::Amax || op.code == Opcode::PrevToken;
    });
    if (left_out) return std::nullopt;
    chunk.fn.results = {{kLogNorm, Role::Input, chunk.sum(largest)}};
    const Function norm = optimize(std::move(chunk.fn));
    Function out = program;
    out.results.push_back({kLogNorm, Role::Spill, append(norm, norm.results.front().value, out)});
    return dce(cse(out));
}

}  // namespace forge::graph
