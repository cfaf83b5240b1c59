// What tests/dist/mpi starts several times, as ranks: `mpi_ranks run` computes a sequence together and compares it with
// one rank's; in `mpi_ranks kill` one is killed in the middle, and the others learn of it and go on alone.
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "check/tolerance.h"
#include "tests/dist/ranks.h"

namespace {

using namespace forge;         // NOLINT: a program
using namespace forge::tests;  // NOLINT

const check::Problem& problem() {
    static const check::Problem kProblem{
        .T = 130, .H = 2, .sizes = {{"K", 20}, {"V", 12}}, .dtype = F32, .initial_state = true};
    return kProblem;
}

/// The rank's part of the problem, by itself or with the others, held against the float64 recurrence where it has all.
bool computes(const Attention& attention, const ir::Definition& def, dist::Group* group) {
    check::Buffers whole(def, problem());
    const check::Reference reference = check::reference(whole, attention.chunk());
    attention(whole.call());
    if (!check::compare(whole, reference).ok) return false;
    if (!group) return true;
    check::Buffers together(def, problem());
    RankBuffers mine(together, def, group->rank(), group->size(), {});
    dist::run(attention, mine.call(), *group, mine.part());
    const auto part =
        dist::SeqPartition::build(std::vector<std::int64_t>{0, problem().T}, group->rank(), group->size());
    double square = 0, error = 0;
    for (const auto& [name, x] : together.outputs) {
        const std::int64_t row = x.count() / problem().T;
        for (std::int64_t i = part.begin * row; i < part.end * row; ++i) {
            const double expected = whole.outputs.at(name).at(i), difference = x.at(i) - expected;
            square += expected * expected, error += difference * difference;
        }
    }
    return error <= 4 * check::tolerance(F32) * check::tolerance(F32) * square;  // both have errors of their own
}

int run(bool kill) {
    const dist::Bootstrap ranks = dist::mpi();
    for (const dist::Scheme scheme : {dist::Scheme::Auto, dist::Scheme::Ring, dist::Scheme::AllGather})
        for (const bool shared : {true, false}) {
            if (kill || (!shared && scheme == dist::Scheme::Ring)) continue;
            dist::Group group(ranks, {.scheme = scheme, .shared_memory = shared});
            for (const char* name : {"gla", "gated_delta_net", "shifted_pairs"}) {
                const ir::Definition def = program_named(name).make().define();
                const Attention attention =
                    compile(def, {.dtype = F32, .sizes = check::sizes_for(def, problem()), .chunk = 32});
                if (computes(attention, def, &group)) continue;
                std::printf("rank %d: %s differs, %s\n", group.rank(), name, group.describe().c_str());
                return 1;
            }
            if (group.rank() == 0) std::printf("%s: as one rank\n", group.describe().c_str());
        }
    if (!kill) return 0;
    const ir::Definition def = program_named("gla").make().define();
    const Attention attention = compile(def, {.dtype = F32, .sizes = check::sizes_for(def, problem()), .chunk = 32});
    dist::Group group(ranks, {.timeout = std::chrono::milliseconds(20000)});
    bool whole = computes(attention, def, &group);
    if (group.rank() == 0) {
        std::fflush(stdout);
        raise(SIGKILL);
    }
    try {
        for (int i = 0; i < 1000; ++i) whole = whole && computes(attention, def, &group);
        std::printf("rank %d: learnt nothing\n", group.rank());
    } catch (const dist::PeerTimeout& e) {
        whole = whole && computes(attention, def, nullptr);
        std::printf("rank %d: %s rank %d: %s\n", group.rank(), whole ? "goes on without" : "differs without", e.peer,
                    e.what());
    }
    std::fflush(stdout);
    _exit(0);  // MPI cannot be finalised without all ranks
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc > 1 && std::string(argv[1]) == "kill");
    } catch (const std::exception& e) {
        std::printf("failed: %s\n", e.what());
        std::fflush(stdout);
        _exit(1);
    }
}
