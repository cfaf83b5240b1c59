/// Writes the programs that bench/programs.py measures into a folder, as texts that the forge command takes, and a
/// table of what each of them is, which says nothing of kernels: the bytes that it must move, the operations of its
/// products, and the properties by which it is like a variant of the zoo.
///
///   build/record_programs FOLDER [SEED]
///
/// They are the zoo, all of tests/novel, and random programs of the seeds from SEED (1) on, as many as kRandom, those
/// left out that the language refuses: those of other seeds tell whether kernels are fast for programs that nobody
/// looked at while they were built. Random programs decide as ever, but for two things: matrices are of 16 bits, and
/// axes are symbols where a program would have fixed a size of its own.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "check/problem.h"
#include "forge/error.h"
#include "forge/runtime.h"
#include "frontend/axes.h"
#include "graph/transition.h"
#include "interp/semantics.h"
#include "ir/sizes.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "program/module.h"
#include "tests/novel/novel.h"
#include "tests/novel/recurrences.h"
#include "tests/random/program.h"
#include "tile/lower.h"

namespace forge::tests {
namespace {

constexpr int kRandom = 30;
constexpr std::int64_t kTokens = 8192, kHeads = 32, kSize = 128, kSlots = 64;
constexpr std::int64_t kChunk = 64;  ///< in which products are counted, whatever the kernels' chunks are

struct Recorded {
    std::string name, origin;
    ir::Definition definition;
};

/// Axes of all programs; symbols that are not here have the size of V.
check::Problem the_problem() {
    check::Problem problem;
    problem.B = 1, problem.T = kTokens, problem.H = kHeads, problem.dtype = BF16;
    problem.sizes = {{"K", kSize}, {"V", kSize}, {"M", kSlots}};
    return problem;
}

void add_entries(std::vector<Recorded>& list, const std::string& origin, const std::vector<variants::Entry>& entries) {
    for (const variants::Entry& entry : entries) {
        list.push_back({entry.name, origin, entry.make().define()});
        list.back().definition.name = entry.name;
    }
}

/// Nothing if the language refuses what the seed says.
std::optional<ir::Definition> random_program(std::uint64_t seed) try {
    constexpr int kNumbersFrom = 2;  // of the decision `axes`: both axes or the second are numbers
    fuzz::Decisions own(seed, {{"wide", 0}});
    ir::Definition definition = fuzz::make_program(own).def;
    if (own.taken().at("axes") >= kNumbersFrom) {
        fuzz::Decisions with_symbols(seed, {{"wide", 0}, {"axes", 0}});
        definition = fuzz::make_program(with_symbols).def;
    }
    if (!interp::check_semantics(definition).empty()) return std::nullopt;
    definition.name = fmt::format("random_{}", seed);
    return definition;
} catch (const CompileError&) {
    return std::nullopt;
}

std::vector<Recorded> all_programs(std::uint64_t first_seed) {
    std::vector<Recorded> list;
    add_entries(list, "zoo", variants::all());
    add_entries(list, "novel", novel::all());
    add_entries(list, "recurrence", novel::recurrences());
    int left = kRandom;
    for (std::uint64_t seed = first_seed; left > 0; ++seed)
        if (auto definition = random_program(seed)) {
            const std::string name = definition->name;
            list.push_back({name, "random", std::move(*definition)}), --left;
        }
    return list;
}

/// What is like what: a program's nearest variant of the zoo has the same properties, as far as there is one.
struct Properties {
    bool products = false;  ///< of matrices
    bool solves = false;    ///< updates that read the state, as of delta rules
    std::int64_t rows = 1;  ///< per token, the most that an input has
    std::string decay = "none";
};

bool is_product_of_matrices(const ir::Op& op) {
    if (op.code == ir::Opcode::DecayMatmul || op.code == ir::Opcode::DecayApply) return true;
    return ir::is_matmul(op.code) && op.type.rank() >= 2;
}

/// Of states of several axes, or of tokens by them: "number", or "channels" where these decay by themselves.
std::string decay_of(const ir::Definition& definition, const ir::Function& program) {
    using graph::TransitionClass;
    using ir::Opcode;
    const auto has = [&](auto... codes) {
        return std::any_of(program.ops.begin(), program.ops.end(),
                           [&](const ir::Op& op) { return ((op.code == codes) || ...); });
    };
    const std::vector<graph::Transition> transitions = graph::transitions(program);
    const auto some_matrix = [&](auto... classes) {
        return std::any_of(transitions.begin(), transitions.end(), [&](const graph::Transition& t) {
            const ir::StateDecl* state = definition.state(t.state);
            return state != nullptr && state->type.rank() > 1 && ((t.cls == classes) || ...);
        });
    };
    if (has(Opcode::DecayMatmul, Opcode::DecayApply) ||
        some_matrix(TransitionClass::DiagonalRows, TransitionClass::DiagonalColumns, TransitionClass::Elementwise))
        return "channels";
    return has(Opcode::DecayMask) || some_matrix(TransitionClass::Scalar) ? "number" : "none";
}

Properties properties_of(const ir::Definition& definition, const ir::Function& program) {
    Properties p;
    p.products = std::any_of(program.ops.begin(), program.ops.end(), is_product_of_matrices);
    p.solves = std::any_of(program.ops.begin(), program.ops.end(),
                           [](const ir::Op& op) { return op.code == ir::Opcode::Inverse; });
    for (const ir::InputDecl& input : definition.inputs)
        if (input.role == ir::Role::Input) p.rows = std::max(p.rows, input.type.shape[0].factor);
    p.decay = decay_of(definition, program);
    return p;
}

/// Of products and inverses, for the whole call: of the optimised program, before anything of it is given to kernels.
double product_flops(const ir::Function& program, tile::Sizes sizes) {
    const plan::Schedule schedule;
    const ir::Function bound = ir::with_bound_sizes(program, sizes);
    sizes[ir::kChunkSymbol] = kChunk;
    const tile::TileKernel whole = tile::lower(bound, sizes, sizes, schedule.rules());
    constexpr std::int64_t kChunks = kHeads * (kTokens / kChunk);
    return plan::useful_flops(whole.fn) * static_cast<double>(kChunks);
}

/// Of inputs, read once, and of outputs, written once.
double moved_bytes(const ir::Definition& definition, const check::Problem& problem) {
    auto sizes = check::sizes_for(definition, problem);
    sizes["T"] = kTokens, sizes[""] = 1;  // of constant dimensions
    double bytes = 0;
    const auto add = [&](const ir::Type& type) {
        double count = static_cast<double>(size_in_bytes(type.dtype));
        for (const Dim& dim : type.shape) {
            const auto size = sizes.find(dim.symbol);
            count *= static_cast<double>(dim.factor * (size != sizes.end() ? size->second : kHeads));
        }
        bytes += count;
    };
    for (const ir::InputDecl& input : definition.inputs) add(input.type);
    for (const ir::OutputDecl& output : definition.outputs) add(output.type);
    return bytes;
}

std::string row_of(const Recorded& program) {
    const check::Problem problem = the_problem();
    const program::Module module(program.definition, problem.dtype);
    const program::EntryPoint& forward = module.entry("forward");
    const double flops = product_flops(
        forward.optimised, frontend::own_sizes(module.own(), check::sizes_for(program.definition, problem)));
    const Properties p = properties_of(module.own(), forward.optimised);
    return fmt::format("{},{},{:.0f},{:.0f},{:d},{:d},{},{}", program.name, program.origin,
                       moved_bytes(module.definition(), problem), flops, p.products, p.solves, p.rows, p.decay);
}

void write_all(const std::filesystem::path& folder, std::uint64_t first_seed) {
    std::filesystem::create_directories(folder);
    std::ofstream table(folder / "programs.csv");
    table << fmt::format("# --T {} --H {} --K {} --V {} --size M={}\n", kTokens, kHeads, kSize, kSize, kSlots);
    table << "name,origin,bytes,flops,products,solves,rows,decay\n";
    for (const Recorded& program : all_programs(first_seed)) {
        std::ofstream(folder / (program.name + ".ir")) << ir::print(program.definition);
        table << row_of(program) << '\n';
    }
}

}  // namespace
}  // namespace forge::tests

int main(int argc, char** argv) try {
    if (argc < 2 || argc > 3 || argv[1][0] == '-')
        return fmt::print(stderr, "usage: record_programs FOLDER [SEED]\n"), 2;
    forge::tests::write_all(argv[1], argc == 3 ? std::stoull(argv[2]) : 1);
    return 0;
} catch (const std::exception& error) {
    fmt::print(stderr, "record_programs: {}\n", error.what());
    return 1;
}
