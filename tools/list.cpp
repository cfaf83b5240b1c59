#include <fmt/format.h>

#include "commands.h"
#include "json.h"
#include "variants/variants.h"

namespace forge::tools {

int list_variants(const ListOptions& options) {
    if (options.json) {
        fmt::print("{}\n", json_of(variants::listed()));
        return 0;
    }
    Table table({"variant", "recurrence", "source"});
    for (const variants::Entry& entry : variants::listed()) table.row({entry.name, entry.summary, entry.source});
    fmt::print("{}", table.text());
    return 0;
}

}  // namespace forge::tools
