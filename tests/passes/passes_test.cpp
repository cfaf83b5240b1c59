/// The table of passes, what is legal between them, and what is shown of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "check/bisect.h"
#include "check/problem.h"
#include "compile/inspect.h"
#include "forge/error.h"
#include "forge/forge.h"
#include "ir/text.h"
#include "tests/support/entries.h"
#include "tests/support/expected.h"
#include "tests/support/turns.h"

namespace forge::tests {
namespace {

using compiler::PassStep;
using ir::Function;
using ir::Level;
using ir::Opcode;
using ir::Pass;

CompileOptions options_for(const ir::Definition& def, const std::string& machine, const std::string& engine = "auto") {
    CompileOptions o;
    o.dtype = BF16, o.tuned = false, o.isa = "avx512", o.threads = 4;
    if (machine != "cpu") o.device = "cuda", o.on = machine, o.isa = "auto", o.threads = 0, o.engine = engine;
    o.sizes = check::sizes_for(def, {.sizes = {{"K", 64}, {"V", 64}}});
    return o;
}

ir::Definition definition(const char* name) { return program_named(name).make().define(); }

std::vector<PassStep> steps_of(const char* name, const std::string& machine, const std::string& engine = "auto") {
    const ir::Definition def = definition(name);
    return compiler::steps_of(def, options_for(def, machine, engine));
}

/// Of heads so large that axes are split.
CompileOptions wide_backward(const char* name) {
    CompileOptions o = options_for(definition(name), "h200", "warp-groups");
    o.entry = "backward", o.sizes = {{"K", 256}, {"V", 256}};
    return o;
}

/// Keys behind the last token count as ones.
ir::Definition padded_keys() {
    const Dim T("T"), H("H"), K("K"), V("V");
    LinearAttention a("padded_keys");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}, 1).input("v", BF16, {T, H, V}).state("s", F32, {K, V});
    a.chunk({"k", "v", "token_mask"},
            [](Tensor k, Tensor v, Tensor mask) { return matmul_out_fp32((k * unsqueeze(mask, 1)).to(BF16).T(), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor s, Tensor chunk) { return s + chunk; });
    a.merge({"q", "chunk_state"}, [](Tensor q, Tensor s) { return matmul_out_fp32(q, s.to(BF16)); });
    return a.define();
}

/// Of two keys per token the second one counts, after a function.
ir::Definition second_keys() {
    const Dim T("T"), H("H"), K("K"), V("V");
    LinearAttention a("second_keys");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {2 * T, H, K}).input("v", BF16, {T, H, V}).state("s", F32, {K, V});
    const auto second = [](const Tensor& k) { return slice(tanh(k.to(F32)), 0, 1, 2).to(BF16); };
    a.chunk({"k", "v"}, [=](Tensor k, Tensor v) { return matmul_out_fp32(second(k).T(), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor s, Tensor chunk) { return s + chunk; });
    a.merge({"q", "k", "v", "prev_s"}, [=](Tensor q, Tensor k, Tensor v, Tensor s) {
        return matmul_out_fp32(tril(matmul_out_fp32(q, second(k).T())).to(BF16), v) + matmul_out_fp32(q, s.to(BF16));
    });
    return a.define();
}

TEST(Passes, HaveNamesOfTheirOwnAndLevelsInOrder) {
    std::set<std::string> names;
    for (const Pass pass : ir::all_passes()) {
        EXPECT_TRUE(names.insert(ir::info(pass).name).second) << ir::info(pass).name;
        EXPECT_STRNE(ir::info(pass).why, "");
        EXPECT_EQ(ir::pass_named(ir::info(pass).name), pass);
    }
    EXPECT_FALSE(ir::pass_named("no such pass"));
}

TEST(Passes, AreDescribedWhereLevelsAre) {
    const std::string page = read_file(root() / "docs/levels.md");
    for (const Pass pass : ir::all_passes())
        EXPECT_NE(page.find(std::string("| `") + ir::info(pass).name + "` | " + to_string(ir::info(pass).level) +
                            " | " + ir::info(pass).why + " |"),
                  std::string::npos)
            << ir::info(pass).name;
}

// The table's order is the order in which they run, of the program and of each kernel, and none is in it for nothing.
TEST(Passes, RunInTheOrderOfTheTable) {
    std::set<Pass> seen;
    const auto look = [&](const std::vector<PassStep>& steps) {
        std::map<std::string, Pass> last;
        for (const PassStep& step : steps) {
            seen.insert(step.pass);
            const auto [it, first] = last.try_emplace(step.kernel, step.pass);
            if (!first) {
                EXPECT_LT(it->second, step.pass) << step.title();
            }
            it->second = step.pass;
        }
    };
    look(steps_of("gated_delta_net", "cpu"));
    look(steps_of("gated_delta_net", "h200"));
    look(steps_of("gated_delta_net", "rtx4090", "portable"));
    look(steps_of("hgrn", "h200"));
    look(steps_of("normalised", "h200"));
    const ir::Definition features = definition("normalised");
    CompileOptions odd = options_for(features, "h200");
    odd.sizes["K"] = 96;
    look(compiler::steps_of(features, odd));
    const ir::Definition def = definition("linear_attention");
    CompileOptions states = options_for(def, "cpu");
    states.chunk_states = true;
    look(compiler::steps_of(def, states));
    CompileOptions backward = options_for(def, "cpu");
    backward.entry = "backward";
    look(compiler::steps_of(def, backward));
    CompileOptions summary = options_for(def, "cpu");
    summary.entry = "summary";
    look(compiler::steps_of(def, summary));
    look(compiler::steps_of(definition("delta_net"), wide_backward("delta_net")));
    const ir::Definition padded = padded_keys();
    look(compiler::steps_of(padded, options_for(padded, "h200")));
    const ir::Definition rows = second_keys();
    look(compiler::steps_of(rows, options_for(rows, "h200")));
    CompileOptions floats = options_for(def, "h200");
    floats.dtype = F32;
    look(compiler::steps_of(def, floats));
    for (const Pass pass : ir::all_passes()) EXPECT_TRUE(seen.contains(pass)) << ir::info(pass).name;
}

TEST(Passes, OfLongAxesAreLegal) {
    for (const char* name : {"delta_net", "kda"})
        for (const PassStep& step : compiler::steps_of(definition(name), wide_backward(name)))
            EXPECT_TRUE(step.faults.empty()) << step.title() << ": " << step.faults[0] << "\n" << step.text;
}

class Legal : public testing::TestWithParam<Entry> {};

TEST_P(Legal, AfterEachPass) {
    const ir::Definition def = GetParam().make().define();
    const auto look = [&](const CompileOptions& options) {
        for (const PassStep& step : compiler::steps_of(def, options))
            EXPECT_TRUE(step.faults.empty()) << step.title() << ": " << step.faults[0] << "\n" << step.text;
    };
    look(options_for(def, "cpu"));
    look(options_for(def, "h200"));
    look(options_for(def, "rtx4090", "portable"));
    CompileOptions decode = options_for(def, "cpu");
    decode.entry = "decode";
    if (def.fixed_chunk == 0) look(decode);
    for (const char* machine : {"cpu", "a100"}) {
        CompileOptions backward = options_for(def, machine);
        backward.entry = "backward";
        look(backward);
    }
}

/// Every level of every program computes what the recurrence says, in float64.
TEST_P(Legal, AndRightAfterEachPass) {
    const ir::Definition def = GetParam().make().define();
    const compiler::Plant nothing = [](Pass, Function&) {};  // with which nothing is compiled and called
    for (const char* machine : in_turn(GetParam(), std::vector<const char*>{"cpu", "h200"}, 1)) {
        const check::Bisection found = check::bisect(def, options_for(def, machine), nothing);
        EXPECT_TRUE(found.ok()) << machine << "\n" << found.text();
    }
}

INSTANTIATE_TEST_SUITE_P(Passes, Legal, testing::ValuesIn(all_programs()), name_of);

/// The first op of a kind becomes one of another.
compiler::Plant swap(Pass wrong, Opcode from, Opcode to) {
    return [=](Pass pass, Function& fn) {
        if (pass != wrong) return;
        for (ir::Op& op : fn.ops)
            if (op.code == from) {
                op.code = to;
                return;
            }
    };
}

struct Planted {
    const char* program;
    const char* machine;
    Pass pass;
    Opcode from, to;
};

class Bisect : public testing::TestWithParam<Planted> {};

TEST_P(Bisect, FindsThePassThatIsWrong) {
    const Planted& p = GetParam();
    const ir::Definition def = definition(p.program);
    const check::Bisection found = check::bisect(def, options_for(def, p.machine), swap(p.pass, p.from, p.to));
    ASSERT_FALSE(found.ok()) << found.text();
    EXPECT_EQ(found.steps.back().title.find(ir::info(p.pass).name), 0u) << found.text();
    EXPECT_NE(found.text().find("The first pass after which results are not those of the recurrence is " +
                                found.steps.back().title),
              std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Passes, Bisect,
    testing::Values(Planted{"scalar_gla", "cpu", Pass::Widen, Opcode::Add, Opcode::Sub},
                    Planted{"delta_net", "cpu", Pass::FuseProducts, Opcode::MatmulSub, Opcode::MatmulAdd},
                    Planted{"scalar_gla", "cpu", Pass::Legalize, Opcode::MatmulAdd, Opcode::MatmulSub},
                    Planted{"gla", "cpu", Pass::LayOut, Opcode::Exp, Opcode::Exp2},
                    Planted{"scalar_gla", "h200", Pass::HoistScales, Opcode::Exp, Opcode::Expm1},
                    Planted{"scalar_gla", "h200", Pass::FragmentOrder, Opcode::Mul, Opcode::Add},
                    Planted{"hgrn", "h200", Pass::Transitions, Opcode::Mul, Opcode::Sub}),
    [](const auto& test) {
        std::string name = ir::info(test.param.pass).name;
        std::replace(name.begin(), name.end(), '.', '_');
        return name + "_of_" + test.param.program;
    });

/// Illegal functions, by what makes a legal one of a level illegal.
struct Illegal {
    const char* name;
    Level level;
    std::function<void(Function&)> change;
    const char* said;
};

Function legal(Level level) {
    const auto steps = steps_of("delta_net", level == Level::Tile || level == Level::Sized ? "cpu" : "h200");
    for (auto it = steps.rbegin(); it != steps.rend(); ++it)
        if (ir::info(it->pass).level == level) return it->fn;
    throw InternalError("no such level");
}

ir::Op& first(Function& fn, Opcode code) {
    return *std::find_if(fn.ops.begin(), fn.ops.end(), [&](const ir::Op& op) { return op.code == code; });
}

class Levels : public testing::TestWithParam<Illegal> {};

TEST_P(Levels, SayWhatIsNotLegal) {
    Function fn = legal(GetParam().level);
    EXPECT_TRUE(ir::faults(fn, GetParam().level).empty());
    GetParam().change(fn);
    const std::vector<std::string> found = ir::faults(fn, GetParam().level);
    ASSERT_FALSE(found.empty()) << ir::print(fn);
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const std::string& f) {
        return f.find(GetParam().said) != std::string::npos;
    })) << found[0];
}

