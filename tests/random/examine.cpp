#include "tests/random/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "forge/error.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace forge::fuzz {
namespace {

constexpr std::int64_t kChunk = 64;  ///< that lengths lie around

}  // namespace

Subject::Subject(Decisions& decisions) : d(decisions), program(make_program(decisions)) {}

Subject::Subject(Decisions& decisions, Program given) : d(decisions), program(std::move(given)) {}

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
                             Tally& tally, const Program* given) {
    Decisions decisions(seed, forced);
    ++tally["programs"];
    std::string at = "definition";
    const auto fault = [&](std::vector<std::string> what) { return Fault{seed, forced, at, std::move(what)}; };
    try {
        Subject subject = given ? Subject(decisions, *given) : Subject(decisions);
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
        const std::string what = error.what();
        const bool too_many = what.find("expected at most") != std::string::npos &&  // of one call
                              what.find("on a GPU, got") != std::string::npos;
        if (!too_many) return fault({std::string("exception: ") + error.what()});
        ++tally["refused: more tensors or spills than a GPU call has"];
    }
    return std::nullopt;
}

namespace {

/// A message without its numbers and without what comes late in it: another fault is not the same fault.
std::string gist(const Fault& fault) {
    constexpr std::size_t kLetters = 24;
    std::string text = fault.what.empty() ? "" : fault.what[0].substr(0, 400);
    std::erase_if(text, [](char c) { return !std::isalpha(static_cast<unsigned char>(c)); });
    return fault.engine + text.substr(0, kLetters);
}

/// Every decision that the program and its problems ask for.
std::map<std::string, int> decisions_of(const Fault& fault) {
    Decisions decisions(fault.seed, fault.forced);
    try {
        const Subject subject(decisions);
        for (const char* problem : {"p0", "p1"}) make_problem(decisions, subject.program, problem, kChunk);
    } catch (const CompileError&) {  // refused: what was asked for until then
    }
    return decisions.taken();
}

}  // namespace

Fault shrink(const Fault& fault, const Examine& again) {
    Fault best = fault;
    const auto try_with = [&](const std::string& name, int value) {
        Decisions::Forced forced = best.forced;
        forced[name] = value;
        const auto found = again(forced);
        if (!found || gist(*found) != gist(fault)) return false;
        best = *found;
        return true;
    };
    for (bool progress = true; progress;) {
        progress = false;
        for (const auto& [name, value] : decisions_of(best))
            for (int simpler = 0; simpler < value; ++simpler)
                if (try_with(name, simpler)) {
                    progress = true;
                    break;
                }
    }
    return best;
}

std::string report(const Fault& fault) {
    constexpr std::size_t kMostLetters = 1200;
    std::string text = fmt::format("// Found by {}: {}\n", fault.engine, fmt::join(fault.what, "\n"));
    if (text.size() > kMostLetters) text = text.substr(0, kMostLetters) + "…\n";
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos && ++at < text.size();)
        text.insert(at, "//   ");
    text += fmt::format("// Decisions: {}\n", to_string(fault.seed, fault.forced));
    try {
        Decisions decisions(fault.seed, fault.forced);
        const Program program = make_program(decisions);
        text += "// Sizes:";
        for (const auto& [symbol, size] : program.sizes) text += fmt::format(" {}={}", symbol, size);
        text += fmt::format("\n// Type: {}\n", to_string(program.dtype));
        text += "// Values:";
        for (const auto& [name, kind] : program.kinds) text += fmt::format(" {}={}", name, static_cast<int>(kind));
        text += "\n" + ir::print(program.def);
    } catch (const std::exception& error) {
        text += fmt::format("// no definition: {}\n", error.what());
    }
    return text;
}

Reported parse_report(const std::string& text) {
    Reported result;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const auto rest_of = [&](const std::string& what) -> std::optional<std::string> {
            if (line.rfind("// " + what + ":", 0) != 0) return std::nullopt;
            return line.substr(line.find(':') + 1);
        };
        const auto each = [](const std::string& list, auto&& visit) {
            std::istringstream words(list);
            for (std::string word; words >> word;)
                visit(word.substr(0, word.find('=')), std::stoll(word.substr(word.find('=') + 1)));
        };
        if (const auto decisions = rest_of("Decisions")) {
            const Decisions parsed = parse_decisions(decisions->substr(1));
            result.seed = parsed.seed(), result.forced = parsed.forced();
        } else if (const auto sizes = rest_of("Sizes")) {
            each(*sizes, [&](const std::string& name, std::int64_t size) { result.program.sizes[name] = size; });
        } else if (const auto type = rest_of("Type")) {
            result.program.dtype = *type == " f32" ? F32 : *type == " f16" ? F16 : BF16;
        } else if (const auto values = rest_of("Values")) {
            each(*values, [&](const std::string& name, std::int64_t kind) {
                result.program.kinds[name] = static_cast<Kind>(kind);
            });
        }
    }
    result.program.def = ir::parse_definition(text);
    for (const ir::InputDecl& in : result.program.def.inputs) {
        if (in.role == ir::Role::Input && in.type.shape[0].factor > 1)
            result.program.traits.insert("several rows per token");
        if (in.role == ir::Role::Input && in.type.shape[1] == Dim("HV")) result.program.traits.insert("grouped heads");
    }
    for (const ir::OutputDecl& out : result.program.def.outputs)
        if (out.type.shape[0].factor > 1) result.program.traits.insert("several rows of outputs");
    return result;
}

}  // namespace forge::fuzz
