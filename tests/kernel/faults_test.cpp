/// Faults planted in the statements of kernels that are emitted, of all three kinds: each must be found. First every
/// statement that synchronises is dropped, one at a time; then buffers, rounds, counts and orders are made wrong.
#include "tests/kernel/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "emit/cuda/emit_cuda.h"
#include "kernel/hazards.h"
#include "tests/kernel/plans.h"

namespace forge::tests {
namespace {

using kernel::Access;
using kernel::Kernel;
using kernel::Kind;
using kernel::Side;
using kernel::Statement;
using List = std::vector<Statement>;

const char *const kPortable = "scalar_gla, portable, one-pass, bf16, 128 x 128, 220 KiB",
                  *const kFar = "gated_delta_net, portable, segmented, bf16, 256 x 256, 92 KiB",
                  *const kRoles = "scalar_gla, warp groups, one-pass, bf16, 128 x 128, 32 tasks",
                  *const kAlone = "weighted_tokens, warp groups, one-pass, bf16, 64 x 64, 512 tasks",
                  *const kProducer = "scalar_gla, warp groups, fused, bf16, 64 x 64, 32 tasks",
                  *const kPaired = "scalar_gla, warp groups, one-pass, bf16, 64 x 64, 512 tasks",
                  *const kBlocks = "gated_delta_net, warp groups, one-pass, bf16, 128 x 128, 512 tasks",
                  *const kApart = "kda, warp groups, one-pass, bf16, 128 x 128, 512 tasks",
                  *const kPieces = "gated_delta_net, warp groups, one-pass, bf16, 192 x 128, 512 tasks",
                  *const kBeside = "gated_delta_net, warp groups, one-pass, bf16, 64 x 64, 32 tasks",
                  *const kSegmented = "gated_delta_net, warp groups, segmented, bf16, 64 x 64, 32 tasks",
                  *const kBackward = "scalar_gla, warp groups, backward, bf16, 128 x 128",
                  *const kLookBack = "hgrn, channels, bf16, 256 threads, 1024 channels, look back",
                  *const kClusters = "hgrn, channels, bf16, 256 threads, 1024 channels, clusters";

std::vector<Kernel> kernels_of_plan(const std::string& name) {
    return emit::kernels_of(emit::cuda_source(plan_named(name)));
}

/// What goes through the kernel in order; the last one of a plan.
Kernel scan_of(const std::string& plan) { return kernels_of_plan(plan).back(); }

/// What may be dropped from a kernel without harm, because something else orders the same threads: kinds by place.
struct Dropped {
    std::string name, plan;
    std::vector<std::string> harmless;
};
void PrintTo(const Dropped& dropped, std::ostream* out) { *out << dropped.plan; }

class DroppedStatements : public testing::TestWithParam<Dropped> {};

TEST_P(DroppedStatements, AreMissed) {
    std::vector<std::string> harmless;
    int dropped = 0;
    for (const Kernel& kernel : kernels_of_plan(GetParam().plan))
        for (const Place& place : synchronising_statements(kernel.body)) {
            Kernel faulty = kernel;
            drop(faulty.body, place);
            ++dropped;
            if (kernel::find_hazards(faulty).empty())
                harmless.push_back(kernel.name + ": " + described(kernel.body, place));
        }
    EXPECT_GT(dropped, 0);
    EXPECT_EQ(harmless, GetParam().harmless) << dropped << " dropped";
}

// tests/kernel/harmless_test.cpp drops these from kernels that run.
INSTANTIATE_TEST_SUITE_P(
    Each, DroppedStatements,
    testing::Values(
        Dropped{"Portable", kPortable, {}}, Dropped{"Far", kFar, {}}, Dropped{"Roles", kRoles, {}},
        Dropped{"Alone",
                kAlone,
                {"forge_weighted_tokens_scan: loop 'chunks' > body 'chunk' > operation 'v18' > line > fence",
                 "forge_weighted_tokens_scan: loop 'chunks' > body 'chunk' > operation 'v26' > line > fence",
                 "forge_weighted_tokens_scan: loop 'chunks' > body 'chunk' > operation 'v40' > line > fence",
                 "forge_weighted_tokens_scan: loop 'chunks' > body 'chunk' > operation 'v54' > line > fence",
                 "forge_weighted_tokens_scan: loop 'chunks' > body 'chunk' > operation 't_o_3' > line > fence",
                 "forge_weighted_tokens_scan: loop 'chunks' > body 'chunk' > operation 't_o_3' > line > fence",
                 "forge_weighted_tokens_scan: line > fence", "forge_weighted_tokens_scan: line > barrier"}},
        Dropped{
            "Paired",
            kPaired,
            {"forge_scalar_gla_scan: role 'states' > loop 'chunks' > body 'chunk' > operation 't_o_2' > line > fence"}},
        Dropped{"Producer",
                kProducer,
                {"forge_scalar_gla_states: role 'states' > loop 'chunks' > line > barrier",
                 "forge_scalar_gla_outputs: body 'chunk' > operation 'v16' > line > fence",
                 "forge_scalar_gla_outputs: body 'chunk' > operation 't_o_2' > line > fence",
                 "forge_scalar_gla_outputs: body 'chunk' > operation 't_o_2' > line > fence"}},
        Dropped{"Blocks",
                kBlocks,
                {"forge_gated_delta_net_scan: role 'common' > loop 'chunks' > body 'chunk' > operation 'v13' > line > "
                 "fence",
                 "forge_gated_delta_net_scan: role 'tiles' > loop 'chunks' > body 'chunk' > operation 'v42' > finish",
                 "forge_gated_delta_net_scan: role 'tiles' > loop 'chunks' > body 'chunk' > wait v13_passing.filled "
                 "'to'"}},
        Dropped{"Apart",
                kApart,
                {"forge_kda_shared: line > fence", "forge_kda_shared: body 'chunk' > operation 'v12' > line > fence",
                 "forge_kda_shared: body 'chunk' > operation 'v12' > line > fence",
                 "forge_kda_shared: body 'chunk' > operation 'v25' > line > fence",
                 "forge_kda_scan: role 'inputs' > loop 'chunks' > line > fence"}},
        Dropped{"Pieces",
                kPieces,
                {"forge_gated_delta_net_shared: body 'chunk' > operation 'v24' > line > fence",
                 "forge_gated_delta_net_shared: body 'chunk' > operation 'v27' > line > fence",
                 "forge_gated_delta_net_shared: body 'chunk' > operation 'v27' > line > fence",
                 "forge_gated_delta_net_shared: body 'chunk' > operation 'v31' > line > fence",
                 "forge_gated_delta_net_shared: body 'chunk' > operation 'v31' > line > fence",
                 "forge_gated_delta_net_scan: role 'tiles' > loop 'chunks' > body 'chunk' > operation 't_o_2' > "
                 "finish"}},
        Dropped{"Beside",
                kBeside,
                {"forge_gated_delta_net_shared: loop 'tasks' > body 'chunk' > operation 'v21' > line > fence",
                 "forge_gated_delta_net_shared: loop 'tasks' > body 'chunk' > operation 'v27' > line > fence",
                 "forge_gated_delta_net_shared: loop 'tasks' > body 'chunk' > operation 'v29' > line > fence",
                 "forge_gated_delta_net_shared: loop 'tasks' > body 'chunk' > operation 'v29' > line > fence",
                 "forge_gated_delta_net_shared: loop 'tasks' > body 'chunk' > operation 'v34' > line > fence",
                 "forge_gated_delta_net_shared: loop 'tasks' > body 'chunk' > operation 'v36' > line > fence",
                 "forge_gated_delta_net_shared: loop 'tasks' > body 'chunk' > operation 'v36' > line > fence",
                 "forge_gated_delta_net_scan: role 'states' > loop 'chunks' > body 'chunk' > operation 'v17' > wait "
                 "v17_passing.empty 'to'",
                 "forge_gated_delta_net_scan: role 'outputs' > loop 'chunks' > line > wait stages.filled 'stage'"}},
        Dropped{"Segmented",
                kSegmented,
                {"forge_gated_delta_net_shared: body 'chunk' > operation 'v19' > line > fence",
                 "forge_gated_delta_net_shared: body 'chunk' > operation 'v20' > line > fence",
                 "forge_gated_delta_net_shared: body 'chunk' > operation 'v20' > line > fence",
                 "forge_gated_delta_net_shared: body 'chunk' > operation 'v32' > line > fence",
                 "forge_gated_delta_net_shared: body 'chunk' > operation 'v32' > line > fence",
                 "forge_gated_delta_net_shared: body 'chunk' > operation 'v39' > line > fence",
                 "forge_gated_delta_net_shared: body 'chunk' > operation 'v42' > line > fence",
                 "forge_gated_delta_net_shared: body 'chunk' > operation 'v42' > line > fence",
                 "forge_gated_delta_net_carries: line > fence",
                 "forge_gated_delta_net_scan: role 'states' > loop 'chunks' > body 'chunk' > operation 'v21' > wait "
                 "v21_passing.empty 'to'",
                 "forge_gated_delta_net_scan: role 'outputs' > loop 'chunks' > line > wait stages.filled 'stage'"}},
        Dropped{"LookBack", kLookBack, {}}, Dropped{"Clusters", kClusters, {"forge_hgrn_scan: barrier"}}),
    [](const auto& test) { return test.param.name; });

// Other faults.

using Is = std::function<bool(const Statement&)>;
Is of_kind(Kind kind, const std::string& what = "") {
    return
        [=](const Statement& s) { return s.kind == kind && (what.empty() || s.what.find(what) != std::string::npos); };
}
Is of_channel(Kind kind, const std::string& channel, Side side) {
    return [=](const Statement& s) {
        return s.kind == kind && s.side == side && s.channel.find(channel) != std::string::npos;
    };
}

/// The statements of the named role, or all.
List& body_of(Kernel& kernel, const std::string& role) {
    for (Statement& s : kernel.body)
        if (s.kind == Kind::Role && s.what == role) return s.body;
    return kernel.body;
}

void change(List& list, const Is& is, const std::function<void(Statement&)>& edit) {
    const std::vector<Place> places = places_of(list, is);
    ASSERT_FALSE(places.empty()) << "nothing to change";
    for (const Place& place : places) edit(at(list, place));
}
void change_first(List& list, const Is& is, const std::function<void(Statement&)>& edit) {
    const std::vector<Place> places = places_of(list, is);
    ASSERT_FALSE(places.empty()) << "nothing to change";
    edit(at(list, places[0]));
}

void each_access(List& list, const std::function<void(Access&)>& edit) {
    for (Statement& s : list) {
        for (auto* accesses : {&s.reads, &s.writes})
            for (Access& a : *accesses) edit(a);
        each_access(s.body, edit);
    }
}

/// The list that a place is in.
List& around(List& list, const Place& place) {
    return place.size() == 1 ? list : at(list, Place(place.begin(), place.end() - 1)).body;
}
/// Takes the first such statement out, and puts it before the first of another kind, in its block.
void move_before(List& list, const Is& is, const Is& other) {
    const std::vector<Place> from = places_of(list, is);
    ASSERT_FALSE(from.empty()) << "nothing to move";
    Statement moved = at(list, from[0]);
    drop(list, from[0]);
    const std::vector<Place> to = places_of(list, other);
    ASSERT_FALSE(to.empty()) << "nowhere to move it";
    List& block = around(list, to[0]);
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(to[0].back()), std::move(moved));
}

struct Fault {
    std::string name, plan;
    std::function<void(Kernel&)> plant;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name << " in " << fault.plan; }

class PlantedFaults : public testing::TestWithParam<Fault> {};

TEST_P(PlantedFaults, AreFound) {
    Kernel kernel = scan_of(GetParam().plan);
    ASSERT_EQ(kernel::find_hazards(kernel), std::vector<std::string>{});
    GetParam().plant(kernel);
    EXPECT_FALSE(kernel::find_hazards(kernel).empty());
}

// A producer's kernels wait for stores of the chunk before only where they write over what those read.
TEST(StoresRead, AreAwaitedNoLessThanNeeded) {
    int waits = 0;
    for (const Kernel& kernel : kernels_of_plan(kBackward))
        for (const Place& place : places_of(kernel.body, of_kind(Kind::StoresRead))) {
            Kernel faulty = kernel;
            ++at(faulty.body, place).pending, ++waits;
            EXPECT_FALSE(kernel::find_hazards(faulty).empty()) << kernel.name << ": " << described(kernel.body, place);
        }
    EXPECT_GT(waits, 0);
}

std::vector<Fault> faults_in_roles() {
    const auto in = [](const char* role, const auto& edit) { return [=](Kernel& k) { edit(body_of(k, role)); }; };
    const auto fewer_stages = [](List& list) {
        each_access(list, [](Access& a) {
            if (a.channel == "stages") --a.depth;
        });
    };
    const auto round = [](Kind kind, const char* channel, Side side, int by) {
        return [=](List& list) { change(list, of_channel(kind, channel, side), [=](Statement& s) { s.ahead += by; }); };
    };
    const auto other_side = [](Kind kind, const char* channel, Side side) {
        return [=](List& list) {
            change(list, of_channel(kind, channel, side),
                   [](Statement& s) { s.side = s.side == Side::Filled ? Side::Empty : Side::Filled; });
        };
    };
    const auto step = [](int by) {
        return [=](List& list) { change_first(list, of_kind(Kind::Loop), [=](Statement& s) { s.step += by; }); };
    };
    const auto one_more_pending = [](Kind kind) {
        return [=](List& list) { change_first(list, of_kind(kind), [](Statement& s) { ++s.pending; }); };
    };
    using enum Side;
    return {
        {"InputsArriveInFewerBuffers", kRoles, in("inputs", fewer_stages)},
        {"StatesReadFewerBuffers", kRoles, in("states", fewer_stages)},
        {"OutputsReadFewerBuffers", kRoles, in("outputs", fewer_stages)},
        {"InputsDoNotWaitForARound", kRoles, in("inputs", round(Kind::Wait, "stages", Empty, 1))},
        {"StatesWaitForTheRoundBefore", kRoles, in("states", round(Kind::Wait, "stages", Filled, 1))},
        {"OutputsWaitForTheRoundBefore", kRoles, in("outputs", round(Kind::Wait, "stages", Filled, -1))},
        {"StatesPassWithoutARound", kRoles, in("states", round(Kind::Wait, "passing", Empty, 1))},
        {"OutputsTakeTheRoundBefore", kRoles, in("outputs", round(Kind::Wait, "passing", Filled, -1))},
        {"StatesAnnounceTheWrongSide", kRoles, in("states", other_side(Kind::Arrive, "passing", Filled))},
        {"OutputsReleaseTheWrongSide", kRoles, in("outputs", other_side(Kind::Arrive, "stages", Empty))},
        {"InputsSkipAChunk", kRoles, in("inputs", step(1))},
        {"OutputsTakeEveryChunk", kRoles, in("outputs", step(-1))},
        {"StatesKeepAProductTooFew", kRoles, in("states", one_more_pending(Kind::Finish))},
        {"OutputsKeepAProductTooFew", kRoles, in("outputs", one_more_pending(Kind::Finish))},
        {"InputsWaitForNoCopies", kRoles, in("inputs", one_more_pending(Kind::CopyWait))},
        {"OutputsShareWhatIsTheirOwn", kRoles,
         in("outputs", [](List& list) { each_access(list, [](Access& a) { a.of_instance = 0; }); })},
        {"OutputsOfTwoGroupsOverlap", kRoles,
         in("outputs", [](List& list) { each_access(list, [](Access& a) { a.of_instance /= 2; }); })},
        {"StatesPassIntoOneBuffer", kRoles,
         in("states",
            [](List& list) {
                each_access(list, [](Access& a) {
                    if (!a.channel.empty() && a.channel != "stages") a.depth = 1;
                });
            })},
        {"StatesReleaseBeforeTheyRead", kRoles,
         in("states",
            [](List& list) { move_before(list, of_channel(Kind::Arrive, "stages", Empty), of_kind(Kind::Issue)); })},
        {"StatesReleaseWhileAProductReads", kRoles,
         in("states",
            [](List& list) { move_before(list, of_channel(Kind::Arrive, "stages", Empty), of_kind(Kind::Finish)); })},
        {"StatesAreKeptBeforeTheyAreThere", kRoles,
         in("states", [](List& list) { move_before(list, of_kind(Kind::Keep), of_kind(Kind::Body)); })},
        {"InputsAnnounceBeforeTheyAsk", kRoles,
         in("inputs", [](List& list) { move_before(list, of_kind(Kind::Line), of_kind(Kind::Use)); })},
        {"InputsAnnounceBeforeVectorsAreMade", kRoles,
         in("inputs", [](List& list) { move_before(list, of_kind(Kind::Line), of_kind(Kind::Use, "make_vectors")); })},
        {"TilesReadFewerBuffers", kBlocks, in("tiles", fewer_stages)},
        {"CommonWaitsForTheRoundBefore", kBlocks, in("common", round(Kind::Wait, "stages", Filled, 1))},
        {"CommonPassesWithoutARound", kBlocks, in("common", round(Kind::Wait, "passing", Empty, 1))},
        {"TilesTakeTheRoundBefore", kBlocks, in("tiles", round(Kind::Wait, "passing", Filled, -1))},
        {"TilesReleaseTheWrongSide", kBlocks, in("tiles", other_side(Kind::Arrive, "passing", Empty))},
        {"TilesShareWhatIsTheirOwn", kBlocks,
         in("tiles", [](List& list) { each_access(list, [](Access& a) { a.of_instance = 0; }); })},
        {"TilesKeepAProductTooFew", kBlocks, in("tiles", one_more_pending(Kind::Finish))},
        {"CommonSkipsAChunk", kBlocks, in("common", step(1))},
        {"OneTileReleases", kBlocks, [](Kernel& k) { k.channels.at(1).empty = 4; }},
        {"TheOtherTileNeverReleases", kBlocks, [](Kernel& k) { k.channels.at(1).empty = 12; }},
        {"TooFewArrivalsRelease", kRoles, [](Kernel& k) { k.channels.at(0).empty = 4; }},
        {"TooManyArrivalsRelease", kRoles, [](Kernel& k) { k.channels.at(0).empty = 12; }},
        {"TooFewArrivalsFill", kRoles, [](Kernel& k) { k.channels.at(1).filled = 2; }},
        {"BarriersLieInABuffer", kRoles, [](Kernel& k) { k.channels.at(0).barriers.begin -= 24000; }},
        {"VectorsOverlapBarriers", kRoles,
         in("inputs",
            [](List& list) {
                each_access(list, [](Access& a) {
                    if (a.stride == 800) a.begin += 800, a.end += 800;
                });
            })},
    };
}

std::vector<Fault> faults_alone() {
    const auto all = [](const auto& edit) { return [=](Kernel& k) { edit(k.body); }; };
    return {
        {"AskTooFarAhead", kAlone,
         all([](List& list) { change(list, of_kind(Kind::Later), [](Statement& s) { ++s.body.at(0).ahead; }); })},
        {"AskForMoreFirstChunksThanThereAreBuffers", kAlone,
         all([](List& list) { change_first(list, of_kind(Kind::Loop), [](Statement& s) { s.count += 2; }); })},
        {"MakeVectorsOfAChunkThatHasNotCome", kAlone,
         all([](List& list) { change(list, of_kind(Kind::Use, "make_vectors"), [](Statement& s) { ++s.ahead; }); })},
        {"WaitForAGroupOfCopiesTooFew", kAlone, all([](List& list) {
             const Is waits = [](const Statement& s) {
                 return s.kind == Kind::Line && s.body.at(0).kind == Kind::CopyWait;
             };
             change(list, waits, [](Statement& s) { ++s.body.at(0).pending; });
         })},
        {"HaveABufferTooFew", kAlone,
         all([](List& list) { each_access(list, [](Access& a) { a.depth = std::max(1, a.depth - 1); }); })},
        {"WaitForALateCopyTooFew", kBackward, all([](List& list) {
             const auto in_body = [&](const Place& place) { return place.size() > 2; };
             std::vector<Place> waits = places_of(list, of_kind(Kind::CopyWait));
             std::erase_if(waits, [&](const Place& place) { return !in_body(place); });
             ASSERT_FALSE(waits.empty());
             ++at(list, waits.back()).pending;
         })},
        {"AskForAnInputWhereAnotherIsStillRead", kBackward, all([](List& list) {
             std::vector<Place> late = places_of(list, of_kind(Kind::Copy));
             ASSERT_FALSE(late.empty());
             const Statement copy = at(list, late.back());
             const Place body(late.back().begin(), late.back().begin() + 1);
             at(list, body).body.insert(at(list, body).body.begin(), copy);
         })},
        {"KeepAProductTooFew", kAlone,
         all([](List& list) { change_first(list, of_kind(Kind::Finish), [](Statement& s) { ++s.pending; }); })},
        {"PackAStateWhileItIsMade", kAlone,
         all([](List& list) { move_before(list, of_kind(Kind::Keep), of_kind(Kind::Operation)); })},
    };
}

std::vector<Fault> faults_elsewhere() {
    const auto all = [](const auto& edit) { return [=](Kernel& k) { edit(k.body); }; };
    const auto places = [](int count) {
        return [=](List& list) {
            each_access(list, [=](Access& a) {
                if (a.depth == 4) a.depth = count;
            });
        };
    };
    const auto two_places_ahead = [](List& list) {
        change(list, of_kind(Kind::Compute), [](Statement& s) {
            for (auto* accesses : {&s.reads, &s.writes})
                for (Access& a : *accesses)
                    if (a.ahead == 2) a.ahead = 0;
        });
    };
    const auto swapped = [](const char* first, const char* second) {
        return [=](List& list) { move_before(list, of_kind(Kind::Compute, second), of_kind(Kind::Compute, first)); };
    };
    return {
        {"ReadsAStateThatIsNotThere", kPortable, all([](List& list) {
             move_before(list, of_kind(Kind::Compute, "store t_o"), of_kind(Kind::Compute, "mul t_o"));
         })},
        {"ReusesABufferTooEarly", kPortable, all([](List& list) {
             each_access(list, [](Access& a) { a.end += 64; });  // of the next one
         })},
        {"LoadsBeforeTheChunkBeforeIsOver", kPortable,
         all([](List& list) { change_first(list, of_kind(Kind::Loop), [](Statement& s) { s.body.pop_back(); }); })},
        {"HasAPlaceTooFew", kLookBack, all(places(3))},
        {"HasTwoPlacesInClusters", kClusters, all(places(2))},
        {"TakesThePlaceUnderWay", kLookBack, all(two_places_ahead)},
        {"TakesThePlaceUnderWayInClusters", kClusters, all(two_places_ahead)},
        {"JoinsBeforeTheFirstWalk", kLookBack, all(swapped("first walk", "join"))},
        {"WalksTwiceBeforeItJoins", kLookBack, all(swapped("join", "second walk"))},
        {"WalksTwiceBeforeItJoinsInClusters", kClusters, all(swapped("join", "second walk"))},
        {"TakesATileAfterTheBarrier", kLookBack, all([](List& list) {
             const Place tile = places_of(list, of_kind(Kind::Compute, "take_tile")).back(),
                         place = places_of(list, of_kind(Kind::Compute, "place_tile")).back();
             std::swap(at(list, tile), at(list, place));
         })},
    };
}

std::string name_of_fault(const testing::TestParamInfo<Fault>& test) { return test.param.name; }

INSTANTIATE_TEST_SUITE_P(Roles, PlantedFaults, testing::ValuesIn(faults_in_roles()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(Alone, PlantedFaults, testing::ValuesIn(faults_alone()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(Elsewhere, PlantedFaults, testing::ValuesIn(faults_elsewhere()), name_of_fault);

}  // namespace
}  // namespace forge::tests
