#include "emit/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <string_view>

#include "forge/error.h"
#include "ir/text.h"

namespace forge::emit {
namespace {

/// Nothing in the language, its libraries' macros, the device library or the emitters begins like this.
constexpr const char* kPrefix = "t_";

/// What emitters put behind a name, after an underscore, to name what they make of the value or tensor.
constexpr std::string_view kEndings[] = {"after", "ahead",  "in",      "initial", "j",    "map",   "next",
                                         "out",   "packed", "passing", "row",     "rows", "tokens"};

/// Whether a name could be taken for another one with an ending, or with the number of a value of the same name.
bool is_ambiguous(const std::string& name) {
    const std::string_view last = std::string_view(name).substr(name.rfind('_') + 1);
    return name.find('_') != std::string::npos &&
           (std::all_of(last.begin(), last.end(), [](unsigned char c) { return std::isdigit(c); }) ||
            std::find(std::begin(kEndings), std::end(kEndings), last) != std::end(kEndings));
}

}  // namespace

std::string cpp_identifier(const std::string& name) { return kPrefix + name + (is_ambiguous(name) ? "_" : ""); }

std::vector<std::string> cpp_names(const ir::Function& fn) {
    std::vector<std::string> names = ir::value_names(fn);
    for (std::string& name : names) {
        const std::size_t dot = name.find('.');  // before the number of a name that several values have
        if (std::isdigit(static_cast<unsigned char>(name[0]))) name = "v" + name;
        else if (dot == std::string::npos) name = cpp_identifier(name);
        else name = cpp_identifier(name.substr(0, dot)) + "_" + name.substr(dot + 1);
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
