#include "forge/error.h"

namespace forge {
namespace {

std::string join(const std::vector<Diagnostic>& diagnostics) {
    std::string text;
    for (const Diagnostic& d : diagnostics) {
        if (!text.empty()) text += '\n';
        text += to_string(d);
    }
    return text;
}

}  // namespace

std::string to_string(const Diagnostic& d) {
    std::string text = (d.where.known() ? to_string(d.where) + ": " : std::string()) + "error: " + d.what;
    if (!d.expected.empty()) text += "\n    expected: " + d.expected;
    if (!d.got.empty()) text += "\n    got:      " + d.got;
    if (!d.hint.empty()) text += "\n    hint:     " + d.hint;
    return text;
}

CompileError::CompileError(std::vector<Diagnostic> diagnostics)
    : std::runtime_error(join(diagnostics)), diagnostics_(std::move(diagnostics)) {}

CompileError::CompileError(Diagnostic diagnostic) : CompileError(std::vector{std::move(diagnostic)}) {}

}  // namespace forge
