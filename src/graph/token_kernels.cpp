#include "graph/token_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "graph/channel_maps.h"
#include "graph/saved_states.h"
#include "graph/slice.h"
#include "graph/token_program.h"
#include "ir/infer.h"
#include "support/reasons.h"

namespace forge::graph {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

namespace {

/// The sums of the token program's contributions, which have been left as vectors, whatever the states are.
Function contributions_summed(const Function& program, const Function& token) {
    Function out;
    out.name = program.name;
    const auto param = [&](const std::string& name, Role role, const ir::Type& type) {
        Op op{Opcode::Param, {DType::F32, type.shape}, {}, {}, name, {}, std::nullopt};
        op.attrs.name = name, op.attrs.role = role;
        return out.add(std::move(op));
    };
    for (const ir::Result& r : token.results) {
        if (r.role != Role::Chunk) continue;
        const ir::Type &state = program.op(program.result(r.name, Role::State)).type, &left = token.op(r.value).type;
        const ValueId so_far = param(r.name, Role::State, state);
        const bool spread = state.rank() == 0 && left.shape[0] != Dim(kHeadChannels);
        ValueId more = param(sum_spill(r.name), Role::Spill, spread ? left : state);
        if (spread) more = ir::emit(out, Opcode::Sum, {more}, {});
        out.results.push_back({r.name, Role::State, ir::emit(out, Opcode::Add, {so_far, more}, {})});
    }
    return out;
}

}  // namespace

std::vector<TokenKernel> token_kernels(const Function& program, const ir::PassRunner* passes) {
    if (has_given_states(program)) refuse(Reason::GivenVectors);
    std::vector<TokenKernel> kernels;
    const auto add = [&](const char* kernel, Function chunk, const auto& token_of, bool reverse = false) {
        const std::string name = fmt::format("{}_{}", program.name, kernel);
        const auto run = [&](ir::Pass pass, const auto& make) {
            return passes ? passes->of(name).run(pass, make) : make();
        };
        chunk.name = name;
        TokenKernel made{kernel, run(ir::Pass::Place, [&] { return chunk; }), {}, reverse};
        Function token = run(ir::Pass::TokenProgram, token_of);
        token.name = name;
        made.token = run(ir::Pass::Transitions, [&] { return channel_maps(token); });
        kernels.push_back(std::move(made));
    };
    if (!has_saved_states(program)) {
        add("scan", program, [&] { return token_program(program); });
        return kernels;
    }
    const Function token = token_program(program);
    const std::set<std::string> states = read_states(token);
    const Function there = way_there(token, states), sums = contributions_summed(program, token);
    check_maps(there);
    add("before", way_there(program, states), [&] { return there; });
    add(
        "scan", with_spilled_states(way_back(with_contributions(program), {})), [&] { return way_back(token, states); },
        true);
    if (!sums.results.empty()) add("sums", sums, [&] { return sums; });
    return kernels;
}

bool adds_up(const Function& token) {
    return std::any_of(token.ops.begin(), token.ops.end(),
                       [](const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::Spill; });
}

std::string sum_spill(const std::string& state) { return state + ".sum"; }

}  // namespace forge::graph
