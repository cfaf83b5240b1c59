#include "tests/random/served.h"

#include <fmt/format.h>

#include "check/check.h"
#include "tests/random/chunk_states.h"
#include "tests/random/half_states.h"

namespace forge::fuzz {
namespace {

std::vector<HostBlock*> pointers(std::deque<HostBlock>& blocks) {
    std::vector<HostBlock*> found;
    for (HostBlock& block : blocks) found.push_back(&block);
    return found;
}

class Calls {
  public:
    Calls(Subject& s, int index, const Served& served, Tally& tally)
        : s_(s),
          problem_(s.problem(index)),
          served_(served),
          tally_(tally),
          name_(fmt::format("{}.{}", served.name, index)) {}

    std::vector<std::string> faults() {
        if (is_half(served_.state_dtype) && problem_.shape.strided) return {};  // pools are dense
        plainly();
        if (found_.empty() && served_.kept_chunk > 0) with_states_before_chunks();
        if (found_.empty()) in_pools();
        return std::move(found_);
    }

  private:
    void add(const std::vector<std::string>& faults) {
        for (const std::string& fault : faults) found_.push_back(fmt::format("{}: {}", served_.how, fault));
    }
    void run(const Call& call, std::vector<HostBlock*> blocks, unsigned turn = 1) {
        HalfStates halves(call, served_.state_dtype);
        for (HostBlock& block : halves.blocks) blocks.push_back(&block);
        served_.run(halves.call(), blocks, turn);
        halves.take();
    }

    void plainly() {
        std::vector<std::byte> first;
        for (unsigned turn = 1; turn <= served_.turns && found_.empty(); ++turn) {
            check::clear_results(problem_.buffers);
            run(problem_.buffers.call(), {}, turn);
            add(problem_.faults());
            if (turn == 1) first = results_of(problem_.buffers);
            else if (first != results_of(problem_.buffers)) add({"other bits another time"});
        }
    }
    void with_states_before_chunks() {
        ChunkStatesCall kept(s_.d, name_ + ".kept", problem_, served_.kept_chunk);
        const Call call = kept.call();
        run(call, pointers(kept.blocks));
        add(kept.faults());
        add(problem_.faults());
        ++tally_[served_.engine + ": states before chunks"];
    }
    void in_pools() {
        auto pooled = PooledCall::of(s_.d, name_, problem_.buffers);
        if (!pooled) return;
        const Call call = pooled->call();
        if (served_.wants_zeros) pooled->clear_outputs();
        run(call, pointers(pooled->blocks));
        add(pooled->take(served_.same_bits));
        add(problem_.faults());
        ++tally_[served_.engine + ": states in pools"];
    }

    Subject& s_;
    Problem& problem_;
    const Served& served_;
    Tally& tally_;
    std::string name_;
    std::vector<std::string> found_;
};

}  // namespace

std::vector<std::byte> results_of(const check::Buffers& buffers) {
    std::vector<std::byte> bits;
    for (const auto* list : {&buffers.outputs, &buffers.final_states})
        for (const auto& [name, x] : *list) bits.insert(bits.end(), x.storage.begin(), x.storage.end());
    return bits;
}

std::vector<std::string> faults_of_calls(Subject& s, int index, const Served& served, Tally& tally) {
    return Calls(s, index, served, tally).faults();
}

}  // namespace forge::fuzz
