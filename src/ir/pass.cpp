#include "ir/pass.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "forge/error.h"
#include "ir/text.h"

namespace forge::ir {
namespace {

constexpr std::array kPasses = {
#define FORGE_PASS(Enum, name, level, why) PassInfo{name, Level::level, why},
#include "ir/passes.def"
};

constexpr std::array kAllPasses = {
#define FORGE_PASS(Enum, name, level, why) Pass::Enum,
#include "ir/passes.def"
};

}  // namespace

const PassInfo& info(Pass pass) { return kPasses[static_cast<std::size_t>(pass)]; }

std::span<const Pass> all_passes() { return kAllPasses; }

std::optional<Pass> pass_named(const std::string& name) {
    for (const Pass pass : kAllPasses)
        if (name == info(pass).name) return pass;
    return std::nullopt;
}

PassRunner PassRunner::of(std::string kernel) const {
    PassRunner runner = *this;
    runner.kernel_ = std::move(kernel);
    return runner;
}

void PassRunner::told(Pass pass, Function& fn, Clock::time_point begin, std::string note) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (checks_levels())
        if (const auto found = faults(fn, info(pass).level); !found.empty())
            throw InternalError(fmt::format("after the pass {}{}: {}\n{}", info(pass).name,
                                            kernel_.empty() ? "" : fmt::format(" of kernel {}", kernel_),
                                            fmt::join(found, "; "), is_whole(fn) ? print(fn) : ""));
    if (observer_) observer_({pass, kernel_, fn, seconds, std::move(note)});
}

bool& checks_levels() {
#ifdef FORGE_CHECK_LEVELS
    static bool checks = true;
#else
    static bool checks = false;
#endif
    return checks;
}

}  // namespace forge::ir
