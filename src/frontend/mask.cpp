#include "frontend/mask.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontend/mask_far.h"
#include "frontend/mask_terms.h"
#include "frontend/mask_values.h"

namespace forge::frontend {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// Whether i and j stand nowhere but in i - j.
bool reads_distances_only(const Function& fn) {
    for (const Op& op : fn.ops) {
        const auto place = [&](ValueId v) {
            const Op& arg = fn.op(v);
            return arg.code == Opcode::Param && (arg.attrs.name == "i" || arg.attrs.name == "j") ? arg.attrs.name : "";
        };
        for (const ValueId a : op.args)
            if (!place(a).empty() && (op.code != Opcode::Sub || place(op.args[0]).empty() ||
                                      place(op.args[1]).empty() || place(op.args[0]) == place(op.args[1])))
                return false;
    }
    return true;
}

void check_mask(const Function& fn, const std::vector<ir::InputDecl>& inputs) {
    const auto fault = [](const std::string& what, const std::string& expected, const std::string& got,
                          const Location& where) {
        throw CompileError(Diagnostic{"mask: " + what, expected, got, where, ""});
    };
    if (fn.results.size() != 1) fault("several results", "one number", std::to_string(fn.results.size()), {});
    const Op& result = fn.op(fn.results[0].value);
    if (!result.type.shape.empty())
        fault("a result with axes", "a number for each pair of tokens", to_string(result.type), result.where);
    std::vector<ValueId> places;
    for (ValueId v = 0; v < fn.size(); ++v)
        if (fn.op(v).code == Opcode::Param && (fn.op(v).attrs.name == "i" || fn.op(v).attrs.name == "j"))
            places.push_back(v);
    const std::vector<bool> of_places = ir::depends_on(fn, places);
    for (ValueId v = 0; v < fn.size(); ++v)  // where places are rows and columns of a matrix, axes would be others
        if (of_places[static_cast<std::size_t>(v)] && !fn.op(v).type.shape.empty())
            fault("axes of what depends on places", "numbers", to_string(fn.op(v).type), fn.op(v).where);
    for (const Op& op : fn.ops) {
        if (op.code != Opcode::Param || op.attrs.name == "i" || op.attrs.name == "j") continue;
        const std::string base = without_place(op.attrs.name, inputs);
        const auto in = std::find_if(inputs.begin(), inputs.end(), [&](const auto& x) { return x.name == base; });
        if (in == inputs.end())
            fault(fmt::format("unknown input '{}'", op.attrs.name), "i, j, or one of the inputs declared with it", "",
                  op.where);
        if (in->role == ir::Role::Input && base == op.attrs.name)
            fault(fmt::format("'{}' is an input of tokens, and there are two", base),
                  fmt::format("{0}_i, of the query's token, or {0}_j, of the key's", base), "", op.where);
    }
}

}  // namespace

std::string without_place(const std::string& name, const std::vector<ir::InputDecl>& inputs) {
    if (!name.ends_with("_i") && !name.ends_with("_j")) return name;
    const std::string base = name.substr(0, name.size() - 2);
    const bool known = std::any_of(inputs.begin(), inputs.end(),
                                   [&](const auto& in) { return in.name == base && in.role == ir::Role::Input; });
    return known ? base : name;
}

Tensor replayed(const ir::Function& fn, ir::ValueId v, const Arguments& arguments, const Tensor& like) {
    const std::vector<bool> needed = ir::needed_for(fn, {v});
    std::vector<Tensor> values(fn.ops.size());
    for (ValueId at = 0; at <= v; ++at) {
        if (!needed[static_cast<std::size_t>(at)]) continue;
        const Op& op = fn.op(at);
        Tensor& made = values[static_cast<std::size_t>(at)];
        if (op.code == Opcode::Param) {
            made = arguments(op.attrs.name);
            continue;
        }
        std::vector<Tensor> args;
        for (const ValueId a : op.args) args.push_back(values[static_cast<std::size_t>(a)]);
        made = like.trace()->record(op.code, args, op.attrs, op.where, op.type);
    }
    return values[static_cast<std::size_t>(v)];
}

std::string MaskTerm::state() const {
    std::vector<std::string> names;
    for (const MaskFactor& f : key) names.push_back(f.key);
    for (const MaskDecay& d : decays) names.push_back("decay " + d.key);
    std::sort(names.begin(), names.end());
    return fmt::format("{}", fmt::join(names, "; "));
}

Mask decomposed(ir::Function mask, const std::vector<ir::InputDecl>& inputs) {
    check_mask(mask, inputs);
    std::optional<CompileError> first;
    for (const bool blocks : {false, true}) {  // blocks are near only where they are not far: states cost less
        FarMask far = far_mask(mask, inputs, blocks);
        Mask made{mask, std::move(far.fn), far.window, {}};
        if (made.window > kMostWindow)
            refuse_mask(mask.op(mask.results[0].value),
                        fmt::format("a window of {} tokens, of which all keys and values are kept", made.window),
                        fmt::format("at most {}", kMostWindow));
        try {
            MaskTerms of = mask_terms(made.far, inputs);
            made.terms = std::move(of.terms);
            made.terms_read_places = of.read_places;
        } catch (const CompileError& refused) {
            if (!first) first = refused;
            continue;
        }
        made.reads_places = made.terms_read_places || (made.window > 0 && !reads_distances_only(mask));
        return made;
    }
    throw *first;
}

}  // namespace forge::frontend
