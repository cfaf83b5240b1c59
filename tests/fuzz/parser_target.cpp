// Texts: parsed or refused, and what is parsed prints and parses to the same.
#include <fmt/format.h>

#include "forge/error.h"
#include "ir/text.h"
#include "tests/fuzz/targets.h"

namespace forge::fuzz {
namespace {

template <class Parse>
void expect_round_trip(const std::string& text, Parse parse) {
    const auto parsed = parse(text);
    for (const bool locations : {false, true}) {
        const std::string printed = ir::print(parsed, {.locations = locations});
        try {
            const std::string again = ir::print(parse(printed), {.locations = locations});
            if (again != printed)
                throw Fault(fmt::format("what prints parses to something else:\n{}\nbecomes\n{}", printed, again));
        } catch (const CompileError& error) {
            throw Fault(fmt::format("what prints does not parse: {}\n{}", error.what(), printed));
        }
    }
}

class ParserTarget : public Target {
  public:
    [[nodiscard]] Input input(std::uint64_t seed) const override { return {seed, Mutator(valid_texts(), seed).next()}; }

    Outcome run(const Input& input) override {
        if (ir::is_definition(input.text))
            expect_round_trip(input.text, [](const std::string& text) { return ir::parse_definition(text); });
        else expect_round_trip(input.text, [](const std::string& text) { return ir::parse_function(text); });
        return Outcome::Accepted;
    }
};

}  // namespace

std::unique_ptr<Target> parser_target() { return std::make_unique<ParserTarget>(); }

}  // namespace forge::fuzz
