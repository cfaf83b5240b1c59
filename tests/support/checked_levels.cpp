// In every test binary: what each pass makes is legal on its level, whoever compiles (ir/levels.h).
#include "ir/pass.h"

namespace {
[[maybe_unused]] const bool kChecked = forge::ir::checks_levels() = true;
}
