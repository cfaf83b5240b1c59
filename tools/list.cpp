#include <fmt/format.h>

#include "commands.h"
#include "json.h"
#include "variants/variants.h"

namespace forge::tools {

int list_variants(const ListOptions& options) {
    if (options.json) {
        std::vector<variants::Entry> entries = variants::all();
        entries.insert(entries.end(), variants::objectives().begin(), variants::objectives().end());
        fmt::print("{}\n", json_of(entries));
        return 0;
    }
    Table table({"variant", "recurrence", "source"});
    for (const auto* list : {&variants::all(), &variants::objectives()})
        for (const variants::Entry& entry : *list) table.row({entry.name, entry.summary, entry.source});
    fmt::print("{}", table.text());
    return 0;
}

}  // namespace forge::tools
