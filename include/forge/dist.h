/// Sequence parallelism: one sequence, or packed sequences in a row, over several ranks, each of which has a contiguous
/// part of the tokens. All that ranks exchange is the state at their borders, by the transition of each state
/// (Attention::carried), and the last rows of inputs that prev_token reads.
///
///     forge::dist::Group group(bootstrap);                       // collective: every rank makes one
///     forge::dist::run(attention, call, group, {.has_prev = …, .has_next = …});
///
/// Ranks are threads of a process or processes of a machine, which share memory, or processes anywhere, which exchange
/// by an all-gather of the launcher's. All calls with one group are collective: every rank makes the same calls in the
/// same order. docs/distributed.md says how it works.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "forge/error.h"
#include "forge/runtime.h"

namespace forge::dist {

/// How states go from rank to rank.
enum class Scheme : std::uint8_t {
    Auto,               ///< the cheapest by the cost model
    Direct,             ///< two ranks: the first writes into the second's memory
    Ring,               ///< tile by tile from each rank to the next: fewest bytes
    ScatterScanGather,  ///< each tile goes to its owner, who sums up all ranks and writes to each its own: two steps
    AllGather,          ///< every rank has all summaries and sums them up itself (LASP-2): works everywhere
    Serial,             ///< each rank computes when it has the state before its part: for states without a summary
};
const char* to_string(Scheme scheme);
/// Throws RuntimeError with the list of names.
Scheme scheme_named(const std::string& name);

/// The group failed, and is of no more use: make another one. `peer` is the rank at fault, or -1.
class GroupError : public RuntimeError {
  public:
    GroupError(const std::string& what, int of, std::uint64_t at) : RuntimeError(what), peer(of), epoch(at) {}
    int peer;
    std::uint64_t epoch;  ///< how many exchanges this rank had begun
};
/// A rank died, or did not come within the timeout.
class PeerTimeout : public GroupError {
    using GroupError::GroupError;
};
/// Ranks made different calls.
class PlanMismatch : public GroupError {
    using GroupError::GroupError;
};
/// A rank gave up: its call failed, or it called abort().
class GroupAborted : public GroupError {
    using GroupError::GroupError;
};

/// All that is needed of a launcher.
struct Bootstrap {
    int rank = 0, size = 1;
    /// Every rank gives `bytes` bytes, and gets those of all ranks in order. May throw; is called by all ranks alike.
    std::function<void(const void* in, void* out, std::size_t bytes)> allgather = {};
};

struct Options {
    /// After which a rank that waits for another gives up. Not of what the launcher's all-gather does.
    std::chrono::milliseconds timeout{30000};
    Scheme scheme = Scheme::Auto;
    /// Whether ranks share memory where they can; otherwise they exchange by the launcher's all-gather.
    bool shared_memory = true;
};

/// The ranks of one process, for as many threads: each makes a Group of its own.
std::vector<Bootstrap> threads(int size, std::chrono::milliseconds timeout = std::chrono::milliseconds(30000));
/// The ranks that mpirun started, or Slurm's srun: Open MPI's library is found at run time, and initialised if it is
/// not. RuntimeError where there is none.
Bootstrap mpi();

namespace detail {
class Space;
}

class Group {
  public:
    /// Collective. PeerTimeout where a rank does not come, if the launcher's all-gather says so.
    explicit Group(const Bootstrap& bootstrap, const Options& options = {});
    Group(Group&&) noexcept;
    Group& operator=(Group&&) noexcept;
    ~Group();

    [[nodiscard]] int rank() const;
    [[nodiscard]] int size() const;
    /// Throws what made the group useless, if anything did.
    void check() const;
    /// From any thread: all ranks that wait, or will wait, throw GroupAborted.
    void abort();
    /// In words: ranks, how they exchange, and the scheme of the latest exchange.
    [[nodiscard]] std::string describe() const;

    [[nodiscard]] detail::Space& space() const { return *space_; }

  private:
    std::unique_ptr<detail::Space> space_;
};

/// The tokens of a rank, of packed sequences of which `cu_seqlens` are the offsets (of one sequence: {0, T}).
struct SeqPartition {
    std::int64_t begin = 0, end = 0;       ///< its tokens among all
    std::vector<std::int64_t> cu_seqlens;  ///< its sequences and parts of sequences, offsets from `begin`
    std::vector<std::int64_t> sequences;   ///< which ones of all these are
    bool has_prev = false;                 ///< its first sequence has begun on a rank before
    bool has_next = false;                 ///< its last sequence goes on, on a rank after
    int first_rank = 0;                    ///< where its first sequence begins
    int last_rank = 0;                     ///< where its last sequence ends

