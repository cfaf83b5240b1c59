#include "ir/function.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>

#include "forge/error.h"

namespace forge::ir {
namespace {

using Kind = OpInfo::Kind;

constexpr std::array kInfo = {
#define FORGE_ROW(name, arity, attributes, kind, along, linear, cost, doc) \
    OpInfo{#name, arity, attributes, doc, Kind::kind, {Along::along, Linear::linear, cost}},
#define FORGE_OP(Enum, name, arity, attributes, along, linear, cost, doc) \
    FORGE_ROW(name, arity, attributes, Other, along, linear, cost, doc)
#define FORGE_UNARY(Enum, name, formula, linear, cost, doc) \
    FORGE_ROW(name, 1, kNoAttr, Unary, Pointwise, linear, cost, doc)
#define FORGE_BINARY(Enum, name, formula, linear, cost, doc) \
    FORGE_ROW(name, 2, kNoAttr, Binary, Pointwise, linear, cost, doc)
#define FORGE_COMPARE(Enum, name, formula, cost, doc) FORGE_ROW(name, 2, kNoAttr, Compare, Pointwise, Opaque, cost, doc)
#include "forge/ops.def"
#undef FORGE_ROW
};

using Formula = double (*)(double a, double b);
constexpr std::array<Formula, kInfo.size()> kFormulas = {
#define FORGE_OP(Enum, name, arity, attributes, along, linear, cost, doc) nullptr,
#define FORGE_BINARY(Enum, name, formula, linear, cost, doc) [](double a, double b) -> double { return formula; },
#define FORGE_COMPARE(Enum, name, formula, cost, doc) [](double a, double b) -> double { return formula ? 1 : 0; },
#include "forge/ops.def"
};

constexpr std::array kAll = {
#define FORGE_OP(Enum, name, arity, attributes, along, linear, cost, doc) Opcode::Enum,
#include "forge/ops.def"
};

}  // namespace

const OpInfo& info(Opcode code) { return kInfo[static_cast<std::size_t>(code)]; }

std::optional<double> formula_of(Opcode code, double a, double b) {
    const Formula formula = kFormulas[static_cast<std::size_t>(code)];
    return formula ? std::optional(formula(a, b)) : std::nullopt;
}

std::span<const Opcode> all_opcodes() { return kAll; }

std::optional<Opcode> opcode_named(const std::string& name) {
    static const std::map<std::string, Opcode> kByName = [] {
        std::map<std::string, Opcode> m;
        for (const Opcode code : kAll) m.emplace(info(code).name, code);
        return m;
    }();
    const auto it = kByName.find(name);
    if (it == kByName.end()) return std::nullopt;
    return it->second;
}

const char* to_string(Role role) {
    switch (role) {
        case Role::Input:
            return "input";
        case Role::Shifted:
            return "shifted";
        case Role::Head:
            return "head";
        case Role::Scalar:
            return "scalar";
        case Role::Mask:
            return "mask";
        case Role::State:
            return "state";
        case Role::Chunk:
            return "chunk";
        case Role::Cached:
            return "cached";
        case Role::Spill:
            return "spill";
        case Role::Ones:
            return "ones";
        case Role::Eye:
            return "eye";
        case Role::Before:
            return "before";
        case Role::After:
            return "after";
    }
    return "?";
}

const char* to_string(Tri tri) {
    switch (tri) {
        case Tri::None:
            return "none";
        case Tri::OutLower:
            return "out_lower";
        case Tri::ALower:
            return "a_lower";
        case Tri::AUpper:
            return "a_upper";
    }
    return "?";
}

std::string to_string(const Type& type) { return forge::to_string(type.dtype) + forge::to_string(type.shape); }

ValueId Function::result(const std::string& wanted, Role role) const {
    for (const Result& r : results)
        if (r.name == wanted && r.role == role) return r.value;
    return kNoValue;
}

ValueId Function::param(const std::string& wanted) const {
    for (ValueId v = 0; v < size(); ++v)
        if (op(v).code == Opcode::Param && op(v).attrs.name == wanted) return v;
    return kNoValue;
}

std::string described(const Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    if (op.code == Opcode::Param) return fmt::format("the {} '{}'", to_string(op.attrs.role), op.attrs.name);
    return fmt::format("the {}{}{}", info(op.code).name, op.name.empty() ? "" : " '" + op.name + "'",
                       op.where.known() ? " at " + to_string(op.where) : "");
}

std::vector<std::vector<ValueId>> users_of(const Function& fn) {
    std::vector<std::vector<ValueId>> users(fn.ops.size());
    for (ValueId v = 0; v < fn.size(); ++v)
        for (const ValueId a : fn.op(v).args) users[static_cast<std::size_t>(a)].push_back(v);
    return users;
}

std::vector<int> result_uses(const Function& fn) {
    std::vector<int> uses(fn.ops.size(), 0);
    for (const Result& r : fn.results) ++uses[static_cast<std::size_t>(r.value)];
    return uses;
}

bool is_elementwise(Opcode code) { return along(code) == Along::Pointwise || along(code) == Along::Triangle; }

bool is_view(Opcode code) {
    switch (along(code)) {
        case Along::Permuted:
        case Along::Inserted:
        case Along::Removed:
        case Along::Selected:
        case Along::Cut:
        case Along::Broadcast:
            return true;
        case Along::Leaf:
        case Along::Place:
        case Along::Pointwise:
        case Along::Triangle:
        case Along::Copied:
        case Along::Shifted:
        case Along::Reduced:
        case Along::Scanned:
        case Along::RowScan:
        case Along::Normalised:
        case Along::Repeated:
        case Along::Joined:
        case Along::Contracted:
        case Along::Matrix:
        case Along::Pairs:
        case Along::Rows:
            return false;
    }
    return false;
}

bool is_matmul(Opcode code) { return along(code) == Along::Contracted; }

std::vector<bool> depends_on(const Function& fn, const std::vector<ValueId>& roots) {
    std::vector<bool> marked(fn.ops.size(), false);
    for (const ValueId r : roots) marked[static_cast<std::size_t>(r)] = true;
    for (ValueId v = 0; v < fn.size(); ++v)
        for (const ValueId a : fn.op(v).args)
            if (marked[static_cast<std::size_t>(a)]) marked[static_cast<std::size_t>(v)] = true;
    return marked;
}

std::vector<bool> needed_for(const Function& fn, const std::vector<ValueId>& roots) {
    std::vector<bool> marked(fn.ops.size(), false);
    for (const ValueId r : roots) marked[static_cast<std::size_t>(r)] = true;
    for (ValueId v = fn.size() - 1; v >= 0; --v)
        if (marked[static_cast<std::size_t>(v)])
            for (const ValueId a : fn.op(v).args) marked[static_cast<std::size_t>(a)] = true;
    return marked;
}

bool comes_from(const Function& fn, ValueId v, const std::function<bool(ValueId)>& wanted,
                const std::function<bool(ValueId)>& goes_on) {
    std::vector<bool> reached(fn.ops.size(), false);
    reached[static_cast<std::size_t>(v)] = true;
    for (; v >= 0; --v) {
        if (!reached[static_cast<std::size_t>(v)]) continue;
        if (wanted(v)) return true;
        if (!goes_on(v)) continue;
        for (const ValueId a : fn.op(v).args) reached[static_cast<std::size_t>(a)] = true;
    }
    return false;
}

}  // namespace forge::ir
