// Definitions through everything but the compilers: checks, passes, planning and emission for the CPU by every
// strategy, and for GPUs that are not there, with options and sizes that make sense and ones that do not.
#include <fmt/format.h>

#include "check/problem.h"
#include "compile/question.h"
#include "emit/cpu/emit_cpu.h"
#include "forge/error.h"
#include "forge/runtime.h"
#include "frontend/axes.h"
#include "frontend/join.h"
#include "graph/derive.h"
#include "graph/passes.h"
#include "graph/pipeline.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "support/reasons.h"
#include "tests/fuzz/targets.h"

namespace forge::fuzz {
namespace {

constexpr std::int64_t kSizes[] = {16, 32, 64, 128, 16, 32, 64, 128, 1,   2,   3,
                                   5,  17, 24, 48,  72, 80, 96, 100, 127, 192, 256};

std::map<std::string, std::int64_t> random_sizes(const ir::Definition& def, Dice& dice) {
    auto sizes = check::sizes_for(def, {});
    for (auto& [symbol, size] : sizes) size = kSizes[dice.below(std::size(kSizes))];
    return sizes;
}

/// Such as somebody might give who means well.
CompileOptions random_options(const ir::Definition& def, Dice& dice) {
    CompileOptions o;
    o.sizes = random_sizes(def, dice);
    o.dtype = dice.one_of({BF16, F16, F32});
    o.isa = dice.one_of({"auto", "avx512", "avx2", "plain"});
    o.rule = dice.one_of({"cost", "cost", "paper"});
    o.chunk = def.fixed_chunk != 0 ? 0 : dice.one_of<std::int64_t>({0, 0, 16, 32, 64, 128});
    o.threads = static_cast<int>(dice.one_of<std::int64_t>({0, 0, 1, 2, 128, 256, 512}));
    o.chunk_states = dice.one_in(4);
    o.tuned = false;
    if (dice.one_in(4)) o.tiles = dice.between(1, 8);
    if (dice.one_in(4)) o.segments = dice.between(1, 64);
    if (dice.one_in(3)) o.expected_tokens = dice.one_of<std::int64_t>({1, 100, 32768, 1 << 20});
    if (dice.one_in(3)) o.expected_heads = dice.one_of<std::int64_t>({1, 32, 1000});
    if (dice.one_in(3)) o.expected_sequences = dice.one_of<std::int64_t>({1, 64, 4096});
    return o;
}

constexpr const char* kStrategies[] = {"auto", "one-pass", "fused", "decoupled", "segmented"};

/// One or two options become what they must not be.
void spoil(CompileOptions& o, Dice& dice) {
    for (std::size_t n = 1 + dice.below(2); n > 0; --n) switch (dice.below(13)) {
            case 0:
                for (auto& [symbol, size] : o.sizes)
                    if (dice.one_in(2)) size = extreme_number(dice);
                break;
            case 1:
                o.sizes[dice.one_of({"X", "", "T", "H", "C", "K'", "%s"})] = 16;
                break;
            case 2:
                if (!o.sizes.empty()) o.sizes.erase(o.sizes.begin());
                break;
            case 3:
                o.strategy = dice.one_of({"", "fast", "ONE-PASS"});
                break;
            case 4:
                o.chunk = dice.one_in(2) ? 24 : extreme_number(dice);
                break;
            case 5:
                o.tiles = extreme_number(dice);
                break;
            case 6:
                o.segments = extreme_number(dice);
                break;
            case 7:
                o.threads = static_cast<int>(extreme_number(dice));
                break;
            case 8:
                o.expected_tokens = extreme_number(dice);
                break;
            case 9:
                o.expected_sequences = extreme_number(dice);
                break;
            case 10:
                o.expected_heads = extreme_number(dice);
                break;
            case 11:
                o.rule = "none", o.engine = dice.one_of({"auto", "", "tensor"});
                break;
            default:
                o.dtype = dice.one_of({F64, DType::I32, DType::Bool});
        }
}

std::string described(const CompileOptions& o) {
    std::string text = fmt::format(
        "device={} on={} dtype={} strategy={} chunk={} isa={} threads={} engine={} tiles={} segments={} rule={} "
        "chunk_states={} expected={}x{}x{}",
        o.device, o.on, to_string(o.dtype), o.strategy, o.chunk, o.isa, o.threads, o.engine, o.tiles, o.segments,
        o.rule, o.chunk_states, o.expected_tokens, o.expected_sequences, o.expected_heads);
    for (const auto& [symbol, size] : o.sizes) text += fmt::format(" size.{}={}", symbol, size);
    return text;
}

void expect_words(const std::string& text, const char* what) {
    if (text.empty()) throw Fault(fmt::format("nothing for {}", what));
}

/// What a user asks of a variant that cannot be called here.
void ask(const Attention& attention, Dice& dice) {
    expect_words(attention.explain(), "explain");
    expect_words(attention.schedule(), "schedule");
    for (const GeneratedSource& source : attention.sources()) expect_words(source.text, "a source");
    if (attention.sources().empty() || attention.kernels().empty()) throw Fault("no sources or no kernels");
    for (const Refusal& why : attention.refused()) expect_words(why.why, "a refusal");
    const auto bound = [&] { return dice.one_in(8) ? extreme_number(dice) : dice.between(0, 5000); };
    const Bounds bounds{bound(), bound(), bound(), dice.one_in(2)};
    try {
        static_cast<void>(attention.workspace_bytes(bounds));
    } catch (const RuntimeError&) {  // beyond what 64 bits hold
    }
}

/// What compile() does for the CPU up to the compiler.
void emit_for_cpu(const ir::Definition& declared, CompileOptions options) {
    const ir::Definition typed = frontend::with_dtype(declared, options.dtype);
    if (auto found = interp::check_semantics(typed); !found.empty()) throw CompileError(std::move(found));
    const ir::Definition def = frontend::with_own_axes(typed);
    if (def.fixed_chunk != 0) options.chunk = def.fixed_chunk;
    options.sizes = frontend::own_sizes(def, options.sizes);
    ir::Function program = graph::optimize(frontend::join(def));
    if (options.chunk_states) program = graph::with_chunk_states(program);
    const target::Choice choice = target::choose(def, program, compiler::ask(program, options, nullptr).question);
    expect_words(target::explain(choice, def, program), "explain");
    expect_words(emit::emit_cpu(plan::make_plan(def, program, options.sizes, choice.schedule)), "a source");
}

class PipelineTarget : public Target {
  public:
    [[nodiscard]] Input input(std::uint64_t seed) const override { return {seed, changed_definition(seed)}; }
    [[nodiscard]] bool has_options() const override { return true; }

