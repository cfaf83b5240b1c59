#include "forge/compose.h"

#include <fmt/format.h>

#include <fstream>

#include "commands.h"
#include "ir/text.h"

namespace forge::tools {

std::string ComposeOptions::variant() const {
    std::string text = kComposed;
    for (const auto& [part, choice] : chosen)
        text += fmt::format("{}{}={}", text == kComposed ? "" : ",", part, choice);
    return text;
}

int compose_variant(const ComposeOptions& options) {
    if (options.list) {
        Table table({"part", "choice", "what it is"});
        for (const CompositionPart& part : composition_parts()) {
            table.row({"--" + part.name, "", part.meaning});
            for (const auto& choice : part.choices) table.row({"", choice.name, choice.meaning});
        }
        fmt::print("{}", table.text());
        return 0;
    }
    if (options.check) {
        CheckOptions check;
        check.variants = {options.variant()};
        return check_variants(check);
    }
    if (options.explain) {
        ExplainOptions explain;
        explain.variant = options.variant();
        return explain_variant(explain);
    }
    const std::string text = ir::print(composed(options.chosen));
    if (options.output.empty()) {
        fmt::print("{}", text);
        return 0;
    }
    std::ofstream file(options.output, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw RuntimeError(fmt::format("cannot write '{}'", options.output));
    fmt::print("{}\n", options.output);
    return 0;
}

}  // namespace forge::tools