    /// The rank's part of equal ones (the first ranks have a token more if they do not come out even), or the tokens
    /// from shard_offsets[rank] to shard_offsets[rank + 1]. Parts may be empty; a sequence that begins where a part
    /// does is the later rank's. A pure function: ranks need not ask each other. RuntimeError for offsets that fall.
    static SeqPartition build(std::span<const std::int64_t> cu_seqlens, int rank, int size,
                              std::span<const std::int64_t> shard_offsets = {});
    friend bool operator==(const SeqPartition&, const SeqPartition&) = default;
};

/// Where a rank's tokens stand among those of its neighbours.
struct Part {
    bool has_prev = false, has_next = false;
};
/// Of calls whose sequences all go over all ranks, [B, T, heads, …].
Part part_of(const Group& group);

/// A call of a rank. Collective. `attention` is compiled of forward, or of backward or "backward of" inputs. On a GPU,
/// the same for all of a group's calls, it is launched on the call's stream, of which each rank has its own; what goes
/// wrong there check() says once the stream has been waited for. The first call of a size is not to be captured in a
/// graph, others may be unless sequences are packed; the group outlives the graph.
///
/// Without cu_seqlens all sequences of the call go over all ranks, B the same on all and T each rank's own. With
/// cu_seqlens the call has the rank's sequences (SeqPartition), of which only the first and the last cross borders. A
/// sequence that has begun before takes its initial state, and its last rows, from the rank before, whatever the call
/// has for it; a final state is that after the rank's last token, so that where a sequence ends it is the
/// sequence's. In a backward pass the states are the forward pass's, and gradients of final states come from the rank
/// after. Sums over tokens, gradients of inputs per head and of numbers, are of the rank's tokens: add them up.
///
/// Slots of states are refused. A call that throws something other than a GroupError before ranks exchange leaves the
/// group whole; one that fails later aborts it.
void run(const Attention& attention, const Call& call, Group& group, const Part& part);
inline void run(const Attention& attention, const Call& call, Group& group) {
    run(attention, call, group, part_of(group));
}

/// What the cost model knows of the memory or wire between two ranks.
struct Link {
    std::string name;
    bool writes_peers = true;          ///< memory of other ranks can be written; otherwise there is an all-gather only
    double hop_us = 0;                 ///< a tile from one rank to the next, beside its bytes
    double step_us = 0;                ///< of scatter-scan-gather
    double bytes_per_us = 0;           ///< of writes
    double gather_us = 0;              ///< an all-gather, beside its bytes
    double gathered_bytes_per_us = 0;  ///< of an all-gather
    double combine_us = 0;             ///< matrices: one more product of a tile on the way
    double fold_us = 0;                ///< the summaries of a rank's segments as one
    std::string source;                ///< where these numbers come from
};
/// shared-memory, messages, nvlink (of H200), infiniband (400 Gb/s per GPU, between nodes). RuntimeError for others.
const Link& link_named(const std::string& name);

/// What is to be exchanged.
struct Volume {
    int ranks = 1;
    double state_bytes = 0, map_bytes = 0;  ///< of a border's states, and of their transitions
    bool matrices = false;                  ///< whether transitions are matrices
    bool summed = true;                     ///< whether all states have summaries
};
struct Priced {
    Scheme scheme = Scheme::Auto;
    double us = 0;    ///< of the exchange; of Serial beside the ranks' work, which is done one after the other
    std::string why;  ///< why it cannot be had, if it cannot
};
/// All schemes, the cheapest first, then those that cannot be had. A pure function.
std::vector<Priced> price(const Volume& volume, const Link& link);

/// The exchange by scatter-scan-gather within nodes of so many ranks and between them, where each rank reaches the one
/// with its number in every other node: a rank has its node's sum of its own tiles, which alone go between nodes. A
/// model; there is no such exchange yet.
double microseconds_over_nodes(const Volume& volume, const Link& within, const Link& between, int per_node);

/// A forward call of the expected shape on each of so many ranks, one sequence over all of them.
struct Scaled {
    int ranks = 1;
    double exchange_us = 0, call_us = 0;
    [[nodiscard]] double efficiency(const Scaled& one) const { return one.call_us / call_us; }
};
/// What a rank's summary costs it, and what follows for so many ranks: all modelled.
struct Scaling {
    bool by_segments = false;              ///< the pass has summaries of its segments, which are the rank's too
    double segments_us = 0, apart_us = 0;  ///< what the summary costs so (if it can be had), and as its own pass
    std::vector<Scaled> calls;             ///< of `ranks`, the first of one rank
};
/// Weak scaling: every rank has the expected tokens, however many ranks there are. GPUs are in nodes of eight.
Scaling scaling(const Attention& attention, const std::vector<int>& ranks, std::int64_t lanes, const Link& link);

/// The exchange of a call of `lanes` sequences times heads over so many ranks, as text: states, bytes, prices, and the
/// model of the whole call on up to so many. What `forge explain --ranks` prints.
std::string explain(const Attention& attention, int ranks, std::int64_t lanes, const Link& link);

}  // namespace forge::dist
