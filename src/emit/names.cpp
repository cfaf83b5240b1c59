#include "emit/names.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "forge/error.h"
#include "ir/text.h"

namespace forge::emit {
namespace {

bool reserved(const std::string& name) {
    static const std::set<std::string> kWords = {
        "alignas", "and", "auto", "bool", "break", "case", "char", "class", "const", "continue", "default", "delete",
        "do", "double", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
        "inline", "int", "long", "mutable", "namespace", "new", "not", "operator", "or", "private", "protected",
        "public", "register", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this",
        "throw", "true", "try", "typedef", "union", "unsigned", "using", "virtual", "void", "volatile", "while", "xor",
        // what emitted kernels and the device library call things
        "call", "at", "row", "rows", "scratch", "index", "work", "i", "i0", "i1", "i2", "i3", "j", "load", "store",
        "broadcast", "gather", "vec", "ivec", "tril", "triu", "eye", "bf16", "f16", "fill", "main", "zero",
        "token_mask", "task", "block", "initial", "final", "spot", "start", "stage", "arrived", "arriving",
        "rows_ahead", "each", "finish", "pack", "join", "mask", "next", "part", "places", "shared", "states", "tensors",
        "turn"};
    return kWords.contains(name) || ir::opcode_named(name).has_value();
}

}  // namespace

std::string cpp_identifier(const std::string& name) {
    std::string id;
    for (const char c : name) id += std::isalnum(static_cast<unsigned char>(c)) || c == '_' ? c : '_';
    if (id.empty() || std::isdigit(static_cast<unsigned char>(id[0]))) id = "v" + id;
    return reserved(id) ? id + "_" : id;
}

std::vector<std::string> cpp_names(const ir::Function& fn) {
    std::vector<std::string> names = ir::value_names(fn);
    std::set<std::string> taken;
    for (std::string& name : names) {
        name = cpp_identifier(name);
        while (taken.contains(name)) name += "_";
        taken.insert(name);
    }
    return names;
}

std::string float_literal(double value) {
    if (std::isnan(value)) return "__builtin_nanf(\"\")";
    if (std::isinf(value)) return value > 0 ? "__builtin_inff()" : "-__builtin_inff()";
    std::string text = fmt::format("{:.9g}", static_cast<float>(value));
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text + "f";
}

std::string storage_type(DType dtype) {
    switch (dtype) {
        case DType::F32:
            return "float";
        case DType::BF16:
            return "bf16";
        case DType::F16:
            return "f16";
        case DType::Bool:
        case DType::I32:
        case DType::I64:
        case DType::F64:
            break;
    }
    throw InternalError("emit: no storage type for " + to_string(dtype));
}

}  // namespace forge::emit
