#include "ir/function.h"

#include <fmt/format.h>

#include <array>
#include <map>

#include "forge/error.h"

namespace forge::ir {
namespace {

using Kind = OpInfo::Kind;

constexpr std::array kInfo = {
#define FORGE_OP(Enum, name, arity, attributes, doc) OpInfo{#name, arity, attributes, doc, Kind::Other},
#define FORGE_UNARY(Enum, name, formula, doc) OpInfo{#name, 1, kNoAttr, doc, Kind::Unary},
#define FORGE_BINARY(Enum, name, formula, doc) OpInfo{#name, 2, kNoAttr, doc, Kind::Binary},
#define FORGE_COMPARE(Enum, name, formula, doc) OpInfo{#name, 2, kNoAttr, doc, Kind::Compare},
#include "forge/ops.def"
};

constexpr std::array kAll = {
#define FORGE_OP(Enum, name, arity, attributes, doc) Opcode::Enum,
#include "forge/ops.def"
};

}  // namespace

const OpInfo& info(Opcode code) { return kInfo[static_cast<std::size_t>(code)]; }

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

bool is_elementwise(Opcode code) {
    return info(code).kind != Kind::Other || code == Opcode::Where || code == Opcode::To ||
           code == Opcode::CacheResult || code == Opcode::Tril || code == Opcode::Triu;
}

bool is_view(Opcode code) {
    return code == Opcode::Permute || code == Opcode::Unsqueeze || code == Opcode::Squeeze || code == Opcode::Select ||
           code == Opcode::Slice || code == Opcode::Part || code == Opcode::Expand;
}

bool is_matmul(Opcode code) {
    return code == Opcode::Matmul || code == Opcode::MatmulOutFp32 || code == Opcode::MatmulAdd ||
           code == Opcode::MatmulSub;
}

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

}  // namespace forge::ir
