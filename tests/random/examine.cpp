#include "tests/random/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "forge/error.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace forge::fuzz {
namespace {

constexpr std::int64_t kChunk = 64;  ///< that lengths lie around

}  // namespace

Subject::Subject(Decisions& decisions) : d(decisions), program(make_program(decisions)) {}

Problem& Subject::problem(int index) {
    std::unique_ptr<Problem>& p = problems_[index];
    if (!p) p = std::make_unique<Problem>(program, make_problem(d, program, fmt::format("p{}", index), kChunk), kChunk);
    return *p;
}

void Subject::note_excuses(Tally& tally) const {
    for (const auto& [index, p] : problems_)
        tally["results explained by rounding"] += p->excused, tally["results without a bound"] += p->hopeless;
}

Engine interpreter_engine() {
    return {"interpreter", [](Subject& s, Tally& tally) {
                std::vector<std::string> found;
                const std::string text = ir::print(s.program.def);
                if (ir::print(ir::parse_definition(text)) != text) found.emplace_back("the text form is not stable");
                for (const Diagnostic& diagnostic : ir::verify(s.program.def))
                    found.push_back("verify: " + diagnostic.what);
                const std::int64_t chunk = 8 << s.d.below("interpreter.chunk", 4);
                for (const std::string& fault :
                     faults_in_float64(s.program, make_problem(s.d, s.program, "p0", kChunk), chunk))
                    found.push_back(fmt::format("chunks of {}: {}", chunk, fault));
                ++tally["interpreter"];
                return found;
            }};
}

std::optional<Fault> examine(std::uint64_t seed, const Decisions::Forced& forced, const std::vector<Engine>& engines,
                             Tally& tally) {
    Decisions decisions(seed, forced);
    ++tally["programs"];
    std::string at = "definition";
    const auto fault = [&](std::vector<std::string> what) { return Fault{seed, forced, at, std::move(what)}; };
    try {
        Subject subject(decisions);
        for (const std::string& trait : subject.program.traits) ++tally["with " + trait];
        at = "semantics";
        if (auto found = interp::check_semantics(subject.program.def); !found.empty())
            throw CompileError(std::move(found));
        for (const Engine& engine : engines) {
            at = engine.name;
            if (std::vector<std::string> what = engine.faults(subject, tally); !what.empty())
                return fault(std::move(what));
        }
        subject.note_excuses(tally);
    } catch (const CompileError& error) {
        ++tally["refused"];
        ++tally["refused: " + error.diagnostics()[0].what];
        if (at != "definition" && at != "semantics") return fault({std::string("refused late: ") + error.what()});
    } catch (const std::exception& error) {
        return fault({std::string("exception: ") + error.what()});
    }
    return std::nullopt;
}

Fault shrink(const Fault& fault, const std::vector<Engine>& engines) {
    std::vector<Engine> only;
    for (const Engine& engine : engines)
        if (engine.name == fault.engine) only.push_back(engine);
    Fault best = fault;
    const auto taken_by = [](const Fault& f) {
        Decisions decisions(f.seed, f.forced);
        Tally ignored;
        try {
            Subject subject(decisions);
            make_problem(decisions, subject.program, "p0", kChunk);
        } catch (const std::exception&) {}
        return decisions.taken();
    };
    /// The message without numbers: another fault of the same engine is not the same fault.
    const auto gist = [](const Fault& f) {
        std::string text = f.what.empty() ? "" : f.what[0].substr(0, 400);
        std::erase_if(text, [](char c) { return !std::isalpha(static_cast<unsigned char>(c)); });
        return text.substr(0, 24);
    };
    const auto still = [&](Decisions::Forced forced) {
        Tally ignored;
        const auto again = examine(fault.seed, forced, only, ignored);
        if (!again || again->engine != fault.engine || gist(*again) != gist(fault)) return false;
        best = *again;
        return true;
    };
    for (bool progress = true; progress;) {
        progress = false;
        for (const auto& [name, value] : taken_by(best)) {
            for (int simpler = 0; simpler < value; ++simpler) {
                Decisions::Forced forced = best.forced;
                forced[name] = simpler;
                if (!still(forced)) continue;
                progress = true;
                break;
            }
        }
    }
    return best;
}

std::string report(const Fault& fault) {
    std::string text = fmt::format("// Found by {}: {}\n", fault.engine, fmt::join(fault.what, "\n// "));
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos && at + 1 < text.size(); ++at)
        if (text.compare(at + 1, 2, "//") != 0) text.insert(at + 1, "//   ");
    text += fmt::format("// Again: scripts/fuzz-programs --replay '{}'\n", to_string(fault.seed, fault.forced));
    try {
        Decisions decisions(fault.seed, fault.forced);
        const Program program = make_program(decisions);
        for (const auto& [symbol, size] : program.sizes) text += fmt::format("// --{} {}", symbol, size);
        text += fmt::format(" --dtype {}\n", to_string(program.dtype));
        text += ir::print(program.def);
    } catch (const std::exception& error) {
        text += fmt::format("// no definition: {}\n", error.what());
    }
    return text;
}

}  // namespace forge::fuzz
