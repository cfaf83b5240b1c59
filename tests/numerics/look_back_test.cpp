/// What prev_token looks back to before a call's first token is carried from call to call: last rows of inputs, beside
/// the states. In pools of slots too, in place, and past sequences that have no tokens or are skipped.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "check/tolerance.h"
#include "ir/text.h"
#include "tests/numerics/numerics.h"

namespace forge::tests {
namespace {

std::vector<Entry> looking_back() {
    std::vector<Entry> found;
    for (const Entry& entry : programs_in_every_way())
        if (!ir::last_rows(entry.make().define()).empty()) found.push_back(entry);
    return found;
}

class LookBack : public testing::TestWithParam<Entry> {
  protected:
    ir::Definition def_ = GetParam().make().define();

    [[nodiscard]] check::Problem problem(std::vector<std::int64_t> lengths) const {
        check::Problem p;
        p.H = 2, p.HV = check::has_grouped_heads(def_) ? 4 : 0, p.lengths = std::move(lengths);
        p.sizes = {{"K", 20}, {"V", 12}}, p.initial_state = true;
        return p;
    }
};

TEST_P(LookBack, IsListedWithTheStates) {
    const std::string text = ir::print(def_);
    for (const ir::LastRows& last : ir::last_rows(def_))
        EXPECT_NE(text.find("\n  state " + last.name + ": " + to_string(last.type) + " of " + last.input + "\n"),
                  std::string::npos)
            << text;
    EXPECT_EQ(ir::print(ir::parse_definition(text)), text);
}

/// The tokens of `from` that sequence n has from token `first` on, as sequence n of `to`.
void copy_tokens(const ir::Definition& def, const check::Buffers& from, check::Buffers& to,
                 const std::vector<std::int64_t>& first) {
    const auto start = [](const std::vector<std::int64_t>& lengths, std::size_t n) {
        return std::accumulate(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(n), std::int64_t{0});
    };
    for (const ir::InputDecl& in : def.inputs) {
        if (in.role == ir::Role::Scalar) continue;
        const check::OwnedTensor& x = from.inputs.at(in.name);
        check::OwnedTensor& y = to.inputs.at(in.name);
        if (in.role == ir::Role::Head) {
            for (std::int64_t i = 0; i < x.count(); ++i) y.set(i, x.at(i));
            continue;
        }
        const std::int64_t width = x.count() / std::max<std::int64_t>(1, from.problem().tokens());
        for (std::size_t n = 0; n < first.size(); ++n)
            for (std::int64_t i = 0; i < to.problem().lengths[n] * width; ++i)
                y.set(start(to.problem().lengths, n) * width + i,
                      x.at((start(from.problem().lengths, n) + first[n]) * width + i));
    }
}

/// A pool of states that a call reads and writes in place.
struct Pool {
    std::map<std::string, check::OwnedTensor> states;
    std::vector<std::int32_t> slots;

