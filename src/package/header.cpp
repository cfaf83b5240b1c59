// The C header of a package: plain structs, and inline functions that put them in the order that libforge_rt takes.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "package/build.h"
#include "program/entry_point.h"

namespace forge::package {
namespace {

/// A tensor of a call: its place in the struct and what it is.
struct Field {
    std::string name, about;
};

/// Words that name no member in C or C++.
constexpr std::array kReserved = {
    "alignas",  "alignof",  "and",     "asm",      "auto",     "bool",     "break",     "case",      "catch",
    "char",     "class",    "concept", "const",    "continue", "decltype", "default",   "delete",    "do",
    "double",   "else",     "enum",    "explicit", "export",   "extern",   "false",     "float",     "for",
    "friend",   "goto",     "if",      "inline",   "int",      "long",     "mutable",   "namespace", "new",
    "noexcept", "not",      "nullptr", "operator", "or",       "private",  "protected", "public",    "register",
    "requires", "restrict", "return",  "short",    "signed",   "sizeof",   "static",    "struct",    "switch",
    "template", "this",     "throw",   "true",     "try",      "typedef",  "typeid",    "typename",  "union",
    "unsigned", "using",    "virtual", "void",     "volatile", "while",    "xor",       "call"};

std::string member(const std::string& name) {
    return std::find(kReserved.begin(), kReserved.end(), name) == kReserved.end() ? name : name + "_";
}

/// "backward of q, k" as a part of a C name.
std::string identifier(const std::string& text) {
    std::string name;
    for (const char c : text)
        if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') name += c;
        else if (!name.empty() && name.back() != '_') name += '_';
    return name;
}

std::string shape_of(const char* leading, const ir::Type& type) {
    const std::string text = to_string(type.shape);
    return to_string(type.dtype) + "[" + leading + text.substr(1);
}

/// In the order of a plan's tensors.
std::vector<Field> tensors_of(const ir::Definition& def) {
    std::vector<Field> fields;
    for (const ir::InputDecl& in : def.inputs)
        if (in.role != ir::Role::Scalar)
            fields.push_back({member(in.name), shape_of(in.role == ir::Role::Head ? "" : "B, ", in.type)});
    for (const ir::OutputDecl& out : def.outputs) fields.push_back({member(out.name), shape_of("B, ", out.type)});
    for (const char* prefix : {"initial_", "final_"}) {
        for (const ir::StateDecl& s : def.states)
            fields.push_back({prefix + s.name, shape_of("N, heads, ", {DType::F32, s.type.shape}) + ", or absent"});
        for (const ir::LastRows& last : ir::last_rows(def))
            fields.push_back({prefix + last.name, "f32[N, heads, ...], or absent"});
    }
    return fields;
}

std::string functions_of(const std::string& package, const ir::Definition& declared, const std::string& entry) {
    const ir::Definition def = program::tensors_of(entry, declared);
    const std::string name = fmt::format("{}_{}_{}", package, declared.name, identifier(entry));
    const std::vector<Field> tensors = tensors_of(def);
    std::vector<std::string> scalars, names;
    for (const ir::InputDecl& in : def.inputs)
        if (in.role == ir::Role::Scalar) scalars.push_back(member(in.name));
    std::string text = fmt::format(
        "\n/// {} of {}. 16-bit types stand for any that the package has.\n"
        "typedef struct {}_args {{\n",
        entry, declared.name, name);
    for (const Field& field : tensors) {
        text += fmt::format("    forge_tensor {}; /* {} */\n", field.name, field.about);
        names.push_back("args->" + field.name);
    }
    for (const std::string& scalar : scalars) text += fmt::format("    double {};\n", scalar);
    text += fmt::format(
        "    forge_args call; /* cu_seqlens, slots of states, workspace, stream, threads; the rest is filled in */\n"
        "}} {0}_args;\n\n"
        "static inline forge_status {0}_find(const forge_rt_package* package, const forge_rt_entry** entry) {{\n"
        "    return forge_rt_find(package, \"{1}\", \"{2}\", entry);\n}}\n\n",
        name, declared.name, entry);
    text += fmt::format("static inline forge_status {0}(const forge_rt_entry* entry, const {0}_args* args) {{\n", name);
    text += fmt::format("    forge_tensor tensors[{}];\n", tensors.size());
    if (!scalars.empty()) text += fmt::format("    double scalars[{}];\n", scalars.size());
    text += "    forge_args call = args->call;\n";
    for (std::size_t i = 0; i < names.size(); ++i) text += fmt::format("    tensors[{}] = {};\n", i, names[i]);
    for (std::size_t i = 0; i < scalars.size(); ++i)
        text += fmt::format("    scalars[{}] = args->{};\n", i, scalars[i]);
    text += fmt::format(
        "    call.struct_size = sizeof call;\n    call.tensors = tensors;\n    call.tensor_count = {};\n"
        "    call.scalars = {};\n    call.scalar_count = {};\n    return forge_rt_launch(entry, &call);\n}}\n",
        tensors.size(), scalars.empty() ? "NULL" : "scalars", scalars.size());
    return text;
}

}  // namespace

std::string header_of(const std::string& name, const std::vector<ir::Definition>& definitions,
                      const std::vector<std::string>& entries) {
    std::string text = fmt::format(
        "/// Package {0}: a function for each entry point, by libforge_rt. Made by forge build; do not edit.\n///\n"
        "/// SPDX-License-Identifier: Apache-2.0\n#ifndef FORGE_PACKAGE_{0}_H\n#define FORGE_PACKAGE_{0}_H\n\n"
        "#include \"forge_rt.h\"\n\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n",
        name);
    for (const ir::Definition& definition : definitions)
        for (const std::string& entry : entries) text += functions_of(name, definition, entry);
    return text + "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
}

}  // namespace forge::package
