#include "tests/repository/ops_page.h"

#include <fmt/format.h>

#include <vector>

#include "ir/function.h"

namespace forge::tests {
namespace {

using ir::Opcode;
using Kind = ir::OpInfo::Kind;

constexpr const char* kIntroduction =
    "# Operations\n\n"
    "<!-- Made from include/forge/ops.def by scripts/update-tests; a test checks that it is up to date. -->\n\n"
    "Names and meaning are PyTorch's. Elementwise operations broadcast their operands from the right, and promote "
    "element\n"
    "types as PyTorch does; a number does not widen a tensor. Operators: `+ - * /` are `add sub mul div`. Axes (`dim`) "
    "may be\n"
    "negative in C++; attributes are those of the text form.\n";

std::string cell(std::string text) {
    for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, "\\");
    return text;
}

std::string attributes(unsigned mask) {
    const std::pair<unsigned, const char*> names[] = {
        {ir::kName, "name"},      {ir::kRole, "role"},         {ir::kValue, "value"},     {ir::kDType, "dtype"},
        {ir::kDim, "dim"},        {ir::kStart, "start"},       {ir::kStep, "step"},       {ir::kCount, "count"},
        {ir::kPerm, "perm"},      {ir::kDiagonal, "diagonal"}, {ir::kReverse, "reverse"}, {ir::kExclusive, "exclusive"},
        {ir::kTransA, "trans_a"}, {ir::kTransB, "trans_b"},    {ir::kTri, "tri"},         {ir::kLength, "length"},
        {ir::kAt, "at"}};
    std::string text;
    for (const auto& [bit, name] : names)
        if (mask & bit) text += fmt::format("{}`{}`", text.empty() ? "" : " ", name);
    return text;
}

template <class Wanted>
std::string section(const char* title, Wanted wanted) {
    std::string text =
        fmt::format("\n## {}\n\n| operation | operands | attributes | meaning |\n|---|---|---|---|\n", title);
    for (const Opcode code : ir::all_opcodes()) {
        const ir::OpInfo& op = ir::info(code);
        if (wanted(op))
            text += fmt::format("| `{}` | {} | {} | {} |\n", op.name, op.arity < 0 ? "any" : std::to_string(op.arity),
                                attributes(op.attributes), cell(op.doc));
    }
    return text;
}

/// What no definition writes: passes make it.
bool made_by_the_compiler(const ir::OpInfo& op) {
    const std::string name = op.name, doc = op.doc;
    return doc.find("(made by the compiler)") != std::string::npos || name.rfind("decay_", 0) == 0;
}

}  // namespace

std::string ops_page() {
    const auto of = [](Kind kind) {
        return [kind](const ir::OpInfo& op) { return op.kind == kind && !made_by_the_compiler(op); };
    };
    return kIntroduction + section("Elementwise, one operand", of(Kind::Unary)) +
           section("Elementwise, two operands", of(Kind::Binary)) + section("Comparisons", of(Kind::Compare)) +
           section("Leaves, reductions, scans, shapes, triangles and products", of(Kind::Other)) +
           section("Made by the compiler", made_by_the_compiler);
}

}  // namespace forge::tests
