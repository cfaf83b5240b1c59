/// Exchanges of states by themselves: all schemes against a sum in float64, each other's bits, many in a row with ranks
/// that come at different times, and what happens when a rank does not come.
#include "dist/exchange.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "support/random.h"
#include "tests/dist/chain.h"
#include "tests/dist/ranks.h"

namespace forge::tests {
namespace {

using dist::Scheme;
using dist::detail::Exchange;
using dist::detail::Field;
using dist::detail::Summary;
using Map = Carried::Map;

constexpr Scheme kSummed[] = {Scheme::Ring, Scheme::ScatterScanGather, Scheme::AllGather, Scheme::Serial};

/// `reverse`: rank 0 of the chain is the last of the group.
Incoming exchanged(const Chain& chain, int size, dist::Options options, bool reverse) {
    Incoming got(static_cast<std::size_t>(size));
    rethrow(on_ranks(size, options, [&](dist::Group& group) {
        const int rank = reverse ? size - 1 - group.rank() : group.rank();
        auto& mine = got[static_cast<std::size_t>(rank)];
        std::vector<float*> incoming;
        for (const Field& f : chain.fields)
            incoming.push_back(mine.emplace_back(static_cast<std::size_t>(f.lanes * f.block())).data());
        Exchange(chain.fields, 7, reverse).scan(group.space(), chain.summary(rank, size), incoming);
    }));
    return got;
}

TEST(Exchange, SumsRanksUpWithTheSameBitsByAllSchemes) {
    for (int size = 2; size <= 9; ++size) {
        const bool reverse = size % 2 == 1;
        const Chain chain = random_chain(size, static_cast<std::uint64_t>(size));
        const Incoming first = exchanged(chain, size, {.scheme = Scheme::Ring}, reverse);
        for (const Scheme scheme : kSummed)
            for (const bool shared : {true, false}) {
                if (!shared && scheme != Scheme::AllGather && scheme != Scheme::Serial) continue;
                EXPECT_EQ(exchanged(chain, size, {.scheme = scheme, .shared_memory = shared}, reverse), first)
                    << to_string(scheme) << " of " << size << (shared ? "" : " by messages");
            }
        for (std::size_t f = 0; f < chain.fields.size(); ++f) {
            const auto expected = folded(chain, f, size);
            for (std::size_t r = 1; r < expected.size(); ++r)
                for (std::size_t i = 0; chain.open[r - 1] && i < expected[r].size(); ++i)
                    ASSERT_NEAR(first[r][f][i], expected[r][i], 2e-5 * std::max(1.0, std::abs(expected[r][i])))
                        << "field " << f << ", rank " << r << " of " << size;
        }
    }
}

/// A rank that forgets everything sends before it has received: the last rank has its state while the first, which the
/// chain's other ranks would wait for, has not come.
TEST(Exchange, NeedsNotWaitForWhatIsForgotten) {
    Chain chain = random_chain(3, 1);
    chain.open = {true, true, true}, chain.fresh = {true, false, true};
    chain.fields = {{Map::Factors, {9}, {9}, 1}};
    for (std::size_t r = 0; r < 3; ++r)
        chain.states[r] = {std::vector<float>(9, 1)}, chain.maps[r] = {std::vector<float>(9, 0)};
    chain.fresh[2] = false;
    std::atomic<bool> last_has = false;
    rethrow(on_ranks(3, {.scheme = Scheme::Ring}, [&](dist::Group& group) {
        Exchange exchange(chain.fields, 7, false);
        std::vector<float> incoming(9);
        const auto once = [&] { exchange.scan(group.space(), chain.summary(group.rank(), 3), {incoming.data()}); };
        once();  // windows are made together
        while (group.rank() == 0 && !last_has) std::this_thread::yield();
        once();
        if (group.rank() == 2) last_has = true;
    }));
    EXPECT_TRUE(last_has);
}

/// Two groups in turn, ranks that come late by chance, plans of other sizes between: every number is as it should be.
/// FORGE_EXCHANGES=100000 runs as many.
TEST(Exchange, HoldsUnderStress) {
    const char* asked = std::getenv("FORGE_EXCHANGES");
    const int count = asked ? std::atoi(asked) : 10000;
    const auto number = [](int e, int rank, std::size_t i) {
        return static_cast<float>(support::mix(static_cast<std::uint64_t>(e) * 64 + static_cast<std::uint64_t>(rank)) %
                                  97) +
               static_cast<float>(i % 5);
    };
    const std::vector<dist::Bootstrap> other = dist::threads(3);
    std::atomic<int> wrong = 0;
    rethrow(on_ranks(3, {}, [&](dist::Group& first) {
        const dist::Group second(other[static_cast<std::size_t>(first.rank())]);
        const int rank = first.rank();
        std::mt19937 random(static_cast<unsigned>(rank));
        for (int e = 0; e < count; ++e) {
            const dist::Group& group = e % 3 == 0 ? second : first;
            const auto size = static_cast<std::int64_t>(e % 7 == 0 ? 9000 : 40);
            const bool zero = e % 5 == 0;
            std::vector<float> state(static_cast<std::size_t>(size)), map(1, zero ? 0 : 1), incoming(state.size());
            for (std::size_t i = 0; i < state.size(); ++i) state[i] = number(e, rank, i);
            if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
            Exchange exchange({{Map::Factors, {size}, {1}, 1}}, 3, e % 2 == 1);
            const int p = e % 2 == 1 ? 2 - rank : rank;
            exchange.scan(group.space(), {p == 0, p > 0, p < 2, {state.data()}, {map.data()}}, {incoming.data()});
            for (std::size_t i = 0; p > 0 && i < incoming.size(); i += 7) {
                const int before = e % 2 == 1 ? rank + 1 : rank - 1, step = e % 2 == 1 ? 1 : -1;
                const float expected = number(e, before, i) + (p == 2 && !zero ? number(e, before + step, i) : 0);
                if (incoming[i] != expected) ++wrong;
            }
        }
    }));
    EXPECT_EQ(wrong, 0);
}

/// What each rank threw, by name.
template <class Error>
void expect_all(const std::vector<std::exception_ptr>& thrown, const std::string& part, std::size_t but = 99) {
    for (std::size_t r = 0; r < thrown.size(); ++r) {
        if (r == but) continue;
        ASSERT_TRUE(thrown[r]) << "rank " << r << " threw nothing";
        try {
            std::rethrow_exception(thrown[r]);
        } catch (const Error& e) {
            EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
        } catch (const std::exception& e) {
            ADD_FAILURE() << "rank " << r << " threw another error: " << e.what();
        }
    }
}

void scan_once(dist::Group& group, std::int64_t size) {
    std::vector<float> state(static_cast<std::size_t>(size), 1), incoming(state.size());
    Exchange({{Map::Identity, {size}, {}, 1}}, 3, false)
        .scan(group.space(),
              {group.rank() == 0, group.rank() > 0, group.rank() + 1 < group.size(), {state.data()}, {nullptr}},
              {incoming.data()});
}

TEST(Exchange, TimesOutWhereARankStalls) {
    for (const Scheme scheme : kSummed) {
        const auto thrown =
            on_ranks(3, {.timeout = std::chrono::milliseconds(60), .scheme = scheme}, [&](dist::Group& group) {
                scan_once(group, 8);
                if (group.rank() == 0) return;
                EXPECT_THROW(scan_once(group, 8), dist::PeerTimeout);
                scan_once(group, 8);  // the group is of no more use
            });
        expect_all<dist::PeerTimeout>(thrown, "did not come within 60 ms", 0);
    }
}

TEST(Exchange, TellsOtherCallsApart) {
    const auto thrown = on_ranks(3, {}, [&](dist::Group& group) {
        scan_once(group, 8);
        scan_once(group, group.rank() == 1 ? 9 : 8);
        scan_once(group, 8);  // who did not wait for rank 1 learns of it here
        scan_once(group, 8);
    });
    expect_all<dist::PlanMismatch>(thrown, "expected the same calls on all ranks");
}

TEST(Exchange, EndsWhenARankGivesUp) {
    const auto thrown = on_ranks(3, {}, [&](dist::Group& group) {
        scan_once(group, 8);
        if (group.rank() == 1) group.abort();
        for (int i = 0; i < 4; ++i) scan_once(group, 8);
    });
    expect_all<dist::GroupAborted>(thrown, "rank 1 gave up");
    rethrow(on_ranks(3, {}, [&](dist::Group& group) { scan_once(group, 8); }));  // another group works
}

TEST(Exchange, RefusesGroupsOfDifferentOptions) {
    const std::vector<dist::Bootstrap> ranks = dist::threads(2);
    std::vector<std::exception_ptr> thrown(2);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < 2; ++r)
        threads.emplace_back([&, r] {
            try {
                const dist::Group group(ranks[r], {.scheme = r == 0 ? Scheme::Ring : Scheme::AllGather});
            } catch (...) {
                thrown[r] = std::current_exception();
            }
        });
    for (std::thread& t : threads) t.join();
    expect_all<dist::PlanMismatch>(thrown, "other options");
}

/// The numbers of distributed.md, of four H200: which scheme is the cheapest there is the cheapest here.
TEST(Schemes, AreChosenByTheModel) {
    const dist::Link& nvlink = dist::link_named("nvlink");
    const auto best = [&](int ranks, double mib, bool summed = true) {
        return dist::price({ranks, mib * 1048576, 512, false, summed}, nvlink)[0].scheme;
    };
    EXPECT_EQ(best(2, 2), Scheme::Direct) << "what both ranks know need not be summed up";
    EXPECT_EQ(best(4, 2), Scheme::ScatterScanGather);
    EXPECT_EQ(best(4, 64), Scheme::Ring);
    EXPECT_EQ(best(8, 8), Scheme::ScatterScanGather);
    EXPECT_EQ(best(4, 2, false), Scheme::Serial);
    const auto messages = dist::price({4, 1e6, 1e3, false, true}, dist::link_named("messages"));
    EXPECT_EQ(messages[0].scheme, Scheme::AllGather);
    EXPECT_EQ(messages.back().why, "ranks do not share memory");
}

/// The same document's of nodes of eight, and what follows for calls: the last summary and the exchange are all that
/// ranks in segments add to one rank's pass.
TEST(Schemes, AreModelledOverNodes) {
    const auto us = [](int ranks, double sequences) {
        const dist::Volume volume{ranks, sequences * 2097152, sequences * 128, false, true};
        return dist::microseconds_over_nodes(volume, dist::link_named("nvlink"), dist::link_named("infiniband"), 8);
    };
    EXPECT_NEAR(us(16, 1), 29, 1.5);
    EXPECT_NEAR(us(128, 1), 42, 1.5);
    EXPECT_NEAR(us(128, 4), 105, 3);

    CompileOptions options{.dtype = F32, .sizes = {{"K", 16}, {"V", 16}}, .strategy = "segmented", .segments = 4};
    options.load = false;
    const Attention attention = compile(program_named("gla").make(), options);
    const dist::Scaling scaling = dist::scaling(attention, {1, 4}, 8, dist::link_named("shared-memory"));
    ASSERT_EQ(scaling.calls.size(), 2U);
    EXPECT_TRUE(scaling.by_segments);
    EXPECT_EQ(scaling.calls[0].exchange_us, 0);
    EXPECT_GT(scaling.calls[1].exchange_us, 0);
    EXPECT_NEAR(scaling.calls[1].call_us, scaling.calls[0].call_us + scaling.segments_us + scaling.calls[1].exchange_us,
                1e-6);
    const std::string text = dist::explain(attention, 4, 8, dist::link_named("shared-memory"));
    EXPECT_NE(text.find("* of the segments that the pass has anyway"), std::string::npos) << text;
}

}  // namespace
}  // namespace forge::tests
