#include "support/reasons.h"

namespace forge {

const std::vector<ReasonRow>& reasons() {
    static const std::vector<ReasonRow> kReasons = {
#define FORGE_REASON(Name, engine, why, way_out) {#Name, engine, why, way_out},
#include "support/reasons.def"
    };
    return kReasons;
}

std::string to_string(const Refusal& r) {
    return r.engine + ": " + r.why + (r.way_out.empty() ? "" : "; way out: " + r.way_out);
}

}  // namespace forge
