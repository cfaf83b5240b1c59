/// One definition, several programs: a module analyses each once, and a dispatcher has each compiled once.
#include "compile/dispatcher.h"

#include <gtest/gtest.h>

#include "forge/error.h"
#include "program/module.h"
#include "variants/variants.h"

namespace forge::compiler {
namespace {

const Dispatcher::Key kForward = {"forward", BF16, {{"K", 64}}};

TEST(Dispatcher, CompilesOnDemandAndOnce) {
    int compiled = 0;
    Dispatcher dispatcher([&](const Dispatcher::Key& key) {
        ++compiled;
        if (key.entry == "decode") throw RuntimeError("not this one");
        return std::make_shared<const Executable>();
    });
    const auto first = dispatcher.at(kForward);
    EXPECT_EQ(dispatcher.at(kForward), first);
    EXPECT_EQ(compiled, 1);
    EXPECT_THROW(static_cast<void>(dispatcher.at({"decode", BF16, {}})), RuntimeError);
    EXPECT_EQ(dispatcher.at(kForward), first) << "what failed leaves the others as they are";
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
