#include "tests/numerics/numerics.h"

#include "check/parallel.h"
#include "plan/place.h"

namespace forge::tests {
namespace {
constexpr std::int64_t kChunk = 64;  ///< of definitions that are by chunks alone
}  // namespace

std::vector<Prepared> prepare(const ir::Definition& def, const std::vector<check::Case>& cases) {
    std::vector<Prepared> prepared;
    for (const check::Case& c : cases) {
        check::Buffers buffers(def, c.problem);
        check::Reference reference = check::reference(buffers, kChunk);
        prepared.push_back({c.name, std::move(buffers), std::move(reference)});
    }
    return prepared;
}

check::Case every_length(DType dtype, const std::map<std::string, std::int64_t>& sizes) {
    check::Problem problem;
    problem.dtype = dtype, problem.sizes = sizes, problem.H = 1;
    problem.lengths = {0, 1, 15, 16, 63, 64, 65, 100, 200};
    return {"every length", problem};
}

std::vector<check::Case> few_cases(DType dtype, const std::map<std::string, std::int64_t>& sizes) {
    check::Problem ragged;
    ragged.dtype = dtype, ragged.sizes = sizes, ragged.T = 100, ragged.initial_state = true;
    check::Problem packed = ragged;
    packed.lengths = {17, 0, 70, 1}, packed.strided = true, packed.int64_offsets = true;
    return {{"ragged, initial state", ragged}, {"packed, strided, initial states", packed}};
}

std::vector<std::string> all_strategies() {
    std::vector<std::string> names;
    for (const plan::Strategy strategy : plan::all_strategies()) names.emplace_back(plan::to_string(strategy));
    return names;
}

std::optional<Attention> compile_as(const ir::Definition& def, CompileOptions options) {
    options.tuned = false;                  // the same on every machine
    if (!def.step) options.chunk = kChunk;  // the chunk size is part of its meaning
    try {
        return compile(def, options);
    } catch (const CompileError& error) {
        EXPECT_EQ(options.strategy, "segmented") << error.what();
        EXPECT_EQ(error.diagnostics().at(0).expected, "a decay that is affine in this state alone") << error.what();
        return std::nullopt;
    }
}

std::vector<std::optional<Attention>> compile_all(const ir::Definition& def, const check::Problem& problem,
                                                  std::vector<CompileOptions> ways) {
    std::vector<std::optional<Attention>> built(ways.size());
    check::parallel_for(static_cast<std::int64_t>(ways.size()), [&](std::int64_t i) {
        CompileOptions& options = ways[static_cast<std::size_t>(i)];
        options.dtype = problem.dtype;
        options.sizes = check::sizes_for(def, problem);
        built[static_cast<std::size_t>(i)] = compile_as(def, options);
    });
    return built;
}

void expect_agreement(const Attention& attention, Prepared& prepared) {
    check::clear_results(prepared.buffers);
    check::run(prepared.buffers, [&](check::Buffers& part) { attention(part.call()); });
    const check::Report report = check::compare(prepared.buffers, prepared.reference);
    for (const check::Difference& d : report.differences)
        EXPECT_TRUE(d.ok) << prepared.name << ", " << (d.is_state ? "state " : "output ") << d.name << ": relative RMS "
                          << d.relative_rms << " > " << report.tolerance << ", max error " << d.max_abs
                          << "; first at token " << d.first_bad_token << ", head " << d.head << " of sequence "
                          << d.sequence;
}

}  // namespace forge::tests
