/// The objectives beyond regression on the CPU, and what takes long to compile: forwards, token by token, and
/// backwards, each in one way only. Their definitions are held against their steps with all others
/// (tests/unit/variants_test.cpp).
#include "program/entry_point.h"
#include "tests/numerics/numerics.h"

namespace forge::tests {
namespace {

class Objective : public testing::TestWithParam<Entry> {
  protected:
    ir::Definition def_ = GetParam().make().define();
    std::vector<check::Case> cases_ = few_cases(F32, {{"K", 20}, {"V", 12}});
};

TEST_P(Objective, HoldsInChunksAndTokenByToken) {
    std::vector<Prepared> prepared = prepare(def_, cases_);
    std::vector<CompileOptions> ways = {{.strategy = "one-pass"}};
    if (program::has_decode(def_)) ways.push_back({.entry = "decode"});
    for (const auto& attention : compile_all(def_, cases_[0].problem, ways)) {
        ASSERT_TRUE(attention);
        SCOPED_TRACE(attention->schedule());
        for (Prepared& p : prepared) expect_agreement(*attention, p);
    }
}

TEST_P(Objective, HasTheGradientsOfItsRecurrence) {
    const auto attention = compile_all(def_, cases_[0].problem, {{.entry = "backward"}})[0];
    ASSERT_TRUE(attention);
    for (const check::Case& c : cases_) {
        if (c.problem.cut != 0) continue;  // gradients come from the end of a call
        const check::Report report = check::check(*attention, def_, c.problem, "backward");
        for (const check::Difference& d : report.differences)
            EXPECT_TRUE(d.ok) << c.name << ": " << d.name << " is off by " << d.relative_rms;
    }
}

std::vector<Entry> in_one_way() {
    std::vector<Entry> list = variants::objectives();
    list.push_back(program_named("mamba3"));
    return list;
}

INSTANTIATE_TEST_SUITE_P(All, Objective, testing::ValuesIn(in_one_way()),
                         [](const auto& entry) { return entry.param.name; });

}  // namespace
}  // namespace forge::tests
