/// What the tests of ranks share: a problem's call cut into the calls of ranks, and threads that make them.
#pragma once

#include <functional>

#include "forge/dist.h"
#include "tests/numerics/numerics.h"

namespace forge::tests {

/// Runs body(group) on so many threads, each of which is a rank. Returns what they threw, null where nothing.
std::vector<std::exception_ptr> on_ranks(int size, const dist::Options& options,
                                         const std::function<void(dist::Group&)>& body);
/// Throws the first of what they threw.
void rethrow(const std::vector<std::exception_ptr>& thrown);

/// Calls with all ranks' parts of the problem, cut at `shards` (empty: equal parts), and puts their results together in
/// `buffers`. `entry`: of which `attention` is.
void run_on_ranks(const Attention& attention, check::Buffers& buffers, const ir::Definition& def, int size,
                  const dist::Options& options, const std::vector<std::int64_t>& shards = {});

/// The calls of one rank: of results that ranks share a rank has tensors of its own.
class RankBuffers {
  public:
    RankBuffers(check::Buffers& whole, const ir::Definition& def, int rank, int size,
                const std::vector<std::int64_t>& shards);
    [[nodiscard]] Call call() const;
    [[nodiscard]] dist::Part part() const { return {partition_.has_prev, partition_.has_next}; }
    /// Its final states into the whole's.
    void merge();

  private:
    [[nodiscard]] bool is_sum(const std::string& state) const;
    [[nodiscard]] TensorView tokens_of(const check::OwnedTensor& x, std::int64_t factor) const;
    [[nodiscard]] check::OwnedTensor rows_of(const check::OwnedTensor& x) const;

    check::Buffers& whole_;
    ir::Definition def_;  ///< the forward pass's
    dist::SeqPartition partition_;
    bool packed_;
    std::map<std::string, check::OwnedTensor> initial_, final_;
    check::OwnedTensor cu_seqlens_;
};

}  // namespace forge::tests