const Illegal kIllegal[] = {
    {"UsedBeforeItIsMade", Level::Graph, [](Function& fn) { first(fn, Opcode::Inverse).args[0] = fn.size() - 1; },
     "not made before it"},
    {"OfAnotherShape", Level::Graph, [](Function& fn) { first(fn, Opcode::Inverse).type.shape[0] = Dim(3); },
     "its operands make"},
    {"InHalfPrecision", Level::Graph, [](Function& fn) { first(fn, Opcode::Inverse).type.dtype = BF16; }, "float32"},
    {"NotUnitLower", Level::Graph, [](Function& fn) { first(fn, Opcode::Tril).attrs.diagonal = 0; },
     "unit lower-triangular"},
    {"SpilledTooEarly", Level::Graph, [](Function& fn) { first(fn, Opcode::Param).attrs.role = ir::Role::Spill; },
     "no parameter has the role spill"},
    {"TwiceTheSameResult", Level::Kernel, [](Function& fn) { fn.results.push_back(fn.results[0]); }, "second result"},
    {"TwiceTheSameParameter", Level::Kernel,
     [](Function& fn) {
         fn.ops.insert(fn.ops.begin(), fn.ops[0]);
         for (ir::Op& op : fn.ops)
             for (ir::ValueId& a : op.args) ++a;
     },
     "second parameter"},
    {"OfSymbols", Level::Sized, [](Function& fn) { first(fn, Opcode::Param).type.shape.back() = Dim("K"); },
     "no number"},
    {"LaidOutTooEarly", Level::Sized, [](Function& fn) { fn.ops[0].layout = ir::Layout{}; }, "has a layout already"},
    {"NotLaidOut", Level::Tile, [](Function& fn) { fn.ops.back().layout.reset(); }, "has no layout"},
    {"OfTooFewStrides", Level::Tile, [](Function& fn) { first(fn, Opcode::Inverse).layout->strides.pop_back(); },
     "strides for"},
    {"BeforeTheBeginning", Level::Tile, [](Function& fn) { fn.ops[0].layout->offset = -1; }, "before the beginning"},
};

