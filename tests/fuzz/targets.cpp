#include "tests/fuzz/targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <typeinfo>

#include "forge/error.h"
#include "ir/text.h"
#include "support/reasons.h"

namespace forge::fuzz {
namespace {

constexpr const char* kSeedWord = "seed ";

/// Refusals say something, and do not blame Forge.
Outcome refused(const std::string& words) {
    if (words.empty()) throw Fault("a refusal without words");
    if (words.find("bug in Forge") != std::string::npos) throw Fault(words);
    return Outcome::Refused;
}

struct Row {
    const char* name;
    std::unique_ptr<Target> (*make)();
};
constexpr Row kTargets[] = {{"parser", parser_target},
                            {"passes", passes_target},
                            {"pipeline", pipeline_target},
                            {"capi", capi_target},
                            {"package", package_target}};

}  // namespace

std::string to_string(const Input& input) { return kSeedWord + std::to_string(input.seed) + "\n" + input.text; }

Input parse_input(const std::string& file) {
    const std::string word = kSeedWord;
    const std::size_t end = file.find('\n');
    if (!file.starts_with(word) || end == std::string::npos)
        throw RuntimeError("an input: expected 'seed N' in its first line");
    return {std::stoull(file.substr(word.size(), end - word.size())), file.substr(end + 1)};
}

const std::vector<std::string>& target_names() {
    static const std::vector<std::string> kNames = [] {
        std::vector<std::string> names;
        for (const Row& row : kTargets) names.emplace_back(row.name);
        return names;
    }();
    return kNames;
}

std::unique_ptr<Target> make_target(const std::string& name) {
    for (const Row& row : kTargets)
        if (name == row.name) return row.make();
    throw RuntimeError(fmt::format("'{}': expected one of {}", name, fmt::join(target_names(), ", ")));
}

Outcome examine(Target& target, const Input& input) {
    try {
        return target.run(input);
    } catch (const Fault&) {
        throw;
    } catch (const CompileError& error) {
        if (error.diagnostics().empty()) throw Fault("a CompileError without diagnostics");
        return refused(error.what());
    } catch (const RuntimeError& error) {
        if (target.has_options()) return refused(error.what());
        throw Fault(fmt::format("a RuntimeError: {}", error.what()));
    } catch (const Refused& error) {
        if (target.has_options()) return refused(error.what());
        throw Fault(fmt::format("an engine's refusal: {}", error.what()));
    } catch (const std::exception& error) {
        throw Fault(fmt::format("{}: {}", typeid(error).name(), error.what()));
    }
}

std::string changed_definition(std::uint64_t seed) {
    constexpr int kAttempts = 200;
    Mutator mutator(valid_definitions(), seed);
    for (int i = 0; i < kAttempts; ++i) {
        std::string text = mutator.next();
        try {
            static_cast<void>(ir::parse_definition(text));
            return text;
        } catch (const CompileError&) {}
    }
    return valid_definitions()[seed % valid_definitions().size()];
}

}  // namespace forge::fuzz
