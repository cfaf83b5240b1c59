/// Why an engine cannot have a program, in words, and what would change that. src/support/reasons.def has all of them.
#pragma once

#include <string>

namespace forge {

struct Refusal {
    std::string engine;  ///< what was considered: channels, warp-groups, warps, or roles (several warp groups per task)
    std::string reason;  ///< its name in the table: SizeOfAxis
    std::string why;     ///< "the size 12 of axis V is no multiple of 64"
    std::string way_out;  ///< "pad it to 128"; empty where there is none
};
/// "warp-groups: the size 12 of axis V is no multiple of 64; way out: pad it to 64".
std::string to_string(const Refusal& refusal);

}  // namespace forge
