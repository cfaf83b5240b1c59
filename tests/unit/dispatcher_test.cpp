/// One definition, several programs: a module analyses each once, and a dispatcher finds what was compiled for a call,
/// or has it compiled.
#include "compile/dispatcher.h"

#include <gtest/gtest.h>

#include "forge/error.h"
#include "program/module.h"
#include "variants/variants.h"

namespace forge::compiler {
namespace {

const Dispatcher::Key kForward = {"forward", BF16, {{"K", 64}}};

Bounds calls(std::int64_t sequences, std::int64_t tokens, bool packed = false) {
    return {sequences, tokens, 4, packed};
}

TEST(Dispatcher, TakesTheFirstThatIsForCallsAsLarge) {
    const auto few = std::make_shared<const Executable>(), many = std::make_shared<const Executable>(),
               other = std::make_shared<const Executable>();
    Dispatcher dispatcher;
    dispatcher.add(kForward, few, calls(8, 100));
    dispatcher.add(kForward, many, calls(8, 5000, true));
    dispatcher.add({"forward", F16, {{"K", 64}}}, other);
    EXPECT_EQ(dispatcher.at(kForward, calls(8, 100)), few);
    EXPECT_EQ(dispatcher.at(kForward, calls(1, 101)), many);
    EXPECT_EQ(dispatcher.at(kForward, calls(1, 50, true)), many) << "the first is not for packed sequences";
    EXPECT_EQ(dispatcher.at({"forward", F16, {{"K", 64}}}, calls(1000, 5000)), other);
}

TEST(Dispatcher, SaysWhatItHasNot) {
    Dispatcher dispatcher;
    dispatcher.add(kForward, std::make_shared<const Executable>(), calls(8, 100));
    for (const Dispatcher::Key& key : {kForward, {"decode", BF16, {{"K", 64}}}, {"forward", BF16, {{"K", 128}}}}) try {
            static_cast<void>(dispatcher.at(key, calls(9, 100)));
            ADD_FAILURE() << key.entry;
        } catch (const RuntimeError& error) {
            EXPECT_NE(std::string(error.what()).find(key.entry + ", bf16, K = "), std::string::npos) << error.what();
            EXPECT_NE(std::string(error.what()).find("9 sequences of 100 tokens"), std::string::npos) << error.what();
        }
}

TEST(Dispatcher, CompilesOnDemandAndOnce) {
    int compiled = 0;
    Dispatcher dispatcher([&](const Dispatcher::Key& key) {
        ++compiled;
        if (key.entry == "decode") throw RuntimeError("not this one");
        return std::make_shared<const Executable>();
    });
    const auto first = dispatcher.at(kForward, calls(1, 1));
    EXPECT_EQ(dispatcher.at(kForward, calls(1000, 1 << 20)), first);
    EXPECT_EQ(compiled, 1);
    EXPECT_THROW(static_cast<void>(dispatcher.at({"decode", BF16, {}}, calls(1, 1))), RuntimeError);
    EXPECT_EQ(dispatcher.at(kForward, calls(2, 2)), first) << "what failed leaves the others as they are";
}

TEST(Module, AnalysesAnEntryPointOnce) {
    const program::Module module(variants::find("gla")->make().define(), F16);
    EXPECT_EQ(&module.entry("forward"), &module.entry("forward"));
    EXPECT_EQ(module.entry("decode").chunk, 1);
    EXPECT_EQ(module.definition().inputs[0].type.dtype, F16);
    EXPECT_THROW(static_cast<void>(module.entry("backwards")), RuntimeError);
}

TEST(Attention, HasTheOtherProgramsOfItsDefinition) {
    CompileOptions options;
    options.device = "cuda", options.on = "h200", options.sizes = {{"K", 128}, {"V", 128}};
    const Attention forward = compile(variants::find("gla")->make(), options), decode = forward.entry("decode");
    EXPECT_EQ(forward.engine(), "warp-groups");
    EXPECT_EQ(decode.chunk(), 1);
    EXPECT_EQ(decode.kernels().size(), 1U);
    options.entry = "decode";
    EXPECT_EQ(decode.sources()[0].text, compile(variants::find("gla")->make(), options).sources()[0].text);
    EXPECT_EQ(&decode.entry("decode").sources(), &forward.entry("decode").sources()) << "it was compiled again";
    EXPECT_THROW(static_cast<void>(forward.entry("backwards")), RuntimeError);
}

}  // namespace
}  // namespace forge::compiler