    Outcome run(const Input& input) override {
        Dice dice(input.seed);
        const ir::Definition def = graph::with_phases(ir::parse_definition(input.text));
        CompileOptions options = random_options(def, dice);
        try {
            if (dice.one_in(3)) return on_cpu(def, options);
            options.device = "cuda", options.on = dice.one_of({"h200", "h200", "a100", "rtx4090", "rtx5090"});
            options.strategy = kStrategies[dice.below(std::size(kStrategies))];
            options.engine = dice.one_of({"auto", "auto", "portable", "warp-groups"});
            if (dice.one_in(4)) {
                spoil(options, dice);
                // The CPU's compiler is the last step; of an unknown machine it refuses to begin.
                if (dice.one_in(2)) options.device = "cpu", options.on.clear(), options.isa = "sse2";
            }
            ask(compile(def, options), dice);
        } catch (const Fault& fault) {
            throw Fault(fmt::format("{}\nwith {}", fault.what(), described(options)));
        } catch (const CompileError&) {
            throw;
        } catch (const RuntimeError&) {
            throw;
        } catch (const Refused&) {
            throw;
        } catch (const std::exception& error) {
            throw Fault(fmt::format("{}: {}\nwith {}", typeid(error).name(), error.what(), described(options)));
        }
        return Outcome::Accepted;
    }

  private:
    /// By every strategy; accepted if one of them can be had.
    static Outcome on_cpu(const ir::Definition& def, CompileOptions& options) {
        Outcome outcome = Outcome::Refused;
        for (const char* strategy : kStrategies) {
            options.strategy = strategy;
            try {
                emit_for_cpu(def, options);
                outcome = Outcome::Accepted;
            } catch (const CompileError&) {
            } catch (const RuntimeError&) {}
        }
        return outcome;
    }
};

}  // namespace

std::unique_ptr<Target> pipeline_target() { return std::make_unique<PipelineTarget>(); }

}  // namespace forge::fuzz
