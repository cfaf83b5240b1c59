#include <cmath>
#include <nlohmann/json.hpp>

#include "capi/handle.h"
#include "check/check.h"
#include "check/chunks.h"
#include "check/suite.h"
#include "program/entry_point.h"

namespace forge::capi {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Slot::Kind;

const char* kind_name(Kind kind) {
    switch (kind) {
        case Kind::Input:
            return "input";
        case Kind::Head:
            return "head";
        case Kind::Output:
            return "output";
        case Kind::InitialState:
            return "initial_state";
        case Kind::FinalState:
            return "final_state";
        case Kind::ChunkState:
            return "chunk_state";
    }
    return "?";
}

Json shape_of(const Slot& slot) {
    Json shape = Json::array();
    const auto add = [&](const Dim& d) {
        if (d.is_constant()) shape.push_back(d.factor);
        else shape.push_back(to_string(d));
    };
    if (slot.kind == Kind::InitialState || slot.kind == Kind::FinalState) {
        shape.push_back("N");
        add(slot.heads.value_or(Dim("heads")));
    }
    if (slot.kind == Kind::ChunkState) shape = {"chunks", "heads"};
    for (const Dim& d : slot.type.shape) add(d);
    return shape;
}

/// JSON has no inf and no NaN: null.
Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json json_of(const check::Report& report, const std::string& name) {
    Json values = Json::array();
    for (const check::Difference& d : report.differences)
        values.push_back({{"name", d.is_state ? "state " + d.name : d.name},
                          {"relative_rms", number(d.relative_rms)},
                          {"max_abs", number(d.max_abs)},
                          {"ok", d.ok},
                          {"token", d.first_bad_token},
                          {"sequence", d.sequence},
                          {"head", d.head}});
    return {{"name", name}, {"ok", report.ok}, {"admitted", report.admitted}, {"values", values}};
}

}  // namespace

std::vector<Slot> slots_of(const ir::Definition& definition, const std::vector<ir::StateDecl>& chunk_states,
                           DType state_dtype) {
    std::vector<Slot> slots;
    for (const ir::InputDecl& in : definition.inputs)
        if (in.role != ir::Role::Scalar)
            slots.push_back({in.role == ir::Role::Head ? Kind::Head : Kind::Input, in.name, in.type});
    for (const ir::OutputDecl& out : definition.outputs) slots.push_back({Kind::Output, out.name, out.type});
    for (const Kind kind : {Kind::InitialState, Kind::FinalState}) {
        for (const ir::StateDecl& s : definition.states)
            slots.push_back({kind, s.name, {state_dtype, s.type.shape}, {}, s.inner});
        for (const ir::LastRows& last : ir::last_rows(definition))
            slots.push_back({kind, last.name, last.type, last.heads});
    }
    for (const ir::StateDecl& s : chunk_states) slots.push_back({Kind::ChunkState, s.name, {DType::F32, s.type.shape}});
    return slots;
}

std::vector<std::string> scalars_of(const ir::Definition& definition) {
    std::vector<std::string> scalars;
    for (const ir::InputDecl& in : definition.inputs)
        if (in.role == ir::Role::Scalar) scalars.push_back(in.name);
    return scalars;
}

std::string describe(const Attention& attention, const CompileOptions& options, const std::vector<Slot>& slots,
                     const std::vector<std::string>& scalars) {
    Json tensors = Json::array();
    for (const Slot& slot : slots) {
        tensors.push_back({{"name", slot.name},
                           {"kind", kind_name(slot.kind)},
                           {"dtype", to_string(slot.type.dtype)},
                           {"shape", shape_of(slot)}});
        if (slot.inner) tensors.back()["inner"] = true;
    }
    Json refused = Json::array();
    for (const Refusal& r : attention.refused())
        refused.push_back({{"engine", r.engine}, {"reason", r.reason}, {"why", r.why}, {"way_out", r.way_out}});
    Json json = {{"name", attention.definition().name},
                 {"device", options.device},
                 {"arch", attention.isa()},
                 {"dtype", to_string(options.dtype)},
                 {"engine", attention.engine()},
                 {"refused", refused},
                 {"strategy", attention.strategy()},
                 {"chunk", attention.chunk()},
                 {"sizes", options.sizes},
                 {"tensors", tensors},
                 {"scalars", scalars},
                 {"kernels", attention.kernels()},
                 {"flops_per_token", attention.flops_per_token()},
                 {"build_seconds", attention.build_seconds()},
                 {"from_cache", attention.from_cache()}};
    if (!options.on.empty()) json["on"] = options.on;
    return json.dump();
}

std::string resources(const Attention& attention) {
    Json kernels = Json::array();
    for (const KernelResources& r : attention.resources())
        kernels.push_back({{"kernel", r.kernel},
                           {"registers", r.registers},
                           {"spill_bytes", r.spill_bytes},
                           {"stack_bytes", r.stack_bytes}});
    return kernels.dump();
}

std::string check_report(const Attention& attention, const ir::Definition& declared, const CompileOptions& options) {
    if (options.device != "cpu")
        throw RuntimeError("forge_check: expected a variant compiled for the cpu, got " + options.device);
    Json report = {
        {"ok", true}, {"against_step", declared.step.has_value()}, {"tolerance", 0.0}, {"cases", Json::array()}};
    if (const auto found = check::chunk_dependence(declared)) {
        report["ok"] = false;
        report["chunk_dependence"] = to_string(*found);
    }
    for (check::Case& c : check::awkward_cases(declared, options.dtype, options.sizes, 1)) {
        c.problem.state_dtype = options.state_dtype;
        if (program::is_backward(options.entry) && c.problem.cut != 0)
            continue;  // gradients come from the end of a call
        const check::Report result = check::check(attention, declared, c.problem, options.entry);
        report["tolerance"] = result.tolerance;
        report["ok"] = report["ok"].get<bool>() && result.ok;
        report["cases"].push_back(json_of(result, c.name));
    }
    return report.dump();
}

}  // namespace forge::capi
