/// The one table of all passes of all levels (passes.def), and the one runner: it applies a pass, checks that its
/// result is legal on its level (levels.h) where that is asked for, and tells an observer. Whoever drives a part of the
/// compilation takes a runner and calls it for each pass; passes themselves know nothing of it.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "ir/levels.h"

namespace forge::ir {

enum class Pass : std::uint8_t {
#define FORGE_PASS(Enum, name, level, why) Enum,
#include "ir/passes.def"
};

struct PassInfo {
    const char* name;
    Level level;  ///< of its result
    const char* why;
};
const PassInfo& info(Pass pass);
/// In the order in which a program goes through them.
std::span<const Pass> all_passes();
std::optional<Pass> pass_named(const std::string& name);

/// What a pass has made.
struct Passed {
    Pass pass = Pass::Join;
    std::string kernel;  ///< that it is of; empty: the whole program
    Function& fn;        ///< which an observer may replace, as a pass that is wrong would
    double seconds = 0;
    std::string note = {};  ///< what the function does not show: layouts' sizes, roles; the text, of Emit
};
using Observer = std::function<void(const Passed&)>;

class PassRunner {
  public:
    PassRunner() = default;
    explicit PassRunner(Observer observer) : observer_(std::move(observer)) {}

    /// The same for passes over one kernel.
    [[nodiscard]] PassRunner of(std::string kernel) const;
    /// make() returns the function; `note`, called on it, what else there is to tell.
    template <class Make>
    Function run(Pass pass, Make&& make) const {
        const auto begin = std::chrono::steady_clock::now();
        Function fn = make();
        told(pass, fn, begin);
        return fn;
    }
    /// The same for what holds a function among other things: `function_of(result)` is a reference to it.
    template <class Make, class FunctionOf, class Note>
    auto run(Pass pass, Make&& make, FunctionOf&& function_of, Note&& note) const {
        const auto begin = std::chrono::steady_clock::now();
        auto made = make();
        told(pass, function_of(made), begin, observer_ ? note(made) : std::string());
        return made;
    }
    [[nodiscard]] bool observed() const { return static_cast<bool>(observer_); }

  private:
    using Clock = std::chrono::steady_clock;
    void told(Pass pass, Function& fn, Clock::time_point begin, std::string note = {}) const;

    Observer observer_;
    std::string kernel_;
};

/// Whether every result of a pass is checked, observed or not: in debug builds, and where tests set it.
bool& checks_levels();

}  // namespace forge::ir
