// Manifests of packages: refused in words, or whatever they say can be bound, laid out, looked up and printed. A
// quarter of the inputs are files whose bytes were damaged after they were sealed: those are never taken.
#include <fmt/format.h>

#include "compile/driver.h"
#include "emit/callable.h"
#include "ir/text.h"
#include "package/table.h"
#include "rt/dispatch.h"
#include "rt/seal.h"
#include "runtime/binding.h"
#include "runtime/cpu_kernels.h"
#include "runtime/device_call.h"
#include "tests/fuzz/targets.h"

namespace forge::fuzz {
namespace {

/// Of a definition's entry points on a CPU and a GPU that is not there. Nothing is compiled.
std::string manifest_of(const std::string& definition_text) {
    const ir::Definition definition = ir::parse_definition(definition_text);
    const program::Module module(definition, BF16);
    rt::Manifest manifest;
    manifest.name = "fuzzed", manifest.build = "none";
    manifest.targets = {{"x86-64", "x86-64.so"}, {"sm_90a", ""}};
    manifest.definitions = {{definition.name, definition_text}};
    for (const char* entry : {"forward", "decode"}) {
        const int number = static_cast<int>(manifest.entries.size());
        manifest.entries.push_back({0, entry, {{"K", 0, 2, 1}}, 0});
        for (int target = 0; target < 2; ++target) {
            std::vector<package::Cell> cells;
            for (const std::int64_t size : {64, 128}) {
                CompileOptions options{.entry = entry, .sizes = {{"K", size}, {"V", size}}, .isa = "plain"};
                if (target == 1) options.device = "cuda", options.on = "h200";
                options.tuned = false;
                const auto plan = compiler::emitted(module, options);
                const int kernels = static_cast<int>(manifest.kernels.size());
                cells.push_back({{static_cast<std::int64_t>(BF16), size, 100, 4}, kernels});
                manifest.kernels.push_back({number, target, BF16, {size}, "a schedule", "", "file", plan->callable});
            }
            rt::Table table = package::table_of(cells, 4);
            table.entry = number, table.target = target;
            manifest.tables.push_back(std::move(table));
        }
    }
    return rt::print(manifest);
}

const std::vector<std::string>& manifests() {
    static const std::vector<std::string> kTexts = [] {
        std::vector<std::string> texts;
        for (const std::size_t n : {std::size_t{0}, std::size_t{3}, std::size_t{9}})
            texts.push_back(manifest_of(valid_definitions().at(n)));
        return texts;
    }();
    return kTexts;
}

/// RuntimeErrors are for bounds that no workspace is large enough for.
void lay_out(const runtime::Callable& callable, const Bounds& bounds) try {
    const runtime::CpuKernels kernels(callable, {}, nullptr, nullptr, 4);
    static_cast<void>(kernels.workspace_bytes(bounds));
    static_cast<void>(runtime::device_workspace_bytes(callable, runtime::bind(callable, bounds)));
} catch (const RuntimeError& error) {
    if (std::string(error.what()).empty()) throw Fault("a refusal without words");
}

class PackageTarget : public Target {
  public:
    [[nodiscard]] Input input(std::uint64_t seed) const override { return {seed, Mutator(manifests(), seed).next()}; }

    Outcome run(const Input& input) override {
        Dice dice(input.seed);
        if (dice.one_in(4)) expect_damage(dice, input.text);
        const rt::Manifest manifest = rt::parse_manifest(input.text, "manifest.json");
        const std::string printed = rt::print(manifest);
        if (rt::print(rt::parse_manifest(printed, "printed")) != printed) throw Fault("what prints reads as another");
        static_cast<void>(rt::explain(manifest));
        for (const rt::Compiled& kernels : manifest.kernels) {
            lay_out(kernels.callable, {3, 100, 4, dice.one_in(2)});
            lay_out(kernels.callable, {extreme_number(dice), extreme_number(dice), extreme_number(dice), true});
        }
        for (const rt::Table& table : manifest.tables) look_up(dice, manifest, table);
        return Outcome::Accepted;
    }

    [[nodiscard]] bool has_options() const override { return true; }

  private:
    static void look_up(Dice& dice, const rt::Manifest& manifest, const rt::Table& table) {
        rt::Features features;
        features.symbols = static_cast<int>(manifest.entries[static_cast<std::size_t>(table.entry)].symbols.size());
        for (std::int64_t& value : features.values) value = extreme_number(dice);
        if (rt::look_up(table, features) >= manifest.kernels.size()) throw Fault("a table leads nowhere");
    }

    static void expect_damage(Dice& dice, const std::string& text) {
        std::string file = rt::sealed(text);
        if (dice.one_in(2)) file.resize(dice.below(file.size()));
        else file[dice.below(file.size() - 1)] ^= static_cast<char>(1U << dice.below(8));
        try {
            rt::check_seal(file, "file");
        } catch (const RuntimeError&) {
            return;
        }
        throw Fault("a damaged file is taken for whole");
    }
};

}  // namespace

std::unique_ptr<Target> package_target() { return std::make_unique<PackageTarget>(); }

}  // namespace forge::fuzz
