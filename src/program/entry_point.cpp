#include "program/entry_point.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include "forge/error.h"
#include "frontend/join.h"
#include "graph/derive.h"
#include "graph/gradient.h"
#include "graph/passes.h"
#include "graph/pipeline.h"
#include "graph/summary.h"
#include "program/backward.h"

namespace forge::program {
namespace {

using ir::Function;

template <class Join>
EntryPoint entry(std::string name, Join&& join, std::int64_t chunk, const ir::Definition& def,
                 const ir::PassRunner& passes) {
    Function joined = passes.run(ir::Pass::Join, join);
    Function optimised = graph::optimize(joined, passes);
    return {std::move(name), std::move(joined), std::move(optimised), chunk, def};
}

const std::string kBackward = "backward", kFromStates = kBackward + " from states",
                  kToInputs = kBackward + " to inputs", kOf = " of ", kSummary = "summary",
                  kSummaryOfBackward = kSummary + " of " + kBackward, kStates = "states of " + kSummary,
                  kTransitions = "transitions of " + kSummary;

/// The interface of what `summarised` is the summary of, as that of the summary.
ir::Definition summary_interface(ir::Definition tensors, const std::vector<std::string>& carried,
                                 const std::vector<graph::Transition>& transitions) {
    tensors.outputs.clear();
    std::vector<ir::StateDecl> further;
    for (const graph::Transition& t : transitions) {
        if (t.summary.empty() || std::find(carried.begin(), carried.end(), t.state) == carried.end()) continue;
        const std::string name = graph::transition_name(t.state);
        if (tensors.state(name) || tensors.input(name))
            throw CompileError(Diagnostic{fmt::format("'{}' is the name of a transition", name), "another name", name,
                                          tensors.where, "rename it to summarise the definition"});
        further.push_back({name, {DType::F32, t.summary}, tensors.where});
    }
    tensors.states.insert(tensors.states.end(), further.begin(), further.end());
    return tensors;
}

/// The interface of a backward pass that takes no state from before the first token, as it has those before chunks.
ir::Definition without_states(ir::Definition interface, const ir::Definition& def) {
    std::erase_if(interface.states, [&](const ir::StateDecl& s) { return def.state(s.name) != nullptr; });
    return interface;
}

std::vector<std::string> names_of(const std::vector<ir::InputDecl>& inputs) {
    std::vector<std::string> names;
    for (const ir::InputDecl& input : inputs) names.push_back(input.name);
    return names;
}

/// The inputs that a backward pass is asked for; nothing: all.
std::optional<std::set<std::string>> wanted(const std::string& entry, const ir::Definition& def) {
    const std::string& pass = is_from_states(entry) ? kFromStates : is_to_inputs(entry) ? kToInputs : kBackward;
    if (entry == pass) return {};
    std::set<std::string> names;
    std::istringstream list(entry.substr(pass.size() + kOf.size()));
    for (std::string name; std::getline(list >> std::ws, name, ',');) {
        name.erase(name.find_last_not_of(' ') + 1);
        if (!def.input(name))
            throw RuntimeError(fmt::format("{}: entry: expected '{} of' some of {}, got '{}'", def.name, pass,
                                           fmt::join(names_of(def.inputs), ", "), name));
        names.insert(name);
    }
    return names;
}

}  // namespace

EntryPoint forward(const ir::Definition& def, const ir::PassRunner& passes) {
    return entry("forward", [&] { return frontend::join(def); }, def.fixed_chunk, def, passes);
}

EntryPoint decode(const ir::Definition& def, const ir::PassRunner& passes) {
    if (!has_decode(def))
        throw RuntimeError(
            fmt::format("{}: entry: decode needs a step, as the phases depend on chunks of {} tokens; add a step",
                        def.name, def.fixed_chunk));
    return entry("decode", [&] { return def.step ? frontend::join_step(def) : frontend::join(def); }, 1, def, passes);
}

bool is_backward(const std::string& entry) {
    return entry == kBackward || entry.starts_with(kBackward + kOf) || is_from_states(entry) || is_to_inputs(entry);
}

bool is_from_states(const std::string& entry) { return entry == kFromStates || entry.starts_with(kFromStates + kOf); }

bool is_to_inputs(const std::string& entry) { return entry == kToInputs || entry.starts_with(kToInputs + kOf); }

EntryPoint backward(const ir::Definition& def, const ir::PassRunner& passes, const std::string& name) {
    const auto of = wanted(name, def);
    Backward made = backward_of(def, passes, of ? &*of : nullptr, is_to_inputs(name));
    if (is_from_states(name)) {
        made.adjoint = passes.run(ir::Pass::ChunkStates, [&] { return graph::with_given_states(made.adjoint); });
        made.interface = without_states(std::move(made.interface), def);
    }
    return {name, std::move(made.program), std::move(made.adjoint), def.fixed_chunk, std::move(made.interface)};
}

bool is_summary(const std::string& entry) {
    return entry == kSummary || entry == kSummaryOfBackward || entry == kStates || entry == kTransitions;
}

std::vector<std::string> carried_states(const std::string& entry, const ir::Definition& def) {
    const bool back = is_backward(entry);
    std::vector<std::string> names;
    for (const ir::StateDecl& s : def.states) names.push_back(back ? graph::grad_name(s.name) : s.name);
    if (back)
        for (const ir::LastRows& last : ir::last_rows(def)) names.push_back(graph::grad_name(last.name));
    return names;
}

EntryPoint summary(const ir::Definition& def, const ir::PassRunner& passes, const std::string& name) {
    const std::string of = name == kSummaryOfBackward ? kBackward : "forward";
    EntryPoint made = of == kBackward ? backward(def, passes) : forward(def, passes);
    const std::vector<std::string> carried = carried_states(of, def);
    const auto transitions = graph::transitions(made.optimised);
    made.optimised = passes.run(ir::Pass::Summary, [&] { return graph::rank_summary(made.optimised, carried); });
    ir::Definition tensors = std::move(made.tensors);
    if (of == kBackward)  // sums over tokens are no part of it
        std::erase_if(tensors.states, [&](const ir::StateDecl& s) {
            return !def.state(s.name) && std::find(carried.begin(), carried.end(), s.name) == carried.end();
        });
    tensors = summary_interface(std::move(tensors), carried, transitions);
    if (name == kStates || name == kTransitions) {
        const auto other = [&](const std::string& state) {
            const bool own = std::find(carried.begin(), carried.end(), state) != carried.end();
            return own != (name == kStates);
        };
        std::erase_if(made.optimised.results,
                      [&](const ir::Result& r) { return r.role == ir::Role::State && other(r.name); });
        made.optimised = graph::dce(made.optimised);
        std::erase_if(tensors.states, [&](const ir::StateDecl& s) { return other(s.name); });
    }
    return {name, std::move(made.joined), std::move(made.optimised), made.chunk, std::move(tensors)};
}

ir::Definition tensors_of(const std::string& entry, const ir::Definition& def) {
    if (is_summary(entry)) return summary(def, {}, entry).tensors;
    if (!is_backward(entry)) return def;
    if (is_to_inputs(entry)) return backward(graph::with_phases(def), {}, entry).tensors;
    const auto of = wanted(entry, def);
    ir::Definition tensors = graph::gradient_interface(def, of ? &*of : nullptr);
    return is_from_states(entry) ? without_states(std::move(tensors), def) : tensors;
}

EntryPoint entry_named(const std::string& name, const ir::Definition& def, const ir::PassRunner& passes) {
    if (name == "forward") return forward(def, passes);
    if (name == "decode") return decode(def, passes);
    if (is_backward(name)) return backward(def, passes, name);
    if (is_summary(name)) return summary(def, passes, name);
    throw RuntimeError(fmt::format(
        "entry: expected forward, decode, backward, 'backward of' inputs, backward to inputs, backward from states, "
        "summary or summary of backward, got '{}'",
        name));
}

}  // namespace forge::program
