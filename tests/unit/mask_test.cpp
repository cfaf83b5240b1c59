/// Masks of compositions: what they are taken apart into, and that functions in C++ and in text make the same variant.
#include "frontend/mask.h"

#include <gtest/gtest.h>

#include "forge/compose.h"
#include "ir/text.h"

namespace forge {
namespace {

using frontend::Mask;

ir::InputDecl per_head(const std::string& name) { return {name, ir::Role::Head, {F32, {}}, 0, {}, {}}; }
ir::InputDecl per_token(const std::string& name) {
    return {name, ir::Role::Input, {F32, {Dim("T"), Dim("H")}}, 0, {}, {}};
}

/// Of an expression in text form: lines with %i, %j and %slope, the last one %m.
Mask mask_of(const std::string& lines) {
    return frontend::decomposed(ir::parse_function("func @mask {\n"
                                                   "%i: f32[] = param() {name=\"i\", role=input}\n"
                                                   "%j: f32[] = param() {name=\"j\", role=input}\n"
                                                   "%slope: f32[] = param() {name=\"slope\", role=head}\n"
                                                   "%one: f32[] = constant() {value=1}\n"
                                                   "%n: f32[] = constant() {value=16}\n"
                                                   "%d: f32[] = sub(%i, %j)\n" +
                                                   lines + "return input \"mask\" = %m\n}"),
                                {per_head("slope"), per_token("x")});
}

struct Near {
    const char *condition, *text;
    std::int64_t window;
};

TEST(Mask, WindowsEndWhereComparisonsOfDistancesDo) {
    for (const auto& [condition, operands, window] :
         {Near{"lt", "%d, %n", 16}, Near{"le", "%d, %n", 17}, Near{"eq", "%d, %n", 17}, Near{"gt", "%n, %d", 16},
          Near{"ge", "%n, %d", 17}}) {
        const Mask mask =
            mask_of("%c: bool[] = " + std::string(condition) + "(" + operands + ")\n" +
                    "%x: f32[] = add(%one, %d)\n%r: f32[] = reciprocal(%x)\n%z: f32[] = constant() {value=0}\n"
                    "%m: f32[] = where(%c, %r, %z)\n");
        EXPECT_EQ(mask.window, window) << condition;
        EXPECT_TRUE(mask.terms.empty()) << condition;
        EXPECT_FALSE(mask.reads_places) << condition;
    }
}

TEST(Mask, WhatIsFarIsASumOfTerms) {
    const Mask far = mask_of(
        "%c: bool[] = ge(%d, %n)\n%e: f32[] = mul(%slope, %d)\n%k: f32[] = neg(%e)\n"
        "%x: f32[] = exp(%k)\n%r: f32[] = pow(%d, %slope)\n%m: f32[] = where(%c, %x, %r)\n");
    EXPECT_EQ(far.window, 16);
    ASSERT_EQ(far.terms.size(), 1u);
    EXPECT_EQ(far.terms[0].decays.size(), 1u);
    EXPECT_TRUE(far.terms[0].query.empty() && far.terms[0].key.empty());
    EXPECT_FALSE(far.reads_places);
    const Mask waves = mask_of("%a: f32[] = mul(%slope, %d)\n%m: f32[] = cos(%a)\n");
    EXPECT_EQ(waves.window, 0);
    EXPECT_EQ(waves.terms.size(), 2u);
    EXPECT_TRUE(waves.reads_places);
}

TEST(Mask, BlocksAreDecaysWhereTheyCan) {
    const std::string same =
        "%a: f32[] = div(%i, %n)\n%b: f32[] = div(%j, %n)\n%p: f32[] = floor(%a)\n"
        "%q: f32[] = floor(%b)\n%c: bool[] = eq(%p, %q)\n%z: f32[] = constant() {value=0}\n";
    const Mask alone = mask_of(same + "%m: f32[] = where(%c, %one, %z)\n");
    EXPECT_EQ(alone.window, 0);
    ASSERT_EQ(alone.terms.size(), 1u);
    EXPECT_EQ(alone.terms[0].decays.size(), 1u);
    const Mask anything = mask_of(same + "%r: f32[] = pow(%d, %slope)\n%m: f32[] = where(%c, %r, %z)\n");
    EXPECT_EQ(anything.window, 16);
    EXPECT_TRUE(anything.terms.empty());
    EXPECT_TRUE(anything.reads_places);
}

std::string refusal_of_mask(const std::string& lines) {
    try {
        mask_of(lines);
    } catch (const CompileError& refused) {
        return refused.what();
    }
    return "";
}

TEST(Mask, SaysWhatDoesNotDecompose) {
    const std::string power = refusal_of_mask("%m: f32[] = pow(%d, %slope)\n");
    EXPECT_NE(power.find("mask: pow of both places is no sum of products of one of i and one of j"), std::string::npos)
        << power;
    EXPECT_NE(power.find("say where it ends"), std::string::npos) << power;
    const std::string bell = refusal_of_mask("%a: f32[] = mul(%d, %d)\n%m: f32[] = exp(%a)\n");
    EXPECT_NE(bell.find("mask: exp of what is no sum of a function of i and one of j"), std::string::npos) << bell;
}

TEST(Mask, IsTheSameInTextAndInCpp) {
    auto [H] = dims("H");
    Composition own{.features = "elu", .normalise = "sum", .name = "mine"};
    own.mask = {{"i", "j", "slope"}, [](const std::vector<Tensor>& x) {
                    return where(lt(x[0] - x[1], 4.0), 1.0, exp(x[2] * (x[1] - x[0])));
                }};
    own.inputs = {{"slope", {H}, kZeroToOne}};
    const std::string text = R"(head slope: f32[H] range=[0, 1]
        func @mask {
          %i: f32[] = param() {name="i", role=input}
          %j: f32[] = param() {name="j", role=input}
          %slope: f32[] = param() {name="slope", role=head}
          %d: f32[] = sub(%i, %j)
          %four: f32[] = constant() {value=4}
          %near: bool[] = lt(%d, %four)
          %back: f32[] = sub(%j, %i)
          %e: f32[] = mul(%slope, %back)
          %far: f32[] = exp(%e)
          %one: f32[] = constant() {value=1}
          %m: f32[] = where(%near, %one, %far)
          return input "mask" = %m
        })";
    const Composition written =
        composition_of({{"features", "elu"}, {"normalise", "sum"}, {"name", "mine"}, {"functions", text}});
    const auto inputs = [](const Composition& c) {
        const ir::Definition def = compose(c).define();
        std::string all;
        for (const auto& in : def.inputs) all += in.name + " ";
        for (const auto& s : def.states) all += s.name + to_string(s.type) + " ";
        for (const ir::Function* fn : {&def.chunk, &def.decay, &def.merge, &*def.step})
            all += std::to_string(fn->size()) + " ";
        return all;
    };
    EXPECT_EQ(inputs(own), inputs(written));
    EXPECT_THROW(
        composition_of({{"functions", "func @maks { %x: f32[] = constant() {value=1} return input \"m\" = %x }"}}),
        RuntimeError);
}

TEST(Transition, OfOnesOwnTakesThePlaceOfADecay) {
    auto [T, H, K] = dims("T", "H", "K");
    Composition own{};
    own.transition = {{"g", "a"}, [](const std::vector<Tensor>& x) -> Results {
                          return {{"diagonal", exp(x[0])}, {"left", -x[1]}, {"right", x[1]}};
                      }};
    own.inputs = {{"g", {T, H, K}, kLogDecays}, {"a", {T, H, K}}};
    const ir::Definition def = compose(own).define();
    EXPECT_EQ(def.name, "composed_moved");
    EXPECT_EQ(def.inputs.size(), 5u);
    own.decay = "scalar";
    EXPECT_EQ(composition_refusal(own), "a transition takes the place of decay='scalar'; multiply its diagonal by it");
}

}  // namespace
}  // namespace forge