    Pool(const check::Buffers& buffers, std::int64_t size, std::vector<std::int32_t> of) : slots(std::move(of)) {
        for (const auto& [name, x] : buffers.initial_states) {
            std::vector<std::int64_t> shape = x.shape;
            shape[0] = size;
            check::OwnedTensor pool(F32, shape, -1, false);
            const std::int64_t width = x.count() / x.shape[0];
            for (std::int64_t i = 0; i < pool.count(); ++i) pool.set(i, 7);
            for (std::size_t n = 0; n < slots.size(); ++n)
                for (std::int64_t i = 0; slots[n] >= 0 && i < width; ++i)
                    pool.set(slots[n] * width + i, x.at(static_cast<std::int64_t>(n) * width + i));
            states.emplace(name, std::move(pool));
        }
    }
    void use(Call& call) {
        for (auto& [name, x] : states) call.initial_states[name] = call.final_states[name] = x.view();
        call.initial_slots = call.final_slots =
            dense(slots.data(), DType::I32, {static_cast<std::int64_t>(slots.size())});
    }
};

double worst_difference(const check::OwnedTensor& want, std::int64_t at, const check::OwnedTensor& got,
                        std::int64_t from, std::int64_t count) {
    double worst = 0;
    for (std::int64_t i = 0; i < count; ++i)
        worst = std::max(worst, std::fabs(want.at(at + i) - got.at(from + i)) / (1 + std::fabs(want.at(at + i))));
    return worst;
}

// Sequences of a batch go on at different places: one has no tokens in the first call, one in the second, and one sits
// out both.
TEST_P(LookBack, GoesThroughPoolsOfSlots) {
    const std::vector<std::int64_t> whole_lengths = {12, 40, 70, 5}, head_lengths = {5, 0, 70, 2},
                                    tail_lengths = {7, 40, 0, 3};
    const std::vector<std::int32_t> slots = {3, 0, 4, -1};
    for (const std::string& strategy : in_turn(GetParam(), all_strategies(), 2)) {
        const check::Problem p = problem(whole_lengths);
        const auto attention =
            compile_as(def_, {.dtype = F32, .sizes = check::sizes_for(def_, p), .strategy = strategy, .chunk = 16});
        if (!attention) continue;
        check::Buffers whole(def_, p), head(def_, problem(head_lengths)), tail(def_, problem(tail_lengths));
        copy_tokens(def_, whole, head, {0, 0, 0, 0});
        copy_tokens(def_, whole, tail, head_lengths);
        (*attention)(whole.call());
        Pool pool(whole, 5, slots);
        for (const check::Buffers* part : {&head, &tail}) {
            Call call = part->call();
            pool.use(call);
            (*attention)(call);
        }
        for (const auto& [name, x] : whole.final_states) {
            const check::OwnedTensor& states = pool.states.at(name);
            const std::int64_t width = x.count() / 4;
            for (std::int64_t n = 0; n < 3; ++n)
                EXPECT_LE(worst_difference(x, n * width, states, slots[static_cast<std::size_t>(n)] * width, width),
                          1e-4)
                    << strategy << ", state " << name << " of sequence " << n;
            for (const std::int64_t slot : {1, 2})
                for (std::int64_t i = 0; i < width; ++i) ASSERT_EQ(states.at(slot * width + i), 7) << name;
        }
        for (const auto& [name, x] : whole.outputs) {
            const std::int64_t width = x.count() / p.tokens();
            EXPECT_LE(worst_difference(x, 0, head.outputs.at(name), 0, 5 * width), 1e-4) << strategy;
            EXPECT_LE(worst_difference(x, 5 * width, tail.outputs.at(name), 0, 7 * width), 1e-4) << strategy;
            EXPECT_LE(worst_difference(x, 12 * width, tail.outputs.at(name), 7 * width, 40 * width), 1e-4) << strategy;
        }
    }
}

// Without it the first token looks back to the pad, as it does where has_initial_state says that there is none.
TEST_P(LookBack, MayBeLeftOut) {
    const check::Problem p = problem({3, 0, 20});
    const Attention attention = compile_as(def_, {.dtype = F32, .sizes = check::sizes_for(def_, p)}).value();
    check::Problem plain = p;
    plain.initial_state = false;
    check::Buffers buffers(def_, plain), none(def_, p);
    const check::Reference reference = check::reference(buffers, 16);
    attention(buffers.call());
    for (const check::Difference& d : check::compare(buffers, reference).differences)
        EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token << " of "
                          << d.sequence;
    unsigned char has[] = {0, 0, 0};
    Call call = none.call();
    call.has_initial_state = dense(has, DType::Bool, {3});
    attention(call);
    for (const check::Difference& d : check::compare(none, reference).differences)
        EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token << " of "
                          << d.sequence;
    call = none.call();
    call.initial_states.clear(), call.final_states.clear();
    EXPECT_NO_THROW(attention(call));
}

INSTANTIATE_TEST_SUITE_P(All, LookBack, testing::ValuesIn(looking_back()), name_of);

TEST(LookBackShapes, AreThoseOfTheInput) {
    const ir::Definition def = program_named("shifted_pairs").make().define();
    check::Problem p;
    p.H = 2, p.HV = 4, p.T = 5, p.initial_state = true, p.sizes = {{"K", 8}, {"V", 8}};
    const check::Buffers buffers(def, p);
    EXPECT_EQ(buffers.final_states.at("last_k").shape, (std::vector<std::int64_t>{1, 2, 2, 8}));
    EXPECT_EQ(buffers.final_states.at("last_v").shape, (std::vector<std::int64_t>{1, 4, 8}));
    EXPECT_EQ(buffers.final_states.at("last_w").shape, (std::vector<std::int64_t>{1, 2, 2}));
    const Attention attention = compile(def, {.dtype = F32, .sizes = check::sizes_for(def, p)});
    Call call = buffers.call();
    call.initial_states.at("last_k") = call.initial_states.at("last_v");
    try {
        attention(call);
        FAIL() << "accepted";
    } catch (const RuntimeError& error) {
        EXPECT_NE(std::string(error.what()).find("'initial_states.last_k': expected shape [1, 2, 2, 8], got [1, 4, 8]"),
                  std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace forge::tests