INSTANTIATE_TEST_SUITE_P(Passes, Levels, testing::ValuesIn(kIllegal),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Passes, AreCheckedAsTheyRun) {
    const ir::PassRunner passes;
    const auto broken = [] {
        Function fn = legal(Level::Tile);
        fn.ops.back().layout.reset();
        return fn;
    };
    try {
        static_cast<void>(passes.of("some_kernel").run(Pass::LayOut, broken));
        ADD_FAILURE() << "nothing was said";
    } catch (const InternalError& error) {
        EXPECT_NE(std::string(error.what()).find("after the pass lay_out of kernel some_kernel"), std::string::npos);
    }
}

TEST(Dump, ShowsOnePassOrAll) {
    const std::vector<PassStep> steps = steps_of("gla", "cpu");
    const std::string one = compiler::dump(steps, "after:stabilize"), all = compiler::dump(steps, "all");
    EXPECT_EQ(one.find("// ---- stabilize (graph): decays from sums"), 0u) << one;
    EXPECT_NE(one.find("decay_matmul("), std::string::npos);
    EXPECT_NE(all.find(one), std::string::npos);
    EXPECT_NE(all.find("// ---- emit (text)"), std::string::npos);
    EXPECT_NE(compiler::dump(steps, "after:lay_out").find("floats of scratch"), std::string::npos);
    EXPECT_THROW(compiler::dump(steps, "after:nothing"), RuntimeError);
    EXPECT_THROW(compiler::dump(steps, "stabilize"), RuntimeError);
    EXPECT_THROW(compiler::dump(steps, "after:fragment_forms"), RuntimeError) << "it did not run";
}

