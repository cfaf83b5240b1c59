/// What is fuzzed: the parser, the graph passes, planning and emission, the C ABI, and manifests of packages. An input
/// is a text and a seed for all else that is chosen, so that a file of it says the whole. A target takes an input or
/// refuses it in words; whatever else happens is a fault.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"

namespace forge::fuzz {

struct Input {
    std::uint64_t seed = 0;
    std::string text;
};
/// "seed 17" and the text from the next line on.
std::string to_string(const Input& input);
Input parse_input(const std::string& file);

enum class Outcome { Accepted, Refused };

/// Something that must not be.
class Fault : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Target {
  public:
    virtual ~Target() = default;
    /// The input that this seed makes.
    [[nodiscard]] virtual Input input(std::uint64_t seed) const = 0;
    /// May throw a CompileError where the text is refused, a RuntimeError or Refused if the target knows options.
    virtual Outcome run(const Input& input) = 0;
    /// Whether only CompileErrors are refusals.
    [[nodiscard]] virtual bool has_options() const { return false; }
};

/// parser, passes, pipeline, capi, package.
const std::vector<std::string>& target_names();
/// RuntimeError for an unknown name.
std::unique_ptr<Target> make_target(const std::string& name);

/// Runs an input; a Fault for anything but success and refusals in words.
Outcome examine(Target& target, const Input& input);

/// A definition that was changed and still parses.
std::string changed_definition(std::uint64_t seed);

std::unique_ptr<Target> parser_target();
std::unique_ptr<Target> passes_target();
std::unique_ptr<Target> pipeline_target();
std::unique_ptr<Target> capi_target();
std::unique_ptr<Target> package_target();

}  // namespace forge::fuzz
