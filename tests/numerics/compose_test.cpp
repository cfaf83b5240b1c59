/// Variants of named parts: every combination is refused with a reason, or is a definition whose derived phases are its
/// recurrence, in float64; some have the gradients too. tests/python/test_compose.py compiles some.
#include "forge/compose.h"

#include <cmath>

#include "frontend/join.h"
#include "graph/derive.h"
#include "interp/recurrence.h"
#include "interp/semantics.h"
#include "program/backward.h"
#include "tests/numerics/numerics.h"

namespace forge::tests {
namespace {

/// Every choice with every other, the last part fastest.
std::vector<Composition> all_compositions() {
    std::vector<Composition> all = {{}};
    for (const CompositionPart& part : composition_parts()) {
        std::vector<Composition> more;
        for (const Composition& c : all)
            for (const auto& choice : part.choices) more.emplace_back(c).*part.chosen = choice.name;
        all = std::move(more);
    }
    return all;
}

double largest_difference(const interp::Outcome& got, const interp::Outcome& expected) {
    double worst = 0;
    const auto compare = [&](const interp::Bindings& a, const interp::Bindings& b) {
        for (const auto& [name, value] : b)
            worst = std::max(worst, a.contains(name) ? interp::relative_difference(value, a.at(name)) : HUGE_VAL);
    };
    compare(got.outputs, expected.outputs);
    compare(got.states, expected.states);
    return worst;
}

TEST(Compose, EveryCombinationIsARecurrenceOrRefused) {
    constexpr std::int64_t kChunk = 4, kTokens = 7;
    int made = 0, refused = 0;
    for (const Composition& chosen : all_compositions()) {
        if (const std::string reason = composition_refusal(chosen); !reason.empty()) {
            EXPECT_THROW(compose(chosen), RuntimeError) << reason;
            ++refused;
            continue;
        }
        ++made;
        const ir::Definition def = graph::with_phases(compose(chosen).define());
        interp::Sizes sizes = interp::small_sizes(def, kChunk);
        const interp::Sequence sequence = interp::random_sequence(def, sizes, kTokens, 7);
        EXPECT_LT(largest_difference(interp::run_phases(def, sequence, sizes), interp::run_steps(def, sequence, sizes)),
                  1e-9)
            << def.name;
    }
    EXPECT_EQ(made, 1390);
    EXPECT_EQ(refused, 4490);
}

TEST(Compose, SomeHaveTheGradientsOfTheirRecurrence) {
    const std::vector<Composition> some = {
        {.decay = "value", .update = "oja"},
        {.decay = "scalar", .features = "elu", .update = "oja", .read = "before"},
        {.decay = "scalar", .features = "rotary-data", .update = "mimo", .discretise = "trapezoidal", .rank = 3},
        {.decay = "vector", .features = "softmax", .normalise = "sum", .discretise = "trapezoidal"},
    };
    for (const Composition& chosen : some) {
        const ir::Definition def = graph::with_phases(compose(chosen).define());
        const program::Backward by_step = program::step_backward(def), by_chunks = program::backward_of(def);
        const interp::Sizes sizes = interp::small_sizes(def, 4);
        interp::Sequence all = interp::random_sequence(def, sizes, 11, 3);
        const interp::Outcome forwards = interp::run_steps(def, all, sizes);
        const auto given = [](const interp::Bindings& values, interp::Bindings& into) {
            for (auto [name, value] : values) {
                double x = 0.5;
                for (double& g : value.data) g = x = std::sin(3 * x + 1);
                into["grad_" + name] = value;
            }
        };
        given(forwards.outputs, all.inputs), given(forwards.states, all.initial_states);
        EXPECT_LT(largest_difference(interp::run_program_gradient(
                                         {def, by_chunks.interface, by_chunks.program, by_chunks.adjoint}, all, sizes),
                                     interp::run_step_gradient(
                                         {def, by_step.interface, by_step.program, by_step.adjoint}, all, sizes)),
                  1e-9)
            << def.name;
    }
}

std::string message_of(const std::function<void()>& wrong) {
    try {
        wrong();
    } catch (const RuntimeError& error) {
        return error.what();
    }
    return "";
}

TEST(Compose, SaysWhatThereIs) {
    EXPECT_EQ(message_of([] { compose({.decay = "row"}); }),
              "compose: argument 'decay': expected none, head, scalar, vector, value, got 'row'");
    EXPECT_EQ(message_of([] { compose({.decay = "vector", .update = "oja"}); }),
              "compose: update='oja' reads the state with a value, and rows that decay apart have no common system");
    EXPECT_EQ(message_of([] { compose({.update = "mimo", .rank = 1}); }),
              "compose: argument 'rank': expected 2 to 8 keys per token, got 1");
    EXPECT_EQ(message_of([] { composition_of({{"decays", "none"}}); }),
              "compose: expected one of decay, gate, features, update, read, normalise, discretise, rank, name; got "
              "'decays'");
    EXPECT_EQ(message_of([] { composition_of({{"rank", "two"}}); }),
              "compose: argument 'rank': expected a number of keys per token, got 'two'");
    const Composition made = composition_of({{"update", "mimo"}, {"rank", "3"}, {"name", "mine"}});
    EXPECT_EQ(compose(made).define().name, "mine");
    EXPECT_EQ(compose(made).define().input("k")->type.shape[0], 3 * Dim("T"));
}

}  // namespace
}  // namespace forge::tests