TEST(Dump, EndsWhereItIsToldToThoughTheRestFails) {
    const ir::Definition def = definition("delta_net");
    const auto break_kernels = [](Pass pass, Function& fn) {
        if (pass == Pass::Legalize) fn.ops.clear();  // the results are no values then
    };
    EXPECT_ANY_THROW(compiler::steps_of(def, options_for(def, "cpu"), std::nullopt, break_kernels));
    const auto steps = compiler::steps_of(def, options_for(def, "cpu"), Pass::FuseProducts, break_kernels);
    EXPECT_EQ(steps.back().pass, Pass::FuseProducts);
}

TEST(Dump, TimesEveryPassThatRan) {
    const std::string text = compiler::times(steps_of("gla", "h200"));
    for (const char* name : {"join", "stabilize", "place", "fragment_memory", "emit", "all"})
        EXPECT_NE(text.find(std::string("\n") + name + " "), std::string::npos) << name << "\n" << text;
}

TEST(Dump, IsAPageOfItsOwn) {
    const std::string page = compiler::html(steps_of("gla", "h200"), "gla, pass by pass");
    EXPECT_EQ(page.find("<!DOCTYPE html>"), 0u);
    for (const char* part : {"<h2>program</h2>", "<h2>graph</h2>", "<h2>kernel</h2>", "<h2>tile</h2>", "<h2>text</h2>",
                             "class=\"added\"", "class=\"removed\"", "prefers-color-scheme: dark", "no change"})
        EXPECT_NE(page.find(part), std::string::npos) << part;
    for (const char* other : {"http://", "https://", "<script", "src="}) EXPECT_EQ(page.find(other), std::string::npos);
    const auto count = [&](const std::string& tag) {
        std::size_t n = 0;
        for (std::size_t at = page.find(tag); at != std::string::npos; at = page.find(tag, at + 1)) ++n;
        return n;
    };
    for (const char* tag : {"section", "details", "summary", "pre", "span", "small", "b"})
        EXPECT_EQ(count(std::string("</") + tag + ">"),
                  count(std::string("<") + tag + ">") + count(std::string("<") + tag + " "))
            << tag;
}

}  // namespace
}  // namespace forge::tests
