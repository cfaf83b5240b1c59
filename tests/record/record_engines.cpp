/// Prints the table of docs/performance.md that says which kernels programs get on an H200 (engines.h); or, with the
/// name of a program, its definition as text, which `forge explain FILE` and the like take.
///
///   build/record_engines [NAME]
#include "ir/text.h"
#include "tests/record/engines.h"

namespace {

using forge::novel::recurrences;

int print_definition(const std::string& name) {
    for (const auto* programs : {&forge::variants::all(), &recurrences()})
        for (const forge::variants::Entry& program : *programs)
            if (program.name == name) return fmt::print("{}", forge::ir::print(program.make().define())), 0;
    fmt::print(stderr, "{}: no variant and no recurrence of the literature\n", name);
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1) return print_definition(argv[1]);
    for (const auto* programs : {&forge::variants::all(), &recurrences()})
        for (const std::string& row : forge::tests::engine_rows(*programs)) fmt::print("{}\n", row);
    return 0;
}
