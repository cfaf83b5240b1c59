/// What 16 bits cost a program by themselves, which tells a wrong kernel from a type that is too narrow.
#include "check/operands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "check/tolerance.h"
#include "forge/compose.h"
#include "graph/derive.h"
#include "program/entry_point.h"
#include "tests/support/entries.h"
#include "variants/variants.h"

namespace forge::tests {
namespace {

constexpr std::int64_t kChunk = 64;

/// The largest relative RMS of a result, and whose it is.
check::Difference worst(const ir::Definition& def, const std::string& entry, DType dtype) {
    check::Problem problem;
    problem.T = 130, problem.H = 1, problem.sizes = {{"K", 64}, {"V", 64}}, problem.dtype = dtype;
    const check::Buffers buffers(program::tensors_of(entry, def), problem);
    const check::Reference reference =
        entry == "backward" ? check::backward_reference(buffers, def, kChunk) : check::reference(buffers, kChunk);
    const auto all = check::with_rounded_operands(buffers, def, entry, kChunk, reference).differences;
    return *std::max_element(all.begin(), all.end(), [](const check::Difference& a, const check::Difference& b) {
        return a.relative_rms < b.relative_rms;
    });
}

ir::Definition composed(const Composition& chosen) { return graph::with_phases(compose(chosen).define()); }

TEST(RoundedOperands, AreWithinTheToleranceWhereNothingCancels) {
    for (const char* name : {"linear_attention", "scalar_gla", "gated_delta_net"}) {
        const ir::Definition def = variants::find(name)->make().define();
        for (const DType dtype : {BF16, F16}) {
            const double off = worst(def, "forward", dtype).relative_rms;
            EXPECT_GT(off, check::tolerance(dtype) / 20) << name;
            EXPECT_LE(off, check::tolerance(dtype)) << name;
            EXPECT_LE(worst(def, "backward", dtype).relative_rms, check::gradient_tolerance(dtype)) << name;
        }
        EXPECT_LE(worst(def, "forward", F32).relative_rms, 1e-6) << name;
        EXPECT_GT(worst(def, "backward", F32).relative_rms, 1e-6) << name;
        EXPECT_LE(worst(def, "backward", F32).relative_rms, check::gradient_tolerance(F32)) << name;
    }
}

TEST(RoundedOperands, AreBeyondItWhereTermsCancel) {
    // Keys of positive features point the same way; outputs are differences of large updates.
    const check::Difference off = worst(composed({.features = "elu", .update = "delta"}), "forward", BF16);
    EXPECT_EQ(off.name, "o");
    EXPECT_GT(off.relative_rms, check::tolerance(BF16));
    EXPECT_LE(off.relative_rms, 2 * check::tolerance(BF16));
}

TEST(RoundedOperands, ExcuseWhatIsAboutAsFarOffAndNoMore) {
    check::Difference found;
    found.ok = false, found.relative_rms = 0.0139;
    EXPECT_FALSE(found.coarse()) << "nobody has asked";
    found.of_operands = 0.0115;
    EXPECT_TRUE(found.coarse());
    found.relative_rms = 0.024;
    EXPECT_FALSE(found.coarse());
    found.relative_rms = HUGE_VAL;
    EXPECT_FALSE(found.coarse()) << "a result that is not finite";
    found.relative_rms = 0.007, found.ok = true;
    EXPECT_FALSE(found.coarse()) << "within the tolerance";
}

}  // namespace
}  // namespace forge::tests
